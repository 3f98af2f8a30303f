"""`kubectl muster`, with a kubectl in between that reaches the API of the test."""

import json
import os
import shutil
import sys
import time
from contextlib import contextmanager

import pytest

from services.cli import kubectl as plugin
from tests.unit.cli import answers
from tools.main import kubectl_main

KUBECTL = """#!{python}
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
with open(folder + "/pid", "w") as file:
    print(os.getpid(), file=file)
with open(folder + "/asked", "a") as file:
    print(json.dumps(words), file=file)
words = [word for word in words if not word.startswith(("--context=", "--kubeconfig="))]
names = ("--namespace=", "--address=", "--output=", "--minify", "--ignore-not-found")
unknown = [word for word in words if word.startswith("-") and not word.startswith(names)]
if unknown:
    sys.exit("error: unknown flag: " + unknown[0])
plain = [word for word in words if not word.startswith("-")]
with open(folder + "/cluster.json") as file:
    cluster = json.load(file)
match plain:
    case ["config", "view"]:
        print(cluster["namespace"], end="")
    case ["get", "secret", "api-tokens"]:
        if cluster["token"] is None:
            sys.exit('Error from server (Forbidden): secrets "api-tokens" is forbidden')
        print(cluster["token"], end="")
    case ["get", *names]:
        found = [cluster["objects"][name] for name in names if name in cluster["objects"]]
        if found:
            several = {{"apiVersion": "v1", "kind": "List", "items": found}}
            print(json.dumps(found[0] if len(found) == 1 else several))
    case ["port-forward", "service/api", ":9080"]:
        if not cluster["port"]:
            sys.exit('Error from server (NotFound): services "api" not found')
        print("Warning: something that is said beside it", file=sys.stderr, flush=True)
        print(f"Forwarding from 127.0.0.1:{{cluster['port']}} -> 9080", flush=True)
        print("Handling connection for 9080\\n" * 10_000, flush=True)  # more than a pipe holds
        open(folder + "/has-said", "w")
        time.sleep(600)
    case _:
        sys.exit("error: unknown command " + " ".join(plain))
"""


class Cluster:
    """What the kubectl of the test says, and what it was asked."""

    def __init__(self, folder, port):
        self.folder = folder
        self.says = {"namespace": "team", "token": None, "objects": {}, "port": port}

    def write(self):
        (self.folder / "cluster.json").write_text(json.dumps(self.says))

    @property
    def asked(self):
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    def asked_for(self, word):
        return [words for words in self.asked if word in words]


