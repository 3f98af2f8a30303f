"""Why no node takes an ask: whatever has happened, the evidence is that of a look at each node."""

from collections import Counter

from hypothesis.stateful import invariant

from services.core.scheduler.nodes.node_classes import MAX_SHOWN, OTHERS
from shared.messages.selectors import is_tolerated, selects
from shared.model.amounts import amounts_text
from shared.model.numbers import INT64_MIN
from shared.model.reasons import OTHER_PODS, SELECTOR, TAINTS, TAKEN, TOO_SMALL, UNSCHEDULABLE
from shared.model.resources import fits_room
from tests.property.test_node_index import SHAPES, NodeIndexMachine

LOOKED_AT = (2, 1, 5, 8)  # several types, one, a selector, affinity


def wanted_of(shape):
    return {name: value for name, value in shape.resource.items() if value > 0}


def fails_on(node, shape, is_open):
    """Return what a node fails on; nothing where it is free for the shape."""
    if not node.schedulable:
        return [UNSCHEDULABLE]
    if not selects(shape.constraints, node.node_id, node.labels):
        return [SELECTOR]
    if not is_tolerated(shape.constraints, node.taints):
        return [TAINTS]
    if not fits_room(node.capacity, shape.resource):
        return [TOO_SMALL]
    wanted = wanted_of(shape).items()
    lacking = [name for name, value in wanted if node.available.get(name, 0) < value]
    if lacking:
        return lacking
    if not is_open(node):
        return [OTHER_PODS]
    return [TAKEN] if node.reservations else []


def places_on(node, shape):
    return max(0, min(node.available.get(n, 0) // v for n, v in wanted_of(shape).items()))


def missing_on(node, shape):
    """Return what a node lacks for one more than it has places for, as a sum of shares."""
    more = places_on(node, shape) + 1
    return sum(
        max(float(more * value - max(node.available.get(name, 0), INT64_MIN)), 0.0) / value
        for name, value in wanted_of(shape).items()
    )


def told_classes(table):
    """Return the class under which each node is told, and how many there are of each."""
    numbers = list(table._classes._names)
    of = {name: amounts_text(node.capacity) for name, node in table.nodes.items()}
    sizes = Counter(of.values())
    shown = sorted(sizes, key=lambda name: (-sizes[name], numbers.index(name)))[:MAX_SHOWN]
    of = {name: it if it in shown else OTHERS for name, it in of.items()}
    order = [*shown, OTHERS]
    return of, dict(sorted(Counter(of.values()).items(), key=lambda item: order.index(item[0])))


def reason_and_numbers(fails, count):
    """Return the reason for what nodes fail on, and its total, nodes and count."""

    def without(*words):
        return sum(not set(on) & set(words) for on in fails.values())

    schedulable = without(UNSCHEDULABLE)
    matching = without(UNSCHEDULABLE, SELECTOR, TAINTS)
    large = without(UNSCHEDULABLE, SELECTOR, TAINTS, TOO_SMALL)
    roomy = sum(set(on) <= {OTHER_PODS, TAKEN} for on in fails.values())
    if not schedulable:
        return "NO_NODES", (count, 0, 0)
    if not matching:
        return "CONSTRAINTS", (schedulable, 0, 0)
    if not large:
        return "NODE_TOO_SMALL", (matching, 0, 0)
    if not roomy:
        return "NO_NODE_FITS", (matching, large, 0)
    taken = any(on == [TAKEN] for on in fails.values())
    return ("RESERVED" if taken else "OTHER_PODS"), (0, 0, roomy)


class EvidenceMachine(NodeIndexMachine):
    """The moves of the index's machine, with looks at why in between."""

    def look(self, at, *, for_many):
        table, shape = self.table, self.shapes[at]
        if not for_many and table.order.best(shape) is not None:
            return
        open_rows = table.filters.between_pods.mask(shape)

        def is_open(node):
            return bool(open_rows[node.row])

        fails = {name: fails_on(node, shape, is_open) for name, node in table.nodes.items()}
        if for_many:
            told = table.room.evidence(shape)
        else:
            refusal = table.room.refusal(shape)
            told = refusal.nodes
            numbers = (refusal.fact.total, refusal.fact.nodes, refusal.fact.count)
            assert (refusal.reason.name, numbers) == reason_and_numbers(fails, len(fails))
        self.compare_evidence(told, fails, shape, for_many=for_many)

    def compare_evidence(self, told, fails, shape, *, for_many):
        nodes = self.table.nodes
        of, classes = told_classes(self.table)
        assert (told.total, list(told.classes.items())) == (len(nodes), list(classes.items()))
        counted = Counter((of[name], on) for name, all_of in fails.items() for on in all_of)
        told_of = Counter()
        for item in told.failures:
            told_of[item.node_class, item.on] += item.nodes
        assert told_of == counted
        numbers = [item.nodes for item in told.failures]
        assert numbers == sorted(numbers, reverse=True)
        kept_out = {UNSCHEDULABLE, SELECTOR, TAINTS, TOO_SMALL}
        left = [nodes[name] for name, on in fails.items() if not set(on) & kept_out]
        has_room = any(places_on(node, shape) for node in left)
        if not left or (has_room and not for_many):
            assert (told.nearest, told.lacks) == ("", {})
            return
        nearest = min(left, key=lambda node: (missing_on(node, shape), node.node_id))
        assert told.nearest == nearest.node_id
        more, available = places_on(nearest, shape) + 1, nearest.available
        lacks = {n: more * v - available.get(n, 0) for n, v in wanted_of(shape).items()}
        assert told.lacks == {name: lack for name, lack in lacks.items() if lack > 0}

    @invariant()
    def why_none(self):
        """Look after every move: what was known for the last look may not hold for the next."""
        if hasattr(self, "table"):
            for at in LOOKED_AT:
                self.look(at, for_many=False)
            self.look(LOOKED_AT[0], for_many=True)

    def teardown(self):
        if hasattr(self, "table"):
            for at in range(len(SHAPES)):
                self.look(at, for_many=False)
                self.look(at, for_many=True)
            self.patches.close()


TestEvidence = EvidenceMachine.TestCase
