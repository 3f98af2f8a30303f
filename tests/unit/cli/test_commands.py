"""What a command line prints, where, and with which exit status it ends."""

import json
import re
import socket

import pytest
import yaml

from services.cli.exits import Exit
from services.cli.table import Column, sort_rows
from tests.unit.cli import answers

NODES_PATH = "GET /ws/v1/partition/default/nodes"


def names(result):
    return result.out.splitlines()


# --- rows: which, in which order, as what -------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], ["node-0010", "node-0002", "node-0001"]),
        (["--sort", "NODE"], ["node-0001", "node-0002", "node-0010"]),
        (["--sort", "-pods"], ["node-0010", "node-0002", "node-0001"]),
        (["--filter", "state=ready"], ["node-0010", "node-0002"]),
        (["--filter", "STATE!=Ready"], ["node-0001"]),
        (["--filter", "node~000", "--filter", "pods>0"], ["node-0002"]),
        (["--filter", "pods<=1", "--sort", "node"], ["node-0001", "node-0002"]),
        (["--filter", "vcore 6"], ["node-0010"]),
        (["--filter", "nothing like it"], []),
    ],
)
def test_rows_are_sorted_and_chosen_by_what_is_shown(api, muster, arguments, wanted):
    api.says(NODES_PATH, answers.NODES)
    assert names(muster("nodes", "-o", "name", *arguments)) == wanted
    as_json = json.loads(muster("nodes", "-o", "json", *arguments).out)
    assert [node["nodeID"] for node in as_json] == wanted
    assert yaml.safe_load(muster("nodes", "-o", "yaml", *arguments).out) == as_json


def test_numbers_in_names_count_as_numbers_and_what_has_none_comes_last():
    rows = [{"n": name} for name in ("n10", "", "n2", "N1", "m3")]
    column = Column("N", lambda row: row["n"])
    assert [row["n"] for row in sort_rows(rows, [column], "n")] == ["m3", "N1", "n2", "n10", ""]
    assert [row["n"] for row in sort_rows(rows, [column], "-n")] == ["n10", "n2", "N1", "m3", ""]


def test_amounts_are_compared_as_amounts(api, muster):
    api.says("GET /v1/pods", {"pods": answers.PODS, "total": 3})
    api.says(NODES_PATH, answers.NODES)
    result = muster("top", "nodes", "--filter", "memory>512Mi", "-o", "name")
    assert names(result) == ["node-0010"]
    assert names(muster("top", "--filter", "vcore>=2000", "-o", "name")) == [
        "node-0010",
        "node-0002",
    ]


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--sort", "COLOUR", "there is no column 'COLOUR'; there are NODE, STATE, PODS, ALLOCATED"),
        ("--filter", "colour=red", "there is no column 'colour'"),
        ("--filter", "pods>many", "PODS: 'many' is not a quantity"),
        ("--output", "toml", "'toml' is not one of 'table', 'json', 'yaml', 'name'"),
        ("--interval", "0", "Input should be greater than or equal to 0.2"),
        ("--url", "localhost:80", "'localhost:80' is no address: expected http://HOST:PORT"),
        ("--url", "http://host:99999", "is no address"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_exit_status_2(api, muster, option, value, sentence):
    api.says(NODES_PATH, answers.NODES)
    result = muster("nodes", option, value)
    assert (result.status, result.out) == (2, "")
    assert sentence in result.err
    assert result.err.count("Error: ") == 1


def test_a_queue_tree_is_a_tree_as_data_and_rows_once_it_is_sorted(api, muster):
    api.says("GET /v1/queues", answers.QUEUES)
    api.says("GET /v1/config", answers.CONFIG)
    assert json.loads(muster("queues", "-o", "json").out)["children"][0]["runningApps"] == 1
    rows = json.loads(muster("queues", "-o", "json", "--sort", "-path").out)
    assert [row["queuename"] for row in rows] == ["root.ml", "root.batch", "root"]


def test_wide_has_every_column_and_every_row_on_one_line(api, muster):
    api.says("GET /v1/pods", {"pods": answers.PODS, "total": 3})
    result = muster("pods", "--wide", width=80)
    lines = result.out.splitlines()
    assert len(lines) == 4
    assert re.split(r"\s\s+", lines[0]) == [
        "POD", "APPLICATION", "QUEUE", "NAMESPACE", "STATE", "NODE", "TASK GROUP", "RESOURCES",
        "PRIORITY", "AGE", "KEY", "WHY",
    ]  # fmt: skip
    assert lines[3].endswith(answers.WHY_GANG)


def test_what_a_terminal_would_obey_is_written_out(api, muster):
    nasty = answers.application("a", "Failed", message="\x1b[2Jgone\nnext")
    api.says("GET /v1/applications", [nasty])
    for width in (0, 80):
        out = muster("apps", width=width).out
        assert "\\x1b[2Jgone next" in out
        assert "\x1b" not in out


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "", "a\nb", "x" * 501])
@pytest.mark.parametrize("command", ["app", "trace", "drain", "undrain", "delete"])
def test_a_name_that_nothing_can_have_is_refused_before_anything_is_asked(
    api, muster, command, name
):
    result = muster(command, name)
    assert result.status == Exit.USAGE
    assert "name" in result.err
    assert "Traceback" not in result.err
    assert api.asked == []


