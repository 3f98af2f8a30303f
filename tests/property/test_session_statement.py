"""Statements: whatever is done, discarding it leaves a byte-identical session."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.core.scheduler.kai.session import (
    ACTIVE,
    NO_NODE,
    PLACED,
    Job,
    Queue,
    Session,
    Status,
    Task,
)
from services.core.scheduler.kai.statement import Statement

NAMES = ("vcore", "memory", "nvidia.com/gpu")
NODES = 3


def node_ledgers(session: Session) -> tuple[bytes, bytes]:
    """Return what is idle and what is being released, worked out anew from the tasks."""
    idle, releasing = session.capacity.copy(), np.zeros_like(session.capacity)
    for task in (task for job in session.jobs for task in job.tasks):
        amount = np.array(task.request)
        if task.status in (*PLACED, Status.RELEASING):
            idle[task.node] -= amount
        if task.status is Status.RELEASING:
            releasing[task.node] += amount
        if task.status is Status.PIPELINED:
            releasing[task.node] -= amount
        if task.ghost != NO_NODE:
            idle[task.ghost] -= amount
            releasing[task.ghost] += amount
    return idle.tobytes(), releasing.tobytes()


def queue_ledgers(session: Session) -> tuple[dict, dict]:
    """Return what queues have allocated, in all and by what may not be preempted."""
    allocated = {queue.name: [0, 0, 0] for queue in session.queues}
    fixed = {queue.name: [0, 0, 0] for queue in session.queues}
    active = [t for job in session.jobs for t in job.tasks if t.status in ACTIVE]
    for task in active:
        for queue in task.job.queue.lineage():
            for at, value in enumerate(task.request):
                allocated[queue.name][at] += value
                fixed[queue.name][at] += 0 if task.job.preemptible else value
    return allocated, fixed


class StatementMachine(RuleBasedStateMachine):
    @initialize(
        jobs=st.lists(
            st.tuples(
                st.integers(0, 1),
                st.booleans(),
                st.lists(
                    st.tuples(st.sampled_from(["run", "wait"]), st.integers(0, NODES - 1)),
                    min_size=1,
                    max_size=3,
                ),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def start(self, jobs):
        capacity = np.full((NODES, 3), 8, dtype=np.int64)
        self.session = Session(NAMES, [f"n{at}" for at in range(NODES)], capacity)
        top = self.session.add_queue(Queue("top", 0))
        queues = [self.session.add_queue(Queue(f"q{at}", at + 1, top)) for at in range(2)]
        for number, (queue, preemptible, tasks) in enumerate(jobs):
            job = Job(f"j{number}", queues[queue], 50, number, preemptible=preemptible)
            for at, (what, node) in enumerate(tasks):
                status = Status.RUNNING if what == "run" else Status.PENDING
                place = node if what == "run" else NO_NODE
                job.tasks.append(Task(f"j{number}-{at}", job, (1, 2, at), at, 0, status, place))
            self.session.add_job(job)
        self.tasks = [task for job in self.session.jobs for task in job.tasks]
        self.renew()

    def renew(self):
        self.statement = Statement(self.session)
        self.before = self.session.dump()
        self.checkpoints = [(0, self.before)]
        self.was = {task: (task.status, task.node, task.ghost) for task in self.tasks}

    def ready(self, *statuses):
        return [task for task in self.tasks if task.status in statuses]

    @precondition(lambda self: self.ready(Status.PENDING))
    @rule(data=st.data(), node=st.integers(0, NODES - 1), now=st.booleans())
    def place(self, data, node, now):
        task = data.draw(st.sampled_from(self.ready(Status.PENDING)))
        (self.statement.allocate if now else self.statement.pipeline)(task, node)

    @precondition(lambda self: self.ready(*ACTIVE))
    @rule(data=st.data())
    def evict(self, data):
        task = data.draw(st.sampled_from(self.ready(*ACTIVE)))
        pod_on = task.ghost if task.status is Status.PIPELINED else task.node
        self.statement.evict(task, "why")
        has_pod = pod_on != NO_NODE
        status = Status.RELEASING if has_pod else Status.PENDING  # without one it waits again
        assert (task.status, task.node, task.ghost) == (status, pod_on, NO_NODE)

    def evicted(self):
        """Return the tasks that this statement has evicted, and that have no other place yet."""
        return [t for t in self.ready(Status.RELEASING) if self.was[t][0] in ACTIVE]

    @precondition(lambda self: self.evicted())
    @rule(data=st.data(), node=st.integers(0, NODES - 1))
    def move(self, data, node):
        task = data.draw(st.sampled_from(self.evicted()))
        pod_on = task.node
        self.statement.pipeline(task, node)
        if node == self.was[task][1]:
            assert (task.status, task.node, task.ghost) == self.was[task]  # it just stays
        else:
            assert (task.status, task.node, task.ghost) == (Status.PIPELINED, node, pod_on)

    @rule()
    def checkpoint(self):
        self.checkpoints.append((self.statement.checkpoint(), self.session.dump()))

    @rule(data=st.data())
    def rollback(self, data):
        at = data.draw(st.integers(0, len(self.checkpoints) - 1))
        point, then = self.checkpoints[at]
        self.statement.rollback(point)
        assert self.session.dump() == then
        del self.checkpoints[at + 1 :]

    @rule()
    def discard(self):
        self.statement.discard()
        assert self.session.dump() == self.before
        self.renew()

    @rule(goes_on=st.booleans())
    def commit(self, goes_on):
        decisions = self.statement.commit()
        names = [decision.task for decision in decisions]
        assert len(names) == len(set(names))
        tasks = {task.name: task for task in self.tasks}
        for decision in decisions:
            task = tasks[decision.task]
            is_placed = task.status in (Status.ALLOCATED, Status.PIPELINED)
            assert bool(decision.node) == is_placed
            assert decision.reason == ("why" if decision.evicts else "")
        if goes_on:  # the next action of the same run finds what this one has left
            self.renew()
            return
        for task in self.tasks:  # what was decided has happened by the next session
            if task.status in (Status.RELEASING, Status.PIPELINED):
                self.session.move(task, Status.PENDING, NO_NODE)
            elif task.status is Status.ALLOCATED:
                self.session.move(task, Status.RUNNING, task.node)
        self.renew()

    @invariant()
    def ledgers_are_the_sums(self):
        if hasattr(self, "session"):
            session = self.session
            assert (session.idle.tobytes(), session.releasing.tobytes()) == node_ledgers(session)
            allocated, fixed = queue_ledgers(session)
            assert {queue.name: queue.allocated for queue in session.queues} == allocated
            assert {queue.name: queue.allocated_fixed for queue in session.queues} == fixed


TestStatement = StatementMachine.TestCase
