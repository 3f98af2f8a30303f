"""A host's metrics, for Prometheus."""

import time

from prometheus_client import Counter, Histogram

_HANDLED = Histogram(
    "muster_message_handling_seconds",
    "Time a machine took for a message",
    ["service", "kind"],
    buckets=(0.0001, 0.001, 0.01, 0.1, 1.0, 10.0),
)
_AGE = Histogram(
    "muster_message_age_seconds",
    "Time from when a message was published to when it was handled",
    ["service", "kind"],
    buckets=(0.001, 0.01, 0.1, 1.0, 10.0, 100.0),
)
_PUBLISHED = Counter("muster_messages_published", "Messages published", ["service"])
_REPEATED = Counter("muster_messages_repeated", "Redelivered messages", ["service"])
_SET_ASIDE = Counter("muster_items_set_aside", "Items that could not be sent", ["service"])


class HostMetrics:
    """The metrics of one service in this process."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.published_total = 0
        self.handled_total = 0
        self._of_kind: dict[str, tuple[Histogram, Histogram]] = {}
        for counter in (_PUBLISHED, _REPEATED, _SET_ASIDE):
            counter.labels(service)  # exported from the start: an alert needs the step from 0 to 1

    def started(self) -> int:
        """Return the start of a measurement, in nanoseconds."""
        return time.perf_counter_ns()

    def handled(self, kind: str, started: int) -> int:
        """Count a message as handled; return the nanoseconds it took."""
        spent_ns = time.perf_counter_ns() - started
        self._histograms(kind)[0].observe(spent_ns / 1e9)
        self.handled_total += 1
        return spent_ns

    def waited(self, kind: str, age_ns: int) -> None:
        """Observe a message's age when it was handled; clocks of two machines may differ."""
        self._histograms(kind)[1].observe(max(0, age_ns) / 1e9)

    def _histograms(self, kind: str) -> tuple[Histogram, Histogram]:
        """Return a kind's histograms of handling time and age; they are cached."""
        found = self._of_kind.get(kind)
        if found is None:
            labels = (self._service, kind)
            found = self._of_kind[kind] = _HANDLED.labels(*labels), _AGE.labels(*labels)
        return found

    def published(self, count: int) -> None:
        """Count published messages."""
        _PUBLISHED.labels(self._service).inc(count)
        self.published_total += count

    def repeated(self) -> None:
        """Count a redelivered message."""
        _REPEATED.labels(self._service).inc()

    def on_unsendable(self) -> None:
        """Count an item that could not be sent."""
        _SET_ASIDE.labels(self._service).inc()
