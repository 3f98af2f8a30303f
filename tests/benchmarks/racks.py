"""Months of jobs in racks, for ``make bench-topology``: what racks cost, and what they save.

Each row is a replay in virtual time: the same on any machine. The jobs are those of ``gpu_month``,
the first so many of them, on its 36 nodes in four racks; the last row has a trace of its own, with
nodes that fail.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from statistics import fmean
from typing import Any

from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    TopologyConstraint,
    UpdateRequest,
)
from shared.model.gpus import GPU
from shared.model.units import NANOS_PER_SECOND
from tests.property.gpu_month import gpu_month
from tools.replay.command import measured
from tools.replay.figures import WIDE
from tools.replay.jobs import Job, Trace, in_order
from tools.replay.run import RM_ID, START_NS, Outcome, Replay, Run
from tools.replay.setup import Setup, setup_of

MUSTER = {"preset": "muster"}
RACKS = 4  # of nine nodes
MONTHS = 5  # seeds, where a single month has too few gangs
REQUIRED, PREFERRED = TopologyConstraint(required="rack"), TopologyConstraint(preferred="rack")
S, HOUR = NANOS_PER_SECOND, 3_600 * NANOS_PER_SECOND


def _replayed(trace: Trace, **setup: Any) -> tuple[Outcome, dict[str, Any]]:
    return measured(trace, setup_of(trace, "x", scheduler=MUSTER, racks=RACKS, **setup))


def row_of_several_racks(jobs: int) -> None:
    """Print how many gangs that one rack could hold are in several, at a load of 41 %."""
    traces = [gpu_month(seed, load=0.41).first(jobs) for seed in range(MONTHS)]
    told = []
    for name, more in (("asking for nothing", {}), ("preferring a rack", {"topology": PREFERRED})):
        found = [_replayed(trace, **more)[1] for trace in traces]
        counts = [(each["overSeveralRacks"], each["gangsOfOneRack"]) for each in found]
        several, gangs = map(sum, zip(*counts, strict=True))
        months = ", ".join(f"{100 * part / of:.1f}" for part, of in counts)
        told.append(f"{100 * several / gangs:.1f} % of {gangs:,} {name} (by month {months})")
    print(f"gangs over several racks that one could hold, 41 % load: {'; '.join(told)}")


def row_of_required_racks(jobs: int) -> None:
    """Print how long wide gangs wait for a rack, of how long they wait for any nodes, at 85 %."""
    trace = gpu_month(1).first(jobs)
    waits = [
        _replayed(trace, **more)[1]["bySize"][f"over {WIDE}"]["meanWaitSeconds"]
        for more in ({"topology": REQUIRED}, {})
    ]
    print(
        f"wide gangs' mean wait with racks required, 85 % load: {waits[0]:,.0f} s, "
        f"{waits[0] / waits[1]:.2f} of without ({waits[1]:,.0f} s)"
    )


def row_of_elastic(jobs: int) -> None:
    """Print how long jobs wait if gangs start with half of their pods, of as they do with all."""
    trace = gpu_month(1).first(jobs)
    yields = {**MUSTER, "gangSurplus": "yields"}
    ways = (("rigid", MUSTER, 100), ("elastic", MUSTER, 50), ("making way", yields, 50))
    first: list[float] = []
    for name, settings, percent in ways:
        outcome, found = measured(
            trace,
            setup_of(trace, "x", scheduler=settings, racks=RACKS, minimum_percent=percent),
        )
        ended = [run for run in outcome.runs if run.ended_ns >= 0]
        figures = [
            found["all"]["meanWaitSeconds"],
            found["bySize"][f"over {WIDE}"]["meanWaitSeconds"],
            fmean(run.ended_ns - run.job.submitted_ns for run in ended) / S,
        ]
        first = first or figures
        wait, wide, end = (
            f"{one:,.0f} s ({one / of:.2f})" for one, of in zip(figures, first, strict=True)
        )
        print(f"{name}, 85 % load: mean wait {wait}, wide gangs {wide}, until the end {end}")


# --- nodes that fail ------------------------------------------------------------------------------

NODES, IN_A_RACK, GANG = 72, 18, 16  # of each rack two nodes are not promised to gangs
FAILS_EVERY, REPAIR = 2 * HOUR, 6 * HOUR
STARTING = 300 * S  # before a gang works that has begun, or begun again with one pod replaced
CHECKPOINT = HOUR  # to the last of which a gang falls back that was evicted
LENGTH = 12 * HOUR  # of a gang's run, on average
PODS_A_DAY = 48  # of four hours each: as much as the nodes that are not promised hold
LOAD = 0.85  # by gangs, of the nodes that are promised to them
GRACE = 600  # seconds


def gangs_of_racks(seed: int, days: int) -> Trace:
    """Return gangs of 16 nodes, and in between pods of a node that run for one to seven hours."""
    random, jobs = Random(seed), []
    for at in range(round(LOAD * days * 24 * RACKS * HOUR / LENGTH)):
        when = int(random.uniform(0, days * 24 * HOUR))
        length = int(random.uniform(0.5, 1.5) * LENGTH)
        jobs.append(Job(f"gang-{at}", when, length, "gangs", "user", ((GANG, {GPU: 8}),)))
    for at in range(days * PODS_A_DAY):
        when = int(random.uniform(0, days * 24 * HOUR))
        length = int(random.uniform(1, 7) * HOUR)
        jobs.append(Job(f"pod-{at}", when, length, "pods", "user", ((1, {GPU: 8}),)))
    return Trace("failures", in_order(jobs), GPU, NODES, {GPU: 8, "pods": 110})


@dataclass
class Losses:
    """What failures have cost, in GPU hours, and what became of the members that were lost."""

    lost: int = 0  # members
    replaced: int = 0  # in their rack
    at_once: int = 0  # of these without any time between
    idle: float = 0.0  # GPU hours: its other pods wait for a gang's lost one
    again: float = 0.0  # work that is done again since the last checkpoint
    starting: float = 0.0
    since: dict[str, int] = field(default_factory=dict)  # of gangs with lost members

    @property
    def hours(self) -> float:
        return self.idle + self.again + self.starting


class WithFailures(Replay):
    """A replay in which a node fails every two hours on average; the pods on it are made again.

    A gang works if it is whole. One that gets a pod in place of a lost one goes on from where it
    was, one that was evicted from its last checkpoint.
    """

    def __init__(self, trace: Trace, setup: Setup, seed: int, *, falls_back: bool = False) -> None:
        super().__init__(trace, setup)
        self.losses, self._falls_back = Losses(), falls_back
        self._random = Random(seed)
        self._up = sorted(node.name for node in setup.nodes)
        self._by_name = {node.name: node for node in setup.nodes}
        self._last_ns = trace.jobs[-1].submitted_ns
        self._events: list[tuple[int, str]] = [(FAILS_EVERY, "")]  # a heap; a node is repaired

    def _next_ns(self, next_run: Run | None) -> int | None:
        at_ns = super()._next_ns(next_run)
        moments = [] if at_ns is None else [at_ns]
        if self._of and self._events:
            moments.append(self._events[0][0])
        return min(moments, default=None)

    def _end_due(self, request: Any) -> int:
        ended = super()._end_due(request)
        while self._events and self._events[0][0] <= self.now_ns:
            _, node = heappop(self._events)
            self._tell(self._repaired(node) if node else self._failed(), request)
        return ended

    def _tell(self, info: NodeInfo, request: Any) -> None:
        for message in self._send(UpdateRequest(RM_ID, nodes=(info,))):
            self._take(message, request)

    def _failed(self) -> NodeInfo:
        name = self._up.pop(self._random.randrange(len(self._up)))
        heappush(self._events, (self.now_ns + REPAIR, name))
        if self.now_ns < self._last_ns:
            heappush(self._events, (self.now_ns + self._until_next(), ""))
        return NodeInfo(name, NodeAction.DECOMISSION)

    def _until_next(self) -> int:
        return int(self._random.expovariate(1 / FAILS_EVERY))

    def _repaired(self, name: str) -> NodeInfo:
        node = self._by_name[name]
        self._up = sorted([*self._up, name])
        return NodeInfo(name, NodeAction.CREATE, node.capacity, {}, labels=node.labels)

    # --- pods that are lost and replaced ----------------------------------------------------------

    def _pace(self, run: Run) -> int:
        return run.real if run.real == run.job.pods else 0

    def _release(self, release: AllocationRelease, answer: Any) -> None:
        run = self._of.get(release.application_id)
        is_held = run is not None and release.allocation_key in run.held
        is_lost = is_held and release.termination_type is TerminationType.STOPPED_BY_RM
        super()._release(release, answer)
        if run is None or not is_lost or run.is_waiting:
            return
        if run.job.pods == 1:
            self._restart(run, answer)
            return
        self.losses.lost += 1
        run.real -= 1
        self._go_on(run)
        self._wait(run)
        answer.asks.append(self._made_again(run))

    def _made_again(self, run: Run) -> AllocationAsk:
        return AllocationAsk(
            f"{run.application_id}-0-{GANG + self.losses.lost}",
            run.application_id,
            run.job.groups[0][1],
            task_group_name="group-0",
            create_time_ns=START_NS + self.now_ns,
        )

    def _wait(self, run: Run) -> None:
        """Count what its other pods have waited so far; from now on they are as many as now."""
        since_ns = self.losses.since.get(run.application_id)
        if since_ns is not None:
            self.losses.idle += self._hours(run, self.now_ns - since_ns)
        self.losses.since[run.application_id] = self.now_ns

    def _hours(self, run: Run, time_ns: int) -> float:
        return run.job.amount(GPU) * time_ns / HOUR

    def _bind(self, allocation: Allocation, answer: Any) -> None:
        run = self._of[allocation.application_id]
        rack = self._rack_of(allocation.node_id)
        racks = {self._rack_of(node) for node, _ in run.held.values()}
        since_ns = self.losses.since.get(run.application_id)
        super()._bind(allocation, answer)
        if since_ns is None:
            return
        self.losses.replaced += racks == {rack}
        self.losses.at_once += racks == {rack} and since_ns == self.now_ns
        self._wait(run)
        if run.real == run.job.pods:
            del self.losses.since[run.application_id]
            self._lose(run, CHECKPOINT if self._falls_back else 0)

    def _rack_of(self, node: str) -> str:
        return self._by_name[node].labels["topology.kubernetes.io/rack"]

    def _lose(self, run: Run, checkpoint: int) -> None:
        """Have a gang start again, and do again what it did since its last checkpoint."""
        done = run.job.run_ns - run.left_ns
        again = max(0, done) % checkpoint if checkpoint else 0
        run.left_ns += again + STARTING
        self.losses.again += self._hours(run, again)
        self.losses.starting += self._hours(run, STARTING)
        if not run.is_waiting:
            self._go_on(run)

    def _restart(self, run: Run, answer: Any) -> None:
        """Have an evicted gang begin again at its last checkpoint."""
        if run.application_id in self.losses.since:
            self._wait(run)
            del self.losses.since[run.application_id]
        if not run.is_waiting:
            self._go_on(run)  # which counts what it has done
        left_ns = run.left_ns
        super()._restart(run, answer)
        run.left_ns, run.is_waiting = left_ns, True
        if run.job.pods > 1:
            self._lose(run, CHECKPOINT)


QUEUES = """
partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [
  {name: gangs, properties: {spares: rack=2}}, {name: pods}]}]}]
