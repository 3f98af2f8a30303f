"""The search for victims by simulation: the least disruption that lets a waiting job start.

Victims are added unit by unit, in victim order. After each, cheap filters check whether the
capacity could be enough; then a scenario is simulated in an attempt: the victims are evicted, and
they and the job are placed again in fair order on the capacity. Victims that fit where they were
stay. A scenario is accepted if the job has all it needs, the policy agrees, and no disruption
budget is exceeded, counting all decisions of this trial; otherwise it is undone.

A gang is solved in steps, for 1, 2, 4 of its tasks and so on; the victims of one step remain
victims in the next. Each step tries scenarios of one node first, the victims on a node of the
latest one, then scenarios of several nodes, a growing number of those that free the least. Any task
with allocated or nominated capacity may be a victim.

For a gang that must be in one domain this is done for each domain: victims are in it, or in gangs
that are evicted as a whole, and the domain with the least harm is used. The gang is placed first
there, victims then where they fit.

Source: docs/rules/kai.md#states-and-rooms and docs/rules/kai.md#the-search.
Limit: MAX_SCENARIOS simulated for one job.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.actions.jobs_in_order import (
    TryOrder,
    Unit,
    VictimOrder,
    WaitingJobs,
    tasks_to_allocate,
)
from services.core.scheduler.actions.placing import place_job, search_domains
from services.core.scheduler.actions.victim_search import NO_HARM, Harm, harm_of, search_places
from services.core.scheduler.constraints.capacity import may_ever_take, may_take, over_limits
from services.core.scheduler.model.sums import Sums, sum_of, summed, sums
from services.core.scheduler.nodes.columns import Mask
from services.core.scheduler.nodes.victim_budgets import Releases
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Amount,
    Job,
    Share,
    Task,
    Trial,
    is_evictable,
    is_out,
    request_of,
)
from shared.model.numbers import INT64_MAX

MAX_SCENARIOS = 5_000


@dataclass(frozen=True, slots=True)
class Search:
    """An action's search: which jobs may be victims, and which results it accepts.

    ``reason`` is shown for each victim. No victims are added once they belong to more than
    ``max_victims`` jobs; negative: no limit. From a victim that ``spares_minimum`` selects only the
    surplus above its minimum is taken. ``takes``: which tasks of a victim may be taken. With
    ``rows`` the job may use these nodes only, victims are on them, and it is placed before them.
    """

    is_victim: Callable[[Job], bool]
    agrees: Callable[[list[Unit]], bool]
    action: str
    reason: str
    max_victims: int = UNLIMITED
    in_leaf: Callable[[Share], bool] = lambda _: True  # whether a leaf may have victims
    spares_minimum: Callable[[Job], bool] = lambda _: False
    takes: Callable[[Task], bool] = is_evictable
    rows: Mask | None = None


def solve(trial: Trial, job: Job, search: Search, others: WaitingJobs) -> Attempt | None:
    """Return an attempt that lets a job start among the other waiting jobs, or None.

    With None the trial is unchanged. The search goes step by step: for 1 task, then for 2, 4, 8 and
    so on. The victims of a step remain victims in the next, so that they are evicted in their
    order, on whatever node.
    """
    capacities = trial.nodes.room.capacities(trial.names)
    tasks = tasks_to_allocate(job)
    if not may_ever_take(trial, job, tasks):
        return None
    demand = request_of(tasks, trial.width)
    if not _could_fit(capacities, demand, dict.fromkeys(task.request for task in tasks)):
        return None
    leaves = [leaf for leaf in trial.leaves if search.in_leaf(leaf)]
    free = trial.free()
    given = sum_of((leaf.allocated for leaf in leaves), trial.width)
    if not np.all(free + given >= sums(demand)):
        return None
    domains = search_domains(trial, job, tasks)
    looked_for = _LookedFor(trial, job, tasks, search, leaves, others)
    if domains is None:
        found = _find(looked_for, search.rows, MAX_SCENARIOS)
        return found[0] if found is not None else None
    usable = search.rows
    return _cheapest(looked_for, [each if usable is None else each & usable for each in domains])


@dataclass(frozen=True, slots=True)
class _LookedFor:
    """What one search is for: a job's tasks, and the leaves whose jobs may be victims."""

    trial: Trial
    job: Job
    tasks: list[Task]
    search: Search
    leaves: list[Share]
    others: WaitingJobs


