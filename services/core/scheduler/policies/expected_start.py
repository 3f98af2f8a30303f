"""The expected start of an application: the cycle, run forward in virtual time.

Rule 1: a pod ends after its run time, counted from its allocation. Run times are drawn
        (``model/run_times.py``, rule 4) from those of similar pods and from the stated one
        (``muster.io/run-seconds``, ``activeDeadlineSeconds``, execution timeouts), which counts
        alone if no similar pod has ended. A pod being released ends now.
Rule 2: the clock moves to the next end, or to the placeholder timeout of a gang; the pods that end
        then are released, due timers fire, and the cycle runs. What it places ends in turn, if its
        run time is known; releases are confirmed at once. The expected start is when none of an
        application's asks waits any more; there is none if all of them time out before.
Rule 3: this is done DRAWS times with different run times: the result is the median, and the 90th
        percentile. If no run time is random it is done once.
Rule 4: pods with unknown run times run on. If there is no start because of them, they are counted.
        No new applications arrive, and no victims are searched.
Limits: MAX_ENDS ends, and the caller's number of steps: an end, or a decision of the cycle. If they
are used up, the result is the time before which there is no start ("at least"). With more than
MAX_PODS_DRAWN running pods in all draws together there are fewer draws, but LEAST_DRAWS.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, nsmallest

from services.core.scheduler.actions import starvation_guard
from services.core.scheduler.intake import updates
from services.core.scheduler.model.rows import Application
from services.core.scheduler.model.run_times import NEVER_NS, STRATA, chance_of, stated_ns
from services.core.scheduler.policies import firing
from services.core.scheduler.statement.journal import (
    Allocated,
    AllocationReleased,
    AskReleased,
    RunPlaced,
    TimerArmed,
)
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.tentative import tentative
from shared.messages.interface import Allocation, AllocationRelease, TerminationType
from shared.messages.protocol import TimerFired, TimerKind, TimerSet

MAX_ENDS = 1_000  # pod ends that an expected start may wait for; beyond it none is given
DRAWS = STRATA  # of run times, for one expected start
LEAST_DRAWS = 3
MAX_PODS_DRAWN = 100_000  # running pods in all draws together; with more, fewer draws
_LATEST_PERCENT = 90
_FIRED = (TimerKind.PLACEHOLDER, TimerKind.COMPLETING, TimerKind.BACKOFF)  # in a forecast
_GIVEN_UP = "no expected start: its placeholders would time out before it has a place"


@dataclass(frozen=True, slots=True, order=True)
class _End:
    """The known end of a pod."""

    at_ns: int
    key: str
    application_id: str


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    """An armed timer by its due time; a timer that was armed again has two entries."""

    at_ns: int
    timer_id: str
    timer: TimerSet = field(compare=False)


@dataclass(frozen=True, slots=True)
class Start:
    """An application's expected start in ns: the median, and the 90th percentile of the draws.

    0: none, with the reason in ``why``; ``at_least_ns`` is then the time up to which it was
    simulated.
    """

    at_ns: int
    why: str = ""
    most_ns: int = 0
    at_least_ns: int = 0


NOW = Start(0)  # of an application without waiting asks
_OUT_OF_STEPS = "no expected start: to find it takes more steps than a forecast has"


def expected(
    partition: Partition,
    waiting: Mapping[Application, Iterable[str]],
    run: Callable[[], int],
    most: int,
) -> dict[Application, Start]:
    """Return the expected starts of applications, given their waiting asks.

    ``run`` runs the cycle and returns its number of decisions; ``most`` is the limit of steps. The
    partition is unchanged afterwards.
    """
    found: list[dict[Application, Start]] = []
    taken = 0
    draws = 1
    while len(found) < draws and (taken <= most or not found):
        with tentative(partition):
            partition.run_times.learns = False
            draw = _Draw(partition, len(found))
            found.append(draw.forward(waiting, run, most - taken))
        taken += draw.taken
        if draw.is_by_chance:
            draws = min(DRAWS, max(LEAST_DRAWS, MAX_PODS_DRAWN // max(1, draw.running)))
        if draw.is_cut_short and len(found) > 1:
            found.pop()
            break
    return {each: _of_draws([starts[each] for starts in found]) for each in waiting}


def _of_draws(starts: list[Start]) -> Start:
    """Return the result of several draws; no start sorts after any time."""
    ordered = sorted(starts, key=lambda start: start.at_ns or NEVER_NS)
    middle, last = (
        ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, _LATEST_PERCENT)
    )
    if not middle.at_ns:
        return middle
    return replace(middle, most_ns=last.at_ns)


class _Draw:
    """One run forward; it changes the partition."""

    def __init__(self, partition: Partition, number: int) -> None:
        self.partition, self._number = partition, number
        self.taken = self.running = self.known = 0
        self.is_by_chance = self.is_cut_short = False
        self._ends = nsmallest(MAX_ENDS, self._of_running())  # in order, so that it is a heap
        self._timeouts: list[_Due] = []  # two heaps: timers the clock stops at, and others
        self._due: list[_Due] = []
        for timer in partition.timer_orders().armed:
            self._note_timer(timer)

    def forward(
        self, waiting: Mapping[Application, Iterable[str]], run: Callable[[], int], most: int
    ) -> dict[Application, Start]:
        """Return each application's start, within ``most`` steps."""
        partition, ends = self.partition, self._ends
        found: dict[Application, Start] = {}
        known, passed = len(ends), 0
        while (ends or self._timeouts) and len(found) < len(waiting) and passed < MAX_ENDS:
            if self.taken > most:
                self.is_cut_short = True
                out = Start(0, _OUT_OF_STEPS, at_least_ns=partition.now_ns)
                return {application: found.get(application, out) for application in waiting}
            seen, gone = len(partition.journal), self._pass_to_next()
            passed += gone
            self._give_up(waiting, found, seen)
            self.taken += gone + run()
            self._read(partition.journal.since(seen))
            for application, keys in waiting.items():
                if application not in found and application.group_of.keys().isdisjoint(keys):
                    found[application] = Start(partition.now_ns)
        why = _why_none(known, self.running)
        none = Start(0, why, at_least_ns=partition.now_ns if passed >= MAX_ENDS else 0)
        return {application: found.get(application, none) for application in waiting}

    def _pass_to_next(self) -> int:
        """Advance to the next time, end pods and fire timers due then; return how many."""
        partition, ends = self.partition, self._ends
        heads = [end.at_ns for end in ends[:1]] + [due.at_ns for due in self._timeouts[:1]]
        at_ns, gone = min(heads), 0
        if at_ns > partition.now_ns:
            partition.pass_time(at_ns)
            starvation_guard.update(partition)
            if 0 < partition.reservations_due_ns <= at_ns:
                partition.check_old_asks()
        while ends and ends[0].at_ns <= at_ns:
            _end(partition, heappop(ends))
            gone += 1
        for heap in (self._timeouts, self._due):
            while heap and heap[0].at_ns <= at_ns:
                timer = heappop(heap).timer
                generation, owner = timer.generation, timer.application_id
                firing.fire(partition, TimerFired(timer.timer_id, timer.kind, owner, generation))
                gone += 1
        return gone

    def _give_up(
        self,
        waiting: Mapping[Application, Iterable[str]],
        found: dict[Application, Start],
        seen: int,
    ) -> None:
        """Record that applications have no start if a timeout removed all their waiting asks."""
        since = self.partition.journal.since(seen)
        lost = {e.release.application_id for e in since if isinstance(e, AskReleased)}
        for application, keys in waiting.items() if lost else ():
            has_none = application.group_of.keys().isdisjoint(keys)
            if has_none and application.id in lost and application not in found:
                found[application] = Start(0, _GIVEN_UP, at_least_ns=self.partition.now_ns)

    def _read(self, entries: list[object]) -> None:
        """Read the ends of new allocations, releases, and armed timers from journal entries."""
        for entry in entries:
            placed: Iterable[tuple[Application, Allocation]] = ()
            if isinstance(entry, Allocated):
                placed = ((entry.application, entry.allocation),)
            elif isinstance(entry, RunPlaced):
                placed = ((application, allocation) for application, _, allocation in entry.placed)
            elif isinstance(entry, AllocationReleased):
                placed = ((entry.application, entry.allocation),)  # released: it ends now
            elif isinstance(entry, TimerArmed):
                self._note_timer(entry.timer)
            for application, allocation in placed:
                at_ns = self._end_ns(application, allocation)
                if at_ns:
                    heappush(self._ends, _End(at_ns, allocation.allocation_key, application.id))

    def _note_timer(self, timer: TimerSet) -> None:
        if timer.kind in _FIRED:
            heap = self._timeouts if timer.kind is TimerKind.PLACEHOLDER else self._due
            heappush(heap, _Due(timer.due_ns, timer.timer_id, timer))

    def _of_running(self) -> Iterator[_End]:
        for application in self.partition.applications.values():
            for key, allocation in application.allocations.items():
                self.running += 1
                at_ns = self._end_ns(application, allocation)
                if at_ns:
                    yield _End(at_ns, key, application.id)

    def _end_ns(self, application: Application, allocation: Allocation) -> int:
        """Return when an allocation ends; 0: unknown."""
        key, now_ns = allocation.allocation_key, self.partition.now_ns
        if key in application.released:
            return 0 if key in application.stuck else now_ns
        since_ns = application.placed_ns.get(key, now_ns)
        timeout_ms = allocation.exec_timeout_milli_seconds
        stated = stated_ns(application, allocation.allocation_tags, timeout_ms, since_ns)
        chance = chance_of(application, key, self._number)
        times, pod = self.partition.run_times, allocation.resource_per_alloc
        runs_ns = times.drawn_ns(application, pod, now_ns - since_ns, stated, chance)
        self.is_by_chance |= runs_ns != stated
        return since_ns + runs_ns if runs_ns else 0


def _end(partition: Partition, end: _End) -> None:
    """End a pod that still exists, with the reason of its release if it has one."""
    application = partition.applications.get(end.application_id)
    if application is not None and end.key in application.allocations:
        decided = application.released.get(end.key, TerminationType.STOPPED_BY_RM)
        why = TerminationType(decided)
        release = AllocationRelease(application.id, end.key, why, has_succeeded=True)
        updates.release_allocation(partition, release)


def _why_none(known: int, running: int) -> str:
    if known == MAX_ENDS:
        return f"no expected start: it would wait still when the next {MAX_ENDS} pods had ended"
    if known < running:
        unknown = running - known
        return f"no expected start: {unknown} of {running} running pods state no run time"
    return f"no expected start: it would wait still when all {running} running pods had ended"
