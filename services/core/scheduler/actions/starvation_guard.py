"""The starvation guard: a gang that has waited too long for its queue is not overtaken there.

Rule 1: a gang that has waited for ``starvationGuard`` since its submission is starved: for the
        maxima of its queues, for places on the nodes with ``gangAdmission: cluster``, and with the
        other two settings for its first member after its admission. Until it has an allocation no
        application behind it in its leaf starts: no gang is admitted, and none gets a first
        allocation. Started ones continue.
Rule 2: only a gang that capacity in its queues or on nodes would let start is waited for: not one
        blocked by a limit of its user or of running applications, one larger than a lowered max or
        than empty nodes, or one whose members need affinity to other applications' pods. Nor, if it
        is admitted and lacks nodes, one while another leaf is short of nodes too, which would use
        what this one leaves.
Rule 3: of several starved gangs the first in order is waited for. The others, and applications
        behind it, are in ``leaf.behind``, in order, at no cost until that gang starts, ends, or
        moves in the order. A gang among them that is admitted without allocations loses its
        admission and its claim.
Source: ADR 24, 38, 64. The resource manager reports the submission time: a restart changes nothing.
Limit: at most MAX_SPARE plus twice the live applications in the heap of times.
"""

from heapq import heapify, heappop, heappush
from itertools import chain

from services.core.scheduler.actions.gang_places import could_be_held, first_could_be_held, members
from services.core.scheduler.model.rows import Application, Queue
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.partition import Partition
from shared.model.reasons import Fact, Kind, Reason, Refusal
from shared.model.resources import fits_limit

MAX_SPARE = 64


def refusal(partition: Partition, application: Application) -> Refusal | None:
    """Return why an application must wait behind a starved gang, or None."""
    if not application.is_behind_starved_gang:
        return None
    guard_ns = partition.settings.starvation_guard_ns
    fact = Fact(Kind.OVERDUE_GANG, application.queue.path, period_ns=guard_ns)
    return Refusal(Reason.GANG_PATIENCE, fact)


def watch(partition: Partition, application: Application) -> None:
    """Start the guard for a gang that was refused as a whole, or just admitted."""
    partition.starved_admitted.pop(application, None)
    is_waited_for = _is_to_be_waited_for(partition, application)
    if not is_waited_for:
        queueing.stop_waiting_for(application)
    due_ns, known_ns = _due_ns(partition, application), application.starved_at_ns
    if due_ns <= partition.now_ns:
        if is_waited_for:
            _update_starved(partition, application)
    elif due_ns != known_ns and (is_waited_for or known_ns):  # older asks may change it
        partition.set(application, starved_at_ns=due_ns)
        _remember(partition, application, due_ns)


def _due_ns(partition: Partition, application: Application) -> int:
    return application.submission_time_ns + partition.settings.starvation_guard_ns


def update(partition: Partition) -> None:
    """Make gangs whose guard time has passed starved, if they still wait.

    Called with every message. A starved gang only blocks others, so that no timer is needed.
    """
    moments = partition.starvation_times
    while moments and moments[0][0] <= partition.now_ns:
        due_ns, _, application = heappop(moments)
        if application.starved_at_ns == due_ns:
            partition.set(application, starved_at_ns=0)
        if _is_live(partition, application) and _waits(application):
            _watch_again(partition, application)


def check_again(partition: Partition) -> None:
    """Check starved gangs again after the nodes' capacity changed.

    Called before a cycle. A gang that is too large now blocks none any more; one that was too large
    may block again.
    """
    if not partition.is_capacity_new:
        return
    partition.is_capacity_new = False
    leaves = [queue for queue in partition.queues.values() if queue.starved_gang is not None]
    waited_for = [leaf.starved_gang for leaf in leaves if leaf.starved_gang is not None]
    for application in (*waited_for, *partition.too_large):
        if _waits(application):  # otherwise it is in the order already
            _watch_again(partition, application)


def update_admitted(partition: Partition, *, is_after_cycle: bool = False) -> bool:
    """Update which admitted gangs are waited for; return whether others may start now.

    Called before and after a cycle. Changed gangs are checked completely, starved ones only for
    whether they still lack capacity. Which leaves are short of nodes is known after a cycle only,
    when all refused asks are blocked again.
    """
    if is_after_cycle and partition.starved_admitted:
        partition.short_of_nodes = _short_of_nodes(partition)
    if not (partition.root.to_watch or partition.starved_admitted):
        return False
    changed, late = list(partition.root.to_watch), list(partition.starved_admitted)
    partition.root.to_watch.clear()
    leaves = dict.fromkeys(application.queue for application in (*changed, *late))
    waited_for = [leaf.starved_gang for leaf in leaves]
    for application in changed:
        _check_changed(partition, application)
    for application in late:
        if application not in partition.starved_admitted:
            continue
        if _is_live(partition, application) and application.waits_for_first_member:
            _update_starved(partition, application)
        else:  # it is watched again if it waits again
            del partition.starved_admitted[application]
            queueing.stop_waiting_for(application)
    return waited_for != [leaf.starved_gang for leaf in leaves]


