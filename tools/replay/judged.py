"""Jobs of a trace as they are read: each is judged, what is no job is counted by reason.

Limits: MAX_JOBS jobs, MAX_PODS pods a job, MAX_NAME characters of a name of a job or a user.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.model.names import QUEUE
from shared.model.resources import Resource
from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import MAX_JOBS, MAX_PODS, Job, Trace, TraceError, in_order
from tools.replay.lines import MAX_SECONDS, Line

MAX_NAME = 200  # characters of a job's or user's name in a trace; a longer one is an error
GPUS_A_NODE = 8
NO_GPU = "asks for no GPU"
NO_RUN_TIME = "has no run time"


@dataclass(slots=True)
class Jobs:
    """The jobs of a trace in order, and how many lines are none, by reason."""

    ordered: tuple[Job, ...]
    left_out: dict[str, int]


def jobs_of_lines(
    file: Path, lines: Iterator[Line], job_of: Callable[[int, Line], Job | str]
) -> Jobs:
    """Return the jobs of all lines; a line that is none says why. Raises TraceError."""
    return jobs_of(file, ((line.where, job_of(at, line)) for at, line in enumerate(lines)))


def jobs_of(file: Path, found: Iterable[tuple[str, Job | str]]) -> Jobs:
    """Return the jobs among what was found, each with where it stands. Raises TraceError."""
    jobs: list[Job] = []
    left_out: dict[str, int] = {}
    names: set[str] = set()
    for where, job in found:
        if isinstance(job, str):
            left_out[job] = left_out.get(job, 0) + 1
            continue
        _judge(job, where)
        if job.name in names:
            raise TraceError(f"{where}: a second job {job.name!r}")
        if len(jobs) == MAX_JOBS:
            raise TraceError(f"{where}: at most {MAX_JOBS} jobs a trace")
        names.add(job.name)
        jobs.append(job)
    if not jobs:
        raise TraceError(f"{file}: it contains no job")
    ordered = in_order(jobs)
    if ordered[-1].submitted_ns > MAX_SECONDS * NANOS_PER_SECOND:
        raise TraceError(
            f"{file}: {ordered[-1].name} is submitted more than {MAX_SECONDS} s after "
            f"{ordered[0].name}, the first"
        )
    return Jobs(ordered, left_out)


def trace_of(
    file: Path, jobs: Jobs, size_of: str, nodes: int = 0, capacity: Resource | None = None
) -> Trace:
    """Return the trace of a file."""
    return Trace(file.name, jobs.ordered, size_of, nodes, capacity or {}, jobs.left_out)


def _judge(job: Job, where: str) -> None:
    if job.pods > MAX_PODS:
        raise TraceError(f"{where}: at most {MAX_PODS} pods a job, found {job.pods}")
    for kind, name in (("job", job.name), ("user", job.user)):
        if len(name) > MAX_NAME or not name.isprintable():
            raise TraceError(
                f"{where}: a {kind} has a name of at most {MAX_NAME} printable characters, "
                f"found {name[:MAX_NAME]!r}"
            )
    if not all(QUEUE.match(part) for part in job.queue.split(".")):
        raise TraceError(f"{where}: {job.queue[:MAX_NAME]!r} is no name of a queue")
