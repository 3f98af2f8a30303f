"""The mix of recent asks in classes, and how much of a node's devices they can use.

Units: thousandths of a device, whole numbers. Of two devices with one score the fullest is chosen.
Limits: STEPS values in a dimension; with more some are rounded up.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.shapes import Demand
from shared.messages.constraints import Constraints
from shared.model.gpus import WHOLE

Numbers: TypeAlias = NDArray[np.int64]
STEPS = 64  # distinct values of vcore, memory and size in a mix


_NOTHING = Demand(0, 0)


@dataclass(frozen=True, slots=True)
class Rooms:
    """The free capacity of some nodes, a row for each; ``free`` by device, largest first.

    ``open_to`` is, for each part of the mix, which nodes its constraints allow; None: all.
    """

    free: Numbers
    vcore: Numbers
    memory: Numbers
    devices: Numbers  # number of devices
    open_to: Sequence[NDArray[np.bool_] | None] = (None,)


class Room(NamedTuple):
    """The free capacity of one node: a row of ``Rooms``, as a hashable state."""

    free: tuple[int, ...]
    vcore: int
    memory: int
    open_to: tuple[bool, ...] = (True,)


class Mix:
    """The frequency of each class of recent asks, in a part for each set of constraints."""

    def __init__(self, counts: Mapping[Constraints, Mapping[Demand, int]]) -> None:
        self.constraints = tuple(counts)
        self._parts = [_Part(classes) for classes in counts.values()]
        of_gpus = [
            (demand, number)
            for classes in counts.values()
            for demand, number in classes.items()
            if demand.number
        ]
        self.total = sum(sum(classes.values()) for classes in counts.values())
        self.gpus = sum(d.size * d.number * number for d, number in of_gpus)
        self.vcore = sum(d.vcore * number for d, number in of_gpus)

    def usable(self, free: Numbers, rooms: Rooms, demand: Demand = _NOTHING) -> Numbers:
        """Return how much of ``free`` each class can use, summed over all recent asks."""
        found = (part.usable(free, part.at(rooms, demand)) for part in self._parts)
        return _of_open(found, rooms)

    def usable_of(self, free: Sequence[int], room: Room, demand: Demand = _NOTHING) -> int:
        """Return the same for one node."""
        vcore, memory = room.vcore - demand.vcore, room.memory - demand.memory
        found = 0
        for part, is_open in zip(self._parts, room.open_to, strict=True):
            if is_open:
                found += part.usable_of(free, vcore, memory)
        return found

    def usable_without(self, rooms: Rooms, demand: Demand) -> Numbers:
        """Return the same for each node and each device that a share is placed on."""
        found = (part.usable_without(rooms, demand) for part in self._parts)
        return _of_open(found, rooms)

    def stranded_of(self, free: int, vcore: int) -> int:
        """Return the free device capacity of one node beyond its free vcore."""
        return max(free - max(vcore, 0) * self.gpus // self.vcore, 0) if self.vcore else 0

    def stranded(self, free: Numbers, vcore: Numbers) -> Numbers:
        """Return the free device capacity of nodes beyond their free vcore."""
        if not self.vcore:
            return np.zeros_like(free)
        found: Numbers = np.maximum(free - np.maximum(vcore, 0) * self.gpus // self.vcore, 0)
        return found


class _Part:
    """The classes of one set of constraints.

    ``_singles`` is, by vcore, memory and size, how many asks need at most that, on one device;
    ``_wholes``, by the number of free devices, how many need several whole ones.
    """

    def __init__(self, classes: Mapping[Demand, int]) -> None:
        one = {demand: number for demand, number in classes.items() if demand.number == 1}
        wholes = {d: n for d, n in classes.items() if d.number > 1 and d.size == WHOLE}
        self._most = max((demand.number for demand in wholes), default=0)
        self._several = {d: n for d, n in classes.items() if d.number > 1 and d.size < WHOLE}
        self._vcore = _steps(demand.vcore for demand in classes)
        self._memory = _steps(demand.memory for demand in classes)
        sizes = _steps(demand.size for demand in one)
        self._rank = np.searchsorted(sizes, np.arange(WHOLE + 1), "right")
        self._deep = sizes.size + 1
        self._singles = self._table(one, self._deep, lambda d: int(np.searchsorted(sizes, d.size)))
        self._wholes = self._table(wholes, self._most + 1, lambda d: d.number - 1)
        # the same as lists, which are faster for one node
        self._steps_of_one = self._vcore.tolist(), self._memory.tolist()
        self._rank_of_one = self._rank.tolist()
        self._tables_of_one = self._singles.tolist(), self._wholes.tolist()

    def _table(
        self, classes: Mapping[Demand, int], deep: int, at: Callable[[Demand], int]
    ) -> Numbers:
        """Return the cumulative sums of classes over all dimensions, flattened."""
        table = np.zeros((self._vcore.size + 1, self._memory.size + 1, deep), dtype=np.int64)
        for demand, number in classes.items():
            vcore = np.searchsorted(self._vcore, demand.vcore)
            table[vcore + 1, np.searchsorted(self._memory, demand.memory) + 1, at(demand) + 1] += (
                number
            )
        return reduce(np.cumsum, range(3), table).ravel()

    def at(self, rooms: Rooms, demand: Demand) -> tuple[Numbers, Numbers, Numbers]:
        """Return the nodes' positions in the tables, and their free vcore and memory."""
        vcore, memory = rooms.vcore - demand.vcore, rooms.memory - demand.memory
        line = np.searchsorted(self._vcore, vcore, "right") * (self._memory.size + 1)
        return line + np.searchsorted(self._memory, memory, "right"), vcore, memory

    def usable(self, free: Numbers, at: tuple[Numbers, Numbers, Numbers]) -> Numbers:
        lines = at[0]
        whole = np.count_nonzero(free == WHOLE, axis=1)
        places = (lines * self._deep)[:, None] + self._rank[free]
        found: Numbers = np.einsum("ij,ij->i", free, self._singles[places])
        found += self._on_wholes(whole, lines)
        return found + self._on_several(free, *at[1:]) if self._several else found

    def usable_of(self, free: Sequence[int], vcore: int, memory: int) -> int:
        """Return the same for one node."""
        (vcores, memories), (singles, wholes) = self._steps_of_one, self._tables_of_one
        line = bisect_right(vcores, vcore) * (len(memories) + 1) + bisect_right(memories, memory)
        first, rank = line * self._deep, self._rank_of_one
        found: int = sum([left * singles[first + rank[left]] for left in free if left])
        whole = free.count(WHOLE)
        found += WHOLE * whole * wholes[line * (self._most + 1) + min(whole, self._most)]
        for demand, number in self._several.items():
            large = [left for left in free if left >= demand.size]
            if vcore >= demand.vcore and memory >= demand.memory and len(large) >= demand.number:
                found += number * sum(large)
        return found

    def usable_without(self, rooms: Rooms, demand: Demand) -> Numbers:
        lines, vcore, memory = self.at(rooms, demand)
        free, size = rooms.free, demand.size
        rest = np.maximum(free - size, 0)
        is_whole = free == WHOLE
        whole = np.count_nonzero(is_whole, axis=1)
        each = self._on_each(free, lines)
        found: Numbers = each.sum(axis=1)[:, None] - each + self._on_each(rest, lines)
        broken = self._on_wholes(np.maximum(whole - 1, 0), lines)
        found += np.where(is_whole, broken[:, None], self._on_wholes(whole, lines)[:, None])
        for device in range(free.shape[1]) if self._several else ():
            after = free.copy()
            after[:, device] = rest[:, device]
            found[:, device] += self._on_several(after, vcore, memory)
        return found

    def _on_each(self, free: Numbers, lines: Numbers) -> Numbers:
        found: Numbers = free * self._singles[(lines * self._deep)[:, None] + self._rank[free]]
        return found

    def _on_wholes(self, whole: Numbers, lines: Numbers) -> Numbers:
        at = lines * (self._most + 1) + np.minimum(whole, self._most)
        found: Numbers = WHOLE * whole * self._wholes[at]
        return found

    def _on_several(self, free: Numbers, vcore: Numbers, memory: Numbers) -> Numbers:
        """Return what asks with a share of several devices can use."""
        found = np.zeros(free.shape[0], dtype=np.int64)
        for demand, number in self._several.items():
            large = free >= demand.size
            runs = (vcore >= demand.vcore) & (memory >= demand.memory)
            runs &= np.count_nonzero(large, axis=1) >= demand.number
            found += number * runs * np.where(large, free, 0).sum(axis=1)
        return found


