"""PodGroups: what each kind says of its gang, and which of them a pod names.

Sources: scheduling.x-k8s.io/v1alpha1 (minMember, scheduleTimeoutSeconds; the label of a pod), KAI's
scheduling.run.ai/v2alpha2 (docs/rules/kai.md#pod-groups; the annotation of a pod), Volcano's
scheduling.volcano.sh/v1beta1 (its documentation; annotations of a pod), and core Kubernetes'
scheduling.k8s.io: a Workload's podGroups in 1.35 (v1alpha1, ``spec.workloadRef``), the PodGroup
from 1.36 on (v1alpha2, v1alpha3, v1beta1, ``spec.schedulingGroup``).

Rule 1: a requirement that is not supported refuses the group by its field; a preference is ignored.
Rule 2: a pod with YuniKorn's task groups names no PodGroup, whatever else it carries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.task_groups import TASK_GROUP_NAME, TASK_GROUPS
from services.shim_adapter.translation.workloads.replicas import Gang, inner, items, text, whole

COSCHEDULING = "scheduling.x-k8s.io"
KAI = "scheduling.run.ai"
CORE = "scheduling.k8s.io"
CORE_WORKLOAD = "Workload.scheduling.k8s.io"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
KAI_ANNOTATION = "pod-group-name"
VOLCANO = "scheduling.volcano.sh"
VOLCANO_ANNOTATIONS = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")
VOLCANO_TASK = "volcano.sh/task-spec"  # the annotation that names a pod's task
VOLCANO_DEFAULT = "default"  # the queue of a PodGroup that names none, as its definition has it
QUEUE_LABEL = "kai.scheduler/queue"
SUBGROUP_LABEL = "kai.scheduler/subgroup-name"
POD_GROUP = "muster.io/pod-group"  # the annotation of a placeholder: whose pods' place it holds
MAX_SUBGROUPS = 100  # subgroups of one PodGroup; one with more is refused
_PREEMPTIBILITIES = ("preemptible", "non-preemptible")
_ALL_AT_ONCE = ("PodGroup", "All")
_KAI_KEPT_FROM = 100  # the priority from which on a gang that does not say it is not preempted


@dataclass(frozen=True, slots=True)
class GroupRef:
    """Which gang a pod names: an object, a part of a Workload, and which replica of the part."""

    kind: str
    namespace: str
    name: str
    part: str = ""
    replica: str = ""

    def __str__(self) -> str:
        """Return it as people are told: what they would look for with kubectl."""
        part = "".join(f"/{item}" for item in (self.part, self.replica) if item)
        kind = self.kind if self.kind == CORE_WORKLOAD else f"PodGroup.{self.kind}"
        return f"{kind} {self.namespace}/{self.name}{part}"


def group_of(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> GroupRef | None:
    """Return the gang that a pod names, None where it names none; core Kubernetes' word is first.

    ``metadata`` and ``spec`` are as the API server has them.
    """
    labels, annotations = _map(metadata, "labels"), _map(metadata, "annotations")
    if annotations.get(TASK_GROUPS) or annotations.get(TASK_GROUP_NAME):
        return None
    namespace = str(metadata.get("namespace") or "default")
    name = _map(spec, "schedulingGroup").get("podGroupName")
    if name:
        return GroupRef(CORE, namespace, str(name))
    workload = _map(spec, "workloadRef")
    if workload.get("name"):
        part = str(workload.get("podGroup") or "")
        replica = str(workload.get("podGroupReplicaKey") or "")
        return GroupRef(CORE_WORKLOAD, namespace, str(workload["name"]), part, replica)
    if labels.get(GROUP_LABEL):
        return GroupRef(COSCHEDULING, namespace, str(labels[GROUP_LABEL]))
    if annotations.get(KAI_ANNOTATION):
        return GroupRef(KAI, namespace, str(annotations[KAI_ANNOTATION]))
    for key in VOLCANO_ANNOTATIONS:
        if annotations.get(key):
            return GroupRef(VOLCANO, namespace, str(annotations[key]))
    return None


def subgroup_of(metadata: Mapping[str, Any], ref: GroupRef) -> str:
    """Return the part of its gang that a pod is of, "" where it names none."""
    if ref.kind == VOLCANO:
        return str(_map(metadata, "annotations").get(VOLCANO_TASK) or "")
    return str(_map(metadata, "labels").get(SUBGROUP_LABEL) or "")


def _map(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a map; what is none names no group, and is refused where it is read for itself."""
    value = found.get(key)
    return value if isinstance(value, dict) else {}


# --- what the kinds say -------------------------------------------------------------------------


def pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return what PodGroups that a definition defines have in common. Raises ManifestError.

    ``minResources`` is left out: what its pods ask for says the same, and is what is reserved.
    """
    spec = mapping(body.get("spec"), "spec")
    subgroups: dict[str, int] = {}
    for at, item in enumerate(items(spec, "subGroups")):
        place = f"spec.subGroups[{at}]"
        subgroup = mapping(item, place)
        if subgroup.get("parent") or subgroup.get("minSubGroup") is not None:
            raise ManifestError(place, "not supported: subgroups of subgroups")
        _refuse_topology(subgroup, place)
        subgroups[text(subgroup, "name", place)] = whole(subgroup, "minMember", 1, place)
    if len(subgroups) > MAX_SUBGROUPS:
        raise ManifestError("spec.subGroups", f"{len(subgroups)} of them, at most {MAX_SUBGROUPS}")
    _refuse_topology(spec, "spec")
    if whole(spec, "minSubGroup", len(subgroups)) != len(subgroups):
        raise ManifestError("spec.minSubGroup", "not supported: fewer than all subgroups")
    preemptibility = text(spec, "preemptibility")
    if preemptibility not in ("", *_PREEMPTIBILITIES):
        raise ManifestError(
            "spec.preemptibility", f"one of {', '.join(_PREEMPTIBILITIES)}, found {preemptibility}"
        )
    return Gang(
        name,
        whole(spec, "minMember", 1),
        text(spec, "queue") or _queue_label(body),
        subgroups,
        text(spec, "priorityClassName"),
        is_preemptible=preemptibility != "non-preemptible",
        timeout_seconds=whole(spec, "scheduleTimeoutSeconds", 0, most=None),
    )


def kai_pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of KAI's PodGroup. Raises ManifestError.

    Without ``preemptibility`` its priority says whether it may be preempted.
    """
    gang = pod_group(body, name)
    spec = body["spec"]
    for key, instead in (
        ("preemptionDelay", "leave it out, or give its queue a preemption.delay"),
        ("stalenessGracePeriod", "leave it out; muster.scheduler.stalenessGracePeriod is for all"),
    ):
        if spec.get(key):
            raise ManifestError(f"spec.{key}", f"not supported for one gang: {instead}")
    return gang if spec.get("preemptibility") else replace(gang, kept_from=_KAI_KEPT_FROM)


def volcano_pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of Volcano's PodGroup. Raises ManifestError.

    ``minTaskMember`` counts where its tasks together are no more than ``minMember``, as there.
    """
    gang = pod_group(body, name)
    spec = body["spec"]
    if spec.get("subGroupPolicy"):
        raise ManifestError("spec.subGroupPolicy", "not supported")
    topology = mapping(spec.get("networkTopology") or {}, "spec.networkTopology")
    if topology and topology.get("mode") != "soft":
        raise ManifestError(
            "spec.networkTopology", "not supported: use a pod affinity to the level"
        )
    where = "spec.minTaskMember"
    tasks = mapping(spec.get("minTaskMember") or {}, where)
    least = {str(task): whole(tasks, task, 0, where) for task in tasks}
    if len(least) > MAX_SUBGROUPS:
        raise ManifestError(where, f"{len(least)} of them, at most {MAX_SUBGROUPS}")
    total = sum(least.values())
    if 0 < total < gang.minimum:
        raise ManifestError(where, f"not supported: {total} in all, fewer than minMember")
    queue = "" if gang.queue == VOLCANO_DEFAULT else gang.queue
    return replace(gang, queue=queue, subgroups=least if total == gang.minimum else {})


def _refuse_topology(spec: Mapping[str, Any], where: str) -> None:
    """Refuse a level that all pods must share; one that is only preferred may be left out."""
    where = f"{where}.topologyConstraint"
    constraint = mapping(spec.get("topologyConstraint") or {}, where)
    if constraint.get("requiredTopologyLevel"):
        raise ManifestError(
            f"{where}.requiredTopologyLevel", "not supported: use a pod affinity to the level"
        )


def core_pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of a PodGroup of core Kubernetes. Raises ManifestError with the field."""
    spec = mapping(body.get("spec"), "spec")
    for key in ("schedulingConstraints", "resourceClaims", "parentCompositePodGroupName"):
        if spec.get(key):
            raise ManifestError(f"spec.{key}", "not supported")
    mode = spec.get("disruptionMode") or ""
    is_whole = mode in _ALL_AT_ONCE if isinstance(mode, str) else "all" in mode
    return Gang(
        name,
        _minimum(inner(spec, "schedulingPolicy"), "spec.schedulingPolicy"),
        _queue_label(body),
        priority_class=text(spec, "priorityClassName"),
        is_preemptible=not is_whole,
    )


def core_workload(body: Mapping[str, Any], name: str) -> dict[str, Gang]:
    """Return the gangs of a Workload of 1.35, by the names of its podGroups.

    A Workload of later versions has templates alone, of which others make PodGroups: no gangs.
    Raises ManifestError with the field.
    """
    spec = mapping(body.get("spec"), "spec")
    found: dict[str, Gang] = {}
    for at, item in enumerate(items(spec, "podGroups")):
        where = f"spec.podGroups[{at}]"
        part = mapping(item, where)
        minimum = _minimum(inner(part, "policy", where), f"{where}.policy")
        found[text(part, "name", where)] = Gang(name, minimum, _queue_label(body))
    return found


def _minimum(policy: Mapping[str, Any], where: str) -> int:
    """Return how many must start at once: 0 under ``basic``, where each pod is for itself."""
    if policy.get("gang") is None:
        return 0
    return whole(inner(policy, "gang", where), "minCount", 1, f"{where}.gang")


def _queue_label(body: Mapping[str, Any]) -> str:
    labels = mapping(body.get("metadata") or {}, "metadata").get("labels") or {}
    return str(mapping(labels, "metadata.labels").get(QUEUE_LABEL) or "")


READERS: Mapping[str, Callable[[Mapping[str, Any], str], Gang]] = {
    COSCHEDULING: pod_group,
    KAI: kai_pod_group,
    VOLCANO: volcano_pod_group,
    CORE: core_pod_group,
}
