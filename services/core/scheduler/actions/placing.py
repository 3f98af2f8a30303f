"""Where the tasks of a trial go: on nodes that will have the room, in the order of searches.

Order of nodes: what the pod prefers, the preferred domain with the most room, idle room, then by
the packing or spreading of kai (``nodes/scores/packing.py``), and by their names.
Source: docs/rules/kai.md#allocate and docs/rules/kai.md#scores-and-domains.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.constraints.node_domains import Domain, domains, same_domain
from services.core.scheduler.model.rows import Node
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.place.packing import Ranks
from services.core.scheduler.place.place import Unplaced, place
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.trial import Job, Task, is_placed


def place_job(attempt: Attempt, job: Job, tasks: list[Task]) -> bool:
    """Have tasks of a job wait for room, all or none; return whether all could be placed."""
    rows = len(attempt.trial.nodes.rows)
    everywhere = Domain(np.ones(rows, dtype=np.bool_), np.zeros(rows, dtype=np.float64))
    found = place(_OnTrial(attempt, tasks), job.group, everywhere)
    return not isinstance(found, Unplaced)


class _OnTrial:
    """Places tasks of a trial, as an attempt. One that is stuck ends it: no refusal is told."""

    goes_on = False

    def __init__(self, attempt: Attempt, tasks: list[Task]) -> None:
        self._trial = attempt.trial
        self._place_of = {task: at for at, task in enumerate(tasks)}
        self.checkpoint, self.rollback = attempt.checkpoint, attempt.rollback
        self.put = attempt.pipeline

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
        nodes = self._trial.nodes
        order = nodes.order.in_searches(Ranks(-where.marks))
        for task in tasks:
            shape = self._trial.shape_of(task)
            rows = np.flatnonzero(nodes.filters.takes.mask(shape, When.EXPECTED) & where.rows)
            yield nodes.order.first(rows, shape, order)

    def refusal(self, task: Task | None, placed: list[tuple[Task, Node]]) -> None:
        """Say nothing: a job that is not placed waits."""
