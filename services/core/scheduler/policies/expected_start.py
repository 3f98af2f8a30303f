"""When all of an application would have started, by what running pods say of how long they run.

Rule 1: a pod ends when its time is up, counted from when it was placed: what it states itself
        (``muster.io/run-seconds``, ``activeDeadlineSeconds``), or its own or its application's
        execution timeout, the first of these. One that is being released ends now.
Rule 2: the expected start is the end of the first pod at which, with it and all before it gone and
        everybody who waits placed in the order of the queues, all of the application is placed. The
        room that there is now it takes now. Who is placed meanwhile is supposed to run on, and
        nobody new to come; those who wait get what has ended by then at once, not one by one.
Rule 3: pods of which nothing is known run on. Where that leaves no start, they are counted.
Limits: MAX_ENDS ends; their moments are searched by halves, as more ends leave no less room.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import nsmallest

from services.core.scheduler.model.rows import Application
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.names import RUN_SECONDS
from shared.model.numbers import parse_uint64
from shared.model.units import milliseconds, seconds

MAX_ENDS = 1_000  # pods whose ends an expected start may wait for; there is none, and it says so


@dataclass(frozen=True, slots=True, order=True)
class End:
    """A pod that ends, by what is known of it."""

    at_ns: int
    key: str
    application: Application
    allocation: Allocation


class OutOfStepsError(RuntimeError):
    """A forecast has no steps left."""


Whole = Callable[[list[End]], frozenset[str]]  # which applications are whole after some ends


@dataclass(frozen=True, slots=True)
class Start:
    """When an application is expected to have started; 0: never, and ``why`` says so."""

    at_ns: int
    why: str = ""


def expected(partition: Partition, names: list[str], whole: Whole) -> dict[str, Start]:
    """Return the expected starts of some applications; ``whole`` may raise OutOfStepsError."""
    ends, running = _ends(partition)
    known: dict[int, frozenset[str]] = {}

    def whole_after(count: int) -> frozenset[str]:
        if count not in known:
            known[count] = whole(ends[:count])
        return known[count]

    try:
        return {name: _start(partition, name, ends, running, whole_after) for name in names}
    except OutOfStepsError:
        why = "no expected start: to find it takes more steps than a forecast has"
        return {name: Start(0, why) for name in names}


def _start(
    partition: Partition,
    name: str,
    ends: list[End],
    running: int,
    whole_after: Callable[[int], frozenset[str]],
) -> Start:
    if not ends or name not in whole_after(len(ends)):
        return Start(0, _why_none(len(ends), running))
    counts = [at + 1 for at, end in enumerate(ends[:-1]) if end.at_ns < ends[at + 1].at_ns]
    first = bisect_left(counts, True, key=lambda count: name in whole_after(count))
    last = counts[first] if first < len(counts) else len(ends)
    return Start(max(partition.now_ns, ends[last - 1].at_ns))


def _why_none(known: int, running: int) -> str:
    if known == MAX_ENDS:
        return f"no expected start: it would wait still when the next {MAX_ENDS} pods had ended"
    if known < running:
        unknown = running - known
        return f"no expected start: {unknown} of {running} running pods state no run time"
    return f"no expected start: it would wait still when all {running} running pods had ended"


def _ends(partition: Partition) -> tuple[list[End], int]:
    """Return the first pods to end, and how many run in all."""
    running = 0

    def known() -> Iterator[End]:
        nonlocal running
        for application in partition.applications.values():
            own_ns = _own_end_ns(application)
            for key, allocation in application.allocations.items():
                if key in application.replacing or key in application.covering:
                    continue  # what it leaves is for its own
                running += 1
                at_ns = _end_ns(partition, application, allocation, own_ns)
                if at_ns:
                    yield End(at_ns, key, application, allocation)

    found = nsmallest(MAX_ENDS, known(), key=lambda end: (end.at_ns, end.key))
    return found, running


def _own_end_ns(application: Application) -> int:
    """Return when the application's own time is up; 0: never."""
    timeout_ms = application.execution_timeout_ms
    if not (timeout_ms and application.execution_start_ns):
        return 0
    return application.execution_start_ns + milliseconds(timeout_ms)


def _end_ns(
    partition: Partition, application: Application, allocation: Allocation, own_ns: int
) -> int:
    """Return when an allocation ends; 0: not known."""
    key = allocation.allocation_key
    if key in application.released:
        return 0 if application.moves(key) else partition.now_ns
    since_ns = application.placed_ns.get(key, partition.now_ns)
    stated = parse_uint64(allocation.allocation_tags.get(RUN_SECONDS, ""))
    ends = (
        own_ns,
        since_ns + seconds(stated) if stated else 0,
        since_ns + milliseconds(allocation.exec_timeout_milli_seconds)
        if allocation.exec_timeout_milli_seconds > 0
        else 0,
    )
    return min((end for end in ends if end), default=0)
