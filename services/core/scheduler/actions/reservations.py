"""Reservations: a node is kept for an ask that has waited long, so that it is not starved.

Rule 1: an ask that no node has the room for is given a node of its own once it is as old as the
        reservation delay: of those that could hold it, the one whose room is the tightest. An ask
        has one reservation, a node one; asks that require a node may queue up at it.
        So may those that have preempted there.
Rule 2: a reserved node takes nothing but what it is reserved for, except that a real pod may take
        its own placeholder's place. Reserved asks are tried before all others, on their node and
        then on any other.
Rule 3: a reservation ends with its ask, its node or its application; it is given up when its
        queue has had no headroom for it for EXPIRY_NS.
Rule 4: no more nodes are reserved than the setting ``maxReservedNodes`` lets, required ones apart.
        They go to the highest priority, as the queues on the way to the root make it, then to the
        oldest; a higher priority takes the place of the lowest. Who has preempted has its node in
        any case.
Rule 5: one for the head of each queue and shape: none for who has others of its shape waiting ahead
        of it, or whose queue has one; a higher priority takes the place of a lower one. With the
        setting ``reservationsFor: asks``, and on up to RESERVED_NODES_LEAST nodes, each old ask has
        its own, as in YuniKorn. While gangs have a lane (``lane.py``) nobody has one for age.
Source: contract sections 6.7 and 6.8, and for rule 4 docs/adr/0027. With ``backfill`` an ask may
take room on a reserved node that the reservation does not lack: what it takes leaves enough of
every type for what is reserved.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

from services.core.scheduler.model.node_fit import could_hold
from services.core.scheduler.model.reservations import rank_of
from services.core.scheduler.model.rows import AskGroup, Bucket, Node, Rank, Reservation
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.user_table import first_shortage
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.partition import Partition
from shared.model.units import seconds

EXPIRY_NS = seconds(2 * 60 * 60)


def has_room(partition: Partition, reservation: Reservation) -> bool:
    """Return whether queue, user and group have the headroom; if not it waits at the gate.

    One that has waited for EXPIRY_NS without headroom is given up: its ask waits at the gate too,
    and no more for a node, else it would be given one again at once.
    """
    application, amount = reservation.application, reservation.ask.shape.resource
    short_user = first_shortage(application, amount)
    short_queue = application.queue.first_without_room(
        amount, count_kept=not reservation.ask.has_kept_room
    )
    gate = short_user[0].gate if short_user else short_queue[0].gate if short_queue else None
    if gate is None:
        refused = partition.no_capacity(application, amount)
        gate = refused[1] if refused is not None else None
    if gate is None:
        return True
    if partition.now_ns - reservation.since_ns > EXPIRY_NS:
        partition.unreserve(reservation)
        queueing.requeue_bucket(application.group_of[reservation.ask.key].bucket)
    else:
        reservation.wait_at(gate)
    return False


# --- who gets one ---------------------------------------------------------------------------------


def reserve_for_the_old(partition: Partition) -> None:
    """Reserve nodes for the asks that are old enough, the highest rank first, up to the bound.

    Looked at are the heads of the shapes that were refused, or had a chance, since the last look.
    Asks that are still too young set the moment of the next one.
    """
    wanted, partition.shapes_to_reserve = partition.shapes_to_reserve, {}
    if not partition.settings.reservations or partition.settings.gang_lane:
        return
    most = partition.settings.max_reserved_nodes(partition.nodes.schedulable_count())
    last = partition.reserved_nodes.last
    if len(partition.reserved_nodes) >= most and (
        last is None or partition.root.highest <= -last.rank[0]
    ):
        return  # nobody who waits is above the lowest that has a node
    is_for_heads = partition.settings.is_for_heads(partition.nodes.schedulable_count())
    without_node: dict[Shape, None] = {}
    for rank, group, ask in _in_rank_order(partition, wanted, most, without_node):
        if is_for_heads:
            without_node[ask.shape] = None
            rival = _rival(partition, group)
            if rival is not None and _outranks(rank, rival):
                partition.unreserve(rival)
                return  # as below
            if rival is not None:
                continue
        if not _serve(partition, (rank, group, ask), most, without_node):
            return  # what waits has changed: the rest in the next look, which is due now


def _serve(
    partition: Partition,
    wanted: tuple[Rank, AskGroup, Ask],
    most: int,
    without_node: dict[Shape, None],
) -> bool:
    """Reserve a node for an ask if there is one for it; return whether others may have one too."""
    rank, group, ask = wanted
    node = partition.nodes.best_to_reserve(ask.shape)
    if len(partition.reserved_nodes) < most and node is not None:
        partition.reserve(group.application, ask, node)
        return True
    if len(partition.reserved_nodes) >= most and (
        not _outranks(rank, partition.reserved_nodes.last)
        or _take_place(partition, group, ask, node)
    ):
        return False
    without_node[ask.shape] = None
    return True


def _rival(partition: Partition, group: AskGroup) -> Reservation | None:
    """Return the reservation that an ask's shape, or else its queue, has for age."""
    like = partition.reserved_nodes.of_shape(group.bucket.shape)
    own = (held for _, held in partition.reserved_nodes.by_age)
    return next(
        chain(
            (held for held in like if held.is_ordinary),
            (held for held in own if held.application.queue is group.bucket.leaf),
        ),
        None,
    )


