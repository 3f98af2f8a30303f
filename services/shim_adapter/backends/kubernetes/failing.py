"""Delays the failing of pods of a rejected application, longer with each round.

A controller replaces every failed pod at once and for ever: a Deployment with an unknown queue
would create pods without end. The pods of the first rejection fail at once, later ones after a
pause that doubles with every round. Pure. Limit: MAX_APPLICATIONS are remembered; of older ones the
next round is the first again.
"""

from services.shim_adapter.records import PodRecord

MAX_PAUSE_SECONDS = 300.0  # seconds before a pod fails whose predecessors have failed; no longer
MAX_APPLICATIONS = 10_000  # applications with failed pods; the oldest are forgotten
_FAILED_ANEW = ("ApplicationRejected", "AskRejected")


class Failing:
    """The rounds of each application."""

    def __init__(self) -> None:
        self._rounds: dict[str, tuple[int, int]] = {}  # how many, and the last pod of the last one

    def pause_before(self, pod: PodRecord, reason: str, pods_made: int) -> float:
        """Return the pause in seconds before a pod is failed for a reason."""
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
