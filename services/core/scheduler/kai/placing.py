"""Where a task goes: the first node, by score, that has the room.

Order of nodes: those with idle room before those where room is being released, nodes without
accelerators for tasks without (resource type), then the fullest first, or the emptiest with
``spread``; equal ones in the order of the session. Source: contract kai.md, 1.2 and 1.12.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.kai.groups import Group
from services.core.scheduler.kai.session import Job, Session, Status, Task, is_placed
from services.core.scheduler.kai.statement import Statement
from services.core.scheduler.kai.topology import Domain, domains, same_domain

GPU = "nvidia.com/gpu"
CPU = "vcore"
_TOPOLOGY_MARKS = 100_000.0
_IDLE_MARKS, _TYPE_MARKS, _PLACE_MARKS = 1000.0, 10.0, 9.0


def place_job(
    statement: Statement, job: Job, tasks: list[Task], *, only_pipeline: bool = False
) -> bool:
    """Place tasks of a job, all or none; return whether all could be.

    If some must wait for room and the minimum does not run yet, all of them wait: nobody starts
    a gang in halves.
    """
    checkpoint = statement.checkpoint()
    session = statement.session
    everywhere = Domain(
        np.ones(len(session.node_names), dtype=np.bool_),
        np.zeros(len(session.node_names), dtype=np.float64),
    )
    if not _place_group(statement, job.group, tasks, everywhere, only_pipeline=only_pipeline):
        return False
    waits = any(task.status is not Status.ALLOCATED for task in tasks)
    if waits and not only_pipeline and not job.group.is_satisfied(is_placed):
        places = [(task, task.node) for task in tasks]
        statement.rollback(checkpoint)
        for task, node in places:
            statement.pipeline(task, node)
    return True


def _place_group(
    statement: Statement, group: Group, tasks: list[Task], where: Domain, *, only_pipeline: bool
) -> bool:
    """Place those tasks that are in a group, in the first domain that takes them, or none."""
    own = group.all_tasks(dict.fromkeys(tasks).__contains__)
    if not own:
        return True
    checkpoint = statement.checkpoint()
    for domain in _domains_for(statement.session, group, own, where):
        if _place_in(statement, group, own, domain, only_pipeline=only_pipeline):
            return True
        statement.rollback(checkpoint)
    return False


def _domains_for(
    session: Session, group: Group, tasks: list[Task], where: Domain
) -> Iterable[Domain]:
    """Return where a group may go; what it has running already keeps it to its required domain."""
    topology = group.topology
    if topology is None:
        return [where]
    rows = where.rows
    running = [task.node for task in group.all_tasks(is_placed)]
    if topology.required and running:
        rows = rows & same_domain(session, topology, running[0])
    return domains(session, topology, rows, tasks)


def _place_in(
    statement: Statement, group: Group, tasks: list[Task], domain: Domain, *, only_pipeline: bool
) -> bool:
    """Place tasks of a group in a domain, member by member; False leaves some placed."""
    for member in group.members:
        if not _place_group(statement, member, tasks, domain, only_pipeline=only_pipeline):
            return False
    own = set(group.tasks)
    for task in (task for task in tasks if task in own):
        found = best_node(statement.session, task, domain)
        if found is None:
            return False
        node, is_idle = found
        if is_idle and not only_pipeline:
            statement.allocate(task, node)
        else:
            statement.pipeline(task, node)
    return True


def best_node(session: Session, task: Task, where: Domain) -> tuple[int, bool] | None:
    """Return the node of a domain for a task, and whether it has idle room; or None."""
    request = np.array(task.request, dtype=np.int64)
    free = session.idle + session.releasing
    needed = request > 0
    fits = where.rows & np.all(free[:, needed] >= request[needed], axis=1)
    if task.only_nodes is not None:
        fits &= session.rows_of(task.only_nodes)
    for feasible in session.plugins.feasible:
        open_rows = feasible(session, task)
        if open_rows is not None:
            fits &= open_rows
    rows = np.flatnonzero(fits)
    if not rows.size:
        return None
    idle = np.all(session.idle[np.ix_(rows, needed.nonzero()[0])] >= request[needed], axis=1)
    scores = idle * _IDLE_MARKS + _placement(session, task, rows, free[rows])
    scores += where.marks[rows] * _TOPOLOGY_MARKS
    at = int(np.argmax(scores))
    return int(rows[at]), bool(idle[at])


def _placement(
    session: Session, task: Task, rows: NDArray[np.int64], free: NDArray[np.int64]
) -> NDArray[np.float64]:
    gpu = session.names.index(GPU) if GPU in session.names else None
    wants_gpu = gpu is not None and task.request[gpu] > 0
    cpu = session.names.index(CPU) if CPU in session.names else 0
    at = gpu if wants_gpu and gpu is not None else cpu
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
