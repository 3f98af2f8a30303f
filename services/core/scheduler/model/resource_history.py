"""What an application has used so far: amount times seconds of every allocation that has ended.

Rule 1: an allocation counts once, when it goes, for the whole seconds since it was placed: as
        preempted if that is why it went, else as a placeholder's or as used.
Rule 2: by the type of its node, UNKNOWN where the node does not say one. Sums stop at what 64 bits
        hold. They start again with a core that recovers.
Source: docs/rules/rest.md#fields and docs/rules/pods.md#what-a-pod-asks-for; case X-01.
"""

from shared.messages.interface import Allocation
from shared.model.numbers import INT64_MAX
from shared.model.resources import Resource
from shared.model.units import NANOS_PER_SECOND

USED, PREEMPTED, PLACEHOLDER = "resourceUsage", "preemptedResource", "placeholderResource"
INSTANCE_TYPE, UNKNOWN = "si/instance-type", "UNKNOWN"
History = dict[tuple[str, str], Resource]  # by kind and type of node


def count(
    history: History, allocation: Allocation, instance_type: str, time_ns: int, *, preempted: bool
) -> None:
    """Count an allocation that went after a time."""
    seconds = time_ns // NANOS_PER_SECOND
    if seconds <= 0:
        return
    placeholder_or_used = PLACEHOLDER if allocation.placeholder else USED
    kind = PREEMPTED if preempted else placeholder_or_used
    totals = history.setdefault((kind, instance_type), {})
    for name, value in allocation.resource_per_alloc.items():
        totals[name] = min(INT64_MAX, totals.get(name, 0) + value * seconds)
