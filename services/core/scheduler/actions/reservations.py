"""Reservations: a node is claimed for an ask that has waited long, so that it is not starved.

Rule 1: an ask that no node has the room for is given a node of its own once it is as old as the
        reservation delay: of those that could hold it, and that other pods and volumes leave open
        to it now, the one whose room is the tightest. An ask
        has one reservation, a node one; asks that require a node may queue up at it.
        So may those for which victims go there.
Rule 2: a reserved node takes nothing but what it is reserved for, except that a real pod may take
        its own placeholder's place. Reserved asks are tried before all others, on their node and
        then on any other.
Rule 3: a reservation ends with its ask, its node or its application; it is given up when its
        queue has had no headroom for it for EXPIRY_NS.
Rule 4: no more nodes are reserved than the setting ``maxReservedNodes`` allows, but for required
        ones. They go to the highest priority, as the queues on the way to the root make it, then
        to the oldest; a higher priority takes the place of the lowest. A preemptor has its node in
        any case.
Rule 5: one for the head of each queue and shape: none for an ask with others of its shape waiting
        ahead of it, or whose queue has one; a higher priority takes the place of a lower one. With
        the setting ``reservations: asks``, and on up to RESERVED_NODES_LEAST nodes, each old ask
        has its own, as in YuniKorn. Where nodes are reserved for the head gang (``lane.py``) no ask
        has one for age.
Rule 6: for heads no node is reserved on which room is expected, by what its pods state or what is
        predicted of them, later than AHEAD_NS from now; of the others the one that has room
        soonest. Where nothing is known it is the tightest, as in rule 1. When room has not come as
        expected, and is not expected soon, the reservation is given up.
Limits: of a shape those MAX_LOOKED nodes are checked that lack least; a pass ends when MAX_LATE
shapes have been found to get no node in time, and the others wait for the next.
Source: docs/rules/scheduling.md#reservations and docs/rules/scheduling.md#required-nodes, and for
rule 4 docs/adr/0027. With ``backfill`` an ask may take room on a reserved node that the reservation
does not lack: what it takes leaves enough of every type for what is reserved.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain

from services.core.scheduler.actions.expected_room import room_ns
from services.core.scheduler.model.node_fit import could_hold
from services.core.scheduler.model.reservations import rank_of
from services.core.scheduler.model.rows import AskGroup, Bucket, Claim, Node, Rank, WaitList
from services.core.scheduler.model.run_times import NEVER_NS
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.user_table import first_shortage
from services.core.scheduler.ordering import queueing
from services.core.scheduler.ordering.quotas import over_quota
from services.core.scheduler.place.one import first_to_have_room, node_to_reserve
from services.core.scheduler.statement.partition import Partition
from shared.model.reasons import Refusal
from shared.model.units import seconds

EXPIRY_NS = seconds(2 * 60 * 60)
AHEAD_NS = seconds(5 * 60)  # how long before it has room a node is kept for a head
MAX_LOOKED = 16  # nodes checked for one shape; those that lack more are not
MAX_LATE = 4  # shapes of a pass that no node fits in time; the rest wait for the next


def has_room(partition: Partition, reservation: Claim) -> bool:
    """Return whether queue, user and group have the headroom; if not it is blocked by the first.

    One that has waited for EXPIRY_NS without headroom is ended: its ask is blocked by the same
    limit, and no more by the nodes, else it would be given one again at once.
    """
    application, amount = reservation.application, reservation.ask.shape.resource
    short_user = first_shortage(application, amount)
    short_queue = application.queue.first_without_room(amount, count_kept=not reservation.in_queues)
    wait_list: WaitList | None
    wait_list = (
        short_user[0].wait_list if short_user else short_queue[0].wait_list if short_queue else None
    )
    if wait_list is None:
        own = amount if reservation.in_queues else {}
        refused: tuple[Refusal, WaitList] | None = over_quota(application, amount, own)
        refused = refused or partition.no_capacity(application, amount)
        wait_list = refused[1] if refused is not None else None
    if wait_list is None:
        return True
    if partition.now_ns - reservation.since_ns > EXPIRY_NS:
        partition.unreserve(reservation)
        queueing.requeue_bucket(application.group_of[reservation.ask.key].bucket)
    else:
        reservation.wait_at(wait_list)
    return False


# --- who gets one ---------------------------------------------------------------------------------


def reserve_for_the_old(partition: Partition) -> None:
    """Reserve nodes for the asks that are old enough, the highest rank first, up to the bound.

    Checked are the heads of the shapes that were refused, or requeued, since the last pass. Asks
    that are still too young set the moment of the next one.
    """
    wanted, partition.shapes_to_reserve = partition.shapes_to_reserve, {}
    if not partition.settings.reserves_for_asks:
        return
    is_for_heads = _is_for_heads(partition)
    if is_for_heads and _give_up_the_late(partition):
        return  # as below
    most = partition.settings.max_reserved_nodes(partition.nodes.columns.schedulable_count())
    last = partition.reserved_nodes.last
    if len(partition.reserved_nodes) >= most and (
        last is None or partition.root.priorities.highest <= -last.rank[0]
    ):
        return  # no ask that waits is above the lowest that has a node
    current = _Pass(partition, most, is_for_heads)
    for wanted_ask in _in_rank_order(partition, wanted, most, current.without_node):
        if not current.serve(*wanted_ask):
            return  # what waits has changed: the rest in the next pass, which is due now


@dataclass(slots=True)
class _Pass:
    """One pass: ``without_node`` are the shapes that are read no further."""

    partition: Partition
    most: int
    is_for_heads: bool
    without_node: dict[Shape, None] = field(default_factory=dict)
    late: int = 0  # shapes for which no node has room in time

    def serve(self, rank: Rank, group: AskGroup, ask: Ask) -> bool:
        """Reserve a node for an ask if there is one for it; return whether others may have one."""
        partition, shape = self.partition, ask.shape
        rival = _rival(partition, group) if self.is_for_heads else None
        if rival is not None and not _outranks(rank, rival):
            self.without_node[shape] = None
            return True
        node = self._node_for(shape)
        if node is None or self.is_for_heads:
            self.without_node[shape] = None
        if rival is not None:
            if node is None and not _may_hold(partition, rival.node, shape):
                return True
            partition.unreserve(rival)
            return False
        if len(partition.reserved_nodes) < self.most:
            if node is not None:
                _reserve(partition, group, ask, node)
            return self.late < MAX_LATE
        last = partition.reserved_nodes.last
        return _outranks(rank, last) and not _take_place(partition, group, ask, node)

    def _node_for(self, shape: Shape) -> Node | None:
        """Return the node that is to be kept for an ask of a shape, or None."""
        partition = self.partition
        if not self.is_for_heads:
            return node_to_reserve(partition.nodes, shape)
        soonest, at_ns, other = first_to_have_room(
            partition.nodes, shape, MAX_LOOKED, lambda node: _expected_ns(partition, node, shape)
        )
        if soonest is None:
            return other
        if at_ns <= partition.now_ns + AHEAD_NS:
            return soonest
        self.late += 1
        partition.check_old_asks_at(at_ns - AHEAD_NS)
        return other


def _is_for_heads(partition: Partition) -> bool:
    return partition.settings.is_for_heads(partition.nodes.columns.schedulable_count())


def _expected_ns(partition: Partition, node: Node, shape: Shape) -> int:
    """Return when a node is expected to have room for a shape, 0: nothing is known."""
    at_ns = room_ns(partition, node, shape)
    return 0 if at_ns >= NEVER_NS else at_ns


def _reserve(partition: Partition, group: AskGroup, ask: Ask, node: Node) -> None:
    reservation = partition.reserve(group.application, ask, node)
    if _is_for_heads(partition):
        _expect(partition, reservation, _expected_ns(partition, node, ask.shape))


def _expect(partition: Partition, reservation: Claim, at_ns: int) -> None:
    """Have a reservation checked again if there is no room at the moment that is expected."""
    reservation.expect(at_ns)
    if at_ns:
        partition.check_old_asks_at(at_ns + 1)


def _give_up_the_late(partition: Partition) -> bool:
    """End reservations whose nodes have no room when it was expected, nor soon."""
    given_up = False
    for _, held in list(partition.reserved_nodes.by_age):
        at_ns = held.expected_ns
        if 0 < at_ns < partition.now_ns:
            at_ns = _expected_ns(partition, held.node, held.ask.shape)
        if at_ns > partition.now_ns + AHEAD_NS:
            partition.unreserve(held)
            given_up = True
        else:
            _expect(partition, held, at_ns)
    return given_up


def _rival(partition: Partition, group: AskGroup) -> Claim | None:
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


def _outranks(rank: Rank, last: Claim | None) -> bool:
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
    _reserve(partition, group, ask, node)
    return True


def _may_hold(partition: Partition, node: Node, shape: Shape) -> bool:
    """Return whether a node that is reserved may be kept for an ask of a shape instead."""
    if not (could_hold(node, shape) and partition.nodes.filters.admits.holds(node, shape)):
        return False
    soon_ns = partition.now_ns + AHEAD_NS
    return not _is_for_heads(partition) or _expected_ns(partition, node, shape) <= soon_ns


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

    Those that wait behind ``most`` others are skipped, even if those are still too young: they
    would be given no node before them.
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
                partition.check_old_asks_at(due_ns)
                young += 1
                break
            yield group, ask
        if young > most:
            return
