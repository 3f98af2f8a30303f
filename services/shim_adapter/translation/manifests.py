"""From submitted documents to pods: Pod and batch/v1 Job; every other kind is refused by name.

A PriorityClass is taken in for the documents that come with it. Nothing is dropped silently: a
document is accepted whole or refused with its field and a sentence.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import MAX_NAME, mapping, translate_pod
from shared.messages.commands import ManifestDocument, PodSpec

MAX_JOB_PODS = 10_000
MAX_JOB_BYTES = 64 * 1024 * 1024
_LATER_KINDS = {
    "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "CronJob", "PyTorchJob", "TFJob",
    "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob", "SparkApplication", "RayCluster",
    "RayJob", "JobSet", "PodGroup",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TranslatedDocument:
    """A document and the pods that it describes."""

    document: ManifestDocument
    kind: str
    name: str
    pods: tuple[PodSpec, ...] = ()


@dataclass(slots=True)
class Translation:
    """What a submission comes to."""

    taken: list[TranslatedDocument] = field(default_factory=list)
    refused: list[tuple[ManifestDocument, ManifestError]] = field(default_factory=list)


def translate(documents: Iterable[ManifestDocument], default_run_ns: int) -> Translation:
    """Translate every document; priority classes first, so that their order does not matter."""
    result = Translation()
    bodies: list[tuple[ManifestDocument, dict[str, Any]]] = []
    for document in documents:
        try:
            bodies.append((document, mapping(json.loads(document.body), "")))
        except ManifestError as error:
            result.refused.append((document, error))
    priorities = _priority_classes(bodies)
    for document, body in bodies:
        try:
            result.taken.append(_document(document, body, priorities, default_run_ns))
        except ManifestError as error:
            result.refused.append((document, error))
    return result


def _priority_classes(bodies: list[tuple[ManifestDocument, dict[str, Any]]]) -> dict[str, int]:
    return {
        str((body.get("metadata") or {}).get("name")): body["value"]
        for _, body in bodies
        if body.get("kind") == "PriorityClass" and type(body.get("value")) is int
    }


def _document(
    document: ManifestDocument, body: dict[str, Any], priorities: dict[str, int], run_ns: int
) -> TranslatedDocument:
    kind = body.get("kind")
    if not isinstance(kind, str) or not kind:
        raise ManifestError("kind", "a document needs a kind; is this a whole manifest?")
    metadata = mapping(body.get("metadata") or {}, "metadata")
    name = _name(metadata)
    if kind == "Pod":
        priority = _class_priority(body, "", priorities)
        pods: tuple[PodSpec, ...] = (
            translate_pod(body, where="", name=name, default_run_ns=run_ns, priority=priority),
        )
    elif kind == "Job":
        pods = _job(body, name, priorities, run_ns)
    elif kind == "PriorityClass":
        if type(body.get("value")) is not int:
            raise ManifestError("value", "a PriorityClass needs a whole number")
        pods = ()
    elif kind in _LATER_KINDS:
        raise ManifestError("kind", f"not supported yet: {kind}; submit its pods or a Job instead")
    else:
        raise ManifestError("kind", f"{kind} is not a workload that Muster runs")
    return TranslatedDocument(document, kind, name, pods)


def _name(metadata: dict[str, Any]) -> str:
    name = metadata.get("name") or metadata.get("generateName")
    if not isinstance(name, str) or not name:
        raise ManifestError("metadata.name", "a name or generateName is needed")
    if len(name) > MAX_NAME:
        raise ManifestError("metadata.name", f"{len(name)} characters, at most {MAX_NAME}")
    return name


def _class_priority(body: dict[str, Any], where: str, priorities: dict[str, int]) -> int | None:
    spec = mapping(body.get("spec"), f"{where}spec")
    if spec.get("priority") is not None:
        return None
    return priorities.get(str(spec.get("priorityClassName")))


def _job(
    body: dict[str, Any], name: str, priorities: dict[str, int], run_ns: int
) -> tuple[PodSpec, ...]:
    """Return the pods of a Job: as many as are to complete, at once.

    A parallelism below the completions is taken as the completions run in waves of one: each pod
    is its own, so they may all be asked for.
    """
    spec = mapping(body.get("spec"), "spec")
    count = _whole(spec, "completions", _whole(spec, "parallelism", 1))
    if count > MAX_JOB_PODS:
        raise ManifestError("spec.completions", f"{count} pods, at most {MAX_JOB_PODS}")
    template = mapping(spec.get("template"), "spec.template")
    if count * len(json.dumps(template)) > MAX_JOB_BYTES:
        raise ManifestError(
            "spec.template", f"{count} pods of this size exceed {MAX_JOB_BYTES} bytes"
        )
    where = "spec.template."
    merged = dict(template)
    metadata = mapping(template.get("metadata") or {}, f"{where}metadata")
    namespace = (body.get("metadata") or {}).get("namespace")
    if namespace and "namespace" not in metadata:
        merged["metadata"] = {**metadata, "namespace": namespace}
    priority = _class_priority(template, where, priorities)
    return tuple(
        translate_pod(
            merged, where=where, name=f"{name}-{at}", default_run_ns=run_ns, priority=priority
        )
        for at in range(count)
    )


def _whole(spec: dict[str, Any], key: str, default: int) -> int:
    value = spec.get(key)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise ManifestError(f"spec.{key}", f"a whole number of 0 or more, found {value!r}")
    return value
