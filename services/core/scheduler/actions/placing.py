"""Where a task goes: the first node, by score, that has the room.

Order of nodes: those with idle room before those where room is being released, nodes without
accelerators for tasks without (resource type), then the fullest first, or the emptiest with
``spread``; equal ones in the order of the session. Source: contract kai.md, 1.2 and 1.12.
"""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.actions.session import Job, Session, Task, is_placed
from services.core.scheduler.actions.statement import Statement

GPU = "nvidia.com/gpu"
CPU = "vcore"
_IDLE_MARKS, _TYPE_MARKS, _PLACE_MARKS = 1000.0, 10.0, 9.0


def place_job(
    statement: Statement, job: Job, tasks: list[Task], *, only_pipeline: bool = False
) -> bool:
    """Place tasks of a job, all or none; return whether all could be.

    If some must wait for room and the minimum does not run yet, all of them wait: nobody starts
    a gang in halves.
    """
    checkpoint = statement.checkpoint()
    places: list[tuple[Task, int]] = []
    waits = False
    for task in tasks:
        found = best_node(statement.session, task)
        if found is None:
            statement.rollback(checkpoint)
            return False
        node, is_idle = found
        if is_idle and not only_pipeline:
            statement.allocate(task, node)
        else:
            statement.pipeline(task, node)
            waits = True
        places.append((task, node))
    if waits and not only_pipeline and not job.group.is_satisfied(is_placed):
        statement.rollback(checkpoint)
        for task, node in places:
            statement.pipeline(task, node)
    return True


def best_node(session: Session, task: Task) -> tuple[int, bool] | None:
    """Return the node for a task and whether it has idle room, or None."""
    request = np.array(task.request, dtype=np.int64)
    free = session.idle + session.releasing
    needed = request > 0
    fits = np.all(free[:, needed] >= request[needed], axis=1)
    if task.only_nodes is not None:
        fits &= np.array([name in task.only_nodes for name in session.node_names])
    rows = np.flatnonzero(fits)
    if not rows.size:
        return None
    idle = np.all(session.idle[np.ix_(rows, needed.nonzero()[0])] >= request[needed], axis=1)
    scores = idle * _IDLE_MARKS + _placement(session, task, rows, free[rows])
    at = int(np.argmax(scores))
    return int(rows[at]), bool(idle[at])


def _placement(
    session: Session, task: Task, rows: NDArray[np.int64], free: NDArray[np.int64]
) -> NDArray[np.float64]:
    gpu = session.names.index(GPU) if GPU in session.names else None
    wants_gpu = gpu is not None and task.request[gpu] > 0
    at = gpu if wants_gpu and gpu is not None else session.names.index(CPU)
    marks = np.zeros(rows.size, dtype=np.float64)
    if gpu is not None and not wants_gpu:
        marks += (session.capacity[rows, gpu] == 0) * _TYPE_MARKS
    room = free[:, at].astype(np.float64)
    if session.settings.spread:
        marks += room / np.maximum(session.capacity[rows, at], 1)
        return marks
    low, high = room.min(), room.max()
    if low == high:
        return marks + _PLACE_MARKS
    marks += _PLACE_MARKS * (1 - (room - low) / (high - low))
    return marks
