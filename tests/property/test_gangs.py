"""Gangs and others in two leaves of one parent, while time passes: what admission promises.

The state machine of ``test_scheduler_machine`` has everything in it and so meets a gang that has
waited too long but seldom; this one has little else.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.core.scheduler.actions import gang_places
from services.core.scheduler.statement.tentative import Tentative
from shared.messages.constraints import Constraints, SpreadConstraint
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.model.resources import add, multiply
from tests.builders import Core, config_of
from tests.property import leaves, material
from tests.property.gangs import GangWatch, WholeWatch, everything
from tests.property.leaves import OF_THE_JOB, SIZES, STOPPED, TwoLeaves, placeholder
from tests.property.timers import FiresTimers
from tools.invariants import violations

CONFIGS = [
    *leaves.CONFIGS,
    config_of(
        "{name: p, resources: {max: {vcore: 8m}}, queues: [{name: a, "
        "properties: {application.sort.policy: stateaware, application.unschedasks.backoff: '2'}}, "
        "{name: b, maxapplications: 1}]}"
    ),
    config_of(
        "{name: p, maxapplications: 3, resources: {max: {memory: 6}}, queues: ["
        "{name: a, maxapplications: 3, "
        "limits: [{users: [alice], maxresources: {vcore: 3m}, maxapplications: 2}, "
        "{groups: [dev], maxresources: {vcore: 4m}}]}, "
        "{name: b, maxapplications: 3, resources: {max: {vcore: 5m}}, limits: [{users: ['*'], maxapplications: 1}]}]}"
    ),
    config_of(
        "{name: p, resources: {max: {vcore: 8m}}, queues: ["
        "{name: a, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 4m}}}, "
        "{name: b, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 3m}}}]}"
    ),
]
WAYS = {
    "starvationGuard": ["0", "60s"],
    "stateAware": ["fifo", "filtered"],
    "backfill": ["enabled", "disabled"],
}


def settings_with(data, **fixed):
    """Draw the scheduler's settings but for those that are fixed."""
    drawn = {name: data.draw(st.sampled_from(values), name) for name, values in WAYS.items()}
    return tuple((drawn | fixed).items())


USERS = [UserGroupInformation(), *(UserGroupInformation(*user) for user in material.USERS)]
REQUESTS = st.fixed_dictionaries(
    {
        "ugi": st.sampled_from(USERS),
        "gang_scheduling_style": st.sampled_from(["Soft", "Hard"]),
        "placeholder_timeout_milli_seconds": st.sampled_from([0, 30_000]),
        "execution_timeout_milli_seconds": st.sampled_from([0, 0, 100_000]),
    }
)


