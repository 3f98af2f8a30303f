"""Remember what was worked out for a class; the memory is as large as there are classes."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")


def once_per_class(function: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    """Return the function with one remembered answer for each class."""
    answers: dict[type[Any], T] = {}

    @wraps(function)
    def remembered(cls: type[Any]) -> T:
        if cls not in answers:
            answers[cls] = function(cls)
        return answers[cls]

    return remembered