def _outranks(rank: Rank, last: Reservation | None) -> bool:
    """Return whether a priority is above that of the reservation which would make way."""
    return last is not None and rank[0] < last.rank[0]


def _take_place(partition: Partition, group: AskGroup, ask: Ask, node: Node | None) -> bool:
    """Reserve a node for an ask instead of for the last in rank; False when none could hold it."""
    last = partition.reserved_nodes.last
    assert last is not None
    if node is None and _may_hold(partition, last.node, ask.shape):
        node = last.node
    if node is None:
        return False
    partition.unreserve(last)
    partition.reserve(group.application, ask, node)
    return True


def _may_hold(partition: Partition, node: Node, shape: Shape) -> bool:
    return could_hold(node, shape) and partition.nodes.may_use(node, shape)


_Head = tuple[Rank, AskGroup, Ask, Iterator[tuple[AskGroup, Ask]]]


def _in_rank_order(
    partition: Partition, shapes: dict[Shape, None], most: int, without_node: dict[Shape, None]
) -> Iterator[tuple[Rank, AskGroup, Ask]]:
    """Yield the asks of some shapes that want a node, the highest rank of every bucket's first.

    Shapes that are entered in ``without_node`` are read no further. The buckets must not change
    meanwhile; reservations may be made.
    """
    heads: list[_Head] = []
    buckets = [
        bucket
        for shape in shapes
        if not shape.constraints.required_node
        for bucket in partition.root.blocked_buckets.get(shape, ())
    ]
    for bucket in buckets:
        _push_next(heads, _old_asks(partition, bucket, most))
    while heads:
        rank, group, ask, rest = heappop(heads)
        if ask.shape not in without_node:
            yield rank, group, ask
        if ask.shape not in without_node:  # it may have been entered meanwhile
            _push_next(heads, rest)


def _push_next(
    heads: list[_Head],
    asks: Iterator[tuple[AskGroup, Ask]],
) -> None:
    for group, ask in asks:
        heappush(heads, (rank_of(group.bucket.leaf, ask), group, ask, asks))
        return


def _old_asks(partition: Partition, bucket: Bucket, most: int) -> Iterator[tuple[AskGroup, Ask]]:
    """Yield a bucket's asks that are old enough and have no node yet, in the leaf's order.

    Those that wait behind ``most`` others are not looked at, be those still too young: they would
    be given no node before them.
    """
    young = 0
    for group in bucket.in_order():
        application = group.application
        if not application.may_schedule or queueing.hold(application, group) is not None:
            continue
        for ask in group.in_order():
            if ask.key in application.reservations:
                continue
            due_ns = ask.created_ns + partition.settings.reservation_delay_ns
            if due_ns > partition.now_ns:
                partition.look_for_old_asks_at(due_ns)
                young += 1
                break
            yield group, ask
        if young > most:
            return
