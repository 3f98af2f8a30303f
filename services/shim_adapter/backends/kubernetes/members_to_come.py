"""Which pods of a gang are still to come to a node, when one of them is bound there.

A gang's places are had at once, but its pods come one by one: each when its placeholder has gone.
Devices are chosen for those that are still to come as well, for the first may otherwise take what
the others need.

Rule 1: as many pods of a task group are to come to a node as it has placeholders there, and as
        placeholders have left there for pods that were not bound since.
Rule 2: which of them is not known until they come: the first that were asked for stand for them. A
        pod may come to another node than its placeholder was on, so these may be too many. Whoever
        asks tries without them as well.
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
        """Note that a pod is asked for; what task group it is of may be found out later."""
        self._application_of[uid] = application_id
        self._waiting.setdefault(application_id, {})[uid] = None

    def replaced(self, placeholder: PodRecord) -> None:
        """Note that a placeholder has gone, and that a pod comes in its place if it was for one."""
        is_replaced = placeholder.release == TerminationType.PLACEHOLDER_REPLACED
        if is_replaced and placeholder.spec.application_id in self._waiting:
            left = self._left.setdefault(placeholder.spec.application_id, Counter())
            left[_members_of(placeholder), placeholder.node] += 1

    def bound(self, pod: PodRecord) -> None:
        """Note that a pod goes to its node."""
        left, place = self._left.get(pod.spec.application_id), (_members_of(pod), pod.node)
        if left is not None and left[place]:
            left[place] -= 1
        self.forget(pod.uid)

    def forget(self, uid: str) -> None:
        """Note that a pod does not come, or has come."""
        application_id = self._application_of.pop(uid, "")
        waiting = self._waiting.get(application_id, {})
        waiting.pop(uid, None)
        if not waiting:
            self._waiting.pop(application_id, None)
            self._left.pop(application_id, None)

    def to(self, node: str, pods: list[PodRecord]) -> list[PodRecord]:
        """Return the pods that are still to come to a node after those that are bound there now."""
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
