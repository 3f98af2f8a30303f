"""GPU devices as units: who is on which, and that nothing is placed that no set of them can hold."""

import pytest

from services.core.scheduler.policies import what_if
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.messages.protocol import Heartbeat, SyncBegin, SyncEnd
from shared.messages.what_if import WhatIf
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.names import FOREIGN_TAG
from shared.model.sentences import text_of
from tests.builders import Core, section
from tests.table import each_row
from tools.invariants import over_capacity

STOPPED = TerminationType.STOPPED_BY_RM


def cluster(*gpus, settings=(), config=""):
    core = Core(config, settings=settings)
    for at, number in enumerate(gpus):
        core.node(f"n{at}", vcore=100_000, **{GPU: number})
    core.application("app")
    return core


def whole(number):
    return {"vcore": 1, GPU: number}


def share(size, devices=1):
    return {"vcore": 1, GPU_SHARE: size * devices}


def ask(core, key, resource, devices=1, application="app", **more):
    constraints = Constraints(gpu_devices=devices)
    return core.asks(application, [key], resource, constraints=constraints, **more)


def placed(responses):
    return {
        item.allocation_key: (item.node_id, item.devices)
        for item in section(responses, "new_allocations")
    }


def on(core, key):
    """Return the devices of an allocation, as its application has it."""
    for application in core.partition.applications.values():
        if key in application.allocations:
            return application.allocations[key].devices
    return None


def free(core, node="n0"):
    return core.partition.nodes.nodes[node].devices


def release(core, *keys, why=STOPPED):
    return core.update(releases=tuple(AllocationRelease("app", key, why) for key in keys))


def message_of(core, application="app"):
    app = core.partition.applications[application]
    return next(
        text_of(group.bucket.refusal) for group in app.groups.values() if group.bucket.refusal
    )


# --- placing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "size", "count"), [(3, 500, 3), (2, 300, 3), (3, 300, 4)])
def test_as_many_shares_of_two_devices_are_placed_as_a_node_has_places_for(gpus, size, count):
    core = cluster(gpus)
    for at in range(count + 1):
        ask(core, f"p{at}", share(size, 2), 2)
    assert len(core.partition.applications["app"].allocations) == count
    core.check()


def test_whole_devices_are_the_lowest_and_are_told():
    core = cluster(4)
    assert placed(ask(core, "a", whole(2))) == {"a": ("n0", ((0, 1000), (1, 1000)))}
    assert placed(ask(core, "b", whole(1))) == {"b": ("n0", ((2, 1000),))}
    assert free(core) == [0, 0, 0, 1000]
    core.check()


def test_many_whole_devices_of_one_message_are_told_one_by_one():
    core = cluster(8, 8)
    found = placed(core.asks("app", [f"a{at}" for at in range(16)], whole(1)))
    assert sorted(found.values()) == [
        (node, ((at, 1000),)) for node in ("n0", "n1") for at in range(8)
    ]
    core.check()


def test_a_share_goes_to_the_fullest_device_that_holds_it():
    core = cluster(3)
    ask(core, "a", share(400))
    ask(core, "b", share(700))
    ask(core, "c", share(300))
    assert [on(core, key) for key in "abc"] == [((0, 400),), ((1, 700),), ((1, 300),)]
    ask(core, "d", whole(1))
    assert on(core, "d") == ((2, 1000),)
    core.check()


def test_many_shares_of_one_message_stop_where_the_devices_do_and_not_where_their_sum_does():
    core = cluster(2, 1)
    found = placed(core.asks("app", [f"a{at}" for at in range(9)], share(400)))
    assert len(found) == 6  # of 3,000 thousandths seven times 400 are left over
    assert free(core) == [200, 200]
    assert free(core, "n1") == [200]
    core.check()


def test_two_halves_of_two_devices_are_no_whole_one():
    core = cluster(2)
    ask(core, "a", share(600))
    ask(core, "b", share(600))
    assert free(core) == [400, 400]
    assert not placed(ask(core, "c", share(500)))
    assert not placed(ask(core, "d", whole(1)))
    assert "the only node does not have enough free now" in message_of(core)
    core.check()
    assert placed(release(core, "a")) == {"c": ("n0", ((0, 500),))}
    assert placed(release(core, "b")) == {"d": ("n0", ((1, 1000),))}


def test_what_is_left_of_a_device_is_no_whole_one_though_no_whole_one_is_asked_for():
    core = cluster(1)
    ask(core, "a", share(1))
    assert not placed(ask(core, "b", whole(1)))
    core.check()
    assert placed(release(core, "a")) == {"b": ("n0", ((0, 1000),))}


def test_a_share_of_several_devices_is_on_as_many():
    core = cluster(3)
    ask(core, "a", share(300, 2), 2)
    assert on(core, "a") == ((0, 300), (1, 300))
    ask(core, "b", share(700, 3), 3)
    assert on(core, "b") == ((0, 700), (1, 700), (2, 700))
    assert not placed(ask(core, "c", share(100, 2), 2))
    assert placed(ask(core, "d", share(300))) == {"d": ("n0", ((2, 300),))}
    core.check()


