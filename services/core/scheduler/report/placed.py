"""Asks and allocations of runs in state events: in columns (ADR 36).

The result equals a report of each by itself.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from services.core.scheduler.model.rows import Application
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.report.views import allocation_state
from shared.messages.columns import Column, Columns, Same, joined
from shared.messages.interface import Allocation
from shared.messages.state import AllocationState, AskState

Placed = tuple[Application, Ask, Allocation]
Held = tuple[Application, Allocation]
E = TypeVar("E")
V = TypeVar("V")
FEWEST = 16  # fewer consecutive ones are cheaper as records
_SAME_IN_BOTH = {  # field of AllocationState: field of Allocation
    "allocation_key": "allocation_key",
    "application_id": "application_id",
    "node_id": "node_id",
    "resource": "resource_per_alloc",
    "priority": "priority",
    "task_group_name": "task_group_name",
    "placeholder": "placeholder",
    "originator": "originator",
    "request_time_ns": "create_time_ns",
    "tags": "allocation_tags",
    "devices": "devices",
}
_read = attrgetter(*_SAME_IN_BOTH.values())


def published(
    entries: Collection[E],
    is_placed: Callable[[E], bool],
    by_column: Callable[[list[Any]], Columns[V]],
    by_item: Callable[[Any], V],
) -> Sequence[V]:
    """Return the values of entries in order, in columns where runs placed many."""
    if not entries:
        return ()
    parts: list[Sequence[V]] = []
    for is_run, group in groupby(entries, is_placed):
        stretch = list(group)
        is_long = is_run and len(stretch) >= FEWEST
        parts.append(by_column(stretch) if is_long else tuple(map(by_item, stretch)))
    return joined(parts)


def asks(placed: list[Placed]) -> Columns[AskState]:
    """Return the states of asks that ended because they were allocated."""
    requests = [ask.request for _, ask, _ in placed]
    columns: dict[str, Column] = {
        "allocation_key": [request.allocation_key for request in requests],
        "application_id": [application.id for application, _, _ in placed],
        "resource": [request.resource_per_alloc for request in requests],
        "removed": Same(True),
    }
    return Columns(AskState, len(placed), columns)


def allocation(held: Held) -> AllocationState:
    """Return an allocation's state, with its allocation time."""
    application, found = held
    key = found.allocation_key
    return allocation_state(
        found,
        placeholder_used=key in application.placeholder_used,
        placeholder_time_ns=application.placeholder_used.get(key, 0),
        released=application.released.get(key),
        allocation_time_ns=application.placed_ns[key],
        stuck_since_ns=application.stuck.get(key, 0),
    )


def allocations(held: list[Held]) -> Columns[AllocationState]:
    """Return the states of allocations, with their allocation times."""
    applications, found = zip(*held, strict=True)
    values = zip(*map(_read, found), strict=True)
    columns: dict[str, Column] = {
        **dict(zip(_SAME_IN_BOTH, values, strict=True)),
        "allocation_time_ns": [
            application.placed_ns[allocation.allocation_key] for application, allocation in held
        ],
    }
    everybody = dict.fromkeys(applications)
    if any(application.placeholder_used for application in everybody):
        columns["placeholder_used"] = [
            allocation.allocation_key in application.placeholder_used
            for application, allocation in held
        ]
        columns["placeholder_time_ns"] = [
            application.placeholder_used.get(allocation.allocation_key, 0)
            for application, allocation in held
        ]
    if any(application.released for application in everybody):
        reasons = [
            application.released.get(allocation.allocation_key) for application, allocation in held
        ]
        columns["released"] = [why is not None for why in reasons]
        columns["why"] = [why or "" for why in reasons]
    if any(application.stuck for application in everybody):
        columns["stuck_since_ns"] = [
            application.stuck.get(allocation.allocation_key, 0) for application, allocation in held
        ]
    return Columns(AllocationState, len(held), columns)


def all_held(everybody: Iterable[Application]) -> Sequence[AllocationState]:
    """Return the states of all allocations of applications."""
    held = [
        (application, found)
        for application in everybody
        for found in application.allocations.values()
    ]
    return published(held, lambda _: True, allocations, allocation)
