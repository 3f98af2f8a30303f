"""Asks that require one node: the pods of DaemonSets.

Rule 1: such an ask is placed on its node, cordoned or not, as soon as it fits; ordinary
        reservations of the node end. If it does not fit, it reserves the node at once.
Rule 2: several may be reserved at a node; they are served in order of arrival.
Rule 3: it may preempt on its node, once: allocations without a required node, of no higher
        priority, with a type in common; ordinary pods before originators, those that opted out
        last; of these as few as needed, then by priority, the newest and the smaller first.
        Guarantees and the partition's preemption switch do not apply.
Source: docs/rules/scheduling.md#required-nodes; cases R-08 to R-11, G-17.
"""

from services.core.scheduler.actions.on_node import OnNode, Opening, budget_costs
from services.core.scheduler.actions.victims import evict_for, have_type_in_common
from services.core.scheduler.model.node_fit import matches
from services.core.scheduler.model.rows import Application, Bucket, Claim, Node, Purpose
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.victim_kinds import Victim
from services.core.scheduler.nodes.victim_sets import (
    Candidate,
    Limit,
    Needs,
    Steps,
    smallest_set,
)
from services.core.scheduler.statement import allocation_log
from services.core.scheduler.statement.allocation_log import note
from services.core.scheduler.statement.journal import (
    ApplicationChanged,
    ClaimMade,
    NoVictim,
)
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.reasons import EvictionCause, Fact, Kind, Reason, Refusal
from shared.model.resources import ResourceView, bounded, fits_room
from shared.model.units import seconds

REASON = "preempting allocations to free up resources to run daemon set ask: "
REQUIRED_NODE = "requirednode"  # the action's name for plugins' victim filters
TELL_AGAIN_NS = seconds(15)


def node_for(partition: Partition, application: Application, ask: Ask) -> Node | Refusal:
    """Return the ask's node if it fits now, else a refusal; it may then have a reservation."""
    name = ask.shape.constraints.required_node
    node = partition.nodes.nodes.get(name)
    if node is None:
        return Refusal(Reason.REQUIRED_NODE, Fact(Kind.NODE_MISSING, name))
    if not matches(ask.shape.constraints, node):
        return Refusal(Reason.CONSTRAINTS, Fact(Kind.NODE_CLOSED, name))
    if not partition.nodes.filters.admits.holds(node, ask.shape):
        text = partition.nodes.room.why_closed(node, ask.shape)
        return Refusal(Reason.PLUGIN, Fact(Kind.PLUGIN, text=text))
    partition.give_back(node, only_ordinary=True)
    others = [key for key in node.reservations if key != ask.key]
    if not others and partition.nodes.filters.takes.holds(node, ask.shape):
        return node
    if not fits_room(node.capacity, ask.shape.resource):
        return _refusal(Reason.NODE_TOO_SMALL, Kind.NODE_SMALL, ask, node.capacity)
    _reserve_all(partition, application.group_of[ask.key].bucket, node)
    return _refusal(Reason.REQUIRED_NODE, Kind.NODE_FULL, ask, node.available)


def _refusal(reason: Reason, kind: Kind, ask: Ask, room: ResourceView) -> Refusal:
    amount = ask.shape.resource
    fact = Fact(kind, ask.shape.constraints.required_node, amount=amount, room=bounded(room))
    return Refusal(reason, fact)


def _reserve_all(partition: Partition, bucket: Bucket, node: Node) -> None:
    """Reserve the required node for every ask of a bucket."""
    for group in sorted(bucket.groups, key=lambda group: group.application.order):
        for ask in sorted(group.asks.values(), key=lambda ask: ask.order):
            if ask.key not in group.application.reservations:
                held = partition.reserve(group.application, ask, node, Purpose.REQUIRED)
                held.retry()


def make_room(partition: Partition, reservation: Claim) -> None:
    """Preempt on the node of a reservation, unless that was done or would not help."""
    node = reservation.node
    if reservation.has_preempted or not reservation.is_required:
        return
    ask, application = reservation.ask, reservation.application
    partition.victims.start(partition.applications.values())
    victims = _victims(partition, node, ask)
    if victims is None:
        return  # the pods being released are enough
    if not victims or not partition.agree(REQUIRED_NODE, victims, application):
        note(partition, application, ask, allocation_log.REQUIRED_NODE)
        if partition.now_ns - reservation.reported_ns >= TELL_AGAIN_NS:
            partition.set(reservation, reported_ns=partition.now_ns)
            partition.journal.record(NoVictim(application, ask))
        return
    partition.set(reservation, has_preempted=True)
    partition.set(ask, has_preempted=True)
    cause = EvictionCause.REQUIRED_NODE
    evict_for(partition, victims, application, ask, f"{REASON}{ask.key}", cause=cause)
    partition.journal.record(ClaimMade(reservation))  # now reported as a preemptor's
    partition.journal.record(ApplicationChanged(application))


def _victims(partition: Partition, node: Node, ask: Ask) -> list[Allocation] | None:
    """Return the smallest set of victims, [] if none helps, None if none is needed.

    Pods whose affinities conflict with the ask must be among them.
    """
    here = OnNode(Opening(partition, ask), node)
    going, limits = partition.victims.budgets.releases(), dict[Limit, int]()

    def candidate(victim: Victim) -> Candidate:
        gives = tuple(victim.kind.amount.get(name, 0) for name, _ in here.lacking)
        return Candidate(victim, gives, budget_costs(going, victim, limits), here.alike(victim))

    candidates = [candidate(victim) for victim in _candidates(partition, node, ask)]
    largest = tuple(map(max, zip(*(one.gives for one in candidates), strict=True)))
    needs = Needs(tuple(need for _, need in here.lacking), limits, here.accepts, largest)
    if needs.are_met(needs.of, ()):
        return None
    found = smallest_set(candidates, needs, Steps()) or []
    return [victim.allocation for victim in found]


def _candidates(partition: Partition, node: Node, ask: Ask) -> list[Victim]:
    preemptor = partition.applications[ask.request.application_id]
    found = [
        victim
        for victim in partition.victims.on(node).order
        if victim.allocation.priority <= ask.request.priority
        and have_type_in_common(victim.allocation.resource_per_alloc, ask.shape.resource)
        and partition.may_take(REQUIRED_NODE, victim.allocation, preemptor)
    ]
    return sorted(found, key=_order)


def _order(victim: Victim) -> tuple[int, int, int, tuple[tuple[str, int], ...], str]:
    """Return the sort key of victims: the first are evicted first."""
    size = tuple(sorted(victim.allocation.resource_per_alloc.items()))
    return (victim.rank, victim.allocation.priority, victim.newest, size, victim.key)
