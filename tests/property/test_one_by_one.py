"""What is done for many at once comes to the same as one by one, to the last word that is told.

A twin of every scheduler takes asks in one at a time, and places one at a time.
"""

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.core.configuration import parse_configuration
from services.core.scheduler.actions import runs
from services.core.scheduler.intake import arrivals, existing, nodes
from services.core.scheduler.model.policy import Reads, reads
from services.core.scheduler.scheduler import Scheduler
from shared.bus import codec
from shared.messages.columns import Columns
from shared.messages.constraints import Constraints, HostPort, PodTerm, Requirement, Taint
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UserGroupInformation,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from shared.messages.sections import sections_of
from shared.messages.state import StateDelta
from shared.model.resources import multiply
from tests.builders import START_NS, Core, config_of, envelope
from tests.property.test_plugin_machine import FixedPluginMachine
from tests.property.test_scheduler_machine import PreemptionMachine, SchedulerMachine
from tests.soak import examples


def take_each(partition, requests, take_one, held=None):
    for request in requests:
        take_one(partition, request)


def update_each(partition, news, together=nodes.update_nodes):
    for info in news:
        together(partition, (info,))


@contextmanager
def one_by_one():
    with (
        mock.patch.object(arrivals, "take_all", take_each),
        mock.patch.object(existing, "take_all", take_each),
        mock.patch.object(nodes, "update_nodes", update_each),
        mock.patch.object(runs, "place", return_value=0),
    ):
        yield


class Twins(Core):
    """A core, and beside it one that does everything one by one."""

    def __init__(
        self, config: str = "", epoch: int = 1, settings: tuple = (), plugins: dict | None = None
    ) -> None:
        self.other = Scheduler("core-test", parse_configuration, (plugins or {}).__getitem__)
        super().__init__(config, epoch, settings, plugins)

    def send(self, message, *, epoch=None):
        known = len(self.answers)
        if hasattr(self, "partition") and not self.partition.nodes.pods._is_stale:
            self.other.partition.nodes.pods._need(())  # a check of ours had pods counted: here too
        responses = super().send(message, epoch=epoch)
        with one_by_one():
            wrapped = envelope(message, "twin", epoch=self.epoch if epoch is None else epoch)
            told = self.other.handle(wrapped, self.now_ns) + self.other.flush(self.now_ns)
        assert in_order(self.answers[known:]) == in_order(told)
        if self.scheduler.is_synced:  # before that, sums are nobody's to read
            assert ledgers(self.partition) == ledgers(self.other.partition)
        return responses


def in_order(answers):
    """Return answers with the refusals of a state by queue and shape: each is of another shape."""
    return [
        replace(answer, message=replace(answer.message, refusals=by_shape(answer.message)))
        if isinstance(answer.message, StateDelta)
        else answer
        for answer in answers
    ]


def by_shape(delta):
    return tuple(sorted(delta.refusals, key=lambda refusal: (refusal.path, refusal.asks)))


def ledgers(partition):
    """Return every sum, and where an application stands."""
    return (
        {
            path: (queue.allocated, queue.pending, queue.promised, queue.reserved, queue.priorities)
            for path, queue in partition.queues.items()
        },
        {
            name: (
                (application.allocated, application.allocated_placeholder, application.pending),
                (application.promise, application.max_allocated, application.ask_priorities),
                (application.order, application.positions, application.placed_ns),
                application.task_groups.keys(),
            )
            for name, application in partition.applications.items()
        },
        {
            tracker.title: (tracker.usage, tracker.promised, tracker.reserved, tracker.running)
            for tracker in partition.users.all()
        },
        {
            name: (node.allocated, node.available, node.score, list(node.allocations))
            for name, node in partition.nodes.nodes.items()
        },
        len(partition.shapes),
    )


class OneByOneMachine(SchedulerMachine):
    make_core = Twins


class PreemptionOneByOneMachine(PreemptionMachine):
    make_core = Twins


class FixedPluginOneByOneMachine(FixedPluginMachine):
    kind_of_core = Twins


def by_number(policy):
    """Keep large asks from nodes of odd numbers, and serve applications by the rest of theirs."""

    def feasible(node, shape):
        return shape.resource.get("vcore", 0) < 1000 or int(node.node_id[1:]) % 2 == 0

    policy.feasible.append(reads(Reads.NODES)(feasible))
    policy.order.append(reads(Reads.NOTHING)(lambda application: int(application.id[3:]) % 3))


