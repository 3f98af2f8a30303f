"""Filters by node selector, node affinity and taints.

Source: the Kubernetes documentation of node affinity and of taints and tolerations.
"""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Mask
from services.core.scheduler.nodes.filters.base import NodeFilter
from services.core.scheduler.nodes.node_classes import Failing, split
from services.core.scheduler.nodes.node_view import SCHEDULABLE, Stage
from shared.messages.selectors import first_untolerated, is_tolerated, selects
from shared.model.reasons import SELECTOR, TAINTS, Fact, Kind, Reason

MAX_TAINTS = 32  # taints named in a refusal; the others are summed up


class Selected(NodeFilter):
    """The node selector, the required node, and required node affinity."""

    on = SELECTOR
    is_of_labels = True

    def admits(self, node: Node, shape: Shape) -> bool:
        return selects(shape.constraints, node.node_id, node.labels)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return _no_match(before)


class Tolerated(NodeFilter):
    """All taints that exclude pods are tolerated."""

    on = TAINTS
    is_of_labels = True

    def admits(self, node: Node, shape: Shape) -> bool:
        return is_tolerated(shape.constraints, node.taints)

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        """Return the refused rows by their first taint that is not tolerated."""
        found: list[Failing] = []
        for failing in super().why(shape, left):
            found += split(TAINTS, failing.rows, *self._taints(shape, failing.rows))
        return found

    def _taints(self, shape: Shape, rows: Mask) -> tuple[NDArray[np.int64], list[str]]:
        """Return every row's index in the list of taint texts, and the list."""
        codes = np.zeros(rows.size, dtype=np.int64)
        numbers = {"": 0}
        for row in np.flatnonzero(rows).tolist():
            taint = first_untolerated(shape.constraints, self._columns.rows[row].taints)
            if taint is not None:
                text = f"{{{taint.key}: {taint.value}}}"
                is_many = len(numbers) >= MAX_TAINTS
                codes[row] = (
                    numbers.get(text, 0) if is_many else numbers.setdefault(text, len(numbers))
                )
        return codes, list(numbers)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return _no_match(before)


def _no_match(before: Stage) -> tuple[Reason, Fact]:
    return Reason.CONSTRAINTS, Fact(Kind.NODES, total=before.passed[SCHEDULABLE])
