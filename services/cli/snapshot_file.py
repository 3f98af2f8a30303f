"""Reads a cluster from one file: `muster snapshot`'s, or what kubectl prints of a real one.

    kubectl get nodes,pods,configmaps -A -o yaml

Nodes, a ConfigMap with queues.yaml, and pods. A pod with a node is put there; placeholders and
pods that have ended are left out, and so are documents of other kinds. Pods of other schedulers
count on their node.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from services.api.web.documents import DocumentsError, read_documents
from services.cli.files import text_of
from services.cli.simulated_nodes import NodesError, node_of_document
from services.shim_adapter.queue_file import QueueFile, queue_file
from services.shim_adapter.records import NodeRecord
from services.shim_adapter.translation.manifests import translate
from services.shim_adapter.translation.pods import SCHEDULER_NAMES
from shared.messages.commands import ManifestDocument, PlaceForeignPods, PodSpec, SubmitManifests
from shared.queueconfig import QueueConfigError

_ENDED = ("Succeeded", "Failed")
_PLACEHOLDER = "yunikorn.apache.org/placeholder"
_OF_A_GANG = ("yunikorn.apache.org/task-groups", "yunikorn.apache.org/task-group-name")
_WITH_PODS = ("Namespace", "PodGroup", "PriorityClass")


class SnapshotError(ValueError):
    """A file that holds no cluster; the message says which, where and why."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster: its nodes, its queues with the settings beside them, and its pods."""

    nodes: tuple[NodeRecord, ...]
    config: QueueFile
    documents: tuple[ManifestDocument, ...] = ()
    foreign: Mapping[str, tuple[PodSpec, ...]] = field(default_factory=dict)

    def commands(self) -> list[SubmitManifests | PlaceForeignPods]:
        """Return what puts the pods where they are; a pod of ours runs until it is deleted."""
        placed: list[SubmitManifests | PlaceForeignPods] = [
            PlaceForeignPods(node, pods) for node, pods in self.foreign.items()
        ]
        return [*placed, SubmitManifests(self.documents, 0)] if self.documents else placed


def read_snapshot(file: Path) -> Snapshot:
    """Return the cluster in a file. Raises SnapshotError, OSError."""
    try:
        text = text_of(file)
        documents = read_documents(text.encode(), str(file))
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{file}: not UTF-8: {error}") from error
    except DocumentsError as error:
        raise SnapshotError(f"{file}: {error.where}{error}") from error
    bodies = [(document, json.loads(document.body)) for document in documents]
    try:
        nodes = [
            node_of_document(f"{file}: document {document.index}", body)
            for document, body in bodies
            if body.get("kind") == "Node"
        ]
        has_config = any(body.get("kind") == "ConfigMap" for _, body in bodies)
        config = queue_file(text) if has_config else QueueFile("")
    except (NodesError, QueueConfigError) as error:
        raise SnapshotError(f"{file}: {error}".replace(f"{file}: {file}: ", f"{file}: ")) from error
    if not nodes:
        raise SnapshotError(f"{file}: no Node in it: `muster snapshot` and kubectl write them")
    pods, foreign = _pods(bodies)
    return Snapshot(tuple(nodes), config, tuple(pods), foreign)


def _pods(
    bodies: list[tuple[ManifestDocument, dict[str, Any]]],
) -> tuple[list[ManifestDocument], dict[str, tuple[PodSpec, ...]]]:
    ours: list[ManifestDocument] = []
    foreign: dict[str, tuple[PodSpec, ...]] = {}
    for document, body in bodies:
        if body.get("kind") in _WITH_PODS:
            ours.append(document)
        if body.get("kind") != "Pod" or _is_left_out(body):
            continue
        spec = body.get("spec") or {}
        node = spec.get("nodeName")
        if spec.get("schedulerName") in SCHEDULER_NAMES:
            ours.append(replace(document, body=json.dumps(_pinned(body, node) if node else body)))
        elif node:
            foreign[node] = (*foreign.get(node, ()), *_foreign(document, body))
    return ours, foreign


def _is_left_out(body: dict[str, Any]) -> bool:
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    ended = (body.get("status") or {}).get("phase") in _ENDED
    return ended or annotations.get(_PLACEHOLDER) == "true"


def _pinned(body: dict[str, Any], node: str) -> dict[str, Any]:
    """Return a pod that may be on its node only; its gang has started, and is none any more."""
    metadata = dict(body.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    for name in _OF_A_GANG:
        annotations.pop(name, None)
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = {**_unplaced(body), "affinity": affinity}
    return {**body, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def _unplaced(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body["spec"].items() if key != "nodeName"}


def _foreign(document: ManifestDocument, body: dict[str, Any]) -> tuple[PodSpec, ...]:
    """Return a pod of another scheduler by what it takes; one that cannot be read takes nothing."""
    spec = {**_unplaced(body), "schedulerName": SCHEDULER_NAMES[0]}
    told = replace(document, body=json.dumps({**body, "spec": spec}))
    taken = translate([told], 0).taken
    return tuple(
        PodSpec(pod.name, "", pod.resource, namespace=pod.namespace, foreign="default")
        for item in taken
        for pod in item.pods
    )
