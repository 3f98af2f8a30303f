"""The formats of traces, told apart by their first line.

Philly, muri, openb, SWF and our own CSV are here, other published ones in ``published.py``.

Any other table is read as our own CSV where it is said which of its columns is which of ours.
Lines are judged one by one (`lines.py`); the first that does not hold ends it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from services.cli.simulated_nodes import MAX_NODES, PODS_A_NODE
from services.shim_adapter.records import NodeRecord
from shared.model.gpus import GPU, GPU_SHARE, WHOLE
from shared.model.resources import MEMORY, PODS, VCORE, Resource
from shared.model.units import NANOS_PER_MILLI, NANOS_PER_SECOND
from tools.replay.jobs import FOREVER_NS, Job, Trace, TraceError, pods_of
from tools.replay.judged import GPUS_A_NODE, NO_GPU, NO_RUN_TIME, jobs_of_lines, trace_of
from tools.replay.lines import (
    MAX_SECONDS,
    NUMBER,
    Line,
    by_column,
    columns,
    numbered,
    opened,
)
from tools.replay.published import PAI_COLUMNS, acme, helios, is_pai, pai, philly_json

PHILLY_NODES, MURI_NODES = 75, 8
PROCESSOR = 1000  # in vcore
CSV_COLUMNS = (
    "name", "submit", "run", "queue", "user", "pods", "cpu", "memory", "gpu", "gpus", "stated",
)  # fmt: skip
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")
# The 18 fields of a line of the Standard Workload Format, as its definition calls them.
SWF_FIELDS = (
    "Job Number", "Submit Time", "Wait Time", "Run Time", "Number of Allocated Processors",
    "Average CPU Time Used", "Used Memory", "Requested Number of Processors", "Requested Time",
    "Requested Memory", "Status", "User ID", "Group ID", "Executable Number", "Queue Number",
    "Partition Number", "Preceding Job Number", "Think Time from Preceding Job",
)  # fmt: skip
_SWF_SAID = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*([0-9]{1,30})")
_MIB = 2**20
_WHERE_TO_READ = "docs/replay.md has the formats, such as a heading of submit,run,pods,gpu"
Lines = Iterator[tuple[str, str]]


def read(file: Path, ours: Mapping[str, str] | None = None, *, is_allocated: bool = False) -> Trace:
    """Return a trace; ``ours`` names columns of a table for those of our own CSV.

    With ``is_allocated`` a job of SWF has the processors that it got, not those that it asked for.
    Raises TraceError.
    """
    with opened(file) as text:
        lines = numbered(file, text)
        where, first = next(lines, ("", ""))
        if not first:
            raise TraceError(f"{file}: there is nothing in it; {_WHERE_TO_READ}")
        if first.startswith(";") or len(first.split()) == len(SWF_FIELDS):
            return _swf(file, chain([(where, first)], lines), is_allocated=is_allocated)
        if is_allocated:
            raise TraceError(f"{file}: --processors allocated is of the Standard Workload Format")
        if first.lstrip().startswith("["):
            return philly_json(file)
        return _table(file, chain([(where, first)], lines), ours)


def _table(file: Path, lines: Lines, ours: Mapping[str, str] | None) -> Trace:
    """Return the trace of a table, told by its heading. Raises TraceError."""
    where, first = next(lines)
    if is_pai(first):
        return pai(file, by_column(PAI_COLUMNS, chain([(where, first)], lines)))
    names = columns(where, first)
    if ours:
        return _own(file, by_column(_renamed(where, names, ours), lines))
    for _, known, make in _FORMATS:
        if set(known) <= set(names):
            return make(file, by_column(names, lines))
    raise _no_format(where, names)


def _renamed(where: str, names: tuple[str, ...], ours: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the columns by which our own CSV is read; what is not named keeps its.

    A column that has a name of ours, where that is said of another, is not read.
    """
    unknown = [name for name in ours if name not in CSV_COLUMNS]
    if unknown:
        there_are = ", ".join(CSV_COLUMNS)
        raise TraceError(
            f"--columns: {unknown[0]!r} is not a column of Muster's format, which has {there_are}"
        )
    lacking = [theirs for theirs in ours.values() if theirs not in names]
    if lacking:
        raise TraceError(f"{where}: there is no column {lacking[0]!r}")
    by_theirs = {theirs: name for name, theirs in ours.items()}
    found = tuple(by_theirs.get(name, f"({name})" if name in ours else name) for name in names)
    missing = [name for name in ("submit", "run") if name not in found]
    if missing:
        raise TraceError(f"{where}: --columns must say which column is {missing[0]}")
    return found


