"""What machines know about themselves, as metrics: read when they are asked for, never before.

A machine with ``figures()`` returns numbers by name, or a map of numbers by partition; one whose
name ends in ``_total`` only grows. They are ``muster_NAME{service="..."}``, of a partition other
than ``default`` with the label ``partition`` as well. Of several machines of a service in one
process they are added, but for an epoch, of which the highest counts.
"""

import weakref
from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_TOTAL = "_total"
_EPOCH = "epoch"
Figures = Mapping[str, int | Mapping[str, int]]  # of a machine


class Figured(Protocol):
    """An object with figures: a host, of its machine."""

    def figures(self) -> Mapping[tuple[str, str, str], int]:
        """Return numbers by name, service and partition ("": of the default, or of them all)."""


class _Figures(Collector):
    def __init__(self) -> None:
        self.sources: weakref.WeakSet[Figured] = weakref.WeakSet()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield a family for every name."""
        sums: dict[str, dict[tuple[str, str], int]] = {}
        for source in list(self.sources):
            for (name, service, partition), value in source.figures().items():
                own = sums.setdefault(name, {})
                whose = service, partition
                before = own.get(whose, 0)
                own[whose] = max(before, value) if name == _EPOCH else before + value
        for name, values in sorted(sums.items()):
            kind = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
            family = kind(f"muster_{name}", name.replace("_", " "))
            for (service, partition), value in sorted(values.items()):
                labels = {"service": service} | ({"partition": partition} if partition else {})
                family.add_sample(f"muster_{name}", labels, value)
            yield family


_FIGURES = _Figures()
REGISTRY.register(_FIGURES)


def export_figures_of(source: Figured) -> None:
    """Export the figures of an object from now on, for as long as it exists."""
    _FIGURES.sources.add(source)
