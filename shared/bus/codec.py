"""The wire format: a msgpack map, one list a field for every section ("columnar").

    {"rmID": "mycluster",
     "asks": {"n": 3, "cols": {"allocationKey": ["a", "b", "c"],
                               "priority": {"c": 0},
                               "resourcePerAlloc": {"t": [{...}, {...}], "i": [0, 0, 1]}}}}

A column is a list; or ``{"c": value}`` where all are equal; or a table of distinct values with an
index list, used for maps and nested records. A column that is absent takes the field's default.
Values are validated by pydantic, a column at a time, strictly: no text for a number, no float for
an integer, no integer beyond 64 bits, no empty identity. Everything wrong raises PoisonError, on
the way out as on the way in: what the reader would refuse is not sent.
Source: architecture section 3; measured there against row-by-row encoding.
"""

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgpack
from pydantic import Field, TypeAdapter, ValidationError

from shared.bus.errors import PoisonError, TooLargeError
from shared.messages.registry import KINDS
from shared.messages.sections import scalars_of, sections_of
from shared.model.memo import once_per_class
from shared.model.numbers import INT64_MAX, INT64_MIN

T = TypeVar("T")
MAX_MESSAGE_BYTES = 12 * 1024 * 1024  # below RabbitMQ 4's default of 16 MiB
MAX_ITEMS_PER_SECTION = 100_000
_INT64 = Annotated[int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX)]
# Names that are never empty, and how long they may be: a timer's has an application and a key in
# it. Of others, such as a foreign pod's application, the reader judges.
_IDENTITIES = {"allocation_key": 512, "timer_id": 1024}


_MOST_BITS_SHOWN = 256
_MOST_SHOWN = 300
_ONLY_TEXTS = {str}


@lru_cache(maxsize=1024)
def wire_name(name: str) -> str:
    """Return the interface's own spelling of a Python name: ``node_id`` is ``nodeID``."""
    head, *rest = name.split("_")
    return head + "".join("ID" if part == "id" else part.capitalize() for part in rest)


