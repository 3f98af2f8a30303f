"""What every list shows at 80 columns and in a pipe, line by line: tests/unit/cli/golden.

After a change that is meant: UPDATE_GOLDEN=1 pytest tests/unit/cli/test_golden.py, and read the diff.
"""

import os
from pathlib import Path

import pytest
from rich.text import Text

from services.cli import waterfall
from tests.table import each_row
from tests.unit.cli import answers

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = {
    "apps": (["apps"], {"/v1/applications": answers.APPLICATIONS}),
    "app": (["app", "mpi-next"], {"/v1/applications/mpi-next": answers.DETAIL}),
    "why": (["why", "mpi-next"], {"/v1/why/mpi-next": answers.WHY}),
    "why-held": (["why", "mpi-next"], {"/v1/why/mpi-next": answers.HELD}),
    "trace": (["trace", "mpi-next"], {"/v1/trace/mpi-next": answers.trace()}),
    "what-if": (["what-if", "--drain", "n1"], {"/v1/what-if": answers.WHAT_IF}),
    "when": (["when", "llm"], {"/v1/when/llm": answers.WHEN}),
    "pods": (["pods"], {"/v1/pods": {"pods": answers.PODS, "total": 4}}),
    "nodes": (["nodes"], {"/ws/v1/partition/default/nodes": answers.NODES}),
    "node": (
        ["node", "gpu-node-eu-west-1a-0001"],
        {
            "/ws/v1/partition/default/node/gpu-node-eu-west-1a-0001": answers.ONE_NODE,
            "/v1/pods?node=gpu-node-eu-west-1a-0001&partition=default": {"pods": answers.PODS[:1]},
            "/v1/pods?partition=default": {"pods": answers.PODS, "total": 3},
        },
    ),
    "queue": (
        ["queue", "ml"],
        {"/v1/queues": answers.QUEUES, "/v1/applications": answers.APPLICATIONS},
    ),
    "user": (
        ["user", "ada"],
        {
            "/ws/v1/partition/default/usage/user/ada": answers.ONE_USER,
            "/v1/usage": answers.NO_USAGE,
            "/v1/applications": [{**row, "user": "ada"} for row in answers.APPLICATIONS[1:3]],
        },
    ),
    "topology": (["topology"], {"/v1/topology": answers.TOPOLOGY}),
    "queues": (
        ["queues"],
        {
            "/v1/queues": answers.QUEUES,
            "/v1/config": {**answers.CONFIG, "error": "line 3: bad", "plugins": ["gpu"]},
        },
    ),
    "top-nodes": (["top"], {"/ws/v1/partition/default/nodes": answers.NODES}),
    "top-queues": (["top", "queues"], {"/v1/queues": answers.QUEUES}),
    "events": (["events"], {"/ws/v1/events/batch": answers.batch(answers.EVENTS)}),
    "dead-letters": (
        ["dead-letters"],
        {
            "/v1/dead-letters": {
                "deadLetters": [
                    {
                        "inbox": "core",
                        "kind": "UpdateRequest",
                        "messageID": "m-1",
                        "reason": "UpdateRequest: nodes: an array was expected, found a map of 3",
                        "bytes": 12,
                    }
                ],
                "total": 1,
            }
        },
    ),
}


@each_row("width", [80, 0])
@each_row("name", COMMANDS)
def test_a_list_looks_as_it_was_agreed(api, muster, name, width):
    command, said = COMMANDS[name]
    for path, value in said.items():
        api.says(f"{'POST' if path == '/v1/what-if' else 'GET'} {path}", value)
    result = muster(*command, width=width)
    assert (result.status, result.err) == (0, "")
    file = GOLDEN / f"{name}.{width or 'pipe'}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(f"{result.out}\n")
    assert f"{result.out}\n" == file.read_text()
    if width:
        assert max(map(len, result.out.splitlines())) <= width


@pytest.mark.parametrize("name", ["apps", "app", "queues", "pods"])
def test_what_holds_something_back_is_read_whole_at_80_columns(api, muster, name):
    command, said = COMMANDS[name]
    for path, value in said.items():
        api.says(f"GET {path}", value)
    narrow = "".join(muster(*command, width=80).out.split())
    wanted = "".join(f"{'NO_NODE_FITS' if name == 'pods' else 'GANG_HEADROOM'}:".split())
    assert wanted in narrow
    assert "640GiBmemoryinqueueroot.ml" in narrow
    pipe = muster(*command).out
    assert answers.WHY_GANG in pipe
    assert "…" not in pipe + narrow
    assert all(node in "".join(narrow) for node in ("gpu-node-eu-west-1a-0002",)) or name != "pods"


def test_a_long_pause_is_folded_and_a_wait_is_told_from_the_handling():
    entries = answers.trace()
    (column,) = (c for c in waterfall.waterfall_columns(entries) if c.name == "WATERFALL")
    bars = {row["messageID"]: str(column.cell(row)) for row in entries}
    assert bars["g"].strip() == "░░░░█"  # 15 ms of some 45 in all, beside a pause of a quarter hour
    assert bars["d"].strip() == "█"
    lengths = [len(bars[step]) for step in "sudrfge"]
    assert lengths == sorted(lengths)
    assert lengths[-1] == waterfall.BAR


def test_a_trace_is_folded_on_a_wide_terminal(api, muster):
    api.says("GET /v1/trace/mpi-next", answers.trace())
    out = muster("trace", "mpi-next", width=240, term="xterm").out
    lines = Text.from_ansi(out).plain.splitlines()
    assert 80 < max(map(len, lines)) <= waterfall.WIDEST
    assert "memory left of its 640 GiB memory" in " ".join(" ".join(lines).split())
