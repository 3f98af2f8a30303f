"""A state machine drives the Scheduler with arbitrary interleavings and checks what must hold.

The test plays the resource manager: it confirms releases late, early, twice or not at all, stops
pods, takes nodes away, reloads the configuration, lets timers fire late and repeats messages.
"""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.core.scheduler.report.views import partition_state, queue_state
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    GangGivenUp,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from shared.messages.state import StateDelta
from shared.model.resources import add, multiply
from shared.model.states import TRANSITIONS
from tests.builders import Core, section
from tests.property.gangs import GangWatch
from tests.property.material import (
    CONFIGS,
    PREEMPTION_CONFIGS,
    REAL_RESOURCES,
    RESOURCES,
    SELECTORS,
    TAGS,
    USERS,
)
from tests.property.others import Others
from tests.property.test_victims import check_choices
from tests.property.timers import FiresTimers
from tools.invariants import over_capacity, violations

MOVES = {(before.value, after.value) for (before, _), after in TRANSITIONS.items()}


class SchedulerMachine(FiresTimers, Others, RuleBasedStateMachine):
    configs = CONFIGS
    make_core = Core

    @initialize(
        data=st.data(),
        admission=st.sampled_from(["queue", "cluster", "partial"]),
        backfill=st.booleans(),
        filtered=st.booleans(),
        kai=st.booleans(),
        patience=st.sampled_from(["5m", "30s", "0"]),
    )
    def start(self, data, admission, backfill, filtered, kai, patience):
        config = data.draw(st.sampled_from([c for c in self.configs if "queues: 5" not in c]))
        self.settings = (("gangAdmission", admission),)
        self.settings += (("backfill", "enabled"),) if backfill else ()
        self.settings += (("stateAware", "filtered"),) if filtered else ()
        self.settings += (("policy", "kai"),) if kai else ()
        self.settings += (("starvationGuard", patience),)
        self.config = config
        self.core = self.make_core(config, settings=self.settings)
        self.nodes: dict[str, dict] = {}
        self.asked: dict[str, AllocationAsk] = {}
        self.bound: dict[str, Allocation] = {}
        self.to_confirm: dict[str, AllocationRelease] = {}
        self.released: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.apps: dict[str, AddApplicationRequest] = {}
        self.foreign: dict[str, Allocation] = {}
        self.count = 0
        self.shrunk = False
        self.last: dict = {}
        self.gangs = GangWatch(self.core)

    # --- the resource manager's side ---------------------------------------------------------------

    def tell(self, **sections):
        self.last = sections
        self.heard(self.core.update(**sections))

    def heard(self, responses):
        for response in responses:
            for allocation in response.new_allocations:
                key = allocation.allocation_key
                assert key not in self.bound, f"{key} is allocated twice"
                self.bound[key] = allocation
                self.asked.pop(key, None)
            for ask in (*response.released_asks, *response.rejected_allocations):
                self.asked.pop(ask.allocation_key, None)
            for release in response.released_allocations:
                key = release.allocation_key
                if release.termination_type is TerminationType.STOPPED_BY_RM:
                    self.bound.pop(key, None)
                    self.to_confirm.pop(key, None)
                    continue
                assert key in self.bound, f"{key} is released but not allocated"
                assert key not in self.released, f"{key} is released twice"
                self.released[key] = release.termination_type
                self.to_confirm[key] = release
            for updated in response.updated_applications:
                before = self.states.get(updated.application_id, "New")
                assert (before, updated.state) in MOVES, f"{before} to {updated.state}"
                self.states[updated.application_id] = updated.state

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    # --- rules ---------------------------------------------------------------------------------------

    @rule(
        capacity=st.sampled_from(
            [{"vcore": 4000, "memory": 1000, "pods": 4}, {"vcore": 2000, "memory": 200, "pods": 2}]
        ),
        zone=st.booleans(),
        drained=st.booleans(),
    )
    def add_node(self, capacity, zone, drained):
        name = self.name("n")
        self.nodes[name] = capacity
        action = NodeAction.CREATE_DRAIN if drained else NodeAction.CREATE
        labels = {"kubernetes.io/hostname": name, "zone": "z" if zone else "y"}
        self.tell(nodes=(NodeInfo(name, action, capacity, labels=labels),))

    @precondition(lambda self: self.nodes)
    @rule(
        data=st.data(),
        action=st.sampled_from(
            [
                NodeAction.DRAIN_NODE,
                NodeAction.DRAIN_TO_SCHEDULABLE,
                NodeAction.UPDATE,
                NodeAction.DECOMISSION,
            ]
        ),
    )
    def change_node(self, data, action):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        capacity = {}
        if action is NodeAction.UPDATE:
            capacity = {"vcore": data.draw(st.integers(1, 6)) * 1000, "memory": 500, "pods": 5}
            self.shrunk = True
        if action is NodeAction.DECOMISSION:
            del self.nodes[name]
        self.tell(nodes=(NodeInfo(name, action, capacity),))

    @rule(
        queue=st.sampled_from(["root.a", "root.b", "root.c", "root.p.b", "root.p.c.d"]),
        user=st.sampled_from(USERS),
        tags=st.sampled_from(TAGS),
        members=st.integers(1, 4),
        resource=st.sampled_from(RESOURCES),
        style=st.sampled_from(["Soft", "Hard"]),
        selected=st.sampled_from(SELECTORS),
        late=st.booleans(),
    )
    def submit_gang(self, queue, user, tags, members, resource, style, selected, late):
        name = self.name("gang")
        second = RESOURCES[0]
        total = add(multiply(resource, members), second)
        request = AddApplicationRequest(
            name,
            queue,
            ugi=UserGroupInformation(*user),
            placeholder_ask=total,
            gang_scheduling_style=style,
        )
        self.apps[name] = request
        asks = [
            AllocationAsk(
                f"{name}-ph{at}",
                name,
                resource,
                placeholder=True,
                task_group_name="tg",
                constraints=selected,
                allocation_tags=tags,
            )
            for at in range(members)
        ]
        asks.append(
            AllocationAsk(f"{name}-one", name, second, placeholder=True, task_group_name="one")
        )
        self.asked.update({ask.allocation_key: ask for ask in asks})
        if late:
            self.tell(new_applications=(request,))
            for ask in asks:
                self.tell(asks=(ask,))
        else:
            self.tell(new_applications=(request,), asks=tuple(asks))

    @rule(queue=st.sampled_from(["root.a", "root.b", "root.p.b"]), user=st.sampled_from(USERS))
    def submit_plain(self, queue, user):
        name = self.name("app")
        self.apps[name] = AddApplicationRequest(name, queue, ugi=UserGroupInformation(*user))
        self.tell(new_applications=(self.apps[name],))

    @rule(
        queue=st.sampled_from(["root.a", "root.b", "root.p.b"]),
        user=st.sampled_from(USERS),
        members=st.integers(1, 4),
        resource=st.sampled_from(RESOURCES[:2]),
        spare=st.sampled_from([{}, {"vcore": 1000, "memory": 300, "pods": 2}]),
        data=st.data(),
    )
    def a_gang_on_a_node_of_its_size_gets_its_pods(
        self, queue, user, members, resource, spare, data
    ):
        """They may be larger than the placeholders, and what then goes may go in any order."""
        node, name = self.name("n"), self.name("gang")
        self.nodes[node] = capacity = add(multiply(resource, members), spare)
        labels = {"kubernetes.io/hostname": node, "zone": "z"}
        self.tell(nodes=(NodeInfo(node, NodeAction.CREATE, capacity, labels=labels),))
        request = AddApplicationRequest(
            name,
            queue,
            ugi=UserGroupInformation(*user),
            placeholder_ask=multiply(resource, members),
        )
        self.apps[name] = request
        group = {"task_group_name": "tg"}
        asks = [
            AllocationAsk(f"{name}-ph{at}", name, resource, placeholder=True, **group)
            for at in range(members)
        ]
        self.asked.update({ask.allocation_key: ask for ask in asks})
        self.tell(new_applications=(request,), asks=tuple(asks))
        sizes = data.draw(st.lists(st.sampled_from(REAL_RESOURCES), min_size=1, max_size=3))
        reals = [AllocationAsk(self.name("real"), name, size, **group) for size in sizes]
        self.asked.update({ask.allocation_key: ask for ask in reals})
        self.tell(asks=tuple(reals))

    @precondition(lambda self: self.apps)
    @rule(
        data=st.data(),
        number=st.integers(1, 3),
        resource=st.sampled_from(REAL_RESOURCES),
        group=st.sampled_from(["tg", "tg", "one", "other", ""]),
        priority=st.sampled_from([0, 5]),
        selected=st.sampled_from(SELECTORS),
        tags=st.sampled_from(TAGS),
    )
    def ask_real(self, data, number, resource, group, priority, selected, tags):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        asks = [
            AllocationAsk(
                self.name("real"),
                app,
                resource,
                task_group_name=group,
                priority=priority,
                constraints=selected,
                allocation_tags=tags,
                create_time_ns=self.core.now_ns,
            )
            for _ in range(number)
        ]
        self.asked.update({ask.allocation_key: ask for ask in asks})
        self.tell(asks=tuple(asks))

    @precondition(lambda self: self.to_confirm)
    @rule(data=st.data())
    def confirm(self, data):
        key = data.draw(st.sampled_from(sorted(self.to_confirm)))
        release = self.to_confirm.pop(key)
        self.bound.pop(key, None)
        self.tell(releases=(release,))

    @precondition(lambda self: self.to_confirm)
    @rule(data=st.data(), action=st.sampled_from([NodeAction.DRAIN_NODE, NodeAction.DECOMISSION]))
    def confirm_when_its_node_is_taken_away(self, data, action):
        """What was to start there starts elsewhere, or waits again."""
        key = data.draw(st.sampled_from(sorted(self.to_confirm)))
        name = self.bound[key].node_id if key in self.bound else ""
        if name in self.nodes:
            if action is NodeAction.DECOMISSION:
                del self.nodes[name]
            self.tell(nodes=(NodeInfo(name, action),))
        release = self.to_confirm.pop(key, None)
        if release is not None:
            self.bound.pop(key, None)
            self.tell(releases=(release,))

    @precondition(lambda self: self.to_confirm)
    @rule()
    def confirm_all(self):
        releases = tuple(self.to_confirm.values())
        for release in releases:
            self.bound.pop(release.allocation_key, None)
        self.to_confirm.clear()
        self.tell(releases=releases)

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def stop_pod(self, data):
        key = data.draw(st.sampled_from(sorted(self.bound)))
        allocation = self.bound[key]
        self.to_confirm.pop(key, None)
        self.tell(
            releases=(
                AllocationRelease(allocation.application_id, key, TerminationType.STOPPED_BY_RM),
            )
        )

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def take_ask_back(self, data):
        key = data.draw(st.sampled_from(sorted(self.asked)))
        ask = self.asked.pop(key)
        self.tell(
            ask_releases=(
                AllocationAskRelease(ask.application_id, key, TerminationType.STOPPED_BY_RM),
            )
        )

    @precondition(lambda self: self.apps)
    @rule(data=st.data())
    def a_gang_is_given_up(self, data):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        if not self.apps[app].placeholder_ask:
            return
        self.apps[app] = replace(self.apps[app], placeholder_ask={})
        for ask in [ask for ask in self.asked.values() if ask.application_id == app]:
            if ask.placeholder:
                del self.asked[ask.allocation_key]
        self.tell(gangs_given_up=(GangGivenUp(app),))

    @precondition(lambda self: self.apps)
    @rule(data=st.data())
    def remove_application(self, data):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        del self.apps[app]
        self.tell(remove_applications=(RemoveApplicationRequest(app),))

    @rule(data=st.data())
    def reload(self, data):
        config = data.draw(st.sampled_from(self.configs))
        self.heard(self.core.send(UpdateConfiguration(config)))
        if not self.core.partition.config_error:
            self.config = config

    @rule()
    def the_last_message_comes_again(self):
        """Not through the host's window this time: the machine itself must not mind."""
        sections = ("releases", "ask_releases", "asks", "new_applications")
        repeatable = {key: value for key, value in self.last.items() if key in sections}
        known = set(self.asked) | set(self.bound)
        if "asks" in repeatable:
            repeatable["asks"] = tuple(a for a in repeatable["asks"] if a.allocation_key in known)
        if repeatable and "new_applications" not in repeatable:
            self.heard(self.core.update(**repeatable))

    @rule()
    def the_core_recovers(self):
        """A new core learns everything again, and decides nothing twice."""
        epoch = self.core.epoch + 1
        now_ns = self.core.now_ns
        live = {
            name: a for name, a in self.core.partition.applications.items() if name in self.apps
        }
        requests = []
        for name, app in live.items():
            fields = {f: getattr(app.request, f) for f in app.request.__dataclass_fields__}
            gang_over = app.state == "Resuming" or "Resuming" in [s for _, s in app.state_log]
            fields |= {"state": app.state.value, "reservation_start_ns": app.reservation_start_ns}
            if gang_over or not self.apps[name].placeholder_ask:
                fields["placeholder_ask"] = {}
            requests.append(AddApplicationRequest(**fields))
        nodes = tuple(
            NodeInfo(
                n.node_id,
                NodeAction.CREATE if n.schedulable else NodeAction.CREATE_DRAIN,
                dict(n.capacity),
                labels=dict(n.labels),
            )
            for n in self.core.partition.nodes.nodes.values()
        )
        existing = []
        for key, allocation in self.bound.items():
            if (
                allocation.application_id not in live
                or allocation.node_id not in self.core.partition.nodes.nodes
            ):
                continue
            fields = {f: getattr(allocation, f) for f in allocation.__dataclass_fields__}
            why = self.released.get(key)
            fields["released"] = why not in (None, TerminationType.PLACEHOLDER_REPLACED)
            if why == TerminationType.PLACEHOLDER_REPLACED:
                self.released.pop(key)
                self.to_confirm.pop(key, None)
            existing.append(Allocation(**fields))
        bound_keys = {a.allocation_key for a in existing}
        self.bound = {k: v for k, v in self.bound.items() if k in bound_keys}
        self.to_confirm = {k: v for k, v in self.to_confirm.items() if k in bound_keys}
        asks = tuple(a for a in self.asked.values() if a.application_id in live)
        self.asked = {a.allocation_key: a for a in asks}
        self.core = self.make_core(self.config, epoch=epoch, settings=self.settings)
        self.core.now_ns = now_ns
        self.core.send(SyncBegin(self.config, self.settings))
        self.core.update(nodes=nodes, new_applications=tuple(requests))
        self.core.update(allocations=(*existing, *self.foreign_now()))
        self.core.update(asks=asks)
        self.states = dict.fromkeys(live, "New")
        responses = self.core.send(SyncEnd(0, 0, 0))
        self.heard(responses)
        rejected = {r.application_id for r in section(responses, "rejected_applications")}
        for name in rejected:
            self.apps.pop(name, None)
        gone = {k for k, v in self.bound.items() if v.application_id in rejected}
        for key in gone:
            self.bound.pop(key)
            self.to_confirm.pop(key, None)

    # --- what must hold ------------------------------------------------------------------------------

    @invariant()
    def ledgers_are_right(self):
        if hasattr(self, "core"):
            assert violations(self.core.partition) == []

    @invariant()
    def no_node_is_over_capacity(self):
        if hasattr(self, "core") and not self.shrunk:
            assert over_capacity(self.core.partition) == []

    @invariant()
    def no_ask_is_lost(self):
        """Every ask of a live application waits, or is on its way to a placeholder's place."""
        if not hasattr(self, "core"):
            return
        for key, ask in self.asked.items():
            app = self.core.partition.applications.get(ask.application_id)
            if app is not None and ask.application_id in self.apps:
                assert key in app.group_of or key in app.replacing_ask, f"{key} is lost"

    @invariant()
    def gangs_keep_to_their_queues_and_are_not_passed(self):
        if hasattr(self, "core"):
            self.gangs.check(self.core)

    @invariant()
    def who_heard_all_news_knows_the_partition_and_its_queues(self):
        if not hasattr(self, "core"):
            return
        known = {}
        for item in self.core.answers:
            if isinstance(item.message, StateDelta):
                known = {} if item.message.reset else known
                for state in item.message.partitions:
                    known[""] = state
                for queue in item.message.queues:
                    known[queue.path] = queue
                    if queue.removed:
                        del known[queue.path]
        partition = self.core.partition
        assert known == {
            "": partition_state(partition),
            **{path: queue_state(queue) for path, queue in partition.queues.items()},
        }

    @invariant()
    def what_is_allocated_is_what_was_told(self):
        if hasattr(self, "core"):
            held = {k for app in self.core.partition.applications.values() for k in app.allocations}
            assert held <= set(self.bound), held - set(self.bound)


class PreemptionMachine(SchedulerMachine):
    """The same with queues that are owed room, or get less than they use."""

    configs = PREEMPTION_CONFIGS

    @rule()
    def the_owed_look_for_room(self):
        """Time passes until whoever may preempt does, where somebody waits for it."""
        if "preemption" in self.core.partition.timers:
            self.core.now_ns += 31_000_000_000
            self.heard(self.core.fire_own("preemption"))

    @invariant()
    def victims_are_those_of_the_laws(self):
        if hasattr(self, "core"):
            check_choices(self.core.partition)


TestScheduler = SchedulerMachine.TestCase
TestPreemption = PreemptionMachine.TestCase
