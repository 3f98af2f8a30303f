"""Which groups are disrupted as a whole: pods of them are evicted, and too few are left.

Rule 1: a group is disrupted from the eviction on that leaves fewer of its pods on nodes than start
        at once, until as many are there again; a pod above that is disrupted by itself.
Source: the condition DisruptionTarget of scheduling.k8s.io. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.shim_adapter.backends.kubernetes.group_trees import Object

MAX_TOLD = 1_000  # groups known to be disrupted; the oldest are forgotten


@dataclass(slots=True)
class Disruptions:
    """What is known of groups by their objects; a pod is known until it has gone."""

    _evicted: dict[str, None] = field(default_factory=dict)
    _why: dict[Object, str] = field(default_factory=dict)

    def evicted(self, uid: str) -> None:
        """Take in that a pod is evicted."""
        self._evicted[uid] = None

    def gone(self, uid: str) -> None:
        """Take in that a pod has gone, or is not evicted after all."""
        self._evicted.pop(uid, None)

    def left(self, placed: Iterable[str]) -> list[str]:
        """Return those of some pods that are not evicted."""
        return [uid for uid in placed if uid not in self._evicted]

    def begin(self, name: Object, why: str) -> None:
        """Take in that a group is disrupted, and for what."""
        self._why.setdefault(name, why)
        if len(self._why) > MAX_TOLD:
            del self._why[next(iter(self._why))]

    def why(self, name: Object, *, is_whole: bool) -> str:
        """Return for what a group is disrupted, "" for nothing: one that is whole is no more."""
        if is_whole:
            self._why.pop(name, None)
        return self._why.get(name, "")