def _cheapest(wanted: _LookedFor, domains: list[Mask]) -> Attempt | None:
    """Return an attempt in the domain with the least harm."""
    left = MAX_SCENARIOS

    def find(rows: Mask, _: Harm | None) -> tuple[Harm, tuple[list[Unit], Mask]] | None:
        nonlocal left
        found = _find(wanted, rows, left)
        if found is None:
            return None
        attempt, units, tried = found
        left -= tried
        gone = [job for job, tasks in units for task in tasks if attempt.has_changed(task)]
        attempt.discard()
        harm = harm_of((job.priority for job in gone), gone, (-job.number for job in gone))
        return harm, (units, rows)

    best = search_places(((NO_HARM, rows) for rows in domains), find)
    return None if best is None else _simulate(wanted, wanted.tasks, *best)


def _find(
    wanted: _LookedFor, rows: Mask | None, most: int
) -> tuple[Attempt, list[Unit], int] | None:
    """Return an attempt on some rows, its victims, and the number of simulated scenarios."""
    trial, job, tasks, search = wanted.trial, wanted.job, wanted.tasks, wanted.search
    order = VictimOrder(
        trial,
        wanted.leaves,
        _judge(trial, job, search),
        search.spares_minimum,
        rows,
        takes=search.takes,
    )
    tries = _Tries(wanted, _Candidates(order, search, rows), rows, most)
    carried: list[Unit] = []
    for size in [len(tasks)] if _is_sliced(job.group) else _sizes(len(tasks)):
        found = tries.run(tasks[:size], carried)
        if size == len(tasks):
            return (*found, most - tries.left) if found is not None else None
        if found is None:
            break
        attempt, units = found
        carried = [unit for unit in units if any(map(attempt.has_changed, unit[1]))]
        attempt.discard()
    found = tries.run(tasks, carried) if carried else None
    return (*found, most - tries.left) if found is not None else None


def _is_sliced(group: Group[Task]) -> bool:
    """Whether a gang is divided in slices: then fewer tasks are no step towards all."""
    own = group.topology is not None and bool(group.topology.slices)
    return own or any(map(_is_sliced, group.members))


def could_ever_fit(trial: Trial, job: Job) -> bool:
    """Whether a job would fit on empty nodes.

    Only jobs with equal asks are checked; for others it returns True.
    """
    alike = _alike(trial, job)
    return alike is None or _could_fit(trial.nodes.room.capacities(trial.names), *alike)


def _alike(trial: Trial, job: Job) -> tuple[Amount, list[Amount]] | None:
    """Return what a job of equal asks lacks of its minimum, and one request; None for others."""
    groups = list(job.application.groups.values())
    if not job.is_flat or job.active >= job.min_available or len(groups) != 1:
        return None
    one = trial.amounts(groups[0].bucket.shape.resource)
    lacking = job.min_available - job.active
    return tuple([lacking * value for value in one]), [one]


def _judge(trial: Trial, job: Job, search: Search) -> Callable[[Job], bool]:
    """Return a predicate: whether a job may be a victim for ``job``."""
    evictions, now_ns = trial.partition.evictions, trial.partition.now_ns
    return lambda other: (
        other is not job
        and search.is_victim(other)
        and trial.may_take_from(search.action, other, job)
        and evictions.may_evict(other.name, job.name, now_ns)
    )


def _sizes(wanted: int) -> Iterator[int]:
    """Yield the numbers of tasks to try: 1, 2, 4, ... and all."""
    size = 1
    while size < wanted:
        yield size
        size *= 2
    yield wanted


