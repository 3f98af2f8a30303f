"""What an API server does about PodGroups and Workloads: serves them or not, and validates them.

As the schemas of their definitions have it: scheduling.x-k8s.io/v1alpha1, scheduling.run.ai/v2alpha2,
scheduling.volcano.sh/v1beta1 (whose queue has a default), and scheduling.k8s.io v1alpha1 (1.35), v1alpha2 (1.36), v1beta1 (1.37).
"""

from typing import Any

from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH
from tests.kubernetes.store import ApiFailureError, Object
from tests.kubernetes.versions import Served

COSCHEDULING = ("scheduling.x-k8s.io/v1alpha1", "podgroups", "PodGroup")
KAI = ("scheduling.run.ai/v2alpha2", "podgroups", "PodGroup")
VOLCANO = ("scheduling.volcano.sh/v1beta1", "podgroups", "PodGroup")
OF_1_35 = ("scheduling.k8s.io/v1alpha1", "workloads", "Workload")
OF_1_36 = ("scheduling.k8s.io/v1alpha2", "podgroups", "PodGroup")
OF_1_37 = ("scheduling.k8s.io/v1beta1", "podgroups", "PodGroup")
ALPHA_OF_1_37 = ("scheduling.k8s.io/v1alpha3", "podgroups", "PodGroup")
COMPOSITE = ("scheduling.k8s.io/v1alpha3", "compositepodgroups", "CompositePodGroup")
GROVE = ("scheduler.grove.io/v1alpha1", "podgangs", "PodGang")
JOBSET = ("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
KUEUE_TOPOLOGY = ("kueue.x-k8s.io/v1beta2", "topologies", "Topology")
KAI_TOPOLOGY = ("kai.scheduler/v1alpha1", "topologies", "Topology")
HYPER_NODE = ("topology.volcano.sh/v1alpha1", "hypernodes", "HyperNode")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CORE = "podgroups.scheduling.k8s.io"
WORKLOADS = "workloads.scheduling.k8s.io"
COMPOSITES = "compositepodgroups.scheduling.k8s.io"
MAX_PARTS = 8
_INT32 = range(-(2**31), 2**31)
_NUMBERS = {
    "podgroups.scheduling.x-k8s.io": ("minMember", "scheduleTimeoutSeconds"),
    "podgroups.scheduling.run.ai": ("minMember", "minSubGroup"),
    "podgroups.scheduling.volcano.sh": ("minMember",),
}
_DEFAULTS = {"podgroups.scheduling.volcano.sh": {"queue": "default"}}  # texts


def definition(path: str, plural: str, kind: str) -> Object:
    """Return the CustomResourceDefinition of a kind, with as much of its schema as is checked here."""
    group, _, version = path.partition("/")
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    resource = f"{plural}.{group}"
    known = {name: {"type": "integer", "format": "int32"} for name in _NUMBERS[resource]}
    for name, value in _DEFAULTS.get(resource, {}).items():
        known[name] = {"type": "string", "default": value}
    spec = {"type": "object", "properties": known, "x-kubernetes-preserve-unknown-fields": True}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {"spec": spec, "status": status}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    served = {
        "name": version, "served": True, "storage": True, "schema": schema,
        "subresources": {"status": {}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def prune(served: Served, pod: Object) -> None:
    """Drop the fields of a pod whose feature is off."""
    if not {OF_1_36[0], OF_1_37[0], ALPHA_OF_1_37[0]} & {*served}:
        pod["spec"].pop("schedulingGroup", None)
    if OF_1_35[0] not in served:
        pod["spec"].pop("workloadRef", None)


def check(resource: str, obj: Object, before: Object | None = None) -> None:
    """Refuse what the schema, or the validation, of a kind refuses."""
    if resource in _NUMBERS and not (obj.get("kind") and obj.get("apiVersion")):
        raise ApiFailureError(400, "BadRequest", "Object 'Kind' is missing")  # of definitions
    spec = obj.get("spec") or {}
    for name, value in _DEFAULTS.get(resource, {}).items():
        spec.setdefault(name, value)
    for name in _NUMBERS.get(resource, ()):
        if name in spec and (type(spec[name]) is not int or spec[name] not in _INT32):
            raise _invalid(obj, f"spec.{name}", "must be of type integer")
    if resource in _CORE:
        _CORE[resource](obj, spec)
    if resource in _CORE and before is not None and _kept(spec) != _kept(before.get("spec") or {}):
        raise _invalid(obj, "spec", "field is immutable")


def _kept(spec: Object) -> Object:
    """Return a spec without what may be changed: how many must start at once, not whether any must."""
    policy = spec.get("schedulingPolicy") or {}
    return {**spec, "schedulingPolicy": sorted(policy)}


def check_patch(resource: str, how: str) -> None:
    """Refuse a strategic merge patch of what a definition defines: the server knows no keys of it."""
    if resource in _NUMBERS and how == STRATEGIC_PATCH:
        text = f"the body of the request was in an unknown format: {how}"
        raise ApiFailureError(415, "UnsupportedMediaType", text)


def reset_status(resource: str, obj: Object) -> None:
    """Drop a status that comes with a new object: it is written by itself."""
    if resource in (*_NUMBERS, CORE, COMPOSITES):
        obj.pop("status", None)


def _check_group(obj: Object, spec: Object) -> None:
    _check_policy(obj, spec.get("schedulingPolicy"), "spec.schedulingPolicy")


def _check_composite(obj: Object, spec: Object) -> None:
    _check_policy(obj, spec.get("schedulingPolicy"), "spec.schedulingPolicy", "minGroupCount")
    if not spec.get("workloadRef"):
        raise _invalid(obj, "spec.workloadRef", "Required value")


def _check_parts(obj: Object, spec: Object) -> None:
    parts = spec.get("podGroups") or []
    if not 1 <= len(parts) <= MAX_PARTS:
        raise _invalid(obj, "spec.podGroups", f"must have between 1 and {MAX_PARTS} items")
    for at, part in enumerate(parts):
        _check_policy(obj, part.get("policy"), f"spec.podGroups[{at}].policy")


def _check_policy(obj: Object, policy: Any, where: str, key: str = "minCount") -> None:
    if not isinstance(policy, dict) or len(policy) != 1 or not {"basic", "gang"} & {*policy}:
        raise _invalid(obj, where, "must specify exactly one of: `basic`, `gang`")
    least = (policy.get("gang") or {}).get(key) if "gang" in policy else 1
    if type(least) is not int or least <= 0:
        raise _invalid(obj, f"{where}.gang.{key}", "must be greater than 0")


def _invalid(obj: Object, where: str, why: str) -> ApiFailureError:
    name = obj.get("metadata", {}).get("name", "")
    text = f'PodGroup "{name}" is invalid: {where}: Invalid value: {why}'
    return ApiFailureError(422, "Invalid", text)


_CORE = {CORE: _check_group, COMPOSITES: _check_composite, WORKLOADS: _check_parts}
