"""Exports the figures of machines as metrics; they are read only when metrics are requested.

A machine's ``figures()`` returns numbers by name, or a map of numbers by partition; a name that
ends in ``_total`` is a counter. They are exported as ``muster_NAME{service="..."}``, with the label
``partition`` for any but the ``default`` one. The figures of several machines of a service in one
process are added, except for the epoch, of which the maximum is exported.
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
    """An object with figures, such as a host with its machine's."""

    def figures(self) -> Mapping[tuple[str, str, str], int]:
        """Return numbers by name, service and partition ("" for the default one, or for all)."""


class _Figures(Collector):
    def __init__(self) -> None:
        self.sources: weakref.WeakSet[Figured] = weakref.WeakSet()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield a metric family per name."""
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
    """Export an object's figures for as long as it exists."""
    _FIGURES.sources.add(source)
