"""Converts API objects to records: pods (ours and foreign), nodes, configuration.

Pure: no I/O. Of a known pod only mutable fields are read. Source: docs/rules/pods.md,
docs/rules/gangs.md#task-groups, docs/rules/gangs.md#placeholder-pods, docs/rules/foreign-pods.md
and docs/rules/configuration.md#service-keys.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Any, TypeVar

from services.shim_adapter.backends.kubernetes.claim_objects import (
    NO_CLAIMS,
    DeviceClaims,
    device_claims,
)
from services.shim_adapter.backends.kubernetes.gang_of_group import (
    application_of,
    where_of,
    worn_labels,
)
from services.shim_adapter.backends.kubernetes.packed import unpacked
from services.shim_adapter.backends.kubernetes.volumes import claim_names
from services.shim_adapter.records import ENDED_PHASES, NodeRecord, PodPhase
from services.shim_adapter.translation.constraints import parse_constraints, texts
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.placeholders import PLACEHOLDER
from services.shim_adapter.translation.pods import (
    Reading,
    application_id_of,
    conflicting_names,
    partition_named,
    pod_request,
    requested,
    translate_pod,
    with_uid,
)
from services.shim_adapter.translation.task_groups import (
    POLICY_PARAMETERS,
    TASK_GROUP_NAME,
    TASK_GROUPS,
)
from services.shim_adapter.translation.workloads.kueue import pod_group_gang
from services.shim_adapter.translation.workloads.pod_groups import (
    CORE,
    KUEUE,
    POD_GROUP,
    GroupRef,
    group_of,
    subgroup_of,
)
from services.shim_adapter.translation.workloads.replicas import Gang
from shared.messages.commands import PodSpec
from shared.messages.constraints import NO_CONSTRAINTS, Constraints, PodTerm, Taint
from shared.model.gpus import GPU_DEVICES, Devices, devices_in
from shared.model.names import FOREIGN_DEFAULT, FOREIGN_STATIC, NODE_ANNOTATIONS
from shared.model.numbers import INT32, saturated
from shared.model.quantity import QuantityError, pod_resources
from shared.model.resources import PODS, Resource
from shared.model.texts import parse_truth
from shared.model.units import NANOS_PER_SECOND

UNSCHEDULABLE = "Unschedulable"
_OF_CORE = f"PodGroup.{CORE} "  # how the annotation of a placeholder of such a group begins
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MAX_SHARED = 10_000  # distinct labels and amounts of pods stored once; the oldest are stored again
MAX_NODE_ANNOTATIONS = 4_000  # characters of a node's muster.io/ annotations; none is read
_KEPT_ANNOTATIONS = (TASK_GROUPS, TASK_GROUP_NAME, POLICY_PARAMETERS, PLACEHOLDER, POD_GROUP)


V = TypeVar("V")


@dataclass(slots=True)
class PodView:
    """The fields of a pod that matter. ``spec`` is None for a known pod.

    ``error`` is why a pod of ours cannot be scheduled at all, for its users.
    """

    uid: str
    namespace: str
    name: str
    node: str
    phase: PodPhase
    is_ours: bool
    is_deleting: bool
    gates: tuple[str, ...]
    resource: Resource
    created_ns: int
    bound_ns: int
    devices: Devices = ()  # assigned ones
    is_marked: bool = False  # as Unschedulable, for autoscalers
    nominated: str = ""  # its nominated node
    generation: int = 0  # metadata.generation; 0: not supported by the server
    is_ready: bool = False
    labels: Mapping[str, str] | None = None  # None: not known
    spec: PodSpec | None = None
    error: str = ""
    application: tuple[str, str] | None = None  # partition and id, of a pod that has an error
    warnings: tuple[str, ...] = ()  # about ignored settings
    group: GroupRef | None = None  # the PodGroup that it names
    strange_group: GroupRef | None = None  # of core Kubernetes, of a pod of another scheduler
    subgroup: str = ""
    device_claims: DeviceClaims = NO_CLAIMS
    stated: Gang | str = ""  # of a plain pod of Kueue: its group, or an error
    where: str = ""  # of a pod with a group: where it may be, as its placeholders are to say it


def pod_view(raw: Mapping[str, Any], reading: Reading, is_known: Callable[[str], bool]) -> PodView:
    """Convert a pod, even an invalid one."""
    try:
        return _view(raw, reading, is_known)
    except (AttributeError, TypeError, KeyError, ValueError, ArithmeticError) as error:
        return _unreadable(raw, f"it cannot be read: {error!r}")


def _unreadable(raw: Mapping[str, Any], error: str) -> PodView:
    """Return the view of a malformed pod: only its name is known."""
    metadata = raw["metadata"]
    return PodView(
        uid=str(metadata.get("uid")),
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata.get("name")),
        node="",
        phase=PodPhase.PENDING,
        is_ours=True,
        is_deleting=False,
        gates=(),
        resource={PODS: 1},
        created_ns=0,
        bound_ns=0,
        error=error,
    )


def _view(raw: Mapping[str, Any], reading: Reading, is_known: Callable[[str], bool]) -> PodView:
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = metadata.get("annotations") or {}
    is_ours = spec.get("schedulerName") in reading.scheduler_names
    view = PodView(
        uid=metadata.get("uid") or "",
        namespace=intern(str(metadata.get("namespace") or "default")),
        name=metadata["name"],
        node=intern(str(spec.get("nodeName") or "")),
        phase=_phase(status.get("phase")),
        is_ours=is_ours,
        is_deleting=bool(metadata.get("deletionTimestamp")),
        gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        resource={PODS: 1},
        created_ns=time_ns(metadata.get("creationTimestamp")),
        bound_ns=_bound_ns(status),
        devices=devices_in(str(annotations.get(GPU_DEVICES) or "")),
        is_marked=_is_marked(status),
        nominated=str(status.get("nominatedNodeName") or ""),
        generation=int(metadata.get("generation") or 0),
        is_ready=_is_ready(status),
        labels=_once(metadata.get("labels") or {}),
    )
    _read_group(raw, view)
    if view.phase in ENDED_PHASES:
        return view
    try:
        if is_ours:
            view.resource = requested(raw, annotations, "")[0]
        else:
            view.resource = pod_request(spec, "spec", status)
    except ManifestError as error:
        view.error = str(error)
    if not (is_known(view.uid) or (view.error and is_ours)):
        _read_spec(raw, reading, view)
    if view.error and view.is_ours:
        view.application = _application_of(raw, reading, view)
    return view


def _read_group(raw: Mapping[str, Any], view: PodView) -> None:
    """Read a pod's group, and the total that a plain pod of Kueue states for it."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    if not view.is_ours:
        view.strange_group = group_of(metadata, spec) if spec.get("schedulingGroup") else None
        return
    view.group = group = group_of(metadata, spec)
    if group is not None:
        view.subgroup = subgroup_of(metadata, group)
    if group is not None and group.kind == KUEUE:
        view.stated = pod_group_gang(metadata.get("annotations") or {}, group.name)


