"""The nodes that have improved, until what they may help has been tried."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.core.scheduler.model.rows import Node


@dataclass(slots=True)
class FreedNodes:
    """``improved`` have not been compared with what waits; ``nodes`` have, and may help some of it.

    ``in_vain`` shapes have been tried since the first of ``nodes`` was entered; once they are
    ``compare_at``, the others are compared again.
    """

    improved: dict[Node, None] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    in_vain: int = 0
    compare_at: int = 1

    def take_improved(self, known: Mapping[str, Node]) -> list[Node]:
        """Return those that have improved and are there yet, and count them as compared."""
        improved, self.improved = self.improved, {}
        return [node for node in improved if known.get(node.node_id) is node]

    def keep(self, node: Node) -> None:
        """Count a node among those that may help what waits."""
        self.nodes[node] = None

    def drop(self, node: Node) -> None:
        """Count it among those no more: others have taken its room."""
        del self.nodes[node]

    def is_to_be_compared(self) -> bool:
        """Count a shape that was tried in vain; return whether the others are compared now."""
        self.in_vain += 1
        is_due = self.in_vain >= self.compare_at
        if is_due:
            self.compare_at *= 2
        return is_due

    def forget(self) -> None:
        """Begin again: nothing is left that these nodes may help."""
        self.nodes, self.in_vain, self.compare_at = {}, 0, 1
