"""Bodies of requests to the API server: bindings, placeholders, conditions, evictions, events.

Pure: no I/O. Source: docs/rules/gangs.md#placeholder-pods and
docs/rules/pods.md#events-and-conditions, and the Kubernetes API of each object.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.shim_adapter.records import PodRecord
from services.shim_adapter.translation.pods import APP_ID, QUEUE
from services.shim_adapter.translation.task_groups import TASK_GROUPS, where_of_group
from services.shim_adapter.translation.workloads.pod_groups import POD_GROUP
from shared.messages.commands import PodSpec
from shared.model.gpus import GPU_DEVICES, GPU_SHARE, text_of
from shared.model.resources import PODS, VCORE

MAX_NOTE = 1024  # bytes
_NAME_PART = 40
COMPONENT = "muster.io/scheduler"


@dataclass(frozen=True, slots=True)
class PlaceholderOptions:
    """Settings of placeholder pods.

    Source: docs/rules/configuration.md#service-keys: service.placeholder*.
    """

    image: str = "registry.k8s.io/pause:3.7"
    run_as_user: int | None = None
    run_as_group: int | None = None
    fs_group: int | None = None
    scheduler_name: str = "yunikorn"


@dataclass(frozen=True, slots=True)
class Originator:
    """The first real pod of an application, which owns its placeholders."""

    name: str
    uid: str


def binding(pod: PodRecord, node: str) -> dict[str, Any]:
    """Return the body of the binding subresource; the uid excludes a later pod of the same name.

    The API server copies its annotations to the pod, to be read after a restart: for a member of a
    PodGroup's gang its application and queue, because the PodGroup may be gone by then, and the
    assigned GPU devices.
    """
    metadata: dict[str, Any] = {
        "name": pod.spec.name,
        "namespace": pod.spec.namespace,
        "uid": pod.uid,
    }
    annotations = {}
    if POD_GROUP in pod.spec.annotations and not pod.spec.placeholder:
        annotations[APP_ID] = pod.spec.application_id
        if pod.spec.queue_name:
            annotations[QUEUE] = pod.spec.queue_name
    if pod.devices:
        annotations[GPU_DEVICES] = text_of(pod.devices)
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def deletion(uid: str, *, grace_seconds: int | None = None) -> dict[str, Any]:
    """Return the options of a deletion that excludes later pods of the same name."""
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options


def eviction(pod: PodRecord) -> dict[str, Any]:
    """Return the body of the eviction subresource, which respects disruption budgets."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.spec.name, "namespace": pod.spec.namespace},
        "deleteOptions": deletion(pod.uid),
    }


def failed_status(uid: str, reason: str, message: str) -> dict[str, Any]:
    """Return the status of a pod that will never be scheduled."""
    status = {"phase": "Failed", "reason": reason, "message": message}
    return {"metadata": {"uid": uid}, "status": status}


def not_scheduled(
    uid: str, reason: str, message: str, now: str, *, generation: int = 0
) -> dict[str, Any]:
    """Return the condition PodScheduled=False, which tells autoscalers and users the reason.

    ``generation`` is that of the pod; 0 for an API server that does not support it.
    """
    body = _condition(uid, "PodScheduled", is_so=False, reason=reason, message=message, now=now)
    if generation:
        body["status"]["conditions"][0]["observedGeneration"] = generation
    return body


def nominated(uid: str, node: str) -> dict[str, Any]:
    """Return the status with a pod's nominated node; "" clears it."""
    return {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}


def preempted(uid: str, message: str, now: str, *, is_so: bool = True) -> dict[str, Any]:
    """Return the condition DisruptionTarget with the reason why a victim is evicted, or is not."""
    reason = "PreemptionByScheduler" if is_so else "EvictionRefused"
    return _condition(uid, "DisruptionTarget", is_so=is_so, reason=reason, message=message, now=now)