def encode(message: object) -> bytes:
    """Return the bytes of a message.

    Raises TooLargeError when they are more than any broker takes, PoisonError for everything else:
    a number beyond int64, a text that cannot be written, a value of no type that travels.
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
    body: dict[str, Any] = {
        wire_name(name): _plain(getattr(message, name)) for name in scalars_of(cls)
    }
    for name, item_class in sections_of(cls):
        items = getattr(message, name)
        if items:
            body[wire_name(name)] = _encode_section(item_class, items)
    return cast(bytes, msgpack.packb(body, use_bin_type=True))


def _plain(value: Any) -> Any:
    """Return a value in the types that msgpack knows."""
    if type(value) is int:
        return _int64(value)
    if value is None or type(value) in (str, bool, float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return _plain_map(value)
    if isinstance(value, tuple | list):
        # The values of an affinity are many at times.
        return list(value) if set(map(type, value)) == _ONLY_TEXTS else [*map(_plain, value)]
    return {
        wire_name(item.name): _plain(getattr(value, item.name))
        for item in dataclasses.fields(value)
    }


def _plain_map(value: Mapping[str, Any]) -> dict[str, Any]:
    for amount in value.values():
        if type(amount) is int:
            _int64(amount)
    return dict(value)


def _int64(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        digits = str(value) if value.bit_length() <= _MOST_BITS_SHOWN else "a number"
        raise PoisonError(f"{digits} does not fit a signed 64-bit integer")
    return value


def _encode_section(item_class: type[Any], items: tuple[Any, ...]) -> dict[str, Any]:
    if len(items) > MAX_ITEMS_PER_SECTION:
        raise PoisonError(f"{len(items)} items, at most {MAX_ITEMS_PER_SECTION}")
    columns = {}
    for item in dataclasses.fields(item_class):
        values = [getattr(row, item.name) for row in items]
        if item.name in _IDENTITIES:
            _check_identities(item.name, values)
        columns[wire_name(item.name)] = _encode_column(values)
    return {"n": len(items), "cols": columns}


def _check_identities(name: str, values: list[str]) -> None:
    longest = _IDENTITIES[name]
    if not (min(map(len, values)) and max(map(len, values)) <= longest):
        raise PoisonError(f"{wire_name(name)} must have 1 to {longest} characters")


def _encode_column(values: list[Any]) -> Any:
    first = values[0]
    if all(value is first or value == first for value in values):
        return {"c": _plain(first)}
    if isinstance(first, str | int | float) or first is None:
        return [_plain(value) for value in values]
    table: list[Any] = []
    position: dict[Any, int] = {}
    index: list[int] = []
    for value in values:
        key = _table_key(value)
        at = position.get(key)
        if at is None:
            at = position[key] = len(table)
            table.append(_plain(value))
        index.append(at)
    return {"t": table, "i": index}


def _table_key(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(value.items())
    try:
        hash(value)
    except TypeError:  # a record with a map in it
        return repr(value)
    return value


def decode(kind: str, data: bytes) -> object:
    """Return the message in the bytes. Raises PoisonError for anything that is not one."""
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
    readers = _field_readers(cls)
    sections = dict(sections_of(cls))
    by_wire = {wire_name(item.name): item.name for item in dataclasses.fields(cls)}
    for key, value in body.items():
        name = by_wire.get(key)
        if name is None:
            raise PoisonError(f"{kind}: unknown field {key!r}")
        if name in sections:
            values[name] = _decode_section(f"{kind}.{key}", sections[name], value)
        else:
            values[name] = readers[name](f"{kind}.{key}", [value])[0]
    try:
        return cls(**values)
    except TypeError as error:
        raise PoisonError(f"{kind}: {error}") from error


def _decode_section(where: str, item_class: type[Any], section: Any) -> tuple[Any, ...]:
    if not isinstance(section, dict) or set(section) != {"n", "cols"}:
        raise PoisonError(f"{where}: a section has 'n' and 'cols'")
    count, columns = section["n"], section["cols"]
    if type(count) is not int or not 0 <= count <= MAX_ITEMS_PER_SECTION:
        raise PoisonError(f"{where}: 'n' must be 0 to {MAX_ITEMS_PER_SECTION}, found {count!r}")
    if not isinstance(columns, dict):
        raise PoisonError(f"{where}: 'cols' must be a map")
    readers = _field_readers(item_class)
    by_wire = {wire_name(item.name): item for item in dataclasses.fields(item_class)}
    decoded: dict[str, list[Any]] = {}
    for key, column in columns.items():
        item = by_wire.get(key)
        if item is None:
            raise PoisonError(f"{where}: unknown column {key!r}")
        decoded[item.name] = _decode_column(f"{where}.{key}", readers[item.name], column, count)
    for item in by_wire.values():
        if item.name not in decoded:
            decoded[item.name] = [_default_of(where, item)] * count
    rows = zip(*(decoded[item.name] for item in by_wire.values()), strict=True)
    return tuple(item_class(*row) for row in rows)


def _default_of(where: str, item: "dataclasses.Field[Any]") -> Any:
    if item.default is not dataclasses.MISSING:
        return item.default
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    raise PoisonError(f"{where}: column {wire_name(item.name)!r} is missing")


_Reader = Callable[[str, list[Any]], list[Any]]


def _decode_column(where: str, read: _Reader, column: Any, count: int) -> list[Any]:
    if isinstance(column, list):
        values = read(where, column)
    elif isinstance(column, dict) and set(column) == {"c"}:
        values = read(where, [column["c"]]) * count
    elif isinstance(column, dict) and set(column) == {"t", "i"}:
        values = _from_table(where, read, column["t"], column["i"])
    else:
        raise PoisonError(f"{where}: not a column")
    if len(values) != count:
        raise PoisonError(f"{where}: {len(values)} values, expected {count}")
    return values


def _from_table(where: str, read: _Reader, table: Any, index: Any) -> list[Any]:
    if not isinstance(table, list) or not isinstance(index, list):
        raise PoisonError(f"{where}: a table column has lists 't' and 'i'")
    distinct = read(where, table)
    if not all(type(at) is int and 0 <= at < len(distinct) for at in index):
        raise PoisonError(f"{where}: an index is outside its table")
    return [distinct[at] for at in index]


@once_per_class
def _field_readers(cls: type[Any]) -> dict[str, _Reader]:
    hints = get_type_hints(cls)
    return {item.name: _reader_of(item.name, hints[item.name]) for item in dataclasses.fields(cls)}


def _reader_of(name: str, hint: Any) -> _Reader:
    nested = nested_class(hint)
    adapter = TypeAdapter[list[Any]](list[_strict(name, hint)])  # type: ignore[misc,arg-type]

    def read(where: str, values: list[Any]) -> list[Any]:
        if nested is not None:
            values = [_python_names(nested, value) for value in values]
        try:
            return adapter.validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise PoisonError(f"{where}[{place}]: {first['msg']}") from error

    return read


def nested_class(hint: Any) -> type[Any] | None:
    """Return the record class that a field holds, itself or in a tuple, or None."""
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
    """Return a wire record with its fields' Python names; map keys inside stay as they are."""
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
    """Return the type that a value of this field must have on the wire, strictly."""
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
    """Return a record as a map with the wire's names, for a file."""
    return cast(dict[str, Any], _plain(record))


@once_per_class
def _record_adapter(cls: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def record_from_plain(cls: type[T], value: Any) -> T:
    """Return a record from such a map. Raises PoisonError when it is not one."""
    try:
        return cast(T, _record_adapter(cls).validate_python(_python_names(cls, value)))
    except ValidationError as error:
        raise PoisonError(f"{cls.__name__}: {error}") from error
