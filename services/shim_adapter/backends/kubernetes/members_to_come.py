"""Estimates which pods of a gang will still be bound to a node.

A gang gets its places at once, but its pods are bound one by one, each when its placeholder is
gone. Devices are chosen for the pods still to come as well, because the first pod might otherwise
take devices that the others need.

Rule 1: the pods of a task group still to come to a node are as many as it has placeholders there,
        plus replaced placeholders whose pods are not bound yet.
Rule 2: which pods come is unknown until then: the first ones asked for represent them. A pod may go
        to another node than its placeholder's, so the estimate may be too high; callers therefore
        also try without it.
No I/O. A gang costs nothing once all its pods with claims are bound.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodRecord
from shared.messages.interface import TerminationType

_Members = tuple[str, str]  # of an application and its task group


def _members_of(pod: PodRecord) -> _Members:
    return pod.spec.application_id, pod.spec.task_group_name


class MembersToCome:
    """The pods with claims that were asked for and are not bound, by application."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: dict[str, dict[str, None]] = {}
        self._application_of: dict[str, str] = {}
        # The places that placeholders left, by node, until there are pods on them.
        self._left: dict[str, Counter[tuple[_Members, str]]] = {}

    def asked(self, uid: str, application_id: str) -> None:
        """Record that a pod is asked for; its task group may be determined later."""
        self._application_of[uid] = application_id
        self._waiting.setdefault(application_id, {})[uid] = None

    def replaced(self, placeholder: PodRecord) -> None:
        """Record that a placeholder is gone; if it was replaced, a pod takes its place."""
        is_replaced = placeholder.release == TerminationType.PLACEHOLDER_REPLACED
        if is_replaced and placeholder.spec.application_id in self._waiting:
            left = self._left.setdefault(placeholder.spec.application_id, Counter())
            left[_members_of(placeholder), placeholder.node] += 1

    def bound(self, pod: PodRecord) -> None:
        """Record that a pod is being bound to its node."""
        left, place = self._left.get(pod.spec.application_id), (_members_of(pod), pod.node)
        if left is not None and left[place]:
            left[place] -= 1
        self.forget(pod.uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that was bound, or will not be."""
        application_id = self._application_of.pop(uid, "")
        waiting = self._waiting.get(application_id, {})
        waiting.pop(uid, None)
        if not waiting:
            self._waiting.pop(application_id, None)
            self._left.pop(application_id, None)

    def to(self, node: str, pods: list[PodRecord]) -> list[PodRecord]:
        """Return the pods still to come to a node after those being bound there now."""
        of = [each for each in map(_members_of, pods) if each[0] in self._waiting]
        places = {each: self._left.get(each[0], Counter())[each, node] for each in of}
        if not places:
            return []
        for pod in self._world.on_nodes.of(node):
            if pod.spec.placeholder and _members_of(pod) in places:
                places[_members_of(pod)] += 1
        found: list[PodRecord] = []
        for members, count in places.items():
            found += islice(self._waiting_of(members), count)
        return found

    def _waiting_of(self, members: _Members) -> Iterator[PodRecord]:
        pods = map(self._world.pods.get, self._waiting[members[0]])
        return (pod for pod in pods if pod is not None and _members_of(pod) == members)
