"""The formats of traces, told apart by their first line: philly, muri, openb, SWF and our own CSV.

A file whose name ends in ``.gz`` is unpacked as it is read. Lines are judged one by one; the first
that does not hold ends it, with its number and what was expected.
Limits: MAX_JOBS jobs, MAX_LINE characters a line, MAX_PODS pods a job, MAX_SECONDS of a time.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TextIO

from services.cli.replay.jobs import (
    GPU,
    MAX_JOBS,
    MAX_PODS,
    Job,
    Trace,
    TraceError,
    in_order,
    pods_of,
)
from shared.model.quantity import QuantityError, parse_pod_quantity
from shared.model.resources import MEMORY, PODS, VCORE, Resource
from shared.model.units import NANOS_PER_MILLI, NANOS_PER_SECOND

MAX_LINE = 10_000  # characters of a line of a trace; a longer one is an error
MAX_SECONDS = 10**10  # a time in a trace, some 300 years; a later one is an error
GPUS_A_NODE = 8
PHILLY_NODES, MURI_NODES = 75, 8
PROCESSOR = 1000  # in vcore
CSV_COLUMNS = ("name", "submit", "run", "queue", "user", "pods", "cpu", "memory", "gpu", "stated")
_SWF_FIELDS = 18
_MIB = 2**20
Row = dict[str, str]


def read(file: Path) -> Trace:
    """Return a trace. Raises TraceError."""
    try:
        with _opened(file) as lines:
            first = lines.readline(MAX_LINE + 1)
            if first.startswith(";") or len(first.split()) == _SWF_FIELDS:
                return _swf(file, first, lines)
            names = tuple(name.strip() for name in first.strip().split(","))
            for known, make in _FORMATS:
                if set(known) <= set(names):
                    return make(file, _rows(file, names, lines))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(f"{file}: {error}") from error
    raise TraceError(
        f"{file}: line 1: no format has these columns; those of docs/replay.md were expected, "
        "such as submit,run,pods,gpu"
    )


def _opened(file: Path) -> TextIO:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8", newline="")
    return file.open(encoding="utf-8", newline="")


# --- lines and columns --------------------------------------------------------------------------


class _Line:
    """One line: its columns by name, each read as what it should be, or an error that says so."""

    def __init__(self, where: str, cells: Row) -> None:
        self.where = where
        self._cells = cells

    def text(self, name: str, otherwise: str | None = None) -> str:
        found = self._cells.get(name, "").strip()
        if found:
            return found
        if otherwise is None:
            raise self.wrong(name, "a value")
        return otherwise

    def number(self, name: str, otherwise: str | None = None) -> float:
        text = self.text(name, otherwise)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= MAX_SECONDS:
            raise self.wrong(name, f"a number from 0 to {MAX_SECONDS}")
        return value

    def count(self, name: str, otherwise: str | None = None) -> int:
        text = self.text(name, otherwise)
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SECONDS))):
            raise self.wrong(name, "a whole number")
        return int(text)

    def seconds_ns(self, name: str, otherwise: str | None = None) -> int:
        return round(self.number(name, otherwise) * NANOS_PER_SECOND)

    def moment_ns(self, name: str) -> int:
        text = self.text(name)
        try:
            at = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            raise self.wrong(name, "a moment like 2017-10-09 07:01:55") from None
        return int(at.timestamp()) * NANOS_PER_SECOND

    def quantity(self, name: str, kind: str) -> int:
        text = self.text(name, "0")
        try:
            amount = parse_pod_quantity(kind, text)
        except QuantityError as error:
            raise TraceError(f"{self.where}: {name}: {error}") from error
        if amount < 0:
            raise self.wrong(name, "an amount of 0 or more")
        return amount

    def wrong(self, name: str, expected: str) -> TraceError:
        found = self._cells.get(name, "")[:60]
        return TraceError(f"{self.where}: {name}: {expected} was expected, found {found!r}")


def _numbered(file: Path, lines: TextIO) -> Iterator[tuple[str, str]]:
    """Yield the lines after the first that are not empty, with where they stand."""
    number = 1
    while line := lines.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise TraceError(f"{file}: line {number}: at most {MAX_LINE} characters a line")
        if line.strip():
            yield f"{file}: line {number}", line


def _rows(file: Path, names: tuple[str, ...], lines: TextIO) -> Iterator[_Line]:
    for where, line in _numbered(file, lines):
        cells = next(csv.reader([line]))
        if len(cells) != len(names):
            raise TraceError(f"{where}: {len(names)} columns were expected, found {len(cells)}")
        yield _Line(where, dict(zip(names, cells, strict=True)))


def _jobs(
    file: Path, lines: Iterator[_Line], job_of: Callable[[int, _Line], Job | None]
) -> tuple[Job, ...]:
    jobs: list[Job] = []
    names: set[str] = set()
    for at, line in enumerate(lines):
        job = job_of(at, line)
        if job is None:
            continue
        if job.pods > MAX_PODS:
            raise TraceError(f"{line.where}: at most {MAX_PODS} pods a job, found {job.pods}")
        if job.name in names:
            raise TraceError(f"{line.where}: a second job {job.name!r}")
        if len(jobs) == MAX_JOBS:
            raise TraceError(f"{line.where}: at most {MAX_JOBS} jobs a trace")
        names.add(job.name)
        jobs.append(job)
    if not jobs:
        raise TraceError(f"{file}: there is no job in it")
    return in_order(jobs)


# --- formats ------------------------------------------------------------------------------------


def _philly(file: Path, lines: Iterator[_Line]) -> Trace:
    def job_of(at: int, line: _Line) -> Job | None:
        groups = pods_of(line.count("num_gpus"), GPUS_A_NODE, GPU)
        run_ns = line.seconds_ns("duration")
        return Job(
            f"job-{at}", line.moment_ns("timestamp"), run_ns, line.text("cluster"), "user", groups
        )

    capacity = {GPU: GPUS_A_NODE, PODS: 110}
    return Trace(file.name, _jobs(file, lines, job_of), GPU, PHILLY_NODES, capacity)


def _muri(file: Path, lines: Iterator[_Line]) -> Trace:
    def job_of(_: int, line: _Line) -> Job | None:
        groups = pods_of(line.count("num_gpu"), GPUS_A_NODE, GPU)
        at_ns = line.count("submit_time") * NANOS_PER_MILLI
        run_ns = line.count("duration") * NANOS_PER_MILLI
        return Job(f"job-{line.text('job_id')}", at_ns, run_ns, "jobs", "user", groups)

    capacity = {GPU: GPUS_A_NODE, PODS: 110}
    return Trace(file.name, _jobs(file, lines, job_of), GPU, MURI_NODES, capacity)


def _openb(file: Path, lines: Iterator[_Line]) -> Trace:
    def job_of(_: int, line: _Line) -> Job | None:
        shares = line.count("gpu_milli", "0") < 1000 and line.count("num_gpu")  # noqa: PLR2004
        if shares:
            return None  # a share of a device: it is in no pod's requests
        pod: Resource = {
            VCORE: line.count("cpu_milli"),
            MEMORY: line.count("memory_mib") * _MIB,
            PODS: 1,
        }
        if line.count("num_gpu"):
            pod[GPU] = line.count("num_gpu")
        at_ns, end_ns = line.seconds_ns("creation_time"), line.seconds_ns("deletion_time")
        run_ns = max(0, end_ns - at_ns)
        return Job(line.text("name"), at_ns, run_ns, "jobs", "user", ((1, pod),))

    return Trace(file.name, _jobs(file, lines, job_of), GPU)


def _own(file: Path, lines: Iterator[_Line]) -> Trace:
    def job_of(at: int, line: _Line) -> Job | None:
        pod: Resource = {
            VCORE: line.quantity("cpu", VCORE),
            MEMORY: line.quantity("memory", MEMORY),
            GPU: line.quantity("gpu", GPU),
        }
        asked = {name: amount for name, amount in pod.items() if amount}
        count = line.count("pods", "1")
        if not asked or not count:
            raise line.wrong("pods", "a pod that asks for something")
        return Job(
            line.text("name", f"job-{at}"),
            line.seconds_ns("submit"),
            line.seconds_ns("run"),
            line.text("queue", "jobs"),
            line.text("user", "user"),
            ((count, {**asked, PODS: 1}),),
            line.seconds_ns("stated", "0"),
        )

    jobs = _jobs(file, lines, job_of)
    has_gpus = any(job.amount(GPU) for job in jobs)
    return Trace(file.name, jobs, GPU if has_gpus else VCORE)


def _swf(file: Path, first: str, lines: TextIO) -> Trace:
    """Read the Standard Workload Format: 18 fields a line, ``;`` before what is said of it all.

    A job's processors are ``Requested`` or else ``Allocated``; one that has neither, or no run
    time, did not run and is left out. ``Requested Time`` is what its owner states.
    """
    said: dict[str, int] = {}

    def a_node() -> int:
        """Return how many processors a node has; what is said of it all comes before the jobs."""
        return max(1, said.get("MaxProcs", 0) // max(1, said.get("MaxNodes", MAX_SECONDS)))

    def job_of(_: int, line: _Line) -> Job | None:
        requested, allocated = int(float(line.text("8"))), int(float(line.text("5")))
        count, run = requested if requested > 0 else allocated, float(line.text("4"))
        if count <= 0 or run < 0:
            return None
        queue, user = line.text("15"), line.text("12")
        return Job(
            f"job-{line.text('1')}",
            line.seconds_ns("2"),
            round(run * NANOS_PER_SECOND),
            f"queue-{queue}" if int(queue) >= 0 else "jobs",
            f"user-{user}" if int(user) >= 0 else "user",
            pods_of(count * PROCESSOR, a_node() * PROCESSOR, VCORE),
            round(max(0.0, float(line.text("9"))) * NANOS_PER_SECOND),
        )

    jobs = _jobs(file, _swf_lines(file, first, lines, said), job_of)
    most = max(job.amount(VCORE) for job in jobs) // PROCESSOR
    nodes = -(-said.get("MaxProcs", most) // a_node())
    return Trace(file.name, jobs, VCORE, nodes, {VCORE: a_node() * PROCESSOR, PODS: 110})


def _swf_lines(file: Path, first: str, lines: TextIO, said: dict[str, int]) -> Iterator[_Line]:
    """Yield the jobs' lines, their fields by number; what ``;`` says goes into ``said``."""
    for where, line in chain([(f"{file}: line 1", first)], _numbered(file, lines)):
        if line.startswith(";"):
            name, _, value = line.lstrip("; ").partition(":")
            if value.strip().isdigit():
                said[name.strip()] = int(value)
            continue
        fields = line.split()
        if len(fields) != _SWF_FIELDS:
            raise TraceError(f"{where}: {_SWF_FIELDS} fields were expected, found {len(fields)}")
        for at, cell in enumerate(fields, start=1):
            if not _is_number(cell):
                raise TraceError(f"{where}: field {at}: a number was expected, found {cell[:60]!r}")
        yield _Line(where, {str(at): cell for at, cell in enumerate(fields, start=1)})


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdigit() and len(text) <= 20  # noqa: PLR2004


_FORMATS: tuple[tuple[tuple[str, ...], Callable[[Path, Iterator[_Line]], Trace]], ...] = (
    (("timestamp", "duration", "num_gpus", "cluster"), _philly),
    (("job_id", "num_gpu", "submit_time", "duration"), _muri),
    (("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time"), _openb),
    (("submit", "run"), _own),
)
