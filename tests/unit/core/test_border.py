"""The core at its border: numbers no clock or wire holds, names of any kind, a recovery with a hole."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.model.sums import sum_of, summed
from services.core.scheduler.nodes.columns import sums as node_sum
from shared.bus import codec
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    NodeAction,
    NodeInfo,
    UpdateRequest,
)
from shared.messages.protocol import (
    Heartbeat,
    SyncBegin,
    SyncEnd,
    SyncRequest,
    TimerFired,
    TimerFirings,
    TimerOrders,
)
from shared.messages.state import StateDelta
from shared.model.names import FOREIGN_TAG
from tests.builders import Core, config_of, section
from tests.table import each_row

LARGEST = 2**63 - 1
WHOLE = {"vcore": 1000, "pods": 1}


def all_can_be_sent(core):
    for outgoing in core.answers:
        kind = type(outgoing.message).__name__
        assert codec.decode(kind, codec.encode(outgoing.message)) == outgoing.message


def orders(core):
    return [
        timer
        for outgoing in core.answers
        if isinstance(outgoing.message, TimerOrders)
        for timer in outgoing.message.armed
    ]


# --- moments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [LARGEST, 20_000_000_000_000, 10_000_000_000_000, -LARGEST])
def test_a_timeout_beyond_the_clock_is_a_timer_all_the_same(timeout_ms):
    core = Core()
    core.node("n", vcore=9000, pods=9)
    core.gang("gang", 2, WHOLE, execution_timeout_milli_seconds=timeout_ms)
    core.asks("gang", ["real"], WHOLE, exec_timeout_milli_seconds=timeout_ms)
    all_can_be_sent(core)
    assert "placeholder" in {timer.kind for timer in orders(core)}
    core.application("plain")
    core.asks("plain", ["p"], WHOLE, exec_timeout_milli_seconds=timeout_ms)
    core.asks("plain", ["q"], WHOLE, exec_timeout_milli_seconds=5)
    all_can_be_sent(core)
    assert "execution/5/plain/q" in [timer.timer_id for timer in orders(core)]
    core.check()


@each_row("created", ["9" * 19, "9" * 5000, str(LARGEST), "-1", "1.5", "²", "٣", "", " 1"])
def test_a_creation_time_may_be_any_text(created):
    core = Core()
    core.node("n", vcore=9000, pods=9)
    core.gang("gang", 2, WHOLE, tags={"yunikorn.apache.org/creationTime": created})
    all_can_be_sent(core)
    assert core.partition.applications["gang"].state == "Running"


@pytest.mark.parametrize("delay", ["2562047h47m16.854775807s", "9" * 60 + "h", "292y", "1e9h"])
def test_a_delay_of_a_queue_may_be_the_longest_that_go_knows(delay):
    core = Core(
        config_of(
            "{name: default, properties: {application.unschedasks.backoff: '1', "
            f"application.unschedasks.backoff.delay: {delay}, preemption.delay: {delay}, "
            f"quota.preemption.delay: {delay}}}}}"
        ),
        settings=(("reservationDelay", delay), ("stalenessGracePeriod", delay)),
    )
    core.node("n", vcore=1000, pods=9)
    core.application("app")
    core.asks("app", ["large"], {"vcore": 5000})
    core.asks("app", ["small"], {"vcore": 500})
    all_can_be_sent(core)
    core.check()


def test_a_queue_may_have_as_many_applications_as_uint64_counts():
    core = Core(
        config_of(f"{{name: default, maxapplications: {2**64 - 1}}}"),
    )
    core.application("app")
    all_can_be_sent(core)


# --- sums ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 6, 40])
def test_sums_of_what_waits_are_told_as_the_largest_number_and_come_back(count):
    core = Core()
    core.node("n", vcore=9000, pods=90)
    core.application("app")
    core.asks("app", [f"k{n}" for n in range(count)], {"memory": 2**62})
    all_can_be_sent(core)
    (told,) = [q for q in deltas(core)[-1].queues if q.path == "root"]
    assert told.pending == {"memory": LARGEST}
    assert core.partition.root.pending == {"memory": count * 2**62}
    app = core.partition.applications["app"]
    for n in range(count):
        core.partition.remove_ask(app, f"k{n}")
    assert core.partition.root.pending == {}
    core.check()


def deltas(core):
    return [o.message for o in core.answers if isinstance(o.message, StateDelta)]


def test_sums_of_nodes_users_and_foreign_pods_are_bounded_where_they_are_told():
    limits = "limits: [{limit: l, users: ['*'], maxresources: {vcore: 9}}]"
    core = Core(config_of(f"{{name: default, {limits}}}"))
    for name in ("a", "b", "c"):
        core.node(name, vcore=9000, pods=90, gpu=LARGEST)
    core.application("app")
    core.asks("app", ["x", "y"], {"gpu": LARGEST, "vcore": 1})
    foreign = tuple(
        Allocation(f"f{n}", "", "c", {"gpu": LARGEST}, allocation_tags={FOREIGN_TAG: "default"})
        for n in range(3)
    )
    core.update(allocations=foreign)
    all_can_be_sent(core)
    node = core.partition.nodes.nodes["c"]
    assert node.available["gpu"] == LARGEST - 3 * LARGEST
    assert core.partition.root.max_resource["gpu"] == 3 * LARGEST
    assert core.partition.root.allocated["gpu"] == 2 * LARGEST
    user = core.partition.users.users["nobody"]
    assert user.usage["root"]["gpu"] == 2 * LARGEST
    core.asks("app", ["z"], {"gpu": 1})
    assert "z" not in core.partition.applications["app"].allocations
    core.check()


@pytest.mark.parametrize("policy", ["fair", "binpacking"])
def test_weights_may_be_as_large_as_a_number_is(policy):
    text = config_of("{name: default}").replace(
        "queues: [{name: root",
        f"nodesortpolicy: {{type: {policy}, resourceweights: {{vcore: 1.7e308, memory: 1.7e308}}}}, "
        "queues: [{name: root",
    )
    core = Core(text)
    for name in ("a", "b"):
        core.node(name, vcore=9000, memory=9, pods=9)
    core.application("app")
    core.asks("app", ["k0", "k1"], {"vcore": 1})
    nodes = [core.partition.applications["app"].allocations[key].node_id for key in ("k0", "k1")]
    assert nodes == (["a", "b"] if policy == "fair" else ["a", "a"])
    all_can_be_sent(core)


# --- names --------------------------------------------------------------------------------------

STRANGE = ["-", "/", ":", "cleaner", "a/b", "a", "1/a", "execution", "default", "é" * 127]


def crowded(name):
    """Return a core in which an ask of an application waits to be old enough for a node."""
    core = Core()
    for node in ("n1", "n2"):
        core.node(node, vcore=1000, pods=9)
    core.application(name)
    core.asks(name, ["k0", "k1", "k2"], {"vcore": 600})
    return core


@each_row("name", STRANGE)
def test_the_partition_s_timers_are_its_own_whatever_an_application_is_called(name):
    core = crowded("other")
    core.application(name)
    core.fire_own("reservation")
    assert core.partition.applications["other"].reservations
    core.check()


@pytest.mark.parametrize(
    ("first", "second"),
    [(("a", "b/c"), ("a/b", "c")), (("a/b", "c"), ("a", "b/c")), (("1/a", "x"), ("a", "1/x"))],
)
def test_no_two_applications_share_a_timer(first, second):
    core = Core()
    core.node("n", vcore=9000, pods=9)
    for application, key in (first, second):
        core.application(application)
        core.asks(application, [key], WHOLE, exec_timeout_milli_seconds=1000)
    ids = {timer.timer_id: timer for timer in orders(core)}
    assert [timer.application_id for timer in ids.values()] == [first[0], second[0]]
    (timer, *_) = ids.values()
    fired = TimerFired(timer.timer_id, timer.kind, timer.application_id, timer.generation)
    core.now_ns = timer.due_ns
    released = section(core.send(TimerFirings((fired,))), "released_allocations")
    assert [(item.application_id, item.allocation_key) for item in released] == [first]


def test_a_firing_of_nobody_we_know_is_nobody_s():
    core = crowded("app")
    generation, _ = core.partition.timers["reservation"]
    core.send(TimerFirings((TimerFired("reservation", "reservation", "gone", generation),)))
    assert "reservation" in core.partition.timers


def test_an_application_s_id_is_bounded_and_one_that_is_too_long_is_rejected():
    core = Core()
    long = "é" * 128
    (rejected,) = section(core.application(long), "rejected_applications")
    assert rejected.reason == "an application's ID has at most 255 bytes, found 256"
    assert section(core.application("é" * 127), "accepted_applications")


def test_a_queue_s_path_is_bounded():
    core = Core(
        "partitions: [{name: default, placementrules: [{name: provided, create: true}], "
        "queues: [{name: root, submitacl: '*'}]}]"
    )
    deep = "root." + ".".join("a" * 400)
    (rejected,) = section(core.application("deep", deep), "rejected_applications")
    assert "the path of a queue has at most 512" in rejected.reason
    assert section(core.application("flat", "root.a.b"), "accepted_applications")


def test_a_quota_tag_with_half_a_character_says_nothing():
    core = Core(
        "partitions: [{name: default, placementrules: [{name: provided, create: true}], "
        "queues: [{name: root, submitacl: '*'}]}]"
    )
    quota = '{"resources": {"\\ud800": {"value": 1}}}'
    assert json.loads(quota)
    tags = {"namespace.resourcequota": quota, "namespace.resourcemaxapps": "9" * 19}
    core.application("app", "root.new", tags=tags)
    all_can_be_sent(core)
    assert core.partition.queues["root.new"].max_resource is None
    assert core.partition.queues["root.new"].max_applications == 0


# --- priorities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, LARGEST])
def test_a_priority_beyond_int32_is_refused_with_a_sentence(priority):
    core = Core()
    core.node("n", vcore=9000, pods=9)
    core.application("app")
    told = core.asks("app", ["k"], WHOLE, priority=priority)
    existing = Allocation("e", "app", "n", WHOLE, priority=priority)
    other = Allocation(
        "f", "", "n", WHOLE, priority=priority, allocation_tags={FOREIGN_TAG: "default"}
    )
    told += core.update(allocations=(existing, other))
    reasons = {item.allocation_key: item.reason for item in section(told, "rejected_allocations")}
    sentence = f"a priority is a 32-bit whole number, found {priority}"
    assert reasons == {"k": sentence, "e": sentence, "f": sentence}
    core.check()


@pytest.mark.parametrize("priority", [2**31 - 1, -(2**31)])
def test_the_priorities_of_int32_hold(priority):
    core = Core()
    core.node("n", vcore=9000, pods=9)
    core.application("app")
    core.asks("app", ["k"], WHOLE, priority=priority)
    assert "k" in core.partition.applications["app"].allocations
    core.check()


# --- recovery -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["nodes", "asks", "allocations"])
def test_a_recovery_of_which_a_part_was_lost_is_asked_for_again(lost):
    core = Core()
    sections = {
        "nodes": (NodeInfo("n", NodeAction.CREATE, {"vcore": 9000, "pods": 9}),),
        "allocations": (Allocation("a", "app", "n", WHOLE),),
        "asks": (AllocationAsk("k", "app", WHOLE),),
    }

    def recover(**left_out):
        core.epoch += 1
        core.send(SyncBegin(""))
        core.update(new_applications=(AddApplicationRequest("app", "root.default"),))
        for name, items in (sections | left_out).items():
            core.send(UpdateRequest("rm", **{name: items}))
        core.send(SyncEnd(1, 1, 1))

    recover(**{lost: ()})
    assert not core.scheduler.is_synced
    core.answers.clear()
    core.now_ns += 10_000_000_000
    core.send(Heartbeat("t"), epoch=0)
    assert [type(o.message) for o in core.answers] == [SyncRequest]
    recover()
    assert core.scheduler.is_synced
    assert core.partition.root.allocated == {"vcore": 2000, "pods": 2}


def test_what_could_not_be_sent_is_told_on_its_application():
    core = Core()
    core.application("app")
    ask = AllocationAsk("k", "app", WHOLE)
    core.scheduler.on_unsendable(None, ask, "it is too large", core.now_ns)
    out = core.scheduler.flush(core.now_ns)
    (delta,) = [o.message for o in out if isinstance(o.message, StateDelta)]
    assert [a.message for a in delta.applications] == ["it is too large"]
    assert "set aside: it is too large" in delta.events[0].message
    core.scheduler.on_unsendable(None, None, "nobody's", core.now_ns)


# --- the policy kai -----------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(-(2**63), LARGEST), min_size=2, max_size=2), max_size=5))
def test_sums_of_rows_are_exact(rows):
    matrix = np.array(rows, dtype=np.int64).reshape(len(rows), 2)
    assert list(summed(matrix)) == [sum(row[at] for row in rows) for at in (0, 1)]
    assert list(sum_of(rows, 2)) == list(summed(matrix))


def test_huge_nodes_and_gangs_are_no_trouble_to_the_policy_kai():
    core = Core(
        config_of("{name: a, resources: {guaranteed: {gpu: 1}}}", "{name: b}"),
        settings=(("policy", "kai"),),
    )
    for name in ("n1", "n2", "n3"):
        core.node(name, vcore=9000, pods=90, gpu=LARGEST)
    core.application("holder", "root.b")
    core.asks("holder", ["h1", "h2", "h3"], {"gpu": LARGEST, "vcore": 10})
    core.application("needy", "root.a")
    core.asks("needy", [f"k{n}" for n in range(4)], {"gpu": LARGEST, "vcore": 10})
    for _ in range(3):
        core.now_ns += 60_000_000_000
        core.send(Heartbeat("t"))
        if "preemption" in core.partition.timers:
            core.fire_own("preemption")
    all_can_be_sent(core)
    released = [
        item.allocation_key
        for outgoing in core.answers
        for item in getattr(outgoing.message, "released_allocations", ())
    ]
    assert released
    core.check()


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [
        (LARGEST, 1, LARGEST),
        (1, LARGEST, LARGEST),
        (LARGEST, LARGEST, LARGEST),
        (-LARGEST - 1, -1, -LARGEST - 1),
        (-1, -LARGEST - 1, -LARGEST - 1),
        (-LARGEST - 1, -LARGEST - 1, -LARGEST - 1),
        (LARGEST, -LARGEST - 1, -1),
        (2, 3, 5),
    ],
)
def test_room_and_what_is_expected_there_add_up_to_no_more_than_a_number_holds(one, other, total):
    sums = node_sum(np.array([one, 1], dtype=np.int64), np.array([other, 1], dtype=np.int64))
    assert sums.tolist() == [total, 2]


def test_a_pod_that_is_recovered_with_a_priority_that_is_no_number_is_refused_and_others_are_not():
    core = Core()
    core.epoch = 2
    core.send(SyncBegin(""))
    core.update(
        nodes=(NodeInfo("n", NodeAction.CREATE, {"vcore": 9000, "pods": 9}),),
        new_applications=(AddApplicationRequest("app", "root.default"),),
    )
    pods = tuple(
        Allocation(key, "app", "n", WHOLE, priority=priority)
        for key, priority in (("low", -(2**31)), ("none", 2**31), ("high", 2**31 - 1))
    )
    refused = section(core.update(allocations=pods), "rejected_allocations")
    refused += section(core.send(SyncEnd(1, 3, 0)), "rejected_allocations")
    assert [item.allocation_key for item in refused] == ["none"]
    assert sorted(core.partition.applications["app"].allocations) == ["high", "low"]
    core.check()


@each_row("name", ["..", ".", "a\nb", "a\x1b[2J", "a\u2028b"])
def test_an_application_whose_id_cannot_be_asked_for_is_rejected(name):
    (response,) = Core().application(name)
    (rejected,) = response.rejected_applications
    assert "must be printable, and neither '.' nor '..'" in rejected.reason


@pytest.mark.parametrize("name", ["a/b", "-", "a b", "é"])
def test_an_application_whose_id_has_an_escape_is_taken(name):
    (response,) = Core().application(name)
    assert response.accepted_applications
