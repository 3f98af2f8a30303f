"""Which nodes take a shape: the mask, the one node and the evidence say the same as a plain count."""

from types import SimpleNamespace

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.nodes.filters.base import After
from services.core.scheduler.nodes.filters.claims import leaves_enough
from shared.messages.constraints import NO_CONSTRAINTS, AttachedVolume, Constraints
from shared.messages.selectors import is_tolerated, selects
from shared.model.resources import add_into, fits_room
from tests.property.test_node_index import SHAPES, NodeIndexMachine

MORE = [
    ({"vcore": 1}, Constraints(required_node="n01"), ()),
    ({"vcore": 1}, Constraints(volumes=(AttachedVolume("d", "c", exclusive=True),)), ()),
    ({"vcore": 2}, Constraints(volumes=(AttachedVolume("d"), AttachedVolume("d", "x"))), ()),
    ({}, NO_CONSTRAINTS, ()),
    ({"nobody has it": 1}, NO_CONSTRAINTS, ()),
]
FACTS = ("schedulable", "unclaimed", "room", "size", "constraints")
LISTS = {  # the questions, by the facts that a plain count looks at; pods are counted elsewhere
    "has_room": ("room",),
    "admits": ("constraints",),
    "fits": ("schedulable", "room", "constraints"),
    "indexed": ("schedulable", "unclaimed", "room", "constraints"),
    "could_hold": ("schedulable", "size", "constraints"),
    "counted": ("schedulable", "constraints"),
    "counted_open": ("schedulable", "constraints", "open"),
    "counted_backfill": ("schedulable", "constraints", "not held"),
}
BETWEEN_PODS = {  # and those that are the first with what pods leave open
    "takes": "fits",
    "open": "fits",
    "backfill": "fits",
    "could_start": "could_hold",
    "reservable": "could_hold",
}


