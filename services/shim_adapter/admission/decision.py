"""The webhook's verdict on a request: allowed or not, and the patch of the object (pure).

Rule 1: not changed are pods of another scheduler, pods with a node, pods with the label
`app: yunikorn`, Muster's placeholders, and the pods of its own services.
Rule 2: in Muster's namespaces a pod of the default scheduler becomes Muster's. It gets an
application if it names none, the preemption policy of its priority class, and its user. A
workload's template gets the user only, because controllers make its pods. A workload that a
controller owns, or a system account writes, is not changed: its controller would see a difference
and make another.
Rule 3: the user of a pod is set by the user itself, or by one that may name others, and never
changes. This applies to every pod of Muster, also if nothing else of it is changed.
Rule 4: the decision is idempotent: for a patched object the patch is empty.

Source: docs/rules/configuration.md#admission.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.shim_adapter.admission.filters import Filters
from services.shim_adapter.admission.patch import Operation, pointer, put, put_into
from services.shim_adapter.translation.placeholders import PLACEHOLDER
from services.shim_adapter.translation.pods import (
    ALLOW_PREEMPTION,
    APP_ID,
    QUEUE,
    SCHEDULER_NAMES,
    TRUE_OR_FALSE,
    USER_INFO,
    PriorityClass,
    Reading,
    application_id_of,
)
from services.shim_adapter.translation.workloads.pod_groups import group_of
from shared.model.texts import load_json

_LEGACY = {APP_ID: "applicationId", QUEUE: "queue"}
_DEFAULT_SCHEDULERS = ("", "default-scheduler")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_TEMPLATES = {
    "Deployment": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
CHANGED = "user info annotation change is not allowed"


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a decision besides the request."""

    filters: Filters = field(default_factory=Filters)
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the request's namespace
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    own_namespace: str = ""  # of Muster's services, which it cannot schedule itself
    shim_adapter: str = ""  # the user that makes placeholders


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result; ``message`` is the reason of a refusal."""

    is_allowed: bool = True
    message: str = ""
    patch: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class _Person:
    name: str
    groups: tuple[str, ...]

    @property
    def info(self) -> str:
        """Return the user and groups as the text of a pod's annotation."""
        groups = {"groups": list(self.groups)} if self.groups else {}
        return json.dumps({"user": self.name, **groups}, separators=(",", ":"))


_ALLOWED = Verdict()


def decide(request: Mapping[str, Any], context: Context) -> Verdict:
    """Return the verdict on an AdmissionRequest. Raises ValueError if it is not a valid one."""
    kind = mapping(request.get("kind"), "request.kind").get("kind")
    operation = request.get("operation")
    if operation not in ("CREATE", "UPDATE") or _namespace(request) == context.own_namespace:
        return _ALLOWED
    if kind == "Pod" and operation == "UPDATE":
        return _pod_update(request, context)
    if kind == "Pod":
        return _pod(request, context)
    if kind in _TEMPLATES:
        return _workload(request, _TEMPLATES[str(kind)], context)
    return _ALLOWED


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """Return ``value`` if it is a map. Raises ValueError if not."""
    if not isinstance(value, dict):
        said = f"{where}: a map is expected, found {type(value).__name__}"
        raise ValueError(said)  # noqa: TRY004 - what was sent is wrong, not who calls
    return value


def optional(value: Any, where: str) -> Mapping[str, Any]:
    """Return ``value`` if it is a map, {} for None. Raises ValueError if it is neither."""
    return {} if value is None else mapping(value, where)


def _pod(request: Mapping[str, Any], context: Context) -> Verdict:
    pod = mapping(request.get("object"), "request.object")
    metadata, spec = _metadata(pod), optional(pod.get("spec"), "spec")
    labels, annotations = _texts(metadata, "labels"), _texts(metadata, "annotations")
    person = _person(request)
    is_ours = spec.get("schedulerName") in SCHEDULER_NAMES
    if (not is_ours and not _is_free(spec)) or spec.get("nodeName"):
        return _ALLOWED
    if _is_placeholder(annotations, person, context):
        return _ALLOWED
    namespace = _namespace(request)
    filters = context.filters
    is_skipped = (labels or {}).get("app") == "yunikorn"
    is_processed = not is_skipped and filters.processes(namespace, context.annotations)
    if not is_processed and not is_ours:
        return _ALLOWED
    refused = _refused(annotations, person, filters)
    if refused or not is_processed:
        return refused or _ALLOWED
    notes = (
        {} if filters.bypass_auth else {USER_INFO: (annotations or {}).get(USER_INFO, person.info)}
    )
    patch = [] if is_ours else [put("/spec/schedulerName", SCHEDULER_NAMES[0])]
    if filters.labels(namespace, context.annotations):
        grouped = group_of(metadata, spec) is not None
        wanted = _labels(labels or {}, annotations or {}, namespace, filters, is_grouped=grouped)
        patch += put_into("/metadata/labels", labels, wanted)
    if (annotations or {}).get(ALLOW_PREEMPTION) not in TRUE_OR_FALSE:
        known = context.classes.get(str(spec.get("priorityClassName") or ""), PriorityClass(0))
        notes[ALLOW_PREEMPTION] = "true" if known.lets_be_preempted({}) else "false"
    return Verdict(patch=(*patch, *put_into("/metadata/annotations", annotations, notes)))


def _is_free(spec: Mapping[str, Any]) -> bool:
    """Return whether a pod is for the default scheduler."""
    return (spec.get("schedulerName") or "") in _DEFAULT_SCHEDULERS


def _is_placeholder(
    annotations: Mapping[str, str] | None, person: _Person, context: Context
) -> bool:
    is_one = (annotations or {}).get(PLACEHOLDER) == "true"
    return is_one and bool(context.shim_adapter) and person.name == context.shim_adapter