class _Tries:
    """One job's tries with a growing number of tasks; no scenario is simulated twice."""

    def __init__(
        self, wanted: _LookedFor, candidates: "_Candidates", rows: Mask | None, most: int
    ) -> None:
        """Allow at most ``most`` simulations."""
        trial = self._trial = wanted.trial
        self._wanted = wanted
        self._rows = rows
        given = trial.nodes.room.capacities(trial.names) - trial.room()
        self._given = given if rows is None else given[rows]  # what each node could free at most
        self._candidates = candidates
        self.left = most

    def run(self, tasks: list[Task], carried: list[Unit]) -> tuple[Attempt, list[Unit]] | None:
        """Return an attempt in which the tasks are placed, with its victims; or None."""
        seen: set[frozenset[Task]] = set()
        for units in self._within_budgets(self._scenarios(tasks, carried)):
            evicted = frozenset(task for _, group in units for task in group)
            if evicted in seen:
                continue
            seen.add(evicted)
            self.left -= 1
            if self.left < 0:
                return None
            attempt = _simulate(self._wanted, tasks, units, self._rows)
            if attempt is not None:
                return attempt, units
        return None

    def _within_budgets(self, scenarios: Iterable[list[Unit]]) -> Iterator[list[Unit]]:
        """Yield scenarios, and after one that exceeds disruption budgets, the part within them.

        The whole may be accepted too: victims that stay where they were do not count.
        """
        has_budgets = bool(self._trial.partition.victims.budgets)
        for units in scenarios:
            yield units
            if not has_budgets:
                continue
            going = self._trial.releases()
            left = [unit for unit in units if _fits_budgets(going, unit)]
            if 0 < len(left) < len(units):
                yield self._candidates.whole(left)

    def _scenarios(self, tasks: list[Task], carried: list[Unit]) -> Iterator[list[Unit]]:
        freed = _Freed(self._trial, tasks, carried, self._rows)
        if carried and freed.is_enough():
            yield carried
        if freed.could_be_enough(self._given):
            for units in _of_one_node(freed, self._candidates.beside(carried)):
                yield self._candidates.whole([*carried, *units])
        freed = _Freed(self._trial, tasks, carried, self._rows)
        for units in _of_several_nodes(freed, self._candidates.beside(carried)):
            yield self._candidates.whole([*carried, *units])


# --- scenarios ------------------------------------------------------------------------------------


class _Candidates:
    """The victims of a search in order, generated on demand.

    With ``rows`` only those on them, and gangs that are evicted as a whole.
    """

    def __init__(self, order: VictimOrder, search: Search, rows: Mask | None) -> None:
        self._order = order
        self._rows = rows
        self._passed: dict[Job, list[Task]] = {}  # skipped tasks on other rows
        self._most = search.max_victims
        self._units: list[Unit] = []
        self._places: dict[Task, int] = {}
        self._of_job: dict[Job, list[Unit]] = {}

    def beside(self, carried: list[Unit]) -> Iterator[list[Unit]]:
        """Yield a growing list of victims, without those of ``carried``.

        It ends once they belong to more jobs than allowed, counted as in
        docs/rules/kai.md#consolidation.
        """
        known = {task for _, tasks in carried for task in tasks}
        units: list[Unit] = []
        jobs = dict.fromkeys(job for job, _ in carried)
        at = 0
        while not 0 <= self._most < len(jobs) and (unit := self._at(at)) is not None:
            at += 1
            if unit[1][0] not in known:
                units.append(unit)
                jobs[unit[0]] = None
                yield units

    def whole(self, units: list[Unit]) -> list[Unit]:
        """Return units in the order found, and all units of gangs that lose their minimum."""
        gone = {task for _, tasks in units for task in tasks}
        chosen = Counter(job for job, _ in units)
        found = [unit for unit in units if len(self._of_job[unit[0]]) == chosen[unit[0]]]
        for job, count in chosen.items():
            if count < len(self._of_job[job]):
                stays = job.group.is_satisfied(lambda task: is_evictable(task) and task not in gone)
                known = self._of_job[job]
                found += [unit for unit in known if unit[1][0] in gone] if stays else known
        return sorted(found, key=lambda unit: self._places[unit[1][0]])

    def _at(self, at: int) -> Unit | None:
        if at == len(self._units):
            unit = self._next()
            if unit is None:
                return None
            self._places[unit[1][0]] = at
            self._of_job.setdefault(unit[0], []).append(unit)
            self._units.append(unit)
        return self._units[at]

    def _next(self) -> Unit | None:
        """Return the next unit on the rows, with what its gang cannot keep without it."""
        rows = self._rows
        while (unit := self._order.pop()) is not None:
            job, tasks = unit
            if rows is None:
                return unit
            is_there = any(rows[_row(task)] for task in tasks)
            if is_there and not self._order.has_left(job):
                return job, [*self._passed.pop(job, ()), *tasks]
            if is_there:
                return unit
            self._passed.setdefault(job, []).extend(tasks)
        return None


