"""Traces of GPU clusters as they were published: Helios, Acme, Alibaba PAI, Philly.

docs/traces.md says where to get them. None says how its nodes are shared out; where all are alike
in a paper a node has GPUS_A_NODE GPUs, and ``--nodes`` says how many there are.
Limit: MAX_JSON_BYTES of a JSON file, which is read as a whole.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.cli.simulated_nodes import PODS_A_NODE
from shared.model.gpus import GPU, GPU_SHARE, WHOLE
from shared.model.resources import MEMORY, PODS, VCORE, Resource
from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import Job, Trace, TraceError, pods_of
from tools.replay.judged import (
    GPUS_A_NODE,
    NO_GPU,
    NO_RUN_TIME,
    jobs_of,
    jobs_of_lines,
    trace_of,
)
from tools.replay.lines import Line, opened

MAX_JSON_BYTES = 2**30  # bytes of a trace in one JSON document; a longer one is an error
PAI_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
    "plan_gpu", "gpu_type",
)  # fmt: skip
_PAI_STATUSES = ("Terminated", "Failed", "Running", "Waiting")
_PERCENT_OF_A_CPU = 10  # thousandths of a CPU
_GIB = 2**30
_CAPACITY: Resource = {GPU: GPUS_A_NODE, PODS: PODS_A_NODE}


def helios(file: Path, lines: Iterator[Line]) -> Trace:
    """Read a ``cluster_log.csv``: a virtual cluster is a queue."""
    return _of_gpus(file, lines, "vc")


def acme(file: Path, lines: Iterator[Line]) -> Trace:
    """Read a ``trace_seren.csv`` or ``trace_kalos.csv``: a type of work is a queue."""
    return _of_gpus(file, lines, "type")


def _of_gpus(file: Path, lines: Iterator[Line], queue: str) -> Trace:
    """Read a table of jobs with their GPUs, of which its own column ``queue`` is a time."""

    def job_of(_: int, line: Line) -> Job | str:
        gpus = round(line.number("gpu_num", "0"))
        if not gpus:
            return NO_GPU
        if not line.text("duration", "-").strip("-"):
            return NO_RUN_TIME
        return Job(
            f"job-{line.text('job_id')}",
            line.moment_ns("submit_time"),
            line.seconds_ns("duration"),
            line.text(queue, "jobs").replace(" ", "-"),
            line.text("user", "user"),
            pods_of(gpus, GPUS_A_NODE, GPU),
        )

    return trace_of(file, jobs_of_lines(file, lines, job_of), GPU, 0, _CAPACITY)


def is_pai(first: str) -> bool:
    """Return whether a line is one of PAI's table of tasks, which has no heading of its own."""
    cells = first.strip().split(",")
    return len(cells) == len(PAI_COLUMNS) and cells[3] in _PAI_STATUSES


def pai(file: Path, lines: Iterator[Line]) -> Trace:
    """Read a ``pai_task_table.csv``: the tasks of a job are its groups of pods.

    It comes when its first task starts, as the table knows of no earlier moment, and runs until the
    last one ends.
    """
    tasks: dict[str, list[Line]] = {}
    for line in lines:
        tasks.setdefault(line.text("job_name"), []).append(line)
    jobs = jobs_of(file, ((of[0].where, _pai_job(name, of)) for name, of in tasks.items()))
    return trace_of(file, jobs, GPU, 0, {})


def _pai_job(name: str, tasks: list[Line]) -> Job | str:
    groups: list[tuple[int, Resource]] = []
    starts: list[int] = []
    ends: list[int] = []
    for task in tasks:
        members = round(task.number("inst_num", "0"))
        if not (task.is_set("start_time") and task.is_set("end_time") and members):
            return NO_RUN_TIME
        starts.append(task.seconds_ns("start_time"))
        ends.append(task.seconds_ns("end_time"))
        groups.append((members, _pai_pod(task)))
    if not any(GPU in pod or GPU_SHARE in pod for _, pod in groups):
        return NO_GPU
    run_ns = max(ends) - min(starts)
    if run_ns < 0:
        return NO_RUN_TIME
    return Job(name, min(starts), run_ns, "jobs", "user", tuple(groups))


def _pai_pod(task: Line) -> Resource:
    """Return what an instance asks for; of GPUs a part of one, or whole ones."""
    percent = round(task.number("plan_gpu", "0"))
    pod: Resource = {
        VCORE: round(task.number("plan_cpu", "0") * _PERCENT_OF_A_CPU),
        MEMORY: round(task.number("plan_mem", "0") * _GIB),
        PODS: 1,
    }
    if percent >= 100:  # noqa: PLR2004 - of a GPU
        pod[GPU] = -(-percent // 100)
    elif percent:
        pod[GPU_SHARE] = percent * WHOLE // 100
    return {kind: amount for kind, amount in pod.items() if amount}


def philly_json(file: Path) -> Trace:
    """Read Philly's ``cluster_job_log``: a virtual cluster is a queue.

    A job runs for as long as all its attempts together, on the GPUs of the largest.
    """
    with opened(file) as text:
        content = text.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise TraceError(f"{file}: at most {MAX_JSON_BYTES} bytes of JSON")
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file}: {error}") from error
    if not isinstance(entries, list):
        raise TraceError(f"{file}: a list of jobs was expected")
    found = ((f"{file}: job {at + 1}", entry) for at, entry in enumerate(entries))
    jobs = jobs_of(file, ((where, _philly_job(where, entry)) for where, entry in found))
    return trace_of(file, jobs, GPU, 0, _CAPACITY)


def _philly_job(where: str, entry: Any) -> Job | str:
    try:
        attempts = entry["attempts"]
        gpus = max((_gpus_of(attempt) for attempt in attempts), default=0)
        run_ns = sum(_ran_ns(attempt) for attempt in attempts)
        if not gpus:
            return NO_GPU
        if not run_ns:
            return NO_RUN_TIME
        return Job(
            str(entry["jobid"]),
            _moment_ns(entry["submitted_time"]),
            run_ns,
            str(entry["vc"]),
            str(entry["user"]),
            pods_of(gpus, GPUS_A_NODE, GPU),
        )
    except (KeyError, TypeError, ValueError) as error:
        what = "jobid, vc, user, submitted_time and attempts were expected"
        raise TraceError(f"{where}: {what} ({type(error).__name__}: {error})") from error


def _gpus_of(attempt: Any) -> int:
    return sum(len(server["gpus"]) for server in attempt["detail"])


def _ran_ns(attempt: Any) -> int:
    """Return for how long an attempt ran; 0 where that was not recorded."""
    start, end = attempt["start_time"], attempt["end_time"]
    if not (start and end) or "None" in (start, end):
        return 0
    return max(0, _moment_ns(end) - _moment_ns(start))


def _moment_ns(text: str) -> int:
    at = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return int(at.timestamp()) * NANOS_PER_SECOND
