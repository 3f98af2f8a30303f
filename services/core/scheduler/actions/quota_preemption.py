"""Enforced quota changes: a queue whose max fell below its usage evicts the excess.

Rule 1: only if the partition sets ``quotapreemptionenabled`` and the queue, a managed one, has a
        ``quota.preemption.delay``; that long after its max fell below its usage, the delay was set,
        or an existing or resized pod exceeded the max. Lowering the max again does not restart the
        delay; a changed delay counts from the same start.
Rule 2: the excess is what is over the max in the types of the max, but nothing that the queue, or
        one above it, is guaranteed. A parent's excess is divided among its children in proportion
        to their usage above their guarantees, down to the leaves.
Rule 3: victims of a leaf have a type in common and no required node: ordinary pods before
        originators and those that opted out, those with more of the types first, then lower
        priority, then later hour of creation, then smaller. One is chosen only if the sum stays
        within the excess. If the queue then is still over its max, and a waiting ask would fit
        below the max, larger ones are chosen in the same order until it is not, as long as every
        queue keeps its guarantee; earlier victims that are no longer needed are dropped. An ask
        that begins to wait at a queue over its max starts the delay, if none runs.
Rule 4: parents are handled before their children, which then evict the rest.
Source: docs/rules/preemption.md#quota-changes; cases X-17, X-19, X-20.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from heapq import heapify, heappop
from itertools import chain
from operator import le, sub

from services.core.scheduler.actions.victims import evict
from services.core.scheduler.model.rows import Queue, depth_first
from services.core.scheduler.nodes.victim_budgets import Releases
from services.core.scheduler.statement.journal import QuotaEnforced
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation, AllocationAsk
from shared.messages.protocol import TimerKind
from shared.model.reasons import EvictionCause
from shared.model.resources import (
    Resource,
    ResourceView,
    add_into,
    fits_limit,
    subtract,
    total_of,
    without_zeros,
)
from shared.model.units import seconds

MESSAGE = "preempting allocations to enforce new max quota for queue: "
HOUR_NS = seconds(60 * 60)
Part = tuple[int, ...]  # an allocation's amounts of the wanted types, in their order
Order = tuple[int, int, int, int, Fraction]  # rank, types, priority, hour, largest ratio
Entry = tuple[int, str, int, Part, Allocation]  # created, key, index (unique)


def max_changed(partition: Partition, queue: Queue) -> None:
    """Start, move or stop the delay after a queue's max, delay or usage changed."""
    before = queue.quota_due_ns
    delay_ns = queue.settings.quota_preemption_delay_ns
    if not may_enforce(partition, queue) or not preemptable(queue):
        since_ns = due_ns = 0
    else:
        since_ns = queue.quota_since_ns or partition.now_ns
        due_ns = since_ns + delay_ns
    if due_ns != before:
        partition.set(queue, quota_since_ns=since_ns, quota_due_ns=due_ns)
        _arm(partition)


def use_changed(partition: Partition, queue: Queue) -> None:
    """Start the delay of the queues that an existing or resized pod takes over their max."""
    if partition.quota_preemption_enabled:
        for level in queue.lineage():
            if level.settings.quota_preemption_delay_ns:
                max_changed(partition, level)


def asks_arrived(partition: Partition, asks: Iterable[AllocationAsk]) -> None:
    """Start the delay of queues over their max when asks begin to wait there."""
    if not partition.quota_preemption_enabled:
        return
    owners = dict.fromkeys(ask.application_id for ask in asks)
    found = (partition.applications.get(owner) for owner in owners)
    for leaf in dict.fromkeys(application.queue for application in found if application):
        use_changed(partition, leaf)


def _arm(partition: Partition) -> None:
    due = [queue.quota_due_ns for queue in partition.queues.values() if queue.quota_due_ns]
    if due:
        partition.arm_own_timer(TimerKind.QUOTA, max(min(due), partition.now_ns))


def _used(queue: Queue, name: str) -> int:
    return queue.allocated.get(name, 0) - queue.preempting.get(name, 0)


def preemptable(queue: Queue) -> Resource:
    """Return a queue's excess: over its max, and not guaranteed to it or a queue above."""
    over = {name: _used(queue, name) - most for name, most in (queue.max_resource or {}).items()}
    for level in queue.lineage():
        for name, guaranteed in (level.guaranteed_resource or {}).items():
            if name in over:
                over[name] = min(over[name], _used(level, name) - guaranteed)
    return {name: value for name, value in over.items() if value > 0}


# --- division -------------------------------------------------------------------------------------


