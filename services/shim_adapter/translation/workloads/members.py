"""From an expansion to pods: each of its template, with the application and gang they share.

Rule 1: pods that carry YuniKorn's task groups keep them; nothing of the kind's own is added.
Rule 2: otherwise a kind with a minimum is a gang: a task group for every template with one, of what
        a pod of it asks for. It is an application of its own, named after the workload, unless
        its pods name one.
Rule 3: a PodGroup of the same submission that the pods name is their gang.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.shim_adapter.translation.constraints import texts
from services.shim_adapter.translation.errors import MAX_TEXT, ManifestError
from services.shim_adapter.translation.pods import (
    ALLOW_PREEMPTION,
    USER_INFO,
    Reading,
    mapping,
    translate_pod,
)
from services.shim_adapter.translation.topology import of_kueue
from services.shim_adapter.translation.workloads.pod_groups import (
    GROUP_LABEL,
    KAI_ANNOTATION,
    QUEUE_LABEL,
    SUBGROUP_LABEL,
    VOLCANO_ANNOTATIONS,
    VOLCANO_TASK,
)
from services.shim_adapter.translation.workloads.replicas import (
    MAX_PODS,
    Expansion,
    Gang,
    Replicas,
    Workload,
    items,
    with_minimum,
)
from shared.messages.commands import PodSpec, TaskGroupSpec
from shared.messages.interface import NO_TOPOLOGY, TopologyConstraint
from shared.model.names import DNS_SUBDOMAIN_ERROR, is_dns_subdomain
from shared.model.resources import PODS

MAX_BYTES = 64 * 1024 * 1024
QUEUE_LABELS = (QUEUE_LABEL, "kueue.x-k8s.io/queue-name")
_GROUP_ANNOTATIONS = (KAI_ANNOTATION, *VOLCANO_ANNOTATIONS)
KUEUE_GATE = {"name": "kueue.x-k8s.io/admission"}


def pods_of(workload: Workload, expansion: Expansion, reading: Reading) -> tuple[PodSpec, ...]:
    """Return every pod of a workload. Raises ManifestError with the field."""
    for item in expansion.replicas:
        _check_template(item)
    expansion = _with_named_gang(workload, expansion)
    _check_size(expansion)
    gang = _named_gang(workload, expansion)
    has_tree = gang is not None and gang.tree is not None
    is_gang = any(item.minimum for item in expansion.replicas)
    own = _application_of(workload, workload.kind, workload.name) if is_gang else ""
    if gang is not None and has_tree:  # which may have pods of several documents
        own = _application_of(workload, "PodGroup", gang.name)
    reading = replace(
        reading,
        queue=expansion.queue or _label_queue(workload.metadata),
        application_id=own,
    )
    members = [(item, _read(workload, item, reading)) for item in expansion.replicas if item.names]
    if has_tree:
        assert gang is not None
        members = [(item, _as_part(gang, item, pod)) for item, pod in members]
    elif is_gang and not any(pod.task_groups or pod.task_group_name for _, pod in members):
        members = _as_gang(members, gang.topology if gang is not None else NO_TOPOLOGY)
    return tuple(pod for item, first in members for pod in _copies(item, first))


def _check_template(item: Replicas) -> None:
    """Refuse a template whose metadata is not made of maps."""
    where = f"{item.where}.metadata" if item.where else "metadata"
    metadata = mapping(item.template.get("metadata") or {}, where)
    for key in ("labels", "annotations"):
        texts(metadata.get(key), f"{where}.{key}")


def _check_size(expansion: Expansion) -> None:
    count = sum(len(item.names) for item in expansion.replicas)
    size = sum(len(item.names) * len(json.dumps(item.template)) for item in expansion.replicas)
    if count > MAX_PODS or size > MAX_BYTES:
        raise ManifestError(
            "spec", f"{count} pods of {size} bytes, at most {MAX_PODS} pods and {MAX_BYTES} bytes"
        )


def _application_of(workload: Workload, kind: str, name: str) -> str:
    """Return the id of a gang that does not name one."""
    namespace = str(workload.metadata.get("namespace") or "default")
    where = "" if namespace == "default" else f"{namespace}-"
    return f"{where}{kind.lower()}-{name}"


def _label_queue(metadata: Mapping[str, Any]) -> str:
    labels = metadata.get("labels") or {}
    return next((str(labels[key]) for key in QUEUE_LABELS if labels.get(key)), "")


def _refuse_unscheduled(item: Replicas, where: str) -> None:
    """Refuse pods that no scheduler is asked about, where nothing would lift a gate.

    Kueue's gate is lifted with its admission, which is done here.
    """
    spec = mapping(item.template.get("spec"), f"{where}spec")
    if spec.get("nodeName"):
        raise ManifestError(f"{where}spec.nodeName", "a pod that names its node is not scheduled")
    gates = [gate for gate in items(spec, "schedulingGates", f"{where}spec") if gate != KUEUE_GATE]
    if gates:
        raise ManifestError(
            f"{where}spec.schedulingGates",
            "the pod waits until its gates are removed, which never happens in a simulated cluster",
        )


def _read(workload: Workload, item: Replicas, reading: Reading) -> PodSpec:
    """Return the first of some replicas; the workload's namespace and user are its pods' too.

    So are the priority class of its PodGroup, and that it may not be preempted.
    """
    where = f"{item.where}." if item.where else ""
    _refuse_unscheduled(item, where)
    metadata = item.template.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    own = workload.metadata.get("annotations") or {}
    if USER_INFO in own and USER_INFO not in annotations:
        annotations = {USER_INFO: own[USER_INFO], **annotations}
    namespace = metadata.get("namespace") or workload.metadata.get("namespace")
    spec, gang = item.template["spec"], _gang_of(workload, item)
    if gang is not None and not spec.get("priorityClassName"):
        spec = {**spec, "priorityClassName": gang.priority_class}
    if gang is not None and gang.has_own_class:
        spec = _as_its_group(spec, gang)
    template = {
        **item.template,
        "spec": spec,
        "metadata": {**metadata, "annotations": annotations, "namespace": namespace},
    }
    queue = _label_queue(metadata) or reading.queue
    wrong = next((name for name in item.names if not is_dns_subdomain(name)), None)
    if wrong is not None:
        said = f"a pod's name {DNS_SUBDOMAIN_ERROR}, it would be {wrong[:MAX_TEXT]!r}"
        raise ManifestError(f"{where}metadata.name", said)
    pod = translate_pod(
        template, where=where, name=item.names[0], reading=replace(reading, queue=queue)
    )
    if gang is None or ALLOW_PREEMPTION in annotations:
        return pod
    may = pod.allow_preempt_self and gang.lets_be_preempted(pod.priority)
    return replace(pod, allow_preempt_self=may)


def _as_its_group(spec: Mapping[str, Any], gang: Gang) -> dict[str, Any]:
    """Return a pod's spec with the priority of its group, and its right to preempt."""
    found = {**spec}
    if gang.priority_class:
        found |= {"priorityClassName": gang.priority_class}
        found.pop("priority", None)
    if gang.priority is not None:
        found["priority"] = gang.priority
    if gang.lets_preempt is not None:
        found["preemptionPolicy"] = "PreemptLowerPriority" if gang.lets_preempt else "Never"
    return found


