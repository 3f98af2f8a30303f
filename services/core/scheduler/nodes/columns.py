"""The nodes' amounts as arrays: a row for each node, a column for each resource type.

So a shape is compared with all nodes in one step. The ledgers are maps of integers of any size;
beyond int64 the arrays hold the nearest number.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import BY_ASK, BY_HEAD_GANG, CLOSED, NOT_CLOSED, Node
from shared.model.numbers import INT64_MAX, INT64_MIN, saturated

Mask = NDArray[np.bool_]
Amounts = NDArray[np.int64]
At = slice | NDArray[np.int64]  # rows: the first ones, or selected ones in any order


class When(Enum):
    """The state of the nodes that a question is about."""

    NOW = "now"
    EMPTY = "if nothing were on the nodes"
    EXPECTED = "once what the open statement expects has come and gone"


class NodeColumns:
    """The arrays behind the table of nodes. Rows beyond the last node are meaningless."""

    def __init__(self) -> None:
        self.rows: list[Node] = []
        self.all = slice(0)  # the rows of all nodes
        self.numbers: dict[str, int] = {}  # of the columns, by resource type
        self.available: Amounts = np.zeros((16, 4), dtype=np.int64, order="F")
        self.capacity: Amounts = np.zeros((16, 4), dtype=np.int64, order="F")
        self.expected: Amounts = np.zeros((16, 4), dtype=np.int64, order="F")
        self.score: NDArray[np.float64] = np.zeros(16, dtype=np.float64)
        self.changed: Amounts = np.zeros(16, dtype=np.int64)  # by the index's log
        self.schedulable: Mask = np.zeros(16, dtype=np.bool_)
        self.claimed: NDArray[np.int8] = np.zeros(16, dtype=np.int8)  # as ``Node.claimed``
        self.soft_taints = 0  # number of PreferNoSchedule taints on all nodes
        self.facts = 0  # version of the nodes' properties, without their free capacity
        self._least: tuple[int, list[int]] = (-1, [])  # version, smallest capacity by column

    def append(self, node: Node) -> None:
        """Add a node as the next row."""
        self.rows.append(node)
        self.all = slice(len(self.rows))
        if node.row < self.score.shape[0]:
            return
        more = self.score.shape[0]
        self.available = np.pad(self.available, ((0, more), (0, 0)))
        self.capacity = np.pad(self.capacity, ((0, more), (0, 0)))
        self.expected = np.pad(self.expected, ((0, more), (0, 0)))
        self.score = np.pad(self.score, (0, more))
        self.changed = np.pad(self.changed, (0, more))
        self.schedulable = np.pad(self.schedulable, (0, more))
        self.claimed = np.pad(self.claimed, (0, more))

    def pop(self) -> Node:
        """Remove and return the node of the last row."""
        last = self.rows.pop()
        self.all = slice(len(self.rows))
        return last

    def know(self, names: Mapping[str, int]) -> None:
        """Add columns for types that have none."""
        for name in names:
            if name not in self.numbers:
                self.column(name)

    def column(self, name: str) -> int:
        """Return the column of a type; it is added if there is none."""
        found = self.numbers.get(name)
        if found is not None:
            return found
        made = self.numbers[name] = len(self.numbers)
        self.facts += 1
        if made == self.available.shape[1]:
            self.available = np.pad(self.available, ((0, 0), (0, made)))
            self.capacity = np.pad(self.capacity, ((0, 0), (0, made)))
            self.expected = np.pad(self.expected, ((0, 0), (0, made)))
        return made

    def write_available(self, node: Node) -> None:
        """Update a row to its node's available amounts."""
        self.know(node.available)
        self._write(self.available, node.row, node.available)

    def write_capacity(self, node: Node) -> None:
        """Update a row to its node's capacity and expected amounts."""
        self.know(node.capacity)
        self._write(self.capacity, node.row, node.capacity)
        if node.expected:
            self._write(self.expected, node.row, node.expected)
        else:
            self.expected[node.row] = 0
        self.facts += 1

    def write_expected(self, node: Node, names: Iterable[str]) -> None:
        """Update some types of a row to its node's expected amounts."""
        numbers, expected = self.numbers, node.expected
        for name in names:
            number = numbers.get(name)
            if number is None:
                number = self.column(name)
            value = expected.get(name, 0)
            try:
                self.expected[node.row, number] = value
            except OverflowError:
                self.expected[node.row, number] = saturated(value)

    def _write(self, matrix: Amounts, row: int, amounts: Mapping[str, int]) -> None:
        numbers = self.numbers
        matrix[row] = 0
        for name, value in amounts.items():
            try:
                matrix[row, numbers[name]] = value
            except OverflowError:
                matrix[row, numbers[name]] = saturated(value)

    # --- reading --------------------------------------------------------------------------------

    def schedulable_count(self) -> int:
        """Return the number of schedulable nodes."""
        return int(np.count_nonzero(self.schedulable[self.all]))

    def held_rows(self) -> Amounts:
        """Return the rows that only the head gang claims."""
        return np.flatnonzero(self.claimed[self.all] & CLOSED == BY_HEAD_GANG)

    def reserved_nodes(self) -> list[Node]:
        """Return the nodes with reservations, in the order of their rows."""
        reserved = self.claimed[self.all] & (BY_ASK | NOT_CLOSED)
        return [self.rows[row] for row in reserved.nonzero()[0].tolist()]

    def amounts(self, name: str, when: When, at: At) -> Amounts | None:
        """Return some rows' amounts of a type; None if no node ever had the type."""
        number = self.numbers.get(name)
        if number is None:
            return None
        if when is When.NOW:
            return self.available[at, number]
        if when is When.EMPTY:
            return self.capacity[at, number]
        return sums(self.available[at, number], self.expected[at, number])

    def expected_of(self, numbers: list[int], at: At) -> Amounts:
        """Return some rows' expected amounts of several columns."""
        return sums(self.available[at][:, numbers], self.expected[at][:, numbers])

    def table_of(self, names: Sequence[str], when: When) -> Amounts:
        """Return every node's amounts of some types, a column for each type."""
        found = np.zeros((len(self.rows), len(names)), dtype=np.int64)
        for at, name in enumerate(names):
            amounts = self.amounts(name, when, self.all)
            if amounts is not None:
                found[:, at] = amounts
        return found

    def least_capacities(self) -> list[int]:
        """Return the smallest capacity of all nodes, by column."""
        if self._least[0] != self.facts:
            least = self.capacity[: len(self.rows)].min(axis=0, initial=INT64_MAX).tolist()
            self._least = (self.facts, least)
        return self._least[1]


def sums(one: Amounts, other: Amounts) -> Amounts:
    """Return the sums of two arrays, saturated at int64."""
    total = one + other
    wrapped = ((one ^ total) & (other ^ total)) < 0
    if np.count_nonzero(wrapped):
        total[wrapped] = np.where(one[wrapped] < 0, INT64_MIN, INT64_MAX)
    return total
