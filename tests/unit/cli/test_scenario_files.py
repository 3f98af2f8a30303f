"""Scenario files: what is malformed is said with file, line, key and what was expected."""

import json

from tests.table import each_row
from tools.scenario.command import run_files
from tools.scenario.schema import parse_duration_ns

GOOD = """
name: one pod
nodes:
  - {name: n, capacity: {cpu: "1", pods: 5}}
steps:
  - submit: {app: a, queue: root.default}
  - pods: {app: a, name: p, requests: {cpu: "1"}}
  - expect: {pods: {p: {state: %s, node: n}}}
"""


def run(tmp_path, text, **options):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return run_files([file], "memory", 1.0, as_json=options.get("as_json", False))


def test_a_scenario_that_holds_exits_with_0_and_one_that_does_not_with_1(tmp_path, capsys):
    assert run(tmp_path, GOOD % "Running") == 0
    assert "ok " in capsys.readouterr().out
    assert run(tmp_path, GOOD % "Failed") == 1
    out = capsys.readouterr().out
    assert "step 3: pods.p.state: expected Failed, found Running" in out


def test_manifests_may_stand_in_the_scenario(tmp_path):
    pod = "{kind: Pod, metadata: {name: p}, spec: {schedulerName: yunikorn, containers: [{resources: {requests: {cpu: 1}}}]}}"
    pods = 'pods: {app: a, name: p, requests: {cpu: "1"}}'
    text = (GOOD % "Running").replace(pods, f"manifests: {{documents: [{pod}]}}")
    assert "documents" in text
    assert run(tmp_path, text) == 0


def test_the_verdict_is_there_as_json(tmp_path, capsys):
    assert run(tmp_path, GOOD % "Failed", as_json=True) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    assert verdict["ok"] is False
    assert verdict["failures"][0]["step"] == 3


@each_row(
    ("text", "message"),
    [
        ("", ":1: the file is empty"),
        ("name: [", "not YAML"),
        ("steps: []\n", ":1: name: Field required"),
        (
            "name: x\nsteps:\n  - advance: 1s\n    hold: {confirmations: true}\n",
            ":3: steps.0: one key a step",
        ),
        ("name: x\nsteps:\n  - advance: soon\n", ":3: steps.0.advance: a duration such as 31s"),
        ("name: x\nsteps:\n  - jump: 1\n", ":3: steps.0.jump: no such key"),
        ("name: x\nsteps:\n  - foreign: {name: a}\n", ":3: steps.0.foreign.node: Field required"),
        (
            "name: x\nsteps:\n  - manifests: {file: a.yaml, documents: [{kind: Pod}]}\n",
            ":3: steps.0.manifests: either a file or documents are expected",
        ),
        (
            "name: x\nsteps:\n  - pods: {app: a, name: b, requests: {}, affinity: {podAffinity: 1}}\n",
            ":3: steps.0.pods: .affinity.podAffinity: a map was expected",
        ),
        (
            "name: x\nscheduler: {actions: [defragment]}\nsteps:\n  - advance: 1s\n",
            ":2: scheduler.actions.0: there is no 'defragment'; there are allocate, consolidation, ",
        ),
        (
            "name: x\nscheduler: {actions: [allocate, reclaim]}\nsteps:\n  - advance: 1s\n",
            ":2: scheduler: actions: reclaim is an action of the policy kai; under yunikorn there",
        ),
        (
            "name: x\nnodes:\n  - {name: n, capacity: {cpu: many}}\nsteps:\n  - advance: 1s\n",
            ":3: nodes.0.capacity: cpu: 'many' is not a quantity",
        ),
        (
            "name: x\nconfig: {partitions: [{name: default, queues: [{name: root, colour: 1}]}]}\nsteps:\n  - advance: 1s\n",
            "field colour not found",
        ),
        (
            (
                "name: x\nconfig:\n  partitions:  # of one\n  - queues:\n    - name: root\n"
                "      resources: {max: {vcore: 1.5}}\nsteps:\n  - advance: 1s\n"
            ),
            "config: line 6: root queue must not have resource limits set",
        ),
        (
            (
                "name: x\nconfig: {partitions: [{queues: [{name: a,\n  resources: {max: {memory: 1_0}}}]}]}\n"
                "steps:\n  - advance: 1s\n"
            ),
            "config: line 3: invalid quantity",
        ),
        (
            "name: x\nsteps:\n  - advance: 1s\n  - expect:\n      queues: {}\n      queues: {}\n",
            ':6: mapping key "queues" already defined at line 5',
        ),
    ],
)
def test_a_malformed_file_exits_with_2_and_a_place(tmp_path, capsys, text, message):
    assert run(tmp_path, text) == 2
    assert message in capsys.readouterr().err


