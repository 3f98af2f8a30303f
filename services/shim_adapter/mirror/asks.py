"""Converts nodes, pods and applications to the items of the scheduler interface."""

from dataclasses import replace

from services.shim_adapter.records import ApplicationRecord, NodeRecord, PodRecord
from services.shim_adapter.translation.bounds import MAX_SECONDS
from services.shim_adapter.translation.task_groups import placeholder_ask
from services.shim_adapter.translation.topology import layout_of
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    Disruption,
    GangSettings,
    NodeAction,
    NodeInfo,
    UserGroupInformation,
)
from shared.model.names import (
    CHECKPOINT_SECONDS,
    FORCE_TAG,
    FOREIGN_TAG,
    GRACE_SECONDS,
    NODE_PARTITION,
    NOMINATED_TAG,
    POD_NAME_TAG,
    RESTART_SECONDS,
    RUN_SECONDS,
)
from shared.model.units import NANOS_PER_SECOND

_HOST_NAME = "si.io/hostname"
HOST_NAME_LABEL = "kubernetes.io/hostname"  # which every kubelet gives its node
_RACK_NAME = "si.io/rackname"
_REQUIRED_NODE = "yunikorn.apache.org/requiredNode"
NODE_ACTIONS = {
    "add": NodeAction.CREATE,
    "update": NodeAction.UPDATE,
    "drain": NodeAction.DRAIN_NODE,
    "undrain": NodeAction.DRAIN_TO_SCHEDULABLE,
    "remove": NodeAction.DECOMISSION,
}


def node_info(node: NodeRecord, action: NodeAction, rm_id: str) -> NodeInfo:
    """Return the message about a node.

    Source: docs/rules/pods.md#what-a-pod-asks-for: the attributes that are sent.
    """
    return NodeInfo(
        node_id=node.name,
        action=action,
        schedulable_resource=node.capacity,
        attributes={
            **node.annotations,
            _HOST_NAME: node.name,
            _RACK_NAME: "/rack-default",
            NODE_PARTITION: f"[{rm_id}]{node.partition}",
        },
        labels={HOST_NAME_LABEL: node.name, **node.labels},
        taints=node.taints,
        volume_limits=node.volume_limits,
    )


def application_request(application: ApplicationRecord) -> AddApplicationRequest:
    """Return the request that adds an application; without its gang, if that is over."""
    groups = () if application.is_gang_over else application.task_groups
    return AddApplicationRequest(
        application_id=application.application_id,
        queue_name=application.queue_name,
        partition_name=application.partition,
        ugi=UserGroupInformation(application.user, application.groups),
        tags={"namespace": application.namespace, **application.tags},
        execution_timeout_milli_seconds=_milliseconds(application.execution_timeout_seconds),
        placeholder_timeout_milli_seconds=application.placeholder_timeout_ms,
        placeholder_ask=placeholder_ask(groups),
        gang_scheduling_style=application.style,
        reservation_start_ns=application.reservation_start_ns or application.refused_ns,
        submission_time_ns=application.created_ns,
        state=application.core_state,
        state_since_ns=application.core_state_ns,
        execution_start_ns=application.execution_start_ns,
        submission=application.submission,
        gang=_settings(application),
    )


def forced(request: AddApplicationRequest) -> AddApplicationRequest:
    """Return a request to take an application in even where no rule places it.

    It has pods on nodes: they are counted in the recovery queue then.
    """
    return replace(request, tags={**request.tags, FORCE_TAG: "true"})


def _settings(application: ApplicationRecord) -> GangSettings:
    """Return the settings of a gang; one that is over has no minimums."""
    gang = replace(application.gang, layout=layout_of(application.task_groups))
    return replace(gang, subgroups=()) if application.is_gang_over and gang.subgroups else gang


def _milliseconds(seconds: int) -> int:
    """Return a timeout in milliseconds, limited to the valid range."""
    return max(0, min(seconds, MAX_SECONDS)) * 1000


