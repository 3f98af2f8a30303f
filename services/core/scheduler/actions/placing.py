"""Places the tasks of a trial on nodes that will have the capacity.

Order of nodes: the pod's preferences, the preferred domain with the most capacity, idle capacity,
kai's packing or spreading (``nodes/scores/packing.py``), name.
Source: docs/rules/kai.md#allocate and docs/rules/kai.md#scores-and-domains.
"""

from collections import Counter
from collections.abc import Container, Iterator

from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, When
from services.core.scheduler.place.one import InDomain
from services.core.scheduler.place.place import Unplaced, place
from services.core.scheduler.place.regions import Region, at_home, regions, searched, shared_out
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.trial import Job, Task, Trial, is_placed


def place_job(attempt: Attempt, job: Job, tasks: list[Task], rows: Mask | None = None) -> bool:
    """Pipeline tasks of a job on some rows, all or none; return whether all fit."""
    return not isinstance(place(_OnTrial(attempt, tasks), job.group, Region(rows)), Unplaced)


def search_domains(trial: Trial, job: Job, tasks: list[Task]) -> list[Mask] | None:
    """Return the rows of the domains to search for all tasks, None if no level is required.

    The domains and their order are those of ``regions.searched``.
    """
    group = _in_one_domain(job.group, dict.fromkeys(tasks))
    if group is None or group.topology is None:
        return None
    domains, room = trial.nodes.domains, trial.nodes.room
    resolved = domains.resolve(group.topology)
    if isinstance(resolved, str):
        return []
    running = [task.node for task in group.all_tasks(is_placed) if task.node is not None]
    counts = Counter(map(trial.shape_of, tasks))

    def empty(shape: Shape, _: Mask | None) -> Amounts:
        return room.places(shape, when=When.EMPTY)

    def expected(shape: Shape, _: Mask | None) -> Amounts:
        return room.places(shape, when=When.EXPECTED)

    return searched(domains, resolved, counts, (empty, expected), Counter(running))


def _in_one_domain(tree: Group[Task], tasks: Container[Task]) -> Group[Task] | None:
    """Return the widest part with a required level that contains all of some tasks, or None."""
    group = tree
    while group.topology is None or not group.topology.required:
        inner = [each for each in group.members if each.all_tasks(tasks.__contains__)]
        if len(inner) != 1:
            return None
        group = inner[0]
    return group


class _OnTrial:
    """The placer of a trial's tasks, in an attempt. It stops at the first task without a node."""

    goes_on = False

    def __init__(self, attempt: Attempt, tasks: list[Task]) -> None:
        self._trial, self._nodes = attempt.trial, attempt.trial.nodes
        self._place_of = {task: at for at, task in enumerate(tasks)}
        self.checkpoint, self.rollback = attempt.checkpoint, attempt.rollback
        self.put = attempt.pipeline

    def waiting(self, leaf: Group[Task]) -> list[Task]:
        """Return the tasks of a set to be placed, in order."""
        return sorted(
            filter(self._place_of.__contains__, leaf.tasks), key=self._place_of.__getitem__
        )

    def domains(self, group: Group[Task], where: Region) -> Iterator[Region]:
        """Yield the regions for a group; running tasks determine its required domain."""
        if group.topology is None:
            yield where
            return
        domains = self._nodes.domains
        resolved = domains.resolve(group.topology)
        if isinstance(resolved, str):
            return
        running = [task.node for task in group.all_tasks(is_placed) if task.node is not None]
        tasks = group.all_tasks(self._place_of.__contains__)
        home = at_home(domains, resolved, Counter(running), where, len(tasks))
        counts = Counter(map(self._trial.shape_of, tasks))
        yield from regions(domains, resolved, counts, self._places, home, is_kai=True)

    def _places(self, shape: Shape, rows: Mask | None) -> Amounts:
        places = self._nodes.room.places(shape, when=When.EXPECTED)
        return places if rows is None else places * rows

    def nodes_for(self, tasks: list[Task], where: Region) -> Iterator[Node | None]:
        """Yield a node of a domain for each task; slices are divided by numbers."""
        nodes = self._nodes
        if where.topology is not None and where.topology.slices:
            shape = self._trial.shape_of(tasks[0])
            for row, number in shared_out(where, shape, self._places, len(tasks)):
                yield from [nodes.rows[row]] * number
            return
        order = nodes.order.in_searches(*where.before)
        among = InDomain(nodes, nodes.filters.takes, where.rows, when=When.EXPECTED, order=order)
        for task in tasks:
            yield among.node_for(self._trial.shape_of(task))

    def refusal(self, task: Task | None, placed: list[tuple[Task, Node]]) -> None:
        """Return None: a job that is not placed waits."""
