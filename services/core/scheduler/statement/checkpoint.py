"""A checkpoint: a copy of every row and table of a partition, to be restored in place.

Rule 1: it records everything reachable from the partition, each row and container separately. So a
        whole cycle is undone without an inverse for each step, and a new field, table or move needs
        no code here.
Rule 2: restored rows are the same objects as before, with their fields, entries and order. Newer
        ones vanish with their last reference.
Rule 3: messages, frozen values and objects of other packages never change and are not recorded. Nor
        are the contents of tuples: a row in one is reachable without it.
Cost: O(rows), some microseconds each; nothing while no checkpoint exists. It serves what-ifs only;
searches undo their moves by their log.
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
    """The state of everything reachable from a root, at the time of creation.

    It holds flat parallel lists instead of an object for each row, so that it does not trigger the
    garbage collector.
    """

    def __init__(self, root: object) -> None:
        self._rows: list[object] = []
        self._values: list[Any] = []  # the fields of all rows, concatenated
        self._empty: list[dict[Any, Any]] = []
        self._dicts: list[dict[Any, Any]] = []
        self._entries: list[dict[Any, Any]] = []  # the contents of each
        self._others: list[Any] = []  # lists, sets and arrays
        self._items: list[Any] = []  # the contents of each
        self._left: list[Any] = [root]
        left, seen = self._left, set[int]()
        while left:
            found = left.pop()
            if id(found) not in seen:
                seen.add(id(found))
                (_KEEPS.get(type(found)) or _recorder_of(type(found)))(self, found)

    def restore(self) -> None:
        """Restore everything."""
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
        """Record a row's fields, and queue their contents."""
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
        """Record a mapping, and queue its keys and values."""
        if held:
            self._dicts.append(held)
            self._entries.append(held.copy())
            self._record_items(held.values())
            self._record_items(held)
        else:
            self._empty.append(held)

    def record_list(self, items: list[Any] | deque[Any]) -> None:
        """Record a list or deque, and queue its items."""
        self._others.append(items)
        self._items.append([*items] if items else ())
        self._record_items(items)

    def record_set(self, items: set[Any]) -> None:
        """Record a set, and queue its items."""
        self._others.append(items)
        self._items.append(items.copy())
        self._record_items(items)

    def record_array(self, cells: NDArray[Any]) -> None:
        """Record an array, unless it is read-only."""
        if cells.flags.writeable:
            self._others.append(cells)
            self._items.append(cells.copy())

    def pass_by(self, _: object) -> None:
        """Record nothing: the object never changes."""

    def _record_items(self, items: Collection[Any]) -> None:
        """Queue items, unless all are of immutable types."""
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
    """Return the function that records objects of a class; cached by class."""
    keep = _KEEPS[kind] = Checkpoint.record_row if _is_row(kind) else Checkpoint.pass_by
    if keep is Checkpoint.pass_by:
        _FIXED.add(kind)
    return keep


def _is_row(kind: type) -> bool:
    """Whether a class is the core's own and mutable."""
    is_frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return kind.__module__.startswith(_OURS) and not (is_frozen or issubclass(kind, Enum | tuple))


def _slots(kind: type) -> _Fields:
    """Return the names of a class's slots."""
    found = chain.from_iterable(base.__dict__.get("__slots__", ()) for base in kind.__mro__)
    names = _SLOTS[kind] = tuple(name for name in found if not name.startswith("__"))
    return names


def _set(row: object, name: str, value: object) -> None:
    if value is _UNSET:
        delattr(row, name)
    else:
        setattr(row, name, value)