def _condition(
    uid: str, kind: str, *, is_so: bool, reason: str, message: str, now: str
) -> dict[str, Any]:
    """Return a condition with its time, which controllers need to judge its age."""
    condition = {
        "type": kind,
        "status": str(is_so),
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}


def event(
    pod: PodRecord,
    reason: str,
    note: str,
    *,
    instance: str,
    now: str,
    is_warning: bool = False,
    action: str = "",
) -> dict[str, Any]:
    """Return an event about a pod (events.k8s.io/v1)."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": _start_of_name(pod), "namespace": pod.spec.namespace},
        "eventTime": now,
        "reportingController": COMPONENT,
        "reportingInstance": instance[:128],
        "action": action or reason,
        "reason": reason,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.spec.name,
            "namespace": pod.spec.namespace,
            "uid": pod.uid,
        },
        "note": _shortened(note),
        "type": "Warning" if is_warning else "Normal",
    }


def _start_of_name(pod: PodRecord) -> str:
    """Return the prefix of an event's name: no dot may precede a dash."""
    return pod.spec.name[:_NAME_PART].rstrip(".-") + "-"


def _shortened(note: str) -> str:
    """Cut a note to MAX_NOTE bytes, between characters."""
    written = note.encode(errors="replace")
    if len(written) <= MAX_NOTE:
        return written.decode()
    return written[: MAX_NOTE - 3].decode(errors="ignore") + "..."


# --- placeholders -------------------------------------------------------------------------------


def placeholder(
    spec: PodSpec,
    originator: Originator | None,
    pull_secrets: tuple[str, ...],
    options: PlaceholderOptions,
) -> dict[str, Any]:
    """Return a placeholder pod (docs/rules/gangs.md#placeholder-pods; cases K-02, K-04)."""
    pod_spec: dict[str, Any] = {
        "schedulerName": options.scheduler_name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "hostNetwork": False,
        "securityContext": _pod_security(options),
        "containers": [_container(spec, options)],
        **_from_group(spec),
    }
    if pull_secrets:
        pod_spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    if spec.priority_class:
        pod_spec["priorityClassName"] = spec.priority_class
    metadata: dict[str, Any] = {
        "name": spec.name,
        "namespace": spec.namespace,
        "labels": dict(spec.labels),
        "annotations": dict(spec.annotations),
    }
    if originator is not None:
        metadata["ownerReferences"] = [_owner(originator)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def _owner(originator: Originator) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": originator.name,
        "uid": originator.uid,
        "controller": False,
        "blockOwnerDeletion": True,
    }


def _pod_security(options: PlaceholderOptions) -> dict[str, Any]:
    stated = {
        "runAsUser": options.run_as_user,
        "runAsGroup": options.run_as_group,
        "fsGroup": options.fs_group,
    }
    return {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **{key: value for key, value in stated.items() if value is not None},
    }


def _container(spec: PodSpec, options: PlaceholderOptions) -> dict[str, Any]:
    amounts = quantities(spec.resource)
    return {
        "name": "pause",
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def quantities(resource: Mapping[str, int]) -> dict[str, str]:
    """Return a resource as Kubernetes quantities, without ``pods``.

    GPU shares are no Kubernetes resource: they are in annotations.
    """
    return {
        "cpu" if name == VCORE else name: f"{value}m" if name == VCORE else str(value)
        for name, value in resource.items()
        if name not in (PODS, GPU_SHARE)
    }


def _from_group(spec: PodSpec) -> dict[str, Any]:
    """Return the scheduling constraints of a task group's placeholders, as in the annotation."""
    text = spec.annotations.get(TASK_GROUPS, "")
    try:
        groups = json.loads(text) if text else []
    except ValueError:
        return {}
    for group in groups if isinstance(groups, list) else []:
        fields = {str(key).lower(): value for key, value in group.items()}
        if fields.get("name") == spec.task_group_name:
            return {key: value for key, value in where_of_group(group).items() if value}
    return {}
