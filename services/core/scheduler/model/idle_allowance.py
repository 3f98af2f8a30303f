"""The allowance for nodes that are idle because the head gang claims them.

Measured is an amount of the gang's first requested type (GPU, vcore, memory, others) times ns: what
is free on the claimed nodes. There are three allowances, each a part of the cluster times a period;
they refill with time up to that size, and only idle time due to predicted ends is charged. Claims
by stated ends are not charged.

Rule 1: in a DAY at most the configured share, in a WEEK at most a quarter of that (WEEKLY).
Rule 2: for a head gang that has waited long (``actions/head_gang.py``), in a WEEK at most LONG_WAIT
        times the share. It is charged to the others too, which may become negative: no other gang
        has nodes claimed until they are refilled.
"""

from dataclasses import dataclass, field

from shared.model.units import seconds

DAY_NS, WEEK_NS = seconds(86_400), seconds(7 * 86_400)
WEEKLY = 4  # over a week the allowance is a quarter of a day's rate
LONG_WAIT = 2  # times the share, over a week, for a gang that has waited long
_PARTS = 10_000  # unit of amounts, so that shares of small clusters are whole numbers
Share = tuple[int, int]  # numerator, denominator


@dataclass(slots=True)
class _Allowance:
    """The idle time left, in parts of an amount times ns; it starts full."""

    period_ns: int
    times: int
    divided_by: int
    size: int = 0
    share: Share = (0, 1)
    left: int = 0

    def size_to(self, size: int, share: Share) -> None:
        """Set the size of the cluster and the share; what has been used stays used."""
        if (size, share) == (self.size, self.share):
            return
        used = self.most - self.left
        self.size, self.share = size, share
        self.left = self.most - used

    @property
    def rate(self) -> int:
        """Return how much it refills in a ns."""
        number, of = self.share
        return self.size * _PARTS * number * self.times // (of * self.divided_by)

    @property
    def most(self) -> int:
        """Return its full size."""
        return self.rate * self.period_ns

    def pass_time(self, by_ns: int, idle: int) -> None:
        """Refill and charge for a time in which an amount was idle."""
        self.left = min(self.most, self.left + (self.rate - idle * _PARTS) * by_ns)

    def ends_in_ns(self, idle: int) -> int:
        """Return how long it lasts with an idle amount; 0: without end."""
        used = idle * _PARTS - self.rate
        return max(0, self.left) // used + 1 if used > 0 else 0


@dataclass(slots=True)
class IdleAllowance:
    """The idle amount since ``at_ns``, its past total, and the allowances.

    ``total`` is an amount times ns, for a metric only; ``name`` the measured type.
    """

    name: str = ""
    at_ns: int = 0
    idle: int = 0
    is_charged: bool = False
    waited_long: bool = False
    total: int = 0
    size: int = 0
    size_ns: int = 0  # the size of the cluster times ns, while measured
    day: _Allowance = field(default_factory=lambda: _Allowance(DAY_NS, 1, 1))
    week: _Allowance = field(default_factory=lambda: _Allowance(WEEK_NS, 1, WEEKLY))
    long_wait: _Allowance = field(default_factory=lambda: _Allowance(WEEK_NS, LONG_WAIT, 1))

    @property
    def _all(self) -> tuple[_Allowance, ...]:
        return self.day, self.week, self.long_wait

    def _of(self, *, waited_long: bool) -> tuple[_Allowance, ...]:
        """Return the allowances for a gang."""
        return (self.long_wait,) if waited_long else (self.day, self.week)

    def pass_time(self, now_ns: int) -> None:
        """Charge the idle time until now."""
        by_ns = now_ns - self.at_ns if self.at_ns else 0
        self.at_ns = now_ns
        if by_ns <= 0:
            return
        self.total += self.idle * by_ns
        self.size_ns += self.size * by_ns
        for allowance in self._all:
            allowance.pass_time(by_ns, self.idle if self.is_charged else 0)

    def configure(self, name: str, size: int, share: Share) -> None:
        """Set the measured type, the size of the cluster, and the allowed share."""
        self.name, self.size = name, size
        for allowance in self._all:
            allowance.size_to(size, share)

    def set_idle(self, idle: int, *, is_charged: bool, waited_long: bool) -> None:
        """Set the idle amount from now on."""
        self.idle, self.is_charged, self.waited_long = idle, is_charged, waited_long

    def suffice_for(self, expected: int, *, waited_long: bool) -> bool:
        """Whether the allowances cover at least half of an expected amount times ns.

        Expected idle times are more often too long than too short.
        """
        left = min(allowance.left for allowance in self._of(waited_long=waited_long))
        return left > 0 and expected * _PARTS <= 2 * left

    def ends_in_ns(self) -> int:
        """Return how long the present idle amount may continue; 0: without end."""
        if not self.is_charged:
            return 0
        ends = [each.ends_in_ns(self.idle) for each in self._of(waited_long=self.waited_long)]
        return min((end for end in ends if end), default=0)

    @property
    def share_ppm(self) -> int:
        """Return the idle part of the cluster in millionths, while measured."""
        return 1_000_000 * self.total // self.size_ns if self.size_ns else 0
