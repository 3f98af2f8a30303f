"""JobSet, and Kubeflow's TrainJob, which is a JobSet made from a training runtime.

A JobSet's gang is all of its pods. A TrainJob runs ``numNodes`` nodes of its runtime's trainer: the
runtime is a document of the same submission, or one that Kubeflow ships, of which only the shape
matters here: one container, no requests of its own.
"""

from collections.abc import Mapping
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.apps import job_pods
from services.shim_adapter.translation.workloads.replicas import (
    Expansion,
    Replicas,
    Workload,
    inner,
    items,
    refuse_suspended,
    text,
    whole,
    with_minimum,
)

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
RUNTIME_KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
_SHIPPED = (
    "torch-distributed", "deepspeed-distributed", "mlx-distributed", "jax-distributed",
    "xgboost-distributed",
)  # fmt: skip
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER = "trainer"


def job_set(workload: Workload) -> Expansion:
    """Return the pods of a JobSet: every job of every replicated job."""
    _refuse_suspended(workload)
    return Expansion(_job_set(workload, workload.spec, "spec", 0))


def train_job(workload: Workload) -> Expansion:
    """Return the pods of a TrainJob."""
    _refuse_suspended(workload)
    runtime = _runtime(workload)
    trainer = inner(workload.spec, "trainer")
    policy = inner(runtime, "mlPolicy", "runtime")
    nodes = whole(trainer, "numNodes", whole(policy, "numNodes", 1, "runtime"), "spec.trainer")
    template = inner(runtime, "template", "runtime")
    spec = _overridden(inner(template, "spec", "runtime.template"), trainer)
    return Expansion(_job_set(workload, spec, "spec.trainer", nodes))


def _refuse_suspended(workload: Workload) -> None:
    """Refuse a suspended one, unless it waits for Kueue to admit it: that is done here."""
    if KUEUE_QUEUE not in (workload.metadata.get("labels") or {}):
        refuse_suspended(workload)


def _runtime(workload: Workload) -> Mapping[str, Any]:
    reference = mapping(workload.spec.get("runtimeRef"), "spec.runtimeRef")
    name = text(reference, "name", "spec.runtimeRef")
    known = workload.submission.runtimes.get(name)
    if known is not None:
        return known
    if name in _SHIPPED:
        job = {"template": {"spec": {"containers": [{"name": "node"}]}}}
        labels = {"labels": {_STEP: _TRAINER}}
        step = {"name": "node", "template": {"metadata": labels, "spec": job}}
        return {"template": {"spec": {"replicatedJobs": [step]}}}
    raise ManifestError(
        "spec.runtimeRef.name",
        f"the training runtime {name!r} is not part of the submission: submit it together with it",
    )


def _overridden(spec: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime's JobSet with the requests that the TrainJob states for its nodes."""
    wanted = inner(trainer, "resourcesPerNode", "spec.trainer")
    jobs = []
    for at, item in enumerate(items(spec, "replicatedJobs", "runtime")):
        job = mapping(item, f"runtime.replicatedJobs[{at}]")
        if wanted and _is_trainer(job):
            template = inner(inner(job, "template", "runtime"), "spec", "runtime")
            pod = inner(template, "template", "runtime")
            pod_spec = inner(pod, "spec", "runtime")
            first, *others = items(pod_spec, "containers", "runtime") or [{}]
            containers = [{**mapping(first, "runtime.containers[0]"), "resources": wanted}, *others]
            pod = {**pod, "spec": {**pod_spec, "containers": containers}}
            job = {
                **job,
                "template": {**job["template"], "spec": {**template, "template": pod}},
            }
        jobs.append(job)
    return {**spec, "replicatedJobs": jobs}


def _is_trainer(job: Mapping[str, Any]) -> bool:
    metadata = inner(inner(job, "template", "runtime"), "metadata", "runtime")
    return inner(metadata, "labels", "runtime.metadata").get(_STEP) == _TRAINER


def _job_set(
    workload: Workload, spec: Mapping[str, Any], where: str, trainers: int
) -> tuple[Replicas, ...]:
    """Return a JobSet's pods; ``trainers`` 0: as many as it says, else of its trainer's step."""
    replicas: list[Replicas] = []
    for at, item in enumerate(items(spec, "replicatedJobs", where)):
        place = f"{where}.replicatedJobs[{at}]"
        job = mapping(item, place)
        name = text(job, "name", place)
        if not name:
            raise ManifestError(f"{place}.name", "a name is needed")
        template = inner(inner(job, "template", place), "spec", f"{place}.template")
        count = trainers if trainers and _is_trainer(job) else job_pods(template, place)
        names = tuple(
            f"{workload.name}-{name}-{copy}-{pod}"
            for copy in range(whole(job, "replicas", 1, place))
            for pod in range(count)
        )
        pod_where = f"{place}.template.spec.template"
        pod_template = mapping(template.get("template"), pod_where)
        replicas.append(Replicas(name, names, pod_template, pod_where, slice_size=count))
    if not replicas:
        raise ManifestError(f"{where}.replicatedJobs", "at least one is needed")
    return with_minimum(replicas, None, where)
