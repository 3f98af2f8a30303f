"""Kubeflow's training operator: PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob.

A job is a map of roles, each with replicas and a template. Its gang is all of them, unless
``runPolicy.schedulingPolicy.minAvailable`` says how many, or an elastic policy how few workers will
do; the leader's role counts first.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import (
    Expansion,
    Replicas,
    Workload,
    inner,
    numbered,
    text,
    whole,
    with_minimum,
)

_LEADERS = ("master", "chief", "launcher")
_MINIMUM = "spec.runPolicy.schedulingPolicy.minAvailable"


def pytorch_job(workload: Workload) -> Expansion:
    """Return the pods of a PyTorchJob; an elastic one starts with ``minReplicas`` workers."""
    return _job(workload, "pytorchReplicaSpecs", ("Master", "Worker"))


def tf_job(workload: Workload) -> Expansion:
    """Return the pods of a TFJob."""
    roles = ("Chief", "Master", "PS", "Worker", "Evaluator")
    return _job(workload, "tfReplicaSpecs", roles)


def mpi_job(workload: Workload) -> Expansion:
    """Return the pods of an MPIJob: a launcher and its workers."""
    return _job(workload, "mpiReplicaSpecs", ("Launcher", "Worker"))


def xgboost_job(workload: Workload) -> Expansion:
    """Return the pods of an XGBoostJob."""
    return _job(workload, "xgbReplicaSpecs", ("Master", "Worker"))


def paddle_job(workload: Workload) -> Expansion:
    """Return the pods of a PaddleJob."""
    return _job(workload, "paddleReplicaSpecs", ("Master", "Worker"))


def jax_job(workload: Workload) -> Expansion:
    """Return the pods of a JAXJob."""
    return _job(workload, "jaxReplicaSpecs", ("Worker",))


def _job(workload: Workload, key: str, roles: tuple[str, ...]) -> Expansion:
    spec = workload.spec
    policy = inner(spec, "runPolicy")
    if policy.get("suspend") is True:
        raise ManifestError("spec.runPolicy.suspend", "it is suspended: no pods are created")
    specs = mapping(spec.get(key), f"spec.{key}")
    unknown = [role for role in specs if role not in roles]
    if unknown or not specs:
        found = unknown[0] if unknown else "none"
        raise ManifestError(f"spec.{key}", f"roles are {', '.join(roles)}; found {found}")
    replicas = [_role(workload, role, specs[role], f"spec.{key}.{role}") for role in specs]
    scheduling = inner(policy, "schedulingPolicy", "spec.runPolicy")
    stated = whole(scheduling, "minAvailable", 0, "spec.runPolicy.schedulingPolicy")
    gang = with_minimum(replicas, stated or None, _MINIMUM)
    if not stated:
        gang = tuple(_elastic(spec, item) for item in gang)
    return Expansion(gang, queue=text(scheduling, "queue", "spec.runPolicy.schedulingPolicy"))


def _role(workload: Workload, role: str, value: Any, where: str) -> Replicas:
    spec = mapping(value, where)
    name = role.lower()
    return Replicas(
        group=name,
        names=numbered(f"{workload.name}-{name}", whole(spec, "replicas", 1, where)),
        template=mapping(spec.get("template"), f"{where}.template"),
        where=f"{where}.template",
        rank=0 if name in _LEADERS else 1,
    )


def _elastic(spec: Mapping[str, Any], replicas: Replicas) -> Replicas:
    policy = inner(spec, "elasticPolicy")
    if not policy or replicas.group != "worker":
        return replicas
    fewest = whole(policy, "minReplicas", 1, "spec.elasticPolicy")
    return replace(replicas, minimum=min(fewest, len(replicas.names)))
