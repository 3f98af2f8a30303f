"""SparkApplication: a driver and its executors, sized as Spark sizes them.

Spark asks for the memory it is given and an overhead: a tenth of it (four tenths where the
program is not JVM code), and at least 384 MiB. ``512m`` is 512 MiB in Spark's own units. The gang
is the driver and the executors that it starts with, in the groups that the operator writes.
"""

import re
from collections.abc import Mapping
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.workloads.replicas import (
    Expansion,
    Replicas,
    Workload,
    inner,
    text,
    whole,
)
from shared.model.numbers import parse_int64

_MEMORY = re.compile(r"^([0-9]+)([kKmMgGtT]?)[bB]?$")
_MIB = 1024 * 1024
_UNITS = {"": 1, "k": 1024, "m": _MIB, "g": 1024 * _MIB, "t": 1024 * 1024 * _MIB}
_LEAST_OVERHEAD = 384 * _MIB
_JVM = ("java", "scala")


def spark_application(workload: Workload) -> Expansion:
    """Return the driver's and the executors' pods."""
    spec = workload.spec
    options = inner(spec, "batchSchedulerOptions")
    is_jvm = text(spec, "type").lower() in ("", *_JVM)
    executor = inner(spec, "executor")
    count = _executors(spec, executor)
    driver = _pod(workload, inner(spec, "driver"), "spec.driver", is_jvm=is_jvm)
    replicas = [Replicas("spark-driver", (f"{workload.name}-driver",), driver, "spec.driver", 1)]
    if count:
        template = _pod(workload, executor, "spec.executor", is_jvm=is_jvm)
        names = tuple(f"{workload.name}-exec-{at + 1}" for at in range(count))
        replicas.append(Replicas("spark-executor", names, template, "spec.executor", count, 1))
    return Expansion(tuple(replicas), queue=text(options, "queue", "spec.batchSchedulerOptions"))


def _executors(spec: Mapping[str, Any], executor: Mapping[str, Any]) -> int:
    """Return how many executors it starts with."""
    dynamic = inner(spec, "dynamicAllocation")
    if dynamic.get("enabled") is True:
        where = "spec.dynamicAllocation"
        fewest = whole(dynamic, "minExecutors", 0, where)
        return max(fewest, whole(dynamic, "initialExecutors", fewest, where))
    return whole(executor, "instances", 1, "spec.executor")


def _pod(workload: Workload, role: dict[str, Any], where: str, *, is_jvm: bool) -> dict[str, Any]:
    """Return a role's pod as a template."""
    memory = _bytes(text(role, "memory", where) or "1g", f"{where}.memory")
    stated = text(role, "memoryOverhead", where)
    factor = text(workload.spec, "memoryOverheadFactor") or ("0.1" if is_jvm else "0.4")
    overhead = (
        _bytes(stated, f"{where}.memoryOverhead")
        if stated
        else max(_LEAST_OVERHEAD, _share(memory, factor, "spec.memoryOverheadFactor"))
    )
    requests: dict[str, Any] = {
        "cpu": text(role, "coreRequest", where) or str(whole(role, "cores", 1, where)),
        "memory": memory + overhead,
    }
    gpu = inner(role, "gpu", where)
    if gpu:
        requests[text(gpu, "name", f"{where}.gpu")] = whole(gpu, "quantity", 1, f"{where}.gpu")
    return {
        "metadata": {
            "labels": {**inner(role, "labels", where)},
            "annotations": {**inner(role, "annotations", where)},
        },
        "spec": {
            "schedulerName": role.get("schedulerName") or workload.spec.get("batchScheduler"),
            "containers": [{"name": "spark", "resources": {"requests": requests}}],
            "nodeSelector": role.get("nodeSelector") or workload.spec.get("nodeSelector"),
            "tolerations": role.get("tolerations"),
            "affinity": role.get("affinity"),
            "priorityClassName": inner(workload.spec, "batchSchedulerOptions").get(
                "priorityClassName"
            ),
        },
    }


def _bytes(value: str, where: str) -> int:
    match = _MEMORY.match(value)
    if match is None or parse_int64(match.group(1)) is None:
        raise ManifestError(where, f"a size such as 512m or 4g was expected, found {value!r}")
    return int(match.group(1)) * _UNITS[match.group(2).lower()]


def _share(memory: int, factor: str, where: str) -> int:
    """Return a decimal share of an amount, rounded down, without floats."""
    match = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{1,9}))?", factor)
    if match is None:
        raise ManifestError(where, f"a decimal number was expected, found {factor!r}")
    digits = match.group(2) or ""
    return memory * int(match.group(1) + digits) // int(10 ** len(digits))
