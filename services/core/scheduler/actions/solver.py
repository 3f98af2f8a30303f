"""The search for victims: for a job that waits, the least disruption that lets it start.

Victims are taken a unit at a time, those that are owed the least first. After each, cheap filters
say whether the room could be enough; then a scenario is simulated on a attempt: the victims are
evicted, and they and the job are placed again in the order of fairness, waiting for room. What
fits where it was stays. A scenario counts when the job has all it needs, the policy agrees, and of
no disruption budget more go than it lets, all that this trial has decided counted together;
otherwise everything is taken back.

A gang is solved step by step, for 1, 2, 4 of its tasks and so on; the victims of one step stay
victims in the next. In each first scenarios of one node: the victims on a node of the latest one.
Then those of several nodes: a growing number of the nodes that give back the least. Victims are all
that have room or were promised some in this trial.

For a gang that must be in one domain all that is done domain by domain: victims are in it, or of
gangs that go as a whole, and of all domains the one with the least harm is taken. The gang is
placed first there, and victims come back where there is room.
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
    """What an action looks for: who may be a victim, and which outcome it agrees to.

    ``reason`` is what a victim is told. No victims are added once they are of more than
    ``max_victims`` jobs; negative is no bound. Of a victim that ``spares_minimum`` only what it has
    above its minimum may be taken.
    """

    is_victim: Callable[[Job], bool]
    agrees: Callable[[list[Unit]], bool]
    action: str
    reason: str
    max_victims: int = UNLIMITED
    in_leaf: Callable[[Share], bool] = lambda _: True  # whether there may be any in a leaf
    spares_minimum: Callable[[Job], bool] = lambda _: False


def solve(trial: Trial, job: Job, search: Search, others: WaitingJobs) -> Attempt | None:
    """Return an attempt that lets a job start among the others that wait, or None.

    The trial is as before then.

    Room is looked for step by step: for one task, then for 2, 4, 8 and so on. The victims of a step
    stay victims in the next, so that they go in their order, whatever node they are on.
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
        found = _find(looked_for, None, MAX_SCENARIOS)
        return found[0] if found is not None else None
    return _cheapest(looked_for, domains)


@dataclass(frozen=True, slots=True)
class _LookedFor:
    """What one search is for: the tasks of a job, and the leaves whose jobs may be victims."""

    trial: Trial
    job: Job
    tasks: list[Task]
    search: Search
    leaves: list[Share]
    others: WaitingJobs


