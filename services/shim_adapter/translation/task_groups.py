"""The gang annotations: task groups and scheduling policy parameters.

A task-groups value that does not hold does not fail the pod: the application goes on without a
gang, and an event says why (docs/rules/gangs.md#task-groups; cases K-07, K-08).
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from services.shim_adapter.translation.bounds import (
    MAX_GANG_MEMBERS,
    bounded_seconds,
    check_group,
)
from services.shim_adapter.translation.constraints import parse_constraints
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.gpu_shares import over_devices, with_share
from services.shim_adapter.translation.topology import topology_of
from shared.messages.commands import TaskGroupSpec
from shared.messages.constraints import Constraints
from shared.model.names import JOB
from shared.model.numbers import parse_int64
from shared.model.quantity import QuantityError, parse_pod_quantity
from shared.model.resources import (
    PODS,
    VCORE,
    Resource,
    add_into,
    multiply,
    overflows,
)
from shared.model.texts import JsonError, load_json

TASK_GROUPS = "yunikorn.apache.org/task-groups"
TASK_GROUP_NAME = "yunikorn.apache.org/task-group-name"
POLICY_PARAMETERS = "yunikorn.apache.org/schedulingPolicyParameters"
_STRUCTURES = ("tolerations", "affinity", "topologySpreadConstraints")
WHERE = ("nodeSelector", *_STRUCTURES)  # of a task group
_SPELLING = {
    key.lower(): key
    for key in (
        *("key", "operator", "value", "values", "effect", "tolerationSeconds"),
        *("nodeAffinity", "podAffinity", "podAntiAffinity", "nodeSelectorTerms"),
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
        *("matchExpressions", "matchFields", "matchLabels", "weight", "preference"),
        *("podAffinityTerm", "labelSelector", "namespaceSelector", "namespaces", "topologyKey"),
        *("matchLabelKeys", "mismatchLabelKeys", "maxSkew", "minDomains", "whenUnsatisfiable"),
        *("nodeAffinityPolicy", "nodeTaintsPolicy"),
    )
}
_DEEPEST = 12  # maps and lists in one another that have keys of ours
MAX_MEMBERS = 2**31 - 1
MAX_TASK_GROUPS = 1_000
_TIMEOUT = "placeholderTimeoutInSeconds"
_STYLE, _STYLES = "gangSchedulingStyle", ("Soft", "Hard")
_SHOWN = 40  # characters of what is not read


class TaskGroupsError(ValueError):
    """A task-groups annotation does not hold; the message says which rule it breaks."""


@lru_cache(maxsize=256)  # all pods of an application carry the same text
def task_groups_of(annotation: str) -> tuple[TaskGroupSpec, ...]:
    """Return the task groups of an annotation that are not too large. Raises TaskGroupsError."""
    groups = parse_task_groups(annotation)
    check_gang(groups)
    return groups


def parse_task_groups(annotation: str) -> tuple[TaskGroupSpec, ...]:
    """Return the task groups of an annotation; an empty one has none. Raises TaskGroupsError."""
    if not annotation.strip():
        return ()
    try:
        value = load_json(annotation)
    except JsonError as error:
        raise TaskGroupsError(f"not JSON: {error}") from error
    if not isinstance(value, list):
        raise TaskGroupsError(f"a list was expected, found {type(value).__name__}")
    if len(value) > MAX_TASK_GROUPS:
        raise TaskGroupsError(f"{len(value)} task groups, at most {MAX_TASK_GROUPS}")
    groups = tuple(_task_group(item, annotation) for item in value)
    names = [group.name for group in groups]
    if len(set(names)) != len(names):
        raise TaskGroupsError(f"a task group name is used twice: {names}")
    placeholder_ask(groups)
    return groups


def check_gang(groups: tuple[TaskGroupSpec, ...]) -> None:
    """Refuse groups that hold, and are too large for us all the same. Raises TaskGroupsError."""
    placeholder_ask(groups)
    members = sum(group.min_member for group in groups)
    if members > MAX_GANG_MEMBERS:
        raise TaskGroupsError(
            f"{members} members in all, placeholders are created for at most {MAX_GANG_MEMBERS}"
        )
    for group in groups:
        try:
            check_group(group)
        except ManifestError as error:
            raise TaskGroupsError(str(error)) from error


def placeholder_ask(groups: tuple[TaskGroupSpec, ...]) -> Resource:
    """Return what all members of all groups need together, one pod each.

    Raises TaskGroupsError when the sum does not fit 64 bits.
    """
    total: Resource = {}
    for group in groups:
        add_into(total, multiply({**group.min_resource, PODS: 1}, group.min_member))
        too_large = overflows(total)
        if too_large is not None:
            raise TaskGroupsError(
                f"the sum over all members overflows for resource {_quoted(too_large)} "
                f"in taskGroup {_quoted(group.name)}"
            )
    return total


def _task_group(value: Any, annotation: str) -> TaskGroupSpec:
    if not isinstance(value, dict):
        raise TaskGroupsError(f"a task group must be a map, found {type(value).__name__}")
    fields = {str(key).lower(): item for key, item in value.items()}
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise TaskGroupsError(f"can't get taskGroup Name from pod annotation, {annotation}")
    if fields.get("minresource") is None:
        raise TaskGroupsError(f"can't get taskGroup MinResource from pod annotation, {annotation}")
    members = fields.get("minmember")
    if members is None or members == 0:
        raise TaskGroupsError(f"can't get taskGroup MinMember from pod annotation, {annotation}")
    if type(members) is not int or members > MAX_MEMBERS:
        raise TaskGroupsError(f"minMember must be a whole number up to {MAX_MEMBERS}: {members!r}")
    if members < 0:
        raise TaskGroupsError(f"minMember cannot be negative, {annotation}")
    annotations = string_map(fields.get("annotations"), f"{name}.annotations")
    own = _min_resource(name, fields["minresource"])
    try:
        resource, gpu_devices = with_share(own, annotations, f"{name}.annotations")
    except ManifestError as error:
        raise TaskGroupsError(str(error)) from error
    topology, together = topology_of(fields.get("topology"), members)
    return TaskGroupSpec(
        name=name,
        min_member=members,
        min_resource=resource,
        constraints=over_devices(_constraints(fields, name), gpu_devices),
        labels=string_map(fields.get("labels"), f"{name}.labels"),
        annotations=annotations,
        topology=topology,
        together=together,
    )


def where_of_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a task group's pods may be, as a pod's spec writes it.

    Keys are read whatever their case, as Go reads JSON; those of labels are not ours to change.
    """
    fields = {str(key).lower(): value for key, value in group.items()}
    found = {key: _spelled(fields.get(key.lower()), _DEEPEST) for key in _STRUCTURES}
    found["nodeSelector"] = fields.get("nodeselector")
    return {key: value for key, value in found.items() if value is not None}


