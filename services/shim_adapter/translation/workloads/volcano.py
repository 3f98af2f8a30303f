"""Volcano's Job: tasks of one template each, and ``minAvailable`` of all their pods at once.

Where the tasks state no minimum of their own, those that stand first in the file count first. What
Volcano's webhook denies is refused here in its words.
"""

from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
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
    return Expansion(gang, queue=text(workload.spec, "queue"))


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
    template = mapping(spec.get("template"), f"{where}.template")
    pod = mapping(template.get("spec"), f"{where}.template.spec")
    scheduler = pod.get("schedulerName") or workload.spec.get("schedulerName") or "volcano"
    return Replicas(
        group=name,
        names=numbered(f"{workload.name}-{name}", count),
        template={**template, "spec": {**pod, "schedulerName": scheduler}},
        where=f"{where}.template",
        minimum=least,
    )