SHAPES = [
    {"vcore": 500, "pods": 1},
    {"vcore": 500, "memory": 100, "pods": 1},
    {"memory": 300, "pods": 1},
    {"vcore": 1500, "memory": 50, "pods": 1},
]
LIMITS = "limits: [{users: [alice], maxresources: {vcore: 7}}, {groups: [dev], maxresources: {vcore: 9}}]"
QUEUES = [
    "{name: a}",
    "{name: a, resources: {guaranteed: {vcore: 3}, max: {vcore: 12}}}",
    "{name: a, properties: {application.sort.policy: fair}}",
    "{name: a, properties: {application.sort.priority: disabled}, %s}" % LIMITS,
    (
        "{name: a, resources: {guaranteed: {vcore: 3, memory: 90}, max: {vcore: 12}}, "
        "properties: {application.sort.policy: fair, application.sort.priority: disabled}}"
    ),
    "{name: a, properties: {application.sort.policy: fair}, %s}" % LIMITS,
]
QUOTA = "{name: a, properties: {quota.preemption.delay: 1s}, resources: {max: {vcore: 2}}}"
BESIDE = [
    "{name: b}, {name: c, properties: {priority.offset: '1'}}",
    "{name: b, queues: [{name: d}, {name: e, resources: {max: {memory: 1500}}}]}, {name: c}",
    "{name: b, %s, queues: [{name: d}, {name: e}]}" % LIMITS,
]
ASKS = st.tuples(
    st.integers(0, 5),  # of which application
    st.integers(0, 3),  # of which shape
    st.sampled_from([0, 0, 0, 5]),  # priority
    st.integers(1, 9),  # how many
    st.sampled_from(["", "tg"]),
    st.sampled_from([0, 0, 1, 4]),  # how long ago they were made
)


@settings(max_examples=examples(60), deadline=None)
@given(
    queue=st.sampled_from(QUEUES),
    beside=st.sampled_from(BESIDE),
    order=st.sampled_from(["fair", "binpacking"]),
    admission=st.sampled_from(["queue", "cluster", "partial"]),
    cpus=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    gangs=st.lists(st.sampled_from([0, 0, 3, 7]), min_size=6, max_size=6),
    missing=st.integers(-2, 2),
    real_too=st.booleans(),
    where=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    messages=st.lists(st.lists(ASKS, min_size=1, max_size=8), min_size=1, max_size=5),
    ends=st.integers(0, 9),
    reserves=st.booleans(),
    plugins=st.sampled_from([{}, {}, {"by_number": by_number}]),
)
def test_long_runs_decide_what_is_decided_one_by_one(
    queue,
    beside,
    order,
    admission,
    cpus,
    gangs,
    missing,
    real_too,
    where,
    messages,
    ends,
    reserves,
    plugins,
):
    config = config_of(queue, beside).replace(
        "name: default,", "name: default, nodesortpolicy: {type: %s}," % order
    )
    chosen = (("gangAdmission", admission),)
    if reserves:
        chosen += (("backfill", "enabled"), ("reservationDelay", "1ms"))
    core = Twins(config, settings=chosen, plugins=plugins)
    for at, cpu in enumerate(cpus):
        core.node(f"n{at}", vcore=cpu * 1000, memory=cpu * 200, pods=20)
    leaves = [name for name, leaf in core.partition.queues.items() if leaf.is_leaf]
    users = [("alice", ()), ("bob", ("dev",)), ("carol", ())]
    for at, members in enumerate(gangs):
        core.now_ns += 1
        core.application(
            f"app{at}",
            leaves[where[at] % len(leaves)],
            ugi=UserGroupInformation(*users[at % 3]),
            placeholder_ask=multiply(SHAPES[0], members),
        )
        if members:
            asks = [
                AllocationAsk(
                    f"app{at}-ph{n}", f"app{at}", SHAPES[0], placeholder=True, task_group_name="tg"
                )
                for n in range(members - missing)
            ]
            if real_too:
                asks += [AllocationAsk(f"app{at}-r{n}", f"app{at}", SHAPES[0]) for n in range(3)]
            core.update(asks=tuple(asks))
    for number, message in enumerate(messages):
        in_turn = sorted((n, at) for at, asks in enumerate(message) for n in range(asks[3]))
        core.update(
            asks=tuple(
                AllocationAsk(
                    f"{number}-{at}-{n}",
                    f"app{message[at][0]}",
                    SHAPES[message[at][1]],
                    priority=message[at][2],
                    create_time_ns=message[at][5] and core.now_ns - message[at][5],
                    task_group_name=message[at][4],
                )
                for n, at in in_turn
            )
        )
        core.check()
        running = [
            (application.id, key)
            for application in core.partition.applications.values()
            for key in application.allocations
        ]
        core.update(
            releases=tuple(
                AllocationRelease(owner, key, TerminationType.STOPPED_BY_RM)
                for owner, key in running[: ends * 2 : 2]
            )
        )
        for kind in list(core.partition.timers) if reserves else ():
            core.fire_own(kind)
        core.check()


