"""Reservations: a node is claimed for an ask that has waited long, so that it does not starve.

Rule 1: an ask that no node fits gets a node once it is as old as the reservation delay: of those
        that could fit it, and whose pods and volumes allow it now, the one with the tightest
        capacity. An ask has one reservation, a node one, except for asks that require the node or
        whose victims are on it.
Rule 2: a reserved node fits only its ask, except that a real pod may take its own placeholder's
        place. Reserved asks are tried first, on their node and then on any other.
Rule 3: a reservation ends with its ask, node or application, and when its queue has had no headroom
        for EXPIRY_NS.
Rule 4: at most ``maxReservedNodes`` nodes are reserved, required ones apart: for the highest
        priority, as the queues to the root set it, then the oldest; a higher priority replaces the
        lowest. A preemptor has its node in any case.
Rule 5: only the first ask of each queue and shape gets one; a higher priority replaces a lower one.
        With ``reservations: asks``, and up to RESERVED_NODES_LEAST nodes, each old ask gets one, as
        in YuniKorn. If nodes are reserved for the head gang (``head_gang.py``), no ask gets one for
        age.
Rule 6: by rule 5 a node is not reserved if it is expected to have the capacity, by stated or
        predicted ends, later than AHEAD_NS from now; of the others the soonest is. If nothing is
        known it is the tightest, as in rule 1. If the capacity is late, and not expected soon, the
        reservation ends.
Limits: for a shape the MAX_LOOKED nodes that lack least are checked; a pass ends after MAX_LATE
shapes without a node in time; the rest wait for the next.
Source: docs/rules/scheduling.md#reservations and docs/rules/scheduling.md#required-nodes, for rule
4 docs/adr/0027. With ``backfill`` an ask may use a reserved node if it leaves enough of every type
for the reservation.
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
AHEAD_NS = seconds(5 * 60)  # how long before it fits a node is reserved for a first ask
MAX_LOOKED = 16  # nodes checked for one shape; those that lack more are not
MAX_LATE = 4  # shapes of a pass that no node fits in time; the rest wait for the next


def has_room(partition: Partition, reservation: Claim) -> bool:
    """Whether queue, user, group and plugins have headroom; if not, it waits for the first.

    After EXPIRY_NS without headroom the reservation ends: its ask is then blocked by the limit
    instead of the nodes, otherwise it would get a reservation again.
    """
    application, amount = reservation.application, reservation.ask.shape.resource
    short_user = first_shortage(application, amount)
    short_queue = application.queue.first_without_room(
        amount, count_reserved=not reservation.in_queues
    )
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


# --- new reservations -----------------------------------------------------------------------------


def reserve_for_the_old(partition: Partition) -> None:
    """Reserve nodes for asks that are old enough, highest rank first, up to the limit.

    Checked are the shapes refused or requeued since the last pass. Asks that are too young set the
    time of the next.
    """
    wanted, partition.shapes_to_reserve = partition.shapes_to_reserve, {}
    if not partition.settings.reserves_for_asks:
        return
    is_for_heads = _is_for_heads(partition)
    if is_for_heads and _give_up_the_late(partition):
        return  # the waiting asks changed, as below
    most = partition.settings.max_reserved_nodes(partition.nodes.columns.schedulable_count())
    last = partition.reserved_nodes.last
    if len(partition.reserved_nodes) >= most and (
        last is None or partition.root.priorities.highest <= -last.rank[0]
    ):
        return  # no waiting ask has a higher priority than the lowest reservation
    current = _Pass(partition, most, is_for_heads)
    for wanted_ask in _in_rank_order(partition, wanted, most, current.without_node):
        if not current.serve(*wanted_ask):
            return  # the waiting asks changed: the next pass, due now, does the rest


@dataclass(slots=True)
class _Pass:
    """One pass: ``without_node`` are the shapes that are not read further."""

    partition: Partition
    most: int
    is_for_heads: bool
    without_node: dict[Shape, None] = field(default_factory=dict)
    late: int = 0  # shapes for which no node has room in time

    def serve(self, rank: Rank, group: AskGroup, ask: Ask) -> bool:
        """Reserve a node for an ask if one fits; return whether the pass continues."""
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
        """Return the node to reserve for a shape, or None."""
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
    """Return when a node is expected to fit a shape; 0: unknown."""
    at_ns = room_ns(partition, node, shape)
    return 0 if at_ns >= NEVER_NS else at_ns


def _reserve(partition: Partition, group: AskGroup, ask: Ask, node: Node) -> None:
    reservation = partition.reserve(group.application, ask, node)
    if _is_for_heads(partition):
        _expect(partition, reservation, _expected_ns(partition, node, ask.shape))


def _expect(partition: Partition, reservation: Claim, at_ns: int) -> None:
    """Schedule a check of a reservation for when its capacity is expected."""
    reservation.expect(at_ns)
    if at_ns:
        partition.check_old_asks_at(at_ns + 1)


def _give_up_the_late(partition: Partition) -> bool:
    """End reservations whose capacity is late and not expected soon; return whether any ended."""
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
    """Return the reservation for age of an ask's shape, or else of its queue."""
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
    """Whether a priority is higher than that of the reservation that would end."""
    return last is not None and rank[0] < last.rank[0]


def _take_place(partition: Partition, group: AskGroup, ask: Ask, node: Node | None) -> bool:
    """Reserve a node for an ask instead of the lowest reservation; False if none fits."""
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
    """Whether a reserved node may be reserved for another shape instead."""
    if not (could_hold(node, shape) and partition.nodes.filters.admits.holds(node, shape)):
        return False
    soon_ns = partition.now_ns + AHEAD_NS
    return not _is_for_heads(partition) or _expected_ns(partition, node, shape) <= soon_ns


_Head = tuple[Rank, AskGroup, Ask, Iterator[tuple[AskGroup, Ask]]]


def _in_rank_order(
    partition: Partition, shapes: dict[Shape, None], most: int, without_node: dict[Shape, None]
) -> Iterator[tuple[Rank, AskGroup, Ask]]:
    """Yield the asks of some shapes that want a node, by rank.

    Shapes added to ``without_node`` are not read further. The buckets must not change meanwhile;
    reservations may be made.
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
        if ask.shape not in without_node:  # it may have been added meanwhile
            _push_next(heads, rest)


def _push_next(
    heads: list[_Head],
    asks: Iterator[tuple[AskGroup, Ask]],
) -> None:
    for group, ask in asks:
        heappush(heads, (rank_of(group.bucket.leaf, ask), group, ask, asks))
        return


def _old_asks(partition: Partition, bucket: Bucket, most: int) -> Iterator[tuple[AskGroup, Ask]]:
    """Yield a bucket's asks that are old enough and have no reservation, in the leaf's order.

    Asks behind ``most`` too young ones are skipped: these would get nodes before them.
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
