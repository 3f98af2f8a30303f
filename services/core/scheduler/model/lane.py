"""The head gang: the one gang of several nodes that claims nodes, and when these are free."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import (
    Application,
    Bucket,
    Claim,
    Members,
    Node,
    Purpose,
    Rank,
)
from services.core.scheduler.model.shapes import Shape

Moments = NDArray[np.int64]  # a row a node: when it has the room for its first member, second ...


@dataclass(slots=True, eq=False)
class Lane:
    """The head gang, since when it is, and what is expected of nodes.

    ``start_ns`` is when its nodes are expected to be free (0: not known), ``told_ns`` the same if
    no earlier gang waited as well; ``rooms``, by shape, when each node has the room for how many
    members; ``next_end_ns``, by row, when the first of its pods is expected to end; ``gathers``, by
    row, whether it becomes free bit by bit, at times that are not known; ``guessed``, by row,
    whether a pod of it states no end, ``is_known`` whether none does on the claimed nodes. ``seen``
    is how many changes of nodes are in them. ``waited_long``: it has waited for LONG_WAIT_NS.
    """

    application: Application
    since_ns: int
    needs: dict[Shape, int]
    rank: Rank
    start_ns: int = 0
    told_ns: int = 0
    rooms: dict[Shape, Moments] = field(default_factory=dict)
    next_end_ns: Moments = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gathers: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    guessed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    is_known: bool = True
    planned_ns: int = -1  # when the nodes were chosen last
    seen: int = -1
    facts: int = -1
    before: dict[Bucket, None] = field(default_factory=dict)  # who waited for nodes, and came first
    has_read: bool = False  # who did so before it was the head gang
    older: dict[Bucket, None] = field(default_factory=dict)  # the same, if they may not pass it too
    has_read_older: bool = False
    waited_long: bool = False
    tried: int = -1  # how many changes there were when it was tried last

    @property
    def claims(self) -> Mapping[str, Claim]:
        """Return the claims of the gang, by their nodes' names."""
        return self.application.claims_for(Purpose.HEAD_GANG)

    @property
    def nodes(self) -> dict[Node, Members]:
        """Return the nodes that it claims, each for how many members of which shape."""
        return {c.node: c.members for c in self.claims.values() if c.members is not None}

    def was_tried(self, changes: int) -> None:
        """Record that the gang was tried, after so many changes of nodes."""
        self.tried = changes
