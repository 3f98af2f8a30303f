"""What became of every job, as a file: CSV, or the Standard Workload Format where it is named so.

Rule 1: a row a job, in the order of submission, those left out too. Times are seconds from the
        first submission on; what did not happen is empty (SWF: -1).
Rule 2: who was evicted has its first start and its last end, and how often it was evicted; its
        nodes are those of its last beginning.
Rule 3: SWF has what its fields have: no nodes and no evictions. A job, a user or a queue keeps the
        number that its name ends with where all of them have one, none twice; else they are
        numbered as they come.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from shared.model.gpus import GPU
from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import FOREVER_NS, TraceError
from tools.replay.run import Outcome

COLUMNS = (
    "name", "queue", "user", "pods", "size", "submitted", "started", "ended", "run", "stated",
    "nodes", "evictions", "left_out",
)  # fmt: skip
SWF = ".swf"
_NUMBER_OF_A_NAME = re.compile(r"[a-z]+-([0-9]{1,9})")
_DONE, _CANCELLED = 1, 5  # the status of a job in SWF
_UNKNOWN = "-1"


def write_jobs(file: Path, outcome: Outcome) -> None:
    """Write what became of every job. Raises TraceError."""
    lines = _swf(outcome) if file.suffix == SWF else _csv(outcome)
    try:
        with file.open("w", encoding="utf-8", newline="") as text:
            text.writelines(lines)
    except OSError as error:
        raise TraceError(f"--jobs-out {file}: {error.strerror}") from error


def _csv(outcome: Outcome) -> Iterator[str]:
    line = StringIO()
    writer = csv.writer(line, lineterminator="\n")
    yield ",".join(COLUMNS) + "\n"
    for run in outcome.runs:
        job = run.job
        writer.writerow(
            (
                job.name, job.queue, job.user, job.pods, job.amount(outcome.trace.size_of),
                _seconds(job.submitted_ns), _seconds(run.started_ns), _seconds(run.ended_ns),
                _seconds(job.run_ns if job.run_ns < FOREVER_NS else -1),
                _seconds(job.stated_ns or -1), " ".join(run.nodes), max(0, run.began - 1),
                run.left_out,
            )
        )  # fmt: skip
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _swf(outcome: Outcome) -> Iterator[str]:
    """Yield the lines of a log: 18 fields each, as the format's definition numbers them."""
    trace = outcome.trace
    per = 1 if trace.size_of == GPU else 1000
    jobs = [run.job for run in outcome.runs]
    numbers = _numbers([job.name for job in jobs])
    users = _numbers([job.user for job in jobs])
    queues = _numbers([job.queue for job in jobs])
    yield "; Version: 2.2\n"
    yield f"; Note: a replay of {trace.name}; processors are {trace.size_of}\n"
    yield f"; MaxNodes: {len(outcome.setup.nodes)}\n; MaxProcs: {outcome.capacity // per}\n"
    for run in outcome.runs:
        job, has_run = run.job, run.started_ns >= 0
        size = -(-job.amount(trace.size_of) // per)
        fields = (
            str(numbers[job.name]),
            _seconds(job.submitted_ns),
            _seconds(run.started_ns - job.submitted_ns) if has_run else _UNKNOWN,
            _seconds(job.run_ns) if has_run and job.run_ns < FOREVER_NS else _UNKNOWN,
            str(size if has_run else -1),
            *(_UNKNOWN,) * 2,
            str(size),
            _seconds(job.stated_ns or -1) or _UNKNOWN,
            _UNKNOWN,
            str(_DONE if run.ended_ns >= 0 else _CANCELLED),
            str(users[job.user]),
            *(_UNKNOWN,) * 2,
            str(queues[job.queue]),
            *(_UNKNOWN,) * 3,
        )
        yield " ".join(fields) + "\n"


def _seconds(time_ns: int) -> str:
    """Return a time as seconds with as many digits as it has; below 0 is nothing."""
    if time_ns < 0:
        return ""
    whole, rest = divmod(time_ns, NANOS_PER_SECOND)
    return f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole)


def _numbers(names: Sequence[str]) -> dict[str, int]:
    """Return a number for each name: the one it ends with, or by the order of their coming."""
    found = dict.fromkeys(names, 0)
    matches = {name: _NUMBER_OF_A_NAME.fullmatch(name) for name in found}
    own = {name: int(match[1]) for name, match in matches.items() if match is not None}
    if len(set(own.values())) == len(found):
        return own
    return {name: at for at, name in enumerate(found, 1)}