class GangMachine(FiresTimers, TwoLeaves, RuleBasedStateMachine):
    admissions = ("queue", "partial")
    make_core = Core

    @initialize(data=st.data(), config=st.sampled_from(CONFIGS), vcore=st.sampled_from([4, 50]))
    def start(self, data, config, vcore):
        admission = data.draw(st.sampled_from(self.admissions), "gangAdmission")
        self.core = self.make_core(config, settings=settings_with(data, gangAdmission=admission))
        self.core.node("n", vcore=vcore, memory=9)
        self.count = 0
        self.watch = GangWatch(self.core)

    @rule(
        leaf=st.sampled_from("aab"),
        members=st.integers(1, 5),
        size=st.sampled_from(SIZES),
        priority=st.sampled_from([0, 0, 5]),
        late=st.booleans(),
        more=REQUESTS,
    )
    def submit_gang(self, leaf, members, size, priority, late, more):
        name = self.name()
        wanted = {kind: amount * members for kind, amount in size.items()}
        self.core.application(name, f"root.p.{leaf}", placeholder_ask=wanted, **more)
        keys = [f"{name}-{at}" for at in range(members)]
        for part in ([keys[:1], keys[1:]]) if late else [keys]:
            self.core.asks(
                name, part, size, placeholder=True, task_group_name="tg", priority=priority
            )

    @rule(
        leaf=st.sampled_from("aab"),
        size=st.sampled_from(SIZES),
        number=st.integers(1, 3),
        more=REQUESTS,
    )
    def submit_plain(self, leaf, size, number, more):
        name = self.name()
        self.core.application(name, f"root.p.{leaf}", **more)
        self.core.asks(name, [f"{name}-{at}" for at in range(number)], size)

    @precondition(lambda self: self.apps)
    @rule(
        data=st.data(),
        size=st.sampled_from(SIZES),
        priority=st.sampled_from([0, 3, 7]),
        group=st.sampled_from(["", "tg"]),
        number=st.integers(1, 3),
        timeout=st.sampled_from([0, 20_000]),
    )
    def ask_more(self, data, size, priority, group, number, timeout):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        self.core.asks(
            app, [self.name() for _ in range(number)], size, priority=priority,
            task_group_name=group, exec_timeout_milli_seconds=timeout,
        )  # fmt: skip

    @precondition(lambda self: any(app.released for app in self.apps.values()))
    @rule(data=st.data(), everything_of_it=st.booleans())
    def releases_are_confirmed(self, data, everything_of_it):
        name = data.draw(st.sampled_from(sorted(n for n, a in self.apps.items() if a.released)))
        released = sorted(self.apps[name].released.items())
        if not everything_of_it:
            released = [data.draw(st.sampled_from(released))]
        gone = [AllocationRelease(name, key, TerminationType(why)) for key, why in released]
        self.core.update(releases=tuple(gone))

    @rule(config=st.sampled_from(CONFIGS))
    def reload(self, config):
        self.core.send(UpdateConfiguration(config))

    @precondition(lambda self: any(app.allocations for app in self.apps.values()))
    @rule(data=st.data())
    def a_pod_ends(self, data):
        held = [(key, name) for name, app in self.apps.items() for key in app.allocations]
        key, name = data.draw(st.sampled_from(sorted(held)))
        self.core.update(releases=(AllocationRelease(name, key, STOPPED),))

    def forget_last_step(self):
        self.watch.remember(self.core)
        if hasattr(self, "whole"):
            self.whole.waited = {}

    @invariant()
    def nobody_is_forgotten_or_passed(self):
        if hasattr(self, "core"):
            assert violations(self.core.partition) == []
            self.watch.check(self.core)


TestGangs = GangMachine.TestCase


class Drawn:
    """What a rule draws, in its order: a found example's."""

    def __init__(self, *values):
        self.values = list(values)

    def draw(self, _strategy, _name=None):
        return self.values.pop(0)


def test_found_two_gangs_hold_parts_of_a_max_that_a_reload_set():
    """Limits of users let two gangs start beside a third pod; then a max is too small for both."""
    state = GangMachine()
    patience = ("partial", "0", "fifo", "enabled")
    state.start(data=Drawn(*patience), config=CONFIGS[0], vcore=50)
    state.reload(config=CONFIGS[3])
    state.time_passes(for_seconds=5)
    for leaf, members, cores, user in (
        ("b", 3, 2, ("nobody", ())),
        ("a", 3, 2, ("bob", ("dev",))),
        ("a", 1, 1, ("nobody", ())),
    ):
        state.submit_gang(leaf, members, {"vcore": cores}, 0, False, request_of(*user))
        state.nobody_is_forgotten_or_passed()
    state.a_pod_ends(data=Drawn(("app2-0", "app2")))
    state.nobody_is_forgotten_or_passed()
    state.submit_gang("a", 4, {"vcore": 2}, 0, False, request_of("alice"))
    state.nobody_is_forgotten_or_passed()
    state.reload(config=CONFIGS[0])
    state.nobody_is_forgotten_or_passed()
    state.a_pod_ends(data=Drawn(("app2-1", "app2")))
    state.nobody_is_forgotten_or_passed()
    assert list(state.apps["app4"].allocations) == ["app4-0"]  # what is free is promised to app2


