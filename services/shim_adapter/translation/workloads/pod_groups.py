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
from services.shim_adapter.translation.pods import (
    PREEMPTION_DELAY,
    STALENESS_GRACE,
    duration_ns,
    mapping,
)
from services.shim_adapter.translation.task_groups import TASK_GROUP_NAME, TASK_GROUPS
from services.shim_adapter.translation.topology import GROUP_NAME, KUEUE_READ
from services.shim_adapter.translation.workloads.grove import (
    PODCLIQUE_LABEL,
    PODGANG_LABEL,
    pod_gang,
)
from services.shim_adapter.translation.workloads.replicas import (
    Gang,
    Network,
    inner,
    items,
    text,
    whole,
)
from services.shim_adapter.translation.workloads.subgroup_policies import policies_of
from shared.messages.interface import NO_TOPOLOGY, GangSettings, SubGroup, TopologyConstraint
from shared.model.numbers import INT32

COSCHEDULING = "scheduling.x-k8s.io"
KAI = "scheduling.run.ai"
CORE = "scheduling.k8s.io"
CORE_WORKLOAD = "Workload.scheduling.k8s.io"
GROVE = "PodGang.scheduler.grove.io"
JOB, JOBSET = "Job.batch", "JobSet.jobset.x-k8s.io"
KUEUE = "kueue.x-k8s.io"  # plain pods with one name of their group, and no object of it
KUEUE_LABEL = "kueue.x-k8s.io/pod-group-name"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
COMPOSITE = "CompositePodGroup.scheduling.k8s.io"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
KAI_ANNOTATION = "pod-group-name"
VOLCANO = "scheduling.volcano.sh"
VOLCANO_ANNOTATIONS = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")
VOLCANO_TASK = "volcano.sh/task-spec"  # the annotation that names a pod's task
VOLCANO_DEFAULT = "default"  # the queue of a PodGroup that names none, as its definition has it
QUEUE_LABEL = "kai.scheduler/queue"
SUBGROUP_LABEL = "kai.scheduler/subgroup-name"
POD_GROUP = "muster.io/pod-group"  # the annotation of a placeholder: whose pods' place it holds
KAI_TOPOLOGY = {  # annotations in place of fields
    "topology": "kai.scheduler/topology",
    "requiredTopologyLevel": "kai.scheduler/topology-required-placement",
    "preferredTopologyLevel": "kai.scheduler/topology-preferred-placement",
}
MAX_SUBGROUPS = 100  # subgroups of one PodGroup; one with more is refused
_SEMI_PREEMPTIBLE = "semi-preemptible"
_PREEMPTIBILITIES = ("preemptible", "non-preemptible", _SEMI_PREEMPTIBLE)
_ALL_AT_ONCE = ("PodGroup", "All")
MAX_CLAIMS = 4  # claims of a PodGroup, as in the API server; one with more is refused
_ANY_TIER = 2**31 - 1  # in one HyperNode, whichever it is
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
        """Return it as users read it: what they would search for with kubectl."""
        part = "".join(f"/{item}" for item in (self.part, self.replica) if item)
        named = (CORE_WORKLOAD, COMPOSITE, JOB, JOBSET, GROVE)
        kind = self.kind if self.kind in named else f"PodGroup.{self.kind}"
        return f"{kind} {self.namespace}/{self.name}{part}"


