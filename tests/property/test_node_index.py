"""The first node in order: whatever has happened, the index's answer is that of a look at all."""

from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from services.core.scheduler.model.node_fit import matches
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes import node_index, node_view
from services.core.scheduler.nodes.filters.claims import leaves_enough
from services.core.scheduler.nodes.node_index import Ranks
from services.core.scheduler.nodes.node_table import NodeTable
from shared.messages.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    HostPort,
    NodeTerm,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from shared.messages.interface import Allocation
from shared.messages.selectors import term_matches, tolerates
from shared.model.names import AS_KAI, BINPACKING, FAIR
from shared.model.numbers import INT64_MAX
from shared.model.resources import fits_room

ZONE = (Requirement("zone", "In", ("a",)),)
APP = (Requirement("app", "In", ("x",)),)
LABEL = {"kubernetes.io/label/app": "x", "kubernetes.io/meta/namespace": "ns"}
IS_X = (("", "ns"), ("app", "x"))
HARD, SOFT = Taint("t", "v", "NoSchedule"), Taint("t", "v", "PreferNoSchedule")
SHAPES = [
    ({"vcore": 1}, NO_CONSTRAINTS, ()),
    ({"vcore": 3}, NO_CONSTRAINTS, ()),
    ({"vcore": 2, "memory": 3}, NO_CONSTRAINTS, ()),
    ({"vcore": 2, "memory": 1}, NO_CONSTRAINTS, ()),
    ({"vcore": 1, "gpu": 1}, NO_CONSTRAINTS, ()),
    ({"memory": 3}, Constraints(node_terms=(NodeTerm(ZONE),)), ()),
    ({"vcore": 1, "memory": 0}, Constraints(tolerations=(Toleration("t", "Exists"),)), ()),
    ({"vcore": 1}, Constraints(preferred_nodes=(NodeTerm(ZONE, weight=5),)), ()),
    ({"vcore": 1}, Constraints(pod_anti_affinity=(PodTerm("zone", APP),), namespace="ns"), ()),
    (
        {"vcore": 1},
        Constraints(
            spread=(SpreadConstraint("zone", 1, hard=False, selector=APP),), namespace="ns"
        ),
        (),
    ),
    ({"vcore": 1}, NO_CONSTRAINTS, IS_X),
    ({"vcore": 3, "gpu": 1}, NO_CONSTRAINTS, IS_X),
    ({"memory": 2}, Constraints(pod_anti_affinity=(PodTerm("zone", APP),), namespace="ns"), IS_X),
    ({"vcore": 1}, Constraints(pod_affinity=(PodTerm("zone", APP),), namespace="ns"), IS_X),
    ({"vcore": 2}, Constraints(pod_affinity=(PodTerm("zone", APP),), namespace="ns"), ()),
    ({"vcore": 1}, Constraints(host_ports=(HostPort(80),), namespace="ns"), ()),
    (
        {"vcore": 1},
        Constraints(spread=(SpreadConstraint("zone", 1, selector=APP),), namespace="ns"),
        IS_X,
    ),
]
PLAIN = 8  # shapes before this one do not look at pods
CAPACITIES = st.fixed_dictionaries(
    {"vcore": st.sampled_from([2, 4, 8]), "memory": st.sampled_from([4, 8])},
    optional={"gpu": st.just(1)},
)
LABELS = st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])
TAINTS = st.sampled_from([(), (), (), (HARD,), (SOFT,)])
FEW = {
    "STEP": 2,
    "MOST": 4,
    "LOG": 6,
    "ONE_BY_ONE": 2,
    "MOST_PUSHED": 3,
    "MAX_INDEXES": 3,
    "FAR": 1,
    "SHARE": 4,
}
MANY = {"MANY_NEW": 1, "ONE_BY_ONE": 0, "WASTED": 0, "TRY_AGAIN": 2}