"""


def _ways() -> Iterator[tuple[str, dict[str, str], str, bool]]:
    """Yield a name, settings, queues ("": without spares), and whether all go to a checkpoint."""
    base = {**MUSTER, "actions": "allocate,preempt,stalegangeviction"}
    replaced = {**base, "stalenessGracePeriod": f"{GRACE}s"}
    yield "evicted as a whole", {**base, "stalenessGracePeriod": "0s"}, "", False
    yield "replaced", replaced, "", False
    yield "replaced, two spares in every rack", {**replaced, "spares": "rack=2"}, "", False
    yield "replaced, two spares of the queue", replaced, QUEUES, False
    yield "the same, each to its last checkpoint", replaced, QUEUES, True


def row_of_failures(days: int) -> None:
    """Print what becomes of members whose node fails, and what that costs beside evicting all."""
    trace = gangs_of_racks(1, days)
    first = 0.0
    for name, settings, queues, falls_back in _ways():
        setup = setup_of(
            trace, "x", scheduler=settings, queues=queues, racks=RACKS, topology=REQUIRED
        )
        replay = WithFailures(trace, setup, 1, falls_back=falls_back)
        outcome, lost = replay.run(), replay.losses
        per_member = lost.hours / max(1, lost.lost)
        first = first or per_member
        gangs = [run for run in outcome.runs if run.job.pods > 1 and run.started_ns >= 0]
        wait_s = fmean(run.started_ns - run.job.submitted_ns for run in gangs) / S
        print(
            f"nodes fail every 2 h, {name}: {lost.lost} members lost, {lost.replaced} replaced in "
            f"their rack, {lost.at_once} at once; {lost.hours:,.0f} GPU hours lost "
            f"({lost.idle:,.0f} idle, {lost.again:,.0f} again, {lost.starting:,.0f} starting), "
            f"{per_member:.0f} per member, {per_member / first:.2f} of the first; "
            f"gangs' mean wait {wait_s:,.0f} s"
        )
