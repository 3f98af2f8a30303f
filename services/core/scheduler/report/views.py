"""The scheduler's rows as values of state events; sums are bounded to int64."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from services.core.scheduler.model.placement_rules import (
    FIXED,
    RECOVERY,
    TAG,
    PlacementRules,
    Rule,
    chain,
)
from services.core.scheduler.model.queue_ledger import ACTIVE, DRAINING
from services.core.scheduler.model.queue_settings import Template
from services.core.scheduler.model.rows import AskGroup, Bucket, Node, Queue
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.user_table import group_in
from services.core.scheduler.ordering import queueing
from services.core.scheduler.queues.placement import RECOVERY_QUEUE
from shared.messages.interface import Allocation
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    ConfigurationState,
    LogEntry,
    NodeState,
    Note,
    PartitionState,
    PlaceholderCount,
    PlacementRuleState,
    QueueState,
    RefusalState,
    RuleState,
    StateChange,
    TemplateState,
    UsageState,
    UsedResource,
    UserState,
    Waiting,
)
from shared.model.names import ROOT
from shared.model.numbers import saturated
from shared.model.reasons import NodeEvidence, Reason, Refusal
from shared.model.resources import add, bounded
from shared.model.service_keys import service_warnings

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application, Owner, Tracker
    from services.core.scheduler.statement.partition import Partition

NO_NODE = Refusal(Reason.NO_NODES, nodes=NodeEvidence(0, {}))


def partition_state(partition: "Partition") -> PartitionState:
    """Return the partition's own values."""
    return PartitionState(
        name=partition.name,
        rm_id=partition.rm_id,
        state=DRAINING if partition.is_removed else ACTIVE,
        capacity=bounded(partition.nodes.total),
        allocated=bounded(partition.root.allocated),
        node_sort_policy=partition.nodes.order.policy,
        resource_weights=dict(partition.nodes.order.weights),
        preemption_enabled=partition.preemption_enabled,
        config_checksum=partition.config_checksum,
        config_error=partition.config_error,
        state_time_ns=partition.config_time_ns,
        started_ns=partition.started_ns,
        failed_nodes=partition.failed_nodes,
        rejected_asks=partition.rejected_asks,
        finds_pods=partition.finds_pods,
        config_warnings=(
            *partition.config_warnings,
            *partition.settings.refused,
            *partition.settings.renamed,
            *service_warnings(partition.config_extra),
            *_without_usage(partition),
            *(partition.hooks.warnings() if partition.hooks is not None else ()),
        ),
        plugins=partition.settings.plugins,
        quota_preemption_enabled=partition.quota_preemption_enabled,
        eviction_cycles=partition.evictions.cycles,
        placement_rules=_rules_state(partition.rules),
    )


def _without_usage(partition: "Partition") -> tuple[str, ...]:
    """Return a warning if a queue is ordered by usage over time but none is counted."""
    path = partition.goes_by_usage
    if not path or partition.usage is not None:
        return ()
    needs = "usageHalfLife or usageWindow of the scheduler settings"
    return (f"application.sort.policy usage of queue {path} has no effect without {needs}",)


def configuration_state(partition: "Partition") -> ConfigurationState:
    """Return the queue configuration in use, and the other settings."""
    return ConfigurationState(partition.config_text, dict(partition.config_extra))


@lru_cache(maxsize=4)  # rules change rarely, the partition's state with every node
def _rules_state(rules: PlacementRules) -> tuple[PlacementRuleState, ...]:
    return tuple(PlacementRuleState(tuple(map(_rule_state, chain(rule)))) for rule in rules.all())


def _rule_state(rule: Rule) -> RuleState:
    """Return a rule with the names of YuniKorn's REST interface."""
    create = "true" if rule.create else "false"
    parameters = {"create": create}
    if rule.name == FIXED:
        qualified = "true" if rule.value.split(".")[0] == ROOT else "false"
        parameters = {"queue": rule.value, "create": create, "qualified": qualified}
    elif rule.name == TAG:
        parameters = {"tagName": rule.value, "create": create}
    elif rule.name == RECOVERY:
        parameters = {"queue": RECOVERY_QUEUE}
    only = rule.filter
    return RuleState(
        name=rule.name,
        parameters=parameters,
        filter_type="deny" if not only.allows else "" if only.is_empty else "allow",
        users=only.users,
        groups=only.groups,
        user_pattern=only.user_pattern.pattern if only.user_pattern else "",
        group_pattern=only.group_pattern.pattern if only.group_pattern else "",
    )


