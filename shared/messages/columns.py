"""Items of one kind stored by field, as on the wire; equal values are stored once.

``Columns`` is equivalent to a tuple of items, which are made on access. Code that needs only one
field reads its column, and no item is made. Columns are immutable.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast, overload

from shared.model.memo import once_per_class

T = TypeVar("T")
_FEW = 4  # items; for more, making them column by column is faster


class Same:
    """A column with one value for all items."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Table:
    """A column of few distinct values: ``index`` has the position in ``values`` for each item."""

    __slots__ = ("index", "values")

    def __init__(self, values: Sequence[Any], index: Sequence[int]) -> None:
        self.values = values
        self.index = index


Column = Sequence[Any] | Same | Table


class Columns(Sequence[T], Generic[T]):
    """``count`` items of a dataclass. An absent column is the field's default for all items."""

    __slots__ = ("_columns", "_count", "_items", "item_class")

    def __init__(self, item_class: type[T], count: int, columns: Mapping[str, Column]) -> None:
        """Validate and store the columns. Raises ValueError if they do not fit together."""
        names = names_of(item_class)
        for name, column in columns.items():
            if name not in names:
                raise ValueError(f"{item_class.__name__} has no field {name!r}")
            length = _length(column)
            if length is not None and length != count:
                raise ValueError(f"{name}: {length} values, expected {count}")
        for name in names:
            if name not in columns and default_of(item_class, name) is dataclasses.MISSING:
                raise ValueError(f"{item_class.__name__}: column {name!r} is missing")
        self._set(item_class, count, columns)

    def _set(self, item_class: type[T], count: int, columns: Mapping[str, Column]) -> None:
        self.item_class = item_class
        self._count = count
        self._columns = columns
        self._items: tuple[T, ...] | None = None

    @classmethod
    def checked(
        cls, item_class: type[T], count: int, columns: Mapping[str, Column]
    ) -> "Columns[T]":
        """Make Columns without validation, from columns that were validated before."""
        made = cls.__new__(cls)
        made._set(item_class, count, columns)
        return made

    # --- by the column --------------------------------------------------------------------------

    def raw(self, name: str) -> Column:
        """Return a column as stored."""
        column = self._columns.get(name)
        return Same(default_of(self.item_class, name)) if column is None else column

    def column(self, name: str) -> Sequence[Any]:
        """Return the values of a field, one per item."""
        column = self.raw(name)
        if isinstance(column, Same):
            return [column.value] * self._count
        if isinstance(column, Table):
            return [column.values[at] for at in column.index]
        return column

    def rows(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of some fields, item by item."""
        return zip(*map(self.column, names), strict=True)

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns that are not all default, as stored."""
        return self._columns

    # --- by the item ----------------------------------------------------------------------------

    def items(self) -> tuple[T, ...]:
        """Return all items. They are made once; many are made column by column, which is faster."""
        if self._items is None and self._count <= _FEW:
            self._items = tuple([self._item(row) for row in range(self._count)])
        if self._items is None:
            columns = [_values(self.raw(name), self._count) for name in names_of(self.item_class)]
            make = cast(Callable[..., T], self.item_class)
            self._items = tuple(map(make, *columns))
        return self._items

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self.items())

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> "Columns[T]": ...
    def __getitem__(self, at: int | slice) -> "T | Columns[T]":
        if isinstance(at, slice):
            parts = {name: _part(column, at) for name, column in self._columns.items()}
            return self.checked(self.item_class, len(range(self._count)[at]), parts)
        if self._items is not None:
            return self._items[at]
        return self._item(range(self._count)[at])

    def _item(self, row: int) -> T:
        values = {name: _value(column, row) for name, column in self._columns.items()}
        return self.item_class(**values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | Columns):
            return NotImplemented
        return len(self) == len(other) and self.items() == tuple(other)

    def __hash__(self) -> int:
        return hash(self.items())

    def __repr__(self) -> str:
        return repr(self.items())


def columns_of(item_class: type[T], items: Sequence[T]) -> Mapping[str, Column]:
    """Return the values of items, by field."""
    if isinstance(items, Columns):
        return items.columns
    names = names_of(item_class)
    if len(names) == 1:
        return {names[0]: [getattr(item, names[0]) for item in items]}
    return dict(zip(names, zip(*map(_reader(item_class), items), strict=True), strict=True))


def values_of(items: Sequence[Any], name: str) -> Sequence[Any]:
    """Return the values of one field of items, in either representation."""
    if isinstance(items, Columns):
        return items.column(name)
    return [getattr(item, name) for item in items]


def joined(parts: Sequence[Sequence[T]]) -> Sequence[T]:
    """Concatenate parts; the result is columnar if one of them is."""
    filled = [part for part in parts if part]
    if len(filled) == 1:
        return filled[0]
    first = next((part for part in filled if isinstance(part, Columns)), None)
    if first is None:
        return tuple(chain.from_iterable(filled))
    item_class = first.item_class
    kept = [
        part
        if isinstance(part, Columns)
        else Columns.checked(item_class, len(part), columns_of(item_class, part))
        for part in filled
    ]
    names = [name for name in names_of(item_class) if any(name in part.columns for part in kept)]
    count = sum(map(len, kept))
    columns = {name: _joined([(part.raw(name), len(part)) for part in kept]) for name in names}
    return Columns.checked(item_class, count, columns)


def _joined(parts: list[tuple[Column, int]]) -> Column:
    first = parts[0][0]
    if isinstance(first, Same) and all(
        isinstance(column, Same) and column.value == first.value for column, _ in parts
    ):
        return first
    found: list[Any] = []
    for column, count in parts:
        found += _values(column, count)
    return found


@once_per_class
def names_of(item_class: type[Any]) -> tuple[str, ...]:
    """Return the field names of a dataclass, in order."""
    return tuple(item.name for item in dataclasses.fields(item_class))


@once_per_class
def _defaults(item_class: type[Any]) -> dict[str, Any]:
    """Return the defaults. A factory's result is shared, because it is never modified."""
    return {
        item.name: item.default
        if item.default_factory is dataclasses.MISSING
        else item.default_factory()
        for item in dataclasses.fields(item_class)
    }


def default_of(item_class: type[Any], name: str) -> Any:
    """Return a field's default, or dataclasses.MISSING."""
    return _defaults(item_class)[name]


@once_per_class
def _reader(item_class: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*names_of(item_class))


def _length(column: Column) -> int | None:
    if isinstance(column, Same):
        return None
    return len(column.index if isinstance(column, Table) else column)


def _values(column: Column, count: int) -> Any:
    if isinstance(column, Same):
        return repeat(column.value, count)
    if isinstance(column, Table):
        return map(column.values.__getitem__, column.index)
    return column


def _value(column: Column, at: int) -> Any:
    if isinstance(column, Same):
        return column.value
    return column.values[column.index[at]] if isinstance(column, Table) else column[at]


def _part(column: Column, at: slice) -> Column:
    if isinstance(column, Same):
        return column
    return Table(column.values, column.index[at]) if isinstance(column, Table) else column[at]