def test_one_of_several_for_whom_placeholders_go_leaves_the_others_held_back():
    """When the placeholders of the first had gone, the others were in their bucket too early."""
    few = (0, 0, 0, 1, "", 0)
    test_long_runs_decide_what_is_decided_one_by_one.hypothesis.inner_test(
        queue="{name: a}", beside=BESIDE[0], order="fair", admission="queue", cpus=[7],
        gangs=[0, 7, 0, 0, 0, 0], missing=0, real_too=False, where=[0] * 6,
        messages=[[*[few] * 5, (1, 3, 0, 3, "tg", 1)], [few, few, (1, 3, 0, 1, "tg", 0)]],
        ends=5, reserves=False, plugins={},
    )  # fmt: skip


def test_a_gang_with_more_placeholders_than_announced_waits_for_room_for_all_of_them():
    """The check that nobody waits for what is there counted only what was announced."""
    test_long_runs_decide_what_is_decided_one_by_one.hypothesis.inner_test(
        queue=QUEUES[1], beside=BESIDE[0], order="fair", admission="cluster", cpus=[3, 10],
        gangs=[0, 0, 0, 3, 3, 7], missing=-2, real_too=True, where=[0] * 6,
        messages=[[(0, 0, 0, 1, "", 0)]], ends=0, reserves=False, plugins={},
    )  # fmt: skip


def test_a_node_is_told_when_it_takes_an_ask_not_when_one_was_looked_for():
    """In a leaf sorted fair a group joins a lane too early; the node found for it came first."""
    few = (0, 0, 0, 1, "", 0)
    test_long_runs_decide_what_is_decided_one_by_one.hypothesis.inner_test(
        queue="{name: a, properties: {application.sort.policy: fair}}", beside=BESIDE[0],
        order="fair", admission="queue", cpus=[1, 1, 1, 1, 2], gangs=[0] * 6, missing=0,
        real_too=False, where=[0] * 6,
        messages=[[(0, 0, 0, 1, "tg", 0), *[few] * 4, (0, 2, 0, 1, "", 0)],
                  [(0, 0, 0, 3, "tg", 0), *[few] * 5]],
        ends=0, reserves=False, plugins={},
    )  # fmt: skip


def test_asks_of_many_leaves_are_placed_in_one_run():
    core = Core(config_of("{name: a}", "{name: b}", "{name: c}"))
    core.node("n1", vcore=1000, pods=100)
    for queue in "abc":
        core.application(queue, f"root.{queue}")
    asks = [AllocationAsk(f"{q}{n}", q, {"vcore": 1, "pods": 1}) for n in range(20) for q in "abc"]
    found = []
    place = runs.place
    with mock.patch.object(
        runs, "place", side_effect=lambda *of: found.append(place(*of)) or found[-1]
    ):
        core.update(asks=tuple(asks))
    assert sum(found) >= 60 - 3 - 3  # the first of an application starts it, the last is its last
    assert max(found) > 50


