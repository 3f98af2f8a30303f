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
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "scheduling.k8s.io/v1": {"priorityclasses": "PriorityClass"},
    "storage.k8s.io/v1": {"csinodes": "CSINode", "storageclasses": "StorageClass"},
}  # fmt: skip
_DEVICES = {
    "deviceclasses": "DeviceClass", "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate", "resourceslices": "ResourceSlice",
}  # fmt: skip
_SINCE: dict[int, Served] = {34: {"resource.k8s.io/v1": _DEVICES}}


def built_in(version: str) -> Served:
    """Return what a version serves by itself."""
    found = {path: dict(kinds) for path, kinds in _ALWAYS.items()}
    for since, more in _SINCE.items():
        if int(version.partition(".")[2]) >= since:
            found |= {path: dict(kinds) for path, kinds in more.items()}
    return found


def is_served(served: Served, match: re.Match[str]) -> bool:
    """Return whether the path of an object is one of the API."""
    path = f"{match['group']}/{match['version']}" if match["group"] else "v1"
    return match["plural"] in served.get(path, {})


def discovered(served: Served, path: str) -> Object:
    """Return which groups there are, or the resources of a group's version."""
    if path:
        if path not in served:
            raise ApiFailureError(
                404, "NotFound", "the server could not find the requested resource"
            )
        found = [{"name": p, "kind": k, "namespaced": True} for p, k in served[path].items()]
        return {"kind": "APIResourceList", "groupVersion": path, "resources": found}
    groups: dict[str, list[Object]] = {}
    for item in served:
        group, _, version = item.partition("/")
        if version:
            groups.setdefault(group, []).append({"groupVersion": item, "version": version})
    found = [{"name": name, "versions": versions} for name, versions in groups.items()]
    return {"kind": "APIGroupList", "groups": found}


def prune(served: Served, pod: Object) -> None:
    """Drop the fields of a pod that its version does not know, or has off."""
    if "resource.k8s.io/v1" not in served:
        pod["spec"].pop("resourceClaims", None)
