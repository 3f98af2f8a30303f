"""Dynamic queues: created by placement from the parent's template and the namespace's quota tags.

A dynamic leaf has its template's properties and inherits nothing else. Empty ones are removed after
CLEANER_INTERVAL_MS, as are draining configured ones.
Source: docs/rules/queues.md#properties, docs/rules/placement.md#rules and
docs/rules/pods.md#what-a-pod-asks-for; cases P-13, Q-22, N-08, N-13.
"""

from collections.abc import Mapping

from services.core.scheduler.model.queue_ledger import DRAINING
from services.core.scheduler.model.queue_settings import Template, settings_of
from services.core.scheduler.model.rows import Queue, depth_first
from services.core.scheduler.ordering import queueing
from services.core.scheduler.queues.placement import (
    RECOVERY_QUEUE,
    PlacementError,
    check_names,
    nearest_queue,
)
from services.core.scheduler.statement import queue_moves
from services.core.scheduler.statement.journal import QueueChanged, QueueEnded, limit_changes
from services.core.scheduler.statement.partition import CLEANER_INTERVAL_MS, Partition
from shared.messages.protocol import TimerKind
from shared.model.numbers import INT64_MAX, parse_uint64
from shared.model.resources import Resource, is_zero
from shared.model.texts import load_json
from shared.model.units import milliseconds

MAX_TAG_TEXT = 64 * 1024


class QueueCreationError(ValueError):
    """A queue cannot be created; the message names the violated rule."""


def get_or_create(partition: Partition, path: str) -> Queue:
    """Return the leaf of a path in any case, created with missing parents.

    Raises QueueCreationError, also for an invalid name or a path that does not start at the root.
    """
    path = path.lower()
    queue = partition.queues.get(path)
    if queue is not None:
        return queue
    try:
        check_names(path)
        nearest = nearest_queue(path, partition.queues)
    except PlacementError as error:
        raise QueueCreationError(str(error)) from error
    if nearest.is_leaf or nearest.becomes_leaf:
        raise QueueCreationError(
            f"creation of queue {path} failed parent is already a leaf: {nearest.path}"
        )
    *above, name = path.split(".")
    parent = partition.root
    for part in above[1:]:
        parent = parent.children.get(part) or _create(partition, part, parent, is_leaf=False)
    return _create(partition, name, parent, is_leaf=True)


def _create(partition: Partition, name: str, parent: Queue, *, is_leaf: bool) -> Queue:
    if parent.status == DRAINING:
        raise QueueCreationError(
            f"cannot add a child queue when queue is marked for deletion: {parent.path}"
        )
    queue = Queue(name, parent, is_leaf=is_leaf, is_managed=False)
    queue_moves.add(partition, queue)
    template = parent.template
    if not is_leaf:
        partition.set(queue, template=template)
    elif template is not None and queue.path != RECOVERY_QUEUE:
        _apply_template(partition, queue, template)
    clean_later(partition)
    return queue


def _apply_template(partition: Partition, queue: Queue, template: Template) -> None:
    queue.configure(settings_of(template.properties))
    partition.set(
        queue,
        properties=dict(template.properties),
        max_applications=template.max_applications,
        guaranteed_resource=template.guaranteed_resource,
        max_resource=template.max_resource,
    )
    queue.forget_turns()


def apply_quota_tags(partition: Partition, queue: Queue, tags: Mapping[str, str]) -> None:
    """Set the namespace's quota annotations on a dynamic queue, except the recovery queue."""
    if queue.is_managed or queue.path == RECOVERY_QUEUE:
        return
    limit = _tag_resource(tags.get("namespace.resourcequota", ""))
    guaranteed = _tag_resource(tags.get("namespace.resourceguaranteed", ""))
    applications = parse_uint64(tags.get("namespace.resourcemaxapps", ""))
    if limit is not None:
        partition.set_max(queue, limit)
    if guaranteed is not None and guaranteed != queue.guaranteed_resource:
        partition.set(queue, guaranteed_resource=guaranteed)
        queue.forget_turns()
        for level in queue.lineage():
            queueing.requeue_all(level.wait_list)  # asks waiting there may preempt from now on
    if applications is not None and applications <= INT64_MAX:
        partition.set(queue, max_applications=applications)
        queueing.requeue(queue.wait_list)


def _tag_resource(text: str) -> Resource | None:
    """Parse ``{"resources": {"vcore": {"value": 1000}}}``; None if it is invalid or zero."""
    if not text or len(text) > MAX_TAG_TEXT:
        return None
    try:
        entries = load_json(text)["resources"]
        resource = {str(name): entry.get("value", 0) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not all(type(value) is int and 0 <= value <= INT64_MAX for value in resource.values()):
        return None
    return None if is_zero(resource) else resource


# --- cleaning up --------------------------------------------------------------------------------


def clean_later(partition: Partition) -> None:
    """Schedule the removal of empty queues, unless it is scheduled.

    Called when a queue is created, is left by its last application, or begins to drain.
    """
    if TimerKind.CLEANER.value not in partition.timers:
        due_ns = partition.now_ns + milliseconds(CLEANER_INTERVAL_MS)
        partition.arm_own_timer(TimerKind.CLEANER, due_ns)


def clean_up(partition: Partition) -> None:
    """Remove empty queues that are dynamic or draining, leaves before their parents."""
    for queue in reversed(list(depth_first(partition.root))):
        if queue.parent is None or (queue.is_managed and queue.status != DRAINING):
            continue
        if not queue.applications and not queue.children:
            _take_out(partition, queue)


def _take_out(partition: Partition, queue: Queue) -> None:
    above = queue.parent
    assert above is not None
    queue_moves.remove(partition, queue)
    if above.becomes_leaf and not above.children:
        partition.set(above, is_leaf=True, becomes_leaf=False)
        above.forget_turns()
        partition.journal.record(QueueChanged(above))
    users, groups = queue.user_limits, queue.group_limits
    partition.set(queue, user_limits={}, group_limits={})
    for entry in limit_changes(queue, users, groups):
        partition.journal.record(entry)
    partition.journal.record(QueueEnded(queue))
