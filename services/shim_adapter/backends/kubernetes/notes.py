"""Conditions and events at pods, and statuses of PodGroups, for users and autoscalers.

Each is an operation that may be dropped if there are too many (``operations.py``, rule 5).
"""

from collections.abc import Callable

from services.shim_adapter.backends.kubernetes import bodies
from services.shim_adapter.backends.kubernetes.group_status import ToWrite
from services.shim_adapter.backends.kubernetes.objects import UNSCHEDULABLE, PodView
from services.shim_adapter.backends.kubernetes.operations import Operation
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec

SCHEDULER_ERROR = "SchedulerError"
MAX_REFUSED = 5_000  # remembered; of those before them the same may be said again


class Notes:
    """Writes each note once. ``now_text`` returns the time, ``instance`` signs events."""

    def __init__(
        self, operate: Callable[[Operation], None], now_text: Callable[[], str], instance: str
    ) -> None:
        self._operate = operate
        self._now_text = now_text
        self._instance = instance
        self._marked: dict[str, None] = {}  # as Unschedulable
        self._nominated: dict[str, str] = {}  # and the node
        self._refused: dict[str, str] = {}  # reasons of pods that cannot be scheduled

    def write(
        self, pod: PodRecord, reason: str, note: str, *, is_warning: bool = False, action: str = ""
    ) -> None:
        """Write an event about a pod."""
        body = bodies.event(
            pod,
            reason,
            note,
            instance=self._instance,
            now=self._now_text(),
            is_warning=is_warning,
            action=action,
        )
        self._operate(Operation("note", pod, body))

    def mark(self, pod: PodRecord, message: str) -> None:
        """Mark a pod as unschedulable for autoscalers, once: they read the time of the first mark.

        The event ``FailedScheduling`` repeats the condition's message, as with kube-scheduler.
        """
        if pod.uid not in self._marked:
            self._marked[pod.uid] = None
            body = bodies.not_scheduled(
                pod.uid, UNSCHEDULABLE, message, self._now_text(), generation=pod.generation
            )
            self._operate(Operation("note", pod, body))
            name = f"{pod.spec.namespace}/{pod.spec.name}"
            text = f"Task {name} is pending for the requested resources become available"
            self.write(pod, "PodUnschedulable", text)
            self.write(pod, "FailedScheduling", message, is_warning=True)

    def nominate(self, pod: PodRecord, node: str) -> None:
        """Write a pod's nominated node, for other schedulers."""
        if self._nominated.get(pod.uid, "") == node:
            return
        self._nominated[pod.uid] = node
        if not node:
            del self._nominated[pod.uid]
        self._operate(Operation("note", pod, bodies.nominated(pod.uid, node)))

    def preempted(self, pod: PodRecord, why: str) -> None:
        """Write at a victim that it is evicted, and why."""
        body = bodies.preempted(pod.uid, why, self._now_text())
        self._operate(Operation("note", pod, body))
        self.write(pod, "Preempted", why, is_warning=True)

    def spared(self, pod: PodRecord, why: str) -> None:
        """Write at a victim that its eviction was refused."""
        body = bodies.preempted(pod.uid, why, self._now_text(), is_so=False)
        self._operate(Operation("note", pod, body))
        self.write(pod, "PreemptionRefused", why)

    def refuse(self, view: PodView, error: str, now_ns: int) -> None:
        """Write at a pod why it cannot be scheduled, once for every reason."""
        if view.node or view.is_deleting or self._refused.get(view.uid) == error:
            return
        self._refused[view.uid] = error
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        spec = PodSpec(view.name, "", {}, namespace=view.namespace)
        pod = PodRecord(view.uid, spec, now_ns, 0)
        note = bodies.not_scheduled(
            view.uid, SCHEDULER_ERROR, error, self._now_text(), generation=view.generation
        )
        self._operate(Operation("note", pod, note))
        self.write(pod, "FailedScheduling", error, is_warning=True)

    def status(self, status: ToWrite) -> None:
        """Write a PodGroup's status."""
        pod = PodRecord("", PodSpec(status.name, "", {}, namespace=status.namespace), 0, 0)
        body = dict(status.body)
        self._operate(Operation("note", pod, body, path=status.path, how=status.content_type))

    def taken_in(self, view: PodView) -> None:
        """Record that a pod is scheduled now, and its existing marks."""
        self._refused.pop(view.uid, None)
        if view.is_marked:
            self._marked[view.uid] = None
        if view.nominated:
            self._nominated[view.uid] = view.nominated

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._refused.pop(uid, None)
        self._marked.pop(uid, None)
        self._nominated.pop(uid, None)
