"""How long a host waits for more messages before it takes the next batch. Pure.

When idle, a message is handled at once. While messages arrive faster than batches are handled, a
larger batch costs no more: the host pauses after each batch, twice as long each time, and half as
long once messages arrive more slowly. A pause is at most MAX_PAUSE_NS, and twice what a batch
takes.
"""

from shared.model.units import milliseconds

MAX_PAUSE_NS = milliseconds(8)  # ns between two batches; what arrives meanwhile is one batch
_LEAST_NS = milliseconds(1)
_SEVERAL = 2  # messages; a single one shows that nothing gathered


class Spacing:
    """The pause of one host. With ``most_ns`` 0 it never pauses."""

    def __init__(self, most_ns: int = 0) -> None:
        self._most_ns = most_ns
        self._pause_ns = 0
        self._is_full = False

    @property
    def pause_ns(self) -> int:
        """Current pause in nanoseconds; 0 after a full batch, because more messages wait."""
        return 0 if self._is_full else self._pause_ns

    def took(self, messages: int, *, idle_ns: int, spent_ns: int, is_full: bool) -> None:
        """Record a batch: the wait for its first message, and the time to handle all of it."""
        self._is_full = is_full
        if messages >= _SEVERAL and idle_ns <= spent_ns:
            longer = max(_LEAST_NS, 2 * self._pause_ns)
            self._pause_ns = min(longer, self._most_ns, 2 * spent_ns)
        else:
            self._pause_ns = self._pause_ns // 2 if self._pause_ns > _LEAST_NS else 0
