"""The domains of the nodes, by id for each row, and the members of gangs with topology constraints.

Rule 1: a domain is the path of label values down to its level. A node without one of the labels is
        in no domain of the tree.
Rule 2: ids follow added, changed and removed nodes; running pods of a relabelled node stay.
Rule 3: a gang's home is the domain with most of its members, of equal ones the first by name.
Limit: MAX_TREES trees; a gang that names further levels is refused with that reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.core.scheduler.model.rows import Node, Queue
from services.core.scheduler.nodes.columns import Amounts, Mask
from shared.messages.gang_tree import GangTree
from shared.messages.interface import NO_TOPOLOGY, Allocation, TopologyConstraint

MAX_TREES = 16  # trees of levels that gangs name; a gang with another one waits
EVERYWHERE = -1  # the level of all nodes, with or without a domain
Path = tuple[str, ...]
Bound = tuple["DomainTree", int, tuple[int, ...]]  # tree, level, allowed domains ((): all)


class DomainTree:
    """The domains of some labels, widest first. Ids of empty domains are used again."""

    def __init__(self, labels: Path) -> None:
        self.labels = labels
        self.paths: list[list[Path]] = [[] for _ in labels]  # by level and id
        self.parents: list[list[int]] = [[] for _ in labels]
        self._ids: list[Amounts] = [np.full(16, -1, dtype=np.int64) for _ in labels]
        self._known: list[dict[Path, int]] = [{} for _ in labels]
        self._nodes: list[list[int]] = [[] for _ in labels]  # number of nodes in each
        self._unused: list[list[int]] = [[] for _ in labels]
        self._above: dict[int, Amounts] = {}  # ``parents`` as arrays, cached

    @property
    def depth(self) -> int:
        """Return the number of levels; as a level it is that of single nodes."""
        return len(self.labels)

    def ids(self, level: int, count: int) -> Amounts:
        """Return the domain of each of the first rows at a level; -1: none."""
        return self._ids[level][:count]

    def of_rows(self, level: int, rows: Amounts) -> Amounts:
        """Return the domain of some rows at a level; -1: none."""
        return self._ids[level][rows]

    def above(self, level: int) -> Amounts:
        """Return the domain above each domain of a level; -1: none."""
        found = self._above.get(level)
        if found is None:
            found = self._above[level] = np.array(self.parents[level], dtype=np.int64)
        return found

    def known(self, level: int) -> list[int]:
        """Return the ids of a level that have nodes, sorted by path."""
        found = self._known[level]
        return [found[path] for path in sorted(found)]

    def is_empty(self, level: int) -> bool:
        """Whether no node is in any domain of a level."""
        return not self._known[level]

    def write(self, row: int, labels: Mapping[str, str], *, is_new: bool = False) -> None:
        """Update a row to its node's labels."""
        if row >= self._ids[0].size:
            more = max(16, row + 1)
            self._ids = [np.pad(ids, (0, more), constant_values=-1) for ids in self._ids]
        before = [-1] * self.depth if is_new else [int(ids[row]) for ids in self._ids]
        path = tuple(labels.get(name, "") for name in self.labels)
        above = -1
        for level, ids in enumerate(self._ids):
            above = self._enter(level, path[: level + 1], above) if all(path) else -1
            ids[row] = above
        self._leave(before)

    def erase(self, row: int, last: int) -> None:
        """Remove a row; the last one takes its place."""
        self._leave([int(ids[row]) for ids in self._ids])
        for ids in self._ids:
            ids[row] = ids[last]
            ids[last] = -1

    def _enter(self, level: int, path: Path, above: int) -> int:
        known = self._known[level]
        found = known.get(path)
        if found is None:
            unused = self._unused[level]
            if unused:
                found = unused.pop()
                self.paths[level][found], self.parents[level][found] = path, above
            else:
                found = len(self.paths[level])
                self.paths[level].append(path)
                self.parents[level].append(above)
                self._nodes[level].append(0)
            known[path] = found
            self._above.pop(level, None)
        self._nodes[level][found] += 1
        return found

    def _leave(self, ids: Sequence[int]) -> None:
        for level, found in enumerate(ids):
            if found < 0:
                continue
            self._nodes[level][found] -= 1
            if not self._nodes[level][found]:
                del self._known[level][self.paths[level][found]]
                self._unused[level].append(found)


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedTopology:
    """A topology constraint resolved in its tree: levels are numbers, EVERYWHERE for none.

    ``slices`` are (level, size), coarsest first; level ``tree.depth`` is that of single nodes.
    """

    tree: DomainTree
    required: int = EVERYWHERE
    preferred: int = EVERYWHERE
    slices: tuple[tuple[int, int], ...] = ()
    is_unconstrained: bool = False
    is_balanced: bool = False

    @property
    def size(self) -> int:
        """Return the number of pods of a coarsest slice, 1 without slices."""
        return self.slices[0][1] if self.slices else 1


