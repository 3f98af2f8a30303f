"""Jobs, JobSets and plain pod groups whose pods carry Kueue's annotations of topology: gangs.

Kueue admits such a job as a whole; so it starts here, with all the pods that run at once. Source:
Kueue's documentation (topology aware scheduling, plain pods): a pod set is a Job, or a replicated
job of a JobSet; pod sets of one `podset-group-name` go together. Pods of one label
`pod-group-name` are a group of as many as their annotation `pod-group-total-count` states.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.shim_adapter.translation.errors import MAX_TEXT
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.topology import GROUP_NAME, of_kueue
from services.shim_adapter.translation.workloads.replicas import (
    MAX_PODS,
    Gang,
    inner,
    items,
    text,
    whole,
)
from shared.messages.interface import NO_TOPOLOGY, TopologyConstraint
from shared.model.numbers import parse_int64

TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"


def job_gangs(body: Mapping[str, Any], name: str) -> dict[str, Gang] | None:
    """Return the gang of a Job; None: it is none. Raises ManifestError with the field."""
    spec = mapping(body.get("spec"), "spec")
    pods = _at_once(spec, "spec")
    wish, _ = of_kueue(_annotations(spec, "spec"), pods)
    return None if wish == NO_TOPOLOGY else {"": _gang(name, pods, wish)}


def job_set_gangs(body: Mapping[str, Any], name: str) -> dict[str, Gang] | None:
    """Return the gangs of a JobSet by replicated job, or by what names them as one group.

    None: it has none. Raises ManifestError with the field.
    """
    spec = mapping(body.get("spec"), "spec")
    found: dict[str, Gang] = {}
    for at, item in enumerate(items(spec, "replicatedJobs")):
        where = f"spec.replicatedJobs[{at}]"
        replicated = mapping(item, where)
        job = inner(inner(replicated, "template", where), "spec", f"{where}.template")
        annotations = _annotations(job, f"{where}.template.spec")
        at_once = _at_once(job, f"{where}.template.spec")
        pods = whole(replicated, "replicas", 1, where) * at_once
        wish, together = of_kueue(annotations, pods, at_once)
        if wish == NO_TOPOLOGY:
            continue
        part = together or text(replicated, "name", where)
        known = found.get(part)
        if known is None:
            found[part] = _gang(name, pods, wish)
        else:
            found[part] = replace(
                known, minimum=known.minimum + pods, topology=_both(known.topology, wish)
            )
    return found or None


def pod_group_gang(annotations: Mapping[str, str], name: str) -> Gang | str:
    """Return the gang of plain pods, as one of them states it, or what of that does not hold."""
    stated = str(annotations.get(TOTAL_COUNT, ""))
    pods = parse_int64(stated)
    if pods is None or not 1 <= pods <= MAX_PODS:
        where = f"metadata.annotations[{TOTAL_COUNT}]"
        return f"{where}: 1 to {MAX_PODS} pods were expected, found {stated[:MAX_TEXT]!r}"
    return _gang(name, pods, of_kueue(annotations, pods)[0])


def _both(one: TopologyConstraint, other: TopologyConstraint) -> TopologyConstraint:
    """Return what holds for pod sets of one group: their annotations are to be equal."""
    plain = replace(one, slices=())
    if plain != replace(other, slices=()):
        return TopologyConstraint(wrong=f"topology: pod sets of one {GROUP_NAME} wish different")
    return plain


def _gang(name: str, pods: int, wish: TopologyConstraint) -> Gang:
    return Gang(name, pods, topology=wish, is_kueues=True)


def _at_once(spec: Mapping[str, Any], where: str) -> int:
    pods = whole(spec, "parallelism", 1, where)
    return min(pods, whole(spec, "completions", pods, where))


def _annotations(spec: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    template = inner(spec, "template", where)
    metadata = inner(template, "metadata", f"{where}.template")
    return inner(metadata, "annotations", f"{where}.template.metadata")