def _of_open(found: Iterable[Numbers], rooms: Rooms) -> Numbers:
    total: Numbers | None = None
    for amounts, is_open in zip(found, rooms.open_to, strict=True):
        if is_open is not None:
            amounts[~is_open] = 0
        total = amounts if total is None else total + amounts
    assert total is not None
    return total


def _steps(values: Iterable[int]) -> Numbers:
    """Return the sorted values; of more than STEPS a selection with the largest."""
    found = np.array(sorted(set(values)), dtype=np.int64)
    if found.size <= STEPS:
        return found
    return found[np.linspace(0, found.size - 1, STEPS).round().astype(np.int64)]


class DeviceRule(NamedTuple):
    """One rule, for many nodes at once and for one."""

    of_many: Callable[[Mix, Rooms, Demand], tuple[Numbers, Numbers]]
    of_one: Callable[[Mix, Room, Demand], tuple[int, int]]


def free_share(free: Numbers, rooms: Rooms) -> Numbers:
    """Return the free part of nodes' GPUs, in thousandths."""
    found: Numbers = free // np.maximum(rooms.devices, 1)
    return found


def fullest(free: Numbers, demand: Demand) -> Numbers:
    """Return the free part of the fullest device that fits a share."""
    if not free.shape[1]:
        return np.zeros(free.shape[0], dtype=np.int64)
    least: Numbers = np.where(free >= demand.size, free, WHOLE).min(axis=1)
    return least


def rest_after(free: Numbers, demand: Demand) -> Numbers:
    """Return the free parts after the fullest devices that fit get an ask."""
    if not demand.number:
        return free
    holds = free >= demand.size
    last = np.count_nonzero(holds, axis=1)[:, None]
    place = np.arange(free.shape[1])[None, :]
    is_taken = (place < last) & (place >= last - demand.number)
    return np.maximum(np.where(is_taken, free - demand.size, free), 0)


def ways(free: Sequence[int], demand: Demand) -> Iterator[tuple[int, list[int]]]:
    """Yield every way to place an ask on one node: the device's free part, and the rest of all.

    Devices with equal free parts are one way; several devices are the fullest that fit.
    """
    holding = sorted([left for left in free if left >= demand.size])
    if demand.number == 1:
        ways = [[left] for left in dict.fromkeys(holding)]
    else:
        ways = [holding[: demand.number]]
    for way in ways:
        after = list(free)
        for left in way:
            after[after.index(left)] = left - demand.size
        yield way[0] if way else 0, after
