"""Of those who are refused alike one is tried: what comes of it is as if all had been (ADR 30).

A core whose classes try their first stands beside one, its twin, whose classes wake everybody. Both
hear the same. After every message the same applications have started, with the same pods on the
same nodes. Why one waits may differ: who is refused for two reasons is told the one it met.
"""

from contextlib import contextmanager
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.core.scheduler.ordering import queueing
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import TimerFirings
from shared.model.resources import multiply
from tests.builders import Core, config_of
from tests.property import leaves
from tests.property.leaves import SHAPES, SIZES, STOPPED, TwoLeaves, placeholder
from tools.invariants import violations

CONFIGS = [
    *leaves.CONFIGS,
    config_of(
        "{name: p, limits: [{users: [alice], maxresources: {vcore: 5m}, maxapplications: 2}, "
        "{users: ['*'], maxresources: {vcore: 6m}}], queues: [{name: a, "
        "resources: {max: {vcore: 7m}}}, {name: b, maxapplications: 1}]}"
    ),
    config_of(
        "{name: p, maxapplications: 3, resources: {max: {vcore: 9m}}, queues: [{name: a, "
        "properties: {application.sort.policy: fair}, resources: {max: {vcore: 5m}}}, {name: b, "
        "properties: {application.sort.policy: stateaware}}]}"
    ),
    config_of("{name: p, queues: [{name: a}, {name: b, maxapplications: 1}]}"),
]
OWNERS = [UserGroupInformation("alice"), UserGroupInformation("bob")]


@contextmanager
def everybody_tried():
    """Have a class let all who wait be considered, not the first of them."""
    as_it_is = queueing.requeue_class

    def requeue_all(waiting):
        for application in list(waiting.members):
            queueing.activate(application)

    queueing.requeue_class = requeue_all
    try:
        yield
    finally:
        queueing.requeue_class = as_it_is


class Twin(Core):
    """A core, and one beside it that hears the same and considers everybody."""

    def __init__(self, *arguments, **more):
        self.other = Core(*arguments, **more)
        super().__init__(*arguments, **more)

    def send(self, message, **more):
        if hasattr(self, "now_ns"):
            self.other.now_ns = self.now_ns
        heard = message
        if isinstance(message, TimerFirings):
            heard = TimerFirings(tuple(map(self._as_armed, message.fired)))
        with everybody_tried():
            self.other.send(heard, **more)
        return super().send(message, **more)

    def _as_armed(self, fired):
        """Return a firing as the other core's: there the timer may have been armed more often."""
        app = self.other.partition.applications.get(fired.application_id)
        timers = app.timers if app is not None else self.other.partition.timers
        generation = timers.get(fired.timer_id, (fired.generation, 0))[0]
        return replace(fired, generation=generation)


def outcome(core):
    """Return what came of every application."""
    return {
        name: (
            app.state,
            app.gang_admitted,
            {key: held.node_id for key, held in app.allocations.items()},
            sorted(app.group_of),
        )
        for name, app in core.partition.applications.items()
    }


