"""A checkpoint: every row and table of a partition as it is, to be brought back in place.

Rule 1: kept is what is reachable from the partition, each row and container by itself. So a whole
        cycle is undone without an inverse for each of its steps, and a new field, table or move
        needs nothing here.
Rule 2: what is brought back is the same object as before, with its fields, entries and their order.
        What was made since is gone with the last reference to it.
Rule 3: messages, frozen values and whatever is not the core's own are never changed, and not kept.
        Nor is a tuple looked into: a row that stands in one is reachable without it.

Cost: O(rows), some microseconds each; nothing while none is taken. It is for a question, never for
a decision: searches undo their moves by their log.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import is_dataclass
from enum import Enum
from itertools import chain
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OURS = "services.core.scheduler."
_UNSET = object()
_NOTHING: dict[Any, Any] = {}
_Fields = tuple[str, ...]


class Checkpoint:
    """What is reachable from a root, as it was when this was made.

    It holds flat lists side by side and no object for each row: what it makes is little, so that
    the collector of cycles has no reason to run meanwhile.
    """

    def __init__(self, root: object) -> None:
        self._rows: list[object] = []
        self._values: list[Any] = []  # of the fields of all rows, one behind the other
        self._empty: list[dict[Any, Any]] = []
        self._dicts: list[dict[Any, Any]] = []
        self._entries: list[dict[Any, Any]] = []  # of each of those
        self._others: list[Any] = []  # lists, sets and arrays
        self._items: list[Any] = []  # of each of those
        self._left: list[Any] = [root]
        left, seen = self._left, set[int]()
        while left:
            found = left.pop()
            if id(found) not in seen:
                seen.add(id(found))
                (_KEEPS.get(type(found)) or _recorder_of(type(found)))(self, found)

    def restore(self) -> None:
        """Bring everything back."""
        values = iter(self._values)
        for row in self._rows:
            for name in _SLOTS[type(row)]:
                value = next(values)
                if getattr(row, name, _UNSET) is not value:
                    _set(row, name, value)
        for held in filter(None, self._empty):
            held.clear()
        for held, entries in zip(self._dicts, self._entries, strict=True):
            held.clear()
            held.update(entries)
        for held_, items in zip(self._others, self._items, strict=True):
            if isinstance(held_, np.ndarray):
                held_[...] = items
            else:
                held_.clear()
                (held_.update if isinstance(held_, set) else held_.extend)(items)

    # --- what is recorded, by class -------------------------------------------------------------

    def record_row(self, row: object) -> None:
        """Record a row's fields and what they hold."""
        names = _SLOTS.get(type(row)) or _slots(type(row))
        values: list[Any] = [getattr(row, name, _UNSET) for name in names]
        self._rows.append(row)
        self._values += values
        own = getattr(row, "__dict__", _NOTHING)
        if own:
            self._dicts.append(own)
            self._entries.append(own.copy())
            values += own.values()
        for value in values:
            kind = type(value)
            if kind is dict:
                self.record_dict(value)
            elif kind not in _FIXED:
                self._left.append(value)

    def record_dict(self, held: dict[Any, Any]) -> None:
        """Record a mapping and what its keys and values hold."""
        if held:
            self._dicts.append(held)
            self._entries.append(held.copy())
            self._record_items(held.values())
            self._record_items(held)
        else:
            self._empty.append(held)

    def record_list(self, items: list[Any] | deque[Any]) -> None:
        """Record a list or a queue and what its items hold."""
        self._others.append(items)
        self._items.append([*items] if items else ())
        self._record_items(items)

    def record_set(self, items: set[Any]) -> None:
        """Record a set and what its items hold."""
        self._others.append(items)
        self._items.append(items.copy())
        self._record_items(items)

    def record_array(self, cells: NDArray[Any]) -> None:
        """Record an array, unless it is read-only."""
        if cells.flags.writeable:
            self._others.append(cells)
            self._items.append(cells.copy())

    def pass_by(self, _: object) -> None:
        """Record nothing of what never changes."""

    def _record_items(self, items: Collection[Any]) -> None:
        """Record items later where one of them is of a kind that may change."""
        if not _FIXED.issuperset(map(type, items)):
            self._left += items


_Keep = Callable[[Checkpoint, Any], None]
_KEEPS: dict[type, _Keep] = {
    dict: Checkpoint.record_dict,
    list: Checkpoint.record_list,
    deque: Checkpoint.record_list,
    set: Checkpoint.record_set,
    np.ndarray: Checkpoint.record_array,
}
_FIXED: set[type] = {int, str, float, bool, bytes, type(None), tuple, frozenset, FunctionType}
_SLOTS: dict[type, _Fields] = {}


def _recorder_of(kind: type) -> _Keep:
    """Return how objects of a class are recorded; found once per class."""
    keep = _KEEPS[kind] = Checkpoint.record_row if _is_row(kind) else Checkpoint.pass_by
    if keep is Checkpoint.pass_by:
        _FIXED.add(kind)
    return keep


def _is_row(kind: type) -> bool:
    """Return whether objects of a class are the core's own, and may change."""
    is_frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return kind.__module__.startswith(_OURS) and not (is_frozen or issubclass(kind, Enum | tuple))


def _slots(kind: type) -> _Fields:
    """Return the names of the fields that stand in slots."""
    found = chain.from_iterable(base.__dict__.get("__slots__", ()) for base in kind.__mro__)
    names = _SLOTS[kind] = tuple(name for name in found if not name.startswith("__"))
    return names


def _set(row: object, name: str, value: object) -> None:
    if value is _UNSET:
        delattr(row, name)
    else:
        setattr(row, name, value)
