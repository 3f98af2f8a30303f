"""What was told of when applications start, compared with when they did.

Rule 1: of an application that was asked about the last forecast counts. It has come when none of
        the asks waits any more of which it was told; the error is how far that is from what was
        told. One that goes without having started is not counted.
Rule 2: those who come later and go first are in no draw. So the moment for nine of ten is as much
        later as it had to be for nine of ten of the last MAX_RATIOS that were compared (conformal
        prediction, Vovk et al. 2005), where there are LEAST_RATIOS: at most MAX_FACTOR times as
        far away as drawn, and never sooner.
Limit: MAX_FORECASTS are remembered; of more, the oldest is forgotten.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.core.scheduler.model.rows import Application
from shared.model.units import seconds

Observe = Callable[[str, int], None]  # an error in nanoseconds, by which moment: P50 or P90
P50, P90 = "p50", "p90"
_WHOLE = 1_000  # parts of a factor
MAX_RATIOS = 30  # past forecasts that correct the next ones; the oldest is forgotten
LEAST_RATIOS = 5
MAX_FACTOR = 10  # factor by which a forecast is corrected; larger ones count as this
LEAST_NS = seconds(60)  # what is nearer counts as this
MAX_FORECASTS = 200  # open forecasts of a partition; the oldest is forgotten


@dataclass(slots=True)
class _Remembered:
    application: Application
    asked_ns: int
    start_ns: int
    latest_ns: int
    drawn_ns: int  # the latest before it was corrected
    keys: list[str]


@dataclass(slots=True)
class Forecasts:
    """What was told, and how often it did not hold; ``observe`` hears how far off it was."""

    observe: Observe
    compared: int = 0
    missed: int = 0  # started after the moment that was told for nine of ten
    ratios: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_RATIOS))
    _remembered: dict[str, _Remembered] = field(default_factory=dict)

    def corrected_ns(self, asked_ns: int, latest_ns: int) -> int:
        """Return the moment for nine of ten, of draws that come to ``latest_ns``; 0: none."""
        if not latest_ns or len(self.ratios) < LEAST_RATIOS:
            return latest_ns
        ordered = sorted(self.ratios)
        ratio = ordered[min(len(ordered) - 1, 9 * (len(ordered) + 1) // 10)]
        factor = max(_WHOLE, min(ratio, MAX_FACTOR * _WHOLE))
        return asked_ns + max(0, latest_ns - asked_ns) * factor // _WHOLE

    def remember(
        self,
        application: Application,
        asked_ns: int,
        start_ns: int,
        drawn_ns: int,
        keys: Iterable[str],
    ) -> None:
        """Remember what was told of an application, of which these asks wait.

        ``drawn_ns`` is the moment for nine of ten before it was corrected.
        """
        if not start_ns:
            return
        self._remembered.pop(application.id, None)
        if len(self._remembered) >= MAX_FORECASTS:
            del self._remembered[next(iter(self._remembered))]
        latest_ns = self.corrected_ns(asked_ns, drawn_ns)
        told = _Remembered(application, asked_ns, start_ns, latest_ns, drawn_ns, [*keys])
        self._remembered[application.id] = told

    def compare_started(self, now_ns: int) -> None:
        """Compare those that have started by now; to be called after a cycle."""
        for name, told in [*self._remembered.items()]:
            asks, keys = told.application.group_of, told.keys
            while keys and keys[-1] not in asks:
                keys.pop()
            if keys:
                continue
            del self._remembered[name]
            if told.application.allocations:
                self._compare(told, now_ns)

    def _compare(self, told: _Remembered, now_ns: int) -> None:
        self.compared += 1
        self.missed += now_ns > told.latest_ns > 0
        self.observe(P50, abs(now_ns - told.start_ns))
        if told.latest_ns:
            self.observe(P90, abs(now_ns - told.latest_ns))
            came, drawn = (max(at - told.asked_ns, LEAST_NS) for at in (now_ns, told.drawn_ns))
            self.ratios.append(came * _WHOLE // drawn)

    def forget(self) -> None:
        """Forget what waits for what comes: its applications are of a partition that is no more."""
        self._remembered.clear()

    def figures(self, name: str) -> dict[str, int | dict[str, int]]:
        """Return them as figures of a partition."""
        return {
            "forecasts_compared_total": {name: self.compared},
            "forecast_missed_total": {name: self.missed},
        }
