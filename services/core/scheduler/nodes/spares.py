"""Spare nodes: nodes of each domain of a level that stay free for gangs that lose a member.

Rule 1: in every domain a number of schedulable nodes is spare, if so many have no long-running
        pods; spare ones stay spare, others follow by name. Pods with a required node, and foreign
        pods, do not count.
Rule 2: a spare node fits pods that end within SHORT_NS by their stated time, pods that require it,
        and pods of a gang with topology constraints that was whole and is below its minimum.
Rule 3: the spare nodes of a queue are in the domains where it has pods of such gangs, and only its
        own gangs may use them. A domain has as many spare nodes as the largest number stated; the
        first are for every queue that states so many.
Cost: with the setting or the property set, the domains of changed nodes are read again.
"""

from collections.abc import Callable, Iterable

import numpy as np

from services.core.scheduler.model.rows import BY_ASK, Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Mask
from services.core.scheduler.nodes.domains import Domains, DomainTree
from shared.messages.interface import Allocation
from shared.model.units import seconds

SHORT_NS = seconds(10 * 60)
Keepers = tuple[str, ...]  # paths of the leaf queues whose gangs may use a spare node
ALL_QUEUES: Keepers = ("",)


class Spares:
    """Spare nodes of a table of nodes, each with the leaf queues that may use it."""

    def __init__(self, domains: Domains, rows: list[Node]) -> None:
        self._domains, self._rows = domains, rows
        self.level, self.number = "", 0
        self.levels_of_queues: tuple[str, ...] = ()
        self.is_on = False  # some are configured
        self.nodes: dict[Node, Keepers] = {}
        self.seen = (-1, -1)  # versions of the nodes at the last choice
        self.is_due = False  # a gang of a queue with spares has other nodes
        self._kept: dict[int, dict[Node, Keepers]] = {}  # ``nodes`` by level

    def configure(self) -> None:
        """Drop all spare nodes until the next choice: the settings have changed."""
        self.is_on = self.number > 0 or bool(self.levels_of_queues)
        self.nodes, self._kept = {}, {}
        self.were_chosen(-1, -1)

    def were_chosen(self, changes: int, facts: int) -> None:
        """Record the versions of the nodes at the choice."""
        self.seen, self.is_due = (changes, facts), False

    def mask(self, shape: Shape | None) -> Mask:
        """Rows of spare nodes that a shape may not use; None: of all spare nodes."""
        found: Mask = np.zeros(len(self._rows), dtype=np.bool_)
        for node in self.nodes:
            found[node.row] = shape is None or not self.may_use(shape, node)
        return found

    def may_use(self, shape: Shape, node: Node) -> bool:
        """Whether pods of a shape may use a spare node."""
        if self.may_use_all(shape):
            return True
        keepers = self.nodes[node]
        return _has_lost_members(shape) and (
            keepers == ALL_QUEUES or shape.gang_part[0].queue.path in keepers
        )

    def may_use_all(self, shape: Shape) -> bool:
        """Whether pods of a shape may use every spare node."""
        return bool(shape.constraints.required_node) or 0 < shape.run_ns <= SHORT_NS

    def may_use_any(self, shape: Shape) -> bool:
        """Whether pods of a shape may use any spare node."""
        return _has_lost_members(shape) or self.may_use_all(shape)

    def choose(
        self, changed: Iterable[Node] | None, is_short: Callable[[Allocation], bool]
    ) -> dict[Node, bool]:
        """Choose again in the domains of ``changed`` (None: all).

        Return the nodes with other keepers than before, and whether each was spare.
        """
        before, kept = self.nodes, self._chosen(changed, is_short)
        after: dict[Node, Keepers] = {}
        for of_level in kept.values():
            for node, keepers in of_level.items():
                after[node] = _joined(after.get(node, ()), keepers)
        self.nodes, self._kept = after, kept
        there = (node for node in before if self._is_there(node))
        return {
            node: node in before
            for node in dict.fromkeys((*there, *after))
            if before.get(node) != after.get(node)
        }

    def _chosen(
        self, changed: Iterable[Node] | None, is_short: Callable[[Allocation], bool]
    ) -> dict[int, dict[Node, Keepers]]:
        """Spare nodes by level, the narrowest first: they count in the wider levels as well."""
        tree = self._domains.cluster
        if tree is None:
            return {}
        nodes = None if changed is None else list(changed)
        stated = (self.level if self.number else "", *self.levels_of_queues)
        found: dict[int, dict[Node, Keepers]] = {}
        below: dict[Node, None] = {}
        for level, (name, _) in reversed(list(enumerate(self._domains.levels))):
            if name not in stated:
                continue
            ids = tree.ids(level, len(self._rows))
            before = self._kept.get(level, {})
            kept = {node: keepers for node, keepers in before.items() if self._is_there(node)}
            for domain in tree.known(level) if nodes is None else _domains_of(nodes, tree, level):
                own = [self._rows[row] for row in np.flatnonzero(ids == domain).tolist()]
                for node in own:
                    kept.pop(node, None)
                kept.update(self._of_domain(name, own, below, is_short))
            found[level] = kept
            below.update(dict.fromkeys(kept))
        return found

    def _of_domain(
        self,
        level: str,
        own: list[Node],
        below: dict[Node, None],
        is_short: Callable[[Allocation], bool],
    ) -> dict[Node, Keepers]:
        """Spare nodes of a domain, with their keepers."""
        number = self.number if level == self.level else 0
        wanted = self._wanted(own, level) if level in self.levels_of_queues else {}
        most = max((number, *wanted.values()))
        if not most:
            return {}
        free = [node for node in own if _is_free(node, is_short)]
        free.sort(key=lambda node: (node not in below, node not in self.nodes, node.node_id))
        return {
            node: ALL_QUEUES
            if at < number
            else tuple(leaf for leaf, count in wanted.items() if at < count)
            for at, node in enumerate(free[:most])
        }

    def _wanted(self, own: list[Node], level: str) -> dict[str, int]:
        """Numbers stated by the leaf queues that have gangs on these nodes, by path."""
        found: dict[str, int] = {}
        for node in own:
            for pod in node.allocations.values():
                gang = self._domains.gangs.get(pod.application_id)
                if gang is not None and gang.queue.settings.spares[0] == level:
                    found[gang.queue.path] = gang.queue.settings.spares[1]
        return {leaf: found[leaf] for leaf in sorted(found)}

    def _is_there(self, node: Node) -> bool:
        return node.row < len(self._rows) and self._rows[node.row] is node


def _has_lost_members(shape: Shape) -> bool:
    """Whether the gang of a shape, if it has a topology, has lost members."""
    return shape.gang_part is not None and bool(shape.gang_part[0].has_lost_members)


def _joined(one: Keepers, other: Keepers) -> Keepers:
    if ALL_QUEUES in {one, other}:
        return ALL_QUEUES
    return tuple(dict.fromkeys((*one, *other)))


def _domains_of(nodes: Iterable[Node], tree: DomainTree, level: int) -> list[int]:
    found = dict.fromkeys(int(tree.of_rows(level, np.array([node.row]))[0]) for node in nodes)
    found.pop(-1, None)
    return list(found)


def _is_free(node: Node, is_short: Callable[[Allocation], bool]) -> bool:
    """Whether a node has no long-running pods and no reservation."""
    return (
        node.schedulable
        and not node.claimed & BY_ASK
        and all(pod.constraints.required_node or is_short(pod) for pod in node.allocations.values())
    )