def preferred(candidates: list[Node], constraints: Constraints) -> list[Node]:
    """Return the most preferred of some nodes, by what is said of preferences in ADR and docs."""
    scores = []
    for node in candidates:
        liked = sum(
            t.weight
            for t in constraints.preferred_nodes
            if term_matches(t, node.node_id, node.labels)
        )
        soft = sum(
            t.effect == SOFT.effect and not tolerates(constraints.tolerations, t)
            for t in node.taints
        )
        scores.append((liked, -soft))
    totals = [0] * len(candidates)
    for at, weight in ((0, 2), (1, 3)):
        values = [score[at] for score in scores]
        span = max(values) - min(values)
        for number, value in enumerate(values):
            totals[number] += weight * ((value - min(values)) * 100 // span) if span else 0
    return [n for n, total in zip(candidates, totals, strict=True) if total == max(totals)]


def brute_force(table: NodeTable, shape: Shape, *, backfill: bool) -> str | None:
    """Return the first node's id, for a shape that does not look at pods."""
    fitting = [
        node
        for node in table.nodes.values()
        if node.schedulable
        and matches(shape.constraints, node)
        and fits_room(node.available, shape.resource)
    ]
    free = [node for node in fitting if not node.reservations]
    if not free and backfill:
        free = [node for node in fitting if leaves_enough(node, shape)]
    if not free:
        return None
    order = preferred(free, shape.constraints)
    return min(
        order, key=lambda node: (table.order.score.of_node(node, shape), node.node_id)
    ).node_id


def made_anew(table: NodeTable) -> NodeTable:
    """Return a table with the same nodes, which has never answered anything."""
    fresh = NodeTable()
    fresh.set_policy(table.order.policy, table.order.weights)
    fresh.pods.label_tags.update(table.pods.label_tags)
    for old in sorted(table.nodes.values(), key=lambda node: node.node_id, reverse=True):
        node = Node(old.node_id, 0, old.capacity, {}, old.labels, old.taints, old.schedulable)
        node.reserved, node.reservations = old.reserved, old.reservations
        fresh.add(node)
        for allocation in old.allocations.values():
            fresh.place(node, allocation)
        for allocation in old.foreign.values():
            fresh.occupy(node, allocation)
    return fresh


def found_by_a_look_at_all(table: NodeTable, shape: Shape, *, backfill: bool) -> Node | None:
    """Return the first node without any index."""
    found = table.order.first(np.flatnonzero(table.filters.open.mask(shape)), shape)
    if found is None and backfill:
        found = table.order.first(np.flatnonzero(table.filters.backfill.mask(shape)), shape)
    return found


class NodeIndexMachine(RuleBasedStateMachine):
    @initialize(limits=st.sampled_from([{}, FEW, MANY, FEW | MANY]), policy=st.booleans())
    def start(self, limits, policy):
        self.patches = ExitStack()
        for name, value in limits.items():
            self.patches.enter_context(patch.object(node_index, name, value))
        self.patches.enter_context(patch.object(node_view, "MAX_CONSTRAINTS", 3))
        self.table = NodeTable()
        self.table.set_policy(FAIR if policy else BINPACKING, {})
        self.shapes = [
            Shape(f"s{at}", dict(resource), constraints, labels)
            for at, (resource, constraints, labels) in enumerate(SHAPES)
        ]
        for shape in self.shapes:
            self.table.pods.learn(shape.constraints)
        self.ids = count()

    def teardown(self):
        if hasattr(self, "table"):
            for at in range(len(SHAPES)):
                self.compare(at, backfill=bool(at % 2))
            self.patches.close()

    def node(self, data) -> Node:
        return self.table.nodes[data.draw(st.sampled_from(sorted(self.table.nodes)))]

    def has_nodes(self) -> bool:
        return bool(self.table.nodes)

    def compare(self, at: int, *, backfill: bool) -> None:
        table, shape = self.table, self.shapes[at]
        found = table.order.best(shape, backfill=backfill)
        found_id = None if found is None else found.node_id
        assert found is None or table.nodes[found.node_id] is found
        if at < PLAIN:
            assert found_id == brute_force(table, shape, backfill=backfill)
        alike = Shape("", shape.resource, shape.constraints, shape.labels)
        fresh = found_by_a_look_at_all(made_anew(table), alike, backfill=backfill)
        assert found_id == (None if fresh is None else fresh.node_id)
        for node in table.nodes.values():
            assert table.rows[node.row] is node

    @rule(at=st.integers(0, len(SHAPES) - 1), backfill=st.booleans())
    def ask(self, at, backfill):
        self.compare(at, backfill=backfill)

    @rule(
        names=st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True),
        capacity=CAPACITIES,
        labels=LABELS,
        taints=TAINTS,
        schedulable=st.sampled_from([True, True, False]),
    )
    def add(self, names, capacity, labels, taints, schedulable):
        for number in names:
            name = f"n{number:02}"
            if name not in self.table.nodes:
                self.table.add(Node(name, 0, dict(capacity), {}, labels, taints, schedulable))

    @precondition(has_nodes)
    @rule(data=st.data(), readded=st.booleans())
    def remove(self, data, readded):
        node = self.node(data)
        self.table.remove(node)
        if readded:
            again = Node(node.node_id, 0, node.capacity, {}, node.labels, node.taints, True)
            self.table.add(again)

    @rule(at=st.integers(0, len(SHAPES) - 1), times=st.integers(1, 6))
    def place_on_the_best(self, at, times):
        for _ in range(times):
            node = self.table.order.best(self.shapes[at])
            if node is None:
                return
            self.put(node, self.shapes[at])

    def put(self, node: Node, shape: Shape) -> None:
        tags = LABEL if shape.labels else {}
        key = f"k{next(self.ids)}"
        self.table.place(
            node,
            Allocation(
                key,
                "app",
                node.node_id,
                shape.resource,
                constraints=shape.constraints,
                allocation_tags=tags,
            ),
        )

    @precondition(has_nodes)
    @rule(data=st.data(), at=st.integers(0, len(SHAPES) - 1))
    def place_anywhere(self, data, at):
        self.put(self.node(data), self.shapes[at])

    @precondition(has_nodes)
    @rule(data=st.data())
    def free_all(self, data):
        node = self.node(data)
        for key in list(node.allocations):
            self.table.free(node, key)

    @precondition(has_nodes)
    @rule(data=st.data(), amount=st.sampled_from([1, 3, INT64_MAX]))
    def occupy_or_vacate(self, data, amount):
        node = self.node(data)
        if len(node.foreign) > 1:
            self.table.vacate(node, next(iter(node.foreign)))
        else:
            key = f"f{next(self.ids)}"
            self.table.occupy(node, Allocation(key, "", node.node_id, {"vcore": amount, "disk": 1}))

    @precondition(has_nodes)
    @rule(data=st.data(), at=st.integers(0, 2))
    def reserve_or_not(self, data, at):
        node = self.node(data)
        if node.reservations:
            node.reservations.clear()
        else:
            node.reservations["r"] = SimpleNamespace(
                ask=SimpleNamespace(shape=self.shapes[at]), closes_node=True
            )
        self.table.refresh(node)

    @precondition(has_nodes)
    @rule(data=st.data(), kept=st.sampled_from([{}, {"vcore": 2}]))
    def keep(self, data, kept):
        node = self.node(data)
        node.reserved = dict(kept)
        self.table.refresh(node)

    @precondition(has_nodes)
    @rule(data=st.data())
    def drain_or_not(self, data):
        node = self.node(data)
        node.schedulable = not node.schedulable
        self.table.refresh(node)

    @precondition(has_nodes)
    @rule(data=st.data(), capacity=CAPACITIES)
    def set_capacity(self, data, capacity):
        self.table.set_capacity(self.node(data), capacity)

    @precondition(has_nodes)
    @rule(data=st.data(), labels=LABELS, taints=TAINTS)
    def relabel(self, data, labels, taints):
        self.table.relabel(self.node(data), labels, taints, {})

    @rule(
        policy=st.sampled_from([FAIR, BINPACKING, AS_KAI]),
        weights=st.sampled_from([{}, {"vcore": 1.0}, {"memory": 3.0, "vcore": 1.0}]),
    )
    def set_policy(self, policy, weights):
        self.table.set_policy(policy, weights)

    @precondition(has_nodes)
    @rule()
    def ranks(self):
        table = self.table
        places = table.order.ranks.of(np.arange(len(table.rows)))
        in_order = [table.rows[row].node_id for row in np.argsort(places)]
        assert in_order == sorted(table.nodes)
        assert sorted(places.tolist()) == list(range(len(table.rows)))


