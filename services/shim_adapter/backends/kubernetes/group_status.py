"""Writes the status of PodGroups, for `kubectl get podgroup` and operators.

Rule 1: a status is written if it differs from what was last written, or from what was there before;
        changes of other writers are not fought. At most once in PAUSE_SECONDS, with the latest
        state.
Rule 2: a status is written like a note: after all required operations, and dropped if there are too
        many.
Rule 3: a core PodGroup that was scheduled stays so, whatever happens to its pods (its API). Pure.
Sources: scheduling.x-k8s.io/v1alpha1 (phase, counts), KAI's schedulingConditions
(docs/rules/kai.md), the conditions of scheduling.k8s.io (v1alpha2; of another type since v1alpha3).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from services.shim_adapter.backends.kubernetes.client import MERGE_PATCH, STRATEGIC_PATCH
from services.shim_adapter.translation.workloads.pod_groups import (
    COMPOSITE,
    CORE,
    COSCHEDULING,
    KAI,
)
from shared.model.units import seconds

PAUSE_SECONDS = 1  # between a change of a PodGroup's gang and its status, which says all since
INVALID, UNSCHEDULABLE, UNREADABLE = "Invalid", "Unschedulable", "SchedulerError"
DISRUPTION, PREEMPTED = "DisruptionTarget", "PreemptionByScheduler"
_KAI_POOL = "default"  # the node pool of who has none
MAX_MESSAGE = 1_024  # characters of a condition's message; cut

Object = tuple[str, str, str]  # kind, namespace and name
Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a gang: counted pods, on nodes, running, and succeeded.

    Of a group of groups ``minimum`` and ``placed`` count groups. ``why`` is what the whole gang
    waits for, or "", and ``reason`` its code. ``disrupted`` is why it is evicted, or "".
    """

    minimum: int
    members: int
    placed: int
    running: int
    done: int
    why: str
    reason: str = UNSCHEDULABLE
    disrupted: str = ""

    @property
    def is_scheduled(self) -> bool:
        """Whether as many have nodes as must start together, at least one."""
        return self.placed >= max(self.minimum, 1)


@dataclass(frozen=True, slots=True)
class ToWrite:
    """A status to write at a PodGroup."""

    path: str
    namespace: str
    name: str
    body: Mapping[str, Any]
    content_type: str


class GroupStatuses:
    """The statuses of groups; ``path_of`` returns the API path of a kind."""

    def __init__(
        self,
        write: Callable[[ToWrite], None],
        now_text: Callable[[], str],
        path_of: Callable[[str], str],
    ) -> None:
        self._write = write
        self._now_text = now_text
        self._path_of = path_of
        self._stands: Callable[[Object], Standing | None] = lambda _: None
        self._known: dict[Object, tuple[str, Status]] = {}  # of objects: uid, and status
        self._written: dict[Object, Status] = {}  # without the times
        self._due: dict[Object, int] = {}  # in the order of time

    def follow(self, stands: Callable[[Object], Standing | None]) -> None:
        """Set the function that returns the progress of a gang, None if it has no pods."""
        self._stands = stands

    def see(self, name: Object, uid: str, status: Status | None) -> None:
        """Update a PodGroup's status; None: it was deleted."""
        known = self._known.pop(name, None)
        if status is None or (known is not None and known[0] != uid):
            self._written.pop(name, None)
        if status is not None and name[0] in _KINDS:
            self._known[name] = uid, status

    def changed(self, name: Object, now_ns: int) -> None:
        """Record that a gang's progress may have changed."""
        if name[0] in _KINDS:
            self._due.setdefault(name, now_ns + seconds(PAUSE_SECONDS))

    def next_due_ns(self) -> int | None:
        """Return when a status may have to be written."""
        return next(iter(self._due.values()), None)

    def advance(self, now_ns: int) -> None:
        """Write the statuses that are due."""
        while self._due:
            name, due_ns = next(iter(self._due.items()))
            if 0 < due_ns - now_ns <= seconds(PAUSE_SECONDS):
                return
            del self._due[name]
            known, path = self._known.get(name), self._path_of(name[0])
            if known is not None and path:
                self._report(name, known, path)

    def _report(self, name: Object, known: tuple[str, Status], path: str) -> None:
        stands = self._stands(name)
        before = self._written.get(name, known[1])
        kind, namespace, own = name
        status = _KINDS[kind](stands or _NOBODY, before, path.rpartition("/")[0])
        if status is None or _is_within(status, before):
            return
        self._written[name] = status
        for key in ("conditions", "schedulingConditions"):
            for condition in status.get(key, ()):
                condition["lastTransitionTime"] = _since(condition, before, key) or self._now_text()
        group, _, plural = path.rpartition("/")
        where = f"{group}/namespaces/{namespace}/{plural}/{own}/status"
        body = {"metadata": {"uid": known[0]}, "status": status}
        how = STRATEGIC_PATCH if kind in (CORE, COMPOSITE) else MERGE_PATCH
        self._write(ToWrite(where, namespace, own, body, how))


