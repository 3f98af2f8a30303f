"""What was told of when applications start, compared with when they did.

Rule: of an application that was asked about the last forecast counts. It has come when none of the
asks waits any more of which it was told; the error is how far that is from what was told. One
that goes without having started is not counted.
Limit: MAX_FORECASTS are remembered; of more, the oldest is forgotten.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.core.scheduler.model.rows import Application

Observe = Callable[[str, int], None]  # an error in nanoseconds, by which moment: P50 or P90
P50, P90 = "p50", "p90"
MAX_FORECASTS = 200  # forecasts of a partition that wait for what comes; the oldest is forgotten


@dataclass(slots=True)
class _Remembered:
    application: Application
    start_ns: int
    latest_ns: int
    keys: list[str]


@dataclass(slots=True)
class Forecasts:
    """What was told, and how often it did not hold; ``observe`` hears how far off it was."""

    observe: Observe
    compared: int = 0
    missed: int = 0  # started after the moment that was told for nine of ten
    _remembered: dict[str, _Remembered] = field(default_factory=dict)

    def remember(
        self, application: Application, start_ns: int, latest_ns: int, keys: Iterable[str]
    ) -> None:
        """Remember what was told of an application, of which these asks wait."""
        if not start_ns:
            return
        self._remembered.pop(application.id, None)
        if len(self._remembered) >= MAX_FORECASTS:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[application.id] = _Remembered(application, start_ns, latest_ns, [*keys])

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

    def forget(self) -> None:
        """Forget what waits for what comes: its applications are of a partition that is no more."""
        self._remembered.clear()

    def figures(self, name: str) -> dict[str, int | dict[str, int]]:
        """Return them as figures of a partition."""
        return {
            "forecasts_compared_total": {name: self.compared},
            "forecast_missed_total": {name: self.missed},
        }
