"""The counters that a device uses, and the capacity that a share of a device consumes.

Rule 1: devices with counters are parts of one thing (a GPU and its halves): no more of a counter
        set is allocated than it has.
Rule 2: a device with multiple allocations gives shares of its capacities. The requested amount is
        rounded up by the capacity's policy; an amount beyond its maximum excludes the device.
Source: resource.k8s.io/v1 (partitionable devices, consumable capacity). Amounts in thousandths.
Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.shim_adapter.translation.device_selectors import amount
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import items, text

MAX_COUNTERS = 256  # counters of a slice, or that a device consumes; with more none counts
Qualified = tuple[str, str]  # of an attribute or a capacity: its domain and name
Consumed = tuple[tuple[Qualified, int], ...]  # of which capacities a share takes how much
Counter = tuple[str, str]  # a counter set and a counter in it


@dataclass(frozen=True, slots=True)
class Policy:
    """How a requested amount of a capacity is rounded up to a valid one.

    ``default`` is for requests without an amount (0: all). Valid are ``values``, or multiples of
    ``step`` between ``least`` and ``most`` (0: no bound).
    """

    default: int = 0
    values: tuple[int, ...] = ()
    least: int = 0
    most: int = 0
    step: int = 0

    def takes(self, asked: int | None, value: int) -> int | None:
        """Return what a share consumes of a capacity; None if it is not available."""
        if asked is None:
            return self.default or value
        wanted = asked
        if self.values:
            wanted = min((each for each in self.values if each >= asked), default=value + 1)
        elif asked <= self.least:
            wanted = self.least
        elif self.step:
            wanted = self.least + -(-(asked - self.least) // self.step) * self.step
        return wanted if wanted <= (self.most or value) and wanted <= value else None


def policy_of(raw: Any, where: str) -> Policy:
    """Convert a capacity's requestPolicy. Raises ManifestError with the field."""
    policy = mapping(raw or {}, where)
    bounds = mapping(policy.get("validRange") or {}, f"{where}.validRange")
    values = policy.get("validValues") or ()
    if not isinstance(values, list | tuple):
        raise ManifestError(f"{where}.validValues", "a list was expected")
    return Policy(
        _milli(policy.get("default"), f"{where}.default"),
        tuple(sorted(_milli(each, f"{where}.validValues") for each in values)),
        *(_milli(bounds.get(key), f"{where}.validRange.{key}") for key in ("min", "max", "step")),
    )


def counters_of(raw: Mapping[str, Any], key: str, name: str) -> dict[Counter, int]:
    """Return the counters of a slice's sets, or those that a device consumes, by set and name.

    Raises ManifestError with the field.
    """
    found: dict[Counter, int] = {}
    for at, item in enumerate(items(raw, key)):
        where = f"{key}[{at}]"
        of = text(mapping(item, where), name, where)
        listed = mapping(mapping(item, where).get("counters") or {}, f"{where}.counters")
        for counter, each in listed.items():
            value = each.get("value") if isinstance(each, dict) else each
            found[of, counter] = _milli(value, f"{where}.counters.{counter}")
    if len(found) > MAX_COUNTERS:
        raise ManifestError(key, f"{len(found)} counters, at most {MAX_COUNTERS}")
    return found


def quantity_text(milli: int) -> str:
    """Format an amount as a quantity."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def _milli(value: Any, where: str) -> int:
    found = amount(value) if value is not None else None
    if value is not None and (found is None or found.milli < 0):
        raise ManifestError(where, f"a quantity was expected, found {value!r}")
    return 0 if found is None else found.milli
