"""Resource arithmetic: a resource is a plain map from type name to an integer.

Units (docs/rules/README.md#units): ``vcore`` in milli, ``memory`` in bytes, ``pods`` one a pod,
every other type in its own base unit. A map is a value: functions here return new maps, and only
the two ``*_into`` functions change their first argument, which is then a ledger.

Rule 1: no floats.
Rule 2: a type that is absent is 0 in an amount, and unlimited in a limit (unless said otherwise).
Rule 3: a ledger keeps no zero: a type that falls to 0 is dropped, so equal ledgers compare equal.
Rule 4: a single amount fits an int64; a sum may not, and is exact all the same. It is ``bounded``
        where it leaves the ledgers: for a message, an answer, an array.
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
    """Return the sum of two amounts, type by type."""
    total = dict(left)
    add_into(total, right)
    return total


def subtract(left: ResourceView, right: ResourceView) -> Resource:
    """Return left less right, type by type; results below zero are kept."""
    rest = dict(left)
    subtract_into(rest, right)
    return rest


def multiply(resource: ResourceView, times: int) -> Resource:
    """Return the amount ``times`` over."""
    return {name: value * times for name, value in resource.items() if value and times}


def shared_types(amount: ResourceView, others: ResourceView) -> Resource:
    """Return an amount's types of which there is anything in another, too."""
    return {name: value for name, value in amount.items() if others.get(name, 0) > 0}


def total_of(resources: Iterable[ResourceView]) -> Resource:
    """Return the sum of many amounts."""
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
    """Take an amount from a ledger in place; results below zero are kept."""
    for name, value in amount.items():
        result = ledger.get(name, 0) - value
        if result:
            ledger[name] = result
        else:
            ledger.pop(name, None)


def excess(amount: ResourceView, limit: ResourceView) -> Resource:
    """Return what an amount has over a limit, type by type; a type the limit lacks counts as 0."""
    over = {name: value - limit.get(name, 0) for name, value in amount.items() if value > 0}
    return {name: value for name, value in over.items() if value > 0}


def first_excess(limit: ResourceView, amount: ResourceView) -> str | None:
    """Return the first type, in the amount's order, that is over the limit, or None.

    A type that the limit lacks is unlimited.
    """
    for name, value in amount.items():
        if value > 0 and name in limit and value > limit[name]:
            return name
    return None


def fits_limit(limit: ResourceView, amount: ResourceView) -> bool:
    """Return whether the amount is within the limit; types the limit lacks are unlimited."""
    return first_excess(limit, amount) is None


def fits_room(room: ResourceView, amount: ResourceView) -> bool:
    """Return whether the amount is within the room; types the room lacks have no room."""
    return all(value <= 0 or value <= room.get(name, 0) for name, value in amount.items())


def is_zero(resource: ResourceView) -> bool:
    """Return whether nothing is in the amount."""
    return not any(resource.values())


def is_negative(resource: ResourceView) -> bool:
    """Return whether any type is below zero."""
    return min(resource.values(), default=0) < 0


def overflows(resource: ResourceView) -> str | None:
    """Return the first type that does not fit a signed 64-bit integer, or None."""
    for name, value in resource.items():
        if not INT64_MIN <= value <= INT64_MAX:
            return name
    return None


def bounded(resource: ResourceView) -> Resource:
    """Return a sum as it goes out: what is beyond int64 is the int64 nearest to it (ADR 21)."""
    for value in resource.values():
        if not INT64_MIN <= value <= INT64_MAX:
            return {name: saturated(value) for name, value in resource.items()}
    return dict(resource)


def without_zeros(resource: ResourceView) -> Resource:
    """Return the amount without the types that are 0."""
    return {name: value for name, value in resource.items() if value}


def smaller_of(left: ResourceView, right: ResourceView) -> Resource:
    """Return the tighter of two limits, type by type; a type in one only is kept as it is."""
    result = dict(left)
    for name, value in right.items():
        result[name] = min(value, result[name]) if name in result else value
    return result


def go_map(resource: ResourceView | None) -> str:
    """Return the text that YuniKorn prints for a resource: ``map[memory:1 vcore:2]``.

    Source: docs/rules/queues.md#checks. An unset resource is ``nil resource``.
    """
    if resource is None:
        return "nil resource"
    return "map[" + " ".join(f"{name}:{resource[name]}" for name in sorted(resource)) + "]"