def _no_format(where: str, names: tuple[str, ...]) -> TraceError:
    """Return the error that says which columns are not there for the format that is the nearest."""
    name, known, _ = max(_FORMATS, key=lambda one: len(set(one[1]) & set(names)) / len(one[1]))
    lacking = [column for column in known if column not in names]
    if len(lacking) == len(known):
        return TraceError(f"{where}: no format has these columns; {_WHERE_TO_READ}")
    more = f"for {name} there must be {', '.join(lacking)} as well"
    return TraceError(f"{where}: no format has these columns: {more}; {_WHERE_TO_READ}")


# --- formats ------------------------------------------------------------------------------------


def _philly(file: Path, lines: Iterator[Line]) -> Trace:
    def job_of(at: int, line: Line) -> Job | str:
        groups = pods_of(line.count("num_gpus"), GPUS_A_NODE, GPU)
        run_ns = line.seconds_ns("duration")
        return Job(
            f"job-{at}", line.moment_ns("timestamp"), run_ns, line.text("cluster"), "user", groups
        )

    capacity = {GPU: GPUS_A_NODE, PODS: PODS_A_NODE}
    return trace_of(file, jobs_of_lines(file, lines, job_of), GPU, PHILLY_NODES, capacity)


def _muri(file: Path, lines: Iterator[Line]) -> Trace:
    def job_of(_: int, line: Line) -> Job | str:
        groups = pods_of(line.count("num_gpu"), GPUS_A_NODE, GPU)
        at_ns = line.count("submit_time") * NANOS_PER_MILLI
        run_ns = line.count("duration") * NANOS_PER_MILLI
        return Job(f"job-{line.text('job_id')}", at_ns, run_ns, "jobs", "user", groups)

    capacity = {GPU: GPUS_A_NODE, PODS: PODS_A_NODE}
    return trace_of(file, jobs_of_lines(file, lines, job_of), GPU, MURI_NODES, capacity)


def _openb(file: Path, lines: Iterator[Line]) -> Trace:
    def job_of(at: int, line: Line) -> Job | str:
        pod: Resource = {
            VCORE: line.count("cpu_milli"),
            MEMORY: line.count("memory_mib") * _MIB,
            PODS: 1,
        }
        number, share = line.count("num_gpu"), line.count("gpu_milli")
        if number > 1 or share >= WHOLE:
            pod[GPU] = number
        elif number:
            pod[GPU_SHARE] = share
        at_ns, run_ns = at * NANOS_PER_SECOND, FOREVER_NS
        if line.has("creation_time"):
            at_ns, end_ns = line.seconds_ns("creation_time"), line.seconds_ns("deletion_time")
            run_ns = end_ns - at_ns
            if run_ns < 0:
                raise line.wrong("deletion_time", "a time that is not before creation_time")
        return Job(line.text("name"), at_ns, run_ns, "jobs", "user", ((1, pod),))

    return trace_of(file, jobs_of_lines(file, lines, job_of), GPU)


def read_nodes(file: Path) -> tuple[NodeRecord, ...]:
    """Return the nodes of a list in openb's format. Raises TraceError."""
    with opened(file) as text:
        lines = numbered(file, text)
        where, first = next(lines, (f"{file}: line 1", ""))
        names = columns(where, first)
        lacking = [name for name in _NODE_COLUMNS if name not in names]
        if lacking:
            raise TraceError(f"{where}: a list of nodes has a column {lacking[0]} as well")
        nodes = [_openb_node(line) for line in islice(by_column(names, lines), MAX_NODES + 1)]
    if not 0 < len(nodes) <= MAX_NODES or len({node.name for node in nodes}) < len(nodes):
        raise TraceError(f"{file}: 1 to {MAX_NODES:,} nodes were expected, no two of one name")
    return tuple(nodes)


def _openb_node(line: Line) -> NodeRecord:
    capacity: Resource = {
        VCORE: line.count("cpu_milli"),
        MEMORY: line.count("memory_mib") * _MIB,
        PODS: PODS_A_NODE,
    }
    if line.count("gpu"):
        capacity[GPU] = line.count("gpu")
    return NodeRecord(line.text("sn"), capacity)