def _application_of(raw: Mapping[str, Any], reading: Reading, view: PodView) -> tuple[str, str]:
    """Return partition and application of a pod whose other fields are invalid."""
    metadata = raw["metadata"]
    labels, annotations = (_texts(metadata.get(name)) for name in ("labels", "annotations"))
    if view.group is not None:
        reading = replace(reading, application_id=application_of(view.group))
    name = application_id_of(labels, annotations, view.namespace, reading)
    return partition_named(labels, annotations), with_uid(name, view.uid)


def _texts(value: Any) -> dict[str, str]:
    try:
        return texts(value, "")
    except ManifestError:
        return {}


def _read_spec(raw: Mapping[str, Any], reading: Reading, view: PodView) -> None:
    try:
        view.spec = _our_spec(raw, reading, view) if view.is_ours else _foreign_spec(raw, view)
    except ManifestError as error:
        view.error = str(error)
        if view.node:  # already bound: count it like a foreign pod
            view.is_ours = False
            view.spec = _foreign_spec(raw, view)


def _phase(text: Any) -> PodPhase:
    try:
        return PodPhase(text)
    except ValueError:
        return PodPhase.PENDING if text in (None, "", "Unknown") else PodPhase.RUNNING


def _our_spec(raw: Mapping[str, Any], reading: Reading, view: PodView) -> PodSpec:
    view.device_claims = device_claims(raw)
    if view.group is not None:
        reading = replace(reading, application_id=application_of(view.group))
        view.where = where_of(raw["spec"])
    spec = translate_pod(raw, where="", name=view.name, reading=reading)
    kept = [key for key in _KEPT_ANNOTATIONS if key in spec.annotations]
    annotations = {key: intern(spec.annotations[key]) for key in kept}
    is_placeholder = bool(parse_truth(annotations.get(PLACEHOLDER, "")) and spec.task_group_name)
    gang = spec.gang
    if is_placeholder and annotations.get(POD_GROUP, "").startswith(_OF_CORE):
        gang = replace(gang, starts_whole=True)
    if not is_placeholder:
        view.warnings = conflicting_names(spec.labels, spec.annotations)
    return replace(
        spec,
        application_id=with_uid(spec.application_id, view.uid),
        namespace=view.namespace,
        annotations=annotations,
        claims=claim_names(raw["spec"], view.name),
        labels=worn_labels(spec.labels, spec.annotations) if is_placeholder else spec.labels,
        placeholder=is_placeholder,
        gang=gang,
    )


