"""The gang of a PodGroup's pods: an application with a task group for every shape of pods.

A PodGroup says how many pods must start together; their requests are in the pods. The result is a
gang like that of YuniKorn's annotations, written in the same form: it is stored at its placeholders
and survives restarts.

Rule 1: pods of equal size, subgroup and scheduling constraints are one shape, and one task group.
Rule 2: placeholders do not get a pod's labels, because its owner, a Service or a budget would
        select them. Labels that the gang's own terms select are in an annotation that only Muster
        reads.
Pure: no I/O.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from services.shim_adapter.backends.kubernetes.bodies import quantities
from services.shim_adapter.translation.gpu_shares import annotations_of
from services.shim_adapter.translation.pods import MAX_APPLICATION_ID, MAX_LABELS
from services.shim_adapter.translation.task_groups import WHERE, TaskGroupsError
from services.shim_adapter.translation.topology import written
from services.shim_adapter.translation.workloads.pod_groups import (
    COMPOSITE,
    JOB,
    JOBSET,
    POD_GROUP,
    GroupRef,
)
from shared.messages.commands import PodSpec
from shared.messages.constraints import Constraints
from shared.messages.interface import NO_TOPOLOGY, TopologyConstraint
from shared.model.ids import derived_suffix
from shared.model.texts import JsonError, load_json

LABELS = "muster.io/labels"
SHARED_CLAIM = f"{POD_GROUP}-claim"  # at a shape: the claim that its pods share with others
MAX_SHAPES = 50  # different pods in a PodGroup's gang; with more they wait
MAX_SHAPES_CHARACTERS = 64 * 1024  # characters of its annotation; with more its pods wait
_SUFFIX = 6
_BETWEEN = "-podgroup-"
_BETWEEN_OF = {COMPOSITE: "-composite-", JOB: "-job-", JOBSET: "-jobset-"}


def application_of(ref: GroupRef) -> str:
    """Return the application of a PodGroup whose pods name none; it is unique per group."""
    name = "-".join(filter(None, (ref.name, ref.part, ref.replica)))
    between = _BETWEEN_OF.get(ref.kind, _BETWEEN)
    text = f"{ref.namespace}{between}{name}"
    is_plain = text.count(between) == 1 and "." not in text and not ref.part
    if is_plain and len(text) <= MAX_APPLICATION_ID:
        return text
    cut = text.replace(".", "-")[: MAX_APPLICATION_ID - _SUFFIX - 1]
    return f"{cut}-{derived_suffix(str(ref), _SUFFIX)}"


def where_of(spec: Mapping[str, Any]) -> str:
    """Return a pod's scheduling constraints in the format of a task group."""
    return json.dumps({key: spec[key] for key in WHERE if spec.get(key)}, sort_keys=True)


def worn_labels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels that pod terms match: a pod's own, and those in its annotation."""
    try:
        found = load_json(annotations.get(LABELS) or "{}")
    except JsonError:
        return labels
    if not isinstance(found, dict) or len(str(found)) > MAX_LABELS:
        return labels
    return {**labels, **{str(key): str(value) for key, value in found.items()}}


def _asked_about(spec: PodSpec) -> dict[str, str]:
    """Return the labels of a pod that its own pod terms select."""
    terms = _settings(spec.constraints)
    keys = {requirement.key: None for term in terms for requirement in term.selector}
    return {key: spec.labels[key] for key in keys if key in spec.labels}


def _settings(constraints: Constraints) -> Iterable[Any]:
    return (
        *constraints.pod_affinity,
        *constraints.pod_anti_affinity,
        *constraints.preferred_pods,
        *constraints.avoided_pods,
        *constraints.spread,
    )


def shape_of(spec: PodSpec, where: str, subgroup: str, ref: GroupRef, shared: str = "") -> str:
    """Return the key of equal pods: a task group without its name and size.

    ``shared`` is the device claim for which they go together with other pods of the gang.
    """
    share = annotations_of(spec.resource, spec.constraints.gpu_devices)
    annotations = {POD_GROUP: str(ref), **share}
    labels = _asked_about(spec)
    if labels:
        annotations[LABELS] = json.dumps(labels, sort_keys=True)
    if subgroup:
        annotations[f"{POD_GROUP}-subgroup"] = subgroup
    if shared:
        annotations[SHARED_CLAIM] = shared
    shape = {"minResource": quantities(spec.resource), "annotations": annotations}
    return _written({**shape, **json.loads(where or "{}")})


def task_groups_text(
    shapes: Mapping[str, int],
    names: Mapping[str, str],
    topology: TopologyConstraint = NO_TOPOLOGY,
    ties: Mapping[str, str] | None = None,
) -> str:
    """Return the task groups of the counted shapes as JSON. Raises TaskGroupsError.

    ``names`` are their subgroups ("": none), ``topology`` applies to all together. ``ties`` are
    node labels by shared claim: its pods go to nodes with one value.
    """
    if len(shapes) > MAX_SHAPES:
        raise TaskGroupsError(
            f"its pods ask for {len(shapes)} different things, at most {MAX_SHAPES} are reserved"
        )
    taken: dict[str, None] = {}
    groups = []
    for shape, count in shapes.items():
        name = _free(re.sub(r"[^a-z0-9-]", "-", names[shape]).strip("-")[:20] or "pods", taken)
        group = {"name": name, "minMember": count, **json.loads(shape)}
        wish = written(topology, "gang")
        shared = group["annotations"].get(SHARED_CLAIM, "")
        if ties and shared:
            label = ties[shared]
            wish = written(TopologyConstraint((label,), required=label), shared)
        groups.append({**group, "topology": wish} if wish else group)
    text = _written(groups)
    if len(text) > MAX_SHAPES_CHARACTERS:
        raise TaskGroupsError(
            f"what its pods ask for takes {len(text)} characters, at most {MAX_SHAPES_CHARACTERS}"
        )
    return text


def _free(name: str, taken: dict[str, None]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name[:16]}-{number}", number + 1
    taken[free] = None
    return free


def names_by_shape(text: str) -> dict[str, str]:
    """Return the names of task groups by shape, from a text of ``task_groups_text``."""
    found = {}
    for group in json.loads(text) if text else ():
        own = ("name", "minMember", "topology")
        shape = {key: value for key, value in group.items() if key not in own}
        found[_written(shape)] = group["name"]
    return found


def shared_in(text: str) -> dict[str, str]:
    """Return the claims that pods share, in a text of ``task_groups_text``, each with itself."""
    groups = json.loads(text) if text else ()
    found = [group.get("annotations", {}).get(SHARED_CLAIM, "") for group in groups]
    return {name: name for name in found if name}


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
