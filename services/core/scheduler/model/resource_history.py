"""Resource usage of an application: amount times seconds of every ended allocation.

Rule 1: an allocation counts once, when it ends, with its whole seconds since its allocation: as
        preempted, as a placeholder's, or as used.
Rule 2: by the instance type of its node, UNKNOWN without one. Sums are saturated at 64 bits, and
        start at 0 after a recovery.
Source: docs/rules/rest.md#fields and docs/rules/pods.md#what-a-pod-asks-for; case X-01.
"""

from shared.messages.interface import Allocation
from shared.model.numbers import INT64_MAX
from shared.model.resources import Resource
from shared.model.units import NANOS_PER_SECOND

USED, PREEMPTED, PLACEHOLDER = "resourceUsage", "preemptedResource", "placeholderResource"
INSTANCE_TYPE, UNKNOWN = "si/instance-type", "UNKNOWN"
History = dict[tuple[str, str], Resource]  # by kind of usage and instance type


def count(
    history: History, allocation: Allocation, instance_type: str, time_ns: int, *, preempted: bool
) -> None:
    """Add an ended allocation that existed for ``time_ns``."""
    seconds = time_ns // NANOS_PER_SECOND
    if seconds <= 0:
        return
    placeholder_or_used = PLACEHOLDER if allocation.placeholder else USED
    kind = PREEMPTED if preempted else placeholder_or_used
    totals = history.setdefault((kind, instance_type), {})
    for name, value in allocation.resource_per_alloc.items():
        totals[name] = min(INT64_MAX, totals.get(name, 0) + value * seconds)