def _check_changed(partition: Partition, application: Application) -> None:
    """Check a changed gang: its waiting time may be longer now."""
    if not _is_live(partition, application):
        return
    if application.waits_for_first_member:
        watch(partition, application)
    elif application.waits_as_a_whole:
        _watch_again(partition, application)


def _waits(application: Application) -> bool:
    return application.waits_as_a_whole or application.waits_for_first_member


def _watch_again(partition: Partition, application: Application) -> None:
    """Watch a gang that was refused earlier; requeue it if others wait for it.

    Another reason, for which others do not wait, may block it now.
    """
    watch(partition, application)
    if application.queue.starved_gang is application and application.refusal is not None:
        queueing.activate(application)


def _is_to_be_waited_for(partition: Partition, application: Application) -> bool:
    """Whether a gang lacks capacity, in its queues or on nodes, that it can get."""
    leaf = application.queue
    partition.too_large.pop(application, None)
    if application.waits_for_first_member:
        if not leaf.settings.goes_by_arrival:
            return False
        if not first_could_be_held(partition.nodes, application):
            partition.too_large[application] = None
            return False
        return True
    if not (
        application.waits_as_a_whole and application.is_starting and _may_be_waited_for(application)
    ):
        return False
    if partition.settings.reserves_for_gang and application.is_refused_for(Reason.GANG_PLACES):
        return False  # it waits to become the head gang
    if application.starts_placed and not could_be_held(partition.nodes, application):
        partition.too_large[application] = None
        return False
    return True


def _may_be_waited_for(application: Application) -> bool:
    """Whether its leaf's order and maxima allow that others wait behind a gang."""
    leaf = application.queue
    is_in_line = leaf.settings.goes_by_arrival
    return is_in_line and fits_limit(leaf.configured_max(), application.outstanding())


def _update_starved(partition: Partition, application: Application) -> None:
    """Let others wait for a starved gang as long as it lacks only capacity."""
    if application.waits_for_first_member:
        partition.starved_admitted[application] = None
        if not _lacks_only_room(application) or _is_another_short_of_nodes(partition, application):
            queueing.stop_waiting_for(application)
            return
    _become_starved(partition, application)


def _lacks_only_room(application: Application) -> bool:
    """Whether a waiting member is blocked by no user limit, plugin or lowered max."""
    limit = application.queue.configured_max()
    return any(
        group.refused is None
        and not group.bucket.is_blocked_by_user
        and fits_limit(limit, group.bucket.shape.resource)
        for group in members(application)
    )


def _is_another_short_of_nodes(partition: Partition, application: Application) -> bool:
    """Whether another leaf would use the node capacity that a gang's own leaf leaves."""
    return any(leaf is not application.queue for leaf in partition.short_of_nodes)


def _short_of_nodes(partition: Partition) -> dict[Queue, None]:
    """Return the leaves with an ask waiting for a node that could fit it; at most two."""
    found: dict[Queue, None] = {}
    by_nodes = chain.from_iterable(partition.root.blocked_buckets.values())
    by_root = partition.root.wait_list.buckets  # the root's max is the sum of the nodes
    for bucket in chain(by_nodes, by_root):
        leaf = bucket.leaf
        if (
            leaf not in found
            and bucket.first()
            and partition.nodes.filters.could_hold.mask(bucket.shape).any()
        ):
            found[leaf] = None
            if len(found) > 1:
                break
    return found


def _become_starved(partition: Partition, application: Application) -> None:
    """Make a gang the starved one of its leaf, unless one ahead of it is."""
    leaf = application.queue
    waited_for = leaf.starved_gang
    if application.waits_in is not None and application.waits_at is not None:
        application.waits_at.try_always(application.waits_in)
    if waited_for is application:
        return
    if application.is_behind_starved_gang:
        _requeue(partition, application)  # it will wait behind that one
        return
    partition.set(leaf, starved_gang=application)
    if waited_for is not None:
        _requeue(partition, waited_for)
    for other in list(leaf.promised_gangs):  # their claims may be what it lacks
        if other.is_behind_starved_gang:
            _requeue(partition, other)


def _requeue(partition: Partition, application: Application) -> None:
    if application.is_admitted:
        partition.withdraw_admission(application)
    else:
        queueing.activate(application)


def _remember(partition: Partition, application: Application, due_ns: int) -> None:
    moments = partition.starvation_times
    if len(moments) > MAX_SPARE + 2 * len(partition.applications):
        moments[:] = [moment for moment in moments if _is_live(partition, moment[2])]
        heapify(moments)
    heappush(moments, (due_ns, application.sequence, application))


def _is_live(partition: Partition, application: Application) -> bool:
    return partition.applications.get(application.id) is application