@pytest.mark.parametrize(
    ("command", "path", "said", "sentence"),
    [
        ("node", "node", "Node", "no node is called nope; `muster nodes` shows all"),
        ("user", "usage/user", "User", "no user is called nope; `muster top users` shows all"),
    ],
)
def test_a_name_that_is_not_there_is_named(api, muster, command, path, said, sentence):
    where = f"GET /ws/v1/partition/default/{path}/nope"
    api.says(where, {"status_code": 404, "message": f"{said} not found"}, status=404)
    result = muster(command, "nope")
    assert (result.status, result.err) == (Exit.REFUSED, f"muster: {sentence}\n")


def test_what_is_not_there_is_exit_status_1_and_the_apis_sentence(api, muster):
    api.says(
        "GET /v1/applications/nope",
        {"status_code": 404, "message": "Application nope not found"},
        status=404,
    )
    result = muster("app", "nope")
    assert (result.status, result.out, result.err) == (
        Exit.REFUSED,
        "",
        "muster: Application nope not found\n",
    )


@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (404, "text/plain", "404 page not found", "answered 404: the server there does not know"),
        (200, "text/html", "<html>", "answered 200 with text/html, not JSON: is that Muster's"),
        (502, "text/html; charset=utf-8", "<h1>Bad", "answered 502 with text/html, not JSON"),
        (301, "text/html", "moved", "answered 301 with text/html, not JSON"),
        (200, "application/json", "{", "answered 200 with application/json, not JSON"),
    ],
)
@pytest.mark.parametrize("command", [["apps"], ["app", "a"], ["queues"], ["drain", "n"]])
def test_an_answer_that_is_no_json_is_a_sentence(api, muster, status, kind, body, said, command):
    for path in ("GET /v1/applications", "GET /v1/applications/a", "GET /v1/queues"):
        api.says_text(path, body, status, kind)
    api.says_text("POST /v1/nodes/n/drain", body, status, kind)
    result = muster(*command)
    assert (result.status, result.out) == (Exit.NO_ANSWER, "")
    assert said in result.err
    assert result.err.startswith("muster: ")
    assert result.err.count("\n") == 1


def test_nobody_there_is_exit_status_3_and_says_what_to_do(muster, unused_port):
    result = muster("apps", "--url", f"http://127.0.0.1:{unused_port}")
    assert (result.status, result.out) == (Exit.NO_ANSWER, "")
    assert "Start it with `muster up`" in result.err
    assert result.err.count("\n") == 1


@pytest.fixture
def unused_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


