"""When all of an application would have started, by what running pods say of how long they run.

Rule 1: a pod ends when its time is up, counted from when it was placed: what it states itself
        (``muster.io/run-seconds``, ``activeDeadlineSeconds``), or its own or its application's
        execution timeout, the first of these. One that is being released ends now.
Rule 2: the clock is moved to the next end, the pods that end then are released, and the cycle runs,
        as it will. What it places, and says for how long it runs, ends in its turn. The expected
        start is when none of an application's asks waits any more.
Rule 3: pods of which nothing is known run on. Where that leaves no start, they are counted. Nobody
        new comes, nobody is preempted, and no timeout of a gang that waits passes.
Limits: MAX_ENDS ends, and as many steps as the caller says: an end, or a decision of the cycle.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest

from services.core.scheduler.actions import patience
from services.core.scheduler.intake import updates
from services.core.scheduler.model.rows import Application
from services.core.scheduler.model.run_times import stated_ns
from services.core.scheduler.statement.journal import Allocated, RunPlaced
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation, AllocationRelease, TerminationType

MAX_ENDS = 1_000  # pods whose ends an expected start may wait for; there is none, and it says so


@dataclass(frozen=True, slots=True, order=True)
class _End:
    """A pod that ends, by what is known of it."""

    at_ns: int
    key: str
    application_id: str


@dataclass(frozen=True, slots=True)
class Start:
    """When an application is expected to have started; 0: never, and ``why`` says so."""

    at_ns: int
    why: str = ""


NOW = Start(0)  # of what waits for nothing
_OUT_OF_STEPS = Start(0, "no expected start: to find it takes more steps than a forecast has")


def expected(
    partition: Partition,
    waiting: Mapping[Application, Iterable[str]],
    run: Callable[[], int],
    most: int,
) -> dict[Application, Start]:
    """Return the expected starts of applications, of which these asks wait.

    ``run`` runs the cycle and returns how many decisions it made; ``most`` is how many steps may be
    taken. The partition is left as it would be at the last of them.
    """
    ends, running = _ends(partition)
    known = len(ends)
    heapify(ends)
    found: dict[Application, Start] = {}
    taken = passed = 0
    while ends and len(found) < len(waiting) and passed < MAX_ENDS:
        if taken > most:
            return {application: found.get(application, _OUT_OF_STEPS) for application in waiting}
        seen, gone = len(partition.journal), _pass_to_next(partition, ends)
        passed += gone
        taken += gone + run()
        for end in _of_placed(partition, partition.journal.since(seen)):
            heappush(ends, end)
        for application, keys in waiting.items():
            if application not in found and application.group_of.keys().isdisjoint(keys):
                found[application] = Start(partition.now_ns)
    none = Start(0, _why_none(known, running))
    return {application: found.get(application, none) for application in waiting}


def _pass_to_next(partition: Partition, ends: list[_End]) -> int:
    """Let it be the moment of the next end, and end all that end then; return how many."""
    at_ns, gone = ends[0].at_ns, 0
    if at_ns > partition.now_ns:
        partition.pass_time(at_ns)
        patience.look(partition)
        if 0 < partition.reservations_due_ns <= at_ns:
            partition.look_for_old_asks()
    while ends and ends[0].at_ns <= at_ns:
        end = heappop(ends)
        application = partition.applications.get(end.application_id)
        if application is not None and end.key in application.allocations:
            decided = application.released.get(end.key, TerminationType.STOPPED_BY_RM)
            why = TerminationType(decided)
            release = AllocationRelease(application.id, end.key, why, has_succeeded=True)
            updates.release_allocation(partition, release)
        gone += 1
    return gone


def _of_placed(partition: Partition, entries: list[object]) -> Iterator[_End]:
    """Yield the ends of what has been placed."""
    for entry in entries:
        placed: Iterable[tuple[Application, Allocation]] = ()
        if isinstance(entry, Allocated):
            placed = ((entry.application, entry.allocation),)
        elif isinstance(entry, RunPlaced):
            placed = ((application, allocation) for application, _, allocation in entry.placed)
        for application, allocation in placed:
            at_ns = _end_ns(partition, application, allocation)
            if at_ns:
                yield _End(at_ns, allocation.allocation_key, application.id)


def _why_none(known: int, running: int) -> str:
    if known == MAX_ENDS:
        return f"no expected start: it would wait still when the next {MAX_ENDS} pods had ended"
    if known < running:
        unknown = running - known
        return f"no expected start: {unknown} of {running} running pods state no run time"
    return f"no expected start: it would wait still when all {running} running pods had ended"


def _ends(partition: Partition) -> tuple[list[_End], int]:
    """Return the first pods to end, and how many run in all."""
    running = 0

    def known() -> Iterator[_End]:
        nonlocal running
        for application in partition.applications.values():
            for key, allocation in application.allocations.items():
                running += 1
                at_ns = _end_ns(partition, application, allocation)
                if at_ns:
                    yield _End(at_ns, key, application.id)

    return nsmallest(MAX_ENDS, known()), running


def _end_ns(partition: Partition, application: Application, allocation: Allocation) -> int:
    """Return when an allocation ends; 0: not known."""
    key, now_ns = allocation.allocation_key, partition.now_ns
    if key in application.released:
        return 0 if key in application.stuck else now_ns
    since_ns = application.placed_ns.get(key, now_ns)
    timeout_ms = allocation.exec_timeout_milli_seconds
    runs_ns = stated_ns(application, allocation.allocation_tags, timeout_ms, since_ns)
    return since_ns + runs_ns if runs_ns else 0
