"""Manifests of Jobs for tests that hand many in, over HTTP."""

import json
from typing import Any

import yaml


def job(
    name: str,
    pods: int,
    *,
    application: str = "",
    gang: int = 0,
    cpu: str = "100m",
    memory: str = "100Mi",
    run_seconds: int | None = None,
    selector: dict[str, str] | None = None,
) -> str:
    """Return a Job of so many pods at once, as YAML; ``application`` is the name unless it is said.

    ``gang`` is how many members its one task group has (0: it is none).
    """
    requests = {"cpu": cpu, "memory": memory}
    annotations: dict[str, str] = {}
    if run_seconds is not None:
        annotations["muster.io/run-seconds"] = str(run_seconds)
    if gang:
        group = {"name": "tg", "minMember": gang, "minResource": requests}
        annotations["yunikorn.apache.org/task-group-name"] = "tg"
        annotations["yunikorn.apache.org/task-groups"] = json.dumps([group])
    spec: dict[str, Any] = {
        "schedulerName": "yunikorn",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
    }
    if selector:
        spec["nodeSelector"] = selector
    labels = {"applicationId": application or name, "queue": "root.default"}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    return yaml.safe_dump(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"completions": pods, "parallelism": pods, "template": template},
        }
    )
