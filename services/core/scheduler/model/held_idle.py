"""For how long nodes that are held for the head gang stand idle, and for how long they may.

Counted is an amount of what the gang asks for first of GPUs, vcore, memory and others, times ns:
of that type what is free on the nodes that are held. There are three allowances, each a share of
the cluster times a period; all fill with time, up to the whole of it, and only idle time on account
of ends that nobody has stated is taken from them. What is stated is a promise, and is kept.
Rule 1: in a DAY no more than the share that is set, in a WEEK no more than a WEEKLY of that.
Rule 2: for a head gang that has waited long (``actions/lane.py``) in a WEEK no more than LONG_WAIT
        times the share. It is taken from the others too, which may fall below 0: no other gang has
        nodes held until they are filled again.
"""

from dataclasses import dataclass, field

from shared.model.units import seconds

DAY_NS, WEEK_NS = seconds(86_400), seconds(7 * 86_400)
WEEKLY = 4  # a day may be dear, but not each: over a week a quarter of what a day may have
LONG_WAIT = 2  # times the share, over a week: what may stand idle for one that has waited long
_PARTS = 10_000  # of an amount, so that shares of small clusters are whole numbers
Share = tuple[int, int]  # so many of how many


@dataclass(slots=True)
class _Allowance:
    """So much may stand idle now, in parts of an amount times ns; it is full when made."""

    period_ns: int
    times: int
    divided_by: int
    size: int = 0
    share: Share = (0, 1)
    left: int = 0

    def size_to(self, size: int, share: Share) -> None:
        """Let it be of a cluster of this size; what has been used of it stays used."""
        if (size, share) == (self.size, self.share):
            return
        used = self.most - self.left
        self.size, self.share = size, share
        self.left = self.most - used

    @property
    def rate(self) -> int:
        """Return by how much it fills in a ns."""
        number, of = self.share
        return self.size * _PARTS * number * self.times // (of * self.divided_by)

    @property
    def most(self) -> int:
        """Return what it is when it is full."""
        return self.rate * self.period_ns

    def pass_time(self, by_ns: int, idle: int) -> None:
        """Let time pass while so much stands idle."""
        self.left = min(self.most, self.left + (self.rate - idle * _PARTS) * by_ns)

    def ends_in_ns(self, idle: int) -> int:
        """Return for how long that may go on; 0: for ever."""
        used = idle * _PARTS - self.rate
        return max(0, self.left) // used + 1 if used > 0 else 0


@dataclass(slots=True)
class HeldIdle:
    """What stands idle from ``at_ns`` on, and what has so far: in all, and of the allowances.

    ``total`` is an amount times ns, of which only a metric is made; ``name`` what is counted.
    """

    name: str = ""
    at_ns: int = 0
    idle: int = 0
    is_charged: bool = False
    waited_long: bool = False
    total: int = 0
    size: int = 0
    size_ns: int = 0  # the size of the cluster times ns, while anything was counted
    day: _Allowance = field(default_factory=lambda: _Allowance(DAY_NS, 1, 1))
    week: _Allowance = field(default_factory=lambda: _Allowance(WEEK_NS, 1, WEEKLY))
    long_wait: _Allowance = field(default_factory=lambda: _Allowance(WEEK_NS, LONG_WAIT, 1))

    @property
    def _all(self) -> tuple[_Allowance, ...]:
        return self.day, self.week, self.long_wait

    def _of(self, *, waited_long: bool) -> tuple[_Allowance, ...]:
        """Return the allowances that hold for a gang."""
        return (self.long_wait,) if waited_long else (self.day, self.week)

    def pass_time(self, now_ns: int) -> None:
        """Count what has stood idle until now."""
        by_ns = now_ns - self.at_ns if self.at_ns else 0
        self.at_ns = now_ns
        if by_ns <= 0:
            return
        self.total += self.idle * by_ns
        self.size_ns += self.size * by_ns
        for allowance in self._all:
            allowance.pass_time(by_ns, self.idle if self.is_charged else 0)

    def count(self, name: str, size: int, share: Share) -> None:
        """Count this type from now on, of a cluster of this size of which a share may be idle."""
        self.name, self.size = name, size
        for allowance in self._all:
            allowance.size_to(size, share)

    def hold(self, idle: int, *, is_charged: bool, waited_long: bool) -> None:
        """Let so much stand idle from now on."""
        self.idle, self.is_charged, self.waited_long = idle, is_charged, waited_long

    def suffice_for(self, expected: int, *, waited_long: bool) -> bool:
        """Return whether the allowances are there for so much, an amount times ns, or half of it.

        What is expected is more often too long than too short, as those who wait long are told.
        """
        left = min(allowance.left for allowance in self._of(waited_long=waited_long))
        return left > 0 and expected * _PARTS <= 2 * left

    def ends_in_ns(self) -> int:
        """Return for how long it may go on as it is; 0: for ever."""
        if not self.is_charged:
            return 0
        ends = [each.ends_in_ns(self.idle) for each in self._of(waited_long=self.waited_long)]
        return min((end for end in ends if end), default=0)

    @property
    def share_ppm(self) -> int:
        """Return how many millionths of the cluster have stood idle while anything was counted."""
        return 1_000_000 * self.total // self.size_ns if self.size_ns else 0
