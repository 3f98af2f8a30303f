"""A trace through the scheduler itself, in time that jumps to what is due next.

Rule 1: all that is due at a moment is handed in at once: first who ends, then who comes; a timer
        that the scheduler armed fires when it is due. Nothing takes time but the jobs.
Rule 2: a job of one pod is an application with one ask. A job of several is a gang: placeholders
        first; when all have a place the real pods take it, and the job runs from then on.
        A gang that empty nodes could not hold is not submitted (``too_large.py``).
Rule 3: who is evicted starts again, and what it ran is lost: a job of one pod by another pod of its
        application, as a controller makes it, a gang as a new application of the same job.
        Where the setup has a preemption cost it goes on from there instead: it runs for what was
        left and so many seconds more, which its pods state (``muster.io/restart-seconds``).
Rule 4: where the setup has a placeholder timeout, a gang that has not got all its placeholders by
        then gives them back: a soft one asks for its pods one by one, a hard one does not run.
Rule 5: where the setup has a topology, gangs ask for it that an empty rack could hold.
Rule 6: where it has a minimum, a gang starts with that share of its pods, and the others join it
        as they are placed: with half of them it takes twice as long.
Limit: without one a job waits for as long as the trace goes on: the placeholder timeout is then
        MAX_DURATION_NS, which is never reached: a replay with jobs that end later is an error.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from services.api.projection.projection import Projection
from services.api.why.standing import why
from services.core.configuration import parse_configuration
from services.core.plugins import find_plugin
from services.core.scheduler.scheduler import Scheduler
from services.shim_adapter.records import NodeRecord
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import (
    NO_GANG_SETTINGS,
    NO_TOPOLOGY,
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationRelease,
    GangSettings,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    SubGroup,
    TerminationType,
    UpdatedApplication,
    UpdateRequest,
    UpdateResponse,
    UserGroupInformation,
)
from shared.messages.protocol import (
    ContinueCycle,
    Heartbeat,
    SyncBegin,
    SyncEnd,
    TimerFired,
    TimerFirings,
    TimerOrders,
    TimerSet,
)
from shared.messages.what_if import Forecast, WhatIf
from shared.model.names import CHECKPOINT_SECONDS, JOB, RESTART_SECONDS, RUN_SECONDS
from shared.model.resources import add_into, multiply
from shared.model.states import ApplicationState
from shared.model.units import MAX_DURATION_NS, NANOS_PER_MILLI, NANOS_PER_SECOND
from tools.replay.jobs import FOREVER_NS, Job, Trace, TraceError
from tools.replay.setup import Setup
from tools.replay.too_large import TOO_LARGE, Room, rooms_of_racks, sentence_of

START_NS = 1_767_225_600 * NANOS_PER_SECOND  # 2026-01-01
RM_ID = "replay"
BATCH = 1_000  # nodes in one message
NEVER_STARTED = "never started"
TIMED_OUT = "its placeholders timed out, and it is hard"
Watch = Callable[[int], None]  # told how many jobs have ended since last time


@dataclass(slots=True, eq=False)
class Run:
    """What became of one job; times are from the first submission on, -1: it did not come to it.

    ``began`` counts its beginnings: more than one where it was evicted. ``lost_ns`` is what it ran
    in vain, as it was evicted: for starting over, and work that it had to do again.
    """

    job: Job
    application_id: str
    started_ns: int = -1
    ended_ns: int = -1
    began: int = 0
    refused: str = ""
    is_waiting: bool = False
    held: dict[str, tuple[str, int]] = field(default_factory=dict)  # by pod: node, size
    nodes: tuple[str, ...] = ()  # of its last beginning
    began_ns: int = -1  # its last beginning
    left_ns: int = 0  # for how long it runs from then on, with all its pods
    paced_ns: int = 0  # since when it has as many pods as now
    pace: int = 0  # with how many of them it has run since then
    version: int = 0  # of its end: another pace makes it another
    restart_ns: int = 0  # what of that is for starting over
    before_ns: int = 0  # for how long it ran in its other beginnings
    lost_ns: int = 0
    places: int = 0  # of its placeholders that were bound
    real: int = 0  # of its real pods that are bound

    @property
    def wait_ns(self) -> int:
        """Return how long it did not run, or ran in vain, from its submission to its end.

        Of a job that was never evicted, or has not ended, it is the time until its first start.
        """
        if self.began > 1 and self.ended_ns >= 0:
            return self.ended_ns - self.job.submitted_ns - self.job.run_ns
        return self.started_ns - self.job.submitted_ns

    def evicted(self, now_ns: int, cost_ns: int | None) -> None:
        """Count that it is evicted as it runs; without a cost all that it ran is lost."""
        ran_ns = now_ns - self.began_ns
        self.before_ns += ran_ns
        if cost_ns is None:
            self.lost_ns += ran_ns
            return
        in_vain_ns = min(ran_ns, self.restart_ns)
        self.lost_ns += in_vain_ns
        self.left_ns += cost_ns - self.restart_ns - (ran_ns - in_vain_ns)
        self.restart_ns = cost_ns

    @property
    def left_out(self) -> str:
        """Return why it did not run, in a word or in the scheduler's words; "": it did."""
        return self.refused or ("" if self.started_ns >= 0 else NEVER_STARTED)


