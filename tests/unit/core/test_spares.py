"""Spare nodes: who may use them, which they are, and what takes them at once."""

from shared.messages.interface import (
    AllocationAsk,
    NodeAction,
    NodeInfo,
    UpdateConfiguration,
)
from shared.model.names import RUN_SECONDS
from tests.domains import HOST, ONE, cluster, counts, gang, near, node

SPARES = (("gangAdmission", "cluster"), ("spares", "rack=1"))


def pod(core, name, run=0, queue="root.default"):
    core.application(name, queue)
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


CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
            properties: {{spares: {spares}}}
          - name: other
            properties: {{spares: {others}}}
"""


def of_queues(blocks, spares="rack=1", others="rack=0"):
    config = CONFIG.format(spares=spares, others=others)
    return cluster(blocks, settings=SPARES[:1], config=config)


def test_a_queue_keeps_nodes_where_it_has_gangs_and_for_these_alone():
    core = of_queues([[[1, 1, 1, 1], [1]]])
    pod(core, "before", queue="root.other")
    assert spare(core) == []
    gang(core, "gang", ("w", 2, near(required="rack")))
    assert (sum(counts(core)), len(spare(core))) == (2, 1)
    gang(core, "next", ("w", 2, near(required="rack")), queue="root.other")
    pod(core, "after", queue="root.other")
    pod(core, "short", 600, queue="root.other")
    assert spare(core)[0] not in taken(core, "before", "gang", "next", "after")
    assert sum(counts(core, "short")) == 1


def taken(core, *names):
    apps = core.partition.applications
    return [pod.node_id for name in names for pod in apps[name].allocations.values()]


def test_a_pod_that_is_placed_in_the_same_cycle_as_the_gang_does_not_get_its_spare_node():
    core = of_queues([])
    gang(core, "gang", ("w", 2, near(required="rack")), priority=1)
    pod(core, "other", queue="root.other")
    labels = [{"block": "b", "rack": "r", HOST: f"n{at}"} for at in range(3)]
    nodes = (NodeInfo(each[HOST], NodeAction.CREATE, ONE, labels=each) for each in labels)
    core.update(nodes=tuple(nodes))
    assert (sum(counts(core)), sum(counts(core, "other"))) == (2, 0)


def test_what_a_gang_of_another_queue_has_lost_does_not_get_it():
    core = of_queues([[[1] * 6]], others="rack=0")
    gang(core, "gang", ("w", 2, near(required="rack")))
    gang(core, "theirs", ("w", 2, near(required="rack")), queue="root.other")
    pod(core, "full", queue="root.other")
    kept = spare(core)
    dies(core, taken(core, "theirs")[0])
    comes_back(core, "theirs", 1)
    assert (sum(counts(core, "theirs")), spare(core)) == (1, kept)
    dies(core, taken(core, "gang")[0])
    comes_back(core, "gang", 1)
    assert (sum(counts(core)), kept[0] in taken(core, "gang")) == (2, True)


def test_queues_share_the_nodes_that_they_keep_in_one_rack():
    core = of_queues([[[1] * 8]], spares="rack=2", others="rack=1")
    gang(core, "gang", ("w", 2, near(required="rack")))
    gang(core, "theirs", ("w", 2, near(required="rack")), queue="root.other")
    first, second = core.partition.nodes.spares.nodes.items()
    assert first[1] == ("root.default", "root.other")
    assert second[1] == ("root.default",)


def test_a_queue_that_states_it_no_more_gives_its_nodes_back_and_waiting_pods_get_them():
    core = of_queues([[[1, 1, 1]]])
    gang(core, "gang", ("w", 2, near(required="rack")))
    pod(core, "next", queue="root.other")
    assert (len(spare(core)), sum(counts(core, "next"))) == (1, 0)
    core.send(UpdateConfiguration(CONFIG.format(spares="rack=0", others="rack=0")))
    assert (spare(core), sum(counts(core, "next"))) == ([], 1)


def test_nodes_that_are_spare_in_a_rack_count_in_its_block():
    core = of_queues([[[1] * 5, [1] * 3]], spares="block=2")
    core.partition.nodes.keep_spares("rack", 1)
    gang(core, "gang", ("w", 2, near(required="rack")))
    assert len(spare(core)) == 2