TestNodeIndex = NodeIndexMachine.TestCase


def test_ranks_are_places_in_the_order_of_ids_whatever_comes_and_goes():
    ranks, rows = Ranks(), []
    for number in [*range(50, 90), 7, 95, 3, *range(10, 40)]:
        node = Node(f"n{number:02}", len(rows), {}, {}, {}, (), schedulable=True)
        ranks.added(node)
        rows.append(node)
        if number % 5 == 3:
            gone, last = rows[len(rows) // 2], rows.pop()
            ranks.removed(gone, len(rows))
            if last is not gone:
                rows[gone.row], last.row = last, gone.row
        ordered = sorted(node.node_id for node in rows)
        places = ranks.of(np.arange(len(rows))).tolist()
        assert [ordered.index(node.node_id) for node in rows] == places


AMOUNTS = st.tuples(st.integers(0, 4), st.integers(0, 2))  # of vcore and memory


@settings(max_examples=300, deadline=None)
@given(
    policy=st.sampled_from([FAIR, BINPACKING]),
    limits=st.sampled_from([{}, {"FAR": 1}, {"FAR": 2, "MOST": 3, "STEP": 2}]),
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=3, max_size=9),
    steps=st.lists(st.tuples(AMOUNTS, st.sampled_from("?++-"), st.integers(0, 8)), max_size=40),
)
def test_shapes_that_differ_in_amounts_find_what_each_would_by_itself(policy, limits, sizes, steps):
    table, shapes = NodeTable(), {}
    table.set_policy(policy, {})
    for at, (vcore, memory) in enumerate(sizes):
        capacity = {"vcore": vcore, "memory": memory}
        table.add(Node(f"n{at}", 0, capacity, {}, {}, (), schedulable=True))
    with ExitStack() as patches:
        for name, value in limits.items():
            patches.enter_context(patch.object(node_index, name, value))
        for number, ((vcore, memory), step, at) in enumerate(steps):
            resource = {"vcore": vcore, "memory": memory}
            shape = shapes.setdefault(
                (vcore, memory), Shape(f"s{number}", resource, NO_CONSTRAINTS)
            )
            found = table.order.best(shape)
            expected = brute_force(table, shape, backfill=False)
            assert (None if found is None else found.node_id) == expected
            if step == "-":
                gone = table.nodes[f"n{at % len(sizes)}"]
                for key in list(gone.allocations)[:1]:
                    table.free(gone, key)
            elif step == "+" and found is not None:
                table.place(found, Allocation(f"k{number}", "app", found.node_id, resource))