def queue_state(queue: Queue, *, removed: bool = False) -> QueueState:
    """Return a queue's own values; its refusals are published separately."""
    settings, division = queue.settings, queue.division
    return QueueState(
        path=queue.path,
        parent=queue.parent.path if queue.parent is not None else "",
        is_leaf=queue.is_leaf,
        is_managed=queue.is_managed,
        status=queue.status,
        max_resource=None if queue.max_resource is None else bounded(queue.max_resource),
        guaranteed_resource=(
            None if queue.guaranteed_resource is None else bounded(queue.guaranteed_resource)
        ),
        allocated=bounded(queue.allocated),
        pending=bounded(queue.pending),
        properties=dict(queue.properties),
        max_running_apps=saturated(queue.max_applications),
        running_apps=queue.running_apps,
        allocating_accepted_apps=tuple(queue.allocating_accepted),
        sort_policy=settings.sort_policy,
        priority_sorting=settings.priority_sorting,
        current_priority=queue.current_priority,
        preempting=bounded(queue.preempting),
        template=_template_state(queue.template),
        priority_fence=settings.priority_fence,
        priority_offset=settings.priority_offset,
        preemption_policy=settings.preemption_policy,
        preemption_delay_ns=settings.preemption_delay_ns,
        quota_preemption_delay_ns=settings.quota_preemption_delay_ns,
        removed=removed,
        tells_refusals=True,
        used_ppm=queue.used.published_ppm if queue.used is not None else {},
        weight_ppm=division.weight_ppm if division is not None else {},
        fair_share=bounded(division.entitled) if division is not None else None,
    )


def refusals_in(queue: Queue) -> Iterator[RefusalState]:
    """Yield the refusals of a queue's buckets."""
    for bucket in queue.buckets.values():
        why = refusal_of(bucket)
        if why is not None:
            yield RefusalState(queue.path, why.asks, why)


def refusal_of(bucket: Bucket) -> Waiting | None:
    """Return why a bucket's asks are not allocated; None if nothing refuses them."""
    leaf = bucket.leaf
    refusal = _published(bucket.refusal, leaf) if leaf.buckets.get(bucket.key) is bucket else None
    if refusal is None:
        return None
    return _waits(bucket_name(bucket.shape, bucket.key[1]), refusal, bucket.refused_since_ns)


def _published(refusal: Refusal | None, queue: Queue) -> Refusal | None:
    """Return a refusal as published: without nodes the reason is that there are none."""
    is_by_nodes = refusal is None or refusal.nodes is not None
    return NO_NODE if is_by_nodes and queue.root.max_resource is None else refusal


def _template_state(template: Template | None) -> TemplateState | None:
    if template is None:
        return None
    return TemplateState(
        max_resource=template.max_resource,
        guaranteed_resource=template.guaranteed_resource,
        max_applications=saturated(template.max_applications),
        properties=template.properties,
    )


def user_state(tracker: "Tracker", changed: Iterable[str] | None = None) -> UserState:
    """Return a user's or group's usage by queue; it is removed with its last application.

    ``changed`` are the paths in which it may have changed; None: all are published.
    """
    is_partial = changed is not None
    paths = tracker.usage if changed is None else changed
    return UserState(
        name=tracker.name,
        is_group=tracker.is_group,
        queues=tuple(_usage_state(tracker, path) for path in paths) if tracker.links else (),
        removed=not tracker.links,
        is_partial=is_partial,
    )


def _usage_state(tracker: "Tracker", path: str) -> UsageState:
    usage = tracker.usage.get(path)
    if usage is None:
        return UsageState(path, {}, removed=True)
    limit, clock = tracker.limit_at(path), tracker.levels[path].tree.usage
    row = clock.rows.get((path, tracker.name)) if clock is not None else None
    return UsageState(
        path=path,
        usage=bounded(usage),
        max_resource=limit.max_resource,
        max_applications=saturated(limit.max_applications),
        used_ppm=row.published_ppm if row is not None and not tracker.is_group else {},
    )


def node_state(node: Node, *, removed: bool = False) -> NodeState:
    """Return a node's values."""
    return NodeState(
        node_id=node.node_id,
        attributes=node.attributes,  # like the capacity, never changed in place
        capacity=node.capacity,
        allocated=bounded(node.allocated),
        occupied=bounded(node.occupied),
        available=bounded(add(node.available, node.reserved) if node.reserved else node.available),
        schedulable=node.schedulable,
        removed=removed,
        reservations=tuple(node.reservations),
        devices=tuple(node.devices),
        domain=node.domain,
    )


def application_summary(application: "Application") -> ApplicationSummary:
    """Return an application's own values."""
    request = application.request
    return ApplicationSummary(
        application_id=application.id,
        submission=f"{application.sequence}",
        queue_name=application.queue.path,
        state=application.state,
        user=request.ugi.user,
        groups=request.ugi.resolved_groups,
        submission_time_ns=application.submission_time_ns,
        start_time_ns=application.start_time_ns,
        finished_time_ns=application.finished_time_ns,
        allocated=bounded(application.allocated),
        allocated_placeholder=bounded(application.allocated_placeholder),
        max_allocated=bounded(application.max_allocated),
        pending=bounded(application.pending),
        max_request_priority=application.max_priority,
        rejected_message="",
        message=application.message,
        fact=application.fact,
        noted=tuple(Note(reason, message) for reason, message in application.notes),
        tags=request.tags,
        state_log=_state_log(application),
        placeholders=_placeholder_counts(application),
        waiting=_waiting(application),
        reservations=tuple(
            [f"{held.node.node_id}/{key}" for key, held in application.reservations.items()]
        ),
        backoff_until_ns=application.backoff_until_ns,
        history=tuple(
            UsedResource(*key, dict(amount)) for key, amount in application.history.items()
        ),
        group=group_in(application.trackers),
        may_be_passed_until_ns=application.starved_at_ns,
        began_ns=application.began_ns if application.allocations else 0,
    )


