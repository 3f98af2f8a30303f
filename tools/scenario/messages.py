"""From a scenario's steps to the commands that the API would send."""

from services.cli.node_entries import labels_of
from services.shim_adapter.translation.bounds import MAX_SECONDS
from services.shim_adapter.translation.topology import topology_of
from shared.messages.commands import (
    NodeSpec,
    PlaceForeignPods,
    PodSpec,
    SubmitApplication,
    SubmitPods,
    TaskGroupSpec,
)
from shared.messages.constraints import Taint
from shared.model.names import FOREIGN_DEFAULT, FOREIGN_STATIC
from shared.model.numbers import parse_int64
from shared.model.resources import PODS
from shared.model.units import NANOS_PER_SECOND
from tools.scenario.schema import (
    ForeignStep,
    NodeStep,
    PodsStep,
    SubmitStep,
    TaskGroupEntry,
)

FOREIGN_NAMESPACE = "kube-system"


def application(step: SubmitStep) -> SubmitApplication:
    """Return an application that is created before any of its pods."""
    return SubmitApplication(
        application_id=step.app,
        queue_name=step.queue,
        partition=step.partition,
        namespace=step.namespace,
        user=step.user,
        groups=tuple(step.groups),
        tags=step.tags,
        style=step.style,
        placeholder_timeout_seconds=_int64(step.placeholderTimeoutInSeconds),
        execution_timeout_seconds=_int64(step.executionTimeoutInSeconds),
        task_groups=tuple(_task_group(group) for group in step.taskGroups),
    )


def _int64(stated: int) -> int:
    """Return a timeout as YuniKorn reads one: what is no int64 is 0, the default."""
    return parse_int64(str(stated)) or 0


def pods(step: PodsStep, submitted: SubmitStep | None) -> SubmitPods:
    """Return real pods; what is not said of them is as their application was submitted."""
    known = submitted or SubmitStep(app=step.app)
    names = [step.name] if step.count is None else [f"{step.name}-{at}" for at in range(step.count)]
    return SubmitPods(
        tuple(
            PodSpec(
                name=name,
                application_id=step.app,
                resource={PODS: 1, **step.request()},
                namespace=known.namespace,
                queue_name=known.queue,
                partition=known.partition,
                user=known.user,
                groups=tuple(known.groups),
                task_group_name=step.taskGroup,
                priority=step.priority,
                run_ns=round(min(step.runSeconds, MAX_SECONDS) * NANOS_PER_SECOND),
                constraints=step.constraints(),
                labels=step.labels,
                allow_preempt_self=step.allowPreemption,
                allow_preempt_other=step.preemptionPolicy != "Never",
            )
            for name in names
        )
    )


def node(step: NodeStep) -> NodeSpec:
    """Return the change of a node."""
    taints = tuple(Taint(t.key, t.value, t.effect) for t in step.taints)
    labels = labels_of(step.labels, step.partition)
    return NodeSpec(step.name, step.action, step.capacity, labels, taints)


def foreign(step: ForeignStep) -> PlaceForeignPods:
    """Return a pod that another scheduler bound."""
    pod = PodSpec(
        name=step.name,
        application_id="",
        resource={PODS: 1, **step.requests},
        namespace=FOREIGN_NAMESPACE,
        priority=step.priority,
        constraints=step.constraints(),
        labels=step.labels,
        foreign=FOREIGN_STATIC if step.static else FOREIGN_DEFAULT,
    )
    return PlaceForeignPods(step.node, (pod,))


def _task_group(entry: TaskGroupEntry) -> TaskGroupSpec:
    topology, together = topology_of(entry.topology, entry.minMember)
    return TaskGroupSpec(
        name=entry.name,
        min_member=entry.minMember,
        min_resource=entry.request(),
        constraints=entry.constraints(),
        labels=entry.labels,
        annotations=entry.annotations,
        topology=topology,
        together=together,
    )
