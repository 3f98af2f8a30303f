"""What the GPU devices of all nodes have free, side by side: a row a node.

A row has the free thousandths of the node's devices, the most first: so a shape that takes so much
of each of k devices fits where the k-th has so much. It is as wide as the most devices of a node.
Nodes without devices of their own hold no share, and whole GPUs as they are counted.
"""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.devices import Need, left_over, places
from services.core.scheduler.model.rows import Node
from shared.model.gpus import GPU, MAX_DEVICES, WHOLE

MANY = 2**31  # places: of what asks for nothing; and of devices where GPUs are only counted


class DeviceRows:
    """The devices of every node. Cost: O(devices of a node) a change."""

    def __init__(self) -> None:
        self._free: NDArray[np.int64] = np.zeros((16, 0), dtype=np.int64)
        self._number: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self._only_counted: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)

    def write(self, node: Node) -> None:
        """Bring a node's row up to date."""
        row, number = node.row, len(node.devices)
        while row >= self._number.size:
            more = self._number.size
            self._free = np.pad(self._free, ((0, more), (0, 0)))
            self._number = np.pad(self._number, (0, more))
            self._only_counted = np.pad(self._only_counted, (0, more))
        if number > self._free.shape[1]:
            self._free = np.pad(self._free, ((0, 0), (0, number - self._free.shape[1])))
        self._number[row] = number
        self._only_counted[row] = node.capacity.get(GPU, 0) > MAX_DEVICES
        if self._free.shape[1]:
            self._free[row] = 0
            self._free[row, :number] = sorted(open_devices(node), reverse=True)

    def open(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what the devices of some rows have free, and how many devices there are."""
        return np.maximum(self._free.take(rows, axis=0), 0), self._number[rows]

    def holding(self, need: Need, at: slice | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some rows have the devices for a pod."""
        size, count = need
        counted = self._only_counted[at] & (size == WHOLE)
        if count > self._free.shape[1]:
            return counted
        held: NDArray[np.bool_] = self._free[at, count - 1] >= size
        return held | counted

    def holding_when_empty(self, need: Need, rows: int) -> NDArray[np.bool_]:
        """Return which of the first rows would have them if nothing were there."""
        size, count = need
        counted = self._only_counted[:rows] & (size == WHOLE)
        return (self._number[:rows] >= count) & (size <= WHOLE) | counted

    def places(self, need: Need, rows: int, *, when_empty: bool) -> NDArray[np.int64]:
        """Return for how many like pods each of the first rows has the devices."""
        size, count = need
        free = self._free[:rows]
        if when_empty:
            free = np.where(np.arange(free.shape[1]) < self._number[:rows, None], WHOLE, 0)
        times = np.maximum(free, 0) // size
        found: NDArray[np.int64] = times.sum(axis=1) // count
        if count > 1 and size < WHOLE:
            found = _on_several(times, count, found)
        if size == WHOLE:
            found[self._only_counted[:rows]] = MANY
        return found


def _on_several(times: NDArray[np.int64], count: int, most: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for how many pods that take a share of several devices there is the room.

    There are ``most`` at most. Of one pod no two shares are on one device: n pods fit where the
    devices, each for n of them at most, are enough. If n fit, so do fewer.
    """
    least = np.zeros_like(most)
    while (least < most).any():
        tried = (least + most + 1) // 2
        fits = np.minimum(times, tried[:, None]).sum(axis=1) >= tried * count
        least, most = np.where(fits, tried, least), np.where(fits, most, tried - 1)
    return least


def open_devices(node: Node) -> list[int]:
    """Return what a node's devices have free for who has nothing kept there."""
    return left_over(node.devices, node.kept) if node.kept else node.devices


def places_on(node: Node, need: Need) -> int:
    """Return for how many like pods a node has the devices."""
    if not node.devices:
        return MANY if need[0] == WHOLE else 0
    return places(open_devices(node), need)