def _could_fit(room: NDArray[np.int64], demand: Amount, requests: Iterable[Amount]) -> bool:
    """Whether a demand fits by its sum, and each of its requests on some node."""
    if not np.all(summed(room) >= sums(demand)):
        return False
    return all(bool(np.any(np.all(room >= np.array(one), axis=1))) for one in requests)


def _row(task: Task) -> int:
    """Return the row of a task's node."""
    assert task.node is not None
    return task.node.row


class _Freed:
    """The capacity that the victims so far would free, by node and in total.

    Those carried over from the last step count as evicted; with ``rows`` only these count.
    """

    def __init__(
        self, trial: Trial, tasks: list[Task], carried: list[Unit], rows: Mask | None
    ) -> None:
        self.width = trial.width
        self._rows = rows
        self.room = trial.room()
        if rows is not None:
            self.room[~rows] = 0
        demand = request_of(tasks, self.width)
        self.over = over_limits(tasks[0].job, demand)
        for unit in carried:
            self._bring_within_limits(unit)
            for task in self._there(unit[1]):
                self.room[_row(task)] += task.request
        self.demand = sums(demand)
        self.smallest = np.array(tasks[-1].request, dtype=np.int64)
        self.free = summed(np.maximum(self.room, 0))
        self.by_node: dict[int, Sums] = {}
        self.total = sums([0] * self.width)

    def add(self, unit: Unit) -> list[int]:
        """Add a victim; return the rows of its nodes."""
        there = self._there(unit[1])
        for task in there:
            request = sums(task.request)
            at = self.by_node.setdefault(_row(task), sums([0] * self.width))
            at += request
            self.total += request
        self._bring_within_limits(unit)
        return sorted({_row(task) for task in there})

    def _there(self, tasks: list[Task]) -> list[Task]:
        rows = self._rows
        return tasks if rows is None else [task for task in tasks if rows[_row(task)]]

    def _bring_within_limits(self, unit: Unit) -> None:
        job, tasks = unit
        for queue, over in self.over:
            if queue in job.queue.lineage():
                for at, value in enumerate(request_of(tasks, self.width)):
                    over[at] -= value

    def is_enough(self) -> bool:
        """Whether the free and freed capacity is enough, and limits allow the job."""
        is_over_limit = any(value > 0 for _, over in self.over for value in over)
        return not is_over_limit and bool((self.free + self.total >= self.demand).all())

    def is_enough_on(self, nodes: list[int]) -> bool:
        """Whether what some nodes free, with all free capacity, is enough."""
        freed = sum_of((self.by_node[node] for node in nodes), self.width)
        return bool((self.free + freed >= self.demand).all())

    def could_be_enough(self, given: NDArray[np.int64]) -> bool:
        """Whether one node could free enough at most, with all free capacity."""
        lacking = np.clip(self.demand - self.free, -INT64_MAX, INT64_MAX).astype(np.int64)
        return bool(np.any(np.all(given >= lacking, axis=1)))

    def takes_one(self, node: int) -> bool:
        """Whether one of the tasks then fits on a node."""
        return bool((self.room[node] + self.by_node[node] >= self.smallest).all())


def _of_one_node(freed: _Freed, accumulated: Iterator[list[Unit]]) -> Iterator[list[Unit]]:
    """Yield, after each victim, all victims on each of its nodes.

    A victim on several nodes frees all of them, so that any of them may be the one that fits.
    """
    units_on: dict[int, list[Unit]] = {}
    with_others: set[int] = set()  # nodes with a victim that is on others as well
    takes_any = False
    for units in accumulated:
        latest = units[-1]
        nodes = freed.add(latest)
        takes_any = takes_any or any(map(freed.takes_one, nodes))
        for node in nodes:
            units_on.setdefault(node, []).append(latest)
        with_others.update(nodes if len(nodes) > 1 else ())
        for node in nodes:
            takes = takes_any if node in with_others else freed.takes_one(node)
            if takes and freed.is_enough_on([node]):
                yield units_on[node]


