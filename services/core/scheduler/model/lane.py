"""The lane: the one gang of several nodes for which nodes are held, and which these are."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import Application, Node, Rank
from services.core.scheduler.model.shapes import Shape
from shared.model.resources import Resource

Moments = NDArray[np.int64]  # a row a node: when it has the room for its first member, second ...


@dataclass(slots=True, eq=False)
class Lane:
    """The gang that has the lane, since when, and what is expected.

    ``start_ns`` is when the nodes that are held are expected to be free (0: not known), ``told_ns``
    the same if no earlier gang waited as well; ``nodes`` are those, each for how
    many members of which shape; ``rooms``,
    by shape, when each node has the room for how many members; ``next_end_ns``, by row, when the
    first of its pods is expected to end; ``gathers``, by row, whether it becomes free bit by bit,
    at times that are not known. ``seen`` is how many changes of nodes are in them. ``spare``
    is what the gang leaves of each node, while it is tried itself and none is held.
    """

    application: Application
    since_ns: int
    needs: dict[Shape, int]
    rank: Rank
    start_ns: int = 0
    told_ns: int = 0
    nodes: dict[Node, tuple[Shape, int]] = field(default_factory=dict)
    rooms: dict[Shape, Moments] = field(default_factory=dict)
    next_end_ns: Moments = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gathers: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    seen: int = -1
    facts: int = -1
    spare: dict[Node, Resource] = field(default_factory=dict)
    tried: int = -1  # how many changes there were when it was tried last

    def hold(self, nodes: dict[Node, tuple[Shape, int]]) -> None:
        """Have some nodes held, and no others."""
        self.nodes = nodes

    def was_tried(self, changes: int) -> None:
        """Note that the gang was tried, after so many changes of nodes."""
        self.tried = changes

    def release_spare(self) -> dict[Node, Resource]:
        """Return what was kept of each node while none was held, and keep it no more."""
        spare, self.spare = self.spare, {}
        return spare

    def keep_spare(self) -> None:
        """Keep what the gang leaves of each node while none is held."""
        self.spare = {node: node.spare for node in self.nodes}
