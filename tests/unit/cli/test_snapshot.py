"""A snapshot: a cluster taken home in one file, and what runs on it."""

import json
import re

import pytest
import yaml

from services.cli.exits import Exit
from services.cli.snapshot_file import SnapshotError, read_snapshot
from shared.messages.commands import PlaceForeignPods, SubmitManifests
from tests.unit.cli import answers
from tests.unit.cli.test_up import Process

QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: ml, submitacl: "ada,grace team", limits: [{limit: l, users: [ada], maxresources: {vcore: 64}}]}
"""
NODE = {
    "nodeID": "host-1", "schedulable": True, "attributes": {"zone": "a", "si/node-partition": "x"},
    "capacity": {"vcore": 8000, "memory": 32 * 2**30, "pods": 110},
    "foreignAllocations": [{"allocationKey": "daemon-1", "resource": {"vcore": 500}}],
}  # fmt: skip
RUNS = answers.pod("train-0", "host-1", applicationID="train", taskGroupName="worker")
WAITS = [
    answers.pod(f"ph-{at}", applicationID="next", placeholder=True, taskGroupName="worker")
    for at in range(3)
]
APPLICATIONS = [
    answers.application("train", running=1, user="ada", placeholders=answers.gang(1, 0, 1)),
    answers.application("next", "Accepted", user="grace", placeholders=answers.gang(3)),
]
GROUPS = [{"name": "worker", "wanted": 3, "held": 0, "replaced": 0, "timedout": 0}]


@pytest.fixture
def taken(api, muster, tmp_path):
    """Return a file with a snapshot of a small cluster, as options have it."""
    api.says("GET /ws/v1/partition/default/nodes", [NODE, {**NODE, "nodeID": "host-2",
             "schedulable": False, "foreignAllocations": []}])  # fmt: skip
    api.says("GET /v1/pods", {"pods": [*WAITS, RUNS], "total": 4})
    api.says("GET /v1/applications", APPLICATIONS)
    detail = {**APPLICATIONS[1], "groups": GROUPS, "pods": WAITS}
    api.says("GET /v1/applications/next", detail)
    said = {**answers.CONFIG, "text": QUEUES, "scheduler": {"preset": "muster"}}
    api.says("GET /v1/config", said)

    def take(*options):
        result = muster("snapshot", *options)
        assert (result.status, result.err) == (0, "")
        file = tmp_path / "snapshot.yaml"
        file.write_text(f"{result.out}\n")
        return file

    return take


def test_a_snapshot_has_all_that_was_there(taken):
    found = read_snapshot(taken())
    assert [(node.name, node.is_cordoned, dict(node.labels)) for node in found.nodes] == [
        ("host-1", False, {"zone": "a"}), ("host-2", True, {"zone": "a"}),
    ]  # fmt: skip
    assert found.nodes[0].capacity == NODE["capacity"]
    assert (found.config.text, found.config.settings) == (QUEUES, {"preset": "muster"})
    foreign, ours = found.commands()
    assert isinstance(foreign, PlaceForeignPods)
    assert (foreign.node, [dict(pod.resource) for pod in foreign.pods]) == (
        "host-1", [{"vcore": 500, "pods": 1}],
    )  # fmt: skip
    assert isinstance(ours, SubmitManifests)
    pods = [json.loads(document.body) for document in ours.documents]
    assert [pod["metadata"]["name"] for pod in pods] == [
        "train-0",
        *(f"next-worker-{n}" for n in range(3)),
    ]
    assert "host-1" in json.dumps(pods[0]["spec"]["affinity"])
    assert "affinity" not in pods[1]["spec"]
    groups = json.loads(pods[1]["metadata"]["annotations"]["yunikorn.apache.org/task-groups"])
    assert (groups[0]["name"], groups[0]["minMember"]) == ("worker", 3)


def test_names_are_hashed_on_request_but_for_queues(taken):
    text = taken("--hash-names").read_text()
    assert not re.findall(r"\b(train|next|ada|grace|team|host-\d|daemon-1)\b", text)
    assert "root.ml" in text
    plain, hashed = read_snapshot(taken()), read_snapshot(taken("--hash-names"))
    assert len(hashed.documents) == len(plain.documents)
    leaf = yaml.safe_load(hashed.config.text)["partitions"][0]["queues"][0]["queues"][0]
    assert re.fullmatch(r"user-\w{8},user-\w{8} group-\w{8}", leaf["submitacl"])


def test_a_scenario_begins_with_it(taken, muster):
    file = taken()
    steps = [
        {"advance": "1s"},
        {"expect": {"pods": {"train-0": {"state": "Running", "node": "host-1"}},
                    "applications": {"next": {"state": "Accepted", "placeholders": 0}},
                    "queues": {"root.ml": {}}, "invariants": True}},
    ]  # fmt: skip
    scenario = file.with_name("scenario.yaml")
    scenario.write_text(yaml.safe_dump({"name": "s", "from": file.name, "steps": steps}))
    result = muster("scenario", "run", str(scenario))
    assert result.status == 0, result.out + result.err


def test_a_replay_takes_its_nodes_queues_and_settings(taken, muster):
    file = taken()
    log = file.with_name("log.csv")
    log.write_text("submit,run,queue,pods,cpu\n0,600,ml,4,2\n")
    result = muster("replay", str(log), "--from", str(file))
    assert (result.status, result.err) == (0, "")
    assert "log.csv on 2 nodes" in result.out
    log.write_text("submit,run,queue,pods,cpu\n0,600,elsewhere,4,2\n")
    assert "0 of 1 jobs started" in muster("replay", str(log), "--from", str(file)).out


def test_what_kubectl_prints_is_one_too(tmp_path):
    file = tmp_path / "cluster.yaml"
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}
    spec = {"schedulerName": "yunikorn", "nodeName": "n", "containers": [{"name": "c"}]}
    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": name, **more},
            "spec": {**spec, **own},
            "status": status,
        }
        for name, more, own, status in (
            ("runs", {}, {}, {"phase": "Running"}),
            ("ended", {}, {}, {"phase": "Succeeded"}),
            ("held", {"annotations": {"yunikorn.apache.org/placeholder": "true"}}, {}, {}),
            ("daemon", {}, {"schedulerName": "default-scheduler"}, {"phase": "Running"}),
        )
    ]
    others = [{"kind": "Service", "metadata": {"name": "s"}}]
    file.write_text(yaml.safe_dump({"kind": "List", "items": [*pods, *others, node]}))
    found = read_snapshot(file)
    assert [json.loads(item.body)["metadata"]["name"] for item in found.documents] == ["runs"]
    assert [pod.name for pod in found.foreign["n"]] == ["daemon"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Pod\nmetadata: {name: p}\n", "no Node in it"),
        ("kind: Node\nmetadata: {name: n}\n", "a Node with metadata.name and status.allocatable"),
        ("kind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: 1}}\n---\nkind: ConfigMap\n",
         "no key queues.yaml"),
        ("a: [", "expected"),
    ],
)  # fmt: skip
def test_what_is_none_is_a_sentence(tmp_path, text, said):
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(SnapshotError) as error:
        read_snapshot(file)
    assert said in str(error.value)
    assert str(error.value).count(str(file)) == 1


def test_it_goes_without_what_it_has_itself(muster, taken):
    result = muster("up", "--port", "0", "--from", str(taken()), "--demo")
    assert result.status == Exit.CONFIGURATION
    assert "--from cannot be combined with --demo, --config and --kubeconfig" in result.err


def test_muster_up_runs_on_it(taken):
    run = Process("--from", str(taken()))
    assert "2 nodes" in run.until("Muster is up: ")
    assert "running 1" in run.until("train            Running")
    assert not [line for line in run.lines if line.startswith("refused")]
    status, _ = run.interrupt()
    assert status == 0
