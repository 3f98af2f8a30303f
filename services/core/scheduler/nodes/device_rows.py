"""The free GPU devices of all nodes as an array: a row for each node.

A row has the free thousandths of the node's devices, the largest first: a shape with a share of
each of k devices fits if the k-th is large enough. Nodes without devices fit no shares, and whole
GPUs by their number.
"""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.devices import Need, left_over, places
from services.core.scheduler.model.rows import Node
from shared.model.gpus import GPU, MAX_DEVICES, WHOLE

MANY = 2**31  # number of places without a limit, e.g. where GPUs are only counted


class DeviceRows:
    """The devices of every node. Cost: O(devices of a node) for a change."""

    def __init__(self) -> None:
        self._free: NDArray[np.int64] = np.zeros((16, 0), dtype=np.int64)
        self._number: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self._only_counted: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)

    def write(self, node: Node) -> None:
        """Update a node's row."""
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
        """Return the free parts of some rows' devices, and their numbers of devices."""
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
        """Return which of the first rows would have them if they were empty."""
        size, count = need
        counted = self._only_counted[:rows] & (size == WHOLE)
        return (self._number[:rows] >= count) & (size <= WHOLE) | counted

    def places(self, need: Need, rows: int, *, when_empty: bool) -> NDArray[np.int64]:
        """Return for how many equal pods each of the first rows has the devices."""
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
    """Return how many pods with a share of several devices fit, at most ``most``.

    No two shares of one pod are on one device: n pods fit if the devices, each used by at most n of
    them, are enough. Binary search over n.
    """
    least = np.zeros_like(most)
    while (least < most).any():
        tried = (least + most + 1) // 2
        fits = np.minimum(times, tried[:, None]).sum(axis=1) >= tried * count
        least, most = np.where(fits, tried, least), np.where(fits, most, tried - 1)
    return least


def open_devices(node: Node) -> list[int]:
    """Return the free parts of a node's devices, without claimed ones."""
    return left_over(node.devices, node.reserved) if node.reserved else node.devices


def places_on(node: Node, need: Need) -> int:
    """Return for how many equal pods a node has the devices."""
    if not node.devices:
        return MANY if need[0] == WHOLE else 0
    return places(open_devices(node), need)