def test_a_bus_that_is_none_is_refused(tmp_path, capsys):
    assert run_files([], "carrier-pigeon", 1.0, as_json=False) == 2
    assert "expected memory, amqp" in capsys.readouterr().err


def test_null_says_that_an_entry_or_a_field_is_not_there(tmp_path, capsys):
    gone = GOOD.replace("{pods: {p: {state: %s, node: n}}}", "{nodes: {%s}, users: {%s}}")
    assert run(tmp_path, gone % ("m: null, n: {occupied: null}", "other: null")) == 0
    assert run(tmp_path, gone % ("n: null, m: {}", "nobody: null")) == 1
    out = capsys.readouterr().out
    for sentence in (
        "nodes.n: expected none, found one",
        "nodes.m: expected to exist, found none",
        "users.nobody: expected none, found one",
    ):
        assert sentence in out
    assert run(tmp_path, gone % ("n: {allocated: null}", "")) == 1
    assert "nodes.n.allocated: expected None, found {" in capsys.readouterr().out


def test_a_refused_reload_changes_nothing_and_can_be_expected(tmp_path):
    text = """
name: a bad reload
steps:
  - config: {partitions: [{name: default, queues: [{name: root, queues: [{name: a, resources: {max: {vcore: x}}}]}]}]}
  - expect: {rejected: {config: invalid quantity}, queues: {root.default: {state: Active}}}
  - config: {partitions: [{name: default, queues: [{name: root, queues: [{name: other}]}]}]}
  - expect: {queues: {root.other: {state: Active}}}
"""
    assert run(tmp_path, text) == 0


def test_durations():
    assert parse_duration_ns("1m30s") == 90 * 10**9
    assert parse_duration_ns("500ms") == 500_000_000
    assert parse_duration_ns("0.5s") == 500_000_000


HOLDS = (
    "is used, but is no longer a setting: application.sort.policy: stateaware is fifo without it"
)


def test_old_names_of_settings_are_read_and_warned_of(tmp_path, capsys):
    old = "{gangPatience: 0, gangAdmission: cluster, gangLane: enabled, stateAware: filtered}"
    assert run(tmp_path, f"scheduler: {old}" + GOOD % "Running") == 0
    assert capsys.readouterr().err.replace(str(tmp_path), "").splitlines() == [
        "/x.yaml: warning: gangPatience: 0 is now starvationGuard: 0",
        "/x.yaml: warning: gangLane: enabled is now reservations: gang",
        f"/x.yaml: warning: stateAware: filtered {HOLDS}",
    ]
    new = "{starvationGuard: 0, gangAdmission: cluster, reservations: gang}"
    assert run(tmp_path, f"scheduler: {new}" + GOOD % "Running") == 0
    assert capsys.readouterr().err == ""
    for wrong, said in (
        ("{gangLane: on}", "gangLane: one of enabled, disabled, found 'on'"),
        ("{gangPatience: soon}", "scheduler.starvationGuard: "),
        ("{reservations: all}", "there is no 'all'; there are heads, asks, gang, none"),
        ("{gangPatience: [1]}", "scheduler.gangPatience: "),
    ):
        assert run(tmp_path, f"scheduler: {wrong}" + GOOD % "Running") == 2
        assert said in capsys.readouterr().err