def request_of(user, groups=()):
    """Return what is more to a Soft gang of a user, without timeouts."""
    return {
        "ugi": UserGroupInformation(user, groups),
        "gang_scheduling_style": "Soft",
        "placeholder_timeout_milli_seconds": 0,
        "execution_timeout_milli_seconds": 0,
    }


SHAPES = [
    *leaves.SHAPES,
    Constraints(spread=(SpreadConstraint("disk", selector=OF_THE_JOB),), namespace="ns"),
    Constraints(required_node="n1"),
]


class ClusterGangMachine(GangMachine):
    """Gangs of several task groups that start when all of them have a place on the nodes."""

    @initialize(data=st.data(), config=st.sampled_from(CONFIGS))
    def start(self, data, config):
        self.core = self.make_core(config, settings=settings_with(data, gangAdmission="cluster"))
        self.count = 0
        self.watch = GangWatch(self.core)
        self.whole = WholeWatch()
        for at in range(2):
            self.node_is(at, "ssd" if at else "hdd", 3)

    @rule(at=st.integers(0, 4), disk=st.sampled_from(["ssd", "hdd"]), vcore=st.integers(1, 5))
    def a_node_comes(self, at, disk, vcore):
        self.node_is(at, disk, vcore)

    @rule(at=st.integers(0, 4), drain=st.booleans())
    def a_node_is_drained_or_taken_back(self, at, drain):
        action = NodeAction.DRAIN_NODE if drain else NodeAction.DRAIN_TO_SCHEDULABLE
        self.core.update(nodes=(NodeInfo(f"n{at}", action),))

    @rule(at=st.integers(2, 4))
    def a_node_is_lost(self, at):
        self.core.update(nodes=(NodeInfo(f"n{at}", NodeAction.DECOMISSION),))

    @rule(
        leaf=st.sampled_from("aab"),
        groups=st.lists(
            st.tuples(st.integers(1, 3), st.sampled_from(SIZES), st.sampled_from(SHAPES)),
            min_size=1,
            max_size=3,
        ),
    )
    def submit_gang_of_groups(self, leaf, groups):
        name = self.name()
        wanted = {}
        asks = []
        for number, (members, size, constraints) in enumerate(groups):
            wanted = add(wanted, multiply(size, members))
            asks += [
                placeholder(
                    f"{name}-{number}-{at}", name, f"tg{number}", size, constraints=constraints
                )
                for at in range(members)
            ]
        request = AddApplicationRequest(name, f"root.p.{leaf}", placeholder_ask=wanted)
        self.core.update(new_applications=(request,), asks=tuple(asks))

    @invariant()
    def a_trial_leaves_no_trace(self):
        if not hasattr(self, "whole"):
            return
        for gang in [app for app in self.apps.values() if app.needs_places][:2]:
            self.try_and_take_back(gang)  # what the pod index remembers of terms is a cache
            before = everything(self.core)
            self.try_and_take_back(gang)
            assert everything(self.core) == before

    def try_and_take_back(self, gang):
        with Tentative(self.core.partition.nodes) as trial:
            gang_places.find(trial, gang)

    @invariant()
    def no_gang_holds_a_part(self):
        if hasattr(self, "whole"):
            self.whole.check(self.core)


TestClusterGangs = ClusterGangMachine.TestCase


class ShortNodesMachine(ClusterGangMachine):
    """The same gangs where they start as the nodes allow, of which there are few."""

    @initialize(data=st.data(), config=st.sampled_from(CONFIGS))
    def start(self, data, config):
        admission = data.draw(st.sampled_from(self.admissions), "gangAdmission")
        self.core = self.make_core(config, settings=settings_with(data, gangAdmission=admission))
        self.count = 0
        self.watch = GangWatch(self.core)
        for at in range(2):
            self.a_node_comes(at, "ssd" if at else "hdd", 3)


TestShortNodes = ShortNodesMachine.TestCase