def divided(queue: Queue, amount: ResourceView) -> dict[Queue, Resource]:
    """Return each leaf's part of a queue's excess."""
    if queue.is_leaf:
        return {queue: dict(amount)}
    shares: dict[Queue, Resource] = {child: {} for child in queue.children.values()}
    for name, value in amount.items():
        for child, part in _proportional(value, _above_guarantee(queue, name)).items():
            shares[child][name] = part
    found: dict[Queue, Resource] = {}
    for child, share in shares.items():
        if any(share.values()):
            found |= divided(child, without_zeros(share))
    return found


def _above_guarantee(queue: Queue, name: str) -> dict[Queue, int]:
    """Return each child's usage of a type above its guarantee and those below it."""
    return {child: _can_give(child, name) for child in queue.children.values()}


def _can_give(queue: Queue, name: str) -> int:
    above = _used(queue, name) - (queue.guaranteed_resource or {}).get(name, 0)
    if not queue.is_leaf:
        above = min(above, sum(_above_guarantee(queue, name).values()))
    return max(0, above)


def _proportional(amount: int, weights: dict[Queue, int]) -> dict[Queue, int]:
    """Divide an amount by weights in whole units, none above its weight; large remainders first."""
    total = sum(weights.values())
    amount = min(amount, total)
    if amount <= 0:
        return {}
    shares = {queue: amount * weight // total for queue, weight in weights.items()}
    left = amount - sum(shares.values())
    rests = sorted(weights, key=lambda queue: (-(amount * weights[queue] % total), queue.path))
    for queue in rests[:left]:
        shares[queue] += 1
    return shares


# --- enforcement ----------------------------------------------------------------------------------


def enforce(partition: Partition) -> None:
    """Evict the excess of the queues whose delay has passed, parents before children."""
    partition.victims.start(partition.applications.values())
    for queue in depth_first(partition.root):
        if queue.quota_due_ns and queue.quota_due_ns <= partition.now_ns:
            partition.set(queue, quota_since_ns=0, quota_due_ns=0)
            wanted = preemptable(queue)
            if wanted:
                _give_back(partition, queue, wanted)
    _arm(partition)


def _give_back(partition: Partition, queue: Queue, wanted: Resource) -> None:
    victims = victims_below(partition, queue, wanted)
    for victim in victims:
        owner = partition.applications[victim.application_id]
        text = f"Preempted by Quota change enforcement process in {queue.path}"
        key, reason = victim.allocation_key, MESSAGE + queue.path
        evict(partition, owner, key, None, reason, cause=EvictionCause.QUOTA, event=text)
    claimed = _sum(victims)
    partition.journal.record(QuotaEnforced(queue, wanted, claimed, len(victims)))


def may_enforce(partition: Partition, queue: Queue) -> bool:
    """Whether a queue over its max has its excess evicted after a delay."""
    return bool(
        partition.quota_preemption_enabled
        and queue.settings.quota_preemption_delay_ns
        and queue.is_managed
    )


def victims_below(partition: Partition, queue: Queue, wanted: Resource) -> list[Allocation]:
    """Victims of a queue over its max."""
    going = partition.victims.budgets.releases()
    shares = divided(queue, wanted)
    victims = [
        victim
        for leaf, share in shares.items()
        for victim in victims_of(partition, leaf, share, going)
    ]
    if len(queue.wait_list.buckets) and _less(wanted, _sum(victims)):
        more = _with_larger(partition, shares, wanted, victims)
        if more and _helps(queue, more):
            return more
    return victims


def _with_larger(
    partition: Partition,
    leaves: Iterable[Queue],
    wanted: Resource,
    victims: list[Allocation],
) -> list[Allocation]:
    """Return victims that bring the queue below its max; [] if guarantees prevent it."""
    chosen = {victim.allocation_key for victim in victims}
    going = partition.victims.budgets.releases(chosen)
    refused: set[tuple[Queue, Part]] = set()  # equal ones of the leaf would be refused too
    for leaf in leaves:
        for part, candidate in _in_order(partition, leaf, wanted):
            key = candidate.allocation_key
            if key in chosen or (leaf, part) in refused or not going.may_go(key):
                continue
            taken = _needed(wanted, victims, candidate)
            if not _respect_guarantees(partition, taken):
                refused.add((leaf, part))
                continue
            going.go(key)
            chosen.add(key)
            victims = taken
            if not _less(wanted, _sum(victims)):
                return victims
    return []


def _needed(wanted: Resource, victims: list[Allocation], candidate: Allocation) -> list[Allocation]:
    """Return a further victim, and those of the others that are still needed with it."""
    claimed = _sum([*victims, candidate])
    kept: list[Allocation] = []
    for victim in reversed(victims):
        without = subtract(claimed, victim.resource_per_alloc)
        if _less(wanted, without):
            kept.append(victim)
        else:
            claimed = without
    return [*reversed(kept), candidate]


def _respect_guarantees(partition: Partition, victims: list[Allocation]) -> bool:
    """Whether every queue keeps its guarantee without the victims."""
    taken: dict[Queue, Resource] = {}
    for victim in victims:
        for level in partition.applications[victim.application_id].queue.lineage():
            add_into(taken.setdefault(level, {}), victim.resource_per_alloc)
    return all(
        not amount.get(name) or _used(level, name) - amount[name] >= value
        for level, amount in taken.items()
        for name, value in (level.guaranteed_resource or {}).items()
    )


def _helps(queue: Queue, victims: list[Allocation]) -> bool:
    """Whether an ask that waits at a queue fits below its max without the victims."""
    claimed = _sum(victims)
    room = {
        name: most - _used(queue, name) + claimed.get(name, 0)
        for name, most in (queue.max_resource or {}).items()
    }
    waiting = queue.wait_list.buckets.to_try(room)
    return any(fits_limit(room, bucket.shape.resource) for bucket in waiting)


def _less(wanted: Resource, amount: ResourceView) -> Resource:
    """Return what is wanted beyond an amount."""
    left = {name: value - amount.get(name, 0) for name, value in wanted.items()}
    return {name: value for name, value in left.items() if value > 0}


def _sum(victims: Iterable[Allocation]) -> Resource:
    return total_of(victim.resource_per_alloc for victim in victims)


def victims_of(
    partition: Partition,
    leaf: Queue,
    wanted: Resource,
    going: Releases | None = None,
) -> list[Allocation]:
    """Return the allocations of a leaf whose sum stays within its part of the excess.

    Disruption budgets are respected, together with the victims in ``going``. Only classes of which
    a member fits are sorted.
    """
    left = tuple(wanted.values())
    chosen: list[Allocation] = []
    going = going or partition.victims.budgets.releases()
    for _, parts in sorted(_classes(partition, leaf, wanted).items()):
        waiting = [entry for entries in parts.values() for entry in entries]
        heapify(waiting)
        while waiting and any(_fits(part, left) for part in parts):
            *_, part, allocation = heappop(waiting)
            if _fits(part, left) and going.may_go(allocation.allocation_key):
                going.go(allocation.allocation_key)
                left = tuple(map(sub, left, part))
                chosen.append(allocation)
    return chosen


def _in_order(
    partition: Partition, leaf: Queue, wanted: Resource
) -> Iterator[tuple[Part, Allocation]]:
    """Yield a leaf's candidates in order, each with its amounts of the wanted types."""
    for _, parts in sorted(_classes(partition, leaf, wanted).items()):
        for *_, part, allocation in sorted(chain.from_iterable(parts.values())):
            yield part, allocation


def _fits(part: Part, left: Part) -> bool:
    return all(map(le, part, left))


def _classes(
    partition: Partition, leaf: Queue, wanted: Resource
) -> dict[Order, dict[Part, list[Entry]]]:
    """Return a leaf's candidates by the first part of their order, then by their amounts."""
    names, most = tuple(wanted), tuple(wanted.values())
    sizes: dict[Part, tuple[int, Fraction]] = {}
    found: dict[Order, dict[Part, list[Entry]]] = {}
    for at, allocation in enumerate(_candidates(partition, leaf)):
        part = tuple(allocation.resource_per_alloc.get(name, 0) for name in names)
        if part not in sizes:
            size = max(Fraction(*one) for one in zip(part, most, strict=True))
            sizes[part] = (-sum(value > 0 for value in part), size)
        types, size = sizes[part]
        if types:
            hour, created = allocation.create_time_ns // HOUR_NS, allocation.create_time_ns
            order = (partition.victims.rank_of(allocation), types, allocation.priority, -hour, size)
            entry = (-created, allocation.allocation_key, at, part, allocation)
            found.setdefault(order, {}).setdefault(part, []).append(entry)
    return found


def _candidates(partition: Partition, leaf: Queue) -> Iterator[Allocation]:
    for application in leaf.applications.values():
        for key, allocation in application.allocations.items():
            may_go = not (allocation.constraints.required_node or partition.victims.is_barred(key))
            if key not in application.released and may_go:
                yield allocation