def _of_several_nodes(freed: _Freed, accumulated: Iterator[list[Unit]]) -> Iterator[list[Unit]]:
    """Yield, after each victim, the victims on a growing number of nodes."""
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
                yield [unit for unit in units if any(_row(task) in chosen for task in unit[1])]
            count *= 2
        yield units


# --- simulation -----------------------------------------------------------------------------------


def _simulate(
    looked_for: _LookedFor, wanted: list[Task], units: list[Unit], rows: Mask | None
) -> Attempt | None:
    """Evict, place again in order, and check; return the attempt if it is accepted."""
    trial, job, search = looked_for.trial, looked_for.job, looked_for.search
    attempt = Attempt(trial, job.name)
    for _, tasks in units:
        for task in tasks:
            attempt.evict(task, search.reason, search.action)
    is_placed = _place_again(attempt, looked_for, wanted, units, rows)
    if is_placed and not trial.are_too_many(task for _, tasks in units for task in tasks):
        left = _still_evicted(units)
        going = [task for _, tasks in left for task in tasks]
        if search.agrees(left) and trial.agree(search.action, going, job):
            return attempt
    attempt.discard()
    return None


def _fits_budgets(going: Releases, unit: Unit) -> bool:
    """Add a unit to the releases if its budgets allow all of it; return whether they do."""
    keys = [task.name for task in unit[1]]
    for key in keys:
        going.go(key)
    may_go = not going.are_too_many(keys)
    if not may_go:
        for key in keys:
            going.stay(key)
    return may_go


def _place_again(
    attempt: Attempt,
    looked_for: _LookedFor,
    wanted: list[Task],
    units: list[Unit],
    rows: Mask | None,
) -> bool:
    """Place the job and the victims in fair order; return whether the job is placed.

    ``wanted`` are the job's tasks to try, on ``rows`` if given. The order includes all waiting
    jobs, though only the job and the victims are placed: a queue whose first job is another is
    ordered by that job's request. On ``rows`` the job is placed first.
    """
    job = looked_for.job
    tasks_of = _next_tasks(job, wanted, units)
    to_try = [job, *(victim for victim, _ in units)]
    if rows is not None:
        if not _wait_for_room(attempt, job, wanted, rows):
            return False
        del to_try[0]
    order = TryOrder(attempt.trial, to_try, looked_for.others, tasks_of)
    while (candidate := order.pop()) is not None:
        tasks = tasks_of(candidate)
        if candidate is job:
            if not _wait_for_room(attempt, job, tasks):
                return False
        elif _wait_for_room(attempt, candidate, tasks):
            order.push(candidate)
    return True


def _next_tasks(job: Job, wanted: list[Task], units: list[Unit]) -> Callable[[Job], list[Task]]:
    """Return a function from a job to its next tasks; for victims, those that were evicted.

    Tasks whose GPU devices no other claims come first: they need not move. A part that is evicted
    as a whole returns as a whole.
    """
    victims = {victim: victim.group.has_wholes for victim, _ in units}
    evicted = {task for _, tasks in units for task in tasks}
    nodes = job.trial.nodes

    def may_return(task: Task) -> bool:
        return task in evicted and is_out(task)

    def may_stay(task: Task) -> bool:
        node = task.node
        return may_return(task) and node is not None and nodes.devices.may_stay(node, task.name)

    def tasks_of(candidate: Job) -> list[Task]:
        if candidate is job:
            return wanted
        if candidate not in victims:
            return tasks_to_allocate(candidate)
        staying = tasks_to_allocate(candidate, may_stay) if nodes.devices.are_shared else []
        found = staying or tasks_to_allocate(candidate, may_return)
        return candidate.group.together(found, may_return) if victims[candidate] else found

    return tasks_of


def _wait_for_room(attempt: Attempt, job: Job, tasks: list[Task], rows: Mask | None = None) -> bool:
    may = may_take(attempt.trial, job, tasks)
    return may and place_job(attempt, job, tasks, rows)


def _still_evicted(units: list[Unit]) -> list[Unit]:
    left = [(victim, [task for task in tasks if is_out(task)]) for victim, tasks in units]
    return [unit for unit in left if unit[1]]
