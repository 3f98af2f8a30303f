"""Whether an inbox has no working reader, judged by a standby from the number of messages. Pure.

A standby looks LOOKS times in ``silent_ns``. Between two looks nothing was taken if no fewer wait
than before, and as many at least as it has put in itself meanwhile: of heartbeats that are on their
way to a reader there are fewer. Nobody reads where that is so of all looks but the first: so it is
known ``silent_ns`` after the last message was taken, at the latest.
Limit: a reader that falls behind for as long looks the same.
"""

LOOKS = 3


class Unread:
    """A standby's counts of its inbox since the last delivery."""

    def __init__(self, heartbeat_ns: int, silent_ns: int) -> None:
        self._heartbeat_ns = heartbeat_ns
        self._silent_ns = silent_ns
        self.forget()

    def forget(self) -> None:
        """Start over: a message arrived, or the place is a new one."""
        self._own = 0  # heartbeats confirmed since the look before
        self._before = -1  # messages that waited then; none has been yet
        self._times = 0  # in a row that nothing was taken between two looks

    def put_in(self) -> bool:
        """Count a confirmed heartbeat; return whether to check the inbox."""
        self._own += 1
        return LOOKS * self._own * self._heartbeat_ns >= self._silent_ns

    def saw(self, waiting: int) -> bool:
        """Note how many messages wait now; return whether no instance reads."""
        is_untouched = 0 <= self._before <= waiting and waiting >= self._own
        self._times = self._times + 1 if is_untouched else 0
        self._before, self._own = waiting, 0
        return self._times >= LOOKS - 1
