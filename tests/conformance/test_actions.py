"""Action and fair-share tables, where they are there; the runners' own output; determinism."""

import json
from collections import Counter
from pathlib import Path

import pytest

from services.core.scheduler.actions.live_actions import UnknownActionError
from services.core.scheduler.model.settings import ACTIONS
from tests.conformance import fairshare, kai

TABLES = Path(__file__).parents[3] / "shared" / "conformance"


def rows(name: str) -> list[dict]:
    path = TABLES / name
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


OWN = kai.read_rows(Path(__file__).parent / "own_cases.jsonl")
ROWS = rows("kai_cases.jsonl")
SHARES = rows("kai_fairshare_cases.jsonl")
ROW = {
    "id": "own",
    "title": "a queue under its share reclaims the youngest",
    "tier": "core",
    "mode": "single-action",
    "actions": ["reclaim"],
    "nodes": {"node0": {"gpus": 2}},
    "departments": [{"name": "d", "gpu_quota": "unlimited"}],
    "queues": [
        {"name": "q0", "gpu_quota": 1, "gpu_over_quota_weight": 1, "parent": "d"},
        {"name": "q1", "gpu_quota": 1, "gpu_over_quota_weight": 1, "parent": "d"},
    ],
    "jobs": [
        {"name": f"run{at}", "queue": "q0", "priority": 50, "preemptible": True,
         "gpus_per_task": 1, "tasks": [{"state": "Running", "node": "node0"}]}
        for at in range(2)
    ]
    + [{"name": "wait", "queue": "q1", "priority": 50, "preemptible": True,
        "gpus_per_task": 1, "tasks": [{"state": "Pending"}]}],
    "expected": {
        "jobs": {
            "run0": {"status": "Running", "node": "node0"},
            "run1": {"status": "Releasing"},
            "wait": {"status": "Pipelined", "node": "node0"},
        }
    },
}  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize("row", ROWS or [{"id": "none"}], ids=lambda row: row["id"])
def test_a_row_holds(row):
    assert kai.run_row(row) == []


@pytest.mark.parametrize("row", OWN, ids=lambda row: row["id"])
def test_a_row_of_our_own_holds(row):
    assert kai.run_row(row) == []


@pytest.mark.parametrize(
    "rows", [pytest.param(ROWS, marks=pytest.mark.data), OWN], ids=["given", "own"]
)
def test_every_row_is_told_by_messages(rows, capsys):
    ways = Counter(map(kai.way_of, rows))
    with capsys.disabled():
        print("", *kai.table(ways), sep="\n")
    assert not ways[kai.NOT]


@pytest.mark.data
@pytest.mark.parametrize("row", SHARES or [{"id": "none"}], ids=lambda row: row["id"])
def test_a_fair_share_table_holds(row):
    assert fairshare.differences(row) == []


def test_an_own_row_holds_and_a_wrong_one_says_how():
    assert kai.run_row(ROW) == []
    wrong = {**ROW, "expected": {"jobs": {"run1": {"status": "Running", "node": "node0"}}}}
    assert kai.run_row(wrong) == [
        ("status wrong", "run1-0: expected Running node0, found Releasing node0")
    ]
    misplaced = {**ROW, "expected": {"jobs": {"wait": {"status": "Pipelined", "node": "node9"}}}}
    assert kai.run_row(misplaced) == [("node wrong", "wait-0: expected node9, found node0")]


def test_an_unknown_action_names_those_that_there_are():
    with pytest.raises(UnknownActionError, match="consolidation"):
        kai.run_row({**ROW, "actions": ["defragment"]})


def test_five_more_rounds_change_nothing():
    row = {
        **ROW,
        "actions": ACTIONS,
        "mode": "rounds",
        "rounds_until_match": 2,
        "rounds_after_match": 5,
    }
    row["expected"] = {
        "jobs": {
            "run0": {"status": "Running"},
            "run1": {"status": "Pending"},
            "wait": {"status": "Running", "node": "node0"},
        }
    }
    assert kai.run_row(row) == []
