"""Canonical dumps of a partition: all that a statement may touch, and all that there is."""

from collections import deque
from enum import Enum

import numpy as np

from services.core.scheduler.model.rows import depth_first
from services.core.scheduler.statement.partition import Partition


def _sorted(amounts: dict) -> list:
    return sorted(amounts.items())


def dump(partition: Partition) -> bytes:
    """Return everything of a partition that could tell whether something was tried on it."""
    return repr(
        [
            _nodes(partition),
            _pods(partition),
            [_queue(queue) for queue in depth_first(partition.root)],
            [_tracker(tracker) for tracker in partition.users.all()],
            [_application(application) for application in partition.applications.values()],
            list(partition.releasing),
            [shape.name for shape in partition.blocked_shapes],
            [held.ask.key for held in partition.reserved_to_try],
            partition.preemption_due_ns,
            partition.timers,
            list(partition.queues),
            (partition.nodes.order.policy, sorted(partition.nodes.order.weights.items())),
            (partition.preemption_enabled, partition.quota_preemption_enabled, partition.rules),
            len(partition.journal),
        ]
    ).encode()


def _nodes(partition: Partition) -> list:
    table = partition.nodes
    shapes = [
        bucket.shape for queue in partition.queues.values() for bucket in queue.buckets.values()
    ]
    answers = []
    for shape in dict.fromkeys(shapes):
        best = table.order.best(shape)
        mask = table.filters.between_pods.mask(shape)
        answers.append((shape.name, best and best.node_id, mask.tobytes()))
    return [
        answers,
        table.pods_changed,
        *[
            array[: len(table.rows)].tobytes()
            for array in (table.columns.score, table.columns.schedulable, table.columns.claimed)
        ],
        *[
            [
                array[: len(table.rows), at].tobytes()
                for _, at in sorted(table.columns.numbers.items())
            ]
            for array in (table.columns.available, table.columns.capacity, table.columns.expected)
        ],
        [
            (
                node.node_id,
                *map(_sorted, (node.allocated, node.occupied, node.available, node.reserved)),
                _sorted(node.expected),
                list(node.allocations),
                list(node.foreign),
                list(node.reservations),
                node.score,
            )
            for node in table.rows
        ],
    ]


def _pods(partition: Partition) -> list:
    pods = partition.nodes.pods
    return [
        sorted(
            (labels, sorted((node.node_id, count) for node, count in kind.at.items()))
            for labels, kind in pods._kinds.kinds.items()
        ),
        sorted(
            (repr(selection), count.total, sorted((n.node_id, c) for n, c in count.at.items()))
            for selection, count in pods._counts.items()
        ),
        sorted(
            (repr(selection), key, count.total)
            for selection, by_key in pods._owners.items()
            for key, count in by_key.items()
        ),
        sorted(
            (place, sorted((node.node_id, sorted(taken.items())) for node, taken in nodes.items()))
            for place, nodes in pods._ports.items()
            if nodes
        ),
        [shape.name for shape in pods.waiting.noted()],
        sorted((key, change) for key, (_, _, change) in pods._supposed.items()),
    ]


def _queue(queue) -> list:
    ledgers = (queue.allocated, queue.pending, queue.promised, queue.preempting, queue.reserved)
    return [
        queue.path,
        *map(_sorted, ledgers),
        queue.max_resource,
        queue.guaranteed_resource,
        queue.max_applications,
        queue.status,
        (queue.is_leaf, queue.is_managed),
        queue.properties,
        queue.settings,
        queue.template,
        (queue.user_limits, queue.group_limits),
        (queue.submit_access, queue.admin_access),
        (queue.current_priority, queue.priorities.highest, sorted(queue.priorities.counts.items())),
        queue.starved_gang and queue.starved_gang.id,
        list(queue.active_children),
        [[waiting.id for waiting in like.members] for like in queue.wait_list.classes],
        [bucket.shape.name for bucket in queue.wait_list.buckets],
        [(bucket.shape.name, bucket.refusal, bucket.queued) for bucket in queue.buckets.values()],
    ]


def _tracker(tracker) -> list:
    return [
        tracker.title,
        [(path, _sorted(amount)) for path, amount in tracker.usage.items()],
        [(path, list(running)) for path, running in tracker.running.items()],
        list(tracker.levels),
        sorted((path, _sorted(amount)) for path, amount in tracker.promised.items()),
        sorted((path, _sorted(amount)) for path, amount in tracker.reserved.items()),
        tracker.links,
    ]


def _application(application) -> list:
    return [
        application.id,
        application.state,
        *map(_sorted, (application.allocated, application.allocated_placeholder)),
        _sorted(application.pending),
        list(application.allocations),
        _sorted(application.released),
        list(application.reservations),
        [ask.key for ask in application.asks()],
        application.order,
        application.refusal,
        [tracker.title for tracker in application.trackers],
        application.owner is not None,
    ]


# --- all that there is ----------------------------------------------------------------------------


def whole(partition: Partition) -> list[str]:
    """Return everything that is reachable from a partition, a line for each object.

    Objects are named in the order in which they are reached, mappings and lists are in theirs.
    """
    lines: list[str] = []
    names: dict[int, str] = {}
    waiting: deque[object] = deque()

    def name_of(value: object) -> str:
        if value is None or isinstance(value, str | int | float | bytes | Enum | frozenset):
            return repr(value)
        if callable(value):
            return "callable"
        if id(value) not in names:
            names[id(value)] = f"{type(value).__name__}-{len(names)}"
            waiting.append(value)
        return names[id(value)]

    name_of(partition)
    while waiting:
        value = waiting.popleft()
        lines.append(f"{names[id(value)]}: {', '.join(_parts(value, name_of))}")
    return lines


def _parts(value, name_of):
    """Yield what an object holds, by name."""
    if isinstance(value, np.ndarray):
        yield f"{value.shape} {value.tobytes().hex()}"
    elif isinstance(value, dict):
        yield from (f"{name_of(key)} -> {name_of(held)}" for key, held in value.items())
    elif isinstance(value, tuple | list | deque):
        yield from map(name_of, value)
    elif isinstance(value, set):
        yield from sorted(map(name_of, value))
    elif type(value).__module__.startswith(("services.", "shared.")):
        yield from (f"{name} = {name_of(held)}" for name, held in _fields(value))


def _fields(value):
    """Yield the fields of an object that are set."""
    slots = [name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())]
    for name in (*slots, *getattr(value, "__dict__", {})):
        if not name.startswith("__") and hasattr(value, name):
            yield name, getattr(value, name)
