"""Usage over time of queues and users: amounts times time, halved with every half-life.

Rule 1: usage of a type is the sum of amount x time, weighed by half for each half-life that has
        passed since. Without a half-life all of the window counts equally; with a window everything
        is dropped when the next one begins.
Rule 2: nothing is decayed step by step. A clock reads 2^(t / half-life), and a row adds amount x
        the difference of two readings: later usage weighs more, instead of earlier usage less. So
        one long step and many short ones give the same integer, a parent's sum is that of its
        children, and in a ratio of two sums the common factor cancels.
Rule 3: readings are integers: 2^BITS at the start of a period of PERIOD half-lives, rounded down.
        At the end of a period every sum is divided by 2^PERIOD, rounded down. A reading is exact to
        2^-47 of itself and to the ns; a division loses less than an amount x a 2^-BITS of a
        half-life.
Rule 4: a ratio is in billionths, rounded down. Periods and windows are counted from a Monday,
        1970-01-05 00:00 UTC. Time arrives with messages; nothing here reads a clock. Source:
        Cormode et al. 2009, Forward decay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import isqrt

from shared.model.resources import Resource, ResourceView
from shared.model.units import seconds

BITS = 48  # binary digits of a reading behind the point
PERIOD = 32  # half-lives after which all sums are divided, to keep them small
MAX_ROWS = 20_000  # queues, and users of queues, with usage over time; the oldest is forgotten
REPORT_NS = seconds(60)  # shortest time between two reports
PUBLISHED_PPM = 1_000  # change that is published, in millionths of the cluster
RANK_NS = seconds(10)  # how long ranks are valid
MONDAY_NS = seconds(4 * 86_400)
BILLION = 1_000_000_000
WEIGHTLESS = BILLION**3  # the rank for a weight of 0
NO_WEIGHTS: Mapping[str, Fraction] = {}
_BASE = 1 << BITS  # the reading at the start of a period
_TOP = _BASE << PERIOD  # at its end
_SETTLED = 8  # periods after which earlier usage is less than a unit
_FINE = 96  # binary digits of the factors
_LN2, _LN2_OF = 693_147_180_559_945_309, 10**18
_PPB = Fraction(1, BILLION)


def _factors() -> tuple[int, ...]:
    """Return 2^(1/2), 2^(1/4), ... by BITS square roots."""
    found, last = [], 2 << _FINE
    for _ in range(BITS):
        last = isqrt(last << _FINE)
        found.append(last)
    return tuple(found)


_FACTORS = _factors()


def _power(fraction: int) -> int:
    """Return 2^(fraction / 2^BITS) in units of 2^-BITS; ``fraction`` is below 2^BITS."""
    result = 1 << _FINE
    for at, factor in enumerate(_FACTORS):
        if fraction >> (BITS - 1 - at) & 1:
            result = result * factor >> _FINE
    return result >> (_FINE - BITS)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as the clock reads it: its window, its period, and the reading."""

    at_ns: int
    window: int
    period: int
    reading: int


@dataclass(slots=True, eq=False, repr=False)
class Usage:
    """The usage of one queue, one user or the cluster, by type, up to a moment."""

    at: Moment | None = None  # None: not started
    has_grown: bool = False  # since the last report
    published_ppm: Resource = field(default_factory=dict)  # the last published ratios
    sums: Resource = field(default_factory=dict)


