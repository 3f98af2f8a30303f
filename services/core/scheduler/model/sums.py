"""Sums over nodes and tasks that may exceed int64, exact (docs/adr/0021).

Amounts of one node or task fit int64, as do arrays with a row for each node. A sum over rows is an
array of Python integers, one for each type.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.model.numbers import INT64_MAX

Sums: TypeAlias = NDArray[np.object_]


def sums(amounts: Sequence[int]) -> Sums:
    """Return amounts as an array of Python integers."""
    return np.array(amounts, dtype=object)


def summed(rows: NDArray[np.int64]) -> Sums:
    """Return the sum of every column."""
    if not rows.size:
        return sums([0] * rows.shape[1])
    largest = max(int(rows.max()), -int(rows.min()))
    if largest * len(rows) <= INT64_MAX:
        return sums(rows.sum(axis=0).tolist())
    return sums(rows.astype(object).sum(axis=0).tolist())


def sum_of(amounts: Iterable[Iterable[int]], width: int) -> Sums:
    """Return the sum of amounts, type by type."""
    totals = [0] * width
    for amount in amounts:
        for at, value in enumerate(amount):
            totals[at] += value
    return sums(totals)
