"""The filter of free capacity."""

from collections.abc import Iterable, Sequence
from operator import ge

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, At, Mask, When
from services.core.scheduler.nodes.device_rows import MANY
from services.core.scheduler.nodes.filters.base import After, Filter, Moment, failing
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_view import LARGE, USABLE, Stage
from shared.model.reasons import Fact, Kind, Reason
from shared.model.resources import ResourceView


class Room(Filter):
    """The free amounts are enough: capacity less allocated, occupied and claimed."""

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        if when is When.EXPECTED:
            return self._expected_rows(shape, at)
        found: Mask | None = None
        for name, value in shape.wanted.items():
            amounts = self._columns.amounts(name, when, at)
            if amounts is None:
                return none_of(at)
            enough = amounts >= value
            if found is None:
                found = enough
            else:
                found &= enough
        return found

    def _expected_rows(self, shape: Shape, at: At) -> Mask | None:
        """Return the rows that fit expected amounts: two matrices are added once, not per type."""
        wanted = shape.wanted
        if not wanted:
            return None
        try:
            numbers = [*map(self._columns.numbers.__getitem__, wanted)]
        except KeyError:  # no node ever had this type
            return none_of(at)
        expected = self._columns.expected_of(numbers, at)
        enough: Mask = np.logical_and.reduce(expected >= [*wanted.values()], axis=1)
        return enough

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        if when is When.NOW or when is When.EMPTY:
            room = node.available if when is When.NOW else node.capacity
            for name, value in shape.wanted.items():  # noqa: SIM110 - asked at every decision
                if value > room.get(name, 0):
                    return False
            return True
        gone, coming = amounts_of(when, node)
        wanted = shape.wanted
        return all(map(ge, free_of(node, wanted, gone, coming), wanted.values()))

    def times(self, shape: Shape, when: When) -> Amounts:
        """Return how often a shape fits on every row, at most MANY."""
        found = np.full(len(self._columns.rows), MANY, dtype=np.int64)
        for name, value in shape.wanted.items():
            amounts = self._columns.amounts(name, when, self._columns.all)
            np.minimum(found, 0 if amounts is None else amounts // value, out=found)
        return np.maximum(found, 0)

    def lacking(self, shape: Shape, left: Mask) -> dict[str, Mask]:
        """Return the remaining rows that lack each type now, by type."""
        found, everywhere = {}, self._columns.all
        for name, value in shape.wanted.items():
            amounts = self._columns.amounts(name, When.NOW, everywhere)
            found[name] = left if amounts is None else left & (amounts < value)
        return found

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        found: list[Failing] = []
        for name, mask in self.lacking(shape, left).items():
            found += failing(name, mask)
        return found

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        total, large = before.passed[USABLE], before.passed[LARGE]
        fact = Fact(Kind.NODES, total=total, nodes=large, amount=shape.resource)
        return Reason.NO_NODE_FITS, fact


def none_of(at: At) -> Mask:
    """Return a mask that accepts none of some rows."""
    return np.zeros(at.stop if isinstance(at, slice) else at.size, dtype=np.bool_)


def amounts_of(when: Moment, node: Node) -> tuple[list[ResourceView], list[ResourceView]]:
    """Return the amounts that end on a node and that start there, for a later state."""
    if not isinstance(when, After):
        return [], []
    gone = [one.resource_per_alloc for one in when.gone if one.node_id == node.node_id]
    return gone, [one.resource_per_alloc for one in when.coming]


def free_of(
    node: Node,
    names: Iterable[str],
    gone: Sequence[ResourceView] = (),
    coming: Sequence[ResourceView] = (),
) -> list[int]:
    """Return a node's free and expected amounts of some types, in order.

    With amounts of pods that end (``gone``) and start (``coming``) there.
    """
    has, expects = node.available, node.expected
    room = []
    for name in names:
        free = has.get(name, 0) + expects.get(name, 0)
        for amount in gone:
            free += amount.get(name, 0)
        for amount in coming:
            free -= amount.get(name, 0)
        room.append(free)
    return room
