"""Marks asks that more nodes would help as unschedulable, once each, for the autoscaler.

Rule 1: an ask is marked if its queue, user and group have headroom for it, its application does not
        block it, and no node fits it. Asks that wait for a quota or their gang are not marked, and
        of asks of one queue and user only as many as fit the headroom.
Rule 2: marked asks are not read again.
Source: docs/rules/pods.md#events-and-conditions.
Limit: MAX_GROUPS groups of asks for each bucket and cycle; the others follow later.
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
    """Mark the asks of every bucket that no node fitted since the last call."""
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
        backoff.begin(partition, bucket)  # new asks of the bucket count as refused too


def mark_group(
    partition: Partition, group: AskGroup, head: Ask, refusal: Refusal, most: int
) -> None:
    """Mark a group's first ask, and others until ``most`` of the group are marked.

    For asks outside of their bucket's order, because they wait for a placeholder.
    """
    if not head.is_marked:
        _mark(partition, group, head, refusal)
    _mark_asks(partition, group, most - group.marked, refusal)


def _nodes_would_help(partition: Partition, bucket: Bucket) -> bool:
    """Whether a bucket is blocked by lack of nodes; the root's max is the sum of the nodes."""
    refusal = bucket.refusal
    if refusal is None or bucket.shape.constraints.required_node:
        return False
    if refusal.fact is not None and refusal.fact.kind == Kind.DEVICE_RELEASING:
        return False
    return refusal.reason in NODES_WOULD_HELP or bucket.blocked_at is partition.root.wait_list


def _by_nodes(partition: Partition, bucket: Bucket) -> Refusal:
    """Return a bucket's refusal, with what the nodes lack even if the root's max refused it."""
    assert bucket.refusal is not None
    if bucket.refusal.nodes is not None:
        return bucket.refusal
    return replace(bucket.refusal, nodes=partition.nodes.room.evidence(bucket.shape))


def _room(bucket: Bucket) -> int:
    """Return how many unmarked asks of a bucket fit the headroom, the root's max apart."""
    most = sum(len(group.unmarked) for group in islice(bucket.unmarked, MAX_GROUPS))
    for queue in bucket.leaf.lineage():
        limit = queue.max_resource if queue.parent is not None else None
        for name, value in bucket.shape.wanted.items():
            if limit is not None and name in limit:
                left = limit[name] - queue.allocated.get(name, 0)
                most = min(most, left // value - bucket.marked)
    for tracker in bucket.owner:
        most = min(most, tracker.room_for(bucket.leaf, bucket.shape.resource) - bucket.marked)
    return most


def _mark_group(
    partition: Partition, bucket: Bucket, group: AskGroup, room: int, refusal: Refusal
) -> int:
    """Mark at most ``room`` asks of a group; a blocked group moves to the end."""
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
