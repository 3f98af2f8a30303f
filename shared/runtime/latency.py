"""YuniKorn's histograms of scheduling latencies, filled by stopwatches.

A stopwatch counts in integers: an observation with prometheus-client costs more than the measured
work. The values are seconds, although the names say milliseconds.

Source: docs/rules/metrics.md.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import REGISTRY
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

_PREFIX = "yunikorn_scheduler_"
BOUNDS = tuple(10.0**at for at in range(-4, 4))
_BOUNDS_NS = tuple(round(bound * 1e9) for bound in BOUNDS)
# measured part: metric name and value of its level label
HISTOGRAMS = {
    "latency": ("scheduling_latency_milliseconds", ""),
    "cycle": ("scheduling_cycle_milliseconds", ""),
    "application_order": ("node_sorting_latency_milliseconds", "app"),
    "queue_order": ("node_sorting_latency_milliseconds", "queue"),
    "node_search": ("trynode_latency_milliseconds", ""),
    "node_evaluation": ("trynode_evaluation_milliseconds", ""),
    "preemption": ("trypreemption_latency_milliseconds", ""),
}


class Stopwatch:
    """Counts durations by histogram buckets. It must not be entered twice at once."""

    __slots__ = ("_started_ns", "counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum_ns = 0
        self._started_ns = 0

    def __enter__(self) -> None:
        self._started_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        spent_ns = time.perf_counter_ns() - self._started_ns
        self.counts[bisect_left(_BOUNDS_NS, spent_ns)] += 1
        self.sum_ns += spent_ns


STOPWATCHES = {part: Stopwatch() for part in HISTOGRAMS}


class _Histograms(Collector):
    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield every histogram."""
        families: dict[str, HistogramMetricFamily] = {}
        for part, (name, level) in HISTOGRAMS.items():
            labels = ["level"] if level else []
            family = families.get(name)
            if family is None:
                text = f"How long it took ({part.replace('_', ' ')}), in seconds"
                family = HistogramMetricFamily(_PREFIX + name, text, labels=labels)
                families[name] = family
            watch = STOPWATCHES[part]
            family.add_metric([level] if level else [], _buckets(watch), watch.sum_ns / 1e9)
        yield from families.values()


def _buckets(watch: Stopwatch) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), watch.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


REGISTRY.register(_Histograms())
