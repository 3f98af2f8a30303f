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
Source: contract sections 6.7 and 6.8. With ``backfill`` an ask may take room on a reserved node
that the reservation does not lack: what it takes leaves enough of every type for what is reserved.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.core.scheduler.gates import Gate
from services.core.scheduler.nodes import Node
from services.core.scheduler.queues import Queue
from services.core.scheduler.shapes import Ask, AskGroup, Shape
from services.core.scheduler.users import first_shortage
from shared.model.units import seconds

if TYPE_CHECKING:
    from services.core.scheduler.application import Application
    from services.core.scheduler.partition import Partition

EXPIRY_NS = seconds(2 * 60 * 60)


@dataclass(slots=True, eq=False, repr=False)
class Reservation:
    """A node that is kept for an ask. ``waits_at`` is the gate that refused it last."""

    partition: "Partition"
    application: "Application"
    ask: Ask
    node: Node
    since_ns: int
    is_required: bool = False
    has_preempted: bool = False
    waits_at: Gate | None = None

    @property
    def is_ordinary(self) -> bool:
        """Return whether it was made for age alone: not by need of the node, nor by preemption."""
        return not (self.is_required or self.has_preempted)

    def retry(self) -> None:
        """Have the reservation tried in the next cycle."""
        self.waits_at = None
        self.partition.reserved_to_try[self] = None


def reserve(
    partition: "Partition", application: "Application", ask: Ask, node: Node, *, is_required: bool
) -> Reservation:
    """Keep a node for an ask."""
    reservation = Reservation(
        partition, application, ask, node, partition.now_ns, is_required=is_required
    )
    node.reservations[ask.key] = reservation
    application.reservations[ask.key] = reservation
    ask.shape.reservations[reservation] = None
    partition.nodes.refresh(node)
    partition.outbox.nodes[node.node_id] = node
    partition.outbox.touch(application)
    return reservation


def keep_freed_room(
    partition: "Partition", application: "Application", ask: Ask, node: Node
) -> Reservation:
    """Keep for an ask the room that others give up for it: on the node, and in its queues.

    It stays so until the ask starts or goes, or loses the node; then it may preempt once more.
    """
    ask.has_preempted = True
    if not ask.has_kept_room:
        ask.has_kept_room = True
        application.queue.keep(ask.shape.resource)
    if ask.key in application.reservations:
        unreserve(partition, application.reservations[ask.key])
    give_back(partition, node, only_ordinary=True)
    held = reserve(partition, application, ask, node, is_required=False)
    held.has_preempted = True
    return held


def unreserve(partition: "Partition", reservation: Reservation) -> None:
    """End a reservation; the node is there for everybody again once it has no other."""
    key, node = reservation.ask.key, reservation.node
    reservation.application.reservations.pop(key, None)
    reservation.ask.shape.reservations.pop(reservation, None)
    partition.reserved_to_try.pop(reservation, None)
    if reservation.waits_at is not None:
        reservation.waits_at.reservations.pop(reservation, None)
    node.reservations.pop(key, None)
    if reservation.has_preempted and reservation.ask.has_kept_room:
        reservation.ask.has_kept_room = reservation.ask.has_preempted = False
        reservation.application.queue.keep_no_more(reservation.ask.shape.resource)
    if node.node_id in partition.nodes.nodes:
        partition.nodes.refresh(node)
        partition.node_improved(node)
    partition.outbox.touch(reservation.application)


def give_back(partition: "Partition", node: Node, *, only_ordinary: bool = False) -> None:
    """End the reservations of a node; ``only_ordinary`` leaves those who need it or preempted."""
    for reservation in list(node.reservations.values()):
        if reservation.is_ordinary or not only_ordinary:
            unreserve(partition, reservation)


def has_room(partition: "Partition", reservation: Reservation) -> bool:
    """Return whether queue, user and group have the headroom; if not it waits at the gate.

    One that has waited for EXPIRY_NS without headroom is given up.
    """
    application, amount = reservation.application, reservation.ask.shape.resource
    short_user = first_shortage(application, amount)
    short_queue = application.queue.first_without_room(
        amount, heed_kept=not reservation.ask.has_kept_room
    )
    gate = short_user[0].gate if short_user else short_queue[0].gate if short_queue else None
    if gate is None:
        return True
    if partition.now_ns - reservation.since_ns > EXPIRY_NS:
        unreserve(partition, reservation)
    else:
        reservation.waits_at = gate
        gate.reservations[reservation] = None
    return False


# --- who gets one ---------------------------------------------------------------------------------


def reserve_for_the_old(partition: "Partition") -> None:
    """Give reservations to the asks that are old enough, in the order in which they are served.

    Looked at are the shapes that were refused, or had a chance, since the last look. Asks that
    are still too young set the moment of the next one.
    """
    wanted, partition.shapes_to_reserve = partition.shapes_to_reserve, {}
    if not partition.settings.reservations or not partition.nodes.has_unreserved():
        return
    hopeful = [
        shape
        for shape in wanted
        if shape.blocked_buckets
        and not shape.constraints.required_node
        and partition.nodes.best_to_reserve(shape) is not None
    ]
    for leaf in _leaves_in_order(partition.root) if hopeful else ():
        for group in _refused_groups(leaf, hopeful):
            _reserve_group(partition, group)


def _leaves_in_order(queue: Queue) -> list[Queue]:
    """Return the leaves with asks that wait, in the order in which they would be served."""
    if not queue.pending:
        return []
    if queue.is_leaf:
        return [queue]
    children = sorted(queue.children.values(), key=queue.order_of_children())
    return [leaf for child in children for leaf in _leaves_in_order(child)]


def _refused_groups(leaf: Queue, shapes: list[Shape]) -> list[AskGroup]:
    """Return the groups of some shapes that the nodes refuse, in the leaf's order."""
    groups = [
        group
        for shape in shapes
        for bucket in shape.blocked_buckets
        if bucket.leaf is leaf
        for group in bucket.groups
        if group.asks and group.application.may_schedule
    ]
    return sorted(groups, key=lambda group: group.application.order + _head(group).order)


def _head(group: AskGroup) -> Ask:
    head = group.head()
    assert head is not None
    return head


def _reserve_group(partition: "Partition", group: AskGroup) -> None:
    application = group.application
    if application.hold(group) is not None:
        return
    delay_ns = partition.settings.reservation_delay_ns
    for ask in sorted(group.asks.values(), key=lambda ask: ask.order):
        if ask.key in application.reservations:
            continue
        due_ns = ask.created_ns + delay_ns
        if due_ns > partition.now_ns:
            partition.look_for_old_asks_at(due_ns)
            continue
        node = partition.nodes.best_to_reserve(ask.shape)
        if node is None:
            return
        reserve(partition, application, ask, node, is_required=False)
