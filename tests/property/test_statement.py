"""Statements on a live partition: whatever is tried, taking it back leaves it as it was."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.core.scheduler.actions import victims
from services.core.scheduler.model.settings import RECLAIM
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.nodes.filters.pods import OtherPods
from services.core.scheduler.nodes.filters.room import free_of
from services.core.scheduler.nodes.pod_topology import PodIndex
from services.core.scheduler.statement.statement import Place, Statement
from shared.messages.conversions import ask_of
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UserGroupInformation,
)
from shared.model.resources import add_into, subtract_into, without_zeros
from tests.builders import Core, config_of, section
from tests.property.dump import dump
from tests.property.material import SELECTORS, TAGS

CONFIG = config_of(
    "{name: a, resources: {max: {vcore: 9}, guaranteed: {vcore: 2}}}",
    "{name: b, limits: [{users: [alice], maxresources: {vcore: 7}}]}",
)
NODES = 3
PODS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(1, 3), st.sampled_from(SELECTORS), st.sampled_from(TAGS)
    ),
    min_size=1,
    max_size=6,
)


def asks(pods, prefix: str) -> tuple[AllocationAsk, ...]:
    return tuple(
        AllocationAsk(
            f"{prefix}{at}",
            f"app{app}",
            {"vcore": 1000 * cores, "pods": 1},
            constraints=constraints,
            allocation_tags=tags,
        )
        for at, (app, cores, constraints, tags) in enumerate(pods)
    )


def one_of(data, found):
    """Draw one by its place: a failure that printed rows would print all of the model."""
    return found[data.draw(st.integers(0, len(found) - 1))]


class StatementMachine(RuleBasedStateMachine):
    @initialize(first=PODS, then=PODS, going=st.integers(0, 2), kept=st.booleans())
    def start(self, first, then, going, kept):
        self.core = Core(CONFIG, settings=(("policy", "kai"),) if kept else ())
        for at in range(NODES):
            labels = {"zone": "z" if at else "y", "kubernetes.io/hostname": f"n{at}"}
            capacity = {"vcore": 4000, "pods": 5}
            node = NodeInfo(f"n{at}", NodeAction.CREATE, capacity, labels=labels)
            self.core.update(nodes=(node,))
        for at in range(3):
            user = UserGroupInformation("alice" if at else "bob")
            queue = "root.a" if at < 2 else "root.b"
            app = AddApplicationRequest(f"app{at}", queue, ugi=user)
            self.core.update(new_applications=(app,))
        self.core.update(asks=asks(first, "f"))
        self.core.update(asks=asks(then, "t"))
        partition = self.core.partition
        for key, application in [
            (key, app)
            for app in partition.applications.values()
            for key in app.allocations
            if key not in app.released  # for a daemon, which nobody does twice
        ][:going]:
            partition.release(application, key, TerminationType.PREEMPTED_BY_SCHEDULER, "goes")
        self.core.update()
        self.count = 0
        self.begin()

    def begin(self):
        self.before = dump(self.core.partition)
        self.statement = Statement(self.core.partition)
        self.checkpoints = [(0, dump(self.core.partition))]

    def pods(self, kind, *places):
        return [
            (application, pod)
            for application in self.core.partition.applications.values()
            for pod in (application.asks() if kind is Ask else application.allocations.values())
            if (kind is Ask or pod.allocation_key not in application.released)
            and self.statement.at(pod).place in places
        ]

    def node(self, at):
        return self.core.partition.nodes.rows[at]

    @precondition(lambda self: self.pods(Ask, Place.WAITING))
    @rule(data=st.data(), at=st.integers(0, NODES - 1), now=st.booleans())
    def place(self, data, at, now):
        found = one_of(data, self.pods(Ask, Place.WAITING))
        (self.statement.allocate if now else self.statement.pipeline)(*found, self.node(at))

    @precondition(lambda self: self.pods(Ask, Place.NOMINATED, Place.PLACED))
    @rule(data=st.data())
    def withdraw(self, data):
        found = self.pods(Ask, Place.NOMINATED, Place.PLACED)
        self.statement.withdraw(*one_of(data, found))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def evict(self, data):
        found = self.running()
        self.statement.evict(*one_of(data, found), "why", "app0", RECLAIM)

    def running(self):
        """Return what may be evicted: what runs, and asks that were placed or nominated."""
        asks = self.pods(Ask, Place.PLACED, Place.NOMINATED)
        return [*self.pods(None, Place.PLACED, Place.MOVING), *asks]

    @precondition(lambda self: self.pods(None, Place.RELEASING))
    @rule(data=st.data(), at=st.integers(0, NODES))
    def keep_or_move(self, data, at):
        application, pod = one_of(data, self.pods(None, Place.RELEASING))
        if at == NODES:
            self.statement.spare(application, pod)
        else:
            self.statement.move(application, pod, self.node(at))

    @rule()
    def checkpoint(self):
        self.checkpoints.append((self.statement.checkpoint(), dump(self.core.partition)))

    @rule(data=st.data())
    def rollback(self, data):
        at = data.draw(st.integers(0, len(self.checkpoints) - 1))
        point, then = self.checkpoints[at]
        self.statement.rollback(point)
        assert dump(self.core.partition) == then
        del self.checkpoints[at + 1 :]

    @rule()
    def discard(self):
        self.statement.discard()
        assert dump(self.core.partition) == self.before
        self.core.check()
        self.begin()

    @rule()
    def commit(self):
        """What it comes to is as many pods as are not where they were, and happens at once."""
        moved = {
            (kind is Ask, application.id, getattr(pod, "key", None) or pod.allocation_key)
            for kind, places in (
                (Ask, (Place.NOMINATED, Place.PLACED, Place.RELEASING)),
                (None, (Place.RELEASING, Place.MOVING)),
            )
            for application, pod in self.pods(kind, *places)
        }
        decisions = self.statement.commit()
        assert dump(self.core.partition) == self.before
        asks = {ask.key for _, ask in self.pods(Ask, *Place)}
        found = [(item.key in asks, item.application, item.key) for item in decisions]
        assert sorted(found) == sorted(moved)
        victims.carry_out(self.core.partition, decisions)
        self.core.check()
        gone = section(self.core.update(), "released_allocations")
        assert [item.allocation_key for item in gone] == [
            item.key for item in decisions if item.evicts and item.key not in asks
        ]
        self.begin()

    @precondition(lambda self: self.pods(None, Place.PLACED))
    @rule(data=st.data(), at=st.integers(0, NODES - 1))
    def move_one_for_good(self, data, at):
        application, pod = one_of(data, self.pods(None, Place.PLACED))
        self.statement.evict(application, pod, "why", "app0", RECLAIM)
        self.statement.move(application, pod, self.node(at))
        self.commit()
        assert pod.allocation_key in self.core.partition.moved

    @rule(data=st.data())
    def a_victim_goes(self, data):
        self.statement.discard()
        found = list(self.core.partition.releasing.items())
        if found:
            key, application = one_of(data, found)
            why = TerminationType.PREEMPTED_BY_SCHEDULER
            self.core.update(releases=(AllocationRelease(application.id, key, why),))
        self.begin()

    @rule(data=st.data())
    def one_comes_in_the_stead_of_a_pod_that_moves(self, data):
        self.statement.discard()
        found = list(self.core.partition.moved.values())
        if found:
            old = one_of(data, found).pod
            self.count += 1
            ask = replace(ask_of(old), allocation_key=f"again{self.count}")
            self.core.update(asks=(ask,))
        self.core.check()
        self.begin()

    @precondition(lambda self: "preemption" in self.core.partition.timers)
    @rule()
    def time_passes(self):
        self.statement.discard()
        self.core.fire_own("preemption")
        self.core.check()
        self.begin()

    @rule(at=st.integers(0, NODES - 1))
    def a_node_goes(self, at):
        if len(self.core.partition.nodes.rows) == NODES:
            self.statement.discard()
            node = NodeInfo(f"n{at}", NodeAction.DECOMISSION)
            self.core.update(nodes=(node,))
            self.core.check()
            labels = {"zone": "z" if at else "y", "kubernetes.io/hostname": f"n{at}"}
            capacity = {"vcore": 4000, "pods": 5}
            self.core.update(
                nodes=(NodeInfo(f"n{at}", NodeAction.CREATE, capacity, labels=labels),)
            )
            self.core.check()
            self.begin()

    @invariant()
    def nodes_expect_what_is_to_come(self):
        if not hasattr(self, "statement"):
            return
        partition = self.core.partition
        want = {node.node_id: dict(node.available) for node in partition.nodes.rows}
        for key, application in partition.releasing.items():
            pod = application.allocations[key]
            add_into(want[pod.node_id], pod.resource_per_alloc)
        for application in partition.applications.values():
            for held in application.reservations.values():
                if not held.is_ordinary:
                    subtract_into(want[held.node.node_id], held.ask.shape.resource)
        self.expect_what_is_tried(want)
        for node in partition.nodes.rows:
            names = {**node.available, **node.expected, **want[node.node_id]}
            found = dict(zip(names, free_of(node, names), strict=True))
            assert without_zeros(found) == without_zeros(want[node.node_id])

    def expect_what_is_tried(self, want):
        for _, pod in self.pods(None, Place.RELEASING, Place.MOVING):
            add_into(want[pod.node_id], pod.resource_per_alloc)
            to = self.statement.at(pod).node
            if to is not None:
                subtract_into(want[to.node_id], pod.resource_per_alloc)
        for _, ask in self.pods(Ask, Place.RELEASING):
            add_into(want[self.statement.at(ask).node.node_id], ask.shape.resource)
        for _, ask in self.pods(Ask, Place.NOMINATED):
            to = self.statement.at(ask).node
            subtract_into(want[to.node_id], ask.shape.resource)

    @invariant()
    def pods_are_counted_as_they_will_be(self):
        if not hasattr(self, "statement"):
            return
        nodes = self.core.partition.nodes
        anew = PodIndex()
        anew.label_tags = nodes.pods.label_tags
        anew.watch(nodes.rows)
        anew._supposed, anew._places = nodes.pods._supposed, nodes.pods._places
        for _, ask in self.pods(Ask, *Place):
            found = []
            for pods in (anew, nodes.pods):
                ask.shape.plan = None  # each index has its own
                rows = OtherPods(nodes.columns, nodes.views, pods, nodes.nodes).rows
                mask = rows(ask.shape, When.NOW, nodes.columns.all)
                found.append([True] * NODES if mask is None else mask.tolist())
            assert found[0] == found[1]


TestStatement = StatementMachine.TestCase
