"""How soon pods of an application that was rejected are failed: later, the oftener they come again.

A controller makes another pod for every one that fails, at once and for ever: a Deployment that
names a queue there is not would be as many pods as its controller can make. What there was at the
first rejection fails at once; what has come since, after a pause that doubles with every round.
Pure. Limit: MAX_APPLICATIONS are remembered; of those before them the next round is a first one.
"""

from services.shim_adapter.records import PodRecord

MAX_PAUSE_SECONDS = 300.0  # seconds before a pod fails whose predecessors have failed; no longer
MAX_APPLICATIONS = 10_000  # applications with failed pods; the oldest are forgotten
_FAILED_ANEW = ("ApplicationRejected", "AskRejected")


class Failing:
    """The rounds, by application."""

    def __init__(self) -> None:
        self._rounds: dict[str, tuple[int, int]] = {}  # how many, and the last pod of the last one

    def pause_before(self, pod: PodRecord, reason: str, pods_made: int) -> float:
        """Return how many seconds are to pass before a pod is failed for a reason."""
        if reason not in _FAILED_ANEW:
            return 0.0
        application = pod.spec.application_id
        rounds, last = self._rounds.pop(application, (-1, -1))
        if pod.sequence > last:
            rounds, last = rounds + 1, pods_made
        self._rounds[application] = rounds, last
        if len(self._rounds) > MAX_APPLICATIONS:
            del self._rounds[next(iter(self._rounds))]
        return min(2.0 ** min(rounds, 10) - 1.0, MAX_PAUSE_SECONDS)