def _cheapest(wanted: _LookedFor, domains: list[Mask]) -> Attempt | None:
    """Return an attempt in the domain where victims do the least harm."""
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
    """Return an attempt on some rows with its victims, and how many scenarios were simulated."""
    trial, job, tasks, search = wanted.trial, wanted.job, wanted.tasks, wanted.search
    order = VictimOrder(
        trial, wanted.leaves, _judge(trial, job, search), search.spares_minimum, rows
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
    """Return whether tasks of a gang go in equal parts: fewer of them are no step towards all."""
    own = group.topology is not None and bool(group.topology.slices)
    return own or any(map(_is_sliced, group.members))


def could_ever_fit(trial: Trial, job: Job) -> bool:
    """Return whether the nodes would have the room for a job if they were empty.

    Only a job whose asks are all alike is judged here, without reading them.
    """
    alike = _alike(trial, job)
    return alike is None or _could_fit(trial.nodes.room.capacities(trial.names), *alike)


def _alike(trial: Trial, job: Job) -> tuple[Amount, list[Amount]] | None:
    """Return what a job asks for to have its minimum, where that is soon said: all are alike."""
    groups = list(job.application.groups.values())
    if not job.is_flat or job.active >= job.min_available or len(groups) != 1:
        return None
    one = trial.amounts(groups[0].bucket.shape.resource)
    lacking = job.min_available - job.active
    return tuple([lacking * value for value in one]), [one]


def _judge(trial: Trial, job: Job, search: Search) -> Callable[[Job], bool]:
    """Return what says of another job whether it may be a victim for a job."""
    evictions, now_ns = trial.partition.evictions, trial.partition.now_ns
    return lambda other: (
        other is not job
        and search.is_victim(other)
        and trial.may_take_from(search.action, other, job)
        and evictions.may_evict(other.name, job.name, now_ns)
    )


def _sizes(wanted: int) -> Iterator[int]:
    """Yield how many tasks are tried: 1, 2, 4, ... and all that are wanted."""
    size = 1
    while size < wanted:
        yield size
        size *= 2
    yield wanted


class _Tries:
    """One job's tries, with more and more tasks; what was simulated is not simulated again."""

    def __init__(
        self, wanted: _LookedFor, candidates: "_Candidates", rows: Mask | None, most: int
    ) -> None:
        """At most so many are simulated."""
        trial = self._trial = wanted.trial
        self._wanted = wanted
        self._rows = rows
        given = trial.nodes.room.capacities(trial.names) - trial.room()
        self._given = given if rows is None else given[rows]  # what each node could give at most
        self._candidates = candidates
        self.left = most

    def run(self, tasks: list[Task], carried: list[Unit]) -> tuple[Attempt, list[Unit]] | None:
        """Return an attempt in which tasks of the job have room, and its units; or None."""
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
        """Yield scenarios, and after one whose victims' budgets would not let them all go: less.

        All of it may do: who is put back where it was has not gone.
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
    """The victims of a search in their order, found as far as anybody asks.

    Of those that are in none of the ``rows`` none is one, unless its gang goes as a whole.
    """

    def __init__(self, order: VictimOrder, search: Search, rows: Mask | None) -> None:
        self._order = order
        self._rows = rows
        self._passed: dict[Job, list[Task]] = {}  # what was passed over, as it is elsewhere
        self._most = search.max_victims
        self._units: list[Unit] = []
        self._places: dict[Task, int] = {}
        self._of_job: dict[Job, list[Unit]] = {}

    def beside(self, carried: list[Unit]) -> Iterator[list[Unit]]:
        """Yield the victims taken so far beside some, the same list that grows.

        It ends once they are of more jobs than the most, as docs/rules/kai.md#consolidation counts
        them.
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
        """Return units in the order in which they were found, of a gang that ends with them all."""
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
        """Return the next unit on some of the rows, with what its gang cannot go without."""
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
    """Return whether a demand fits by its sum, and each request of it on some node."""
    if not np.all(summed(room) >= sums(demand)):
        return False
    return all(bool(np.any(np.all(room >= np.array(one), axis=1))) for one in requests)


def _row(task: Task) -> int:
    """Return the row of the node that a task has room on."""
    assert task.node is not None
    return task.node.row


class _Freed:
    """What victims so far would give back, node by node and in all, beside what is free already.

    Those carried over from the step before count as gone; only some ``rows`` count, if any are
    named.
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
        """Count a victim in; return the nodes that it is on."""
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
        """Return whether all that is free then covers what is asked for, and limits allow it."""
        is_over = any(value > 0 for _, over in self.over for value in over)
        return not is_over and bool((self.free + self.total >= self.demand).all())

    def is_enough_on(self, nodes: list[int]) -> bool:
        """Return whether what some of the nodes give back, with all that is free, covers it."""
        freed = sum_of((self.by_node[node] for node in nodes), self.width)
        return bool((self.free + freed >= self.demand).all())

    def could_be_enough(self, given: NDArray[np.int64]) -> bool:
        """Return whether one node could give back enough, at most and with all that is free."""
        lacking = np.clip(self.demand - self.free, -INT64_MAX, INT64_MAX).astype(np.int64)
        return bool(np.any(np.all(given >= lacking, axis=1)))

    def takes_one(self, node: int) -> bool:
        """Return whether a node then has room for one of the tasks."""
        return bool((self.room[node] + self.by_node[node] >= self.smallest).all())


def _of_one_node(freed: _Freed, accumulated: Iterator[list[Unit]]) -> Iterator[list[Unit]]:
    """Yield, after every victim, those on each node that it is on.

    A victim that is on several nodes frees all of them: then any may be the one with the room.
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
    """Yield, after every victim, growing numbers of the nodes that victims are on."""
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
    """Evict, place again in order, and ask the policy; return the attempt if it agrees."""
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
    """Let a unit go with others if budgets let all of it; return whether they do."""
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
    """Place the job and the victims in the order of fairness; return whether the job got its room.

    ``wanted`` are those of the job's tasks that are tried, on ``rows`` if any are named.

    The order is that of all who wait, though only the job and the victims are tried: where another
    job of the queue comes first, the queue is as hungry as that one makes it. On some rows the job
    comes first: it has no others.
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
    """Return what says which tasks a job gets next: of a victim those come back that were taken.

    Of those the first are whose GPU devices are for nobody else: they need not move. What goes only
    as a whole comes back as a whole.
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