@dataclass(slots=True)
class Series:
    """What was so from a moment on: used and free of the size, free on nodes in part, waiting."""

    at_ns: "array[int]" = field(default_factory=lambda: array("q"))
    used: "array[int]" = field(default_factory=lambda: array("q"))
    broken: "array[int]" = field(default_factory=lambda: array("q"))  # free beside what is used
    waiting: "array[int]" = field(default_factory=lambda: array("q"))
    evictions: "array[int]" = field(default_factory=lambda: array("q"))  # so far

    def columns(self) -> "tuple[array[int], ...]":
        """Return all of them, the moments first."""
        return self.at_ns, self.used, self.broken, self.waiting, self.evictions


@dataclass(frozen=True, slots=True)
class Forecasted:
    """What was told of a job that waits, from the first submission on; start_ns 0: no start."""

    run: Run
    asked_ns: int
    start_ns: int
    latest_ns: int


@dataclass(slots=True)
class Outcome:
    """A replay that has ended."""

    trace: Trace
    setup: Setup
    runs: list[Run]
    series: Series
    capacity: int  # of the size that jobs are told by
    evictions: int = 0
    decisions: int = 0
    held_idle: int = 0  # what stood idle on the nodes held for the head gang, times ns
    timed_out: int = 0  # gangs whose placeholders timed out
    waits_for: str = ""  # of the first job that never started, why, in the words of `muster why`
    forecasts: list[Forecasted] = field(default_factory=list)