def _as_gang(
    members: list[tuple[Replicas, PodSpec]], topology: TopologyConstraint
) -> list[tuple[Replicas, PodSpec]]:
    """Return pods as members of a gang; ``topology`` is what its PodGroup says of all together."""
    groups = tuple(_task_group(item, pod, topology) for item, pod in members if item.minimum)
    return [
        (
            item,
            replace(pod, task_groups=groups, task_group_name=item.group if item.minimum else ""),
        )
        for item, pod in members
    ]


def _task_group(item: Replicas, pod: PodSpec, topology: TopologyConstraint) -> TaskGroupSpec:
    wish, together = topology, "gang"
    if topology == NO_TOPOLOGY:
        wish, together = of_kueue(pod.annotations, item.minimum, item.slice_size)
    if wish == NO_TOPOLOGY:
        wish, together = item.topology, item.together
    return TaskGroupSpec(
        name=item.group,
        min_member=item.minimum,
        min_resource={n: v for n, v in pod.resource.items() if n != PODS},
        constraints=pod.constraints,
        labels=pod.labels,
        topology=wish,
        together=together,
    )


def _copies(item: Replicas, first: PodSpec) -> list[PodSpec]:
    if not item.required_nodes:
        return [replace(first, name=name) for name in item.names]
    return [
        replace(first, name=name, constraints=replace(first.constraints, required_node=node))
        for name, node in zip(item.names, item.required_nodes, strict=True)
    ]


