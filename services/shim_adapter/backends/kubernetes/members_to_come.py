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
from itertools import islice

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec
from shared.messages.interface import TerminationType

_Members = tuple[str, str]  # of an application and its task group


class MembersToCome:
    """The pods with claims that were asked for and are not bound, by application and task group."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: dict[_Members, dict[str, None]] = {}
        self._left: dict[_Members, Counter[str]] = {}  # places of placeholders that went, by node
        self._members_of: dict[str, _Members] = {}

    def asked(self, uid: str, spec: PodSpec) -> None:
        """Note that a pod is asked for."""
        if spec.task_group_name:
            members = spec.application_id, spec.task_group_name
            self._members_of[uid] = members
            self._waiting.setdefault(members, {})[uid] = None

    def replaced(self, placeholder: PodRecord) -> None:
        """Note that a placeholder has gone, and that a pod comes in its place."""
        spec = placeholder.spec
        members = spec.application_id, spec.task_group_name
        is_replaced = placeholder.release == TerminationType.PLACEHOLDER_REPLACED
        if is_replaced and placeholder.node and members in self._waiting:
            self._left.setdefault(members, Counter())[placeholder.node] += 1

    def bound(self, pod: PodRecord) -> None:
        """Note that a pod goes to its node."""
        left = self._left.get((pod.spec.application_id, pod.spec.task_group_name))
        if left is not None and left[pod.node]:
            left[pod.node] -= 1
        self.forget(pod.uid)

    def forget(self, uid: str) -> None:
        """Note that a pod does not come."""
        members = self._members_of.pop(uid, None)
        if members is not None:
            waiting = self._waiting[members]
            del waiting[uid]
            if not waiting:
                del self._waiting[members]
                self._left.pop(members, None)

    def to(self, node: str, pods: list[PodRecord]) -> list[str]:
        """Return who is still to come to a node after pods that are bound there now, by uid."""
        of = dict.fromkeys((p.spec.application_id, p.spec.task_group_name) for p in pods)
        places = {members: self._left.get(members, Counter())[node] for members in of}
        if not any(members in self._waiting for members in of):
            return []
        for pod in self._world.pods_on(node):
            members = pod.spec.application_id, pod.spec.task_group_name
            if pod.spec.placeholder and members in places:
                places[members] += 1
        found: list[str] = []
        for members, count in places.items():
            found += islice(self._waiting.get(members, ()), count)
        return found
