"""The API objects watched by several programs, and their conversions."""

from collections.abc import Mapping
from typing import Any

import structlog

from services.shim_adapter.backends.kubernetes.claim_objects import (
    TaintRule,
    claim_of,
    class_of,
    slice_of,
    taint_rule_of,
)
from services.shim_adapter.backends.kubernetes.discovery import OptionalKind
from services.shim_adapter.backends.kubernetes.observed import (
    DeviceClaimSeen,
    DeviceClassSeen,
    Observed,
    SliceSeen,
    TaintRuleSeen,
)
from services.shim_adapter.backends.kubernetes.reflector import DELETED, Source
from services.shim_adapter.backends.kubernetes.topologies import (
    HYPER_NODE,
    KAI_TOPOLOGY,
    KUEUE_TOPOLOGY,
)
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.manifests import priority_class
from services.shim_adapter.translation.pods import PriorityClass
from services.shim_adapter.translation.workloads.kueue import job_gangs, job_set_gangs
from services.shim_adapter.translation.workloads.pod_groups import (
    COMPOSITE,
    CORE,
    CORE_WORKLOAD,
    COSCHEDULING,
    GROVE,
    JOB,
    JOBSET,
    KAI,
    READERS,
    VOLCANO,
    core_workload,
)
from services.shim_adapter.translation.workloads.replicas import Gang

log = structlog.get_logger("muster.kubernetes")
NAMESPACES = Source("namespaces", "/api/v1/namespaces")
PRIORITY_CLASSES = Source("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses")

# PodGroups, as their projects serve them; of core Kubernetes' the gangs are the Workload's in 1.35.
GROUP_KINDS = (
    OptionalKind(COSCHEDULING, COSCHEDULING, ("v1alpha1",), "podgroups"),
    OptionalKind(KAI, KAI, ("v2alpha2",), "podgroups"),
    OptionalKind(VOLCANO, VOLCANO, ("v1beta1",), "podgroups"),
    OptionalKind(
        CORE, CORE, ("v1beta1", "v1alpha3", "v1alpha2"), "podgroups", beside="compositepodgroups"
    ),
    OptionalKind(COMPOSITE, CORE, ("v1alpha3",), "compositepodgroups"),
    OptionalKind(CORE_WORKLOAD, CORE, ("v1alpha1",), "workloads"),
    OptionalKind(GROVE, "scheduler.grove.io", ("v1alpha1",), "podgangs"),
    OptionalKind(JOB, "batch", ("v1",), "jobs"),  # those with Kueue's annotations
    OptionalKind(JOBSET, "jobset.x-k8s.io", ("v1alpha2",), "jobsets"),
)
TOPOLOGY_KINDS = (
    OptionalKind(KUEUE_TOPOLOGY, "kueue.x-k8s.io", ("v1beta2", "v1beta1"), "topologies"),
    OptionalKind(KAI_TOPOLOGY, "kai.scheduler", ("v1alpha1",), "topologies"),
    OptionalKind(HYPER_NODE, "topology.volcano.sh", ("v1alpha1",), "hypernodes"),
)
DEVICE_KINDS = (
    OptionalKind("resourceslices", "resource.k8s.io", ("v1",), "resourceslices"),
    OptionalKind("deviceclasses", "resource.k8s.io", ("v1",), "deviceclasses"),
    OptionalKind("resourceclaims", "resource.k8s.io", ("v1",), "resourceclaims"),
    OptionalKind(
        "devicetaintrules", "resource.k8s.io", ("v1", "v1beta2", "v1alpha3"), "devicetaintrules"
    ),
)
_JOBS = {JOB: job_gangs, JOBSET: job_set_gangs}


def gangs_of(kind: str, item: dict[str, Any]) -> Mapping[str, Gang] | str | None:
    """Return the gangs of a PodGroup or a Workload by part, or an error text.

    None: it is a job without a gang.
    """
    name = item["metadata"]["name"]
    try:
        if kind in _JOBS:
            return _JOBS[kind](item, name)
        if kind == CORE_WORKLOAD:
            return core_workload(item, name)
        return {"": READERS[kind](item, name)}
    except ManifestError as error:
        return str(error)
    except (AttributeError, TypeError, KeyError) as error:
        return f"it cannot be read: {error!r}"


def device_seen(kind: str, item: dict[str, Any], *, is_gone: bool) -> Observed:
    """Convert an object of dynamic resource allocation; an invalid one has an error text."""
    name = item["metadata"]["name"]
    if kind == "resourceclaims":
        where = item["metadata"].get("namespace") or "default"
        return DeviceClaimSeen((where, name), None if is_gone else claim_of(item))
    if kind == "devicetaintrules":
        return TaintRuleSeen(name, None if is_gone else _taint_rule(item))
    try:
        if kind == "resourceslices":
            return SliceSeen(name, None if is_gone else slice_of(item))
        return DeviceClassSeen(name, None if is_gone else class_of(item))
    except (ManifestError, AttributeError, TypeError, KeyError, ValueError) as error:
        seen = SliceSeen if kind == "resourceslices" else DeviceClassSeen
        return seen(name, str(error))


def _taint_rule(item: dict[str, Any]) -> TaintRule | None:
    try:
        return taint_rule_of(item)
    except ManifestError as error:
        name = item["metadata"]["name"]
        log.warning("a DeviceTaintRule is invalid", rule=name, error=str(error))
        return None


def config_map(namespace: str, name: str) -> Source:
    """Return the source of one ConfigMap."""
    return Source(name, f"/api/v1/namespaces/{namespace}/configmaps", f"metadata.name={name}")


def note_class(classes: dict[str, PriorityClass], change: str, item: dict[str, Any]) -> None:
    """Add, update or remove a priority class; ignore one without a whole number."""
    name = item["metadata"]["name"]
    if change == DELETED:
        classes.pop(name, None)
    elif type(item.get("value")) is int:
        classes[name] = priority_class(item)
