"""Place: a gang's tree on nodes, in the first domains that take it; all of it or none.

Rule 1: a group with a topology constraint goes into one of its domains, tried in their order; what
        was tried is undone before the next. A group without one goes where the group above it does.
        A choice is taken back when what comes after it finds no place, so that one is found
        wherever there is one, as far as MAX_TRIES go.
Rule 2: such groups come first; then the leaves take turns in their order, each ask beside those
        before it. A leaf that is stuck has another turn when others have been placed, as pods may
        draw each other, unless the placer ends the try at once (``goes_on``).
Rule 3: the refusal is that of the first try, worked out while what was placed still stands.

Cost: one search of the nodes an ask and domain, and one more a round of those that are stuck.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.core.scheduler.model.rows import Node
from services.core.scheduler.statement.task_trees import Group, HasOrder

MAX_TRIES = 1_000  # attempts to place all parts of one tree; then it is refused

Task = TypeVar("Task", bound=HasOrder)
Where = TypeVar("Where")  # a domain, as the placer knows it
Why = TypeVar("Why")  # a refusal
Why_co = TypeVar("Why_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Unplaced(Generic[Why]):
    """Nothing was placed, and why."""

    refusal: Why


class Placer(Protocol[Task, Where, Why_co]):
    """What is placed on: the choice of a node, the moves, and the evidence where there is none."""

    goes_on: bool  # with others when a leaf is stuck

    def checkpoint(self) -> int:
        """Return where the moves are, for a rollback."""

    def rollback(self, checkpoint: int) -> None:
        """Take back the moves that came after a checkpoint."""

    def waiting(self, leaf: Group[Task]) -> list[Task]:
        """Return the asks of a leaf that are to be placed, in their order."""

    def domains(self, group: Group[Task], where: Where) -> Iterable[Where]:
        """Return the domains of which a group goes into one, in the order to try them."""

    def nodes_for(self, tasks: list[Task], where: Where) -> Iterable[Node | None]:
        """Yield the node for each of a leaf's asks, once those before it are placed; None: none."""

    def put(self, task: Task, node: Node) -> None:
        """Place an ask."""

    def refusal(self, task: Task | None, placed: list[tuple[Task, Node]]) -> Why_co:
        """Return why an ask has no node beside those that were placed; None: no domain is left."""


class _Search(Generic[Why]):
    """How far one search is: how many tries are left, and why the first one failed."""

    def __init__(self) -> None:
        self.left = MAX_TRIES
        self.refused: Unplaced[Why] | None = None

    def failed(self, refused: Unplaced[Why]) -> None:
        """Count a try that failed."""
        self.left -= 1
        self.refused = self.refused or refused


def place(
    placer: Placer[Task, Where, Why], tree: Group[Task], where: Where
) -> list[tuple[Task, Node]] | Unplaced[Why]:
    """Place the asks of a tree that wait, in a domain; or place none, and say why.

    A tree of which none waits is placed as it is: it needs no domain.
    """
    return place_any(placer, (tree,), where)


def place_any(
    placer: Placer[Task, Where, Why], trees: Iterable[Group[Task]], where: Where
) -> list[tuple[Task, Node]] | Unplaced[Why]:
    """Place the first that can be placed of trees of the same asks, as by ``place``.

    All of them together have MAX_TRIES; the next is asked for when the one before it is undone.
    """
    search: _Search[Why] = _Search()
    for tree in trees:
        parts = list(_parts(placer, tree))
        if not parts:
            return []
        for found in _of_group(placer, tree, parts, where, search):
            return found
        if search.left <= 0:
            break
    return search.refused or Unplaced(placer.refusal(None, []))


def _of_group(
    placer: Placer[Task, Where, Why],
    group: Group[Task],
    parts: list[Group[Task] | list[Task]],
    where: Where,
    search: _Search[Why],
) -> Iterator[list[tuple[Task, Node]]]:
    """Place a group in one domain after another; what is yielded stands until the next is asked."""
    is_tried = False
    for domain in placer.domains(group, where):
        is_tried = True
        yield from _of_parts(placer, parts, domain, search)
        if search.left <= 0:
            return
    if not is_tried:
        search.failed(Unplaced(placer.refusal(None, [])))


def _of_parts(
    placer: Placer[Task, Where, Why],
    parts: list[Group[Task] | list[Task]],
    where: Where,
    search: _Search[Why],
) -> Iterator[list[tuple[Task, Node]]]:
    """Place the parts of a group in a domain, in one way after another."""
    first = next((part for part in parts if isinstance(part, Group)), None)
    checkpoint = placer.checkpoint()
    if first is None:
        found = _place_leaves(placer, [part for part in parts if isinstance(part, list)], where)
        if isinstance(found, Unplaced):
            search.failed(found)
        else:
            yield found
        placer.rollback(checkpoint)
        return
    rest = [part for part in parts if part is not first]
    for found in _of_group(placer, first, list(_parts(placer, first)), where, search):
        for more in _of_parts(placer, rest, where, search):
            yield found + more
        if search.left <= 0:
            break
    placer.rollback(checkpoint)


def _place_leaves(
    placer: Placer[Task, Where, Why], leaves: list[list[Task]], where: Where
) -> list[tuple[Task, Node]] | Unplaced[Why]:
    """Place leaves in one domain; where one has no node, some are left placed."""
    placed: list[tuple[Task, Node]] = []
    while leaves:
        before = len(placed)
        stuck: list[list[Task]] = []
        for leaf in leaves:
            if rest := _place_leaf(placer, leaf, where, placed):
                stuck.append(rest)
                if not placer.goes_on:
                    break
        if stuck and (len(placed) == before or not placer.goes_on):
            return Unplaced(placer.refusal(stuck[0][0], placed))
        leaves = stuck
    return placed


def _place_leaf(
    placer: Placer[Task, Where, Why],
    tasks: list[Task],
    where: Where,
    placed: list[tuple[Task, Node]],
) -> list[Task]:
    """Place the asks of a leaf one by one; return those that are left when one has no node."""
    nodes = iter(placer.nodes_for(tasks, where))
    for at, task in enumerate(tasks):
        node = next(nodes, None)
        if node is None:
            return tasks[at:]
        placer.put(task, node)
        placed.append((task, node))
    return []


def _parts(
    placer: Placer[Task, Where, Why], tree: Group[Task]
) -> Iterator[Group[Task] | list[Task]]:
    """Yield what is placed in one domain: leaves, and groups that are to be in one of their own."""
    for member in tree.members:
        if member.topology is None:
            yield from _parts(placer, member)
        elif any(True for _ in _waiting(placer, member)):
            yield member
    if not tree.members and (tasks := placer.waiting(tree)):
        yield tasks


def _waiting(placer: Placer[Task, Where, Why], tree: Group[Task]) -> Iterator[Task]:
    """Yield the asks of a tree that are to be placed."""
    for member in tree.members:
        yield from _waiting(placer, member)
    if not tree.members:
        yield from placer.waiting(tree)
