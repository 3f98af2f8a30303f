"""What ``make soak`` runs more of: ``make test`` has some of what holds one property many times."""

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")
IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
_USUAL = 30  # examples of a property, where it does not say another number


def some(count: int, rows: Sequence[T]) -> Sequence[T]:
    """Return the first rows of a table of like ones, so many; in a soak all of them."""
    return rows if IS_SOAK else rows[:count]


def examples(count: int) -> int:
    """Return how many examples a property has: so many, or as many as a soak or a hunt draws."""
    return max(count, settings().max_examples) if settings().max_examples > _USUAL else count