@pytest.fixture
def cluster(api, tmp_path, monkeypatch):
    path = tmp_path / "kubectl"
    path.write_text(KUBECTL.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name in ("MUSTER_API_URL", "MUSTER_TOKEN", "MUSTER_KUBERNETES_NAMESPACE"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)  # what the program sets goes with the test
    return Cluster(tmp_path, api.server_address[1])


@pytest.fixture
def typed(cluster, monkeypatch, capsys):
    def run(*words):
        cluster.write()
        monkeypatch.setattr(sys, "argv", ["kubectl-muster", *words])
        try:
            kubectl_main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_the_api_is_reached_by_a_port_that_is_closed_again(api, cluster, typed):
    api.says("GET /v1/applications", [])
    status, out, err = typed("apps", "--context", "staging", "-o", "name")
    assert (status, out, err) == (0, "", "")
    (forward,) = cluster.asked_for("port-forward")
    assert forward[:2] == ["--context=staging", "--namespace=muster"]
    pid = int((cluster.folder / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert api.tokens == [""]


def test_what_kubectl_says_of_every_connection_holds_nobody_up(api, cluster, typed, monkeypatch):
    api.says("GET /v1/applications", [])
    forwarded = plugin.Kubectl.forwarded

    @contextmanager
    def slowly(kubectl):
        with forwarded(kubectl) as url:
            started = time.monotonic()
            while not (cluster.folder / "has-said").exists():
                assert time.monotonic() - started < 60, "kubectl cannot say what it has to say"
                time.sleep(0.01)
            yield url

    monkeypatch.setattr(plugin.Kubectl, "forwarded", slowly)
    assert typed("apps")[0] == 0


@pytest.mark.parametrize("word", ["--url={}", "MUSTER_API_URL"])
def test_an_address_that_is_given_needs_no_port(api, cluster, typed, word, monkeypatch):
    api.says("GET /v1/applications", [])
    if word == "MUSTER_API_URL":
        monkeypatch.setenv(word, api.url)
    words = [word.format(api.url)] if "--" in word else []
    assert typed("apps", *words)[0] == 0
    assert not (cluster.folder / "asked").exists()


def test_the_token_is_what_the_secret_has_unless_one_is_given(api, cluster, typed):
    cluster.says["token"] = "muster_x"
    api.says("GET /v1/applications", [])
    assert typed("apps")[0] == 0
    assert typed("apps", "--token", "muster_y")[0] == 0
    assert api.tokens == ["Bearer muster_x", "Bearer muster_y"]


def test_pods_are_those_of_the_contexts_namespace_or_of_all(api, cluster, typed):
    rows = [{**answers.PODS[0], "name": name, "namespace": name} for name in ("team", "other")]
    api.says("GET /v1/pods", {"pods": rows, "total": 2})
    assert typed("pods", "-o", "name")[1] == "team\n"
    assert typed("pods", "-o", "name", "-n", "other")[1] == "other\n"
    assert typed("pods", "-o", "name", "-A")[1] == "team\nother\n"
    cluster.says["namespace"] = ""
    assert typed("pods", "-o", "name")[1] == ""


def job(labels):
    return {"kind": "Job", "spec": {"template": {"metadata": {"labels": labels}}}}


def pod(scheduler):
    return {"kind": "Pod", "metadata": {"uid": "u-1"}, "spec": {"schedulerName": scheduler}}


def test_of_a_pod_of_another_scheduler_muster_says_that_it_is_none_of_its_own(api, cluster, typed):
    cluster.says["objects"] = {"pods/train": pod("default-scheduler")}
    status, _, err = typed("why", "train")
    assert status == 1
    assert "pod team/train is not Muster's: its schedulerName is default-scheduler" in err
    assert api.asked == []


@pytest.mark.parametrize(
    ("objects", "meant"),
    [
        ({}, "train"),
        ({"jobs.batch/train": job({"applicationId": "app-7"})}, "app-7"),
        ({"jobs.batch/train": job(None)}, "yunikorn-team-autogen"),
        ({"jobs.batch/train": {"kind": "Job", "spec": []}}, "train"),
        ({"pods/train": pod("yunikorn"),
          "jobs.batch/train": job({"applicationId": "app-7"})}, "u-1"),
    ],
)  # fmt: skip
def test_a_name_is_a_pods_or_a_jobs_of_the_namespace_before_an_applications(
    api, cluster, typed, objects, meant
):
    cluster.says["objects"] = objects
    assert typed("why", "-o", "json", "train")[0] != 0  # it answers 404
    assert api.asked == [f"GET /v1/why/{meant}"]
    (looked,) = cluster.asked_for("jobs.batch/train")
    assert looked[0] == "--namespace=team"


def test_what_kubectl_says_is_repeated_with_what_to_do(cluster, typed):
    cluster.says["port"] = 0
    status, out, err = typed("apps", "--muster-namespace=elsewhere")
    assert (status, out) == (3, "")
    assert 'services "api" not found' in err
    assert "namespace elsewhere" in err
    assert "--muster-namespace" in err


def test_without_a_kubectl_it_says_so(typed, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    status, _, err = typed("apps")
    assert status == 3
    assert "kubectl cannot be run" in err


def test_help_and_what_asks_no_api_need_no_cluster(cluster, typed):
    assert "Usage: kubectl muster why" in typed("why", "--help")[1]
    assert typed("completion", "bash")[0] == 0
    assert typed("why")[0] == 2
    assert typed("nonsense")[0] == 2
    assert not cluster.asked_for("port-forward")[1:]


def test_the_real_kubectl_knows_the_namespace_of_its_context(tmp_path):
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    config = tmp_path / "config"
    contexts = [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "two", "context": {"cluster": "c", "user": "u"}},
    ]
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": contexts,
                "current-context": "one",
            }
        )
    )

    def namespace(*words):
        asked, _ = plugin._options([f"--kubeconfig={config}", *words])
        return plugin.Kubectl(asked).namespace

    assert namespace() == "team"
    assert namespace("--context=two") == "default"
    assert namespace("--context", "two", "-n", "third") == "third"
