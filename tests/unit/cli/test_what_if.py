"""`muster what-if` that gets no forecast: what is said, and with which exit status."""

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


def test_one_question_at_a_time_is_asked(api, muster):
    result = muster("what-if", "--drain", "n1", "--add-nodes", "2", "--like", "n1")
    assert (result.status, api.asked) == (Exit.USAGE, [])


def test_nodes_to_add_are_like_one_that_is_named(muster):
    for words in (("--add-nodes", "2"), ("--like", "n1", "--drain", "n1")):
        result = muster("what-if", *words)
        assert result.status == 2
        assert "--add-nodes and --like go together" in result.err