def test_asks_that_differ_in_the_number_of_their_devices_alone_are_not_alike():
    core = cluster(1)
    assert not placed(ask(core, "a", share(400, 2), 2))
    assert placed(ask(core, "b", share(800))) == {"b": ("n0", ((0, 800),))}


def test_a_node_that_is_removed_and_comes_again_has_all_its_devices():
    core = cluster(2)
    ask(core, "a", share(400))
    core.update(nodes=(NodeInfo("n0", NodeAction.DECOMISSION),))
    core.node("n0", vcore=100_000, **{GPU: 2})
    assert free(core) == [1000, 1000]
    core.check()


def test_a_node_with_fewer_devices_than_are_held_holds_no_more_and_never_less_than_nothing():
    core = cluster(2)
    ask(core, "a", whole(2))
    core.update(nodes=(NodeInfo("n0", NodeAction.UPDATE, {"vcore": 100_000, GPU: 1}),))
    assert free(core) == [0]
    core.check()
    release(core, "a")
    assert free(core) == [1000]
    core.check()


def test_a_node_with_too_many_devices_counts_them_and_holds_no_shares():
    core = cluster(65)
    assert placed(ask(core, "a", whole(65))) == {"a": ("n0", ())}
    release(core, "a")
    assert not placed(ask(core, "b", share(1)))
    assert f"1 Insufficient {GPU_SHARE}" in message_of(core)
    core.node("n1", vcore=1, **{GPU: 1})
    assert free(core, "n1") == [999]
    core.check()


def test_nodes_announce_shares_from_when_somebody_asks_for_one():
    core = cluster(2)
    ask(core, "a", whole(1))
    assert GPU_SHARE not in core.partition.root.max_resource
    ask(core, "b", share(300))
    assert core.partition.root.max_resource[GPU_SHARE] == 2000
    core.node("n1", vcore=1, **{GPU: 1})
    assert core.partition.root.max_resource[GPU_SHARE] == 3000
    core.check()


def test_queues_limit_shares():
    leaf = f"{{name: default, resources: {{max: {{{GPU_SHARE}: 500}}}}}}"
    core = cluster(4, config="partitions: [{name: default, queues: [{name: root, "
                   f"submitacl: '*', queues: [{leaf}]}}]}}]")  # fmt: skip
    assert placed(ask(core, "a", share(400)))
    assert not placed(ask(core, "b", share(200)))
    assert "needs 0.2 GPU shares" in message_of(core)
    core.check()


# --- what is refused ------------------------------------------------------------------------------


@each_row(
    ("resource", "devices", "why"),
    [
        ({GPU: 1, GPU_SHARE: 400}, 1, "found both"),
        ({GPU_SHARE: 1000}, 1, "1 to 999 thousandths of each of 1 devices, found 1000"),
        ({GPU_SHARE: 500}, 3, "found 500"),
        ({GPU_SHARE: 500}, 0, "a share of 1 to 64 devices is asked for, found 0"),
        ({GPU_SHARE: 6500}, 65, "found 65"),
        ({GPU_SHARE: 2**62}, 2**62, "a share of 1 to 64 devices"),
        ({GPU: 2}, 2, "2 devices are asked for, and no share of them"),
    ],
)
def test_what_is_no_share_is_refused_with_a_sentence(resource, devices, why):
    core = cluster(4)
    (refused,) = section(ask(core, "a", resource, devices), "rejected_allocations")
    assert why in refused.reason
    existing = Allocation("b", "app", "n0", resource, constraints=Constraints(gpu_devices=devices))
    (refused,) = section(core.update(allocations=(existing,)), "rejected_allocations")
    assert why in refused.reason
    assert free(core) == [1000] * 4
    core.check()


# --- what runs already ----------------------------------------------------------------------------


def recovered(*allocations, gpus=2):
    """Return a core that recovers with allocations on one node."""
    core = Core(epoch=1)
    core.epoch = 2
    core.send(Heartbeat("t"), epoch=0)
    core.send(SyncBegin(""))
    node = NodeInfo("n0", NodeAction.CREATE, {"vcore": 100_000, GPU: gpus})
    core.update(nodes=(node,), new_applications=(AddApplicationRequest("app", "root.default"),))
    core.update(allocations=allocations)
    core.send(SyncEnd(1, len(allocations), 0))
    core.check()
    return core


def found(key, resource, devices=(), count=1):
    return Allocation(
        key, "app", "n0", resource, devices=devices, constraints=Constraints(gpu_devices=count)
    )


def test_who_runs_has_the_devices_that_it_was_given():
    core = recovered(found("a", share(400), ((1, 400),)), found("b", whole(1), ((0, 1000),)))
    assert free(core) == [0, 600]
    assert placed(ask(core, "c", share(600))) == {"c": ("n0", ((1, 600),))}


def test_who_was_given_no_devices_that_are_known_makes_way_for_who_was():
    core = recovered(
        found("a", whole(1)), found("b", share(300)), found("c", whole(1), ((0, 1000),)), gpus=3
    )
    assert free(core) == [0, 0, 700] or free(core) == [0, 700, 0]
    assert not over_capacity(core.partition)
    release(core, "a", "b", "c")
    assert free(core) == [1000] * 3


