"""Detects, on a standby, that an inbox has no working reader, by its message count. Pure.

A standby checks LOOKS times in ``silent_ns``. Between two checks no message was read if no fewer
wait than before, and at least as many as the standby has published itself meanwhile; heartbeats in
transit to a reader are fewer. If that holds for all checks but the first, the inbox has no reader.
This is known at the latest ``silent_ns`` after the last message was read.
Limit: a reader that falls behind for that long looks the same.
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
        self._own = 0  # heartbeats confirmed since the last check
        self._before = -1  # messages that waited then; -1 before the first check
        self._times = 0  # consecutive checks at which nothing had been read

    def put_in(self) -> bool:
        """Count a confirmed heartbeat; return whether to check the inbox."""
        self._own += 1
        return LOOKS * self._own * self._heartbeat_ns >= self._silent_ns

    def saw(self, waiting: int) -> bool:
        """Record how many messages wait; return whether the inbox has no working reader."""
        is_untouched = 0 <= self._before <= waiting and waiting >= self._own
        self._times = self._times + 1 if is_untouched else 0
        self._before, self._own = waiting, 0
        return self._times >= LOOKS - 1