@pytest.mark.parametrize("order", ["fifo", "fair"])
def test_applications_of_many_shapes_take_their_turns_in_one_run(order):
    core = Core(config_of("{name: a, properties: {application.sort.policy: %s}}" % order))
    core.node("n1", vcore=100_000, pods=100)
    for name in "xyz":
        core.application(name, "root.a")
    asks = [
        AllocationAsk(f"{x}{n}", x, {"vcore": 1000 + n % 4, "pods": 1}, priority=n // 12)
        for n in range(20)
        for x in "xyz"
    ]
    found = []
    place = runs.place
    with mock.patch.object(
        runs, "place", side_effect=lambda *of: found.append(place(*of)) or found[-1]
    ):
        core.update(asks=tuple(asks))
    assert sum(found) == 60 - 3  # the first of an application starts it
    assert len(list(filter(None, found))) <= 1 + 3  # which ends a run


def test_of_two_leaves_in_one_run_neither_takes_what_the_other_has_of_their_users_limit():
    limits = "limits: [{users: [nobody], maxresources: {vcore: 11}}]"
    core = Twins(config_of("{name: p, %s, queues: [{name: a}, {name: b}]}" % limits))
    core.node("n1", vcore=100_000, pods=100)
    for queue in "ab":
        core.application(queue, f"root.p.{queue}")
    sizes = {"a": {"vcore": 1000, "pods": 1}, "b": {"vcore": 4000, "pods": 1}}
    core.update(asks=tuple(AllocationAsk(f"{q}{n}", q, sizes[q]) for n in range(9) for q in "ab"))
    assert core.partition.queues["root.p"].allocated["vcore"] <= 11_000


def test_an_ask_that_is_older_than_its_application_moves_it_though_it_comes_after_its_like():
    core = Twins(config_of("{name: a}"))
    core.application("young", "root.a", submission_time_ns=core.now_ns + 5)
    core.application("old", "root.a", submission_time_ns=core.now_ns)
    one = {"vcore": 1000, "pods": 1}
    asks = [AllocationAsk(f"{x}{n}", x, one) for n in range(2) for x in ("young", "old")]
    asks.append(AllocationAsk("oldest", "young", one, create_time_ns=core.now_ns - 5))
    core.update(asks=tuple(asks))
    assert core.partition.applications["young"].submission_time_ns == core.now_ns - 5


def test_placeholders_without_a_task_group_are_none_the_second_as_the_first():
    core = Twins(config_of("{name: a}"))
    core.application("x", "root.a")
    core.asks("x", ["x0", "x1", "x2"], {"vcore": 1000, "pods": 1}, placeholder=True)
    assert not any(ask.request.placeholder for ask in core.partition.applications["x"].asks())


def test_in_a_leaf_sorted_fair_the_application_that_uses_least_is_next():
    core = Twins(config_of("{name: a, properties: {application.sort.policy: fair}}"))
    core.node("n1", vcore=100_000, pods=100)
    for name in "xy":
        core.application(name, "root.a")
    asks = [AllocationAsk(f"{x}{n}", x, {"vcore": 1000, "pods": 1}) for x in "xy" for n in range(9)]
    core.update(asks=tuple(asks))
    placed = [
        a.application_id for r in core.answers for a in getattr(r.message, "new_allocations", ())
    ]
    assert placed == ["x", "y"] * 9


@settings(max_examples=60, deadline=None)
@given(
    made=st.lists(
        st.builds(
            dict,
            priority=st.sampled_from([0, 0, 5]),
            create_time_ns=st.sampled_from([0, 7]),
            allocation_tags=st.sampled_from([{}, {}, {"a": "b"}]),
            originator=st.booleans(),
            exec_timeout_milli_seconds=st.sampled_from([0, 0, 90]),
        ),
        min_size=1,
        max_size=12,
    ),
    count=st.integers(1, 70),
    members=st.sampled_from([0, 4, 30]),
    queues=st.sampled_from(["ab", "aa"]),
)
def test_what_a_run_placed_is_told_and_written_as_records_of_it_would_be(
    made, count, members, queues
):
    core = Twins(config_of("{name: a}", "{name: b}"))
    core.node("n1", vcore=100_000, pods=30)
    core.node("n2", vcore=100_000, pods=60)
    one = {"vcore": 1000, "pods": 1}
    for name, queue in zip("xy", queues, strict=True):
        core.application(name, f"root.{queue}", placeholder_ask=multiply(one, members))
    asks = [
        AllocationAsk(f"{x}-ph{n}", x, one, placeholder=True, task_group_name="tg")
        for x in "xy"
        for n in range(members)
    ] + [
        AllocationAsk(f"{x}{n}", x, one, **made[n % len(made)]) for n in range(count) for x in "xy"
    ]
    core.update(asks=tuple(asks))
    for message in (answer.message for answer in core.answers):
        sections = [name for name, _ in sections_of(type(message))]
        records = {name: tuple(getattr(message, name)) for name in sections}
        assert codec.encode(message) == codec.encode(replace(message, **records))


def test_what_a_long_run_placed_is_told_by_the_column():
    core = Twins(config_of("{name: a}"))
    core.node("n1", vcore=100_000, pods=100)
    core.application("x", "root.a")
    core.asks("x", [f"x{n}" for n in range(50)], {"vcore": 1, "pods": 1})
    told = core.answers[-1].message
    assert isinstance(told.asks, Columns)
    assert isinstance(told.allocations, Columns)
    assert len(told.asks) == len(told.allocations) == 50


APART = Constraints(
    pod_anti_affinity=(PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("x",)),)),),
    namespace="d",
)
X = {"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": "x"}
EXISTING = st.builds(
    dict,
    application_id=st.sampled_from(["app0", "app1", "app2", "app0", "app1", "none"]),
    node_id=st.sampled_from(["n0", "n1", "n2", "n0", "n1", "none"]),
    resource_per_alloc=st.sampled_from([*SHAPES, *SHAPES, {"vcore": 0}, {"vcore": -1}]),
    priority=st.sampled_from([0, 0, 0, 5, 2**31]),
    create_time_ns=st.sampled_from([0, 0, 0, 1, START_NS + 10**6]),
    allocated_ns=st.sampled_from([0, START_NS - 5]),
    allocation_tags=st.sampled_from([{}, {}, X, {"foreign": "default"}]),
    constraints=st.sampled_from(
        [Constraints()] * 4 + [APART, Constraints(host_ports=(HostPort(80),))]
    ),
    exec_timeout_milli_seconds=st.sampled_from([0, 0, 0, 0, 90]),
    released=st.sampled_from([False] * 5 + [True]),
    placeholder=st.sampled_from([False] * 4 + [True]),
    task_group_name=st.sampled_from(["", "tg"]),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    queue=st.sampled_from([*QUEUES, QUOTA]),
    limits=st.sampled_from(["", LIMITS]),
    order=st.sampled_from(["fair", "binpacking"]),
    messages=st.lists(
        st.lists(st.tuples(EXISTING, st.integers(0, 30)), min_size=1, max_size=12),
        min_size=1,
        max_size=4,
    ),
    waiting=st.lists(st.tuples(ASKS, st.sampled_from([Constraints(), APART])), max_size=4),
    is_recovery=st.booleans(),
    plugins=st.sampled_from([{}, {}, {"by_number": by_number}]),
)
def test_allocations_that_exist_are_counted_as_one_by_one(
    queue, limits, order, messages, waiting, is_recovery, plugins
):
    config = config_of(queue, "{name: b%s}" % (limits and ", " + limits)).replace(
        "name: default,",
        "name: default, preemption: {quotapreemptionenabled: true}, "
        "nodesortpolicy: {type: %s}," % order,
    )
    core = Twins(config, plugins=plugins)
    if is_recovery:
        core.epoch += 1
        names = (("plugins", ",".join(plugins)),) if plugins else ()
        core.send(SyncBegin(config, names))
    for at in range(3):
        core.node(f"n{at}", vcore=4000 * at + 2000, memory=900, pods=20)
    for at in range(3):
        core.application(
            f"app{at}",
            "root.a" if at < 2 else "root.b",
            ugi=UserGroupInformation(*[("alice", ()), ("bob", ("dev",))][at % 2]),
            submission_time_ns=START_NS - at,
            placeholder_ask=multiply(SHAPES[0], 2 * (at == 2)),
        )
    asks = tuple(
        AllocationAsk(
            f"app{ask[0] % 3}-{at}",
            f"app{ask[0] % 3}",
            SHAPES[ask[1]],
            constraints=constraints,
            allocation_tags=X,
        )
        for at, (ask, constraints) in enumerate(waiting)
    )
    core.update(asks=asks)
    for message in messages:
        core.update(
            allocations=tuple(
                Allocation(f"{made['application_id']}-{key}", **made) for made, key in message
            )
        )
        if not is_recovery:
            core.check()
    if is_recovery:
        core.send(SyncEnd(0, 0, 0))
        core.check()
    end_every_other(core)
    core.check()


