"""Volumes on nodes: counts by driver, and the pods that share one.

Rule 1: a node has a limit of volumes for each driver (``Node.volume_limits``), none for others. A
        volume shared by several of its pods counts once.
Rule 2: an exclusive claim has at most one running pod, on any node.
Source: the Kubernetes documentation of node-specific volume limits, and of access modes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.nodes.pod_counts import Mask
from shared.messages.constraints import AttachedVolume
from shared.model.reasons import Fact, Kind

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node

_Left = NDArray[np.int64]
MAX_NAMED = 3  # nodes named that use a claim; more are not named
_UNLIMITED = 2**31  # more than any pod has


class VolumeCounts:
    """Counts by driver and node; the remaining numbers by the rows of the node table."""

    def __init__(self) -> None:
        self._on: dict[str, dict[Node, int]] = {}  # volumes by driver; a shared one counts once
        self._pods: dict[tuple[str, str], dict[Node, int]] = {}  # by driver and claim
        self._left: dict[str, _Left | None] = {}  # by driver; None: no node limits it

    def clear(self) -> None:
        """Remove all counts."""
        self._on.clear()
        self._pods.clear()
        self._left.clear()

    def forget_rows(self) -> None:
        """Drop cached rows after rows or limits changed."""
        self._left.clear()

    def count(self, node: "Node", volumes: Sequence[AttachedVolume], change: int) -> None:
        """Add a pod's volumes (1) or remove them (-1)."""
        for volume in volumes:
            if volume.claim and not self._is_another(node, volume, change):
                continue
            nodes = self._on.setdefault(volume.driver, {})
            nodes[node] = nodes.get(node, 0) + change
            if not nodes[node]:
                del nodes[node]
                if not nodes:
                    del self._on[volume.driver]
            left = self._left.get(volume.driver)
            if left is not None:
                left[node.row] -= change

    def _is_another(self, node: "Node", volume: AttachedVolume, change: int) -> bool:
        """Count a pod of a shared volume; return whether its node's number of volumes changed."""
        key = (volume.driver, volume.claim)
        nodes = self._pods.setdefault(key, {})
        before = nodes.get(node, 0)
        nodes[node] = before + change
        if not nodes[node]:
            del nodes[node]
            if not nodes:
                del self._pods[key]
        return not (before and before + change)

    def open_rows(self, volumes: Sequence[AttachedVolume], rows: "list[Node]") -> Mask:
        """Return the rows that fit a pod's volumes, none if one of them is exclusively in use."""
        if self.is_in_use(volumes):
            return np.zeros(len(rows), dtype=np.bool_)
        result = np.ones(len(rows), dtype=np.bool_)
        for driver, own in _by_driver(volumes).items():
            left = self._left_of(driver, rows)
            if left is not None:
                needs = self._needs(own, len(rows))
                result &= (left >= needs) | (needs <= 0)
        return result

    def is_in_use(self, volumes: Sequence[AttachedVolume]) -> bool:
        """Whether another pod uses one of some exclusive volumes."""
        return any(item.exclusive and (item.driver, item.claim) in self._pods for item in volumes)

    def _needs(self, volumes: Sequence[AttachedVolume], count: int) -> _Left:
        """Return how many volumes each row would get."""
        needs = np.full(count, len(volumes), dtype=np.int64)
        for volume in volumes:
            for node in self._pods.get((volume.driver, volume.claim), ()):
                needs[node.row] -= 1
        return needs

    def _left_of(self, driver: str, rows: "list[Node]") -> _Left | None:
        """Return how many more volumes of a driver each row fits; None: unlimited everywhere."""
        if driver not in self._left:
            left: _Left | None = None
            if any(driver in node.volume_limits for node in rows):
                limits = [node.volume_limits.get(driver, _UNLIMITED) for node in rows]
                left = np.array(limits, dtype=np.int64)
                for node, number in self._on.get(driver, {}).items():
                    left[node.row] -= number
            self._left[driver] = left
        return self._left[driver]

    def open_when_empty(self, volumes: Sequence[AttachedVolume], rows: "list[Node]") -> Mask:
        """Return the rows that would fit a pod's volumes if no pod ran."""
        result = np.ones(len(rows), dtype=np.bool_)
        for driver, own in _by_driver(volumes).items():
            limits = [node.volume_limits.get(driver, _UNLIMITED) for node in rows]
            result &= np.array(limits, dtype=np.int64) >= len(own)
        return result

    def why_none(self, volumes: Sequence[AttachedVolume], rows: "list[Node]") -> Fact:
        """Return why a pod's volumes fit no node; of several drivers the one of most nodes."""
        for item in volumes:
            pods = self._pods.get((item.driver, item.claim), {})
            if item.exclusive and pods:
                names = tuple(sorted(node.node_id for node in pods)[:MAX_NAMED])
                return Fact(Kind.CLAIM_IN_USE, item.claim, count=sum(pods.values()), names=names)
        lacking: list[Fact] = []
        for driver, own in _by_driver(volumes).items():
            left = self._left_of(driver, rows)
            if left is not None:
                full = int(np.count_nonzero(left < self._needs(own, len(rows))))
                most = max(n.volume_limits[driver] for n in rows if driver in n.volume_limits)
                fact = Fact(
                    Kind.VOLUME_COUNT,
                    driver,
                    count=len(own),
                    total=len(rows),
                    nodes=full,
                    most=most,
                )
                lacking.append(fact)
        return max(lacking, key=lambda fact: fact.nodes, default=Fact(Kind.VOLUME_COUNT))


def _by_driver(volumes: Sequence[AttachedVolume]) -> dict[str, list[AttachedVolume]]:
    """Return a pod's volumes by driver."""
    found: dict[str, list[AttachedVolume]] = {}
    for volume in volumes:
        found.setdefault(volume.driver, []).append(volume)
    return found
