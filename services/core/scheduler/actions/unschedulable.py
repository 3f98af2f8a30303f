"""Asks that more nodes would help are marked Unschedulable, once each, for an autoscaler.

Rule 1: an ask is marked when its queue, user and group have the headroom for it, nothing of its own
        application holds it back, and no node takes it. What waits for a quota or for its gang is
        not, and of asks in one queue, of one user, no more than the headroom has room for.
Rule 2: marking costs what is marked: asks that have been are not looked at again.
Source: docs/rules/pods.md#events-and-conditions.

Limit: MAX_GROUPS groups of asks are looked at a bucket and cycle; the others have their turn later.
"""

from dataclasses import replace
from itertools import islice

from services.core.scheduler.actions import backoff
from services.core.scheduler.model.rows import AskGroup, Bucket
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.journal import AskUnschedulable
from services.core.scheduler.statement.partition import Partition
from shared.model.reasons import NODES_WOULD_HELP, Kind, Refusal

MAX_GROUPS = 1_000


def mark(partition: Partition) -> None:
    """Mark the asks of every bucket that no node took since this was done last."""
    for bucket in partition.take_unplaced():
        if not _nodes_would_help(partition, bucket):
            continue
        room = _room(bucket)
        refusal: Refusal | None = None
        for group in list(islice(bucket.unmarked, MAX_GROUPS)):
            if room <= 0:
                break
            refusal = refusal or _by_nodes(partition, bucket)
            room -= _mark_group(partition, bucket, group, room, refusal)
        backoff.begin(partition, bucket)  # what came since waits with those that were refused


def mark_group(
    partition: Partition, group: AskGroup, head: Ask, refusal: Refusal, most: int
) -> None:
    """Mark a group's head, and of the others so many that ``most`` of the group are marked.

    For asks that wait outside of their bucket, because they have a place to take: a placeholder's.
    """
    if not head.is_marked:
        _mark(partition, group, head, refusal)
    _mark_asks(partition, group, most - group.marked, refusal)


def _nodes_would_help(partition: Partition, bucket: Bucket) -> bool:
    """Return whether it is for want of nodes that a bucket waits: the root's max is their sum."""
    refusal = bucket.refusal
    if refusal is None or bucket.shape.constraints.required_node:
        return False
    if refusal.fact is not None and refusal.fact.kind == Kind.DEVICE_RELEASING:
        return False
    return refusal.reason in NODES_WOULD_HELP or bucket.blocked_at is partition.root.wait_list


def _by_nodes(partition: Partition, bucket: Bucket) -> Refusal:
    """Return why a bucket waits, with what the nodes lack: also where their sum refused it."""
    assert bucket.refusal is not None
    if bucket.refusal.nodes is not None:
        return bucket.refusal
    return replace(bucket.refusal, nodes=partition.nodes.room.evidence(bucket.shape))


def _room(bucket: Bucket) -> int:
    """Return how many asks of a bucket queues and limits have room for, unmarked ones.

    The root's is no such room: it is the nodes' own.
    """
    most = sum(len(group.unmarked) for group in islice(bucket.unmarked, MAX_GROUPS))
    for queue in bucket.leaf.lineage():
        limit = queue.max_resource if queue.parent is not None else None
        for name, value in bucket.shape.resource.items():
            if limit is not None and name in limit and value > 0:
                left = limit[name] - queue.allocated.get(name, 0)
                most = min(most, left // value - bucket.marked)
    for tracker in bucket.owner:
        most = min(most, tracker.room_for(bucket.leaf, bucket.shape.resource) - bucket.marked)
    return most


def _mark_group(
    partition: Partition, bucket: Bucket, group: AskGroup, room: int, refusal: Refusal
) -> int:
    """Mark at most ``room`` asks of a group; one that is held back goes to the end of the line."""
    application = group.application
    if queueing.hold(application, group) is not None or not application.may_schedule:
        bucket.mark_last(group)
        return 0
    return _mark_asks(partition, group, room, refusal)


def _mark_asks(partition: Partition, group: AskGroup, room: int, refusal: Refusal) -> int:
    """Mark at most ``room`` asks of a group; return how many."""
    marked = 0
    while marked < room and (ask := group.next_unmarked()) is not None:
        _mark(partition, group, ask, refusal)
        marked += 1
    return marked


def _mark(partition: Partition, group: AskGroup, ask: Ask, refusal: Refusal) -> None:
    group.mark(ask)
    partition.journal.record(AskUnschedulable(group.application, ask, refusal))
