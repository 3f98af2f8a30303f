"""The wire format: a msgpack map, in which each section is stored by column.

    {"rmID": "mycluster",
     "asks": {"n": 3, "cols": {"allocationKey": ["a", "b", "c"],
                               "priority": {"c": 0},
                               "resourcePerAlloc": {"t": [{...}, {...}], "i": [0, 0, 1]}}}}

A column is a list; or ``{"c": value}`` if all values are equal; or a table of distinct values with
an index list, used for maps and nested records. An absent field or column takes the default, and a
column of defaults is not sent. A section with one item per pod stays columnar on both sides
(``shared.messages.columns``): no item objects are made on the way.
Values are validated by pydantic, a column at a time, strictly: no text for a number, no float for
an integer, no integer beyond 64 bits, no empty identity. Columns of texts, numbers and maps of them
that pass a fast check skip pydantic. The number of values is checked before their content.
An unknown field or column is ignored: a later version added it, and it is optional. A field that
the reader must not ignore raises SCHEMA_VERSION (CONTRIBUTING).
All errors are PoisonError, when encoding as well as when decoding: what the reader would refuse is
not sent.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain, islice
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgpack
from pydantic import Field, TypeAdapter, ValidationError

from shared.bus.errors import PoisonError, TooLargeError
from shared.messages.columns import (
    Column,
    Columns,
    Same,
    Table,
    columns_of,
    default_of,
    names_of,
)
from shared.messages.envelope import MAX_INSTANCE
from shared.messages.registry import KINDS
from shared.messages.sections import columned_in, scalars_of, sections_of
from shared.model.memo import once_per_class
from shared.model.numbers import INT64_MAX, INT64_MIN

T = TypeVar("T")
MAX_MESSAGE_BYTES = 12 * 1024 * 1024  # below RabbitMQ 4's default of 16 MiB
MAX_ITEMS_PER_SECTION = 100_000
_INT64 = Annotated[int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX)]
# Identities are never empty and limited in length: a timer's contains an application and a key,
# an instance's is part of addresses. Other names, such as a foreign pod's application, are
# validated by the reader.
_IDENTITIES = {"allocation_key": 512, "timer_id": 1024, "instance": MAX_INSTANCE}


_MOST_BITS_SHOWN = 256
_MOST_SHOWN = 300
_ONLY_TEXTS = {str}
_ONLY_NUMBERS = {int}
_ONLY_MAPS = {dict}
_ONLY_LISTS = {list}
_MOST_TRIED = 16
_AS_THEY_ARE = (str, bool, float)


@lru_cache(maxsize=1024)
def wire_name(name: str) -> str:
    """Return the interface's own spelling of a Python name: ``node_id`` is ``nodeID``."""
    head, *rest = name.split("_")
    return head + "".join("ID" if part == "id" else part.capitalize() for part in rest)


