"""YuniKorn's answers from the read model, with the same names, units and omissions.

Source: docs/rules/rest.md#fields. Times are Unix nanoseconds, except ``startTime`` of an
application, in milliseconds. Keys whose value is zero or empty are omitted, except those that are
always present.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from services.api.projection.model import ApplicationView, Model, NodeView
from shared.messages.interface import TerminationType
from shared.messages.state import (
    AllocationState,
    AskState,
    PartitionState,
    QueueState,
    TemplateState,
    UsedResource,
    Waiting,
)
from shared.model.causes import causes_of
from shared.model.duration import go_duration
from shared.model.names import FOREIGN_STATIC, FOREIGN_TAG, ROOT
from shared.model.resources import Resource, ResourceView, bounded, without_zeros
from shared.model.units import NANOS_PER_SECOND
from shared.queueconfig import QueueConfigError, load_configuration

Answer = dict[str, Any]
V = TypeVar("V")
# how a parent orders its queues, whatever its property (docs/rules/scheduling.md#order-of-queues)
FAIR = "fair"
PERCENT = 100
_ZERO_TIME_MS = -62135596800000


def pruned(answer: Answer, always: Iterable[str] = ()) -> Answer:
    """Remove keys with zero or empty values, except some."""
    keep = set(always)
    return {key: value for key, value in answer.items() if value or key in keep}


def by_name(values: Mapping[str, V]) -> dict[str, V]:
    """Return a map with sorted keys, as Go writes maps (but not structs)."""
    return dict(sorted(values.items()))


def by_weight(values: Mapping[str, float]) -> Answer:
    """Return weights as Go writes them: whole numbers without a point."""
    return by_name({name: int(w) if w == int(w) else w for name, w in values.items()})


def percent_of(part: ResourceView, whole: ResourceView) -> Resource:
    """Return the used percentage of each type present in both."""
    shares = {name: part[name] * PERCENT // whole[name] for name in part if whole.get(name, 0) > 0}
    return bounded(shares)


def cluster_id(partition: PartitionState) -> str:
    """Return the id of the cluster's resource manager; until it reports, YuniKorn's default."""
    return partition.rm_id or "mycluster"


def partition_info(model: Model) -> list[Answer]:
    """Return PartitionInfo of a partition, or an empty list before there is one."""
    partition = model.partition
    if partition is None:
        return []
    return [
        pruned(
            {
                "clusterId": cluster_id(partition),
                "name": partition.name,
                "capacity": _capacity(partition),
                "nodeSortingPolicy": pruned(
                    {
                        "type": partition.node_sort_policy,
                        "resourceWeights": by_weight(partition.resource_weights),
                    }
                ),
                "preemptionEnabled": partition.preemption_enabled,
                "quotaPreemptionEnabled": partition.quota_preemption_enabled,
                "totalNodes": len(model.nodes),
                "applications": _application_counts(model),
                "totalContainers": sum(len(node.allocations) for node in model.nodes.values()),
                "state": partition.state,
                "lastStateTransitionTime": partition.started_ns,
            },
            always=(
                "clusterId", "name", "capacity", "nodeSortingPolicy", "preemptionEnabled",
                "quotaPreemptionEnabled",
            ),
        )
    ]  # fmt: skip


def _capacity(partition: PartitionState) -> Answer:
    return pruned(
        {
            "capacity": by_name(partition.capacity),
            "usedCapacity": by_name(partition.allocated),
            "utilization": by_name(percent_of(partition.allocated, partition.capacity)),
        }
    )


def _application_counts(model: Model) -> dict[str, int]:
    views = [*model.applications.values(), *model.ended.values()]
    counts = Counter(view.summary.state for view in views)
    return by_name({**counts, "total": len(views)})


def queue_tree_info(model: Model) -> Answer:
    """Return PartitionQueueDAOInfo of the root and all below it; the root names the partition."""
    return queue_info(model, ROOT, subtree=True, partition=model.name)


def queue_info(model: Model, path: str, *, subtree: bool, partition: str = "") -> Answer:
    """Return PartitionQueueDAOInfo of a queue; its children only with ``subtree``."""
    queue = model.queues[path]
    children = model.children(path)
    limit, guaranteed = queue.max_resource or {}, queue.guaranteed_resource or {}
    answer: Answer = {
        "queuename": queue.path,
        "status": queue.status,
        "partition": partition,
        "pendingResource": by_name(queue.pending),
        "maxResource": by_name(limit),
        "guaranteedResource": by_name(guaranteed),
        "allocatedResource": by_name(queue.allocated),
        "headroom": by_name(model.headroom(path)),
        "isLeaf": queue.is_leaf,
        "isManaged": queue.is_managed,
        "properties": by_name(queue.properties),
        "parent": queue.parent,
        "childNames": [child.path for child in children],
        "absUsedCapacity": by_name(percent_of(queue.allocated, limit)),
        "maxRunningApps": queue.max_running_apps,
        "runningApps": queue.running_apps,
        "currentPriority": queue.current_priority,
        "allocatingAcceptedApps": list(queue.allocating_accepted_apps),
        "prioritySorting": queue.priority_sorting,
        "preemptingResource": by_name(queue.preempting),
        "template": {} if queue.is_leaf else _template(queue.template),
        "sortingPolicy": queue.sort_policy if queue.is_leaf else FAIR,
        **_policy_fields(queue),
    }
    if subtree:
        answer["children"] = [queue_info(model, child.path, subtree=True) for child in children]
    return pruned(
        answer,
        always=(
            "queuename", "partition", "isLeaf", "isManaged", "currentPriority", "prioritySorting",
            "preemptionEnabled", "isPreemptionFence", "isPriorityFence",
        ),
    )  # fmt: skip


def _policy_fields(queue: QueueState) -> Answer:
    return {
        "preemptionEnabled": queue.preemption_policy != "disabled",
        "isPreemptionFence": queue.preemption_policy == "fence",
        "preemptionDelay": go_duration(queue.preemption_delay_ns),
        "quotaPreemptionDelay": go_duration(queue.quota_preemption_delay_ns),
        "isPriorityFence": queue.priority_fence,
        "priorityOffset": queue.priority_offset,
    }


def _template(template: TemplateState | None) -> Answer:
    if template is None:
        return {}
    return pruned(
        {
            "maxApplications": template.max_applications,
            "maxResource": by_name(template.max_resource or {}),
            "guaranteedResource": by_name(template.guaranteed_resource or {}),
            "properties": by_name(template.properties),
        }
    )


def node_info(node: NodeView) -> Answer:
    """Return NodeDAOInfo."""
    state = node.state
    return pruned(
        {
            "nodeID": state.node_id,
            "hostName": state.attributes.get("si/hostname", ""),
            "rackName": state.attributes.get("si/rackname", ""),
            "attributes": by_name(state.attributes),
            "capacity": by_name(without_zeros(state.capacity)),
            "allocated": by_name(without_zeros(state.allocated)),
            "occupied": by_name(without_zeros(state.occupied)),
            "available": by_name(without_zeros(state.available)),
            "utilized": by_name(percent_of(state.allocated, state.capacity)),
            "allocations": [allocation_info(item) for item in node.allocations.values()],
            "foreignAllocations": [foreign_info(item) for item in node.foreign.values()],
            "schedulable": state.schedulable,
            "isReserved": bool(state.reservations),
            "reservations": list(state.reservations),
        },
        always=("nodeID", "schedulable", "isReserved"),
    )


def allocation_info(allocation: AllocationState) -> Answer:
    """Return AllocationDAOInfo.

    What took a placeholder's place was asked for when that was; else there is no delay, for both
    times are those of the ask.
    """
    asked_ns = made_ns = allocation.request_time_ns
    if allocation.placeholder_used:
        asked_ns = allocation.placeholder_time_ns
    return pruned(
        {
            "allocationKey": allocation.allocation_key,
            "allocationTags": by_name(allocation.tags),
            "requestTime": asked_ns,
            "allocationTime": made_ns,
            "allocationDelay": made_ns - asked_ns,
            "resource": by_name(allocation.resource),
            "priority": str(allocation.priority),
            "nodeId": allocation.node_id,
            "applicationId": allocation.application_id,
            "placeholder": allocation.placeholder,
            "placeholderUsed": allocation.placeholder_used,
            "taskGroupName": allocation.task_group_name,
            "preempted": allocation.why == TerminationType.PREEMPTED_BY_SCHEDULER,
            "originator": allocation.originator,
        },
        always=("allocationKey",),
    )


def foreign_info(allocation: AllocationState) -> Answer:
    """Return ForeignAllocationDAOInfo."""
    return pruned(
        {
            "allocationKey": allocation.allocation_key,
            "allocationTags": by_name(allocation.tags),
            "allocationTime": allocation.allocation_time_ns,
            "resource": by_name(allocation.resource),
            "priority": str(allocation.priority),
            "nodeId": allocation.node_id,
            "preemptable": allocation.tags.get(FOREIGN_TAG) != FOREIGN_STATIC,
        },
        always=("allocationKey",),
    )


def rfc3339(time_ns: int) -> str:
    """Return a moment as text, "" for none."""
    if not time_ns:
        return ""
    return datetime.fromtimestamp(time_ns // NANOS_PER_SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_LOG_TEXTS = {
    "QUEUE_QUOTA": "Not enough queue quota",
    "USER_QUOTA": "Not enough user quota",
}


def ask_info(model: Model, application: ApplicationView, ask: AskState) -> Answer:
    """Return AllocationAskDAOInfo."""
    waiting = model.why(application, ask)
    if waiting is not None and waiting.nodes is not None and not waiting.nodes.total:
        waiting = None  # without a node nothing is tried (docs/rules/scheduling.md#the-cycle)
    return pruned(
        {
            "allocationKey": ask.allocation_key,
            "allocationTags": by_name(ask.tags),
            "requestTime": ask.create_time_ns,
            "resource": by_name(ask.resource),
            "priority": str(ask.priority),
            "applicationId": ask.application_id,
            "placeholder": ask.placeholder,
            "taskGroupName": ask.task_group_name,
            "allocationLog": _allocation_log(ask, waiting),
            "triggeredPreemption": ask.triggered_preemption,
            "originator": ask.originator,
            "requiredNodeId": ask.required_node,
            "schedulingAttempted": waiting is not None or bool(ask.log),
            "triggeredScaleUp": ask.triggered_scale_up,
        },
        always=("allocationKey",),
    )


def _allocation_log(ask: AskState, waiting: Waiting | None) -> list[Answer]:
    """Return an ask's log, and why it waits now where an earlier ask has that sentence.

    Each cause for which nodes refuse it has a line, with the number of nodes as its count.
    """
    lines = [(item.last_occurrence_ns, item.message, item.count) for item in ask.log]
    if waiting is not None:
        known = {message for _, message, _ in lines}
        why = {_LOG_TEXTS.get(waiting.reason, waiting.text): 1}
        if waiting.nodes is not None and waiting.nodes.failures:
            why = causes_of(waiting.nodes)
        since_ns = waiting.since_ns
        lines += [(since_ns, text, count) for text, count in why.items() if text not in known]
    return [
        {"message": message, "lastOccurrence": last_ns, "count": count}
        for last_ns, message, count in sorted(lines, key=lambda line: line[0])
    ]


def _history(entries: tuple[UsedResource, ...]) -> Answer:
    """Return what an application used, by what became of it and the type of the nodes."""
    answer: Answer = {}
    for entry in entries:
        answer.setdefault(entry.kind, {})[entry.instance_type] = by_name(entry.resource)
    return answer


def application_info(model: Model, view: ApplicationView) -> Answer:
    """Return ApplicationDAOInfo."""
    summary = view.summary
    start_ms = summary.start_time_ns // 1_000_000 if summary.start_time_ns else _ZERO_TIME_MS
    return pruned(
        {
            "applicationID": summary.application_id,
            "usedResource": by_name(summary.allocated),
            "maxUsedResource": by_name(summary.max_allocated),
            "pendingResource": by_name(summary.pending),
            "partition": model.name,
            "queueName": summary.queue_name,
            "submissionTime": summary.submission_time_ns,
            "finishedTime": summary.finished_time_ns,
            "requests": [ask_info(model, view, ask) for ask in view.asks.values()],
            "allocations": [allocation_info(item) for item in view.allocations.values()],
            "applicationState": summary.state,
            "user": summary.user,
            "groups": list(summary.groups),
            "rejectedMessage": summary.rejected_message,
            "stateLog": [
                {"time": change.time_ns, "applicationState": change.state}
                for change in summary.state_log
            ],
            "placeholderData": [
                pruned(
                    {
                        "taskGroupName": group.task_group_name,
                        "count": group.count,
                        "minResource": by_name(group.min_resource),
                        "replaced": group.replaced,
                        "timedout": group.timedout,
                    }
                )
                for group in summary.placeholders
            ],
            "maxRequestPriority": summary.max_request_priority,
            "hasReserved": bool(summary.reservations),
            "reservations": list(summary.reservations),
            "startTime": start_ms,
            "backoffDeadline": rfc3339(summary.backoff_until_ns),
            "resourceHistory": _history(summary.history),
        },
        always=("applicationID", "partition", "queueName", "resourceHistory"),
    )


def validation(body: bytes) -> Answer:
    """Return whether a queues.yaml is valid, and YuniKorn's error if not."""
    try:
        load_configuration(body.decode())
    except QueueConfigError as error:
        return {"allowed": False, "reason": error.message}
    except UnicodeDecodeError as error:
        return {"allowed": False, "reason": f"not UTF-8: {error}"}
    return {"allowed": True}


def applications_in_state(model: Model, state: str, status: str = "") -> list[ApplicationView]:
    """Return the applications of ``active``, ``rejected`` or ``completed``, narrowed by status."""
    if state == "active":
        return [
            view
            for view in model.applications.values()
            if not status or view.summary.state.lower() == status
        ]
    wants_rejected = state == "rejected"
    return [
        view
        for view in model.ended.values()
        if bool(view.summary.rejected_message) is wants_rejected
    ]
