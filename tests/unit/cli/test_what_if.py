"""`muster what-if` that gets no forecast: what is said, and with which exit status."""

import json

import pytest

from services.cli.exits import Exit

NO_CORE = "no answer within 15 s; no core is at work, or it is still recovering"
BUSY = "another what-if is being answered, or much is being placed: ask again in a moment"


@pytest.mark.parametrize(
    ("status", "answer", "exit_status", "said"),
    [
        (504, {"message": NO_CORE}, Exit.NO_ANSWER, NO_CORE),
        (503, {"message": "8 what-ifs wait already"}, Exit.REFUSED, "8 what-ifs wait already"),
        (200, {"done": False, "sentence": BUSY}, Exit.REFUSED, BUSY),
    ],
)
def test_without_a_forecast_it_is_said_why(api, muster, status, answer, exit_status, said):
    api.says("POST /v1/what-if", answer, status)
    result = muster("what-if", "--drain", "n1", width=80)
    assert result.status == exit_status
    assert said in " ".join(result.err.split())
    assert api.asked == ["POST /v1/what-if"]


def test_any_changes_are_asked_about_together(api, muster, tmp_path):
    answer = {"done": True, "sentence": "if …: nothing would change.", "like": "n9"}
    lists = ("starts", "waits", "rejected", "evicted", "queues", "refused")
    answer |= {key: [] for key in lists}
    api.says("POST /v1/what-if", answer)
    file = tmp_path / "job.yaml"
    file.write_text("kind: Job")
    words = (
        "-f",
        str(file),
        "--add-nodes",
        "30",
        "--drain",
        "n1",
        "--delete",
        "a",
        "--delete",
        "b",
    )
    result = muster("what-if", *words)
    assert result.status == 0
    assert json.loads(api.body) == {
        "manifest": "kind: Job", "addNodes": 30, "drain": "n1", "delete": ["a", "b"],
    }  # fmt: skip


def test_a_question_supposes_something(muster):
    result = muster("what-if")
    assert result.status == Exit.USAGE
    assert "at least one of -f, --add-nodes, --drain, --delete and --queues" in " ".join(
        result.err.split()
    )


def test_like_which_node_is_said_of_nodes_to_add(muster):
    result = muster("what-if", "--like", "n1", "--drain", "n1")
    assert result.status == Exit.USAGE
    assert "--like needs --add-nodes" in result.err