class UsageClock:
    """The clock of one partition. ``half_life_ns`` 0: no decay; ``window_ns`` 0: no window.

    ``capacity`` is the cluster's own sum, the reference of ratios. ``rows`` are by the queue's path
    and the user's name, "" for the queue itself; rows of removed dynamic queues stay.
    """

    def __init__(self, half_life_ns: int, window_ns: int, now_ns: int) -> None:
        self.half_life_ns = half_life_ns
        self.window_ns = window_ns
        self.now_ns = now_ns
        self.cluster: ResourceView = {}  # the cluster's capacity
        self.capacity = Usage()
        self.rows: dict[tuple[str, str], Usage] = {}
        self.reported_ns = 0
        self.ranked_until_ns = 0
        self._ahead: dict[str, int] = {}  # the cluster's sums at ``ranked_until_ns``
        self._step = 0  # the reading's growth until then
        self._ahead_of: Moment | None = None  # the moment these two were computed for
        self._is_held = False
        self._moment: Moment | None = None

    def pass_time(self, now_ns: int) -> None:
        """Advance the clock."""
        self.now_ns = now_ns
        if not self._is_held:
            self._moment = None

    def hold(self, at_ns: int) -> None:
        """Stop the clock at a time until ``resume``: the recovered state counts from then on."""
        self._is_held = True
        self._moment = self.moment_at(min(at_ns, self.now_ns))

    def resume(self) -> None:
        """Read the present time again."""
        self._is_held = False
        self._moment = None

    def row_of(self, queue: str, user: str = "") -> Usage:
        """Return the row of a queue, or of a user in it."""
        row = self.rows.get((queue, user))
        if row is None:
            if len(self.rows) >= MAX_ROWS:
                del self.rows[next(iter(self.rows))]
            row = self.rows[queue, user] = Usage()
        return row

    @property
    def moment(self) -> Moment:
        """Return the present moment."""
        if self._moment is None:
            self._moment = self.moment_at(self.now_ns)
        return self._moment

    def moment_at(self, at_ns: int) -> Moment:
        """Return a time as this clock reads it."""
        since_ns = max(0, at_ns - MONDAY_NS)
        window = since_ns // self.window_ns if self.window_ns else 0
        period = since_ns // (PERIOD * self.half_life_ns) if self.half_life_ns else 0
        return Moment(at_ns, window, period, self._reading(since_ns, period))

    def _reading(self, since_ns: int, period: int) -> int:
        """Return the reading at a time, relative to the start of a period."""
        if not self.half_life_ns:
            return since_ns
        whole, rest = divmod(since_ns - period * PERIOD * self.half_life_ns, self.half_life_ns)
        return _power((rest << BITS) // self.half_life_ns) << whole

    def set_cluster(self, amount: ResourceView) -> None:
        """Set the cluster's capacity from now on."""
        self.advance_capacity()
        self.cluster = amount
        self._ahead_of = None

    def advance_capacity(self) -> None:
        """Update the cluster's sum to now."""
        self.advance(self.capacity, self.cluster)

    def advance(self, usage: Usage, held: ResourceView) -> None:
        """Update a row to now, given the amount used since its last moment."""
        now, at = self.moment, usage.at
        if at is None:
            usage.at = now
        elif at is not now:
            if (at.window, at.period) != (now.window, now.period):
                at = self._turn(usage, held, at, now)
            _add(usage.sums, held, now.reading - at.reading)
            usage.has_grown = usage.has_grown or bool(held)
            usage.at = now

    def _turn(self, usage: Usage, held: ResourceView, at: Moment, now: Moment) -> Moment:
        """Move a row into the present window and period; return its moment."""
        if at.window != now.window:
            usage.sums.clear()
            at = self.moment_at(MONDAY_NS + now.window * self.window_ns)
        periods, sums = now.period - at.period, usage.sums
        if periods > _SETTLED:
            sums.clear()
            _add(sums, held, _BASE)
        for _ in range(periods if periods <= _SETTLED else 0):
            _add(sums, held, _TOP - at.reading)
            for name in sums:
                sums[name] >>= PERIOD
            at = replace(now, reading=_BASE)
        return replace(now, reading=_BASE) if periods > 0 else at

    def share_ppb(self, usage: Usage, name: str) -> int:
        """Return a row's ratio to the cluster's sum of a type, in billionths.

        Both must be up to date. 0 if the cluster never had the type.
        """
        capacity = self.capacity.sums.get(name, 0)
        return usage.sums.get(name, 0) * BILLION // capacity if capacity else 0

    def share(self, usage: Usage, name: str) -> Fraction:
        """Return the same as a fraction."""
        return self.share_ppb(usage, name) * _PPB

    def rank_from_now(self) -> None:
        """Start a new ranking period; all ranks must be computed again."""
        self.ranked_until_ns = self.now_ns + RANK_NS
        self._ahead_of = None

    def rank(
        self,
        usage: Usage,
        held: ResourceView,
        weight: Fraction = Fraction(1),
        weights: Mapping[str, Fraction] = NO_WEIGHTS,
    ) -> int:
        """Return a row's rank in billionths: its largest ratio over types, divided by its weight.

        It is the value at the end of the ranking period if ``held`` is used until then, so that
        what has just started counts at once. All ranks of a period are comparable. A weight of 0
        gives WEIGHTLESS, which sorts last. ``weights`` are for some types.
        """
        largest = 0 if weight else WEIGHTLESS
        ahead, step = self._at_ranking()
        sums = self._sums_now(usage)
        for name in {**sums, **held} if held else sums:
            most, own = ahead.get(name, 0), weights.get(name, weight)
            value = sums.get(name, 0) + held.get(name, 0) * step
            if not own:
                return WEIGHTLESS
            if most:
                part = value * BILLION * own.denominator // (most * own.numerator)
                largest = max(largest, part)
        return largest

    def _sums_now(self, usage: Usage) -> ResourceView:
        """Return a row's sums scaled to the present period."""
        at, now = usage.at or self.moment, self.moment
        if at.window != now.window:
            return {}
        if at.period == now.period:
            return usage.sums
        digits = PERIOD * (now.period - at.period)
        return {name: value >> digits for name, value in usage.sums.items()}

    def _at_ranking(self) -> tuple[dict[str, int], int]:
        """Return the cluster's sums at the end of the ranking period, and the reading's growth."""
        if self._ahead_of is not self.moment:
            self._ahead_of = now = self.moment
            since_ns = max(self.ranked_until_ns, self.now_ns) - MONDAY_NS
            self._step = max(0, self._reading(max(0, since_ns), now.period) - now.reading)
            self.advance_capacity()
            self._ahead = dict(self.capacity.sums)
            _add(self._ahead, self.cluster, self._step)
        return self._ahead, self._step

    def amounts_ns(self, usage: Usage) -> Resource:
        """Return a row's usage in amounts x ns, as weighed at its moment."""
        if not self.half_life_ns or usage.at is None:
            return dict(usage.sums)
        per = _LN2 * usage.at.reading
        return {
            name: value * self.half_life_ns * _LN2_OF // per for name, value in usage.sums.items()
        }

    def usage_of(self, amounts_ns: ResourceView, at_ns: int) -> Usage:
        """Return a row for a usage in amounts x ns, as weighed at a time."""
        at = self.moment_at(at_ns)
        if not self.half_life_ns:
            return Usage(at, sums=dict(amounts_ns))
        factor, per = _LN2 * at.reading, self.half_life_ns * _LN2_OF
        return Usage(at, sums={name: value * factor // per for name, value in amounts_ns.items()})


def _add(sums: Resource, held: ResourceView, times: int) -> None:
    for name, value in held.items():
        sums[name] = sums.get(name, 0) + value * times
