"""Where a task goes: the first node, by score, that has the room.

Order of nodes: those with idle room before those where room is being released, then by the packing
of kai (``nodes/scores/packing.py``); equal ones in the order of the trial.
Source: docs/rules/kai.md#allocate and docs/rules/kai.md#scores-and-domains.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.constraints.node_domains import Domain, domains, same_domain
from services.core.scheduler.model.rows import Node
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.place.place import Unplaced, place
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.trial import Job, Task, Trial, is_placed

_TOPOLOGY_MARKS = 100_000.0
_IDLE_MARKS = 1000.0


def place_job(attempt: Attempt, job: Job, tasks: list[Task], *, now: bool = False) -> bool:
    """Place tasks of a job, all or none; return whether all could be.

    They wait for room that is being released, or take none but what is idle ``now``: nobody starts
    a gang, or a part of one, in halves.
    """
    rows = len(attempt.trial.nodes.rows)
    everywhere = Domain(np.ones(rows, dtype=np.bool_), np.zeros(rows, dtype=np.float64))
    found = place(_OnTrial(attempt, tasks, now=now), job.group, everywhere)
    return not isinstance(found, Unplaced)


class _OnTrial:
    """Places tasks of a trial, as an attempt. One that is stuck ends it: no refusal is told."""

    goes_on = False

    def __init__(self, attempt: Attempt, tasks: list[Task], *, now: bool) -> None:
        self._trial, self._now = attempt.trial, now
        self._place_of = {task: at for at, task in enumerate(tasks)}
        self.checkpoint, self.rollback = attempt.checkpoint, attempt.rollback
        self.put = attempt.allocate if now else attempt.pipeline

    def waiting(self, leaf: Group[Task]) -> list[Task]:
        """Return the tasks of a set that are to be placed, in their order."""
        return sorted(
            filter(self._place_of.__contains__, leaf.tasks), key=self._place_of.__getitem__
        )

    def domains(self, group: Group[Task], where: Domain) -> Iterable[Domain]:
        """Return where a group may go; what it has running keeps it to its required domain."""
        topology = group.topology
        if topology is None:
            return [where]
        rows = where.rows
        running = [task.node.row for task in group.all_tasks(is_placed) if task.node is not None]
        if topology.required and running:
            rows = rows & same_domain(self._trial, topology, running[0])
        return domains(self._trial, topology, rows, group.all_tasks(self._place_of.__contains__))

    def nodes_for(self, tasks: list[Task], where: Domain) -> Iterator[Node | None]:
        """Yield the node of a domain for each task."""
        for task in tasks:
            yield best_node(self._trial, task, where, now=self._now)

    def refusal(self, task: Task | None, placed: list[tuple[Task, Node]]) -> None:
        """Say nothing: a job that is not placed waits."""


def best_node(trial: Trial, task: Task, where: Domain, *, now: bool) -> Node | None:
    """Return the node of a domain for a task, with room that is idle ``now``; or None."""
    shape, filters = trial.shape_of(task), trial.nodes.filters
    fits = filters.takes.mask(shape, When.EXPECTED) & where.rows
    has_now = filters.has_room.mask(shape)
    if now:
        fits &= has_now
    rows = np.flatnonzero(fits)
    if rows.size and trial.nodes.order.of_plugins:
        rows = _first_by_plugins(trial, task, rows, where, has_now)
    if not rows.size:
        return None
    idle = has_now[rows]
    scores = idle * _IDLE_MARKS - trial.nodes.order.packing.of_rows(rows, shape)
    scores += where.marks[rows] * _TOPOLOGY_MARKS
    at = int(np.argmax(scores))
    return trial.nodes.rows[int(rows[at])]


def _first_by_plugins(
    trial: Trial, task: Task, rows: NDArray[np.int64], where: Domain, now: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the rows that plugins put first, of the best domain and with idle room if any has."""
    rows = rows[where.marks[rows] == where.marks[rows].max()]
    idle = rows[now[rows]]
    return trial.nodes.order.first_by_plugins(idle if idle.size else rows, trial.shape_of(task))