def _foreign_spec(raw: Mapping[str, Any], view: PodView) -> PodSpec:
    """Return a pod of another scheduler, with the constraints that exclude our pods."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    owners = metadata.get("ownerReferences") or ()
    is_static = any(owner.get("kind") == "Node" for owner in owners)
    return PodSpec(
        name=view.name,
        application_id="",
        resource=_once(view.resource),
        namespace=view.namespace,
        priority=max(INT32.start, min(INT32.stop - 1, int(spec.get("priority") or 0))),
        constraints=_repelling(spec, view.labels or {}),
        claims=claim_names(spec, view.name),
        labels=view.labels or {},
        foreign=FOREIGN_STATIC if is_static else FOREIGN_DEFAULT,
    )


def _once(found: Mapping[str, V]) -> Mapping[str, V]:
    """Return a shared instance of an equal map, which is never modified."""
    try:
        return _map_of(tuple(found.items()))
    except (TypeError, AttributeError):
        return found  # invalid; its reader refuses it


@lru_cache(MAX_SHARED)
def _map_of(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(items)


def _repelling(spec: Mapping[str, Any], labels: Mapping[str, str]) -> Constraints:
    """Return a foreign pod's anti-affinity and host ports, which exclude our pods."""
    containers = {key: spec.get(key) for key in ("containers", "initContainers")}
    ports = any(c.get("ports") for kind in containers.values() for c in kind or ())
    terms = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(_REQUIRED)
    if not (ports or terms):
        return NO_CONSTRAINTS
    taken = _readable_of({**containers, "hostNetwork": spec.get("hostNetwork")})
    repelling: list[PodTerm] = []
    for term in terms or ():
        # an unreadable term excludes our pods wherever it may apply
        everywhere = {**term, "namespaceSelector": {}}
        found = _repelled(term, labels) or _repelled(everywhere, labels)
        repelling += found
    return Constraints(pod_anti_affinity=tuple(repelling), host_ports=taken.host_ports)


def _repelled(term: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[PodTerm, ...]:
    affinity = {"podAntiAffinity": {_REQUIRED: [term]}}
    return _readable_of({"affinity": affinity}, labels).pod_anti_affinity


def _readable_of(spec: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Constraints:
    """Return the constraints in a part of a spec; none if it is invalid."""
    try:
        return parse_constraints(spec, "spec", labels=labels or {})
    except ManifestError:
        return NO_CONSTRAINTS


def node_record(raw: Mapping[str, Any]) -> NodeRecord:
    """Convert a node: allocatable, labels, taints, Muster's annotations, cordoned or not.

    A node that is being deleted counts as cordoned.
    """
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    capacity = _readable((raw.get("status") or {}).get("allocatable") or {})
    taints = tuple(
        Taint(taint["key"], taint.get("value") or "", taint.get("effect") or "")
        for taint in spec.get("taints") or ()
        if taint.get("key") != "node.kubernetes.io/unschedulable"
    )
    labels = metadata.get("labels") or {}
    is_cordoned = bool(spec.get("unschedulable") or metadata.get("deletionTimestamp"))
    return NodeRecord(
        metadata["name"],
        capacity,
        labels,
        taints,
        is_cordoned,
        annotations=_annotations_for_us(metadata),
    )


def _annotations_for_us(metadata: Mapping[str, Any]) -> dict[str, str]:
    found = _texts(metadata.get("annotations"))
    ours = {name: text for name, text in found.items() if name.startswith(NODE_ANNOTATIONS)}
    is_short = sum(len(name) + len(text) for name, text in ours.items()) <= MAX_NODE_ANNOTATIONS
    return ours if is_short else {}


def _readable(amounts: Mapping[str, Any]) -> Resource:
    """Return a node's amounts, without invalid ones."""
    capacity: Resource = {}
    for name, amount in amounts.items():
        try:
            capacity |= pod_resources({name: amount})
        except QuantityError:
            continue
    return capacity


def config_data(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return a ConfigMap's texts; keys of binaryData that end in .gz are unpacked."""
    data = {str(key): str(value) for key, value in (raw.get("data") or {}).items()}
    for key, value in (raw.get("binaryData") or {}).items():
        text = unpacked(value) if key.endswith(".gz") else None
        if text is not None:
            data[key.removesuffix(".gz")] = text
    return data


def time_ns(text: str | None) -> int:
    """Convert an RFC 3339 time to nanoseconds; 0 for a missing or invalid one."""
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return max(0, saturated(int(moment.timestamp()) * NANOS_PER_SECOND))


def _conditions(status: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    return (one for one in status.get("conditions") or () if one.get("type") == kind)


def _is_marked(status: Mapping[str, Any]) -> bool:
    return any(one.get("reason") == UNSCHEDULABLE for one in _conditions(status, "PodScheduled"))


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(one.get("status") == "True" for one in _conditions(status, "Ready"))


def _bound_ns(status: Mapping[str, Any]) -> int:
    for one in _conditions(status, "PodScheduled"):
        if one.get("status") == "True":
            return time_ns(one.get("lastTransitionTime"))
    return 0