class Replay:
    """One replay: the scheduler, and all that happens to it."""

    def __init__(
        self, trace: Trace, setup: Setup, watch: Watch = lambda _: None, *, ask_every: int = 0
    ) -> None:
        self.trace, self.setup = trace, setup
        self.forecasts: list[Forecasted] = []
        self._ask_every, self._waited = ask_every, 0  # every so-many-th that waits; 0: none
        self.scheduler = Scheduler(RM_ID, parse_configuration, find_plugin, has_readers=False)
        self.runs = [Run(job, job.name, left_ns=job.run_ns) for job in trace.jobs]
        self.now_ns = 0
        cost_s = setup.preemption_cost_s
        self._cost_ns = None if cost_s is None else cost_s * NANOS_PER_SECOND
        self._costs = (
            {} if cost_s is None else {CHECKPOINT_SECONDS: "1", RESTART_SECONDS: str(cost_s)}
        )
        self.evictions = self.timed_out = 0
        self.series = Series()
        self._watch = watch
        self._room = Room(setup.nodes)
        self._racks = rooms_of_racks(setup.nodes, setup.racks)
        self._of: dict[str, Run] = {}
        self._again: list[Run] = []  # evicted, to be submitted once their ends are handed in
        self._ends: list[tuple[int, int, int, Run]] = []  # a heap: when, number, version
        self._timers: dict[str, TimerSet] = {}
        self._due: list[tuple[int, str, str]] = []  # a heap of those timers, with generations
        self._numbers = count()
        self._ids = count(1)
        self._waiting = self._used = self._broken = 0
        self._used_of: dict[str, int] = {}
        self._size_of_node = {n.name: n.capacity.get(trace.size_of, 0) for n in setup.nodes}

    def run(self) -> Outcome:
        """Replay all jobs; those that still wait when nothing is left to come never start.

        Raises TraceError.
        """
        self._begin()
        coming = iter(self.runs)
        next_run = next(coming, None)
        while True:
            at_ns = self._next_ns(next_run)
            if at_ns is None:
                break
            self.now_ns = max(self.now_ns, at_ns)
            request = _Request()
            ended = self._end_due(request)
            came: list[Run] = []
            while next_run is not None and next_run.job.submitted_ns <= self.now_ns:
                self._submit(request, next_run)
                came.append(next_run)
                next_run = next(coming, None)
            fired = self._fired()
            for message in self._send(TimerFirings(fired)) if fired else ():
                self._take(message, request)
            self._hand_in(request)
            self._ask_about(came)
            self._note()
            if ended:
                self._watch(ended)
        capacity = sum(self._size_of_node.values())
        decisions = self.scheduler.decisions
        waits_for = self._why_waiting()
        return Outcome(
            self.trace, self.setup, self.runs, self.series, capacity, self.evictions, decisions,
            self.scheduler.partition.idle_allowance.total, self.timed_out, waits_for,
            self.forecasts,
        )  # fmt: skip

    def _ask_about(self, came: list[Run]) -> None:
        """Ask when jobs start that came and wait, of so many one."""
        for run in came if self._ask_every else ():
            if not run.is_waiting:
                continue
            self._waited += 1
            if self._waited % self._ask_every == 0:
                self.forecasts.append(self._asked(run))

    def _asked(self, run: Run) -> Forecasted:
        """Ask the scheduler when a job starts."""
        number = next(self._ids)
        question = Envelope(
            f"m{number}", "WhatIf", WhatIf(when=(run.application_id,)), CORE, RM_ID, epoch=1,
            reply_to=f"{RM_ID}.one#{number}",
        )  # fmt: skip
        now_ns = START_NS + self.now_ns
        self.scheduler.handle(question, now_ns)
        for answer in self.scheduler.flush(now_ns):
            match answer.message:
                case Forecast(done=True, applications=(told, *_)) if told.expected_start_ns:
                    start, latest = told.expected_start_ns, told.latest_start_ns
                    after = latest - START_NS if latest else FOREVER_NS
                    return Forecasted(run, self.now_ns, start - START_NS, after)
                case _:
                    pass
        return Forecasted(run, self.now_ns, 0, 0)

    def _why_waiting(self) -> str:
        """Return why the first of the jobs that never started waits, or ""."""
        left = (
            run
            for run in self.runs
            if run.started_ns < 0 and (run.is_waiting or run.refused == TOO_LARGE)
        )
        waiting = next(left, None)
        if waiting is None:
            return ""
        if waiting.refused:
            return sentence_of(waiting.job)
        projection = Projection(RM_ID)
        snapshot = self.scheduler.snapshot()
        told = Envelope("state", type(snapshot).__name__, snapshot, CORE, RM_ID, epoch=1)
        projection.handle(told, START_NS + self.now_ns)
        answer = why(projection.model, waiting.application_id)
        return answer.sentence if answer is not None else ""

    def _next_ns(self, next_run: Run | None) -> int | None:
        """Return when something happens next; None: nothing that a job would start or end by."""
        moments = [heap[0][0] for heap in (self._ends, self._due) if heap]
        if next_run is not None:
            moments.append(next_run.job.submitted_ns)
        elif not self._of:
            return None
        at_ns = min(moments, default=MAX_DURATION_NS)
        if at_ns < MAX_DURATION_NS:
            return at_ns
        if next_run is None and not self._ends:
            return None
        raise TraceError(f"{self.trace.name}: its jobs run for more than 100 years in all")

    # --- messages -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._send(Heartbeat(RM_ID), epoch=0)
        self._send(SyncBegin(self.setup.queues, tuple(self.setup.scheduler.items())))
        for nodes in _batches(self.setup.nodes):
            infos = tuple(
                NodeInfo(
                    n.name, NodeAction.CREATE, n.capacity, {}, labels=n.labels, taints=n.taints
                )
                for n in nodes
            )
            self._send(UpdateRequest(RM_ID, nodes=infos))
        self._send(SyncEnd(len(self.setup.nodes), 0, 0))

    def _hand_in(self, request: "_Request") -> None:
        """Hand a request in, and then what its answers lead to, until nothing more comes of it.

        A job that was evicted comes again when it has been said that it ended.
        """
        while not request.is_empty:
            again, self._again = self._again, []
            answer = _Request()
            for message in self._send(request.message()):
                self._take(message, answer)
            for run in again:
                self._come_again(answer, run)
            request = answer

    def _send(self, message: object, epoch: int = 1) -> list[UpdateResponse]:
        """Let the scheduler handle a message, and all that it wants to go on with."""
        found: list[UpdateResponse] = []
        now_ns = START_NS + self.now_ns
        waiting = [message]
        while waiting:
            item = waiting.pop()
            kind, number = type(item).__name__, next(self._ids)
            envelope = Envelope(f"m{number}", kind, item, CORE, RM_ID, epoch=epoch)
            answers = self.scheduler.handle(envelope, now_ns) + self.scheduler.flush(now_ns)
            for answer in answers:
                match answer.message:
                    case UpdateResponse() as response:
                        found.append(response)
                    case ContinueCycle() as more:
                        waiting.append(more)
                    case TimerOrders() as orders:
                        self._order(orders)
                    case _:
                        pass  # what is told to users
        return found

    def _take(self, response: UpdateResponse, answer: "_Request") -> None:
        """Do what the scheduler decided."""
        for rejected in response.rejected_applications:
            self._refuse(rejected.application_id, rejected.reason)
        for refused in response.rejected_allocations:
            self._refuse(refused.application_id, refused.reason)
        for allocation in response.new_allocations:
            self._bind(allocation, answer)
        for release in response.released_allocations:
            self._release(release, answer)
        for updated in response.updated_applications:
            self._time_out(updated, answer)

    # --- timers ---------------------------------------------------------------------------------

    def _order(self, orders: TimerOrders) -> None:
        if orders.reset:
            self._timers.clear()
        for cancelled in orders.cancelled:
            known = self._timers.get(cancelled.timer_id)
            if known is not None and known.generation == cancelled.generation:
                del self._timers[cancelled.timer_id]
        for timer in orders.armed:
            self._timers[timer.timer_id] = timer
            due_ns = max(timer.due_ns - START_NS, self.now_ns)
            heappush(self._due, (due_ns, timer.timer_id, timer.generation))

    def _fired(self) -> tuple[TimerFired, ...]:
        """Return the timers that are due, each of which fires once."""
        fired: list[TimerFired] = []
        while self._due and self._due[0][0] <= self.now_ns:
            _, timer_id, generation = heappop(self._due)
            timer = self._timers.get(timer_id)
            if timer is not None and timer.generation == generation:
                del self._timers[timer_id]
                fired.append(TimerFired(timer_id, timer.kind, timer.application_id, generation))
        return tuple(fired)

    # --- jobs -----------------------------------------------------------------------------------

    def _submit(self, request: "_Request", run: Run) -> None:
        job = run.job
        if job.pods > 1 and not self._room.could_hold(job):
            run.refused = TOO_LARGE
            return
        self._of[run.application_id] = run
        run.is_waiting = True
        self._waiting += 1
        is_gang = job.pods > 1
        wanted: dict[str, int] = {}
        for members, pod in job.groups if is_gang else ():
            add_into(wanted, multiply(pod, self._least(members)))
        request.applications.append(
            AddApplicationRequest(
                run.application_id,
                f"root.{job.queue}",
                ugi=UserGroupInformation(job.user),
                tags={JOB: job.name},
                placeholder_ask=wanted,
                placeholder_timeout_milli_seconds=self._timeout_ns() // NANOS_PER_MILLI,
                gang_scheduling_style=self.setup.gang_style,
                gang=self._gang_of(job),
            )
        )
        request.asks += self._asks(run, is_placeholder=is_gang)

    def _least(self, members: int) -> int:
        """Return how many of so many pods start together."""
        return -(-members * self.setup.minimum_percent // 100)

    def _least_of(self, job: Job) -> int:
        return sum(self._least(members) for members, _ in job.groups)

    def _gang_of(self, job: Job) -> GangSettings:
        topology = self.setup.topology
        if topology == NO_TOPOLOGY or job.pods == 1 or not self.fits_a_rack(job):
            return NO_GANG_SETTINGS
        layout = tuple(
            SubGroup(f"group-{at}", "", self._least(members))
            for at, (members, _) in enumerate(job.groups)
        )
        return GangSettings(layout=layout, topology=topology)

    def fits_a_rack(self, job: Job) -> bool:
        """Return whether a rack without pods could hold a job."""
        return any(room.could_hold(job) for room in self._racks)

    def _timeout_ns(self) -> int:
        return self.setup.placeholder_timeout_s * NANOS_PER_SECOND or MAX_DURATION_NS

    def _asks(self, run: Run, *, is_placeholder: bool) -> Iterator[AllocationAsk]:
        job, prefix = run.job, "ph-" if is_placeholder else ""
        if run.began and job.pods == 1:  # it has had other pods
            prefix = f"{run.began}."
        tags = dict(self._costs)
        if job.stated_ns:
            tags[RUN_SECONDS] = str(-(-job.stated_ns // NANOS_PER_SECOND))
        is_gang = job.pods > 1
        for at, (members, pod) in enumerate(job.groups):
            for member in range(self._least(members) if is_placeholder else members):
                yield AllocationAsk(
                    f"{run.application_id}-{prefix}{at}-{member}",
                    run.application_id,
                    pod,
                    task_group_name=f"group-{at}" if is_gang else "",
                    placeholder=is_placeholder,
                    create_time_ns=START_NS + self.now_ns,
                    allocation_tags=tags,
                )

    def _bind(self, allocation: Allocation, answer: "_Request") -> None:
        run = self._of[allocation.application_id]
        amount = allocation.resource_per_alloc.get(self.trace.size_of, 0)
        run.held[allocation.allocation_key] = (allocation.node_id, amount)
        self._count(allocation.node_id, amount)
        if allocation.placeholder:
            run.places += 1
            if run.places == self._least_of(run.job):
                answer.asks += self._asks(run, is_placeholder=False)
            return
        run.real += 1
        if not run.is_waiting:
            self._go_on(run)
        elif run.real == self._least_of(run.job):
            self._start(run)

    def _start(self, run: Run) -> None:
        run.is_waiting = False
        run.began += 1
        run.began_ns = self.now_ns
        run.nodes = tuple(dict.fromkeys(node for node, _ in run.held.values()))
        self._waiting -= 1
        if run.started_ns < 0:
            run.started_ns = self.now_ns
        self._go_on(run)

    def _pace(self, run: Run) -> int:
        """Return with how many of its pods a job runs."""
        return run.real

    def _go_on(self, run: Run) -> None:
        """Have a job end when it does by the pods that it has now."""
        pods = run.job.pods
        run.left_ns -= (self.now_ns - run.paced_ns) * run.pace // pods
        run.paced_ns, run.pace = self.now_ns, self._pace(run)
        run.version += 1
        if run.job.run_ns < FOREVER_NS and run.pace:
            run.nodes = tuple(dict.fromkeys(node for node, _ in run.held.values()))
            end_ns = self.now_ns - (-run.left_ns * pods // run.pace)
            heappush(self._ends, (end_ns, next(self._numbers), run.version, run))

    def _end_due(self, request: "_Request") -> int:
        """Have the jobs end that are due; return how many they are."""
        ended = 0
        while self._ends and self._ends[0][0] <= self.now_ns:
            _, _, version, run = heappop(self._ends)
            if run.is_waiting or run.version != version:
                continue  # it was evicted, or has other pods
            run.ended_ns = self.now_ns
            run.lost_ns += run.restart_ns
            ended += 1
            self._leave(run, request)
        return ended

    def _leave(self, run: Run, request: "_Request", *, has_succeeded: bool = True) -> None:
        """Take a job out: its pods have ended, and nobody has to hear of it again."""
        name = run.application_id
        for key, (node, amount) in run.held.items():
            self._count(node, -amount)
            request.releases.append(
                AllocationRelease(
                    name, key, TerminationType.STOPPED_BY_RM, has_succeeded=has_succeeded
                )
            )
        request.removed.append(RemoveApplicationRequest(name))
        del self._of[name]
        run.held.clear()

    def _release(self, release: AllocationRelease, answer: "_Request") -> None:
        """Confirm what the scheduler takes back; who is evicted comes again."""
        answer.releases.append(release)
        run = self._of.get(release.application_id)
        if run is None:
            return
        node, amount = run.held.pop(release.allocation_key, ("", 0))
        if node:
            self._count(node, -amount)
        if release.termination_type is TerminationType.PREEMPTED_BY_SCHEDULER:
            if run.is_waiting or run.real <= self._least_of(run.job):
                self._restart(run, answer)
            else:
                self._lose_one(run, release.allocation_key, answer)

    def _lose_one(self, run: Run, key: str, answer: "_Request") -> None:
        """Take a pod from a job that goes on without it, and ask for another."""
        run.real -= 1
        self._go_on(run)
        at = int(key.removeprefix(f"{run.application_id}-").split("-")[0])
        self.evictions += 1
        members, pod = run.job.groups[at]
        answer.asks.append(
            AllocationAsk(
                f"{run.application_id}-{at}-{members + self.evictions}",
                run.application_id,
                pod,
                task_group_name=f"group-{at}",
                create_time_ns=START_NS + self.now_ns,
            )
        )

    def _time_out(self, updated: UpdatedApplication, answer: "_Request") -> None:
        """Do what a gang does whose placeholders have timed out."""
        run = self._of.get(updated.application_id)
        if run is None or not run.is_waiting:
            return
        if updated.state == ApplicationState.RESUMING:
            self.timed_out += 1
            answer.asks += self._asks(run, is_placeholder=False)
        elif updated.state in (ApplicationState.FAILING, ApplicationState.FAILED):
            self.timed_out += 1
            self._refuse(run.application_id, TIMED_OUT)

    def _restart(self, run: Run, answer: "_Request") -> None:
        self.evictions += 1
        if run.is_waiting:
            self._waiting -= 1
        else:
            run.evicted(self.now_ns, self._cost_ns)
        run.places = run.real = run.pace = 0
        if self._cost_ns is None:
            run.left_ns = run.job.run_ns
        if run.job.pods > 1:
            self._leave(run, answer, has_succeeded=False)
            run.application_id = f"{run.job.name}.{self.evictions}"
        self._again.append(run)

    def _come_again(self, request: "_Request", run: Run) -> None:
        """Submit an evicted job again, or its pod."""
        if run.job.pods > 1:
            self._submit(request, run)
            return
        run.is_waiting = True
        self._waiting += 1
        request.asks += self._asks(run, is_placeholder=False)

    def _refuse(self, name: str, reason: str) -> None:
        run = self._of.pop(name, None)
        if run is not None:
            run.refused, run.is_waiting = reason, False
            self._waiting -= 1

    # --- what is counted ------------------------------------------------------------------------

    def _count(self, node: str, amount: int) -> None:
        """Count what a node has more in use, and what is free beside something that is used."""
        before, size = self._used_of.get(node, 0), self._size_of_node[node]
        after = self._used_of[node] = before + amount
        self._used += amount
        self._broken += (size - after if after else 0) - (size - before if before else 0)

    def _note(self) -> None:
        series = self.series
        if series.at_ns and series.at_ns[-1] == self.now_ns:
            for values in series.columns():
                values.pop()
        now = (self.now_ns, self._used, self._broken, self._waiting, self.evictions)
        for values, value in zip(series.columns(), now, strict=True):
            values.append(value)


@dataclass(slots=True)
class _Request:
    """What is handed in at a moment."""

    applications: list[AddApplicationRequest] = field(default_factory=list)
    asks: list[AllocationAsk] = field(default_factory=list)
    releases: list[AllocationRelease] = field(default_factory=list)
    removed: list[RemoveApplicationRequest] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.applications or self.asks or self.releases or self.removed)

    def message(self) -> UpdateRequest:
        return UpdateRequest(
            RM_ID,
            new_applications=tuple(self.applications),
            asks=tuple(self.asks),
            releases=tuple(self.releases),
            remove_applications=tuple(self.removed),
        )


def _batches(nodes: Sequence[NodeRecord]) -> Iterator[Sequence[NodeRecord]]:
    for at in range(0, len(nodes), BATCH):
        yield nodes[at : at + BATCH]
