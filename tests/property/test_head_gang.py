"""The head gang against a textbook, and what is promised of it, on logs of rigid gangs drawn by seed.

The textbook is EASY as Lifka (1995) has it: first come, first served; the head has a reservation,
and others pass it if they end before, by their wall times, or use processors that it leaves.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush

import pytest

from services.core.scheduler.model.rows import Queue
from tests.property.rigid import (
    Line,
    bounded_slowdown,
    drawn,
    repeated,
    replay_of,
    starts_of,
    trace_of,
)
from tests.property.wide import micro_row
from tests.soak import some
from tools.invariants import violations
from tools.replay.run import START_NS

# --- the textbook -------------------------------------------------------------------------------


@dataclass
class Easy:
    """EASY over processors that are all alike; ``starts`` is what comes of it."""

    log: list[Line]
    free: int
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)

    def run(self) -> list[int]:
        coming = list(range(len(self.log)))
        while coming or self.ends:
            now = min([self.log[at].submit for at in coming[:1]] + [at for at, _ in self.ends[:1]])
            while self.ends and self.ends[0][0] <= now:
                _, at = heappop(self.ends)
                self.free += self.log[at].size
                self.running.remove(at)
                self.ended(at)
            while coming and self.log[coming[0]].submit <= now:
                self.waiting.append(coming.pop(0))
                self.came(self.waiting[-1])
            while self.waiting and self.log[self.waiting[0]].size <= self.free:
                self.start(self.waiting[0], now)
            if self.waiting:
                self.backfill(now)
        return [self.starts[at] for at in range(len(self.log))]

    def start(self, at: int, now: int) -> None:
        self.waiting.remove(at)
        self.running.append(at)
        self.free -= self.log[at].size
        self.starts[at] = now
        heappush(self.ends, (now + self.log[at].run, at))

    def backfill(self, now: int) -> None:
        head, shadow, extra = self.log[self.waiting[0]], now, self.free
        expected = sorted((self.starts[at] + self.log[at].wall, at) for at in self.running)
        for end, at in expected:
            if extra >= head.size and end > shadow:
                break
            extra, shadow = extra + self.log[at].size, end
        extra -= head.size
        for at in self.behind():
            job = self.log[at]
            is_over = now + job.wall <= shadow
            if job.size <= self.free and (is_over or job.size <= extra):
                extra -= 0 if is_over else job.size
                self.start(at, now)

    def behind(self) -> list[int]:
        return self.waiting[1:]

    def came(self, at: int) -> None:
        """A job is submitted."""

    def ended(self, at: int) -> None:
        """A job has ended."""


@dataclass
class ShortestFirst(Easy):
    """The same, but behind the head the shortest is tried first (Tsafrir et al. 2007).

    Predicted at submission: the mean of the last two of the same user and size, no more than stated.
    """

    last: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)

    def behind(self) -> list[int]:
        return sorted(self.waiting[1:], key=lambda at: (self.expected[at], at))

    def came(self, at: int) -> None:
        job = self.log[at]
        runs = self.last.get((job.user, job.size), [])[-2:]
        self.expected[at] = min(job.wall, rounded_up(sum(runs) // len(runs))) if runs else job.wall

    def ended(self, at: int) -> None:
        job = self.log[at]
        self.last.setdefault((job.user, job.size), []).append(job.run)


def rounded_up(run: int) -> int:
    """Return the next quarter of a power of two."""
    quarter = max(1, 2 ** (run.bit_length() - 1) // 4)
    return -(-run // quarter) * quarter


# --- against it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "seed", "load"),
    some(1, [
        (drawn, 2, 1.1), (repeated, 3, 0.9), (drawn, 0, 0.9), (drawn, 1, 0.9), (repeated, 3, 1.1)
    ]),
)  # fmt: skip
def test_a_log_with_wall_times_is_scheduled_as_in_the_textbook(make, seed, load):
    log = make(seed, 400, 32, load)
    ours = starts_of(log, 32, is_stated=True)
    theirs = Easy(log, 32).run()
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    assert same >= 0.99 * len(log)
    expected = bounded_slowdown(log, theirs)
    assert abs(bounded_slowdown(log, ours) - expected) <= 0.01 * expected
    assert expected > 10, "a log in which nobody waits says nothing"


@pytest.mark.parametrize(
    ("make", "seed", "load"),
    some(1, [
        (repeated, 2, 1.1), (drawn, 0, 0.9), (repeated, 0, 0.9), (drawn, 1, 0.9),
        (repeated, 1, 0.9), (drawn, 2, 1.1),
    ]),
)  # fmt: skip
def test_with_the_shortest_first_a_log_is_scheduled_as_in_the_textbook(make, seed, load):
    log = make(seed, 400, 32, load)
    ours = starts_of(log, 32, is_stated=True, backfill="shortestFirst")
    theirs = ShortestFirst(log, 32).run()
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    assert same >= 0.99 * len(log)
    expected = bounded_slowdown(log, theirs)
    assert abs(bounded_slowdown(log, ours) - expected) <= 0.01 * expected
    assert Easy(log, 32).run() != theirs, "a log in which the order is the same says nothing"


# --- what is promised ---------------------------------------------------------------------------


SHORTEST = {"backfill": "shortestFirst", "maxReservedNodes": "100%"}  # which hold all the time
SETTINGS = [{"backfill": "enabled"}, {"backfill": "disabled"}, SHORTEST]
SIZES_OF_NODES = [(0, 1), (1, 4), (2, 8), (3, 4)]
EACH_ONCE = [(1, 4, SETTINGS[0]), (2, 8, SETTINGS[1]), (3, 4, SETTINGS[2]), (0, 1, SETTINGS[0])]
PROMISES = [(*of_nodes, setting) for of_nodes in SIZES_OF_NODES for setting in SETTINGS]
PROMISES = EACH_ONCE + [row for row in PROMISES if row not in EACH_ONCE]


@pytest.mark.parametrize(("seed", "a_node", "settings"), some(len(EACH_ONCE), PROMISES))
def test_the_head_gang_starts_no_later_than_told_when_nobody_overruns(
    seed, a_node, settings, monkeypatch
):
    """Nor is a reservation ever pushed back by a job whose end was stated truly."""
    log = drawn(seed, 300, 64, 1.0)
    replay = replay_of(trace_of(log, 64 // a_node, a_node), **settings)
    told: dict[str, list[int]] = {}
    note = replay._note

    def watched():
        note()
        head_gang = replay.scheduler.partition.head_gang
        if head_gang is not None and head_gang.reported_start_ns:
            told.setdefault(head_gang.application.id, []).append(
                head_gang.reported_start_ns - START_NS
            )

    monkeypatch.setattr(replay, "_note", watched)
    outcome = replay.run()
    assert len(told) > 20
    for run in outcome.runs:
        expected = told.get(run.job.name)
        if expected:
            assert expected == sorted(expected, reverse=True), run.job.name
            assert run.started_ns <= expected[0], run.job.name


@pytest.mark.parametrize("is_stated", [True, False])
@pytest.mark.parametrize(("seed", "order"), some(2, [(0, 0), (2, 1), (1, 0), (3, 1)]))
def test_ledgers_hold_at_every_event_and_every_job_starts(seed, order, is_stated, monkeypatch):
    log = drawn(seed, 120, 32, 1.2)
    backfill = ("enabled", "shortestFirst")[order]
    trace = trace_of(log, 8, 4, is_stated=is_stated)
    replay = replay_of(trace, backfill=backfill)
    note = replay._note

    def watched():
        note()
        partition = replay.scheduler.partition
        assert violations(partition) == []
        held = {name for name, node in partition.nodes.nodes.items() if node.is_held}
        head_gang = partition.head_gang
        assert held == {node.node_id for node in (head_gang.nodes if head_gang is not None else ())}
        assert partition.nodes.backfill_window.nodes == len(held)

    monkeypatch.setattr(replay, "_note", watched)
    assert all(run.ended_ns >= 0 for run in replay.run().runs)


@pytest.mark.parametrize("is_stated", [True, False])
@pytest.mark.parametrize("make", [drawn, repeated])
def test_who_is_tried_first_is_the_shortest_of_those_that_may_be(make, is_stated, monkeypatch):
    """Found in the index of a leaf, and by looking at everybody."""
    log = make(5, 150, 32, 1.2)
    replay = replay_of(trace_of(log, 8, 4, is_stated=is_stated), **SHORTEST)
    tried = []

    def shortest(leaf):
        found = real(leaf)
        buckets = [*leaf.buckets.values(), leaf.to_admit]
        open_ones = [bucket for bucket in buckets if bucket.queued is not None]
        groups = [group for bucket in open_ones for group in bucket.in_order()]
        assert found is min(groups, key=_length)
        tried.append(len(groups))
        return found

    real = Queue.shortest_group
    monkeypatch.setattr(Queue, "shortest_group", shortest)
    replay.run()
    assert sum(many > 1 for many in tried) > 100


def _length(group):
    members = group.application.groups.values()
    of_gang = [member.bucket.shape.expected_ns or 2**62 for member in members if member.placeholder]
    run_ns = max(of_gang) if group.placeholder else group.bucket.shape.expected_ns or 2**62
    return run_ns, group.application.order


@pytest.mark.parametrize("seed", some(1, [0, 3]))
def test_wide_gangs_start_within_ten_minutes_among_jobs_of_a_node_and_cost_them_little(seed):
    """75 nodes at 110 %: without a head gang both wait for as long as jobs come, some 7 hours."""
    waits, lost = micro_row(seed, {"preset": "muster"})
    assert max(waits) <= 600
    assert lost <= 5
    assert max(micro_row(seed, {"gangAdmission": "cluster"})[0]) > 20_000
