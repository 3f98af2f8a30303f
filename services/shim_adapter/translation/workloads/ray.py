"""RayCluster and RayJob: a head, groups of workers, and for a job the pod that submits it.

The gang is the head and the fewest workers of every group (``minReplicas``, else ``replicas``),
each worker of ``numOfHosts`` pods. The submitter is no member: it comes when the cluster is there.
"""

from collections.abc import Mapping
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import (
    Expansion,
    Replicas,
    Workload,
    inner,
    items,
    numbered,
    refuse_suspended,
    text,
    whole,
)

_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}}  # the operator's own
_MODES = ("", "K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")


def ray_cluster(workload: Workload) -> Expansion:
    """Return the pods of a RayCluster."""
    refuse_suspended(workload)
    return Expansion(tuple(_cluster(workload.name, workload.spec, "spec")))


def ray_job(workload: Workload) -> Expansion:
    """Return the pods of a RayJob: those of its cluster and, as a Job, its submitter."""
    refuse_suspended(workload)
    if workload.spec.get("clusterSelector"):
        raise ManifestError(
            "spec.clusterSelector", "not supported: a RayJob on a cluster that runs already"
        )
    where = "spec.rayClusterSpec"
    cluster = mapping(workload.spec.get("rayClusterSpec"), where)
    replicas = _cluster(f"{workload.name}-raycluster", cluster, where)
    mode = text(workload.spec, "submissionMode")
    if mode not in _MODES:
        raise ManifestError("spec.submissionMode", f"one of {', '.join(_MODES[1:])}")
    if mode in ("", "K8sJobMode"):
        head = inner(replicas[0].template, "spec", where)
        template = inner(workload.spec, "submitterPodTemplate") or {
            "spec": {
                "schedulerName": head.get("schedulerName"),
                "containers": [{"name": "ray-job-submitter", "resources": _SUBMITTER}],
            }
        }
        place = "spec.submitterPodTemplate"
        replicas.append(Replicas("submitter", (f"{workload.name}-submitter",), template, place))
    return Expansion(tuple(replicas))


def _cluster(name: str, spec: Mapping[str, Any], where: str) -> list[Replicas]:
    head = mapping(spec.get("headGroupSpec"), f"{where}.headGroupSpec")
    place = f"{where}.headGroupSpec.template"
    template = mapping(head.get("template"), place)
    replicas = [Replicas("headgroup", (f"{name}-head",), template, place, 1)]
    for at, item in enumerate(items(spec, "workerGroupSpecs", where)):
        replicas.append(_workers(name, item, f"{where}.workerGroupSpecs[{at}]"))
    groups = [item.group for item in replicas]
    if len(set(groups)) != len(groups):
        raise ManifestError(f"{where}.workerGroupSpecs", "a group name is used twice")
    return replicas


def _workers(name: str, value: Any, where: str) -> Replicas:
    spec = mapping(value, where)
    group = text(spec, "groupName", where)
    if not group:
        raise ManifestError(f"{where}.groupName", "a name is needed")
    hosts = whole(spec, "numOfHosts", 1, where)
    fewest = whole(spec, "minReplicas", 0, where)
    count = max(fewest, whole(spec, "replicas", fewest, where))
    least = whole(spec, "minReplicas", count, where)
    return Replicas(
        group=group,
        names=numbered(f"{name}-{group}-worker", count * hosts),
        template=mapping(spec.get("template"), f"{where}.template"),
        where=f"{where}.template",
        minimum=least * hosts,
        rank=1,
    )
