"""Remember what was worked out for a class; the memory is as large as there are classes."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

T = TypeVar("T")


def once_per_class(function: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    """Return the function with one remembered answer for each class."""
    return cast(Callable[[type[Any]], T], cache(function))
