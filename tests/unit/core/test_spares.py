"""Spare nodes: who may use them, which they are, and what takes them at once."""

from shared.messages.interface import (
    AllocationAsk,
    NodeAction,
    NodeInfo,
)
from shared.model.names import RUN_SECONDS
from tests.domains import ONE, cluster, counts, gang, near, node

SPARES = (("gangAdmission", "cluster"), ("spares", "rack=1"))


def pod(core, name, run=0):
    core.application(name)
    core.asks(name, [f"{name}-0"], ONE, allocation_tags={RUN_SECONDS: str(run)} if run else {})
    core.check()


def dies(core, name):
    core.update(nodes=(NodeInfo(name, NodeAction.DECOMISSION),))
    core.check()


def comes_back(core, name, count):
    """Ask for members in place of those that were lost, as they would come: by their task group."""
    keys = [f"{name}-again-{at}" for at in range(count)]
    asks = (AllocationAsk(key, name, ONE, placeholder=True, task_group_name="w") for key in keys)
    core.update(asks=tuple(asks))
    core.check()


def spare(core):
    return sorted(each.node_id for each in core.partition.nodes.spares.nodes)


def test_one_node_of_each_rack_is_free_of_all_but_short_pods():
    core = cluster([[[1, 1], [1]]], settings=SPARES)
    pod(core, "long")
    pod(core, "too-long", 601)
    assert (counts(core, "long"), counts(core, "too-long")) == ([0, 1, 0], [0, 0, 0])
    assert spare(core) == ["0-0-0", "0-1-0"]
    pod(core, "short", 600)
    assert sum(counts(core, "short")) == 1
    assert spare(core) == ["0-0-0", "0-1-0"]


def test_a_gang_starts_beside_them_and_has_them_when_it_has_lost_a_member():
    core = cluster([[[1, 1, 1]]], settings=SPARES)
    gang(core, "gang", ("w", 3, near(required="rack")))
    assert counts(core) == [0, 0, 0]
    gang(core, "two", ("w", 2, near(required="rack")))
    assert counts(core, "two") == [0, 1, 1]
    pod(core, "other")
    dies(core, "0-0-2")
    assert counts(core, "other") == [0, 0]
    comes_back(core, "two", 1)
    assert counts(core, "two") == [1, 1]
    pod(core, "next")
    assert (spare(core), counts(core, "next")) == ([], [0, 0])


def test_a_node_that_becomes_free_is_the_next_spare():
    core = cluster([[[1, 1]]], settings=SPARES)
    pod(core, "long")
    dies(core, "0-0-0")
    pod(core, "next")
    assert (spare(core), counts(core, "next")) == ([], [0])
    node(core, "0-0-2", {"block": "b0", "rack": "r0", "kubernetes.io/hostname": "0-0-2"}, 1)
    assert (spare(core), counts(core, "next")) == (["0-0-2"], [0, 0])


def test_a_level_that_is_not_there_keeps_nothing():
    core = cluster([[[1, 1]]], settings=(("spares", "row=1"),))
    pod(core, "one")
    pod(core, "two")
    assert (sum(counts(core, "one")), sum(counts(core, "two")), spare(core)) == (1, 1, [])
