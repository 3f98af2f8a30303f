"""Spare nodes: nodes of each domain of a level that stay free for gangs that lose a member.

Rule 1: in every domain a number of schedulable nodes is spare, if so many have no long-running
        pods; spare ones stay spare, others follow by name. Pods with a required node, and foreign
        pods, do not count.
Rule 2: a spare node fits pods that end within SHORT_NS by their stated time, pods that require it,
        and pods of a gang with topology constraints that was whole and is below its minimum.
Cost: with the setting on, the domains of changed nodes are read again.
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


class Spares:
    """The spare nodes of a table of nodes."""

    def __init__(self, domains: Domains, rows: list[Node]) -> None:
        self._domains, self._rows = domains, rows
        self.level, self.number = "", 0
        self.nodes: dict[Node, None] = {}
        self.seen = (-1, -1)  # versions of the nodes at the last choice

    @property
    def is_on(self) -> bool:
        """Whether spare nodes are configured."""
        return self.number > 0

    def were_chosen(self, changes: int, facts: int) -> None:
        """Record the versions of the nodes at the choice."""
        self.seen = changes, facts

    def mask(self) -> Mask:
        """Return which rows are spare."""
        found: Mask = np.zeros(len(self._rows), dtype=np.bool_)
        for node in self.nodes:
            found[node.row] = True
        return found

    def may_use(self, shape: Shape) -> bool:
        """Whether pods of a shape may use spare nodes."""
        if shape.constraints.required_node or 0 < shape.run_ns <= SHORT_NS:
            return True
        return shape.bond is not None and shape.bond[0].has_lost_members

    def choose(
        self, changed: Iterable[Node] | None, is_short: Callable[[Allocation], bool]
    ) -> list[Node]:
        """Choose again in the domains of ``changed`` (None: all); return the affected nodes."""
        tree, names = self._domains.cluster, [name for name, _ in self._domains.levels]
        if tree is None or self.level not in names:
            return self._set({})
        level = names.index(self.level)
        ids = tree.ids(level, len(self._rows))
        at = tree.known(level) if changed is None else _domains_of(changed, tree, level)
        chosen = {node: None for node in self.nodes if self._is_there(node)}
        for domain in at:
            own = [self._rows[row] for row in np.flatnonzero(ids == domain).tolist()]
            free = [node for node in own if _is_free(node, is_short)]
            free.sort(key=lambda node: (node not in self.nodes, node.node_id))
            for node in own:
                chosen.pop(node, None)
            chosen.update(dict.fromkeys(free[: self.number]))
        return self._set(chosen)

    def _is_there(self, node: Node) -> bool:
        return node.row < len(self._rows) and self._rows[node.row] is node

    def _set(self, chosen: dict[Node, None]) -> list[Node]:
        before, self.nodes = self.nodes, chosen
        other = [node for node in before if node not in chosen and self._is_there(node)]
        return other + [node for node in chosen if node not in before]


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