@dataclass(slots=True, eq=False)
class GangMembers:
    """The nodes of a gang's members, for a gang with topology constraints."""

    tree: GangTree
    queue: Queue
    chains: dict[str, list[GangTree]] = field(
        default_factory=dict
    )  # by task group, outermost first
    on: dict[str, dict[Node, int]] = field(default_factory=dict)  # members, by task group and node
    bounds: dict[str, tuple[int, list[Bound]]] = field(default_factory=dict)  # with a version
    total: int = 0  # number of members
    has_lost_members: bool = False  # it was whole, and is below its minimum now
    _was_whole: bool = False

    def __post_init__(self) -> None:
        self._add_part(self.tree, [])

    def set_tree(self, tree: GangTree) -> None:
        """Replace the tree by one that has all of its parts."""
        self.tree = tree
        self.bounds.clear()
        self._add_part(tree, [])

    def _add_part(self, part: GangTree, above: list[GangTree]) -> None:
        chain = [*above, part] if part.topology != NO_TOPOLOGY else above
        if not part.is_group:
            self.chains[part.name] = chain
            self.on.setdefault(part.name, {})
        for each in part.parts:
            self._add_part(each, chain)

    def count(self, allocation: Allocation, node: Node, change: int) -> bool:
        """Add a pod of the gang on its node, or remove it.

        Return whether ``has_lost_members`` changed. A gang without any member left starts anew.
        """
        on = self.on.get(allocation.task_group_name)
        if on is None:
            return False
        self.bounds.clear()
        left = on.get(node, 0) + change
        if left:
            on[node] = left
        else:
            on.pop(node, None)
        self.total += change
        self._was_whole = self.total > 0 and (self._was_whole or self.total >= self.tree.least)
        has_lost = self._was_whole and self.total < self.tree.least
        is_other, self.has_lost_members = has_lost != self.has_lost_members, has_lost
        return is_other

    def members(self, part: GangTree) -> dict[Node, int]:
        """Return the number of a part's members on each node."""
        found: dict[Node, int] = {}
        for name in part.minima():
            for node, count in self.on[name].items():
                found[node] = found.get(node, 0) + count
        return found


_NOWHERE: Bound = (DomainTree(()), EVERYWHERE, ())  # of an invalid constraint


def _out_of_order(topology: TopologyConstraint, resolved: ResolvedTopology) -> str:
    """Return an error if a level lies above one that must contain it, else ""."""
    if resolved.preferred != EVERYWHERE and resolved.preferred < resolved.required:
        return (
            f"topology: the preferred level {topology.preferred} lies above the required level "
            f"{topology.required}"
        )
    above, name = (
        max(resolved.required, resolved.preferred),
        topology.preferred or topology.required,
    )
    for (level, _), each in zip(resolved.slices, topology.slices, strict=True):
        if level < above or (level == above and each is not topology.slices[0]):
            return f"topology: the slices' level {each.level} does not lie below {name}"
        above, name = level, each.level
    return ""


