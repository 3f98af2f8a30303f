"""Which pods are held back, and were never asked for: what ``why`` says of their applications.

Rule 1: a pod is held for one reason at a time, the last that was said; who is let go, or has gone,
        is held for none. One that was asked for is held where a right is missing, and for nothing
        else.
Rule 2: an application reports how many are held for each reason, and the MOST_NAMED that have
        been for longest; all again when something of it changes, at most once in TELL_SECONDS.
Rule 3: of several messages of one reason the one of its first pod is reported, and how many have
        others. Who asks for a pod (``find``) gets that pod's own, whichever of them it is.
Pure. What is kept is a row a pod that the cluster has. A pod costs the same however many are held.
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
    """An application's pods, and how many there are of each message, by reason."""

    pods: dict[Reason, dict[str, _Pod]] = field(default_factory=dict)
    messages: dict[tuple[Reason, str], int] = field(default_factory=dict)


class HeldPods:
    """``advance`` returns what is to be reported of applications."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._held: dict[Application, _Held] = {}
        self._changed: dict[Application, None] = {}  # since they were told of
        self._late: dict[Application, None] = {}  # changed, and told of lately
        self._told: dict[Application, int] = {}  # lately, and when, in that order

    def hold(
        self, uid: str, application: Application, name: str, why: tuple[Reason, str], since_ns: int
    ) -> None:
        """Take in that a pod of an application is held back; again for the same changes nothing."""
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
        """Take in that a pod is held back no more, ``but`` for this one reason."""
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
        """Return what a pod is held back for."""
        pod = self._pods.get(uid)
        return None if pod is None else pod.reason

    def find(self, name: str) -> PodFound | None:
        """Return a pod by its uid, else one of this name, with what it says itself; None: none."""
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
        """Return the news of every application that has changed and was not reported lately."""
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
        """Yield what an application's pods are held back for, the most of them first."""
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
