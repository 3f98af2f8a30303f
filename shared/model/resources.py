"""Resource arithmetic: a resource is a plain map from type name to an integer.

Units (docs/rules/README.md#units): ``vcore`` in milli, ``memory`` in bytes, ``pods`` one per pod,
every other type in its own base unit. Maps are values: functions return new maps. Only the two
``*_into`` functions change their first argument, which is called a ledger.

Rule 1: no floats.
Rule 2: an absent type is 0 in an amount, and unlimited in a limit (unless stated otherwise).
Rule 3: a ledger keeps no zeros: a type that falls to 0 is dropped, so equal ledgers compare equal.
Rule 4: a single amount fits an int64. A sum may not, and is exact all the same; it is ``bounded``
        when it leaves the ledgers, for a message, an answer or an array.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from shared.model.numbers import INT64_MAX, INT64_MIN, saturated

Resource: TypeAlias = dict[str, int]
ResourceView: TypeAlias = Mapping[str, int]

VCORE = "vcore"
MEMORY = "memory"
PODS = "pods"


def add(left: ResourceView, right: ResourceView) -> Resource:
    """Add two amounts, type by type."""
    total = dict(left)
    add_into(total, right)
    return total


def subtract(left: ResourceView, right: ResourceView) -> Resource:
    """Subtract right from left, type by type; negative results are kept."""
    rest = dict(left)
    subtract_into(rest, right)
    return rest


def multiply(resource: ResourceView, times: int) -> Resource:
    """Multiply an amount by ``times``."""
    return {name: value * times for name, value in resource.items() if value and times}


def shared_types(amount: ResourceView, others: ResourceView) -> Resource:
    """Return the types of an amount that are positive in another one, too."""
    return {name: value for name, value in amount.items() if others.get(name, 0) > 0}


def total_of(resources: Iterable[ResourceView]) -> Resource:
    """Add many amounts."""
    total: Resource = {}
    for resource in resources:
        add_into(total, resource)
    return total


def add_into(ledger: Resource, amount: ResourceView) -> None:
    """Add an amount to a ledger in place."""
    for name, value in amount.items():
        result = ledger.get(name, 0) + value
        if result:
            ledger[name] = result
        else:
            ledger.pop(name, None)


def subtract_into(ledger: Resource, amount: ResourceView) -> None:
    """Subtract an amount from a ledger in place; negative results are kept."""
    for name, value in amount.items():
        result = ledger.get(name, 0) - value
        if result:
            ledger[name] = result
        else:
            ledger.pop(name, None)


def excess(amount: ResourceView, limit: ResourceView) -> Resource:
    """Return how much an amount exceeds a limit, type by type; absent types are limited to 0."""
    over = {name: value - limit.get(name, 0) for name, value in amount.items() if value > 0}
    return {name: value for name, value in over.items() if value > 0}


def first_excess(limit: ResourceView, amount: ResourceView) -> str | None:
    """Return the first type, in the amount's order, that exceeds the limit, or None.

    A type absent in the limit is unlimited.
    """
    for name, value in amount.items():
        if value > 0 and name in limit and value > limit[name]:
            return name
    return None


def fits_limit(limit: ResourceView, amount: ResourceView) -> bool:
    """Whether an amount is within a limit; types absent in the limit are unlimited."""
    return first_excess(limit, amount) is None


def fits_room(room: ResourceView, amount: ResourceView) -> bool:
    """Whether an amount fits free capacity; types absent there have none."""
    return all(value <= 0 or value <= room.get(name, 0) for name, value in amount.items())


def is_zero(resource: ResourceView) -> bool:
    """Whether all types are 0."""
    return not any(resource.values())


def is_negative(resource: ResourceView) -> bool:
    """Whether any type is below zero."""
    return min(resource.values(), default=0) < 0


def overflows(resource: ResourceView) -> str | None:
    """Return the first type that does not fit a signed 64-bit integer, or None."""
    for name, value in resource.items():
        if not INT64_MIN <= value <= INT64_MAX:
            return name
    return None


def bounded(resource: ResourceView) -> Resource:
    """Limit each type of a sum to int64, for output (ADR 21)."""
    for value in resource.values():
        if not INT64_MIN <= value <= INT64_MAX:
            return {name: saturated(value) for name, value in resource.items()}
    return dict(resource)


def without_zeros(resource: ResourceView) -> Resource:
    """Drop the types that are 0."""
    return {name: value for name, value in resource.items() if value}


def smaller_of(left: ResourceView, right: ResourceView) -> Resource:
    """Return the smaller of two limits, type by type; a type in only one of them is kept."""
    result = dict(left)
    for name, value in right.items():
        result[name] = min(value, result[name]) if name in result else value
    return result


def go_map(resource: ResourceView | None) -> str:
    """Format a resource as YuniKorn does: ``map[memory:1 vcore:2]``.

    Source: docs/rules/queues.md#checks. An unset resource is ``nil resource``.
    """
    if resource is None:
        return "nil resource"
    return "map[" + " ".join(f"{name}:{resource[name]}" for name in sorted(resource)) + "]"