class WaitingMachine(TwoLeaves, RuleBasedStateMachine):
    @initialize(
        config=st.sampled_from(CONFIGS),
        admission=st.sampled_from(["queue", "cluster", "cluster", "partial"]),
        patience=st.sampled_from(["0", "60s", "5m"]),
        backfill=st.sampled_from(["enabled", "disabled"]),
        filtered=st.booleans(),
    )
    def start(self, config, admission, patience, backfill, filtered):
        settings = (("gangAdmission", admission), ("starvationGuard", patience))
        settings += (("backfill", backfill),)
        settings += (("stateAware", "filtered"),) if filtered else ()
        self.core = Twin(config, settings=settings)
        self.count = 0
        for at in range(2):
            self.node_is(at, "ssd" if at else "hdd", 4)

    @rule(at=st.integers(0, 4), disk=st.sampled_from(["ssd", "hdd"]), vcore=st.integers(1, 7))
    def a_node_comes(self, at, disk, vcore):
        self.node_is(at, disk, vcore)

    @rule(
        at=st.integers(0, 4),
        action=st.sampled_from(
            [NodeAction.DRAIN_NODE, NodeAction.DRAIN_TO_SCHEDULABLE, NodeAction.DECOMISSION]
        ),
    )
    def a_node_is_drained_or_goes(self, at, action):
        self.core.update(nodes=(NodeInfo(f"n{at}", action),))

    @rule(
        leaf=st.sampled_from("aab"),
        number=st.integers(1, 8),
        members=st.lists(st.integers(1, 3), min_size=1, max_size=2),
        size=st.sampled_from(SIZES),
        shape=st.sampled_from(SHAPES),
        priorities=st.lists(st.sampled_from([0, 0, 5]), min_size=1, max_size=3),
        user=st.sampled_from(OWNERS),
        late=st.booleans(),
    )
    def submit_like_gangs(self, leaf, number, members, size, shape, priorities, user, late):
        for at in range(number):
            name = self.name()
            asks = [
                placeholder(
                    f"{name}-{group}-{one}",
                    name,
                    f"tg{group}",
                    size,
                    constraints=shape if group else SHAPES[0],
                    priority=priorities[at % len(priorities)],
                )
                for group, amount in enumerate(members)
                for one in range(amount)
            ]
            whole = multiply(size, sum(members))
            request = AddApplicationRequest(name, f"root.p.{leaf}", placeholder_ask=whole, ugi=user)
            self.core.update(new_applications=(request,), asks=tuple(asks[:1] if late else asks))
            if late:
                self.core.update(asks=tuple(asks[1:]))

    @rule(
        leaf=st.sampled_from("aab"),
        number=st.integers(1, 6),
        sizes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=3),
        user=st.sampled_from(OWNERS),
    )
    def submit_like_plain(self, leaf, number, sizes, user):
        for _ in range(number):
            name = self.name()
            self.core.application(name, f"root.p.{leaf}", ugi=user)
            asks = [AllocationAsk(f"{name}-{at}", name, size) for at, size in enumerate(sizes)]
            self.core.update(asks=tuple(asks))

    @precondition(lambda self: self.apps)
    @rule(data=st.data(), size=st.sampled_from(SIZES), priority=st.sampled_from([0, 3, 7]))
    def ask_more(self, data, size, priority):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        group = data.draw(st.sampled_from(["", "tg0"]))
        self.core.asks(app, [self.name()], size, priority=priority, task_group_name=group)

    @precondition(lambda self: any(app.allocations for app in self.apps.values()))
    @rule(data=st.data(), number=st.integers(1, 4))
    def pods_end(self, data, number):
        held = [(key, name) for name, app in self.apps.items() for key in app.allocations]
        first = data.draw(st.integers(0, len(held) - 1))
        ended = sorted(held)[first : first + number]
        self.core.update(
            releases=tuple(AllocationRelease(name, key, STOPPED) for key, name in ended)
        )

    @rule(config=st.sampled_from(CONFIGS))
    def the_configuration_changes(self, config):
        self.core.send(UpdateConfiguration(config))

    @rule(data=st.data())
    def a_timer_fires(self, data):
        timers = [(name, key) for name, app in self.apps.items() for key in app.timers]
        if timers:
            name, timer_id = data.draw(st.sampled_from(sorted(timers)))
            self.core.fire(name, timer_id.split("/")[0])
        if "reservation" in self.core.partition.timers:
            self.core.fire_own("reservation")

    @invariant()
    def it_is_as_if_everybody_had_been_tried(self):
        if hasattr(self, "core"):
            assert violations(self.core.partition) == []
            ours, theirs = outcome(self.core), outcome(self.core.other)
            assert ours.keys() == theirs.keys()
            assert not [
                (name, ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]
            ]


TestWaiting = WaitingMachine.TestCase