def foreign_allocation(pod: PodRecord) -> Allocation:
    """Return a foreign pod as an allocation (docs/rules/foreign-pods.md): it has no application."""
    return Allocation(
        allocation_key=pod.uid,
        application_id="",
        node_id=pod.node,
        resource_per_alloc=pod.spec.resource,
        priority=pod.spec.priority,
        create_time_ns=pod.created_ns,
        allocation_tags={**_tags(pod), FOREIGN_TAG: pod.spec.foreign},
        constraints=_constraints(pod),
    )


def nominated_allocation(pod: PodRecord) -> Allocation:
    """Return a foreign pod that is nominated for a node, but not there yet, as an allocation."""
    allocation = foreign_allocation(pod)
    tags = {**allocation.allocation_tags, NOMINATED_TAG: "true"}
    return replace(allocation, allocation_tags=tags)


def disruption_of(pod: PodRecord, *, is_refused: bool = False) -> Disruption:
    """Return whether a pod may be evicted now."""
    name, state = pod.spec.application_id, pod.disruption
    return Disruption(pod.uid, name, state, is_refused, pod.budget, pod.allowed)


COSTS = (CHECKPOINT_SECONDS, RESTART_SECONDS)  # of an eviction, as a pod states them


def _tags(pod: PodRecord) -> dict[str, str]:
    required, stated_ns = pod.spec.constraints.required_node, pod.spec.stated_run_ns
    return {
        "kubernetes.io/meta/namespace": pod.spec.namespace,
        POD_NAME_TAG: pod.spec.name,
        "creationTime": str(pod.created_ns // NANOS_PER_SECOND),
        **{f"kubernetes.io/label/{key}": value for key, value in pod.spec.labels.items()},
        **({_REQUIRED_NODE: required} if required else {}),
        **({RUN_SECONDS: str(stated_ns // NANOS_PER_SECOND)} if stated_ns else {}),
        **{name: text for name in COSTS if (text := pod.spec.annotations.get(name))},
        **({GRACE_SECONDS: str(pod.spec.grace_seconds)} if pod.spec.grace_seconds else {}),
    }


def _constraints(pod: PodRecord) -> Constraints:
    constraints = pod.spec.constraints
    if constraints.asks_about_pods:
        return replace(constraints, namespace=pod.spec.namespace)
    return constraints


def ask_of(pod: PodRecord, *, originator: bool) -> AllocationAsk:
    """Return the ask of a pod that is not bound."""
    spec = pod.spec
    return AllocationAsk(
        allocation_key=pod.uid,
        application_id=spec.application_id,
        resource_per_alloc=spec.resource,
        priority=spec.priority,
        task_group_name=spec.task_group_name,
        placeholder=spec.placeholder,
        originator=originator,
        exec_timeout_milli_seconds=_milliseconds(spec.execution_timeout_seconds),
        create_time_ns=pod.created_ns,
        allocation_tags=_tags(pod),
        constraints=_constraints(pod),
        allow_preempt_self=spec.allow_preempt_self,
        allow_preempt_other=spec.allow_preempt_other,
    )


def allocation_of(pod: PodRecord, *, originator: bool, released: bool) -> Allocation:
    """Return the allocation of a bound pod, for recovery."""
    spec = pod.spec
    return Allocation(
        allocation_key=pod.uid,
        application_id=spec.application_id,
        node_id=pod.node,
        resource_per_alloc=spec.resource,
        priority=spec.priority,
        task_group_name=spec.task_group_name,
        placeholder=spec.placeholder,
        originator=originator,
        create_time_ns=pod.created_ns,
        allocation_tags=_tags(pod),
        constraints=_constraints(pod),
        allow_preempt_self=spec.allow_preempt_self,
        allow_preempt_other=spec.allow_preempt_other,
        released=released,
        exec_timeout_milli_seconds=_milliseconds(spec.execution_timeout_seconds),
        allocated_ns=pod.bound_ns,
        devices=pod.devices,
    )