_NOBODY = Standing(0, 0, 0, 0, 0, "")


def _coscheduling(stands: Standing, before: Status, _: str) -> dict[str, Any] | None:
    """Return phase and counts; a finished gang stays so when its pods are deleted."""
    if not stands.members and before.get("phase") in (None, "Finished"):
        return None
    return {
        "phase": _phase(stands),
        "scheduled": stands.placed,
        "running": stands.running,
        "succeeded": stands.done,
    }


def _phase(stands: Standing) -> str:
    minimum = max(stands.minimum, 1)
    if stands.done >= minimum:
        return "Finished"
    if stands.running + stands.done >= minimum:
        return "Running"
    if stands.is_scheduled:
        return "Scheduled"
    return "Scheduling" if stands.members >= minimum else "Pending"


def _kai(stands: Standing, before: Status, _: str) -> dict[str, Any] | None:
    """Return why it waits, in KAI's format."""
    if stands.is_scheduled or not stands.members:
        return {"schedulingConditions": []} if before.get("schedulingConditions") else None
    message = stands.why[:MAX_MESSAGE]
    reason = {"reason": "PodSchedulingErrors", "message": message}
    condition = _condition("UnschedulableOnNodePool", "True", "Unschedulable", message)
    of_pool = {**condition, "nodePool": _KAI_POOL, "reasons": [reason]}
    return {"schedulingConditions": [of_pool]}


def _core(stands: Standing, before: Status, version: str) -> dict[str, Any] | None:
    """Return the condition of whether it was scheduled; True is final."""
    is_first = version.endswith("/v1alpha2")
    kind = "PodGroupScheduled" if is_first else "PodGroupInitiallyScheduled"
    return _conditions(kind, stands, before)


def _composite(stands: Standing, before: Status, _: str) -> dict[str, Any] | None:
    return _conditions("CompositePodGroupInitiallyScheduled", stands, before)


def _conditions(kind: str, stands: Standing, before: Status) -> dict[str, Any] | None:
    there = {item.get("type"): item for item in before.get("conditions") or ()}
    found = (_scheduled(kind, stands, there.get(kind)), _disrupted(stands, there.get(DISRUPTION)))
    conditions = [each for each in found if each is not None]
    return {"conditions": conditions} if conditions else None


def _scheduled(kind: str, stands: Standing, was: Status | None) -> dict[str, Any] | None:
    if was is not None and was.get("status") == "True":
        return dict(was)
    if not stands.members and stands.reason != INVALID:
        return None
    if stands.is_scheduled:
        return _condition(kind, "True", "Scheduled", "")
    return _condition(kind, "False", stands.reason, stands.why[:MAX_MESSAGE])


def _disrupted(stands: Standing, was: Status | None) -> dict[str, Any] | None:
    """Return the condition that a group is evicted as a whole, until it is scheduled again."""
    if stands.disrupted:
        return _condition(DISRUPTION, "True", PREEMPTED, stands.disrupted[:MAX_MESSAGE])
    if was is None or was.get("reason") != PREEMPTED:
        return None
    if was.get("status") == "True" and stands.is_scheduled:
        return _condition(DISRUPTION, "False", PREEMPTED, "")
    return dict(was)


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _since(condition: Mapping[str, Any], before: Status, key: str) -> str:
    """Return since when a condition has its value, "" if it is new."""
    for item in before.get(key) or ():
        if (item.get("type"), item.get("status")) == (condition["type"], condition["status"]):
            return str(item.get("lastTransitionTime") or "")
    return ""


def _is_within(wanted: Any, there: Any) -> bool:
    """Whether all wanted values are there already; other values are ignored."""
    if isinstance(wanted, dict):
        return isinstance(there, Mapping) and all(
            name in there and _is_within(value, there[name]) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        is_same = isinstance(there, list) and len(there) >= len(wanted)
        return is_same and bool(wanted or not there) and all(
            any(_is_within(item, other) for other in there) for item in wanted
        )  # fmt: skip
    return bool(wanted == there)


_KINDS: dict[str, Callable[[Standing, Status, str], dict[str, Any] | None]] = {
    COSCHEDULING: _coscheduling,
    KAI: _kai,
    CORE: _core,
    COMPOSITE: _composite,
}
