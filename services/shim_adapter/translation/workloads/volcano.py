"""Volcano's Job: tasks of one template each, and ``minAvailable`` of all their pods at once.

Where the tasks state no minimum of their own, those that stand first in the file count first. What
Volcano's webhook denies is refused here in its words.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.pod_groups import of_network
from services.shim_adapter.translation.workloads.replicas import (
    Expansion,
    Replicas,
    Workload,
    items,
    numbered,
    text,
    whole,
    with_minimum,
)
from shared.messages.interface import NO_TOPOLOGY, Slice, TopologyConstraint


def job(workload: Workload) -> Expansion:
    """Return the pods of a Volcano Job."""
    tasks = [
        _task(workload, item, f"spec.tasks[{at}]")
        for at, item in enumerate(items(workload.spec, "tasks"))
    ]
    if not tasks:
        raise ManifestError("spec.tasks", "No task specified in job spec")
    names = [task.group for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ManifestError("spec.tasks", f"duplicated task name {twice}")
    total = sum(len(task.names) for task in tasks)
    minimum = whole(workload.spec, "minAvailable", total)
    if minimum > total:
        raise ManifestError(
            "spec.minAvailable",
            "job 'minAvailable' should not be greater than total replicas in tasks",
        )
    stated = sum(task.minimum for task in tasks)
    gang = tuple(tasks) if stated == minimum else with_minimum(tasks, minimum, "spec.minAvailable")
    return Expansion(_near(gang, workload.spec), queue=text(workload.spec, "queue"))


def _near(tasks: tuple[Replicas, ...], spec: Mapping[str, Any]) -> tuple[Replicas, ...]:
    """Return tasks that go where the job's own ``networkTopology`` says, all of them together."""
    wish = _level(spec, "spec.networkTopology")
    if wish == NO_TOPOLOGY:
        return tasks
    return tuple(
        replace(task, topology=replace(wish, slices=task.topology.slices), together="job")
        for task in tasks
    )


def _level(spec: Mapping[str, Any], where: str) -> TopologyConstraint:
    """Return the level that ``networkTopology`` names: a tier by number needs HyperNodes."""
    wish, network = of_network(spec, where)
    if network is not None and network.tier is not None and not network.is_soft:
        raise ManifestError(where, "not supported: tiers by number need HyperNodes")
    return NO_TOPOLOGY if network is None and not wish.wrong else wish


def _partitions(spec: Mapping[str, Any], where: str, count: int) -> tuple[int, TopologyConstraint]:
    """Return the minimum of a task in partitions, and their slices; (0, none) without any.

    Each partition of ``partitionSize`` pods is in one domain of its level; as many of them as
    ``minPartitions`` start at once.
    """
    place = f"{where}.partitionPolicy"
    policy = mapping(spec.get("partitionPolicy") or {}, place)
    if not policy:
        return 0, NO_TOPOLOGY
    size, total = (whole(policy, key, 0, place) for key in ("partitionSize", "totalPartitions"))
    if not size or size * total != count:
        said = f"totalPartitions times partitionSize, {total * size}, is not replicas, {count}"
        raise ManifestError(place, said)
    least = whole(policy, "minPartitions", total, place)
    if not 0 < least <= total:
        raise ManifestError(f"{place}.minPartitions", f"1 to {total}, found {least}")
    wish = _level(policy, f"{place}.networkTopology")
    slices = (Slice(wish.required, size),) if wish.required else ()
    return least * size, TopologyConstraint(slices=slices, wrong=wish.wrong)


def _task(workload: Workload, value: Any, where: str) -> Replicas:
    spec = mapping(value, where)
    name = text(spec, "name", where) or "default"
    count = whole(spec, "replicas", 1, where)
    least = whole(spec, "minAvailable", 0, where)
    if least > count:
        raise ManifestError(
            f"{where}.minAvailable",
            f"'minAvailable' should not be greater than 'replicas' in task {name}",
        )
    of_partitions, topology = _partitions(spec, where, count)
    template = mapping(spec.get("template"), f"{where}.template")
    pod = mapping(template.get("spec"), f"{where}.template.spec")
    scheduler = pod.get("schedulerName") or workload.spec.get("schedulerName") or "volcano"
    return Replicas(
        group=name,
        names=numbered(f"{workload.name}-{name}", count),
        template={**template, "spec": {**pod, "schedulerName": scheduler}},
        where=f"{where}.template",
        minimum=least or of_partitions,
        topology=topology,
    )
