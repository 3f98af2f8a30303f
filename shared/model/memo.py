"""Caches results per class; the cache is limited by the number of classes."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

T = TypeVar("T")


def once_per_class(function: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    """Return a function whose result is cached for each class."""
    return cast(Callable[[type[Any]], T], cache(function))
