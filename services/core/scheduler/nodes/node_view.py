"""Cached answers about nodes that depend on node properties only: facts and numbers by row.

Rule 1: asks with equal constraints on nodes (``Constraints.of_nodes``) share a view. If a plugin
        reads amounts, each shape has a view.
Rule 2: a row is computed when it is first read, and again when the node's labels, taints, capacity
        or row change.
Rule 3: if only taints and labels named by the shape matter, one node of each combination is
        computed, and the others get the same answer.
Limit: MAX_CONSTRAINTS views; with more all are dropped. The values of MAX_KEYS labels are cached by
row.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.nodes.node_classes import Failing
from shared.messages.constraints import Constraints
from shared.model.reasons import Fact, Reason

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node
    from services.core.scheduler.model.shapes import Shape

MAX_CONSTRAINTS = 1_000  # remembered at one time; more only cost a new comparison
MAX_KEYS = 16  # labels of nodes with values cached by row; with more all are read again
FEW = 16  # up to so many rows, computing each is cheaper than grouping them
SCHEDULABLE, MATCHING, USABLE = "schedulable", "matching", "usable"  # the steps of evidence
SELECTED, ELIGIBLE = 0, 1  # the first facts of a view: the selector, then the taints
LARGE, ROOM = "large enough when empty", "with room"
Mask = NDArray[np.bool_]


class NodeFact(Protocol):
    """A filter by node properties only: independent of free capacity and pods."""

    @property
    def is_of_labels(self) -> bool:
        """Whether it reads only taints, and labels named by the shape."""

    @property
    def depends_on_amounts(self) -> bool:
        """Whether shapes that differ only in amounts may have different answers."""

    def admits(self, node: "Node", shape: "Shape") -> bool:
        """Whether a node accepts a shape."""


class NodeNumber(Protocol):
    """A number of a node for a shape, by node properties only."""

    @property
    def is_of_labels(self) -> bool:
        """Whether it reads only taints, and labels named by the shape."""

    def of_node(self, node: "Node", shape: "Shape") -> float:
        """Return a node's number for a shape."""


class Stage(NamedTuple):
    """The result after some filters: failures, the rows left, and their number.

    ``passed`` is the number of rows left after each step, by its name.
    """

    failures: list[Failing]
    left: Mask
    number: int  # number of rows left
    passed: dict[str, int]


Judged = tuple[int, Stage, tuple[Reason, Fact] | None]  # with a version of the columns


class NodeView:
    """The answers of all rows for shapes with equal constraints on nodes.

    ``first[k]`` is the answer of the first k + 1 facts together.
    """

    __slots__ = (
        "_facts",
        "_first",
        "_keys",
        "_numbers",
        "_shape",
        "_values",
        "feasible",
        "first",
        "judged",
        "made",
        "numbers",
    )

    def __init__(
        self, shape: "Shape", facts: Sequence[NodeFact], numbers: Sequence[NodeNumber]
    ) -> None:
        self.made = 0
        self.judged: Judged | None = None
        self._shape = shape
        self._facts = facts
        self._numbers = numbers
        is_of_labels = all(fact.is_of_labels for fact in facts)
        is_of_labels &= all(number.is_of_labels for number in numbers)
        self._keys = labels_of(shape.constraints) if is_of_labels else None
        self._first: NDArray[np.bool_] = np.zeros((len(facts), 0), dtype=np.bool_)
        self._values: NDArray[np.float64] = np.zeros((len(numbers), 0))
        self.first: list[Mask] = []
        self.feasible: Mask  # the rows that every fact accepts
        self.numbers: list[NDArray[Any]] = []
        self._cut()

    def extend(self, rows: "list[Node]", labels: "LabelColumns") -> None:
        """Compute the rows added since the last call."""
        size = self._first.shape[1]
        if len(rows) > size:
            more = max(len(rows) - size, size)
            self._first = np.pad(self._first, ((0, 0), (0, more)))
            self._values = np.pad(self._values, ((0, 0), (0, more)))
        first, self.made = self.made, len(rows)
        if self._keys is None or len(rows) - first <= FEW:
            for at in range(first, len(rows)):
                self._ask(at, rows[at])
        else:
            self._ask_by_kind(first, rows, labels.of(self._keys, first))
        self._cut()

    def _ask_by_kind(self, first: int, rows: "list[Node]", kinds: Iterable[object]) -> None:
        """Compute the first row of each kind, and copy its answers to the others."""
        known: dict[object, int] = {}
        same = [known.setdefault(kind, at) for at, kind in enumerate(kinds, first)]
        for at in known.values():
            self._ask(at, rows[at])
        if len(known) < len(same):
            self._first[:, first : len(rows)] = self._first[:, same]
            self._values[:, first : len(rows)] = self._values[:, same]

    def renew(self, node: "Node") -> None:
        """Compute one node again."""
        if node.row < self.made:
            self._ask(node.row, node)

    def shorten(self, count: int) -> None:
        """Drop the rows from ``count`` on."""
        if count < self.made:
            self.made = count
            self._cut()

    def _ask(self, row: int, node: "Node") -> None:
        shape, passes = self._shape, True
        for at, fact in enumerate(self._facts):
            passes = passes and fact.admits(node, shape)
            self._first[at, row] = passes
        for at, number in enumerate(self._numbers):
            self._values[at, row] = number.of_node(node, shape)

    def _cut(self) -> None:
        self.first = list(self._first[:, : self.made])
        self.feasible = self.first[-1]
        self.numbers = list(self._values[:, : self.made])


