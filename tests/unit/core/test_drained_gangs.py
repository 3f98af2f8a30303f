"""Gangs on a node that drains or is tainted: places are kept for what will replace their members."""

from shared.messages.constraints import Taint
from shared.messages.interface import (
    AllocationAsk,
    AllocationRelease,
    GangSettings,
    NodeAction,
    NodeInfo,
    SubGroup,
    TerminationType,
)
from shared.model.units import seconds
from tests.domains import HOST, ONE, cluster, near

KAI = (("policy", "kai"),)


def running(blocks, least=2, count=2, settings=KAI):
    """Return a core with a gang in one rack, of so many pods, and a minimum."""
    core = cluster(blocks, settings=settings)
    part = SubGroup("w", "", least, topology=near(required="rack"))
    core.application("gang", gang=GangSettings((part,)))
    asks(core, [f"p{at}" for at in range(count)])
    assert len(core.partition.applications["gang"].allocations) == count
    return core


def asks(core, keys):
    core.update(asks=tuple(AllocationAsk(key, "gang", ONE, task_group_name="w") for key in keys))
    core.check()


def change(core, name, action, **more):
    core.update(nodes=(NodeInfo(name, action, **more),))
    core.check()


def other(core, name="other"):
    core.application(name)
    core.asks(name, [f"{name}-0"], ONE)
    core.check()
    return where(core, name)


def where(core, name="gang"):
    pods = core.partition.applications[name].allocations.values()
    return sorted(pod.node_id for pod in pods)


def end(core, key):
    release = AllocationRelease("gang", key, TerminationType.STOPPED_BY_RM)
    core.update(releases=(release,))
    core.check()


def on(core, node):
    pods = core.partition.applications["gang"].allocations
    return next(key for key, pod in pods.items() if pod.node_id == node)


def test_a_place_in_its_rack_is_kept_for_what_replaces_a_member_on_a_node_that_drains():
    core = running([[[1, 1, 1], [1]]])
    drained, free = where(core)[0], ({"0-0-0", "0-0-1", "0-0-2"} - {*where(core)}).pop()
    change(core, drained, NodeAction.DRAIN_NODE)
    assert other(core) == ["0-1-0"]
    assert other(core, "next") == []
    end(core, on(core, drained))
    assert where(core, "next") == []
    asks(core, ["again"])
    assert free in where(core)
    assert len(where(core)) == 2


def test_a_node_that_is_back_in_use_gives_the_place_back():
    core = running([[[1, 1, 1]]])
    drained = where(core)[0]
    change(core, drained, NodeAction.DRAIN_NODE)
    assert other(core) == []
    change(core, drained, NodeAction.DRAIN_TO_SCHEDULABLE)
    assert len(where(core, "other")) == 1


def test_a_taint_that_its_pods_do_not_tolerate_is_like_a_drain():
    core = running([[[1, 1, 1]]])
    name = where(core)[0]
    labels = {"block": "b0", "rack": "r0", HOST: name}
    change(core, name, NodeAction.UPDATE, labels=labels, taints=(Taint("down", "", "NoExecute"),))
    assert other(core) == []
    end(core, on(core, name))
    asks(core, ["again"])
    assert len(where(core)) == 2


def test_the_place_is_kept_for_ten_minutes_and_not_for_surplus_pods():
    core = running([[[1, 1, 1]]])
    change(core, where(core)[0], NodeAction.DRAIN_NODE)
    assert other(core) == []
    core.now_ns += seconds(601)
    core.fire_own("preemption")
    assert len(where(core, "other")) == 1
    core = running([[[1, 1, 1]]], least=1)
    change(core, where(core)[0], NodeAction.DRAIN_NODE)
    assert len(other(core)) == 1


def test_a_higher_priority_takes_it():
    core = running([[[1, 1, 1]]])
    change(core, where(core)[0], NodeAction.DRAIN_NODE)
    core.application("high")
    core.asks("high", ["high-0"], ONE, priority=5)
    assert len(where(core, "high")) == 1
    core.check()
