"""The state of the head gang's reservation, and when its nodes are expected to be free."""

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

Moments = NDArray[np.int64]  # by node and number of members: when so many fit, in ns


@dataclass(slots=True, eq=False)
class HeadGang:
    """The head gang, with the expected times of its nodes, in ns.

    ``start_ns`` is when its nodes are expected to be free (0: unknown), ``reported_start_ns`` the
    same if no earlier ask waits for nodes; ``rooms``, by shape, when each node fits how many
    members; ``next_end_ns``, by row, the first expected end of a pod; ``gathers``, by row,
    whether the node becomes free pod by pod at predicted times; ``guessed``, by row, whether a
    pod's end is not stated; ``is_known`` whether all ends on the claimed nodes are stated. ``seen``
    is the nodes' version they include. ``waited_long``: the gang has waited for LONG_WAIT_NS.
    """

    application: Application
    since_ns: int
    needs: dict[Shape, int]
    rank: Rank
    start_ns: int = 0
    reported_start_ns: int = 0
    rooms: dict[Shape, Moments] = field(default_factory=dict)
    next_end_ns: Moments = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gathers: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    guessed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    is_known: bool = True
    planned_ns: int = -1  # when the nodes were chosen last
    seen: int = -1
    facts: int = -1
    before: dict[Bucket, None] = field(default_factory=dict)  # wait for nodes, come before the gang
    has_read: bool = False  # whether earlier blocked buckets were read into ``before``
    older: dict[Bucket, None] = field(default_factory=dict)  # the same without a stated run time
    has_read_older: bool = False
    waited_long: bool = False
    tried: int = -1  # the nodes' version when it was tried last

    @property
    def claims(self) -> Mapping[str, Claim]:
        """Return the gang's claims, by node id."""
        return self.application.claims_for(Purpose.HEAD_GANG)

    @property
    def nodes(self) -> dict[Node, Members]:
        """Return the claimed nodes, each with the members counted on it."""
        return {c.node: c.members for c in self.claims.values() if c.members is not None}

    def was_tried(self, changes: int) -> None:
        """Record the nodes' version at which the gang was tried."""
        self.tried = changes
