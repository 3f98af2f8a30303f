"""Patience: a gang that has waited long for its queue is not passed by those behind it.

Rule 1: a gang that the maxima of its queues have kept waiting for ``gangPatience`` since it was
        submitted is overdue; with ``gangAdmission: cluster`` one that has no place on the nodes,
        too. Until it starts, no application behind it in the order of its leaf starts there: no
        gang is admitted, and no other gets its first allocation. Who has started goes on.
Rule 2: only a gang that room in its queues would let start is waited for: not one that a limit of
        its user, or of running applications, keeps, nor one larger than a max that was lowered, or
        than the nodes could hold if they were empty.
Rule 3: of several overdue gangs the first in the order is the one that is waited for. The others,
        and whoever else is behind it, are in ``leaf.behind``, in order: they cost nothing until
        that gang has started, has gone, or has another place in the order.
Source: ADR 24. The submission is the resource manager's to say, so a restart changes nothing.

Limit: the moments that are remembered are no more than MAX_SPARE and twice the live applications.
"""

from heapq import heapify, heappop, heappush

from services.core.scheduler.actions.gang_places import could_be_held
from services.core.scheduler.model.queue_settings import FAIR
from services.core.scheduler.model.rows import Application
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.partition import Partition
from shared.model.duration import go_duration
from shared.model.reasons import Reason, Refusal
from shared.model.resources import fits_limit
from shared.model.states import ApplicationState

MAX_SPARE = 64


def refusal(partition: Partition, application: Application) -> Refusal | None:
    """Return why an application may not start before a gang that is ahead of it, or None."""
    if not application.is_behind_overdue_gang:
        return None
    patience = go_duration(partition.settings.gang_patience_ns)
    sentence = (
        f"a gang ahead of it in queue {application.queue.path} has waited for longer than "
        f"gangPatience {patience}: nobody behind that gang starts before it"
    )
    return Refusal(Reason.GANG_PATIENCE, sentence)


def watch(partition: Partition, application: Application) -> None:
    """See to it that a gang which was refused as a whole is not passed for too long."""
    if not _is_to_be_waited_for(partition, application):
        queueing.wait_no_more_for(application)
        return
    due_ns = application.submission_time_ns + partition.settings.gang_patience_ns
    if due_ns <= partition.now_ns:
        _become_overdue(partition, application)
    elif due_ns != application.patience_due_ns:
        partition.set(application, patience_due_ns=due_ns)
        _remember(partition, application, due_ns)


def look(partition: Partition) -> None:
    """Let nobody pass the gangs any more that are due by now and wait still.

    To be called with every message: being overdue only forbids, so no timer is needed for it.
    """
    moments = partition.patience_moments
    while moments and moments[0][0] <= partition.now_ns:
        due_ns, _, application = heappop(moments)
        if application.patience_due_ns == due_ns:
            partition.set(application, patience_due_ns=0)
        if _is_live(partition, application) and application.waits_as_a_whole:
            _watch_anew(partition, application)


def judge_anew(partition: Partition) -> None:
    """Find out anew who is waited for, where the nodes could hold other gangs than before.

    To be called before a cycle: one that is too large now is in nobody's way any more, and one
    that was is passed no longer.
    """
    if not partition.is_capacity_new:
        return
    partition.is_capacity_new = False
    leaves = [queue for queue in partition.queues.values() if queue.overdue_gang is not None]
    waited_for = [leaf.overdue_gang for leaf in leaves if leaf.overdue_gang is not None]
    for application in (*waited_for, *partition.too_large):
        if application.refusal is not None:  # else it has its turn now
            _watch_anew(partition, application)


def _watch_anew(partition: Partition, application: Application) -> None:
    """Watch a gang that was refused some time ago; if others wait for it, it is tried again.

    It may be something else that keeps it by now, for which nobody has to wait.
    """
    watch(partition, application)
    if application.queue.overdue_gang is application:
        queueing.activate(application)


def _is_to_be_waited_for(partition: Partition, application: Application) -> bool:
    """Return whether it is room that a gang lacks, in its queues or on nodes, and may be had."""
    leaf = application.queue
    partition.too_large.pop(application, None)
    if not (
        application.waits_as_a_whole
        and application.state is ApplicationState.ACCEPTED
        and leaf.settings.sort_policy != FAIR
        and fits_limit(leaf.configured_max(), application.outstanding())
    ):
        return False
    if application.starts_placed and not could_be_held(partition.nodes, application):
        partition.too_large[application] = None
        return False
    return True


def _become_overdue(partition: Partition, application: Application) -> None:
    """Let a gang be waited for, unless one that is ahead of it already is."""
    leaf = application.queue
    waited_for = leaf.overdue_gang
    if application.waits_in is not None and application.waits_at is not None:
        application.waits_at.try_always(application.waits_in)
    if waited_for is application:
        return
    if application.is_behind_overdue_gang:
        queueing.activate(application)  # to wait behind that one
        return
    partition.set(leaf, overdue_gang=application)
    if waited_for is not None:
        queueing.activate(waited_for)


def _remember(partition: Partition, application: Application, due_ns: int) -> None:
    moments = partition.patience_moments
    if len(moments) > MAX_SPARE + 2 * len(partition.applications):
        moments[:] = [moment for moment in moments if _is_live(partition, moment[2])]
        heapify(moments)
    heappush(moments, (due_ns, application.sequence, application))


def _is_live(partition: Partition, application: Application) -> bool:
    return partition.applications.get(application.id) is application