def _spelled(value: Any, depth: int) -> Any:
    """Return a value with its keys spelled as Kubernetes spells them."""
    if not depth:
        return value
    if isinstance(value, list):
        return [_spelled(item, depth - 1) for item in value]
    if not isinstance(value, dict):
        return value
    named = ((_SPELLING.get(str(key).lower(), key), item) for key, item in value.items())
    return {key: item if key == "matchLabels" else _spelled(item, depth - 1) for key, item in named}


def _constraints(fields: dict[str, Any], name: str) -> Constraints:
    spec = where_of_group(fields)
    labels = string_map(fields.get("labels"), f"{name}.labels")
    try:
        return parse_constraints(spec, name, labels=labels)
    except ManifestError as error:
        raise TaskGroupsError(str(error)) from error


def _min_resource(group: str, amounts: Any) -> Resource:
    if not isinstance(amounts, dict):
        raise TaskGroupsError(f"minResource in taskGroup {_quoted(group)} must be a map")
    resource: Resource = {}
    for key, amount in amounts.items():
        where = f"minResource {_quoted(key)} in taskGroup {_quoted(group)}"
        name = VCORE if key == "cpu" else key
        if name in resource or name == PODS:  # every member is one pod already
            raise TaskGroupsError(
                f"{where} collides with another resource under canonical key {_quoted(name)}"
            )
        try:
            resource[name] = parse_pod_quantity(name, amount)
        except QuantityError as error:
            raise TaskGroupsError(f"{where}: {error}") from error
        if resource[name] < 0:
            raise TaskGroupsError(f"{where} cannot be negative")
    return resource


def _quoted(text: str) -> str:
    """Return a text in double quotes, as YuniKorn's messages have it."""
    return json.dumps(text)


def string_map(value: Any, where: str) -> dict[str, str]:
    """Return a map of texts; absent is empty. Raises TaskGroupsError."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise TaskGroupsError(f"{where}: a map of texts was expected")
    return {str(key): item for key, item in value.items()}


def parse_policy_parameters(annotation: str) -> tuple[int, str]:
    """Return the placeholder timeout in seconds (0: the default) and the gang style.

    Items are separated by one space; those without exactly one ``=`` are skipped, unknown styles
    are Soft, a timeout that is no int64, or as nanoseconds none, is 0
    (docs/rules/gangs.md#task-groups), a longer one than 100 years is those (``policy_error`` says
    so).
    """
    parameters = _parameters(annotation)
    timeout_seconds, _ = bounded_seconds(_TIMEOUT, _timeout(parameters))
    style = parameters.get(_STYLE, "Soft")
    return timeout_seconds, style if style in _STYLES else "Soft"


def policy_error(annotation: str) -> str:
    """Return what is not done as the policy parameters say, in a sentence ("": nothing)."""
    return bounded_seconds(_TIMEOUT, _timeout(_parameters(annotation)))[1]


def policy_ignored(annotation: str) -> list[str]:
    """Return what of the policy parameters is not read, a sentence each."""
    items = [item.split("=") for item in annotation.split(" ") if item]
    found = [
        f"{'='.join(parts)[:_SHOWN]!r} is not one key=value, and is left out"
        for parts in items
        if len(parts) != 2  # noqa: PLR2004 - key, value
    ]
    for key, text in _parameters(annotation).items():
        shown = f"{key[:_SHOWN]} {text[:_SHOWN]!r}"
        if key not in (_TIMEOUT, _STYLE):
            found.append(f"there is no {key[:_SHOWN]!r}: {_TIMEOUT} and {_STYLE} are read")
        elif key == _STYLE and text not in _STYLES:
            found.append(f"{shown} is neither Soft nor Hard: the gang is Soft")
        elif key == _TIMEOUT and (parse_int64(text) is None or text.startswith("-")):
            found.append(f"{shown} is not a number of seconds: the default of 15 minutes is used")
    return [f"{POLICY_PARAMETERS}: {sentence}" for sentence in found]


def _timeout(parameters: dict[str, str]) -> int:
    return max(0, parse_int64(parameters.get(_TIMEOUT, "")) or 0)


def _parameters(annotation: str) -> dict[str, str]:
    items = (item.split("=") for item in annotation.split(" "))
    return {parts[0]: parts[1] for parts in items if len(parts) == 2}  # noqa: PLR2004 - key, value


def job_tag(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the tag by which an application is of a job, as its first pod states it; or none."""
    name = annotations.get(JOB)
    return {JOB: name} if name else {}
