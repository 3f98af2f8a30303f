"""The search for victims: for a job that waits, the least disruption that lets it start.

Victims are taken a unit at a time, those that are owed the least first. After each, cheap filters
say whether the room could be enough; then a scenario is simulated on a statement: the victims are
evicted, and they and the job are placed again in the order of fairness, waiting for room. What
fits where it was stays. A scenario counts when the job has all it needs and the policy agrees;
otherwise everything is taken back.

First scenarios of one node: the victims on a node of the latest one. Then those of several nodes:
a growing number of the nodes that give back the least. Source: contract kai.md, 1.7.
Limit: MAX_SCENARIOS simulated for one job.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from services.core.scheduler.actions.capacity import may_take
from services.core.scheduler.actions.ordering import (
    JobOrder,
    Unit,
    VictimOrder,
    is_ready,
    tasks_to_allocate,
)
from services.core.scheduler.actions.placing import place_job
from services.core.scheduler.actions.session import (
    UNLIMITED,
    Job,
    Session,
    Status,
    Task,
    is_placed,
    request_of,
)
from services.core.scheduler.actions.statement import Statement
from services.core.scheduler.actions.sums import Sums, sum_of, summed, sums

MAX_SCENARIOS = 5_000


@dataclass(frozen=True, slots=True)
class Search:
    """What an action looks for: who may be a victim, and which outcome it agrees to.

    ``reason`` is what a victim is told. ``max_victims`` bounds how many of them are accumulated
    for one job; negative is no bound.
    """

    is_victim: Callable[[Job], bool]
    agrees: Callable[[list[Unit]], bool]
    action: str
    reason: str
    max_victims: int = UNLIMITED


def solve(session: Session, job: Job, search: Search) -> Statement | None:
    """Return a statement that lets a job start, or None; the session is as before then."""
    tasks = tasks_to_allocate(job)
    if not may_take(session, job, tasks):
        return None
    victims = [
        other
        for other in session.jobs
        if other is not job
        and frozenset((other.name, job.name)) not in session.held_pairs
        and search.is_victim(other)
        and session.plugins.may_take_from(search.action, other, job)
    ]
    if not victims or not _could_ever_fit(session, tasks, victims):
        return None
    simulated = 0
    seen: set[frozenset[Task]] = set()
    for scenarios in (_of_one_node, _of_several_nodes):
        for units in scenarios(session, tasks, _accumulated(session, victims, search)):
            evicted = frozenset(task for _, group in units for task in group)
            if evicted in seen:
                continue
            seen.add(evicted)
            simulated += 1
            if simulated > MAX_SCENARIOS:
                return None
            statement = _simulate(session, job, units, search)
            if statement is not None:
                return statement
    return None


# --- scenarios ------------------------------------------------------------------------------------


def _accumulated(session: Session, victims: list[Job], search: Search) -> Iterator[list[Unit]]:
    """Yield the victims taken so far, the same list that grows, up to as many as may be."""
    order = VictimOrder(session, victims)
    units: list[Unit] = []
    while (unit := order.pop()) is not None:
        if len(units) == search.max_victims:
            return
        units.append(unit)
        yield units


class _Freed:
    """What victims so far would give back, node by node and in all, beside what is free already."""

    def __init__(self, session: Session, tasks: list[Task]) -> None:
        self.session = session
        self.demand = sums(request_of(tasks, session.width))
        self.smallest = np.array(tasks[-1].request, dtype=np.int64)
        self.free = summed(session.idle + session.releasing)
        self.by_node: dict[int, Sums] = {}
        self.total = sums([0] * session.width)

    def add(self, unit: Unit) -> list[int]:
        """Count a victim in; return the nodes that it is on."""
        for task in unit[1]:
            request = sums(task.request)
            at = self.by_node.setdefault(task.node, sums([0] * self.session.width))
            at += request
            self.total += request
        return sorted({task.node for task in unit[1]})

    def is_enough(self) -> bool:
        """Return whether all that is free then covers what is asked for."""
        return bool((self.free + self.total >= self.demand).all())

    def is_enough_on(self, nodes: list[int]) -> bool:
        """Return whether what some of the nodes give back, with all that is free, covers it."""
        freed = sum_of((self.by_node[node] for node in nodes), self.session.width)
        return bool((self.free + freed >= self.demand).all())

    def takes_one(self, node: int) -> bool:
        """Return whether a node then has room for one of the tasks."""
        here = self.session.idle[node] + self.session.releasing[node] + self.by_node[node]
        return bool((here >= self.smallest).all())


def _of_one_node(
    session: Session, tasks: list[Task], accumulated: Iterator[list[Unit]]
) -> Iterator[list[Unit]]:
    """Yield, after every victim, those on each node that it is on."""
    units_on: dict[int, list[Unit]] = {}
    freed = _Freed(session, tasks)
    for units in accumulated:
        latest = units[-1]
        nodes = freed.add(latest)
        for node in nodes:
            units_on.setdefault(node, []).append(latest)
        for node in nodes:
            if freed.is_enough_on([node]) and freed.takes_one(node):
                yield list(units_on[node])


def _of_several_nodes(
    session: Session, tasks: list[Task], accumulated: Iterator[list[Unit]]
) -> Iterator[list[Unit]]:
    """Yield, after every victim, growing numbers of the nodes that victims are on."""
    freed = _Freed(session, tasks)
    for units in accumulated:
        freed.add(units[-1])
        if not freed.is_enough():
            continue
        by_node = freed.by_node
        nodes = sorted(by_node, key=lambda node: (tuple(by_node[node][::-1]), node))
        count = 1
        while count < len(nodes):
            if freed.is_enough_on(nodes[:count]):
                chosen = frozenset(nodes[:count])
                yield [unit for unit in units if any(task.node in chosen for task in unit[1])]
            count *= 2
        yield list(units)


def _could_ever_fit(session: Session, tasks: list[Task], victims: list[Job]) -> bool:
    """Return whether the room would be there if every victim went."""
    room = session.idle + session.releasing
    for job in victims:
        for task in job.tasks:
            if is_placed(task):
                room[task.node] += np.array(task.request, dtype=np.int64)
    if not np.all(summed(room) >= sums(request_of(tasks, session.width))):
        return False
    return all(
        bool(np.any(np.all(room >= np.array(task.request, dtype=np.int64), axis=1)))
        for task in tasks
    )


# --- simulation -----------------------------------------------------------------------------------


def _simulate(session: Session, job: Job, units: list[Unit], search: Search) -> Statement | None:
    """Evict, place again in order, and ask the policy; return the statement if it agrees."""
    statement = Statement(session)
    for _, tasks in units:
        for task in tasks:
            statement.evict(task, search.reason)
    if _place_again(statement, job, units):
        left = _still_evicted(units)
        if search.agrees(left) and session.plugins.agree(search.action, job, left):
            return statement
    statement.discard()
    return None


def _place_again(statement: Statement, job: Job, units: list[Unit]) -> bool:
    """Place the job and the victims in the order of fairness; return whether the job got its room.

    The order is that of all who wait, though only the job and the victims are tried: where another
    job of the queue comes first, the queue is as hungry as that one makes it.
    """
    evicted = {task for _, tasks in units for task in tasks}

    def tasks_of(candidate: Job) -> list[Task]:
        gone = {task for task in candidate.tasks if task in evicted and _is_out(task)}
        return tasks_to_allocate(candidate, gone)

    to_try = dict.fromkeys([job, *(victim for victim, _ in units)])
    jobs = statement.session.jobs
    waiting = [other for other in jobs if other in to_try or is_ready(other)]
    order = JobOrder(statement.session, waiting, tasks_of)
    while to_try and (candidate := order.pop()) is not None:
        if candidate not in to_try:
            continue
        del to_try[candidate]
        tasks = tasks_of(candidate)
        if candidate is not job:
            tasks = [task for task in tasks if task in evicted]
            if tasks and _wait_for_room(statement, candidate, tasks):
                to_try[candidate] = None
                order.push(candidate)
        elif not may_take(statement.session, job, tasks) or not _wait_for_room(
            statement, job, tasks
        ):
            return False
    return True


def _is_out(task: Task) -> bool:
    return task.status is Status.RELEASING


def _wait_for_room(statement: Statement, job: Job, tasks: list[Task]) -> bool:
    return place_job(statement, job, tasks, only_pipeline=True)


def _still_evicted(units: list[Unit]) -> list[Unit]:
    left = [(victim, [task for task in tasks if _is_out(task)]) for victim, tasks in units]
    return [unit for unit in left if unit[1]]