def encode(message: object) -> bytes:
    """Encode a message to bytes.

    Raises TooLargeError if the result exceeds MAX_MESSAGE_BYTES, and PoisonError for anything else
    that cannot be encoded: a number beyond int64, an unencodable text, an unknown type.
    """
    kind = type(message).__name__
    try:
        data = _packed(message)
    except PoisonError as error:
        raise PoisonError(f"{kind}: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:_MOST_SHOWN]
        reason = reason.encode("ascii", "backslashreplace").decode()
        raise PoisonError(f"{kind} cannot be written: {reason}") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise TooLargeError(kind, len(data), MAX_MESSAGE_BYTES)
    return data


def _packed(message: object) -> bytes:
    cls = type(message)
    body: dict[str, Any] = {}
    for name in scalars_of(cls):
        value = getattr(message, name)
        if name in _IDENTITIES:
            _check_identities(name, [value])
        if not _is_same(value, default_of(cls, name)):
            body[wire_name(name)] = _plain(value)
    for name, item_class in sections_of(cls):
        items = getattr(message, name)
        if items:
            body[wire_name(name)] = _encode_section(item_class, items)
    return cast(bytes, msgpack.packb(body, use_bin_type=True))


def _is_same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _plain(value: Any) -> Any:
    """Convert a value to the types that msgpack knows."""
    kind = type(value)
    if kind is int:
        return _int64(value)
    if value is None or kind in _AS_THEY_ARE:
        return value
    if kind is dict:
        return _plain_map(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return _plain_map(value)
    if isinstance(value, tuple | list):
        # An affinity may have many values.
        return list(value) if set(map(type, value)) == _ONLY_TEXTS else [*map(_plain, value)]
    return {wire: _plain(getattr(value, name)) for name, wire in _wire_names(kind)}


@once_per_class
def _wire_names(cls: type[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((item.name, wire_name(item.name)) for item in dataclasses.fields(cls))


def _plain_map(value: Mapping[str, Any]) -> dict[str, Any]:
    amounts = value.values()
    if int in set(map(type, amounts)):
        for amount in amounts:
            if type(amount) is int:
                _int64(amount)
    return value if type(value) is dict else dict(value)


def _int64(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        digits = str(value) if value.bit_length() <= _MOST_BITS_SHOWN else "a number"
        raise PoisonError(f"{digits} does not fit a signed 64-bit integer")
    return value


def _encode_section(item_class: type[Any], items: Sequence[Any]) -> dict[str, Any]:
    if len(items) > MAX_ITEMS_PER_SECTION:
        raise PoisonError(f"{len(items)} items, at most {MAX_ITEMS_PER_SECTION}")
    columns = {}
    given = columns_of(item_class, items)
    for name, wire in _wire_names(item_class):
        column = given.get(name)
        if column is None:
            continue
        if name in _IDENTITIES:
            _check_identities(name, column)
        encoded = _encode_column(column, default_of(item_class, name))
        if encoded is not None:
            columns[wire] = encoded
    return {"n": len(items), "cols": columns}


def _check_identities(name: str, column: Column) -> None:
    values = [column.value] if isinstance(column, Same) else column
    if isinstance(values, Table):
        values = values.values
    longest = _IDENTITIES[name]
    if not (min(map(len, values)) and max(map(len, values)) <= longest):
        raise PoisonError(f"{wire_name(name)} must have 1 to {longest} characters")


def _encode_column(column: Column, default: Any) -> Any:
    """Encode a column; return None for a column of defaults, which is not sent."""
    if isinstance(column, Table):
        return _encode_table(column.values, column.index)
    values = [column.value] if isinstance(column, Same) else column
    first = values[0]
    if values[-1] == first and values.count(first) == len(values):
        return None if _is_same(first, default) else {"c": _plain(first)}
    if isinstance(first, str | int | float) or first is None:
        return _plain_list(values)
    return _encode_table(*_table_of(values))


def _plain_list(values: Sequence[Any]) -> list[Any]:
    kinds = set(map(type, values))
    if kinds == _ONLY_NUMBERS:
        _int64(min(values))
        _int64(max(values))
    elif kinds != _ONLY_TEXTS:
        return [*map(_plain, values)]
    return values if type(values) is list else list(values)


def _table_of(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the distinct values, and for each item the index of its value.

    If the first _MOST_TRIED values are all different, the others are assumed to be different too: a
    field of pods is equal for nearly all of them or for none.
    """
    by_identity = dict(zip(map(id, values), values, strict=True))  # they all live while this runs
    first = list(islice(by_identity.values(), _MOST_TRIED))
    if len(by_identity) > _MOST_TRIED and len(set(map(_table_key, first))) == _MOST_TRIED:
        table = list(by_identity.values())
        number = dict(zip(by_identity, range(len(table)), strict=True))
    else:
        position: dict[Any, int] = {}
        table, number = [], {}
        for identity, value in by_identity.items():
            at = number[identity] = position.setdefault(_table_key(value), len(table))
            if at == len(table):
                table.append(value)
    return table, [*map(number.__getitem__, map(id, values))]


def _encode_table(values: Sequence[Any], index: Sequence[int]) -> Any:
    table = [*map(_plain, values)]
    if len(table) == 1:
        return {"c": table[0]}
    if len(table) == len(index) and list(index) == list(range(len(index))):
        return table
    return {"t": table, "i": index if type(index) is list else list(index)}


def _table_key(value: Any) -> Any:
    if type(value) is dict or isinstance(value, Mapping):
        return tuple(value.items())
    try:
        hash(value)
    except TypeError:  # a record with a map in it
        return repr(value)
    return value


def decode(kind: str, data: bytes) -> object:
    """Decode a message. Raises PoisonError for anything invalid."""
    cls = KINDS.get(kind)
    if cls is None:
        raise PoisonError(f"unknown kind {kind!r}")
    if len(data) > MAX_MESSAGE_BYTES:
        raise PoisonError(f"{kind}: {len(data)} bytes, at most {MAX_MESSAGE_BYTES}")
    try:
        body = msgpack.unpackb(data, raw=False)
    except Exception as error:
        raise PoisonError(f"{kind}: not msgpack: {error}") from error
    if not isinstance(body, dict):
        raise PoisonError(f"{kind}: a map was expected, found {type(body).__name__}")
    return _decode_body(kind, cls, body)


def _decode_body(kind: str, cls: type[Any], body: dict[str, Any]) -> object:
    values: dict[str, Any] = {}
    readers = _readers(cls)
    sections, by_column = dict(sections_of(cls)), columned_in(cls)
    for key, value in body.items():
        name, read = readers.get(key, ("", None))
        if read is None:
            continue
        if name in sections:
            found = _decode_section(f"{kind}.{key}", sections[name], value)
            values[name] = found if name in by_column else found.items()
        else:
            values[name] = read(f"{kind}.{key}", [value])[0]
    try:
        return cls(**values)
    except TypeError as error:
        raise PoisonError(f"{kind}: {error}") from error


def _decode_section(where: str, item_class: type[Any], section: Any) -> Columns[Any]:
    count, columns = _judged_section(where, section)
    readers = _readers(item_class)
    decoded: dict[str, Column] = {}
    for key, column in columns.items():
        name, read = readers.get(key, ("", None))
        if read is not None:
            decoded[name] = _decode_column(f"{where}.{key}", read, column, count)
    for name in _required(item_class):
        if name not in decoded:
            raise PoisonError(f"{where}: column {wire_name(name)!r} is missing")
    return Columns.checked(item_class, count, decoded)


def _judged_section(where: str, section: Any) -> tuple[int, dict[str, Any]]:
    """Validate a section; return its stated number of items and its columns."""
    if not isinstance(section, dict) or set(section) != {"n", "cols"}:
        raise PoisonError(f"{where}: a section has 'n' and 'cols'")
    count, columns = section["n"], section["cols"]
    if type(count) is not int or not 0 <= count <= MAX_ITEMS_PER_SECTION:
        raise PoisonError(f"{where}: 'n' must be 0 to {MAX_ITEMS_PER_SECTION}, found {count!r}")
    if not isinstance(columns, dict):
        raise PoisonError(f"{where}: 'cols' must be a map")
    return count, columns


@once_per_class
def _required(cls: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in names_of(cls) if default_of(cls, name) is dataclasses.MISSING)


_Reader = Callable[[str, list[Any]], list[Any]]


def _decode_column(where: str, read: _Reader, column: Any, count: int) -> Column:
    """Decode a column. Its number of values is checked before their content."""
    if type(column) is list:
        _check_length(where, column, count)
        return read(where, column)
    if type(column) is dict and column.keys() == {"c"}:
        return Same(read(where, [column["c"]])[0])
    if type(column) is dict and column.keys() == {"t", "i"}:
        return _decode_table(where, read, column["t"], column["i"], count)
    raise PoisonError(f"{where}: not a column")


def _check_length(where: str, values: list[Any], count: int) -> None:
    if len(values) != count:
        raise PoisonError(f"{where}: {len(values)} values, expected {count}")


def _decode_table(where: str, read: _Reader, table: Any, index: Any, count: int) -> Column:
    if type(table) is not list or type(index) is not list:
        raise PoisonError(f"{where}: a table column has lists 't' and 'i'")
    _check_length(where, index, count)
    if len(table) > count:
        raise PoisonError(f"{where}: a table of {len(table)} for {count} values")
    if index and not (
        set(map(type, index)) == _ONLY_NUMBERS and min(index) >= 0 and max(index) < len(table)
    ):
        raise PoisonError(f"{where}: an index is outside its table")
    return Table(read(where, table), index)


@once_per_class
def _readers(cls: type[Any]) -> dict[str, tuple[str, _Reader]]:
    """Map the wire names of a class's fields to their Python names and validators."""
    hints = get_type_hints(cls)
    return {wire: (name, _reader_of(name, hints[name])) for name, wire in _wire_names(cls)}


def _reader_of(name: str, hint: Any) -> _Reader:
    """Return a validator of a field's values: pydantic, skipped where a fast check suffices."""
    nested = nested_class(hint)
    adapter = TypeAdapter[list[Any]](list[_strict(name, hint)])  # type: ignore[misc,arg-type]
    holds = _seen_to_hold(name, hint)
    is_tuple, are_tags = hint == tuple[str, ...], hint == Mapping[str, str]

    def read(where: str, values: list[Any]) -> list[Any]:
        if holds is not None and holds(values):
            if are_tags:
                _share_texts(values)
            return [*map(tuple, values)] if is_tuple else values
        if nested is not None:
            values = [_python_names(nested, value) for value in values]
        try:
            return adapter.validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise PoisonError(f"{where}[{place}]: {first['msg']}") from error

    return read


def _seen_to_hold(name: str, hint: Any) -> Callable[[list[Any]], bool] | None:
    """Return a fast check that pydantic would accept values unchanged; None if there is none.

    A list of texts is accepted as well, although pydantic returns it as a tuple.
    """
    if hint is str:
        longest = _IDENTITIES.get(name)
        return _are_texts if longest is None else lambda values: _are_names(values, longest)
    if hint is int:
        return _are_numbers
    if hint is bool:
        return lambda values: set(map(type, values)) == {bool}
    if hint == Mapping[str, int]:
        return lambda values: _are_maps(values, _are_numbers)
    if hint == Mapping[str, str]:
        return lambda values: _are_maps(values, _are_texts)
    if hint == Mapping[str, int] | None:
        return _are_amounts_or_none
    if hint == tuple[str, ...]:
        return _are_lists_of_texts
    return None


def _share_texts(maps: list[dict[str, str]]) -> None:
    """Share equal texts of a column's maps: thousands of pods may have one namespace."""
    known: dict[str, str] = {}
    for found in maps:
        for name, text in found.items():
            found[name] = known.setdefault(text, text)


def _are_texts(values: Collection[Any]) -> bool:
    return set(map(type, values)) == _ONLY_TEXTS


def _are_names(values: list[Any], longest: int) -> bool:
    return _are_texts(values) and min(map(len, values)) > 0 and max(map(len, values)) <= longest


def _are_numbers(values: Collection[Any]) -> bool:
    is_int = set(map(type, values)) == _ONLY_NUMBERS
    return is_int and min(values) >= INT64_MIN and max(values) <= INT64_MAX


def _are_maps(values: list[Any], are_right: Callable[[Collection[Any]], bool]) -> bool:
    if set(map(type, values)) != _ONLY_MAPS:
        return False
    names = [*chain.from_iterable(values)]
    return not names or (
        _are_texts(names) and are_right([*chain.from_iterable(map(dict.values, values))])
    )


def _are_amounts_or_none(values: list[Any]) -> bool:
    amounts = [value for value in values if value is not None]
    return not amounts or _are_maps(amounts, _are_numbers)


def _are_lists_of_texts(values: list[Any]) -> bool:
    if set(map(type, values)) != _ONLY_LISTS:
        return False
    texts = [*chain.from_iterable(values)]
    return not texts or _are_texts(texts)


def nested_class(hint: Any) -> type[Any] | None:
    """Return the record class of a field or of its tuple items, or None."""
    for candidate in (hint, *get_args(hint)):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


@once_per_class
def _nested_fields(cls: type[Any]) -> dict[str, tuple[str, type[Any] | None]]:
    hints = get_type_hints(cls)
    return {
        wire_name(item.name): (item.name, nested_class(hints[item.name]))
        for item in dataclasses.fields(cls)
    }


def _python_names(cls: type[Any], value: Any) -> Any:
    """Rename a wire record's fields to their Python names; keys of plain maps stay unchanged."""
    if isinstance(value, list):
        return [_python_names(cls, item) for item in value]
    if not isinstance(value, dict):
        return value
    known = _nested_fields(cls)
    renamed: dict[str, Any] = {}
    for key, item in value.items():
        name, inner = known.get(key, (f"unknown field {key}", None))
        renamed[name] = _python_names(inner, item) if inner is not None else item
    return renamed


def _strict(name: str, hint: Any) -> Any:
    """Return the strict pydantic type of a field's wire value."""
    if hint is int:
        return _INT64
    if hint is str and name in _IDENTITIES:
        longest = _IDENTITIES[name]
        return Annotated[str, Field(strict=True, min_length=1, max_length=longest)]
    if hint in (str, bool):
        return Annotated[hint, Field(strict=True)]
    if get_origin(hint) in (Mapping, dict) and get_args(hint) == (str, int):
        return dict[str, _INT64]
    if hint == Mapping[str, int] | None:
        return dict[str, _INT64] | None
    return hint


def record_to_plain(record: object) -> dict[str, Any]:
    """Convert a record to a map with wire names, for files."""
    return cast(dict[str, Any], _plain(record))


@once_per_class
def _record_adapter(cls: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def record_from_plain(cls: type[T], value: Any) -> T:
    """Convert a map with wire names to a record. Raises PoisonError if it is invalid."""
    try:
        return cast(T, _record_adapter(cls).validate_python(_python_names(cls, value)))
    except ValidationError as error:
        raise PoisonError(f"{cls.__name__}: {error}") from error
