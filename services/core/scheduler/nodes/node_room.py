"""How many asks fit on the nodes, and what the nodes lack for one more."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import BY_HEAD_GANG, CLOSED, Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, NodeColumns, When
from services.core.scheduler.nodes.filters import NodeFilters
from services.core.scheduler.nodes.filters.base import failing
from services.core.scheduler.nodes.filters.plugins import NodeHooks
from services.core.scheduler.nodes.node_classes import Failing, NodeClasses
from services.core.scheduler.nodes.node_devices import NodeDevices, left_by
from services.core.scheduler.nodes.node_index import Ranks
from services.core.scheduler.nodes.node_view import ROOM, Stage
from shared.model.gpus import GPU, GPU_SHARE, WHOLE
from shared.model.reasons import PLUGIN, Fact, Kind, NodeEvidence, Reason, Refusal
from shared.model.resources import Resource


class NodeRoom:
    """The nodes' capacity for asks, in numbers."""

    def __init__(
        self,
        columns: NodeColumns,
        filters: NodeFilters,
        of_devices: NodeDevices,
        ranks: Ranks,
        classes: NodeClasses,
    ) -> None:
        self._columns, self._filters = columns, filters
        self._devices, self._ranks, self._classes = of_devices, ranks, classes
        self.hooks: NodeHooks | None = None

    def places(self, shape: Shape, *, backfill: bool = False, when: When = When.NOW) -> Amounts:
        """Return, by row, how many asks of a shape fit; pod affinities are ignored.

        Unusable rows have none, nor have reserved ones without ``backfill``; an ask with a required
        node does not backfill. For other states than now claims are ignored.
        """
        filters = self._filters
        usable = filters.counted_open
        if when is not When.NOW:
            usable = filters.counted
        elif backfill and not shape.constraints.required_node:
            usable = filters.counted_backfill
        found = self._times(shape, when)
        found[~usable.mask(shape)] = 0
        return found

    def _times(self, shape: Shape, when: When) -> Amounts:
        found = self._filters.facts.room.times(shape, when)
        on_devices = self._filters.facts.devices.times(shape, when)
        return found if on_devices is None else np.minimum(found, on_devices)

    def free(self, names: Sequence[str], rows: Sequence[int]) -> Amounts:
        """Return the free amounts of some types on some rows, closed or not."""
        return self._columns.table_of(names, When.NOW)[rows]

    def open_rooms(
        self, names: Sequence[str], *, backfill: bool = False
    ) -> tuple[Amounts, Amounts | None]:
        """Return the free amounts of unclaimed schedulable nodes, and of additional ones.

        The additional ones, None if there are none, are open only to asks that end before the head
        gang starts. With ``backfill`` asks' claims close no node, as in ``places``.
        """
        columns = self._columns
        free, usable = columns.table_of(names, When.NOW), columns.schedulable[columns.all]
        closed = columns.claimed[columns.all] & (BY_HEAD_GANG if backfill else CLOSED)
        in_time = (
            free[usable & (closed == BY_HEAD_GANG)] if self._filters.backfill_window.nodes else None
        )
        return free[usable & (closed == 0)], in_time

    def expected(self, names: Sequence[str]) -> Amounts:
        """Return every node's expected free amounts; closed nodes have 0."""
        return self._of_open(self._columns.table_of(names, When.EXPECTED))

    def capacities(self, names: Sequence[str]) -> Amounts:
        """Return every node's capacity; closed nodes have 0."""
        return self._of_open(self._columns.table_of(names, When.EMPTY))

    def capacity_of(self, name: str) -> Amounts:
        """Return every node's capacity of a type."""
        return self._columns.table_of((name,), When.EMPTY)[:, 0]

    def _of_open(self, found: Amounts) -> Amounts:
        found[~self._columns.schedulable[self._columns.all]] = 0
        return found

    # --- refusals -------------------------------------------------------------------------------

    def refusal(self, shape: Shape) -> Refusal:
        """Return why no node fits a shape now, with the numbers."""
        large, too_small = self._filters.large(shape)
        if too_small is not None:
            return Refusal(*too_small, self._evidence(large.failures))
        now, closed = self._filters.now(shape, large)
        failures = now.failures
        if now.number and self.hooks is not None:
            failures = failures + failing(PLUGIN, now.left)
        nearest = None if now.passed[ROOM] else self._nearest(shape, large, now)
        reason, fact = closed or self._not_chosen(shape, now)
        return Refusal(reason, fact, self._evidence(failures, nearest))

    def _not_chosen(self, shape: Shape, now: Stage) -> tuple[Reason, Fact]:
        """Return why none of the nodes that fit a shape is chosen."""
        if self.hooks is None:
            return self._filters.facts.claims.reason(shape, now)
        nodes = [self._columns.rows[row] for row in np.flatnonzero(now.left).tolist()]
        return Reason.PLUGIN, Fact(Kind.PLUGIN, text=self.hooks.why_closed(nodes, shape))

    def why_closed(self, node: Node, shape: Shape) -> str:
        """Return which plugins refuse a node for a shape."""
        return self.hooks.why_closed([node], shape) if self.hooks is not None else ""

    def evidence(self, shape: Shape) -> NodeEvidence:
        """Return what nodes lack, by class, for more asks than fit."""
        large, too_small = self._filters.large(shape)
        if too_small is not None:
            return self._evidence(large.failures)
        now, _ = self._filters.now(shape, large)
        return self._evidence(now.failures, self._nearest(shape, large, now))

    def _evidence(
        self, failures: list[Failing], nearest: tuple[Node, Resource] | None = None
    ) -> NodeEvidence:
        return self._classes.evidence(len(self._columns.rows), failures, nearest)

    def _nearest(self, shape: Shape, large: Stage, now: Stage) -> tuple[Node, Resource] | None:
        """Return the nearest of the nodes that could fit a shape."""
        lacking = dict.fromkeys(each.on for each in now.failures[len(large.failures) :])
        return self.nearest(shape, large.left, None if now.passed[ROOM] else list(lacking))

    def nearest(
        self,
        shape: Shape,
        among: Mask | None = None,
        short_of: Sequence[str] | None = None,
    ) -> tuple[Node, Resource] | None:
        """Return the node that lacks least for one more ask than fits, and what it lacks.

        None if no node, or none of ``among``, is usable for the shape. Amounts are compared in
        relation to the request. ``short_of``: no node fits the shape, and they lack only these
        types.
        """
        mask = self._filters.counted.mask(shape) if among is None else among
        rows = np.flatnonzero(mask)
        if not rows.size:
            return None
        if short_of is not None and len(short_of) == 1:
            return self._with_most(short_of[0], rows, shape)
        times = np.ones(mask.size, dtype=np.int64)
        if short_of is None:
            times += self._times(shape, When.NOW)
        total = np.where(mask, 0.0, np.inf)
        asked = [*shape.wanted]
        for name in asked if short_of is None else short_of:
            total += self._missing(name, shape.resource[name], times)
        row = self._first_of(np.flatnonzero(total == total.min()))
        node = self._columns.rows[row]
        return node, self._lacking(node, shape, int(times[row]))

    def _with_most(self, name: str, rows: Amounts, shape: Shape) -> tuple[Node, Resource]:
        """Return the node with the most of a type, and what it lacks for one ask."""
        amounts = self._columns.amounts(name, When.NOW, rows)
        if amounts is not None:
            rows = rows[amounts == amounts.max()]
        node = self._columns.rows[self._first_of(rows)]
        return node, self._lacking(node, shape, 1)

    def _first_of(self, rows: Amounts) -> int:
        """Return the row with the first node id."""
        return int(rows[0] if rows.size == 1 else rows[np.argmin(self._ranks.of(rows))])

    def _lacking(self, node: Node, shape: Shape, times: int) -> Resource:
        """Return what a node lacks for ``times`` asks; for devices, what the last of them lacks."""
        lacks = {
            name: times * value - node.available.get(name, 0)
            for name, value in shape.wanted.items()
        }
        need = self._devices.need_of(shape)
        if need is not None and node.devices:
            name = GPU if need[0] == WHOLE else GPU_SHARE
            on_devices = devices.lacking(left_by(node, need, times - 1), need)
            lacks[name] = max(lacks[name], on_devices)
        return {name: lack for name, lack in lacks.items() if lack > 0}

    def _missing(self, name: str, amount: int, times: Amounts) -> NDArray[np.float64]:
        """Return what every row lacks of a type for ``times`` requests, in units of one request."""
        wanted = times.astype(np.float64) * amount
        available = self._columns.amounts(name, When.NOW, self._columns.all)
        if available is not None:
            wanted -= available
        return np.maximum(wanted, 0.0) / amount

    # --- which node to reserve ------------------------------------------------------------------

    def tightest(self, shape: Shape) -> Node | None:
        """Return the unclaimed node that could fit a shape with the tightest capacity, or None."""
        rows = np.flatnonzero(self._filters.reservable.mask(shape))
        if not rows.size:
            return None
        looseness = self._looseness(rows, shape)
        ties = rows[looseness == looseness.min()]
        return self._columns.rows[int(ties[np.argmin(self._ranks.of(ties))])]

    def nearest_to_hold(self, shape: Shape, most: int) -> list[Node]:
        """Return unclaimed nodes that could fit a shape, those that lack least first."""
        rows = np.flatnonzero(self._filters.reservable.mask(shape))
        lack = np.zeros(rows.size, dtype=np.float64)
        for name in self._columns.numbers:
            wanted, room = shape.resource.get(name, 0), self._columns.amounts(name, When.NOW, rows)
            if wanted > 0 and room is not None:
                lack += np.maximum(0, wanted - room) / wanted
        order = np.lexsort((self._ranks.of(rows), lack))
        return [self._columns.rows[row] for row in rows[order[:most]].tolist()]

    def _looseness(self, rows: Amounts, shape: Shape) -> NDArray[np.float64]:
        """Return the capacity that would remain, as the sum of one ratio per resource type."""
        total = np.zeros(rows.size, dtype=np.float64)
        for name, column in self._columns.numbers.items():
            room = self._columns.available[rows, column]
            wanted = shape.resource.get(name, 0)
            if wanted <= 0:
                total += room != 0
            else:
                total += np.where(room > wanted, (room - wanted) / np.maximum(room, 1), 0.0)
        return total
