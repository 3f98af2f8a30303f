"""Jobs and JobSets whose pod templates carry Kueue's annotations of topology: each is a gang.

Kueue admits such a job as a whole; so it starts here, with all the pods that run at once. Source:
Kueue's documentation (topology aware scheduling): a pod set is a Job, or a replicated job of a
JobSet; pod sets of one `podset-group-name` go together.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.topology import GROUP_NAME, of_kueue
from services.shim_adapter.translation.workloads.replicas import Gang, inner, items, text, whole
from shared.messages.interface import NO_TOPOLOGY, TopologyConstraint


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