class FilterMachine(NodeIndexMachine):
    """The moves of the index's machine, claims of the lane, and what an open statement expects."""

    @precondition(NodeIndexMachine.has_nodes)
    @rule(data=st.data(), spare=st.sampled_from([None, {}, {"vcore": 2}]))
    def hold_for_lane(self, data, spare):
        claim = None if spare is None else SimpleNamespace(leaves=dict(spare))
        self.table.close(self.node(data), claim)

    @rule(longest=st.sampled_from([0, 5]))
    def let_backfill(self, longest):
        self.table.backfill_window.backfill_ns = longest

    @precondition(NodeIndexMachine.has_nodes)
    @rule(data=st.data(), change=st.sampled_from([1, -1]), number=st.integers(1, 3))
    def expect(self, data, change, number):
        self.table.expect(self.node(data), {"vcore": number}, change)

    @precondition(NodeIndexMachine.has_nodes)
    @rule(data=st.data(), limit=st.integers(0, 2))
    def limit_volumes(self, data, limit):
        node = self.node(data)
        self.table.relabel(node, node.labels, node.taints, {"d": limit})

    def compare(self, at, *, backfill):
        """Leave the first node to the index's machine."""

    def drawn(self):
        for at, (resource, constraints, labels) in enumerate((*SHAPES, *MORE)):
            run_ns = 3 if at % 3 == 0 else 0
            yield Shape(f"s{at}", dict(resource), constraints, labels, run_ns)

    @invariant()
    def all_three_agree(self):
        """Look at a few shapes, of one moment, after every move; the next look is at others."""
        if not hasattr(self, "table") or not self.table.rows:
            return
        self.looked_at = getattr(self, "looked_at", 0) + 1
        shapes, when = list(self.drawn()), list(When)[self.looked_at % len(When)]
        for shape in shapes[self.looked_at % 8 :: 8]:
            self.mask_is_single(shape, when)
            for name, facts in LISTS.items():
                found = getattr(self.table.filters, name).mask(shape, when).tolist()
                assert found == [self.counted(n, shape, when, facts) for n in self.table.rows]
            self.mask_is_of_those_among(shape)
            self.evidence_is_of_the_mask(shape)

    def mask_is_single(self, shape, when):
        filters, rows = self.table.filters, self.table.rows
        open_rows = filters.between_pods.mask(shape, when).tolist()
        assert open_rows == [filters.between_pods.holds(node, shape, when) for node in rows]
        for name, without_pods in BETWEEN_PODS.items():
            found = getattr(filters, name)
            mask = found.mask(shape, when).tolist()
            assert mask == [found.holds(node, shape, when) for node in rows]
            beside = getattr(filters, without_pods).mask(shape, when).tolist()
            assert mask == [
                is_open and fits and self.is_claimed_as(name, node, shape)
                for is_open, fits, node in zip(open_rows, beside, rows, strict=True)
            ]
        for name in LISTS:
            found = getattr(filters, name)
            assert found.mask(shape, when).tolist() == [found.holds(n, shape, when) for n in rows]

    def is_claimed_as(self, name, node, shape):
        if name == "backfill":
            return leaves_enough(node, shape)
        claims = {"open": "open", "reservable": "unclaimed"}
        return name not in claims or self.facts(node, shape, When.NOW)[claims[name]]

    def mask_is_of_those_among(self, shape):
        some = self.table.order.ranks.of(self.table.order.free_rows(shape))
        for found in (self.table.filters.takes, self.table.filters.indexed):
            assert found.mask(shape, among=some).tolist() == found.mask(shape)[some].tolist()

    def evidence_is_of_the_mask(self, shape):
        """Each row is left, or fails on something; those that are left take the shape."""
        now, why = self.table.filters.large(shape)
        if why is None:
            now, why = self.table.filters.now(shape, now)
        left = now.left.tolist()
        assert left == self.table.filters.open.mask(shape).tolist()
        failing = [any(each.rows[row] for each in now.failures) for row in range(len(left))]
        assert failing == [not is_left for is_left in left]
        assert (why is None) == any(left)

    def counted(self, node, shape, when, facts):
        known = self.facts(node, shape, when)
        return all(known[fact] for fact in facts)

    def facts(self, node, shape, when):
        room = dict(node.capacity if when is When.EMPTY else node.available)
        if when is When.EXPECTED:
            add_into(room, node.expected)
        required, constraints = shape.constraints.required_node, shape.constraints
        passes = not node.is_held or 0 < shape.run_ns <= self.table.backfill_window.backfill_ns
        return {
            "schedulable": node.schedulable or bool(required),
            "unclaimed": not (node.reservations or node.is_held),
            "open": not node.reservations and passes,
            "not held": passes,
            "room": fits_room(room, shape.resource),
            "size": fits_room(node.capacity, shape.resource),
            "constraints": selects(constraints, node.node_id, node.labels)
            and is_tolerated(constraints, node.taints),
        }

    @precondition(NodeIndexMachine.has_nodes)
    @rule(data=st.data(), at=st.integers(0, len(SHAPES) + len(MORE) - 1))
    def what_would_be(self, data, at):
        """What a node takes after some have gone and others have come is what it takes then.

        Of both it is asked beside what the open statement expects.
        """
        node, source = self.node(data), self.node(data)
        shape, filters = list(self.drawn())[at], self.table.filters
        gone = list(node.allocations.values())[:2]
        coming = [pod for pod in source.allocations.values() if source is not node][:1]
        after = After(gone, coming)
        answers = [
            filters.takes.holds(node, shape, after), filters.between_pods.holds(node, shape, after)
        ]  # fmt: skip
        for pod in gone:
            self.table.free(node, pod.allocation_key)
        for pod in coming:
            self.table.place(node, pod)
        then = [
            filters.takes.holds(node, shape, When.EXPECTED),
            filters.between_pods.holds(node, shape, When.EXPECTED),
        ]
        for pod in coming:
            self.table.free(node, pod.allocation_key)
        for pod in gone:
            self.table.place(node, pod)
        assert answers == then


TestFilters = FilterMachine.TestCase
