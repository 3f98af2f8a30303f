"""Every guard of the table, taken out, is found missing; put back, the same seed holds."""

import pytest
import structlog

from tests.simulation.test_seeds import RUNS
from tools.simulate.guards import GUARDS, without_guard
from tools.simulate.run import run

FOUND_AT = {
    "handled-once": 0,
    "publish-before-ack": 15,
    "publish-again": 18,
    "decisions-of-this-epoch": 2,
    "news-of-this-epoch": 120,
    "kept-before-said": 13,
    "answered-once": 2,
    "timers-due": 5,
    "timers-asked-for": 7,
    "gang-is-whole": 0,
    "identity-of-an-epoch": 278,
    "asked-again": 1,
    "room-at-the-bind": 0,
    "answered-by-key": 2,
    "clock-of-its-own": 47,
    "told-with-it": 0,
    "epochs-apart": 1,
    "shared-out": 1,
    "soon-again": 0,
    "says-that-it-works": 0,
    "last-state": 2,
    "one-by-one": 15,
    "as-decided": 0,
}
WITHOUT_RACKS = {"identity-of-an-epoch"}  # of 350 seeds none finds it as it draws its cluster
SAID = {  # of those that one judgement alone finds, what it says
    "soon-again": "has been at work for 10.",
    "says-that-it-works": "the API shows no core, which works",
    "last-state": "the API shows nothing of default any more",
    "one-by-one": "came behind a later one",
    "as-decided": "the core alone decides",
}


@pytest.fixture(autouse=True)
def _quiet():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def test_the_table_says_where_each_guard_is_found_missing():
    assert FOUND_AT.keys() == GUARDS.keys()


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_is_the_function_that_the_table_names_and_is_put_back(name):
    guard = GUARDS[name]
    kept = getattr(guard.owner, guard.name)
    with without_guard(name):
        assert getattr(guard.owner, guard.name) is not kept
    assert getattr(guard.owner, guard.name) is kept


@pytest.mark.long
@pytest.mark.parametrize("name", FOUND_AT)
def test_a_guard_that_is_taken_out_is_found_missing(name):
    seed, racks = FOUND_AT[name], False if name in WITHOUT_RACKS else None
    with without_guard(name):
        violations = run(seed, racks=racks).violations
    assert violations, name
    assert any(SAID.get(name, "") in sentence for sentence in violations), violations
    assert seed < RUNS or run(seed, racks=racks).holds, (
        name
    )  # below, tests/simulation/test_seeds.py runs it