def _pod_update(request: Mapping[str, Any], context: Context) -> Verdict:
    pod = mapping(request.get("object"), "request.object")
    old = mapping(request.get("oldObject"), "request.oldObject")
    spec = optional(pod.get("spec"), "spec")
    if spec.get("schedulerName") not in SCHEDULER_NAMES or context.filters.bypass_auth:
        return _ALLOWED
    was, now = (_texts(_metadata(item), "annotations") or {} for item in (old, pod))
    if was.get(USER_INFO) != now.get(USER_INFO):
        return Verdict(is_allowed=False, message=CHANGED)
    return _ALLOWED


def _workload(request: Mapping[str, Any], path: tuple[str, ...], context: Context) -> Verdict:
    filters = context.filters
    if filters.bypass_auth:
        return _ALLOWED
    template = _template(request.get("object"), path, "request.object")
    spec = optional(template.get("spec"), "spec")
    is_ours = spec.get("schedulerName") in SCHEDULER_NAMES
    is_processed = filters.processes(_namespace(request), context.annotations)
    if not is_ours and not (is_processed and _is_free(spec)):
        return _ALLOWED
    annotations = _texts(_metadata(template), "annotations")
    person = _person(request)
    said = (annotations or {}).get(USER_INFO)
    if request.get("operation") == "UPDATE":
        old = _template(request.get("oldObject"), path, "request.oldObject")
        was = (_texts(_metadata(old), "annotations") or {}).get(USER_INFO)
        if said == was:
            return _ALLOWED  # a template that had none keeps its pods: a new one would restart them
        wanted = was or person.info
    else:
        wanted = person.info
    if said is not None:
        return _refused(annotations, person, filters) or _ALLOWED
    if not is_processed or _is_made_by_a_controller(request, person, filters):
        return _ALLOWED
    where = pointer(*path, "metadata")
    if template.get("metadata") is None:
        return Verdict(patch=({"op": "add", "path": where,
                               "value": {"annotations": {USER_INFO: wanted}}},))  # fmt: skip
    return Verdict(patch=tuple(put_into(f"{where}/annotations", annotations, {USER_INFO: wanted})))


def _is_made_by_a_controller(request: Mapping[str, Any], person: _Person, filters: Filters) -> bool:
    """Return whether a workload has a controller as owner, or is written by a system account."""
    if filters.is_system(person.name):
        return True
    owners = _metadata(mapping(request.get("object"), "request.object")).get("ownerReferences")
    return isinstance(owners, list) and any(
        isinstance(owner, dict) and owner.get("controller") is True for owner in owners
    )


def _refused(
    annotations: Mapping[str, str] | None, person: _Person, filters: Filters
) -> Verdict | None:
    """Return the refusal of an annotation that the user may not set, or that is empty."""
    said = (annotations or {}).get(USER_INFO)
    if said is None or filters.bypass_auth:
        return None
    named = _named(said)
    if named == person:
        return None
    if not filters.may_name_others(person.name, person.groups):
        groups = ",".join(person.groups)
        message = f"user {person.name} with groups [{groups}] is not allowed to set user annotation"
        return Verdict(is_allowed=False, message=message)
    if named is None:
        message = (
            f'invalid user info annotation: expected {{"user":"…","groups":["…"]}} in {USER_INFO}'
        )
        return Verdict(is_allowed=False, message=message)
    return None


def _named(text: str) -> _Person | None:
    """Return the user in an annotation; None if it cannot be read."""
    try:
        info = {key.lower(): value for key, value in load_json(text).items()}
    except (ValueError, AttributeError):
        return None
    user, groups = info.get("user"), info.get("groups") or []
    if not isinstance(user, str) or not user or not _are_texts(groups):
        return None
    return _Person(user, tuple(groups))


def _labels(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    namespace: str,
    filters: Filters,
    *,
    is_grouped: bool,
) -> dict[str, str]:
    """Return the labels to add to a pod.

    None are added to the pods of a PodGroup: its gang is an application of its own.
    """
    wanted = {old: labels[new] for new, old in _LEGACY.items() if labels.get(new)}
    reading = Reading(is_unique=filters.generate_unique_app_id)
    nothing = application_id_of({}, {}, namespace, reading)
    found = application_id_of(dict(labels), dict(annotations), namespace, reading)
    if is_grouped or found != nothing:
        return wanted
    if _LABEL.fullmatch(nothing):  # a cut name may end in a dash: the shim adapter names it alike
        wanted |= {APP_ID: nothing, _LEGACY[APP_ID]: nothing}
    return wanted


def _person(request: Mapping[str, Any]) -> _Person:
    info = mapping(request.get("userInfo"), "request.userInfo")
    name, groups = info.get("username") or "", info.get("groups") or []
    if not isinstance(name, str) or not _are_texts(groups):
        raise ValueError("request.userInfo: a username and a list of groups are expected")
    return _Person(name, tuple(groups))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _namespace(request: Mapping[str, Any]) -> str:
    return str(request.get("namespace") or "default")


def _metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return optional(item.get("metadata"), "metadata")


def _texts(metadata: Mapping[str, Any], name: str) -> Mapping[str, str] | None:
    """Return labels or annotations; None if there are none. Raises ValueError."""
    found = metadata.get(name)
    if found is None:
        return None
    if not all(isinstance(value, str) for value in mapping(found, f"metadata.{name}").values()):
        raise ValueError(f"metadata.{name}: every value must be a text")
    return dict(found)


def _template(value: Any, path: tuple[str, ...], where: str) -> Mapping[str, Any]:
    found = mapping(value, where)
    for name in path:
        where = f"{where}.{name}"
        found = optional(found.get(name), where)
    return found
