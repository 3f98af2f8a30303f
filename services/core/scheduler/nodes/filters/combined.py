"""Combines filters: for a mask of rows, for one node, and for evidence.

Filters are evaluated in order, costly ones last and for the remaining rows only.
"""

from collections.abc import Sequence

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, NodeColumns, When
from services.core.scheduler.nodes.filters.base import Filter, Moment
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_view import Stage
from shared.model.reasons import Fact, Reason

Steps = Sequence[tuple[str, Sequence[Filter]]]


class Filters:
    """A list of filters: a node fits a shape if all accept it."""

    __slots__ = ("_cheap", "_columns", "_costly", "_holds", "filters")

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self.set()

    def set(self, *filters: Filter) -> None:
        """Set the filters, in order."""
        self.filters = filters
        self._cheap = [one.rows for one in filters if not one.is_costly]
        self._costly = [one for one in filters if one.is_costly]
        self._holds = [one.holds for one in filters]

    def mask(self, shape: Shape, when: When = When.NOW, among: Amounts | None = None) -> Mask:
        """Return which rows fit a shape, of all or of ``among``."""
        at = self._columns.all if among is None else among
        left: Mask | None = None
        for rows in self._cheap:
            found = rows(shape, when, at)
            if found is not None:
                left = found if left is None else left & found
        if left is None:
            left = np.ones(at.stop if isinstance(at, slice) else at.size, dtype=np.bool_)
        for one in self._costly:
            if one.matters(shape):
                some = np.flatnonzero(left)
                asked = some if among is None else among[some]
                found = one.rows(shape, when, asked) if some.size else None
                if found is not None:
                    left = np.zeros(left.size, dtype=np.bool_)
                    left[some[found]] = True
        return left

    def holds(self, node: Node, shape: Shape, when: Moment = When.NOW) -> bool:
        """Whether one node fits a shape."""
        for holds in self._holds:  # noqa: SIM110 - asked more often than anything else
            if not holds(node, shape, when):
                return False
        return True


def evidence(shape: Shape, steps: Steps, start: Stage) -> tuple[Stage, tuple[Reason, Fact] | None]:
    """Return the refused rows, each at its first refusing step, and why none is left.

    In one step a row counts for each filter that refuses it. None: some rows are left.
    """
    failures, left, number, passed = start
    failures, passed, none_left = [*failures], {**passed}, None
    for name, filters in steps:
        before, number_before = left, number
        found: list[Failing] = []
        for each in filters if number else ():
            if each.matters(shape):
                found += each.why(shape, left)
        if len(found) > 1 and len(filters) > 1:
            found = _merged(found)
        left, number = _without(left, number, found)
        if filters and not number:
            stage = Stage(failures, before, number_before, passed)
            none_left = filters[0].reason(shape, stage)
        failures += found
        passed[name] = number
        if none_left is not None:
            break
    return Stage(failures, left, number, passed), none_left


def _without(left: Mask, number: int, found: list[Failing]) -> tuple[Mask, int]:
    """Return the rows left without the refused ones, and their number."""
    for item in found:
        left = left & ~item.rows
    if len(found) == 1:
        return left, number - found[0].number
    return left, int(np.count_nonzero(left)) if found else number


def _merged(found: list[Failing]) -> list[Failing]:
    """Return refused rows, merged by equal reasons."""
    by_what: dict[tuple[str, str], Failing] = {}
    for item in found:
        what = (item.on, item.detail)
        rows = by_what[what].rows | item.rows if what in by_what else item.rows
        number = int(np.count_nonzero(rows)) if what in by_what else item.number
        by_what[what] = Failing(item.on, rows, number, item.detail)
    return list(by_what.values())
