"""Kubernetes' own workloads: Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob.

None of them asks for a gang, except a Job with KAI's annotation for its minimum. In a simulated
cluster nothing is rolled out or replaced: all pods are there at once, and a CronJob runs once.
"""

from collections.abc import Mapping
from typing import Any

from services.shim_adapter.translation.constraints import parse_constraints
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import (
    Expansion,
    Replicas,
    Workload,
    inner,
    numbered,
    refuse_suspended,
    whole,
    with_minimum,
)
from shared.messages.constraints import Constraints, Taint
from shared.messages.selectors import is_tolerated, selects
from shared.model.numbers import parse_int64

BATCH_MINIMUM = "kai.scheduler/batch-min-member"
_TEMPLATE = "spec.template"
# What the DaemonSet controller has its pods tolerate.
_DAEMONS_TOLERATE = ("node.kubernetes.io/",)


def pod(workload: Workload) -> Expansion:
    """Return the pod itself."""
    return Expansion((Replicas("", (workload.name,), workload.body, ""),))


def replica_set(workload: Workload) -> Expansion:
    """Return the pods of a Deployment or a ReplicaSet."""
    count = whole(workload.spec, "replicas", 1)
    return _plain(workload, numbered(workload.name, count))


def stateful_set(workload: Workload) -> Expansion:
    """Return the pods of a StatefulSet, numbered from ``spec.ordinals.start``."""
    first = whole(inner(workload.spec, "ordinals"), "start", 0, "spec.ordinals")
    count = whole(workload.spec, "replicas", 1)
    return _plain(workload, tuple(f"{workload.name}-{at}" for at in range(first, first + count)))


def daemon_set(workload: Workload) -> Expansion:
    """Return one pod for every node that there is now and that the template matches."""
    template = mapping(workload.spec.get("template"), _TEMPLATE)
    spec = mapping(template.get("spec"), f"{_TEMPLATE}.spec")
    constraints = parse_constraints(spec, f"{_TEMPLATE}.spec", labels={})
    nodes = tuple(
        node.name
        for node in workload.submission.nodes
        if selects(constraints, node.name, node.labels) and _tolerated(constraints, node.taints)
    )
    if not nodes:
        raise ManifestError(_TEMPLATE, "no node of the cluster matches: it would have no pods")
    names = tuple(f"{workload.name}-{node}" for node in nodes)
    return Expansion((Replicas("", names, template, _TEMPLATE, required_nodes=nodes),))


def _tolerated(constraints: Constraints, taints: tuple[Taint, ...]) -> bool:
    return is_tolerated(
        constraints, tuple(taint for taint in taints if not taint.key.startswith(_DAEMONS_TOLERATE))
    )


def job(workload: Workload) -> Expansion:
    """Return the pods of a Job: as many as are to complete, at once.

    A parallelism below the completions is taken as the completions run in waves of one: each pod
    is its own, so they may all be asked for.
    """
    refuse_suspended(workload)
    return _job(workload, workload.spec, "spec", workload.metadata)


def cron_job(workload: Workload) -> Expansion:
    """Return the pods of one run of a CronJob."""
    refuse_suspended(workload)
    template = mapping(workload.spec.get("jobTemplate"), "spec.jobTemplate")
    spec = mapping(template.get("spec"), "spec.jobTemplate.spec")
    return _job(workload, spec, "spec.jobTemplate.spec", inner(template, "metadata"))


def job_pods(spec: Mapping[str, Any], where: str) -> int:
    """Return how many pods a Job's spec comes to; none while it is paused, with parallelism 0."""
    at_once = whole(spec, "parallelism", 1, where)
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        raise ManifestError(f"{where}.completions", "an Indexed Job needs a number")
    return whole(spec, "completions", at_once, where) if at_once else 0


def _job(
    workload: Workload, spec: Mapping[str, Any], where: str, metadata: Mapping[str, Any]
) -> Expansion:
    count = job_pods(spec, where)
    template = mapping(spec.get("template"), f"{where}.template")
    replicas = Replicas("batch", numbered(workload.name, count), template, f"{where}.template")
    stated = inner(metadata, "annotations", "metadata").get(BATCH_MINIMUM)
    if stated is None:
        return Expansion((replicas,))
    place = f"metadata.annotations[{BATCH_MINIMUM}]"
    minimum = parse_int64(stated) if isinstance(stated, str) else None
    if minimum is None or minimum < 0:
        raise ManifestError(place, f"a whole number as a text, found {stated!r}")
    return Expansion(with_minimum([replicas], minimum, place))


def _plain(workload: Workload, names: tuple[str, ...]) -> Expansion:
    template = mapping(workload.spec.get("template"), _TEMPLATE)
    return Expansion((Replicas("", names, template, _TEMPLATE),))
