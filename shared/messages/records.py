"""Declares messages of which there are very many.

The ``__init__`` of a frozen dataclass calls a function per field: with 18 fields it takes 2 µs
instead of 0.3. Here the type checker enforces immutability, at no cost at run time.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True)
def record(made: type[Made]) -> type[Made]:
    """Make a class a dataclass with slots, which type checkers treat as frozen."""
    return dataclass(slots=True)(made)