def _state_log(application: "Application") -> tuple[StateChange, ...]:
    return tuple(
        StateChange(time_ns, state, message)
        for (time_ns, state), message in zip(
            application.state_log, application.state_messages, strict=True
        )
    )


def _placeholder_counts(application: "Application") -> tuple[PlaceholderCount, ...]:
    return tuple(
        PlaceholderCount(
            task_group_name=name,
            count=counts.count,
            replaced=counts.replaced,
            timedout=counts.timedout,
            allocated=len(counts.held),
            min_resource=dict(counts.min_resource),
        )
        for name, counts in application.task_groups.items()
        if counts.count
    )


def _waiting(application: "Application") -> tuple[Waiting, ...]:
    """Return what blocks the application itself; refusals of its queue are in the queue's."""
    refusal = application.refusal and _published(application.refusal, application.queue)
    if refusal is not None:
        since = application.refused_since_ns
        return tuple(_waits(asks, refusal, since) for asks in ("placeholder", "real"))
    held: dict[str, Waiting] = {}
    groups: Iterable[AskGroup] = application.groups.values()
    is_gang = application.is_gang or application.tree is not None
    if not (is_gang or application.task_groups or application.pending_placeholders):
        groups = [group for group in groups if group.refused is not None]  # only plugins block it
    for group in groups:
        hold = queueing.hold(application, group)
        if hold is not None:
            name = group.task_group_name or "real"
            if group.refused is not None:
                name = bucket_name(*group.bucket.key)
            held[name] = _waits(name, hold, 0)
    return tuple(held.values())


def _waits(asks: str, refusal: Refusal, since_ns: int) -> Waiting:
    limit = refusal.limit
    if limit is not None:
        limit = replace(
            limit,
            left=saturated(limit.left),
            most=saturated(limit.most),
            amount=bounded(limit.amount),
        )
    return Waiting(asks, refusal.reason, "", since_ns, refusal.nodes, limit, refusal.fact)


def bucket_name(shape: Shape, owner: "Owner | None") -> str:
    """Return the key of a refusal: its shape's, and its user's if a limit refused."""
    return "/".join([shape.name, *(tracker.title for tracker in owner or ())])


def ask_state(ask: Ask, owner: "Owner | None") -> AskState:
    """Return an ask's values."""
    request = ask.request
    return AskState(
        allocation_key=request.allocation_key,
        application_id=request.application_id,
        resource=request.resource_per_alloc,
        priority=request.priority,
        task_group_name=request.task_group_name,
        placeholder=request.placeholder,
        originator=request.originator,
        create_time_ns=request.create_time_ns,
        tags=request.allocation_tags,
        shape=bucket_name(ask.shape, owner),
        required_node=ask.shape.constraints.required_node,
        log=_log(ask),
        triggered_preemption=ask.has_preempted,
        triggered_scale_up=ask.is_marked,
    )


def _log(ask: Ask) -> tuple[LogEntry, ...]:
    """Return an ask's allocation log, newest last."""
    if not ask.log:
        return ()
    entries = (LogEntry(text, line.last_ns, line.count) for text, line in ask.log.items())
    return tuple(sorted(entries, key=lambda entry: entry.last_occurrence_ns))


def allocation_state(
    allocation: Allocation,
    *,
    placeholder_used: bool = False,
    placeholder_time_ns: int = 0,
    released: str | None = None,
    allocation_time_ns: int = 0,
    removed: bool = False,
    stuck_since_ns: int = 0,
) -> AllocationState:
    """Return an allocation's values; ``released`` is its termination type, None if it stays."""
    return AllocationState(
        allocation_key=allocation.allocation_key,
        application_id=allocation.application_id,
        node_id=allocation.node_id,
        resource=allocation.resource_per_alloc,
        priority=allocation.priority,
        task_group_name=allocation.task_group_name,
        placeholder=allocation.placeholder,
        placeholder_used=placeholder_used,
        placeholder_time_ns=placeholder_time_ns,
        originator=allocation.originator,
        request_time_ns=allocation.create_time_ns,
        allocation_time_ns=allocation_time_ns,
        tags=allocation.allocation_tags,
        released=released is not None,
        removed=removed,
        why=released or "",
        devices=allocation.devices,
        stuck_since_ns=stuck_since_ns,
    )
