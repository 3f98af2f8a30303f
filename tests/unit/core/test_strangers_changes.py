"""Changes that CONTRIBUTING's table describes, made here as it says: what it names is enough.

Each test changes what is in the files of its row, and nothing else.
"""

import pytest

from services.core.scheduler.actions import live_actions
from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.actions.live_actions import Step
from services.core.scheduler.model import settings
from services.core.scheduler.model.rows import Node
from services.core.scheduler.statement.journal import NodeAccepted, RowSet
from services.core.scheduler.statement.trial import is_evictable
from shared.messages.interface import NodeAction, NodeInfo
from tests.builders import Core, config_of, section

POD = {"vcore": 1, "pods": 1}

# --- an action: actions/live_actions.py, model/settings.py ----------------------------------------

DRAIN = "evictdrained"


def evict_from_drained_nodes(trial, _):
    """What a stranger writes: end what runs on nodes that take nothing new."""
    attempt = Attempt(trial)
    for node in trial.nodes.rows:
        for allocation in [] if node.schedulable else list(node.allocations.values()):
            job = trial.job_of(trial.partition.applications[allocation.application_id])
            (task,) = [task for task in job.tasks if task.name == allocation.allocation_key]
            if is_evictable(task):
                attempt.evict(task, f"node {node.node_id} is drained", DRAIN)


def is_drained(entry):
    if isinstance(entry, NodeAccepted):
        return not entry.node.schedulable
    return isinstance(entry, RowSet) and isinstance(entry.row, Node) and not entry.row.schedulable


@pytest.fixture(params=["kai", "yunikorn"])
def policy(request, monkeypatch):
    step = Step(evict_from_drained_nodes, after=is_drained)
    monkeypatch.setitem(live_actions.STEPS, DRAIN, step)
    monkeypatch.setattr(settings, "ACTIONS", (*settings.ACTIONS, DRAIN))
    for name, named in settings.MAY_BE_NAMED.items():
        monkeypatch.setitem(settings.MAY_BE_NAMED, name, (*named, DRAIN))
    return request.param


def drained(policy: str, actions: str = "") -> Core:
    """Return a cluster of which a node is drained that has two pods; nobody waits."""
    named = (("actions", actions),) if actions else ()
    core = Core(config_of("{name: a}"), settings=(("policy", policy), *named))
    core.node("n0", vcore=2, pods=9)
    core.application("app", "root.a")
    assert len(section(core.asks("app", ["k0", "k1"], POD), "new_allocations")) == 2
    core.node("n1", vcore=9, pods=9)
    core.update(nodes=(NodeInfo("n0", NodeAction.DRAIN_NODE),))
    return core


def looked(core: Core) -> list[tuple[str, str]]:
    if "preemption" not in core.partition.timers:
        return []
    responses = core.fire_own("preemption")
    core.check()
    return [
        (item.allocation_key, item.message) for item in section(responses, "released_allocations")
    ]


@pytest.mark.parametrize("actions", [DRAIN, f"consolidation,{DRAIN}", f"{DRAIN},preempt"])
def test_an_action_of_its_own_runs_when_nobody_waits(policy, actions):
    core = drained(policy, actions)
    says = "node n0 is drained"
    assert looked(core) == [("k0", says), ("k1", says)]
    assert looked(core) == []
    evicted = [item for a in core.answers for item in getattr(a.message, "evictions", ())]
    assert [(item.law, item.message, item.winner) for item in evicted] == [(DRAIN, says, "")] * 2


def test_an_action_is_tried_again_though_searches_before_it_found_nothing(policy):
    core = drained(policy, f"consolidation,{DRAIN}")
    core.application("large", "root.a")
    core.asks("large", ["l"], {"vcore": 99, "pods": 1})
    assert len(looked(core)) == 2
    core.node("n2", vcore=1, pods=9)
    core.application("late", "root.a")
    core.asks("late", ["m"], {"vcore": 9, "pods": 1})
    assert section(core.asks("late", ["p"], POD), "new_allocations")[0].node_id == "n2"
    core.update(nodes=(NodeInfo("n2", NodeAction.DRAIN_NODE),))
    assert looked(core) == [("p", "node n2 is drained")]


def test_an_action_that_is_not_named_is_off_by_default(policy):
    core = drained(policy)
    assert looked(core) == []
    assert DRAIN not in core.partition.settings.actions


def test_an_action_that_may_not_be_named_is_refused_with_those_that_may(policy, monkeypatch):
    monkeypatch.setitem(settings.MAY_BE_NAMED, policy, ("allocate", "preempt"))
    found = settings.settings_from([("policy", policy), ("actions", f"preempt,{DRAIN}")])
    assert found.actions == ("preempt",)
    assert "there are allocate, preempt" in found.refused[0]