def test_a_web_server_that_speaks_no_http_is_a_sentence(muster):
    with socket.create_server(("127.0.0.1", 0)) as server:
        import threading

        def answer():
            taken, _ = server.accept()
            with taken:
                taken.recv(1000)
                taken.sendall(b"SSH-2.0-nobody\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        result = muster("apps", "--url", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert result.status == Exit.NO_ANSWER
    assert "did not answer as a web server does" in result.err


# --- submitting and deleting --------------------------------------------------------------------


def verdict(**fields):
    accepted = {
        "source": "a.yaml", "document": 1, "kind": "Job", "name": "j", "applicationID": "j",
        "pods": 3,
    }  # fmt: skip
    return {"accepted": [accepted], "refused": [], **fields}


REFUSED = {"source": "a.yaml", "document": 2, "field": "spec", "message": "a map was expected"}


def test_submit_and_delete_say_what_became_of_every_document(api, muster, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("x: y\n")
    api.says("POST /v1/manifests", verdict())
    result = muster("submit", "-f", str(file))
    assert (result.status, result.err) == (Exit.DONE, "")
    assert result.out == "accepted a.yaml: document 1: Job j (application j, 3 pods)"
    assert api.body == b"x: y\n"
    assert muster("submit", "-f", str(file), "-o", "name").out == "j"
    api.says("POST /v1/manifests/delete", verdict(refused=[REFUSED]))
    result = muster("delete", "-f", str(file))
    assert result.status == Exit.REFUSED
    assert result.out == "deleted a.yaml: document 1: Job j (application j, 3 pods)"
    assert result.err == "refused  a.yaml: document 2: spec: a map was expected\n"


def test_what_is_taken_without_effect_is_a_warning_and_no_mistake(api, muster, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("x: y\n")
    answer = verdict()
    answer["accepted"][0]["warnings"] = ["spec.a: none here"]
    api.says("POST /v1/manifests", answer)
    result = muster("submit", "-f", str(file))
    assert (result.status, result.out) == (
        Exit.DONE, "accepted a.yaml: document 1: Job j (application j, 3 pods)",
    )  # fmt: skip
    assert result.err == "warning  a.yaml: document 1: spec.a: none here\n"


def test_one_mistake_is_one_error(api, muster, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("{")
    message = f"{file}: document 1: not YAML"
    api.says("POST /v1/manifests", {"status_code": 400, "message": message}, status=400)
    result = muster("submit", "-f", str(file))
    assert (result.status, result.out) == (Exit.REFUSED, "")
    assert result.err == f"refused  {file}: document 1: not YAML\n"
    result = muster("submit", "-f", str(tmp_path / "none.yaml"))
    assert result.err == f"refused  {tmp_path / 'none.yaml'}: No such file or directory\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["scenario", "run"], Exit.USAGE),
        (["config", "check"], Exit.REFUSED),
        (["config", "apply"], Exit.REFUSED),
        (["submit", "-f"], Exit.REFUSED),
        (["delete", "-f"], Exit.REFUSED),
    ],
)
def test_a_file_that_is_not_there_or_is_none_is_named_once(api, muster, tmp_path, command, status):
    (tmp_path / "folder.yaml").mkdir()
    message = "not YAML: did not find expected node content"
    for path in ("config", "manifests", "manifests/delete"):
        api.says(f"POST /v1/{path}", {"message": message}, status=400)
    (tmp_path / "bad.yaml").write_text("a: [")
    for name, said in (
        ("none.yaml", "No such file or directory"),
        ("folder.yaml", "Is a directory"),
        ("bad.yaml", "expected"),
    ):
        result = muster(*command, str(tmp_path / name))
        wanted = status if name == "bad.yaml" else Exit.NO_FILE
        assert (result.status, result.out) == (wanted, "")
        assert said in result.err
        assert result.err.count(name) == 1
        assert result.err.count("\n") == 1
        assert "Errno" not in result.err


def test_delete_goes_on_after_a_refusal_and_ends_with_1(api, muster):
    api.says("DELETE /v1/applications/a", {"message": "Application a not found"}, status=404)
    api.says("DELETE /v1/applications/b", {"deleted": "b", "hadEnded": False})
    api.says("DELETE /v1/applications/c", {"deleted": "c", "hadEnded": True})
    result = muster("delete", "a", "b", "c")
    assert result.status == Exit.REFUSED
    assert result.err == "muster: Application a not found\n"
    assert names(result) == [
        "deleted b",
        "deleted c: it had ended, and stays among those in `muster apps`",
    ]


def test_delete_without_a_name_or_a_file_is_typed_wrong(muster):
    result = muster("delete")
    assert result.status == Exit.USAGE
    assert "name an application, or a manifest with -f" in result.err


# --- nodes, configuration, version --------------------------------------------------------------


def test_one_dead_letter_is_shown_replayed_or_dropped(api, muster):
    letter = {
        "inbox": "core.default", "kind": "UpdateRequest", "messageID": "m-1", "reason": "because",
        "bytes": 5000, "body": "\x1b[2J\\xc1", "isWhole": False,
    }  # fmt: skip
    api.says("GET /v1/dead-letters/m-1", letter)
    shown = muster("dead-letters", "show", "m-1")
    assert shown.status == 0
    assert "because" in shown.out
    assert "5000, the first of them below" in shown.out
    assert "\x1b" not in shown.out
    api.says("POST /v1/dead-letters/m-1/replay", {"replayed": ["m-1"], "refused": []})
    done = muster("dead-letters", "replay", "m-1")
    assert (done.status, done.out) == (0, "m-1 was handled")
    refused = {"replayed": ["m-1"], "refused": [{"messageID": "m-2", "reason": "still"}]}
    api.says("POST /v1/dead-letters", refused)
    both = muster("dead-letters", "replay", "--reason", "be cause")
    assert (both.status, both.out, both.err) == (1, "m-1 was handled", "m-2 stays: still\n")
    assert api.asked[-1] == "POST /v1/dead-letters?reason=be+cause"
    api.says("DELETE /v1/dead-letters/m-1", {"dropped": ["m-1"]})
    assert muster("dead-letters", "drop", "m-1").out == "m-1 is gone"
    api.says("DELETE /v1/dead-letters", {"dropped": ["m-1", "m-2"]})
    assert muster("dead-letters", "drop", "--reason=b").out == "m-1 is gone\nm-2 is gone"


@pytest.mark.parametrize("what", [["replay"], ["drop"], ["replay", "m-1", "--reason", "b"]])
def test_which_dead_letters_are_meant_has_to_be_said(api, muster, what):
    assert muster("dead-letters", *what).status == 2
    assert api.asked == []


def test_dead_letters_with_a_reason_are_listed(api, muster):
    api.says("GET /v1/dead-letters", {"deadLetters": [], "total": 4})
    listed = muster("dead-letters", "--reason", "x")
    assert "no dead letters with this reason" in listed.out + listed.err
    assert api.asked == ["GET /v1/dead-letters?reason=x"]


def test_drain_and_undrain_say_what_holds_now(api, muster):
    api.says("POST /v1/nodes/n1/drain", {"nodeID": "n1", "schedulable": False})
    api.says("POST /v1/nodes/n1/undrain", {"nodeID": "n1", "schedulable": True})
    assert muster("drain", "n1").out.startswith("n1 is drained: its pods keep running")
    assert muster("undrain", "n1").out == "n1 accepts new pods again"
    refusal = "the nodes are a Kubernetes cluster's: use kubectl cordon, and kubectl uncordon"
    api.says("POST /v1/nodes/n1/drain", {"message": refusal}, status=409)
    result = muster("drain", "n1")
    assert (result.status, result.err) == (Exit.REFUSED, f"muster: {refusal}\n")


def test_config_apply_says_that_a_refused_file_changes_nothing(api, muster, tmp_path):
    file = tmp_path / "q.yaml"
    file.write_text("partitions: []")
    api.says("POST /v1/config", {"accepted": True})
    assert muster("config", "apply", str(file)).out == f"{file} is in use now"
    api.says("POST /v1/config", {"message": "line 1: no partition"}, status=422)
    result = muster("config", "apply", str(file))
    assert (result.status, result.out) == (Exit.REFUSED, "")
    assert result.err == f"{file}: refused, nothing has changed: line 1: no partition\n"


CONFIG_MAP = """\
kind: ConfigMap
metadata: {name: yunikorn-configs}
data:
  queues.yaml: |
    partitions:
      - name: default
        queues:
          - {name: root, submitacl: "*", queues: [{name: a, resources: {max: {vcore: 8}}}]}
"""


def test_config_check_and_apply_read_config_maps(api, muster, tmp_path):
    file = tmp_path / "configs.yaml"
    file.write_text(CONFIG_MAP)
    where = "(queues.yaml of ConfigMap yunikorn-configs)"
    result = muster("config", "check", str(file))
    assert (result.status, result.out) == (0, f"ok {file} {where}")
    api.says("POST /v1/config", {"accepted": True})
    assert muster("config", "apply", str(file)).out == f"{file} {where} is in use now"
    assert api.body.decode().startswith("partitions:\n")
    file.write_text(
        CONFIG_MAP.replace("\ndata:", "\ndata:\n  muster.scheduler.usageHalfLife: '0s'")
    )
    result = muster("config", "check", str(file))
    assert result.status == 0
    assert result.err.startswith(f"{file}: warning: usageHalfLife: a duration of 1m or more")
    file.write_text(CONFIG_MAP.replace("vcore: 8", "vcore: much"))
    result = muster("config", "check", str(file))
    assert result.status == Exit.REFUSED
    assert result.err.startswith(f"{file}:8 {where}: ")


def test_config_diff_says_what_would_change_and_for_whom(api, muster, tmp_path):
    file = tmp_path / "configs.yaml"
    file.write_text(CONFIG_MAP)
    text = CONFIG_MAP.partition("|\n")[2]
    api.says("GET /v1/config", {**answers.CONFIG, "text": text.replace("vcore: 8", "vcore: 4")})
    api.says("POST /v1/what-if", answers.WHAT_IF)
    result = muster("config", "diff", str(file))
    assert result.status == 0
    head, row = result.out.splitlines()[:2]
    assert head.split() == ["QUEUE", "SETTING", "NOW", "WOULD", "BE"]
    assert row.split() == ["root.a", "resources.max.vcore", "4", "8"]
    assert "what if      " in result.out
    assert json.loads(api.body) == {
        "queues": "\n".join(line[4:] for line in text.splitlines()) + "\n"
    }
    api.says("GET /v1/config", {**answers.CONFIG, "text": text})
    assert (
        muster("config", "diff", str(file)).out
        == f"{file} is the configuration in use: no difference"
    )


def test_help_lines_are_whole_at_80_columns(muster):
    for group in ([], ["config"], ["scenario"], ["secrets"], ["dead-letters"]):
        out = muster(*group, "--help", width=80).out
        assert not [line for line in out.splitlines()[1:] if line.endswith(("...", "…"))]
        assert max(map(len, out.splitlines())) <= 80


def test_config_show_prints_the_text_that_holds(api, muster):
    text = "partitions:\n  - name: default  # ours\n"
    api.says("GET /v1/config", {**answers.CONFIG, "text": text, "error": "line 3: bad"})
    result = muster("config", "show")
    assert result.out == text.rstrip()
    assert result.err == "muster: refused since, nothing has changed: line 3: bad\n"
    assert json.loads(muster("config", "show", "-o", "json").out)["checksum"] == "A"


def test_version_is_told_also_when_nobody_answers(api, muster, unused_port):
    api.says("GET /v1/version", {"version": "9.9"})
    result = muster("version")
    assert re.fullmatch(rf"muster       \d\S+\nserver       9.9 at {api.url}", result.out)
    result = muster("version", "--url", f"http://127.0.0.1:{unused_port}")
    assert result.status == Exit.DONE
    assert "no answer from" in result.out


# --- events and watching ------------------------------------------------------------------------


def test_events_are_those_about_a_name_the_last_ones_and_one_a_line(api, muster):
    api.says("GET /ws/v1/events/batch", answers.batch(answers.EVENTS))
    assert len(names(muster("events"))) == 3
    assert len(names(muster("events", "--last", "1"))) == 2
    assert [line.split()[2] for line in names(muster("events", "mpi-next"))[1:]] == ["mpi-next"]
    assert [line.split()[2] for line in names(muster("events", "key-1"))[1:]] == ["mpi-next"]
    assert names(muster("events", "--filter", "type=node", "-o", "name")) == ["node-0001"]
    assert [json.loads(line)["type"] for line in names(muster("events", "-o", "json"))] == [2, 3]
    api.says("GET /ws/v1/events/batch", answers.batch([]))
    assert muster("events").out == "no events"


def looks(monkeypatch, *steps):
    """Let each look of --watch be followed by a step; the last one is the end."""
    left = list(steps)

    def sleep(_):
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr("time.sleep", sleep)


def test_events_that_come_are_followed_also_from_another_instance(api, muster, monkeypatch):
    first, second = answers.EVENTS
    api.says("GET /ws/v1/events/batch", answers.batch([first]))
    looks(
        monkeypatch,
        lambda: api.says("GET /ws/v1/events/batch", answers.batch([])),
        lambda: api.says("GET /ws/v1/events/batch", {"message": "no state yet"}, status=503),
        lambda: api.says("GET /ws/v1/events/batch", answers.batch([second], instance="j")),
    )
    result = muster("events", "-f")
    assert result.status == Exit.INTERRUPTED
    assert [line.split()[2] for line in names(result)[1:]] == ["mpi-next", "node-0001"]
    assert result.err == "muster: no state yet\n"


def test_watching_in_a_pipe_prints_the_rows_that_have_changed(api, muster, monkeypatch):
    one, two = answers.application("one"), answers.application("two", "Accepted")
    api.says("GET /v1/applications", [one, two])
    looks(
        monkeypatch,
        lambda: None,
        lambda: api.says("GET /v1/applications", {"message": "no state yet"}, status=503),
        lambda: api.says("GET /v1/applications", [one, {**two, "state": "Running"}]),
    )
    result = muster("apps", "-w")
    assert result.status == Exit.INTERRUPTED
    assert [line.split()[0] for line in names(result)] == ["APPLICATION", "one", "two", "two"]
    assert "Running" in names(result)[3]
    assert result.err == "muster: no state yet\n"


def test_watching_on_a_terminal_shows_the_table_again(api, muster, monkeypatch):
    api.says("GET /v1/applications", [answers.application("one", "Accepted")])
    looks(
        monkeypatch,
        lambda: api.says("GET /v1/applications", [answers.application("one", "Running")]),
    )
    result = muster("apps", "--watch", "--interval", "5", width=80, term="xterm")
    assert result.status == Exit.INTERRUPTED
    assert "every 5 s; Ctrl-C ends" in result.out
    assert result.out.index("Accepted") < result.out.index("Running")


def test_watching_ends_with_a_sentence_when_nobody_was_ever_there(muster, unused_port):
    result = muster("apps", "-w", "--url", f"http://127.0.0.1:{unused_port}")
    assert result.status == Exit.NO_ANSWER
    assert result.err.count("\n") == 1


# --- help and completion ------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_every_shell(muster, shell):
    result = muster("completion", shell)
    assert (result.status, result.err) == (0, "")
    assert "_MUSTER_COMPLETE" in result.out


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        (
            {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster dr", "COMP_CWORD": "1"},
            "drain",
        ),
        (
            {
                "_MUSTER_COMPLETE": "complete_bash",
                "COMP_WORDS": "muster app mpi-n",
                "COMP_CWORD": "2",
            },
            "mpi-next",
        ),
        (
            {"_MUSTER_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "muster app mpi-n"},
            "_arguments '*: :((\"mpi-next\"))'",
        ),
        (
            {
                "_MUSTER_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": "muster app mpi-n",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
            "mpi-next",
        ),
    ],
)
def test_a_shell_that_asks_is_answered(api, muster, monkeypatch, environment, wanted):
    api.says("GET /v1/applications", answers.APPLICATIONS)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = muster()
    assert (result.status, result.out, result.err) == (0, wanted, "")


def test_names_are_offered_from_the_api_and_none_where_nobody_answers(api, monkeypatch):
    from services.cli.options import complete_applications

    monkeypatch.setenv("MUSTER_API_URL", api.url)
    api.says("GET /v1/applications", answers.APPLICATIONS)
    assert complete_applications("mpi-") == ["mpi-train", "mpi-next"]
    assert complete_applications("nosuch") == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("drain node-", ["node-0010", "node-0002", "node-0001", "node-gpu"]),
        ("pods --node node-", ["node-0010", "node-0002", "node-0001", "node-gpu"]),
        ("pods --partition gpu --node ", ["node-gpu"]),
        ("what-if --partition gpu --drain node-0", []),
    ],
)
def test_nodes_are_offered_of_every_partition_or_of_the_one_that_is_named(
    api, muster, monkeypatch, typed, offered
):
    monkeypatch.setenv("MUSTER_API_URL", api.url)
    monkeypatch.setenv("_MUSTER_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"muster {typed}")
    assert muster().out == ""
    api.says("GET /ws/v1/partitions", [{"name": "default"}, {"name": "away"}, {"name": "gpu"}])
    api.says(NODES_PATH, answers.NODES)
    api.says("GET /ws/v1/partition/gpu/nodes", [{"nodeID": "node-gpu"}])
    assert muster().out.split() == offered


def test_no_argument_and_h_are_the_help(muster):
    assert muster("-h").out == muster("--help").out
    assert muster("apps", "-h").status == 0
    assert muster("no-such-command").status == Exit.USAGE


# --- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        (["nodes"], "/ws/v1/partition/{}/nodes"),
        (["top", "nodes"], "/ws/v1/partition/{}/nodes"),
        (["top", "apps"], "/ws/v1/partition/{}/applications/active"),
        (["top", "users"], "/ws/v1/partition/{}/usage/users"),
        (["top", "queues"], "/v1/queues?partition={}"),
        (["queues"], "/v1/queues?partition={}"),
    ],
)
def test_a_table_of_one_partition_is_of_default_unless_another_is_named(api, muster, typed, asked):
    muster(*typed)
    muster(*typed, "--partition", "gpu")
    assert f"GET {asked.format('default')}" in api.asked
    assert f"GET {asked.format('gpu')}" in api.asked
    help_ = " ".join(muster(typed[0], "--help").out.split())
    assert "--partition PARTITION Which partition's." in help_
    assert "[default: default]" in help_


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        (["apps"], "GET /v1/applications"),
        (["app", "a"], "GET /v1/applications/a"),
        (["pods"], "GET /v1/pods"),
        (["why", "a"], "GET /v1/why/a"),
        (["trace", "a"], "GET /v1/trace/a"),
        (["delete", "a"], "DELETE /v1/applications/a"),
        (["what-if", "--drain", "n"], "POST /v1/what-if"),
    ],
)
def test_what_spans_partitions_may_be_asked_of_one(api, muster, typed, asked):
    muster(*typed)
    muster(*typed, "--partition", "gpu")
    assert api.asked == [asked, f"{asked}?partition=gpu"]
    assert "--partition" in muster(typed[0], "--help").out


def test_a_row_of_another_partition_has_a_column_that_says_which(api, muster):
    rows = [answers.application("here"), answers.application("there", partition="gpu")]
    api.says("GET /v1/applications", rows[:1])
    assert "PARTITION" not in muster("apps").out
    api.says("GET /v1/applications", rows)
    assert names(muster("apps", "--filter", "partition=gpu", "-o", "name")) == ["there"]
    assert names(muster("apps", "--filter", "partition=default", "-o", "name")) == ["here"]


def test_a_partition_that_can_be_no_name_is_a_usage_error(muster):
    assert muster("nodes", "--partition", "a/b").status == Exit.USAGE