def group_of(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> GroupRef | None:
    """Return the gang that a pod names, None where it names none; core Kubernetes' word is first.

    ``metadata`` and ``spec`` are as the API server has them.
    """
    annotations = _map(metadata, "annotations")
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
    return _of_an_operator(metadata, namespace)


def _of_an_operator(metadata: Mapping[str, Any], namespace: str) -> GroupRef | None:
    """Return the gang that a pod names by a label or an annotation, None where it names none."""
    labels, annotations = _map(metadata, "labels"), _map(metadata, "annotations")
    if labels.get(GROUP_LABEL):
        return GroupRef(COSCHEDULING, namespace, str(labels[GROUP_LABEL]))
    if annotations.get(KAI_ANNOTATION):
        return GroupRef(KAI, namespace, str(annotations[KAI_ANNOTATION]))
    volcanos = next((annotations[key] for key in VOLCANO_ANNOTATIONS if annotations.get(key)), "")
    if volcanos:
        return GroupRef(VOLCANO, namespace, str(volcanos))
    if labels.get(PODGANG_LABEL):
        return GroupRef(GROVE, namespace, str(labels[PODGANG_LABEL]))
    if any(annotations.get(key) for key in KUEUE_READ):
        return _job_of(metadata, labels, annotations, namespace)
    return None


def _job_of(
    metadata: Mapping[str, Any],
    labels: Mapping[str, Any],
    annotations: Mapping[str, Any],
    namespace: str,
) -> GroupRef | None:
    """Return what Kueue admits as a whole, of a pod with its annotations of topology."""
    if labels.get(KUEUE_LABEL):
        return GroupRef(KUEUE, namespace, str(labels[KUEUE_LABEL]))
    jobset, part = labels.get(JOBSET_LABEL), labels.get(REPLICATED_JOB_LABEL)
    if jobset and part:
        part = annotations.get(GROUP_NAME) or part
        return GroupRef(JOBSET, namespace, str(jobset), str(part))
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        is_job = isinstance(owner, dict) and owner.get("kind") == "Job"
        if is_job and str(owner.get("apiVersion")).startswith("batch/"):
            return GroupRef(JOB, namespace, str(owner.get("name")))
    return None


def subgroup_of(metadata: Mapping[str, Any], ref: GroupRef) -> str:
    """Return the part of its gang that a pod is of, "" where it names none."""
    if ref.kind == VOLCANO:
        return str(_map(metadata, "annotations").get(VOLCANO_TASK) or "")
    label = PODCLIQUE_LABEL if ref.kind == GROVE else SUBGROUP_LABEL
    return str(_map(metadata, "labels").get(label) or "")


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
    return Gang(
        name,
        whole(spec, "minMember", 1),
        text(spec, "queue") or _queue_label(body),
        priority_class=text(spec, "priorityClassName"),
        timeout_seconds=whole(spec, "scheduleTimeoutSeconds", 0, most=None),
    )


def kai_pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of KAI's PodGroup. Raises ManifestError.

    Without ``preemptibility`` its priority says whether it may be preempted. Its delay and its
    grace may be annotations of it; what its spec says comes first.
    """
    spec = mapping(body.get("spec"), "spec")
    preemptibility = text(spec, "preemptibility")
    if preemptibility not in ("", *_PREEMPTIBILITIES):
        raise ManifestError(
            "spec.preemptibility", f"one of {', '.join(_PREEMPTIBILITIES)}, found {preemptibility}"
        )
    annotations = _map(_map(body, "metadata"), "annotations")
    delay = _stated(spec, annotations, "preemptionDelay", PREEMPTION_DELAY)
    grace = _stated(spec, annotations, "stalenessGracePeriod", STALENESS_GRACE)
    subgroups, minimum = _parts(spec, name)
    terms = GangSettings(
        subgroups,
        minimum,
        kai_topology(spec, annotations),
        preemption_delay_ns=max(0, delay or 0),
        staleness_grace_ns=grace,
        keeps_minimum=preemptibility == _SEMI_PREEMPTIBLE,
    )
    return replace(
        pod_group(body, name),
        is_preemptible=preemptibility != "non-preemptible",
        kept_from=None if preemptibility else _KAI_KEPT_FROM,
        terms=terms,
        topologies=_topologies(spec, annotations),
    )


def _topologies(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the topologies that a KAI group names, by subgroup."""
    parts = [("", spec), *((str(part["name"]), part) for part in items(spec, "subGroups"))]
    found = {own: mapping(part.get("topologyConstraint") or {}, own) for own, part in parts}
    if not found[""]:
        found[""] = {"topology": annotations.get(KAI_TOPOLOGY["topology"])}
    return {own: str(stated["topology"]) for own, stated in found.items() if stated.get("topology")}


def _stated(
    spec: Mapping[str, Any], annotations: Mapping[str, Any], key: str, annotation: str
) -> int | None:
    """Return a duration in ns that a group states, -1 for one with a minus; None: it states none.

    Raises ManifestError with the field.
    """
    where, value = f"spec.{key}", spec.get(key)
    if value in (None, ""):
        where, value = f"metadata.annotations[{annotation}]", annotations.get(annotation)
    if value in (None, ""):
        return None
    found = duration_ns(value) if isinstance(value, str) else None
    if found is None:
        raise ManifestError(where, f"a duration like 90s was expected, found {value!r}")
    return found


def _parts(spec: Mapping[str, Any], name: str) -> tuple[tuple[SubGroup, ...], int]:
    """Return the tree of a KAI group, parents first, and how many of its own parts must run.

    One without subgroups is a single set of pods. Of one with subgroups ``minMember`` counts for
    nothing: each has its own. Raises ManifestError.
    """
    found: dict[str, dict[str, Any]] = {}
    for at, item in enumerate(items(spec, "subGroups")):
        place = f"spec.subGroups[{at}]"
        part = mapping(item, place)
        own = text(part, "name", place)
        if not own or own in found:
            raise ManifestError(f"{place}.name", f"a name of its own is needed, found {own!r}")
        found[own] = part
    if len(found) > MAX_SUBGROUPS:
        raise ManifestError("spec.subGroups", f"{len(found)} of them, at most {MAX_SUBGROUPS}")
    if not found:
        return (SubGroup(name, "", whole(spec, "minMember", 1)),), -1
    parents = {str(part.get("parent") or "") for part in found.values()}
    minimum = whole(spec, "minSubGroup", -1)
    return tuple(
        SubGroup(
            own,
            _parent(found, own),
            *_least(found[own], own, is_group=own in parents),
            kai_topology(found[own], {}),
        )
        for own in sorted(found, key=lambda own: _depth(found, own))
    ), minimum


def _least(part: Mapping[str, Any], name: str, *, is_group: bool) -> tuple[int, bool]:
    """Return the minimum of a subgroup, of pods or of subgroups; negative: of all of these."""
    own, other = ("minSubGroup", "minMember") if is_group else ("minMember", "minSubGroup")
    where = f"spec.subGroups[{name}]"
    if part.get(other):
        kind = "has subgroups" if is_group else "has pods alone"
        raise ManifestError(f"{where}.{other}", f"it {kind}: {own} is its minimum")
    return whole(part, own, -1 if is_group else 1, where), is_group


def _parent(found: Mapping[str, Mapping[str, Any]], name: str) -> str:
    parent = text(found[name], "parent", f"spec.subGroups[{name}]")
    if parent and parent not in found:
        raise ManifestError(f"spec.subGroups[{name}].parent", f"there is no subgroup {parent!r}")
    return parent


def _depth(found: Mapping[str, Mapping[str, Any]], name: str) -> int:
    """Return how many subgroups a subgroup is in. Raises ManifestError where they go in circles."""
    depth, above = 0, _parent(found, name)
    while above:
        depth, above = depth + 1, _parent(found, above)
        if depth > len(found):
            raise ManifestError(f"spec.subGroups[{name}].parent", "its parents go in a circle")
    return depth


def volcano_pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of Volcano's PodGroup. Raises ManifestError.

    ``minTaskMember`` counts where its tasks together are no more than ``minMember``, as there.
    """
    gang = pod_group(body, name)
    spec = body["spec"]
    topology, network = of_network(spec)
    where = "spec.minTaskMember"
    policies = policies_of(spec, of_network)
    if policies and spec.get("minTaskMember"):
        raise ManifestError(where, "not supported beside subGroupPolicy")
    tasks = mapping(spec.get("minTaskMember") or {}, where)
    least = {str(task): whole(tasks, task, 0, where) for task in tasks}
    if len(least) > MAX_SUBGROUPS:
        raise ManifestError(where, f"{len(least)} of them, at most {MAX_SUBGROUPS}")
    total = sum(least.values())
    if 0 < total < gang.minimum:
        raise ManifestError(where, f"not supported: {total} in all, fewer than minMember")
    queue = "" if gang.queue == VOLCANO_DEFAULT else gang.queue
    subgroups = least if total == gang.minimum else {}
    return replace(
        gang,
        queue=queue,
        subgroups=subgroups,
        topology=topology,
        network=network,
        policies=policies,
    )


def of_network(
    spec: Mapping[str, Any], where: str = "spec.networkTopology"
) -> tuple[TopologyConstraint, Network | None]:
    """Return what Volcano's ``networkTopology`` says: a level by name, or a tier.

    Which levels a tier by number is only HyperNodes say; where there are none, a name is one of the
    levels of the cluster, and soft without either is no wish. Raises ManifestError.
    """
    stated = mapping(spec.get("networkTopology") or {}, where)
    level, tier = text(stated, "highestTierName", where), stated.get("highestTierAllowed")
    mode = text(stated, "mode", where) or "hard"
    if mode not in ("hard", "soft"):
        raise ManifestError(f"{where}.mode", f"one of hard, soft, found {mode!r}")
    if level and tier is not None:
        wrong = f"{where}: highestTierAllowed and highestTierName exclude each other"
        return TopologyConstraint(wrong=wrong), None
    if tier is not None and (type(tier) is not int or tier < 0):
        raise ManifestError(f"{where}.highestTierAllowed", f"a whole number, found {tier!r}")
    if not stated:
        return NO_TOPOLOGY, None
    is_soft = mode == "soft"
    wish = TopologyConstraint(preferred=level) if is_soft else TopologyConstraint(required=level)
    return wish, Network(None if level else _ANY_TIER if tier is None else tier, level, is_soft)


def without_hyper_nodes(gang: Gang) -> Gang:
    """Return a gang for a cluster that has no HyperNodes. Raises ManifestError for a tier.

    Its pods are of no subgroup by their labels there: what makes them does not label them either.
    """
    if gang.policies:
        raise ManifestError("spec.subGroupPolicy", "not supported in a simulated cluster")
    network = gang.network
    if network is None or network.is_soft or network.tier is None:
        return gang
    raise ManifestError(
        "spec.networkTopology",
        "not supported: tiers by number need HyperNodes; use highestTierName",
    )


def kai_topology(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> TopologyConstraint:
    """Return what a group of KAI says of levels, else annotations of it: those of the cluster.

    Whatever its topology is called: a level that is not there is said when it is looked for.
    """
    stated = mapping(spec.get("topologyConstraint") or {}, "spec.topologyConstraint")
    if not stated:
        stated = {key: annotations.get(annotation) for key, annotation in KAI_TOPOLOGY.items()}
    required = str(stated.get("requiredTopologyLevel") or "")
    if required and not stated.get("topology"):
        return TopologyConstraint(wrong=f"topology: the required level {required} is of none")
    if not stated.get("topology"):
        return NO_TOPOLOGY
    return TopologyConstraint((), required, str(stated.get("preferredTopologyLevel") or ""))


def core_pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of a PodGroup of core Kubernetes. Raises ManifestError with the field.

    Under ``basic`` each pod is for itself, but for the domain that they are all to be in: the first
    of them chooses it.
    """
    gang = _core_gang(body, name, "minCount")
    claims = _claims(mapping(body.get("spec"), "spec"))
    gang = replace(gang, claims=claims) if claims else gang
    if gang.topology == NO_TOPOLOGY or gang.minimum or gang.parent:
        return gang
    alone = GangSettings((SubGroup(name, "", 1),), 1, gang.topology)
    return replace(gang, terms=alone, topology=NO_TOPOLOGY)


def tied(gang: Gang, label: str) -> Gang:
    """Return a gang all of whose pods go to nodes with one value of a label: to its devices."""
    whole = TopologyConstraint((label,), required=label)
    if gang.minimum:
        return replace(gang, topology=whole)
    alone = GangSettings((SubGroup(gang.name, "", 1),), 1, whole)
    return replace(gang, terms=alone, topology=NO_TOPOLOGY)


def composite_pod_group(body: Mapping[str, Any], name: str) -> Gang:
    """Return what a CompositePodGroup says of the groups in it. Raises ManifestError.

    Its minimum is of groups: 0 under ``basic``, where each of them is for itself.
    """
    return _core_gang(body, name, "minGroupCount")


def _core_gang(body: Mapping[str, Any], name: str, minimum: str) -> Gang:
    """Return what groups of pods, and of groups, have in common."""
    spec = mapping(body.get("spec"), "spec")
    mode = spec.get("disruptionMode") or ""
    is_whole = mode in _ALL_AT_ONCE if isinstance(mode, str) else "all" in mode
    policy = text(spec, "preemptionPolicy")
    return Gang(
        name,
        _minimum(inner(spec, "schedulingPolicy"), "spec.schedulingPolicy", minimum),
        _queue_label(body),
        priority_class=text(spec, "priorityClassName"),
        is_preemptible=not is_whole,
        topology=_of_constraints(spec),
        priority=_priority(spec),
        lets_preempt=policy != "Never" if policy else None,
        has_own_class=True,
        parent=text(spec, "parentCompositePodGroupName"),
        workload=_workload(spec),
    )


def _claims(spec: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """Return what a group's claims name, by entry, and whether it is a claim, not a template."""
    found: dict[str, tuple[str, bool]] = {}
    for at, item in enumerate(items(spec, "resourceClaims")):
        where = f"spec.resourceClaims[{at}]"
        entry = mapping(item, where)
        claim = text(entry, "resourceClaimName", where)
        named = claim or text(entry, "resourceClaimTemplateName", where)
        found[text(entry, "name", where)] = named, bool(claim)
    if len(found) > MAX_CLAIMS:
        raise ManifestError("spec.resourceClaims", f"{len(found)} of them, at most {MAX_CLAIMS}")
    return found


def _priority(spec: Mapping[str, Any]) -> int | None:
    """Return the priority that a group has, which its class was resolved to; None: it says none."""
    value = spec.get("priority")
    if value is not None and (type(value) is not int or value not in INT32):
        raise ManifestError("spec.priority", f"a 32-bit whole number, found {value!r}")
    return value


def _workload(spec: Mapping[str, Any]) -> str:
    """Return the Workload that a group was made of, "" where it does not say."""
    named = text(inner(spec, "workloadRef"), "workloadName", "spec.workloadRef")
    if named:
        return named
    where = "spec.podGroupTemplateRef"
    template = inner(inner(spec, "podGroupTemplateRef"), "workload", where)
    return text(template, "workloadName", f"{where}.workload")


def _of_constraints(spec: Mapping[str, Any]) -> TopologyConstraint:
    """Return the one label of which all pods must be on nodes with the same value."""
    constraints = inner(spec, "schedulingConstraints")
    where = "spec.schedulingConstraints"
    unknown = next((key for key in constraints if key != "topology"), None)
    if unknown is not None:
        raise ManifestError(f"{where}.{unknown}", "not supported")
    keys = items(constraints, "topology")
    if not keys:
        return NO_TOPOLOGY
    key = text(mapping(keys[0], f"{where}.topology[0]"), "key", f"{where}.topology[0]")
    if len(keys) > 1 or not key:
        raise ManifestError(f"{where}.topology", "one label is expected, as its key")
    return TopologyConstraint((key,), required=key)


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


def _minimum(policy: Mapping[str, Any], where: str, key: str = "minCount") -> int:
    """Return how many must start at once: 0 under ``basic``, where each is for itself."""
    if policy.get("gang") is None:
        return 0
    return whole(inner(policy, "gang", where), key, 1, f"{where}.gang")


def _queue_label(body: Mapping[str, Any]) -> str:
    labels = mapping(body.get("metadata") or {}, "metadata").get("labels") or {}
    return str(mapping(labels, "metadata.labels").get(QUEUE_LABEL) or "")


READERS: Mapping[str, Callable[[Mapping[str, Any], str], Gang]] = {
    COSCHEDULING: pod_group,
    KAI: kai_pod_group,
    VOLCANO: volcano_pod_group,
    CORE: core_pod_group,
    COMPOSITE: composite_pod_group,
    GROVE: pod_gang,
}
