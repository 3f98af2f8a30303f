"""Topology: which nodes a gang, or a group of it, may spread over, and which it would rather have.

Rule 1: a domain is the nodes that share the labels of a level and of all levels above it. With a
        required level all tasks go into one of its domains, nowhere if there is no such level; a
        preferred level is tried first, then the levels above it, up to the required one, or
        everything.
Rule 2: domains that cannot hold the tasks are left out. The fullest goes first: the one whose
        topmost domain has the least room, then the next level, down to itself.
Rule 3: inside a domain that is wider than preferred, the preferred ones with the most room go
        first, so that as few as can be are used.
Source: docs/rules/kai.md#scores-and-domains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.sums import sum_of
from shared.messages.interface import TopologyConstraint

if TYPE_CHECKING:
    from services.core.scheduler.statement.trial import Task, Trial

Mask = NDArray[np.bool_]
Marks = NDArray[np.float64]
DomainKey = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Nodes to place tasks on, and how they are liked among each other."""

    rows: Mask
    marks: Marks


def domains(
    trial: "Trial", topology: TopologyConstraint, within: Mask, tasks: "Sequence[Task]"
) -> Iterator[Domain]:
    """Yield the domains for tasks in the order in which they are to be tried."""
    if topology.required and topology.required not in topology.levels:
        return
    bottom = _level(topology, topology.required)
    top = max(bottom, _level(topology, topology.preferred))
    for level in range(top, bottom - 1, -1):
        groups = _domains_at(trial, topology, level, within)
        open_ones = {key: rows for key, rows in groups.items() if _holds(trial, rows, tasks)}
        order = sorted(open_ones, key=lambda key: _fullness(trial, topology, key, within, tasks))
        for key in order:
            rows = open_ones[key]
            marks = np.zeros(len(rows), dtype=np.float64)
            if top > level:
                inside = list(_domains_at(trial, topology, top, rows).values())
                _mark(trial, inside, marks, tasks)
            yield Domain(rows, marks)


def same_domain(trial: "Trial", topology: TopologyConstraint, row: int) -> Mask:
    """Return the rows in a row's required domain."""
    levels = topology.levels[: _level(topology, topology.required) + 1]
    wanted = [trial.labels[row].get(name) for name in levels]
    return np.array(
        [[labels.get(name) for name in levels] == wanted for labels in trial.labels],
        dtype=np.bool_,
    )


def _level(topology: TopologyConstraint, name: str) -> int:
    """Return a level's place; -1, everything, for none and for one that is not there."""
    return topology.levels.index(name) if name in topology.levels else -1


def _domains_at(
    trial: "Trial", topology: TopologyConstraint, level: int, within: Mask
) -> dict[DomainKey, Mask]:
    """Return the domains of a level, by the labels that make them; nodes without one are out."""
    if level < 0:
        return {(): within.copy()}
    found: dict[DomainKey, Mask] = {}
    for at in np.flatnonzero(within):
        labels = trial.labels[at]
        key = tuple(labels.get(name, "") for name in topology.levels[: level + 1])
        if all(key):
            found.setdefault(key, np.zeros(len(within), dtype=np.bool_))[at] = True
    return found


def _free(trial: "Trial", rows: Mask, tasks: "Sequence[Task]") -> NDArray[np.int64]:
    """Return how many tasks like the first each row has room for."""
    request = np.array(tasks[0].request, dtype=np.int64)
    needed = request > 0
    room = trial.room()[rows][:, needed]
    counts: NDArray[np.int64] = np.maximum(0, (room // request[needed]).min(axis=1, initial=10**9))
    return counts


def _holds(trial: "Trial", rows: Mask, tasks: "Sequence[Task]") -> bool:
    """Return whether rows could hold tasks: by their number if they are alike, else by the sum."""
    if len({task.request for task in tasks}) == 1:
        return int(_free(trial, rows, tasks).sum()) >= len(tasks)
    return bool(np.all(trial.free(rows) >= sum_of((task.request for task in tasks), trial.width)))


def _fullness(
    trial: "Trial",
    topology: TopologyConstraint,
    key: DomainKey,
    within: Mask,
    tasks: "Sequence[Task]",
) -> tuple[int, ...]:
    """Return the room of the domains that a domain is in, from the widest down to itself."""
    rooms = []
    for level in range(len(key)):
        rows = _domains_at(trial, topology, level, within)[key[: level + 1]]
        rooms.append(int(_free(trial, rows, tasks).sum()))
    return tuple(rooms)


def _mark(trial: "Trial", parts: list[Mask], marks: Marks, tasks: "Sequence[Task]") -> None:
    """Mark preferred domains inside a wider one: the roomiest gets the most."""
    rooms = [int(_free(trial, part, tasks).sum()) for part in parts]
    for mark, at in enumerate(sorted(range(len(parts)), key=lambda at: (rooms[at], at)), start=1):
        marks[parts[at]] = mark
