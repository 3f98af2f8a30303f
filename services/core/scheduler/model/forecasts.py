"""Forecast starts of applications, compared with the actual ones.

Rule 1: the latest forecast of an application counts. It has started when none of the forecast asks
        waits any more; the error is the distance from the forecast. An application that ends
        without a start is not counted.
Rule 2: draws do not contain later arrivals that are placed first. So the 90th percentile is scaled
        by the factor that the last MAX_RATIOS compared forecasts would have needed (conformal
        prediction, Vovk et al. 2005), given LEAST_RATIOS of them: at most MAX_FACTOR, and never
        below 1.
Limit: MAX_FORECASTS open forecasts; the oldest is dropped.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.core.scheduler.model.rows import Application
from shared.model.units import seconds

Observe = Callable[[str, int], None]  # P50 or P90, and its error in nanoseconds
P50, P90 = "p50", "p90"
_WHOLE = 1_000  # parts of a factor
MAX_RATIOS = 30  # past forecasts that correct the next ones; the oldest is forgotten
LEAST_RATIOS = 5
MAX_FACTOR = 10  # factor by which a forecast is corrected; larger ones count as this
LEAST_NS = seconds(60)  # shorter times count as this
MAX_FORECASTS = 200  # open forecasts of a partition; the oldest is forgotten


@dataclass(slots=True)
class _Remembered:
    application: Application
    asked_ns: int
    start_ns: int
    latest_ns: int
    drawn_ns: int  # latest_ns before the correction
    keys: list[str]


@dataclass(slots=True)
class Forecasts:
    """Open forecasts and their past errors; ``observe`` receives each error."""

    observe: Observe
    compared: int = 0
    missed: int = 0  # started after the forecast 90th percentile
    ratios: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_RATIOS))
    _remembered: dict[str, _Remembered] = field(default_factory=dict)

    def corrected_ns(self, asked_ns: int, latest_ns: int) -> int:
        """Return the corrected 90th percentile for a drawn one; 0 stays 0."""
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
        """Record the forecast of an application, with its waiting asks.

        ``drawn_ns`` is the 90th percentile before the correction.
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
        """Compare the forecasts of applications that have started; called after a cycle."""
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
        """Drop the open forecasts, because their partition was replaced."""
        self._remembered.clear()

    def figures(self, name: str) -> dict[str, int | dict[str, int]]:
        """Return their metrics for a partition."""
        return {
            "forecasts_compared_total": {name: self.compared},
            "forecast_missed_total": {name: self.missed},
        }
