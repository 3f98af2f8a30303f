"""The versions of Kubernetes that the double can be: the oldest and the newest that are supported.

As their API references have it: what is served without a feature gate or flag of its own, of the kinds
that we and the tests use, and which fields of pods are dropped because their feature is off.
"""

import re

from services.shim_adapter.backends.kubernetes.reflector import OLDEST_VERSION
from tests.kubernetes.store import ApiFailureError, Object

OLDEST, NEWEST = OLDEST_VERSION, "1.37"
Served = dict[str, dict[str, str]]  # kinds by plural, by group and version ("v1": the core's)

_ALWAYS: Served = {
    "v1": {
        "configmaps": "ConfigMap", "events": "Event", "namespaces": "Namespace", "nodes": "Node",
        "persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume",
        "pods": "Pod", "resourcequotas": "ResourceQuota", "secrets": "Secret",
        "serviceaccounts": "ServiceAccount", "services": "Service",
    },
    "admissionregistration.k8s.io/v1": {
        "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
        "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
    },
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": "CustomResourceDefinition"},
    "apps/v1": {
        "daemonsets": "DaemonSet", "deployments": "Deployment", "replicasets": "ReplicaSet",
        "statefulsets": "StatefulSet",
    },
    "batch/v1": {"cronjobs": "CronJob", "jobs": "Job"},
    "coordination.k8s.io/v1": {"leases": "Lease"},
    "events.k8s.io/v1": {"events": "Event"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "rbac.authorization.k8s.io/v1": {
        "clusterrolebindings": "ClusterRoleBinding", "clusterroles": "ClusterRole",
        "rolebindings": "RoleBinding", "roles": "Role",
    },
    "scheduling.k8s.io/v1": {"priorityclasses": "PriorityClass"},
    "storage.k8s.io/v1": {"csinodes": "CSINode", "storageclasses": "StorageClass"},
}  # fmt: skip
_DEVICES = {
    "deviceclasses": "DeviceClass", "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate", "resourceslices": "ResourceSlice",
}  # fmt: skip
_CLUSTER_WIDE = {
    "clusterrolebindings", "clusterroles", "csinodes", "customresourcedefinitions", "deviceclasses",
    "devicetaintrules", "hypernodes", "topologies",
    "mutatingwebhookconfigurations", "namespaces", "nodes", "persistentvolumes", "priorityclasses",
    "resourceslices", "storageclasses", "validatingwebhookconfigurations",
}  # fmt: skip
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
POD_GENERATION = 34  # the same of generations of pods
IN_PLACE_RESIZE = 33  # the minor version since which its feature is on by default
_SINCE: dict[int, Served] = {
    34: {"resource.k8s.io/v1": _DEVICES},
    37: {"resource.k8s.io/v1": {**_DEVICES, "devicetaintrules": "DeviceTaintRule"}},
}


def minor_of(version: str) -> int:
    """Return the minor version of one like 1.27."""
    return int(version.partition(".")[2])


def built_in(version: str) -> Served:
    """Return what a version serves by itself."""
    found = {path: dict(kinds) for path, kinds in _ALWAYS.items()}
    for since, more in _SINCE.items():
        if minor_of(version) >= since:
            found |= {path: dict(kinds) for path, kinds in more.items()}
    return found


def is_served(served: Served, match: re.Match[str]) -> bool:
    """Return whether the path of an object is one of the API."""
    path = f"{match['group']}/{match['version']}" if match["group"] else "v1"
    return match["plural"] in served.get(path, {})


def is_cluster_wide(plural: str) -> bool:
    """Return whether objects of a kind are in no namespace."""
    return plural in _CLUSTER_WIDE


def kind_of(served: Served, resource: str) -> Object:
    """Return the kind of a resource and its version: the first that is served of the group."""
    plural, _, group = resource.partition(".")
    for path, kinds in served.items():
        if path.rpartition("/")[0] == group and plural in kinds:
            return {"kind": kinds[plural], "apiVersion": path}
    raise AssertionError(resource)


def discovered(served: Served, path: str) -> Object:
    """Return which versions or groups there are (`api`, `apis`), or the kinds of a version."""
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(served)}
    name = path.partition("/")[2]
    if name not in served:
        raise ApiFailureError(404, "NotFound", "the server could not find the requested resource")
    found = [
        {
            "name": plural, "singularName": kind.lower(), "kind": kind, "verbs": _VERBS,
            "namespaced": not is_cluster_wide(plural),
        }
        for plural, kind in served[name].items()
    ]  # fmt: skip
    return {
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": found,
    }  # fmt: skip


def _groups(served: Served) -> list[Object]:
    groups: dict[str, list[Object]] = {}
    for item in served:
        group, _, version = item.partition("/")
        if version:
            groups.setdefault(group, []).append({"groupVersion": item, "version": version})
    return [
        {"name": name, "versions": versions, "preferredVersion": versions[0]}
        for name, versions in groups.items()
    ]


def prune(served: Served, pod: Object) -> None:
    """Drop the fields of a pod that its version does not know, or has off."""
    if "resource.k8s.io/v1" not in served:
        pod["spec"].pop("resourceClaims", None)


def prune_status(version: str, status: Object) -> None:
    """Drop the fields of a pod's status whose feature its version has off."""
    if minor_of(version) < POD_GENERATION:
        for condition in status.get("conditions") or ():
            condition.pop("observedGeneration", None)
    if minor_of(version) < IN_PLACE_RESIZE:
        for container in status.get("containerStatuses") or ():
            container.pop("allocatedResources", None)
            container.pop("resources", None)
