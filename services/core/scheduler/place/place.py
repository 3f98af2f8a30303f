"""Assigns nodes to the asks of a gang's tree: to all of them or to none.

Rule 1: a group with a topology constraint goes into one of its domains; they are tried in order,
        and a failed try is undone before the next. A group without one uses the domain of the group
        above it. Earlier choices are revised if a later group does not fit, so that a solution is
        found if there is one, within MAX_TRIES.
Rule 2: constrained groups come first; then the leaves in order, each ask after those before it. A
        leaf that fails is tried again after others were placed, because pods may require each
        other, unless the placer ends the try at once (``goes_on``).
Rule 3: the refusal is that of the first try, computed while its pods are still placed.
Cost: one node search for each ask and domain, and one more in each round for leaves that failed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.core.scheduler.model.rows import Node
from services.core.scheduler.statement.task_trees import Group, HasOrder

MAX_TRIES = 1_000  # attempts to place all parts of one tree; then it is refused

Task = TypeVar("Task", bound=HasOrder)
Where = TypeVar("Where")  # the placer's type of a domain
Why = TypeVar("Why")  # a refusal
Why_co = TypeVar("Why_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Unplaced(Generic[Why]):
    """Nothing was placed, with the refusal."""

    refusal: Why


class Placer(Protocol[Task, Where, Why_co]):
    """The caller's part of ``place``: domains, nodes, the moves, and the refusal."""

    goes_on: bool  # with others when a leaf is stuck

    def checkpoint(self) -> int:
        """Return the present position in the log of moves, for a rollback."""

    def rollback(self, checkpoint: int) -> None:
        """Undo the moves after a checkpoint."""

    def waiting(self, leaf: Group[Task]) -> list[Task]:
        """Return the asks of a leaf to be placed, in order."""

    def domains(self, group: Group[Task], where: Where) -> Iterable[Where]:
        """Return the domains that a group may use, in the order to try them."""

    def nodes_for(self, tasks: list[Task], where: Where) -> Iterable[Node | None]:
        """Yield a node for each ask of a leaf, the asks before it being placed; None: no node."""

    def put(self, task: Task, node: Node) -> None:
        """Place an ask."""

    def refusal(self, task: Task | None, placed: list[tuple[Task, Node]]) -> Why_co:
        """Return why an ask has no node beside the placed pods; None: no domain is left."""


class _Search(Generic[Why]):
    """The state of one search: the number of tries left, and the first refusal."""

    def __init__(self) -> None:
        self.left = MAX_TRIES
        self.refused: Unplaced[Why] | None = None

    def failed(self, refused: Unplaced[Why]) -> None:
        """Count a failed try."""
        self.left -= 1
        self.refused = self.refused or refused


def place(
    placer: Placer[Task, Where, Why], tree: Group[Task], where: Where
) -> list[tuple[Task, Node]] | Unplaced[Why]:
    """Place the waiting asks of a tree in a domain; return their nodes, or a refusal.

    A tree without waiting asks returns [] and needs no domain.
    """
    return place_any(placer, (tree,), where)


def place_any(
    placer: Placer[Task, Where, Why], trees: Iterable[Group[Task]], where: Where
) -> list[tuple[Task, Node]] | Unplaced[Why]:
    """Place the first of several trees of the same asks that can be placed, as ``place`` does.

    MAX_TRIES counts over all of them; a failed tree is undone before the next is generated.
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
    """Place a group in one domain after another; a result is undone when the next is requested."""
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
    """Yield each way to place the parts of a group in a domain."""
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
    """Place leaves in one domain; on failure some asks stay placed."""
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
    """Place the asks of a leaf one by one; return those left when one has no node."""
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
    """Yield what shares one domain: leaves, and groups with a domain of their own."""
    for member in tree.members:
        if member.topology is None:
            yield from _parts(placer, member)
        elif any(True for _ in _waiting(placer, member)):
            yield member
    if not tree.members and (tasks := placer.waiting(tree)):
        yield tasks


def _waiting(placer: Placer[Task, Where, Why], tree: Group[Task]) -> Iterator[Task]:
    """Yield the asks of a tree to be placed."""
    for member in tree.members:
        yield from _waiting(placer, member)
    if not tree.members:
        yield from placer.waiting(tree)
