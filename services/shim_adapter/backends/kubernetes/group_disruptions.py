"""Detects groups disrupted as a whole: pods of them are evicted, and too few are left.

Rule 1: a group is disrupted from the eviction that leaves fewer of its pods on nodes than must
        start together, until there are as many again; above that, only single pods are.
Source: the condition DisruptionTarget of scheduling.k8s.io. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.shim_adapter.backends.kubernetes.group_trees import Object

MAX_TOLD = 1_000  # groups known to be disrupted; the oldest are forgotten


@dataclass(slots=True)
class Disruptions:
    """The evicted pods until they are gone, and the disrupted groups."""

    _evicted: dict[str, None] = field(default_factory=dict)
    _why: dict[Object, str] = field(default_factory=dict)

    def evicted(self, uid: str) -> None:
        """Record that a pod is being evicted."""
        self._evicted[uid] = None

    def gone(self, uid: str) -> None:
        """Record that a pod is gone, or not evicted after all."""
        self._evicted.pop(uid, None)

    def left(self, placed: Iterable[str]) -> list[str]:
        """Return the pods that are not being evicted."""
        return [uid for uid in placed if uid not in self._evicted]

    def begin(self, name: Object, why: str) -> None:
        """Record that a group is disrupted, and why."""
        self._why.setdefault(name, why)
        if len(self._why) > MAX_TOLD:
            del self._why[next(iter(self._why))]

    def why(self, name: Object, *, is_whole: bool) -> str:
        """Return why a group is disrupted, or ""; the disruption of a whole group ends."""
        if is_whole:
            self._why.pop(name, None)
        return self._why.get(name, "")
