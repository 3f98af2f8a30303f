"""What an ask's constraints make of every node, as far as the node alone decides it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model import devices
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.nodes.node_classes import Failing
from shared.messages.constraints import Taint
from shared.messages.interface import Allocation
from shared.messages.selectors import (
    SOFT_EFFECT,
    first_untolerated,
    selects,
    term_matches,
    tolerates,
)
from shared.model.resources import fits_room

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node
    from services.core.scheduler.model.shapes import Shape

FULL_MARKS = 100
MAX_TAINTS = 32  # told apart in a refusal; the others are told together


class NodeHooks(Protocol):
    """What the table of nodes asks and tells the hooks of plugins (``model/hooks.py``)."""

    facts: int
    moves: int

    @property
    def score(self) -> Sequence[object]:
        """The hooks that score nodes."""

    @property
    def needs_scan(self) -> bool:
        """Whether nodes have another order than their own, or one that no index follows."""

    def admits(self, node: "Node", shape: "Shape") -> bool:
        """Return whether every hook lets a node take a shape now."""

    def admits_as_it_is(self, node: "Node", shape: "Shape") -> bool:
        """Return whether those hooks do that only look at what the node is."""

    def scores_as_it_is(self, node: "Node", shape: "Shape") -> list[float]:
        """Return, hook by hook, the scores that rest on what the node is."""

    def narrow(self, mask: NDArray[np.bool_], rows: "Sequence[Node]", shape: "Shape") -> None:
        """Close the rows of a mask that a hook refuses which looks at more than the node."""

    def first(
        self,
        among: NDArray[np.int64],
        rows: "Sequence[Node]",
        shape: "Shape",
        fixed: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Return those of some rows that come first, hook after hook."""

    def why_closed(self, nodes: "Sequence[Node]", shape: "Shape") -> str:
        """Return which plugins leave none of some nodes open, or an empty text."""

    def came(self, allocation: Allocation) -> None:
        """Tell of an allocation that is on a node from now on."""

    def went(self, allocation: Allocation) -> None:
        """Tell of an allocation that was on a node until now."""


@dataclass(frozen=True, slots=True)
class MayBeUsed:
    """Which rows fail on something else than amounts; the others are ``left``.

    So many are ``schedulable``, of those ``matching``, of those ``usable``: plugins admit them.
    """

    facts: int  # of the table, as of which it is so
    failures: list[Failing]
    left: NDArray[np.bool_]
    schedulable: int
    matching: int
    usable: int