def _own(file: Path, lines: Iterator[Line]) -> Trace:
    def job_of(at: int, line: Line) -> Job | str:
        pod: Resource = {
            VCORE: line.quantity("cpu", VCORE),
            MEMORY: line.quantity("memory", MEMORY),
            GPU: line.quantity("gpu", GPU),
        }
        asked = {name: amount for name, amount in pod.items() if amount}
        count = line.count("pods", "1")
        groups: tuple[tuple[int, Resource], ...] = ((count, {**asked, PODS: 1}),)
        if line.has("gpus"):
            groups = pods_of(line.count("gpus"), GPUS_A_NODE, GPU)
            if not groups:
                return NO_GPU
        elif not asked or not count:
            raise line.wrong("pods", "a pod that asks for something")
        return Job(
            line.text("name", f"job-{at}"),
            line.time_ns("submit"),
            line.seconds_ns("run"),
            line.text("queue", "jobs"),
            line.text("user", "user"),
            groups,
            line.seconds_ns("stated", "0"),
        )

    jobs = jobs_of_lines(file, lines, job_of)
    has_gpus = any(job.amount(GPU) for job in jobs.ordered)
    return trace_of(file, jobs, GPU if has_gpus else VCORE)


def _swf(file: Path, lines: Lines, *, is_allocated: bool) -> Trace:
    """Read the Standard Workload Format: 18 fields a line, ``;`` before what is said of it all.

    A job's processors are ``Requested`` or else ``Allocated``, or the other way round; one that has
    neither, or no run time, did not run and is left out. ``Requested Time`` is what its owner
    states.
    """
    processors = ("Requested Number of Processors", "Number of Allocated Processors")
    first, other = processors[::-1] if is_allocated else processors
    said: dict[str, int] = {}

    def a_node() -> int:
        """Return how many processors a node has; what is said of it all comes before the jobs."""
        return max(1, said.get("MaxProcs", 0) // max(1, said.get("MaxNodes", MAX_SECONDS)))

    def job_of(_: int, line: Line) -> Job | str:
        count = int(line.known(first) or line.known(other) or 0)
        run_s = line.known("Run Time")
        if not count:
            return "asks for no processors"
        if run_s is None:
            return NO_RUN_TIME
        queue, user = line.known("Queue Number"), line.known("User ID")
        return Job(
            f"job-{line.text('Job Number')}",
            line.seconds_ns("Submit Time"),
            round(run_s * NANOS_PER_SECOND),
            "jobs" if queue is None else f"queue-{int(queue)}",
            "user" if user is None else f"user-{int(user)}",
            pods_of(count * PROCESSOR, a_node() * PROCESSOR, VCORE),
            round((line.known("Requested Time") or 0) * NANOS_PER_SECOND),
        )

    jobs = jobs_of_lines(file, _swf_lines(lines, said), job_of)
    most = max(job.amount(VCORE) for job in jobs.ordered) // PROCESSOR
    nodes = -(-said.get("MaxProcs", most) // a_node())
    capacity = {VCORE: a_node() * PROCESSOR, PODS: PODS_A_NODE}
    return trace_of(file, jobs, VCORE, nodes, capacity)


def _swf_lines(lines: Lines, said: dict[str, int]) -> Iterator[Line]:
    """Yield the jobs' lines, their fields by name; what ``;`` says goes into ``said``."""
    for where, line in lines:
        if line.startswith(";"):
            match = _SWF_SAID.match(line)
            if match is not None:
                said[match[1]] = Line(where, {match[1]: match[2]}).count(match[1])
            continue
        fields = line.split()
        if len(fields) != len(SWF_FIELDS):
            raise TraceError(
                f"{where}: {len(SWF_FIELDS)} fields were expected, found {len(fields)}"
            )
        cells = Line(where, dict(zip(SWF_FIELDS, fields, strict=True)))
        for name, field in zip(SWF_FIELDS, fields, strict=True):
            if not NUMBER.fullmatch(field.removeprefix("-")):
                raise cells.wrong(name, "a number")
        yield cells


_FORMATS: tuple[tuple[str, tuple[str, ...], Callable[[Path, Iterator[Line]], Trace]], ...] = (
    ("philly", ("timestamp", "duration", "num_gpus", "cluster"), _philly),
    ("helios", ("job_id", "user", "vc", "gpu_num", "submit_time", "duration"), helios),
    ("acme", ("job_id", "user", "type", "gpu_num", "submit_time", "duration"), acme),
    ("pai", PAI_COLUMNS, pai),
    ("muri", ("job_id", "num_gpu", "submit_time", "duration"), _muri),
    ("openb", ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), _openb),
    ("the CSV of our own", ("submit", "run"), _own),
)
