"""Filters of nodes: a file for each, and their combinations for each question."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.domains import Domains
from services.core.scheduler.nodes.filters.base import Filter, Moment, NodeFilter
from services.core.scheduler.nodes.filters.claims import (
    BACKFILLS,
    NONE_PASSES,
    PASSES_ASKS,
    PASSES_IN_TIME,
    BackfillWindow,
    Claims,
)
from services.core.scheduler.nodes.filters.combined import Filters, Steps, evidence
from services.core.scheduler.nodes.filters.constraints import Selected, Tolerated
from services.core.scheduler.nodes.filters.devices import FreeDevices
from services.core.scheduler.nodes.filters.domains import InDomain
from services.core.scheduler.nodes.filters.plugins import FixedPlugins, MovingPlugins, NodeHooks
from services.core.scheduler.nodes.filters.pods import OtherPods
from services.core.scheduler.nodes.filters.room import Room
from services.core.scheduler.nodes.filters.schedulable import Schedulable
from services.core.scheduler.nodes.filters.size import Size
from services.core.scheduler.nodes.filters.spares import Spare
from services.core.scheduler.nodes.filters.volumes import Volumes
from services.core.scheduler.nodes.node_devices import NodeDevices
from services.core.scheduler.nodes.node_view import (
    LARGE,
    MATCHING,
    ROOM,
    SCHEDULABLE,
    USABLE,
    NodeViews,
    Stage,
)
from services.core.scheduler.nodes.pod_topology import PodIndex
from services.core.scheduler.nodes.spares import Spares
from shared.model.reasons import Fact, Reason

NODE_FILTERS: tuple[type[NodeFilter], ...] = (Selected, Tolerated)  # others follow these


class OfNode(Filter):
    """All filters by node properties, in one cached answer."""

    def __init__(self, columns: NodeColumns, views: NodeViews, parts: list[NodeFilter]) -> None:
        super().__init__(columns)
        self._views, self._parts = views, parts

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        return self._views.of(shape).feasible[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        known = shape.view
        if known is not None and known[0] == self._views.version:
            feasible: Mask = known[1].feasible
            if node.row < feasible.size:
                return feasible.item(node.row)
        for part in self._parts:  # noqa: SIM110 - asked often
            if not part.admits(node, shape):
                return False
        return True


class Facts(NamedTuple):
    """The filters of all combinations, without those by node properties and of plugins."""

    schedulable: Schedulable
    claims: Claims
    room: Room
    devices: FreeDevices
    size: Size
    volumes: Volumes
    pods: OtherPods
    domain: InDomain


class NodeFilters:
    """The filters of a table of nodes, combined for each question."""

    def __init__(  # noqa: PLR0917 - the parts of the table of nodes
        self,
        columns: NodeColumns,
        views: NodeViews,
        free_devices: NodeDevices,
        pods: PodIndex,
        nodes: Mapping[str, Node],
        domains: Domains,
        spares: Spares,
    ) -> None:
        self._columns, self._views, self._devices = columns, views, free_devices
        self.backfill_window, self.spares = BackfillWindow(), spares
        room, devices = Room(columns), FreeDevices(columns, free_devices)
        self.facts = Facts(
            Schedulable(columns),
            Claims(columns, self.backfill_window, PASSES_IN_TIME),
            room,
            devices,
            Size(columns, room, devices),
            Volumes(columns, pods, nodes),
            OtherPods(columns, views, pods, nodes),
            InDomain(columns, domains),
        )
        self.of_node: list[NodeFilter] = []
        self._moving: list[Filter] = []
        # The combinations: a node ...
        self.has_room = Filters(columns)  # has the capacity and the devices
        self.admits = Filters(columns)  # is allowed by constraints and plugins
        self.fits = Filters(columns)  # fits a shape, other pods and claims ignored
        self.between_pods = Filters(columns)  # is allowed by other pods
        self.takes = Filters(columns)  # fits a shape, claims ignored
        self.open = Filters(columns)  # ... and is not claimed by others
        self.backfill = Filters(columns)  # ... or leaves enough for its claims
        self.indexed = Filters(columns)  # fits a shape, other pods ignored, and is not claimed
        self.could_hold = Filters(columns)  # fits a shape when it is empty
        self.could_start = Filters(columns)  # ... constraints between pods included
        self.reservable = Filters(columns)  # lacks only capacity, and is not claimed
        self.counted = Filters(columns)  # may be used; capacity is counted separately
        self.counted_open = Filters(columns)
        self.counted_backfill = Filters(columns)
        self.use(None)

    def use(self, hooks: NodeHooks | None) -> None:
        """Set the filters of plugins."""
        columns = self._columns
        self.of_node = [each(columns, self._views) for each in NODE_FILTERS]
        self._moving = []
        if hooks is not None:
            self.of_node.append(FixedPlugins(columns, self._views, hooks))
            self._moving.append(MovingPlugins(columns, hooks))
        for place, each in enumerate(self.of_node):
            each.place = place
        self.choose()

    def choose(self) -> None:
        """Build the combinations; devices are included once GPU shares are in use."""
        schedulable, claims, room, devices, size, volumes, pods, domain = self.facts
        moving = self._moving
        node = OfNode(self._columns, self._views, self.of_node)
        unclaimed = Claims(self._columns, self.backfill_window, NONE_PASSES)
        past_asks = Claims(self._columns, self.backfill_window, PASSES_ASKS)
        has_room: list[Filter] = [room]
        if self._devices.are_shared:
            has_room.append(devices)
        spare = [Spare(self._columns, self.spares)] if self.spares.is_on else []
        indexed = [Spare(self._columns, self.spares, none_passes=True)] if spare else []
        others: list[Filter] = [volumes, pods, domain]
        self.has_room.set(*has_room)
        self.admits.set(node, domain, *moving)
        self.fits.set(schedulable, *has_room, node, domain, *moving)
        self.between_pods.set(*others)
        self.takes.set(schedulable, *spare, *has_room, node, *others, *moving)
        self.open.set(*self.takes.filters, claims)
        self.backfill.set(
            *self.takes.filters, Claims(self._columns, self.backfill_window, BACKFILLS)
        )
        self.indexed.set(schedulable, *indexed, unclaimed, *has_room, node)
        self.could_hold.set(schedulable, *spare, size, node, domain, *moving)
        self.could_start.set(schedulable, *spare, size, node, *others)
        self.reservable.set(*self.could_hold.filters, volumes, pods, unclaimed)
        self.counted.set(schedulable, *spare, node, domain)
        self.counted_open.set(schedulable, *spare, node, claims, domain)
        self.counted_backfill.set(schedulable, *spare, node, past_asks, domain)
        self._of_node_steps: Steps = [
            (SCHEDULABLE, [schedulable]),
            *((MATCHING, [each]) for each in self.of_node[: len(NODE_FILTERS)]),
            (USABLE, self.of_node[len(NODE_FILTERS) :]),
        ]
        self._size_step: Steps = [(USABLE, moving), (LARGE, [size])]
        self._steps: Steps = [
            (ROOM, has_room),
            ("volumes", [volumes]),
            ("pods", [pods]),
            ("domain", [domain]),
            ("claims", [claims, *spare]),
        ]

    @property
    def unindexed(self) -> list[Filter]:
        """Return the filters that no index of nodes covers."""
        return [*self.between_pods.filters, *self._moving]

    # --- evidence -------------------------------------------------------------------------------

    def large(self, shape: Shape) -> tuple[Stage, tuple[Reason, Fact] | None]:
        """Return the rows that could fit a shape when empty and are usable, and why none."""
        view, facts = self._views.of(shape), self._columns.facts
        judged = view.judged
        if judged is None or judged[0] != facts:
            count = len(self._columns.rows)
            everything = Stage([], np.ones(count, dtype=np.bool_), count, {})
            judged = view.judged = (facts, *evidence(shape, self._of_node_steps, everything))
        _, usable, why = judged
        return (usable, why) if why is not None else evidence(shape, self._size_step, usable)

    def now(self, shape: Shape, large: Stage) -> tuple[Stage, tuple[Reason, Fact] | None]:
        """Return which of those rows fit a shape now, and why none."""
        return evidence(shape, self._steps, large)
