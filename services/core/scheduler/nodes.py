"""Nodes: their ledgers, and the choice of the best one for a shape.

The ledgers are integer maps; beside them stands one int64 matrix of what is available (a row a
node, a column a resource type), so that a shape is compared with all nodes in one step.

Order of nodes (contract section 6.6): ascending score, then node id. ``fair`` scores the weighted
share in use, ``binpacking`` one less it. Shares are the only floats, and no ledger holds one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.shapes import Shape
from shared.messages.interface import Allocation, Constraints, Taint, Toleration
from shared.model.reasons import Reason, Refusal
from shared.model.resources import (
    Resource,
    ResourceView,
    add_into,
    fits_room,
    go_map,
    subtract_into,
    without_zeros,
)

FAIR = "fair"
BINPACKING = "binpacking"
DEFAULT_WEIGHTS: dict[str, float] = {"vcore": 1.0, "memory": 1.0}
MAX_CONSTRAINTS = 1_000  # remembered at one time; more only cost a new comparison
_HARD_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(slots=True, eq=False)
class Node:
    """One node. ``allocated`` is the sum of ``allocations``, ``occupied`` what others placed."""

    node_id: str
    row: int
    capacity: Resource
    attributes: dict[str, str]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    schedulable: bool
    allocated: Resource = field(default_factory=dict)
    occupied: Resource = field(default_factory=dict)
    available: Resource = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Return whether one of the tolerations matches the taint (Kubernetes' rules)."""
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.key and toleration.key != taint.key:
            continue
        if toleration.operator == "Exists" or (toleration.key and toleration.value == taint.value):
            return True
    return False


def matches(constraints: Constraints, node: Node) -> bool:
    """Return whether a node has the labels that are needed and no taint that is not tolerated."""
    if any(node.labels.get(key) != value for key, value in constraints.node_selector):
        return False
    return all(
        taint.effect not in _HARD_EFFECTS or tolerates(constraints.tolerations, taint)
        for taint in node.taints
    )


