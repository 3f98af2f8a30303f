"""Where the tasks of a trial go: on nodes that will have the room, in the order of searches.

Order of nodes: what the pod prefers, the preferred domain with the most room, idle room, then by
the packing or spreading of kai (``nodes/scores/packing.py``), and by their names.
Source: docs/rules/kai.md#allocate and docs/rules/kai.md#scores-and-domains.
"""

from collections import Counter
from collections.abc import Iterator

from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, When
from services.core.scheduler.place.one import InDomain
from services.core.scheduler.place.place import Unplaced, place
from services.core.scheduler.place.regions import Region, at_home, regions
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.trial import Job, Task, is_placed


def place_job(attempt: Attempt, job: Job, tasks: list[Task]) -> bool:
    """Have tasks of a job wait for room, all or none; return whether all could be placed."""
    return not isinstance(place(_OnTrial(attempt, tasks), job.group, Region()), Unplaced)


class _OnTrial:
    """Places tasks of a trial, as an attempt. One that is stuck ends it: no refusal is told."""

    goes_on = False

    def __init__(self, attempt: Attempt, tasks: list[Task]) -> None:
        self._trial, self._nodes = attempt.trial, attempt.trial.nodes
        self._place_of = {task: at for at, task in enumerate(tasks)}
        self.checkpoint, self.rollback = attempt.checkpoint, attempt.rollback
        self.put = attempt.pipeline

    def waiting(self, leaf: Group[Task]) -> list[Task]:
        """Return the tasks of a set that are to be placed, in their order."""
        return sorted(
            filter(self._place_of.__contains__, leaf.tasks), key=self._place_of.__getitem__
        )

    def domains(self, group: Group[Task], where: Region) -> Iterator[Region]:
        """Yield where a group may go; what it has running keeps it to its required domain."""
        if group.topology is None:
            yield where
            return
        domains = self._nodes.domains
        wish = domains.wish(group.topology)
        if isinstance(wish, str):
            return
        running = [task.node for task in group.all_tasks(is_placed) if task.node is not None]
        tasks = group.all_tasks(self._place_of.__contains__)
        home = at_home(domains, wish, Counter(running), where, len(tasks))
        counts = Counter(map(self._trial.shape_of, tasks))
        yield from regions(domains, wish, counts, self._places, home, is_kai=True)

    def _places(self, shape: Shape, rows: Mask | None) -> Amounts:
        places = self._nodes.room.places(shape, when=When.EXPECTED)
        return places if rows is None else places * rows

    def nodes_for(self, tasks: list[Task], where: Region) -> Iterator[Node | None]:
        """Yield the first node of a domain for each task."""
        nodes = self._nodes
        order = nodes.order.in_searches(*where.before)
        among = InDomain(nodes, nodes.filters.takes, where.rows, when=When.EXPECTED, order=order)
        for task in tasks:
            yield among.node_for(self._trial.shape_of(task))

    def refusal(self, task: Task | None, placed: list[tuple[Task, Node]]) -> None:
        """Say nothing: a job that is not placed waits."""