def test_devices_that_are_stated_twice_are_over_and_shown_so_and_nobody_is_placed_there():
    core = recovered(found("a", share(600), ((0, 600),)), found("b", share(600), ((0, 600),)))
    assert free(core) == [-200, 1000]
    assert over_capacity(core.partition) == ["n0"]
    assert placed(ask(core, "c", share(100))) == {"c": ("n0", ((1, 100),))}
    release(core, "a", "b", "c")
    assert free(core) == [1000, 1000]


@each_row(
    "stated", [((7, 400),), ((-1, 400),), ((0, 300),), ((0, 200), (0, 200)), ((0, 400),) * 1_000]
)
def test_devices_that_cannot_be_are_not_believed(stated):
    core = recovered(found("a", share(400), stated))
    assert free(core) == [600, 1000]


def test_many_that_run_are_counted_on_their_devices():
    allocations = [found(f"a{at}", whole(1), ((7 - at, 1000),)) for at in range(8)]
    core = recovered(*allocations, gpus=8)
    assert free(core) == [0] * 8
    release(core, "a3")
    assert placed(ask(core, "c", whole(1))) == {"c": ("n0", ((4, 1000),))}


def test_pods_of_other_schedulers_have_the_last_devices():
    core = cluster(4)
    foreign = Allocation("f", "", "n0", whole(1), allocation_tags={FOREIGN_TAG: "default"})
    core.update(allocations=(foreign,))
    assert free(core) == [1000, 1000, 1000, 0]
    assert placed(ask(core, "a", whole(3))) == {"a": ("n0", ((0, 1000), (1, 1000), (2, 1000)))}
    core.update(releases=(AllocationRelease("", "f", STOPPED),))
    assert free(core) == [0, 0, 0, 1000]
    core.check()


def test_a_pod_that_could_not_be_bound_gives_its_devices_back():
    core = cluster(1)
    ask(core, "a", share(400))
    failed = AllocationRelease("app", "a", TerminationType.SCHEDULING_FAILED_ON_RM)
    assert placed(core.update(releases=(failed,))) == {"a": ("n0", ((0, 400),))}
    assert free(core) == [600]
    core.check()


# --- gangs ----------------------------------------------------------------------------------------


def gang(core, members, resource, devices=1, **more):
    core.application("gang", placeholder_ask={n: v * members for n, v in resource.items()}, **more)
    constraints = Constraints(gpu_devices=devices)
    return core.asks(
        "gang", [f"ph{at}" for at in range(members)], resource, placeholder=True,
        task_group_name="tg", constraints=constraints,
    )  # fmt: skip


@pytest.mark.parametrize("way", ["queue", "cluster", "partial"])
def test_a_gang_of_shares_is_replaced_on_the_devices_of_its_placeholders(way):
    core = cluster(1, 1, settings=(("gangAdmission", way),))
    given = placed(gang(core, 4, share(450)))
    assert len(given) == 4
    reals = tuple(
        AllocationAsk(f"real{at}", "gang", share(450), task_group_name="tg") for at in range(4)
    )
    gone = section(core.update(asks=reals), "released_allocations")
    assert len(gone) == 4
    confirmed = tuple(
        AllocationRelease("gang", item.allocation_key, item.termination_type) for item in gone
    )
    real = placed(core.update(releases=confirmed[::-1]))
    assert sorted(real.values()) == sorted(given.values())
    core.check()


def test_a_real_pod_has_its_placeholders_device_though_another_is_fuller():
    core = cluster(2)
    gang(core, 1, share(300))
    assert on(core, "ph0") == ((0, 300),)
    core.update(allocations=(found("other", share(600), ((1, 600),)),))
    real = AllocationAsk("real", "gang", share(300), task_group_name="tg")
    (gone,) = section(core.update(asks=(real,)), "released_allocations")
    confirmed = AllocationRelease("gang", "ph0", gone.termination_type)
    assert placed(core.update(releases=(confirmed,))) == {"real": ("n0", ((0, 300),))}
    core.check()


def test_a_gang_that_only_sums_hold_is_not_started():
    core = cluster(2, 2, settings=(("gangAdmission", "cluster"),))
    assert not placed(gang(core, 5, share(700)))
    refusal = core.partition.applications["gang"].refusal
    assert "room for at most 4 of its 5 members" in text_of(refusal)
    core.check()
    assert len(placed(core.node("n2", vcore=1000, **{GPU: 1}))) == 5


def test_a_question_about_shares_leaves_everything_as_it_was():
    core = cluster(2)
    ask(core, "a", whole(1))
    partition = core.partition
    before = dict(partition.root.max_resource), dict(partition.nodes.total), free(core)[:]
    request = AllocationAsk("x", "new", share(500))
    question = WhatIf(applications=(AddApplicationRequest("new", "root.a"),), asks=(request,))
    (told,) = what_if.forecast(partition, question).applications
    assert (told.placed, told.places[0].node_id) == (1, "n0")
    after = dict(partition.root.max_resource), dict(partition.nodes.total), free(core)
    assert after == before == (before[0], before[1], [0, 1000])