def end_every_other(core):
    for application in list(core.partition.applications.values()):
        for key in list(application.allocations)[::2]:
            release = AllocationRelease(application.id, key, TerminationType.STOPPED_BY_RM)
            core.update(releases=(release,))


NODE_NEWS = st.builds(
    NodeInfo,
    node_id=st.sampled_from(["n0", "n1", "n2", "n3", "n4", ""]),
    action=st.sampled_from([*NodeAction, *[NodeAction.CREATE] * 8]),
    schedulable_resource=st.sampled_from(
        [{"vcore": v, "memory": 900, "pods": 20} for v in (1000, 3000, 9000, -1)]
    ),
    labels=st.sampled_from([{"zone": "z"}, {"zone": "y"}, {}]),
    taints=st.sampled_from([(), (), (Taint("a", "b", "NoSchedule"),)]),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    queue=st.sampled_from(QUEUES),
    admission=st.sampled_from(["queue", "cluster", "partial"]),
    members=st.integers(0, 6),
    waiting=st.lists(
        st.tuples(ASKS, st.sampled_from([Constraints(), APART, Constraints((("zone", "z"),))])),
        max_size=6,
    ),
    messages=st.lists(st.lists(NODE_NEWS, min_size=1, max_size=8), min_size=1, max_size=5),
    plugins=st.sampled_from([{}, {}, {"by_number": by_number}]),
)
def test_nodes_that_come_together_are_taken_in_as_one_by_one(
    queue, admission, members, waiting, messages, plugins
):
    chosen = (("gangAdmission", admission), ("reservationDelay", "1ms"))
    core = Twins(config_of(queue), settings=chosen, plugins=plugins)
    core.application("app0", "root.a")
    core.application("app1", "root.a", placeholder_ask=multiply(SHAPES[0], members))
    keys = [f"ph{n}" for n in range(members)]
    core.asks("app1", keys, SHAPES[0], placeholder=True, task_group_name="tg")
    for at, (ask, constraints) in enumerate(waiting):
        keys = [f"{at}-{n}" for n in range(ask[3])]
        core.asks("app0", keys, SHAPES[ask[1]], constraints=constraints, allocation_tags=X)
    for message in messages:
        core.now_ns += 10**7
        core.update(nodes=tuple(message))
        core.check()
        for kind in list(core.partition.timers):
            core.fire_own(kind)


