"""The pods held back before they become asks, with the reasons that ``muster why`` shows.

Rule 1: a pod is held back for one reason at a time, the latest. A pod that was asked for is held
        back only for a missing right.
Rule 2: an application's report has the number of pods for each reason, and the MOST_NAMED that have
        waited longest; it is sent completely when anything changes, at most once in TELL_SECONDS.
Rule 3: of several messages for one reason, the first pod's is reported, with the number of pods
        that have others. ``find`` returns the pod's own message.
Pure. There is one row per held-back pod, and the cost per pod does not depend on their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from services.shim_adapter.mirror.calls import News, PodsHeldBack
from shared.messages.find_pod import PodFound
from shared.messages.interface import HeldFor, PodsHeld
from shared.model.reasons import Reason
from shared.model.units import seconds

TELL_SECONDS = 1  # between two reports on one application; what changes in between comes with it
MOST_NAMED = 20  # names of pods shown for a reason; the others are counted
MAX_MESSAGE = 1_000  # characters of the reason why a pod is held back; cut

Application = tuple[str, str]  # its partition, as pods name it, and its id


@dataclass(frozen=True, slots=True)
class _Pod:
    application: Application
    reason: Reason
    name: str
    message: str
    since_ns: int


@dataclass(slots=True)
class _Held:
    """An application's held-back pods by reason, and the number of pods with each message."""

    pods: dict[Reason, dict[str, _Pod]] = field(default_factory=dict)
    messages: dict[tuple[Reason, str], int] = field(default_factory=dict)


class HeldPods:
    """The held-back pods; ``advance`` returns the reports of applications."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._held: dict[Application, _Held] = {}
        self._changed: dict[Application, None] = {}  # since the last report
        self._late: dict[Application, None] = {}  # changed, but recently reported
        self._told: dict[Application, int] = {}  # time of recent reports, in order

    def hold(
        self, uid: str, application: Application, name: str, why: tuple[Reason, str], since_ns: int
    ) -> None:
        """Hold a pod back; repeating it with the same reason changes nothing."""
        reason, message = why[0], why[1][:MAX_MESSAGE]
        known = self._pods.get(uid)
        if known is not None:
            if (known.application, known.reason, known.message) == (application, reason, message):
                return
            self.free(uid)
        pod = self._pods[uid] = _Pod(application, reason, name, message, since_ns)
        held = self._held.setdefault(application, _Held())
        held.pods.setdefault(reason, {})[uid] = pod
        held.messages[reason, message] = held.messages.get((reason, message), 0) + 1
        self._change(application)

    def free(self, uid: str, but: Reason | None = None) -> None:
        """Stop holding a pod back, unless its reason is ``but``."""
        pod = self._pods.get(uid)
        if pod is None or pod.reason is but:
            return
        del self._pods[uid]
        held = self._held[pod.application]
        pods = held.pods[pod.reason]
        del pods[uid]
        if not pods:
            del held.pods[pod.reason]
        message = pod.reason, pod.message
        held.messages[message] -= 1
        if not held.messages[message]:
            del held.messages[message]
        if not held.pods:
            del self._held[pod.application]
        self._change(pod.application)

    def reason_of(self, uid: str) -> Reason | None:
        """Return why a pod is held back, or None."""
        pod = self._pods.get(uid)
        return None if pod is None else pod.reason

    def find(self, name: str) -> PodFound | None:
        """Return a pod by its uid, else one of this name, with its own message; else None."""
        uid, pod = name, self._pods.get(name)
        if pod is None:
            named = ((uid, pod) for uid, pod in self._pods.items() if pod.name == name)
            uid, pod = next(named, (name, None))
        if pod is None:
            return None
        partition, application = pod.application
        pods = len(self._held[pod.application].pods[pod.reason])
        held = HeldFor(pod.reason, pod.message, pods, pod.since_ns, (uid,), (pod.name,))
        return PodFound(application, partition, pod.name, held)

    def next_due_ns(self) -> int | None:
        """When the rate limit allows the next update."""
        if self._changed:
            return 0
        return next(iter(self._told.values())) + seconds(TELL_SECONDS) if self._late else None

    def advance(self, now_ns: int) -> list[News]:
        """Return the reports of changed applications that the rate limit allows now."""
        while self._told:
            application, told_ns = next(iter(self._told.items()))
            if 0 <= now_ns - told_ns < seconds(TELL_SECONDS):
                break
            del self._told[application]
            if self._late.pop(application, True) is None:
                self._changed[application] = None
        changed, self._changed = self._changed, {}
        self._told |= dict.fromkeys(changed, now_ns)
        return [
            PodsHeldBack(partition, PodsHeld(name, tuple(self._rows((partition, name)))))
            for partition, name in changed
        ]

    def _change(self, application: Application) -> None:
        changed = self._late if application in self._told else self._changed
        changed[application] = None

    def _rows(self, application: Application) -> Iterator[HeldFor]:
        """Yield why an application's pods are held back, the most frequent reason first."""
        held = self._held.get(application, _Held())
        for reason, pods in sorted(held.pods.items(), key=lambda item: -len(item[1])):
            first = next(iter(pods.values()))
            others = len(pods) - held.messages[reason, first.message]
            more = f" ({others} of {len(pods)} pods say something else)" if others else ""
            named = list(islice(pods.items(), MOST_NAMED))
            yield HeldFor(
                reason,
                f"{first.message}{more}",
                len(pods),
                first.since_ns,
                tuple(uid for uid, _ in named),
                tuple(pod.name for _, pod in named),
            )