class NodeTable:
    """All nodes of the partition, in rows that are kept dense."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.total: Resource = {}
        self.policy = FAIR
        self.weights: dict[str, float] = dict(DEFAULT_WEIGHTS)
        self._rows: list[Node] = []
        self._columns: dict[str, int] = {}
        self._available: NDArray[np.int64] = np.zeros((16, 4), dtype=np.int64)
        self._score: NDArray[np.float64] = np.zeros(16, dtype=np.float64)
        self._schedulable: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self._rank: NDArray[np.int64] | None = None
        self._eligible: dict[Constraints, NDArray[np.bool_]] = {}

    def set_policy(self, policy: str, weights: Mapping[str, float]) -> None:
        """Set how nodes are ordered, and order them anew. Weights replace the defaults whole."""
        self.policy = policy
        self.weights = dict(weights) or dict(DEFAULT_WEIGHTS)
        for node in self._rows:
            self.refresh(node)

    def add(self, node: Node) -> None:
        """Register a node; its id must be new."""
        node.row = len(self._rows)
        if node.row == self._score.shape[0]:
            self._grow_rows()
        self._rows.append(node)
        self.nodes[node.node_id] = node
        add_into(self.total, node.capacity)
        self.relabelled()
        self.refresh(node)

    def remove(self, node: Node) -> None:
        """Forget a node; the last row takes its place."""
        last = self._rows.pop()
        if last is not node:
            self._rows[node.row] = last
            last.row = node.row
            self.refresh(last)
        del self.nodes[node.node_id]
        subtract_into(self.total, node.capacity)
        self.relabelled()

    def set_capacity(self, node: Node, capacity: ResourceView) -> None:
        """Change what a node can hold; what it holds may then be more than that."""
        subtract_into(self.total, node.capacity)
        node.capacity = without_zeros(capacity)
        add_into(self.total, node.capacity)
        self.refresh(node)

    def relabelled(self) -> None:
        """Forget which nodes match which constraints: nodes, labels or taints changed."""
        self._rank = None
        self._eligible.clear()

    def place(self, node: Node, allocation: Allocation) -> None:
        """Put an allocation on a node's ledger."""
        node.allocations[allocation.allocation_key] = allocation
        add_into(node.allocated, allocation.resource_per_alloc)
        self.refresh(node)

    def free(self, node: Node, key: str) -> Allocation:
        """Take an allocation off a node's ledger. Raises KeyError when it is not there."""
        allocation = node.allocations.pop(key)
        subtract_into(node.allocated, allocation.resource_per_alloc)
        self.refresh(node)
        return allocation

    def refresh(self, node: Node) -> None:
        """Bring a node's row up to date with its ledgers."""
        available = dict(node.capacity)
        subtract_into(available, node.allocated)
        subtract_into(available, node.occupied)
        node.available = available
        row = node.row
        self._available[row] = 0
        for name, value in available.items():
            column = self._columns.get(name)
            if column is None:
                column = self._add_column(name)
            self._available[row, column] = value
        self._schedulable[row] = node.schedulable
        self._score[row] = self.score(node)

    def score(self, node: Node) -> float:
        """Return a node's place in the order: smaller is better."""
        used = weight_sum = 0.0
        for name, weight in self.weights.items():
            total = node.capacity.get(name, 0)
            if weight and total > 0:
                used += weight * (1.0 - node.available.get(name, 0) / total)
                weight_sum += weight
        usage = used / weight_sum if weight_sum else 0.0
        return usage if self.policy == FAIR else 1.0 - usage

    def best(self, shape: Shape) -> Node | None:
        """Return the first node, in order, that has the room and matches, or None."""
        count = len(self._rows)
        mask = self._schedulable[:count] & self._eligible_mask(shape.constraints)
        for name, value in shape.resource.items():
            if value <= 0:
                continue
            column = self._columns.get(name)
            if column is None:
                return None
            mask &= self._available[:count, column] >= value
        rows = np.flatnonzero(mask)
        if not rows.size:
            return None
        scores = self._score[rows]
        ties = rows[scores == scores.min()]
        if ties.size > 1:
            ties = ties[[int(np.argmin(self._ranks()[ties]))]]
        return self._rows[int(ties[0])]

    def fits(self, node: Node, shape: Shape) -> bool:
        """Return whether a node has the room for a shape now and matches it."""
        return (
            node.schedulable
            and fits_room(node.available, shape.resource)
            and matches(shape.constraints, node)
        )

    def refusal(self, shape: Shape) -> Refusal:
        """Return why no node takes a shape now, with the numbers behind it."""
        schedulable = [node for node in self._rows if node.schedulable]
        wanted = go_map(shape.resource)
        if not schedulable:
            return Refusal(Reason.NO_NODES, f"none of {len(self._rows)} nodes is schedulable")
        matching = [node for node in schedulable if matches(shape.constraints, node)]
        if not matching:
            return Refusal(
                Reason.CONSTRAINTS,
                f"0 of {len(schedulable)} schedulable nodes match the selector and tolerations",
            )
        large = [node for node in matching if fits_room(node.capacity, shape.resource)]
        if not large:
            return Refusal(
                Reason.NODE_TOO_SMALL,
                f"requested {wanted}: 0 of {len(matching)} matching nodes could hold it when empty",
            )
        return Refusal(
            Reason.NO_NODE_FITS,
            f"requested {wanted}: 0 of {len(matching)} matching nodes have the room now, "
            f"{len(large)} could hold it when empty",
        )

    def _eligible_mask(self, constraints: Constraints) -> NDArray[np.bool_]:
        mask = self._eligible.get(constraints)
        if mask is None:
            if len(self._eligible) >= MAX_CONSTRAINTS:
                self._eligible.clear()
            mask = np.array([matches(constraints, node) for node in self._rows], dtype=np.bool_)
            self._eligible[constraints] = mask
        return mask

    def _ranks(self) -> NDArray[np.int64]:
        if self._rank is None:
            self._rank = np.zeros(len(self._rows), dtype=np.int64)
            ordered = sorted(self._rows, key=lambda node: node.node_id)
            for rank, node in enumerate(ordered):
                self._rank[node.row] = rank
        return self._rank

    def _grow_rows(self) -> None:
        more = self._score.shape[0]
        self._available = np.pad(self._available, ((0, more), (0, 0)))
        self._score = np.pad(self._score, (0, more))
        self._schedulable = np.pad(self._schedulable, (0, more))

    def _add_column(self, name: str) -> int:
        column = self._columns[name] = len(self._columns)
        if column == self._available.shape[1]:
            self._available = np.pad(self._available, ((0, 0), (0, column)))
        return column
