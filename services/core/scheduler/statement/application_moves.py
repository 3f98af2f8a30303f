"""Moves of applications: added, starting to reserve, removed."""

from services.core.scheduler.model.lost_work import service_level
from services.core.scheduler.model.rows import Application, Purpose
from services.core.scheduler.model.user_table import group_in
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.journal import (
    ApplicationAccepted,
    ApplicationEnded,
    GroupFound,
    TimerCancelled,
    UsageChanged,
)
from services.core.scheduler.statement.partition import Partition


def add(partition: Partition, application: Application) -> None:
    """Add an application to its queue; its id must be new."""
    hooks = partition.hooks
    if hooks is not None and hooks.order:
        application.keys_before = hooks.order_of
        application.keys_follow_use |= hooks.order_moves
        queueing.reorder(application)
    if application.queue.settings.service_levels_ns:
        application.served = partition.jobs_evicted.had(application)
        application.service_level = service_level(application, partition.now_ns)
        queueing.reorder(application)
    partition.applications[application.id] = application
    application.queue.applications[application.id] = application
    partition.users.link(application)
    if application.layout is not None:
        partition.nodes.domains.add_gang(application.id, application.layout, application.queue)
    partition.journal.record(ApplicationAccepted(application))
    group = group_in(application.trackers)
    if group:
        partition.journal.record(GroupFound(application, group))


def find_group(partition: Partition, application: Application) -> bool:
    """Find the group whose limits apply to an application; return whether it changed."""
    trackers = application.trackers
    partition.users.find_group(application)
    if application.trackers is trackers:
        return False
    partition.journal.record(GroupFound(application, group_in(application.trackers)))
    return True


def count_as_starting(application: Application) -> None:
    """Count an accepted application with its first placeholder as running."""
    for queue in application.queue.lineage():
        queue.allocating_accepted[application.id] = None


def start_reservation_clock(partition: Partition, application: Application) -> None:
    """Start the placeholder timeout now, or continue it from its recorded start."""
    since_ns = partition.since(application.reservation_start_ns)
    application.reservation_start_ns = since_ns
    partition.arm_placeholder_timer(application, since_ns)


def remove(partition: Partition, application: Application) -> None:
    """Remove an ended application, which has no asks left, from every table."""
    for claim in list(application.claims_for(Purpose.MOVED).values()):
        partition.end_moved(claim)
    application.finished_time_ns = partition.now_ns
    for timer_id, (generation, _) in application.timers.items():
        partition.journal.record(TimerCancelled(timer_id, generation))
    application.timers.clear()
    queue = application.queue
    if queue.settings.service_levels_ns:
        partition.jobs_evicted.ended(application)
    queue.applications.pop(application.id, None)
    partition.waiting_gangs.remove(application)
    partition.too_large.pop(application, None)
    partition.starved_admitted.pop(application, None)
    partition.below_minimum.pop(application.id, None)
    partition.above_minimum.pop(application.id, None)
    partition.made_way.pop(application.id, None)
    queueing.wait_no_more(application)
    for level in queue.lineage():
        level.allocating_accepted.pop(application.id, None)
    partition.users.unlink(application)
    partition.applications.pop(application.id, None)
    partition.nodes.domains.remove_gang(application.id)
    partition.replaceable.pop(application, None)
    partition.unreplaceable.pop(application, None)
    partition.journal.record(ApplicationEnded(application))
    for tracker in application.trackers:
        partition.journal.record(UsageChanged(tracker, queue))