@settings(max_examples=200, deadline=None)
@given(
    policy=st.sampled_from([FAIR, BINPACKING, AS_KAI]),
    limits=st.sampled_from([{}, {"FAR": 2}, {"WASTED": 0, "TRY_AGAIN": 2}]),
    zones=st.lists(st.sampled_from("abc"), min_size=3, max_size=9),
    steps=st.lists(
        st.tuples(st.integers(PLAIN, len(SHAPES) - 1), st.sampled_from("?+++-"), st.integers(0, 8)),
        max_size=30,
    ),
)
def test_the_first_node_that_pods_leave_open_is_found_without_a_look_at_all(
    policy, limits, zones, steps
):
    table = NodeTable()
    table.set_policy(policy, {})
    shapes = [Shape(f"s{at}", dict(item[0]), *item[1:]) for at, item in enumerate(SHAPES)]
    for shape in shapes[PLAIN:]:
        table.pods.learn(shape.constraints)
    for at, zone in enumerate(zones):
        capacity = {"vcore": 4 + at % 3, "memory": 8, "gpu": 1}
        table.add(Node(f"n{at}", 0, capacity, {}, {"zone": zone}, (), schedulable=True))
    with ExitStack() as patches:
        for name, value in limits.items():
            patches.enter_context(patch.object(node_index, name, value))
        for number, (kind, step, at) in enumerate(steps):
            shape = shapes[kind]
            found = table.order.best(shape)
            expected = found_by_a_look_at_all(table, shape, backfill=False)
            assert found is expected
            gone = table.nodes[f"n{at % len(zones)}"]
            if step == "-":
                for key in list(gone.allocations)[:1]:
                    table.free(gone, key)
            elif step == "+" and found is not None:
                pod = Allocation(f"k{number}", "app", found.node_id, shape.resource)
                tags = LABEL if shape.labels else {}
                table.place(
                    found, replace(pod, constraints=shape.constraints, allocation_tags=tags)
                )