class Domains:
    """The cluster's levels, the trees in use, and the gangs with topology constraints."""

    def __init__(self, rows: list[Node]) -> None:
        self._rows = rows
        self.levels: tuple[tuple[str, str], ...] = ()  # (name, label), the widest first
        self._trees: dict[Path, DomainTree] = {}
        self._version = 0  # of nodes, labels and levels
        self.gangs: dict[str, GangMembers] = {}  # by application

    def use(self, levels: Sequence[tuple[str, str]]) -> None:
        """Set the levels of the cluster."""
        if tuple(levels) != self.levels:
            self.levels = tuple(levels)
            self._trees.clear()
            self._version += 1
            for node in self._rows:
                node.domain = self._path(node)
            _ = self.cluster  # creates the tree, which follows the nodes from now on

    # --- nodes ----------------------------------------------------------------------------------

    def added(self, node: Node) -> None:
        """Add a new row."""
        self._version += 1
        node.domain = self._path(node)
        for tree in self._trees.values():
            tree.write(node.row, node.labels, is_new=True)

    def removed(self, node: Node) -> None:
        """Remove a row, which the last one replaced, and the members on its node."""
        self._version += 1
        for tree in self._trees.values():
            tree.erase(node.row, len(self._rows))
        for allocation in node.allocations.values() if self.gangs else ():
            self.count(allocation, node, -1)

    def relabelled(self, node: Node) -> None:
        """Update a node's domains to its labels."""
        self._version += 1
        node.domain = self._path(node)
        for tree in self._trees.values():
            tree.write(node.row, node.labels)

    def _path(self, node: Node) -> Path:
        """Return a node's path in the cluster's tree; () if it lacks a label."""
        if not self.levels:
            return ()
        path = tuple(node.labels.get(label, "") for _, label in self.levels)
        return path if all(path) else ()

    # --- trees ----------------------------------------------------------------------------------

    def tree(self, labels: Path) -> DomainTree | None:
        """Return the tree of some labels, created on first use; None: too many."""
        found = self._trees.get(labels)
        if found is None and len(self._trees) < MAX_TREES:
            found = self._trees[labels] = DomainTree(labels)
            for node in self._rows:
                found.write(node.row, node.labels, is_new=True)
        return found

    @property
    def cluster(self) -> DomainTree | None:
        """Return the tree of the cluster's own levels, None without any."""
        return self.tree(tuple(label for _, label in self.levels)) if self.levels else None

    def resolve(self, topology: TopologyConstraint) -> ResolvedTopology | str:
        """Resolve a topology constraint; return an error text if it is invalid."""
        if topology.wrong:
            return topology.wrong
        levels = tuple((name, name) for name in topology.levels) or self.levels
        labels = tuple(label for _, label in levels)
        named = [topology.required, topology.preferred, *(each.level for each in topology.slices)]
        numbers = {"": EVERYWHERE}
        for number, names in enumerate(levels):
            numbers.update(dict.fromkeys(names, number))
        if topology.levels:  # KAI: a preferred level that its topology lacks is ignored
            numbers.setdefault(topology.preferred, EVERYWHERE)
        missing = next((name for name in named if name not in numbers), None)
        if missing is not None:
            there_are = ", ".join(name for name, _ in levels) or "none"
            return f"there is no topology level {missing}: the levels are {there_are}"
        tree = self.tree(labels) if labels else DomainTree(())
        if tree is None:
            return f"gangs name more than {MAX_TREES} lists of topology levels"
        slices = tuple((numbers[each.level], each.size) for each in topology.slices)
        resolved = ResolvedTopology(
            tree,
            numbers[topology.required],
            numbers[topology.preferred],
            slices,
            topology.is_unconstrained,
            topology.is_balanced,
        )
        return _out_of_order(topology, resolved) or resolved

    def rows_in(self, tree: DomainTree, level: int, number: int) -> Mask:
        """Return the rows of a domain."""
        found: Mask = tree.ids(level, len(self._rows)) == number
        return found

    # --- gangs ----------------------------------------------------------------------------------

    def add_gang(self, application_id: str, tree: GangTree, queue: Queue) -> None:
        """Start to record the members of a gang of a leaf queue."""
        self.gangs[application_id] = GangMembers(tree, queue)

    def update_gang(self, application_id: str, tree: GangTree) -> None:
        """Record the members of a gang by a tree that has all of its parts."""
        self.gangs[application_id].set_tree(tree)

    def remove_gang(self, application_id: str) -> None:
        """Stop to record them; an unknown gang is no error."""
        self.gangs.pop(application_id, None)

    def gang_part_of(self, application_id: str, task_group: str) -> tuple[GangMembers, str] | None:
        """Return a task group's topology constraint for its shape, None if it has none."""
        gang = self.gangs.get(application_id)
        return (gang, task_group) if gang is not None and gang.chains.get(task_group) else None

    def count(self, allocation: Allocation, node: Node, change: int) -> bool:
        """Add a pod on its node, or remove it, if it belongs to such a gang.

        Return whether the gang's ``has_lost_members`` changed.
        """
        gang = self.gangs.get(allocation.application_id)
        return gang is not None and gang.count(allocation, node, change)

    def home(self, tree: DomainTree, level: int, members: Mapping[Node, int]) -> int | None:
        """Return the domain of a level with most members, None if there is none."""
        found: dict[int, int] = {}
        for node, count in members.items():
            if node.row < len(self._rows) and self._rows[node.row] is node:
                at = int(tree.ids(level, len(self._rows))[node.row])
                found[at] = found.get(at, 0) + count
        found.pop(-1, None)
        paths = tree.paths[level]
        return min(found, key=lambda at: (-found[at], paths[at]), default=None)

    def homes(
        self, resolved: ResolvedTopology, members: Mapping[Node, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield the homes (level, id) at the preferred level, then at the levels above it."""
        for level in range(resolved.preferred, resolved.required, -1):
            home = self.home(resolved.tree, level, members)
            if home is not None:
                yield level, home

    def homes_of(self, gang: GangMembers, task_group: str) -> Iterator[tuple[DomainTree, int, int]]:
        """Yield the homes for one more pod of a task group, with their trees."""
        for part in gang.chains[task_group]:
            resolved = self.resolve(part.topology)
            if isinstance(resolved, ResolvedTopology):
                for level, home in self.homes(resolved, gang.members(part)):
                    yield resolved.tree, level, home

    def open_rows(self, gang: GangMembers, task_group: str) -> Mask:
        """Return the rows that existing members allow for one more pod of a task group.

        Without members, all rows in a domain of the level.
        """
        count = len(self._rows)
        left = np.ones(count, dtype=np.bool_)
        for tree, level, allowed in self._bounds(gang, task_group):
            if level == EVERYWHERE:
                return np.zeros(count, dtype=np.bool_)
            ids = tree.ids(level, count)
            left &= np.isin(ids, allowed) if allowed else ids >= 0
        return left

    def is_open(self, gang: GangMembers, task_group: str, node: Node) -> bool:
        """Return the same for one node."""
        for tree, level, allowed in self._bounds(gang, task_group):
            at = -1 if level == EVERYWHERE else int(tree.ids(level, len(self._rows))[node.row])
            if at < 0 or (allowed and at not in allowed):
                return False
        return True

    def _bounds(self, gang: GangMembers, task_group: str) -> list[Bound]:
        """Return the allowed domains for one more pod; cached until members or nodes change."""
        known = gang.bounds.get(task_group)
        if known is None or known[0] != self._version:
            chain = gang.chains[task_group]
            found = [each for part in chain for each in self._bounds_of(gang, part)]
            known = gang.bounds[task_group] = (self._version, found)
        return known[1]

    def _bounds_of(self, gang: GangMembers, part: GangTree) -> Iterator[Bound]:
        resolved = self.resolve(part.topology)
        if isinstance(resolved, str):
            yield _NOWHERE
            return
        members = gang.members(part)
        if resolved.required != EVERYWHERE:
            home = self.home(resolved.tree, resolved.required, members)
            yield resolved.tree, resolved.required, () if home is None else (home,)
        for level, size in resolved.slices:
            counts = self.counts(resolved.tree, level, members)
            begun = tuple(at for at, number in counts.items() if number % size)
            yield resolved.tree, level, begun

    def counts(self, tree: DomainTree, level: int, members: Mapping[Node, int]) -> dict[int, int]:
        """Return the number of members in each domain of a level that has any, sorted by name."""
        found: dict[int, int] = {}
        for node, count in members.items():
            if node.row < len(self._rows) and self._rows[node.row] is node:
                at = int(tree.ids(level, len(self._rows))[node.row])
                if at >= 0:
                    found[at] = found.get(at, 0) + count
        paths = tree.paths[level]
        return {at: found[at] for at in sorted(found, key=lambda at: paths[at])}