class LabelColumns:
    """The values of labels by row, and the taints; read on first use."""

    def __init__(self, rows: "list[Node]") -> None:
        self._rows = rows
        self._values: dict[str, list[str | None]] = {}

    def of(self, keys: tuple[str, ...], first: int) -> Iterator[object]:
        """Yield the taints and the values of some labels, from row ``first`` on."""
        if len(self._values) + len(keys) > MAX_KEYS:
            self._values.clear()
        columns = [self._column(key)[first:] for key in keys]
        return zip([node.taints for node in self._rows[first:]], *columns, strict=True)

    def _column(self, key: str) -> list[str | None]:
        values = self._values.setdefault(key, [])
        values += [node.labels.get(key) for node in self._rows[len(values) :]]
        return values

    def renew(self, node: "Node") -> None:
        """Read a node again."""
        for key, values in self._values.items():
            if node.row < len(values):
                values[node.row] = node.labels.get(key)

    def shorten(self) -> None:
        """Drop the rows of removed nodes."""
        for values in self._values.values():
            del values[len(self._rows) :]


def labels_of(constraints: Constraints) -> tuple[str, ...] | None:
    """Return the node labels that constraints use; None if they name nodes."""
    terms = (*constraints.node_terms, *constraints.preferred_nodes)
    if constraints.required_node or any(term.fields for term in terms):
        return None
    named = [key for key, _ in constraints.node_selector]
    named += [each.key for term in terms for each in term.expressions]
    return tuple(dict.fromkeys(named)) if len(named) <= MAX_KEYS else None


class NodeViews:
    """The views of all recently used shapes."""

    def __init__(self, rows: "list[Node]") -> None:
        self._rows = rows
        self._facts: list[NodeFact] = []
        self._numbers: list[NodeNumber] = []
        self._views: dict[object, NodeView] = {}
        self._labels = LabelColumns(rows)
        self.version = 0  # incremented when all are dropped

    def watch(self, facts: Sequence[NodeFact], numbers: Sequence[NodeNumber]) -> None:
        """Set the facts and numbers to cache."""
        self._facts, self._numbers = list(facts), list(numbers)
        self._forget()

    def number(self, shape: "Shape", asked: NodeNumber) -> NDArray[Any]:
        """Return a number for all rows."""
        return self.of(shape).numbers[self._numbers.index(asked)]

    def of(self, shape: "Shape") -> NodeView:
        """Return the view of a shape, up to date."""
        known = self.known(shape)
        if known is not None:
            return known
        view = self._view_of(shape)
        shape.view = (self.version, view)
        if view.made < len(self._rows):
            view.extend(self._rows, self._labels)
        return view

    def known(self, shape: "Shape") -> NodeView | None:
        """Return a shape's view if it exists and is up to date, else None."""
        if shape.view is not None and shape.view[0] == self.version:
            view: NodeView = shape.view[1]
            if view.made == len(self._rows):
                return view
        return None

    def _view_of(self, shape: "Shape") -> NodeView:
        key: object = shape.constraints.of_nodes
        if any(fact.depends_on_amounts for fact in self._facts):
            key = (key, tuple(sorted(shape.resource.items())))
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= MAX_CONSTRAINTS:
                self._forget()
            view = self._views[key] = NodeView(shape, self._facts, self._numbers)
        return view

    def _forget(self) -> None:
        self._views.clear()
        self.version += 1

    def renew(self, node: "Node") -> None:
        """Compute a node again in all views."""
        self._labels.renew(node)
        for view in self._views.values():
            view.renew(node)

    def shorten(self) -> None:
        """Drop the rows of removed nodes in all views."""
        self._labels.shorten()
        for view in self._views.values():
            view.shorten(len(self._rows))
