"""The GPU devices of nodes: their holders, those for a new pod, and the expected free ones.

Rule 1: a holder with known devices has them; holders with assumed devices, because none were
        reported, are moved away for it.
Rule 2: a foreign pod is assumed to have the last devices.
Rule 3: while no device is shared, as many devices are free as GPUs, and devices do not matter.
"""

from collections.abc import Callable, Iterable, Mapping

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import DeviceHolder, Node
from services.core.scheduler.model.shapes import Demand, Shape, demand_of
from services.core.scheduler.nodes.columns import Amounts, Mask
from services.core.scheduler.nodes.device_rows import DeviceRows, open_devices, places_on
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.gpus import GPU, GPU_SHARE, MAX_DEVICES, WHOLE, Devices
from shared.model.resources import Resource, ResourceView

DeviceFor = Callable[[Node, Demand], Devices]


class NodeDevices:
    """The devices of all nodes."""

    def __init__(self) -> None:
        self.rows = DeviceRows()
        self.are_shared = False  # whether GPU shares are part of the nodes' capacity
        self.are_read = False  # whether the rows are used: for shares, or by a score
        self._choose: DeviceFor | None = None  # set by a score that chooses devices
        self._coming: dict[Node, list[int]] = {}  # expected changes, by the open statement

    def need_of(self, shape: Shape) -> devices.Need | None:
        """Return a shape's need of devices, None if amounts are sufficient to decide."""
        return shape.on_devices if self.are_shared else None

    def of(self, node: Node, key: str) -> Devices:
        """Return an allocation's devices on its node."""
        return node.held_devices.get((False, key), ())

    def share(self) -> None:
        """Add GPU shares to the nodes' capacity from now on."""
        self.are_shared = self.are_read = True

    def use(self, choose: DeviceFor | None) -> None:
        """Let a score choose the devices of new pods; None: by ``devices.choose``."""
        self._choose = choose
        self.are_read = self.are_shared or choose is not None

    # --- capacity -------------------------------------------------------------------------------

    def announced(self, capacity: ResourceView) -> Resource:
        """Return a node's capacity, with its GPU shares once any are requested."""
        announced = dict(capacity)
        announced.pop(GPU_SHARE, None)
        number = announced.get(GPU, 0)
        if self.are_shared and 0 < number <= MAX_DEVICES:
            announced[GPU_SHARE] = number * WHOLE
        return announced

    def count(self, node: Node) -> None:
        """Recompute a node's free devices from its capacity and holders."""
        number = node.capacity.get(GPU, 0)
        node.devices = [WHOLE] * (number if number <= MAX_DEVICES else 0)
        for held in node.held_devices.values():
            devices.change(node.devices, held, -1)

    def write(self, node: Node, amounts: Mapping[str, int] | None = None) -> None:
        """Update a node's row if the rows are used and ``amounts`` contain GPUs."""
        if self.are_read and (amounts is None or GPU in amounts or GPU_SHARE in amounts):
            self.rows.write(node)

    # --- holders --------------------------------------------------------------------------------

    def give_to(self, node: Node, allocation: Allocation, stated: Devices | None = None) -> None:
        """Assign devices to an allocation, if possible those of the placeholder it replaces."""
        need = devices.need_of(allocation.resource_per_alloc, allocation.constraints)
        if need is None:
            return
        wished = allocation.devices
        if stated is None and wished and devices.is_held(wished, node.devices, need):
            stated = wished if all(node.devices[at] >= size for at, size in wished) else None
        demand = demand_of(allocation.resource_per_alloc, need)
        self.give(node, allocation.allocation_key, demand, stated)

    def give(self, node: Node, key: str, demand: Demand, stated: Devices | None = None) -> Devices:
        """Assign devices to an allocation and return them; amounts are updated elsewhere.

        ``stated`` are its known devices, () if it has unknown ones: it has them whatever is free.
        None: it is new, and devices are free for it.
        """
        holder, need = (False, key), (demand.size, demand.number)
        if stated is None and self._choose is not None:
            held = self._choose(node, demand)
        elif stated is None:
            held = devices.choose(open_devices(node), need)
        elif devices.is_held(stated, node.devices, need):
            _make_way(node, stated)
            held = stated
        else:
            held = ()
            node.assumed_devices[holder] = None
        held = held or _assumed(node, need)
        _give(node, holder, held)
        return held

    def give_last(self, node: Node, foreign: Allocation) -> None:
        """Assign the last devices to a foreign pod, whose real ones are unknown."""
        need = devices.need_of(foreign.resource_per_alloc, foreign.constraints)
        if need is not None:
            holder = (True, foreign.allocation_key)
            node.assumed_devices[holder] = None
            _give(node, holder, devices.choose_last(node.devices, need))

    def take(self, node: Node, key: str, *, is_foreign: bool = False) -> None:
        """Free the devices of a holder, if it has any."""
        held = node.held_devices.pop((is_foreign, key), None)
        if held is not None:
            node.assumed_devices.pop((is_foreign, key), None)
            devices.change(node.devices, held, 1)

    # --- expected by an open statement ----------------------------------------------------------

    def expect(self, node: Node, held: Devices, change: int) -> None:
        """Expect devices to become free (1), or to be used (-1)."""
        if held:
            coming = self._coming.setdefault(node, [0] * len(node.devices))
            devices.change(coming, held, change)
            if not any(coming):
                del self._coming[node]

    @property
    def is_any_expected(self) -> bool:
        """Whether an open statement expects any device."""
        return bool(self._coming)

    def expected(self, node: Node) -> list[int]:
        """Return the expected free parts of a node's devices."""
        free = open_devices(node)
        coming = self._coming.get(node)
        return free if coming is None else [*map(int.__add__, free, coming)]

    def rows_expected(self, need: devices.Need, count: int) -> Mask:
        """Return which of the first rows are expected to have the devices for a pod."""
        found = self.rows.holding(need, slice(count))
        for node in self._coming:
            found[node.row] = devices.holds(self.expected(node), need)
        return found

    def places_expected(self, need: devices.Need, count: int) -> Amounts:
        """Return for how many equal pods each of the first rows is expected to have the devices."""
        found = self.rows.places(need, count, when_empty=False)
        for node in self._coming:
            found[node.row] = devices.places(self.expected(node), need)
        return found

    def planned(
        self,
        node: Node,
        need: devices.Need | None,
        gone: Iterable[Allocation] = (),
        coming: Iterable[Allocation | AllocationAsk] = (),
    ) -> Devices:
        """Return the devices for a planned pod among those that will be free, () if none.

        Whole devices that are free now come first, so that victims may return to theirs.
        """
        if need is None or not node.devices:
            return ()
        expected = self._free_after(node, gone, coming)
        if need[0] == WHOLE:
            idle = [*map(min, open_devices(node), expected)]
            if found := devices.choose(idle, need):
                return found
        return devices.choose(expected, need)

    def may_stay(self, node: Node, key: str) -> bool:
        """Whether the devices of a victim are not claimed by others.

        While no device is shared the amounts decide (rule 3).
        """
        if not self.are_shared:
            return True
        free = self.expected(node)
        held = self.of(node, key)
        return all(at >= len(free) or free[at] >= amount for at, amount in held)

    def holds_after(
        self,
        node: Node,
        need: devices.Need,
        gone: Iterable[Allocation],
        coming: Iterable[Allocation | AllocationAsk],
    ) -> bool:
        """Whether a pod would fit on the devices after some pods ended and others started.

        In addition to what the open statement expects. Of ``gone`` those on the node count;
        ``coming`` get devices as new pods do, in order.
        """
        if not node.devices:
            return places_on(node, need) > 0
        return devices.holds(self._free_after(node, gone, coming), need)

    def _free_after(
        self, node: Node, gone: Iterable[Allocation], coming: Iterable[Allocation | AllocationAsk]
    ) -> list[int]:
        free = list(self.expected(node))
        for allocation in gone:
            if allocation.node_id == node.node_id:
                devices.change(free, self.of(node, allocation.allocation_key), 1)
        for pod in coming:
            need = devices.need_of(pod.resource_per_alloc, pod.constraints)
            if need is not None:
                devices.change(free, devices.choose(free, need), -1)
        return free


def left_by(node: Node, need: devices.Need, times: int) -> list[int]:
    """Return the free parts of a node's devices after ``times`` equal pods."""
    free = list(open_devices(node))
    for _ in range(times):
        devices.change(free, devices.choose(free, need), -1)
    return free


def _give(node: Node, holder: DeviceHolder, held: Devices) -> None:
    node.held_devices[holder] = held
    devices.change(node.devices, held, -1)


def _assumed(node: Node, need: devices.Need) -> Devices:
    """Return the devices assumed for a running pod whose devices are unknown."""
    return devices.choose(node.devices, need) or devices.choose_last(node.devices, need)


def _make_way(node: Node, stated: Devices) -> None:
    """Move holders with assumed devices away from known devices."""
    crowded = {at for at, amount in stated if node.devices[at] < amount}
    if not crowded:
        return
    movable = [
        holder
        for holder in node.assumed_devices
        if any(at in crowded for at, _ in node.held_devices[holder])
    ]
    devices.change(node.devices, stated, -1)
    for holder in movable:
        was = node.held_devices[holder]
        devices.change(node.devices, was, 1)
        need = (was[0][1], len(was))
        _give(node, holder, devices.choose(node.devices, need) or was)
    devices.change(node.devices, stated, 1)