# --- PodGroups ----------------------------------------------------------------------------------


def _with_named_gang(workload: Workload, expansion: Expansion) -> Expansion:
    """Give pods that name a PodGroup of the submission its minimum and its queue."""
    named = _named_gang(workload, expansion)
    if named is None:
        replicas = [_for_kueue(item) for item in expansion.replicas]
        return replace(expansion, replicas=tuple(replicas))
    if named.tree is not None:
        replicas = [replace(item, minimum=0) for item in expansion.replicas]
        return Expansion(tuple(replicas), named.queue)
    replicas = [
        replace(item, group=_subgroup(item) or item.group or named.name)
        for item in expansion.replicas
    ]
    where = f"PodGroup {named.name}"
    if named.subgroups:
        return Expansion(
            tuple(replace(item, minimum=_least(named, item, where)) for item in replicas),
            named.queue,
        )
    return Expansion(with_minimum(replicas, named.minimum, where), named.queue)


def _for_kueue(item: Replicas) -> Replicas:
    """Return pods with Kueue's annotations of topology as a gang: it admits them as a whole."""
    metadata = item.template.get("metadata") or {}
    wish, _ = of_kueue(metadata.get("annotations") or {}, len(item.names), item.slice_size)
    if wish == NO_TOPOLOGY or item.minimum:
        return item
    return replace(item, minimum=len(item.names), group=item.group or "pods")


def _named_gang(workload: Workload, expansion: Expansion) -> Gang | None:
    gangs = [_gang_of(workload, item) for item in expansion.replicas]
    return next((gang for gang in gangs if gang is not None), None)


def _as_part(gang: Gang, item: Replicas, pod: PodSpec) -> PodSpec:
    """Return a pod as a member of such a gang, unless it has task groups of its own."""
    if pod.task_groups or pod.task_group_name:
        return pod
    return replace(pod, gang=gang.terms, task_group_name=gang.part_of(_subgroup(item)))


def _least(gang: Gang, item: Replicas, where: str) -> int:
    least = gang.subgroups.get(item.group, 0)
    if least > len(item.names):
        raise ManifestError(where, f"{least} of subgroup {item.group}, there are {len(item.names)}")
    return least


def _gang_of(workload: Workload, item: Replicas) -> Gang | None:
    metadata, spec = item.template.get("metadata") or {}, item.template.get("spec")
    names = groups_named(metadata.get("labels") or {}, metadata.get("annotations") or {})
    of_core = spec.get("schedulingGroup") if isinstance(spec, dict) else None
    if isinstance(of_core, dict):
        names = (str(of_core.get("podGroupName")), *names)
    gangs = workload.submission.gangs
    name = next((name for name in names if name in gangs), None)
    gang = None if name is None else gangs[name]
    if isinstance(gang, ManifestError):
        raise ManifestError(f"PodGroup {name}", f"it is refused: {gang.field_path}: {gang.message}")
    return gang


def groups_named(labels: Mapping[str, Any], annotations: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the PodGroups that a pod names, by any of the ways to name one."""
    found = (labels.get(GROUP_LABEL), *(annotations.get(key) for key in _GROUP_ANNOTATIONS))
    return tuple(str(name) for name in found if name)


def _subgroup(item: Replicas) -> str:
    metadata = item.template.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return str(labels.get(SUBGROUP_LABEL) or annotations.get(VOLCANO_TASK) or "")
