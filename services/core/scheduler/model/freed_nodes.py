"""The nodes that improved, until the blocked shapes that they may fit have been tried."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.core.scheduler.model.rows import Node


@dataclass(slots=True)
class FreedNodes:
    """Improved nodes: ``improved`` not yet compared with blocked shapes, ``nodes`` compared.

    ``in_vain`` is the number of shapes tried without success since the first of ``nodes`` was
    added; when it reaches ``compare_at``, the remaining shapes are compared again.
    """

    improved: dict[Node, None] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    in_vain: int = 0
    compare_at: int = 1

    def take_improved(self, known: Mapping[str, Node]) -> list[Node]:
        """Return the improved nodes that still exist, and clear the list."""
        improved, self.improved = self.improved, {}
        return [node for node in improved if known.get(node.node_id) is node]

    def keep(self, node: Node) -> None:
        """Record a node that may fit a blocked shape."""
        self.nodes[node] = None

    def drop(self, node: Node) -> None:
        """Remove a node: its capacity has been used."""
        del self.nodes[node]

    def is_to_be_compared(self) -> bool:
        """Count a shape tried without success; return whether to compare the others now."""
        self.in_vain += 1
        is_due = self.in_vain >= self.compare_at
        if is_due:
            self.compare_at *= 2
        return is_due

    def forget(self) -> None:
        """Clear the nodes: nothing is left that they may fit."""
        self.nodes, self.in_vain, self.compare_at = {}, 0, 1
