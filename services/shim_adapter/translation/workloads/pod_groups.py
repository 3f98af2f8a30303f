"""PodGroups: what each kind says of its gang, and which of them a pod names.

Sources: scheduling.x-k8s.io/v1alpha1 (minMember, scheduleTimeoutSeconds; the label of a pod), KAI's
scheduling.run.ai/v2alpha2 and Volcano's (contract kai 1.11; the annotation of a pod), and core
Kubernetes' scheduling.k8s.io: a Workload's podGroups in 1.35 (v1alpha1, ``spec.workloadRef``), the
PodGroup from 1.36 on (v1alpha2, v1alpha3, v1beta1, ``spec.schedulingGroup``).

Rule 1: what would have to be heeded and is not, refuses the group by its field; what is a mere wish
        is left out.
Rule 2: a pod with YuniKorn's task groups names no PodGroup, whatever else it carries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
QUEUE_LABEL = "kai.scheduler/queue"
SUBGROUP_LABEL = "kai.scheduler/subgroup-name"
POD_GROUP = "muster.io/pod-group"  # the annotation of a placeholder: whose pods' place it holds
MAX_SUBGROUPS = 100  # subgroups of one PodGroup; one with more is refused
_PREEMPTIBILITIES = ("preemptible", "non-preemptible")
_ALL_AT_ONCE = ("PodGroup", "All")


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
    return None


def _map(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a map; what is none names no group, and is refused where it is read for itself."""
    value = found.get(key)
    return value if isinstance(value, dict) else {}


# --- what the kinds say -------------------------------------------------------------------------


def pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of a PodGroup of scheduling.x-k8s.io, KAI or Volcano. Raises ManifestError.

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
