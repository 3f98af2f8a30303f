"""Time and what is shown: each judgement of the simulator finds what breaks it, and nothing else."""

import re
from unittest import mock

import pytest
import structlog

from services.api.projection.works import Works
from services.timers.wheel import TimerWheel
from shared.model.units import seconds
from tools.simulate import answers
from tools.simulate.faults import Fault, drawn
from tools.simulate.run import run_with

SEED = 3
AT_WORK, APPLY = Works.at_work, TimerWheel._apply


@pytest.fixture(autouse=True)
def _quiet():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def dead(service, for_s, at_s=12):
    """Return that an instance of a service is dead for so long."""
    return Fault(0, "crash", service, seconds(at_s), seconds(for_s), 1)


def heard_once(works, partitions, now_ns, _):
    return AT_WORK(works, partitions, now_ns, seconds(10_000))


def late(wheel, orders, behind_ns):
    APPLY(wheel, orders, behind_ns + seconds(30))


BROKEN = {
    "who was heard of once works for ever": (
        lambda: mock.patch.object(Works, "at_work", heard_once),
        [dead("shim_adapter", 25)],
        "the API shows a shim_adapter at work, where none is",
    ),
    "timers fire half a minute late": (
        lambda: mock.patch.object(TimerWheel, "_apply", late),
        [],
        " late",
    ),
    "why says nothing": (
        lambda: mock.patch.object(answers, "why", return_value=None),
        [],
        "why says nothing of",
    ),
    "metrics show a node too many": (
        lambda: mock.patch.object(answers, "yunikorn_metrics", a_node_too_many),
        [],
        "metrics show 99 active nodes of ",
    ),
}
METRICS = answers.yunikorn_metrics


def a_node_too_many(models, events):
    text = METRICS(models, events).decode()
    return re.sub(r'(yunikorn_scheduler_node\{.*state="active"\}) \S+', r"\1 99", text).encode()


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_and_whole_it_holds(name):
    patched, faults, sentence = BROKEN[name]
    with patched():
        violations = run_with(SEED, list(faults)).violations
    assert any(sentence in item for item in violations), violations
    assert run_with(SEED, list(faults)).holds


def test_what_is_shown_is_compared_with_the_core_that_goes_on():
    """Seed 975: a core stood still for 12.5 s, and what it had was not the truth any more."""
    stopped = Fault(0, "pause", "core", 7_723_000_000, 12_503_000_000, 1)
    assert run_with(975, [stopped]).holds


def test_who_works_only_between_two_looks_may_be_shown_at_work():
    """Seed 5094: a shim adapter waited for its disk, said that it worked, and died at once."""
    faults = [fault for fault in drawn(5094) if fault.index in (4, 16, 17)]
    assert run_with(5094, faults).holds