class NodeView:
    """One value a row: may it be taken, would it be but for taints, and how it is liked.

    It knows the rows up to the one that it was ``made`` for. With hooks of plugins it is the view
    of one shape; ``feasible`` is then what they leave of ``eligible``.
    """

    __slots__ = (
        "_constraints",
        "_eligible",
        "_feasible",
        "_hooks",
        "_preferred",
        "_scores",
        "_selected",
        "_shape",
        "_soft_taints",
        "_taint_codes",
        "eligible",
        "feasible",
        "made",
        "may_be_used",
        "preferred",
        "scores",
        "selected",
        "soft_taints",
        "taint_codes",
        "taints",
    )

    eligible: NDArray[np.bool_]
    feasible: NDArray[np.bool_]
    scores: NDArray[np.float64]  # of plugins, a line a hook
    selected: NDArray[np.bool_]
    preferred: NDArray[np.int64]  # the sum of the weights of the preferred terms that match
    soft_taints: NDArray[np.int64]  # PreferNoSchedule taints that are not tolerated
    taint_codes: NDArray[np.int64]  # the first hard one that is not, by its place in ``taints``

    def __init__(self, shape: "Shape", hooks: NodeHooks | None = None) -> None:
        self.made = 0
        self.may_be_used: MayBeUsed | None = None  # as the table found it last
        self._constraints = shape.constraints.of_nodes
        self._shape = shape
        self._hooks = hooks
        self._feasible = np.zeros(0, dtype=np.bool_)
        self._scores = np.zeros((len(hooks.score) if hooks is not None else 0, 0))
        self._eligible = np.zeros(0, dtype=np.bool_)
        self._selected = np.zeros(0, dtype=np.bool_)
        self._preferred = np.zeros(0, dtype=np.int64)
        self._soft_taints = np.zeros(0, dtype=np.int64)
        self._taint_codes = np.zeros(0, dtype=np.int64)
        self.taints = [""]
        self._cut()

    def extend(self, rows: "list[Node]") -> None:
        """Compare the constraints with the rows that came since it was made."""
        more = len(rows) - self._eligible.size
        if more > 0:
            more = max(more, self._eligible.size)
            self._eligible = np.pad(self._eligible, (0, more))
            self._selected = np.pad(self._selected, (0, more))
            self._preferred = np.pad(self._preferred, (0, more))
            self._soft_taints = np.pad(self._soft_taints, (0, more))
            self._taint_codes = np.pad(self._taint_codes, (0, more))
            if self._hooks is not None:
                self._feasible = np.pad(self._feasible, (0, more))
                self._scores = np.pad(self._scores, ((0, 0), (0, more)))
        first, self.made = self.made, len(rows)
        for at in range(first, len(rows)):
            self._compare(at, rows[at])
        self._cut()

    def renew(self, node: "Node") -> None:
        """Compare the constraints with one node again: its labels, taints or row changed."""
        if node.row < self.made:
            self._compare(node.row, node)

    def shorten(self, count: int) -> None:
        """Forget the rows from one on."""
        if count < self.made:
            self.made = count
            self._cut()

    def _compare(self, row: int, node: "Node") -> None:
        constraints = self._constraints
        is_selected = selects(constraints, node.node_id, node.labels)
        self._selected[row] = is_selected
        taint = first_untolerated(constraints, node.taints) if node.taints else None
        self._eligible[row] = is_selected and taint is None
        self._taint_codes[row] = self._code_of(taint) if taint is not None else 0
        self._preferred[row] = sum(
            term.weight
            for term in constraints.preferred_nodes
            if term_matches(term, node.node_id, node.labels)
        )
        self._soft_taints[row] = sum(
            taint.effect == SOFT_EFFECT and not tolerates(constraints.tolerations, taint)
            for taint in node.taints
        )
        if self._hooks is not None:
            is_admitted = self._hooks.admits_as_it_is(node, self._shape)
            self._feasible[row] = self._eligible[row] and is_admitted
            self._scores[:, row] = self._hooks.scores_as_it_is(node, self._shape)

    def _code_of(self, taint: Taint) -> int:
        """Return the place of a taint's text among those that were met."""
        text = f"{{{taint.key}: {taint.value}}}"
        if text in self.taints:
            return self.taints.index(text)
        if len(self.taints) > MAX_TAINTS:
            return MAX_TAINTS
        self.taints.append(text if len(self.taints) < MAX_TAINTS else "")
        return len(self.taints) - 1

    def _cut(self) -> None:
        self.eligible = self._eligible[: self.made]
        self.selected = self._selected[: self.made]
        self.preferred = self._preferred[: self.made]
        self.soft_taints = self._soft_taints[: self.made]
        self.taint_codes = self._taint_codes[: self.made]
        self.feasible = self.eligible
        if self._hooks is not None:
            self.feasible = self._feasible[: self.made]
            self.scores = self._scores[:, : self.made]


def normalised(scores: NDArray[np.int64], *, is_less_better: bool) -> NDArray[np.int64]:
    """Return scores from 0 to 100, the best 100; scores that are all alike are all 0."""
    low, high = int(scores.min()), int(scores.max())
    if low == high:
        return np.zeros(scores.size, dtype=np.int64)
    distance = high - scores if is_less_better else scores - low
    return distance * FULL_MARKS // (high - low)


def leaves_enough(node: "Node", shape: "Shape") -> bool:
    """Return whether a shape on a reserved node takes nothing that its reservations lack.

    Of every type that it takes there must be left at least what is reserved, now. On a node that is
    held for the lane's gang it takes no more than that gang leaves.
    """
    if node.is_held and not fits_room(node.spare, shape.resource):
        return False
    if shape.on_devices is not None and node.devices:
        free = list(open_devices(node))
        devices.change(free, devices.choose(free, shape.on_devices), -1)
        wanted_too = (held.ask.shape.on_devices for held in node.reservations.values())
        if not all(need is None or devices.holds(free, need) for need in wanted_too):
            return False
    return all(
        taken <= 0 or node.available.get(name, 0) - taken >= wanted
        for reservation in node.reservations.values()
        for name, wanted in reservation.ask.shape.resource.items()
        for taken in (shape.resource.get(name, 0),)
    )