def test_like_allocations_that_exist_are_counted_together():
    core = Core(config_of("{name: a}"))
    core.node("n1", vcore=100_000, pods=100)
    core.application("x", "root.a")
    one = {"vcore": 1, "pods": 1}
    with mock.patch.object(core.partition, "count_in", wraps=core.partition.count_in) as each:
        core.update(allocations=tuple(Allocation(f"x{n}", "x", "n1", one) for n in range(50)))
    assert each.call_count == 1
    assert core.partition.queues["root.a"].allocated == multiply(one, 50)
    told = core.answers[-1].message
    assert isinstance(told.allocations, Columns)


TestOneByOne = OneByOneMachine.TestCase
TestPreemptionOneByOne = PreemptionOneByOneMachine.TestCase
TestFixedPluginOneByOne = FixedPluginOneByOneMachine.TestCase
TestOneByOne.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
TestPreemptionOneByOne.settings = settings(
    max_examples=examples(12), stateful_step_count=30, deadline=None
)
TestFixedPluginOneByOne.settings = settings(
    max_examples=examples(12), stateful_step_count=30, deadline=None
)


def test_a_placeholder_that_is_on_another_node_stays_one_of_its_group():
    """The resource manager said that it is none: its gang counted one that was nowhere."""
    core = Core(config_of("{name: a}"))
    for name in ("n0", "n1"):
        core.node(name, vcore=4000, pods=20)
    core.application("app0", "root.a")
    here = Allocation("p", "app0", "n0", SHAPES[0], placeholder=True, task_group_name="tg")
    core.update(allocations=(here,))
    core.update(allocations=(Allocation("p", "app0", "n1", SHAPES[0]),))
    core.check()
    there = core.partition.applications["app0"].allocations["p"]
    assert (there.node_id, there.placeholder, there.task_group_name) == ("n1", True, "tg")


@settings(max_examples=examples(40), deadline=None)
@example(guaranteed=(0, 0), counts=(1, 3), sizes=[SHAPES[0]], cpus=2)
@given(
    guaranteed=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    sizes=st.lists(st.sampled_from(SHAPES), min_size=2, max_size=4),
    cpus=st.integers(2, 20),
)
def test_under_kai_queues_take_turns_in_a_run_as_one_by_one(guaranteed, counts, sizes, cpus):
    """A leaf whose next job stood in a run's lane passed for one that wants nothing."""
    queues = [
        "{name: %s, resources: {guaranteed: {vcore: %d, memory: 300}}}" % pair
        for pair in zip("ab", guaranteed, strict=True)
    ]
    core = Twins(config_of(*queues), settings=(("policy", "kai"),))
    asks = []
    for name, count in zip("ab", counts, strict=True):
        core.application(name, f"root.{name}")
        asks += [
            AllocationAsk(f"{name}{n}", name, sizes[(n + ord(name)) % len(sizes)])
            for n in range(count)
        ]
    core.update(asks=tuple(asks))
    core.node("n1", vcore=cpus * 1000, memory=2000, pods=20)
    core.check()
