"""Examples of every message as the tree on PYTHONPATH puts them on the wire, to stdout as JSON.

Run by keep_wire.py in the tree of another version: it imports nothing but that tree's ``shared``.
A kind has two examples: one that gives every field, one that gives only those that have no default.
"""

import base64
import collections.abc
import dataclasses
import json
import sys
import types
from enum import Enum
from itertools import count
from typing import Any, get_args, get_origin, get_type_hints

from pamqp.header import ContentHeader

from shared.bus import amqp_message, codec
from shared.messages.envelope import Address, Envelope
from shared.messages.registry import KINDS
from shared.messages.sections import sections_of

_PUBLISHED_NS = 1_700_000_000_000_000_000


def example(cls: type[Any], number: "count[int]", *, is_whole: bool) -> Any:
    """Return a record: with a value of its own for every field, or for those that need one."""
    hints = get_type_hints(cls)
    values = {}
    for item in dataclasses.fields(cls):
        has_default = (item.default, item.default_factory) != (dataclasses.MISSING,) * 2
        if is_whole or not has_default:
            values[item.name] = value_of(item.name, hints[item.name], number, is_whole=is_whole)
    return cls(**values)


def with_columns(message: Any, number: "count[int]") -> Any:
    """Return a message whose sections have another item and the first again: tables of values."""
    sections = {}
    for name, cls in sections_of(type(message)):
        if items := getattr(message, name):
            sections[name] = (*items, example(cls, number, is_whole=True), *items)
    return dataclasses.replace(message, **sections)


def value_of(name: str, hint: Any, number: "count[int]", *, is_whole: bool) -> Any:
    """Return a value of a type, as different as can be from others of it."""
    arguments = get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return example(hint, number, is_whole=is_whole)
    if isinstance(hint, type) and issubclass(hint, Enum):
        members = list(hint)
        return members[next(number) % len(members)]
    simple = {str: f"{name}-{next(number)}", int: next(number), bool: True, float: 0.5}
    if hint in simple:
        return simple[hint]
    origin = get_origin(hint)
    if origin is types.UnionType:
        return value_of(name, arguments[0], number, is_whole=is_whole)
    if origin is collections.abc.Mapping:
        return {f"key-{next(number)}": value_of(name, arguments[1], number, is_whole=is_whole)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(value_of(name, kind, number, is_whole=is_whole) for kind in arguments)
    if origin in (tuple, collections.abc.Sequence):
        return (value_of(name, arguments[0], number, is_whole=is_whole),)
    raise TypeError(f"{name}: there is no example of {hint}")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: records are maps of all their fields, by their names here."""
    if dataclasses.is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, collections.abc.Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, collections.abc.Sequence) and not isinstance(value, str):
        return [*map(plain, value)]
    return value


def on_the_wire(message: object, inbox: str) -> dict[str, Any]:
    """Return a message as it travels: routing key, header, body; and what it says."""
    kind = type(message).__name__
    to = Address(*inbox.split(".", 1))
    envelope = Envelope(
        f"id-{kind}", kind, message, to, "sender", "app-1", "cause-1", "default", 7, 8,
        f"00-{'a' * 32}-{'b' * 16}-01", "api.replica-1#9", _PUBLISHED_NS,
    )  # fmt: skip
    sent = amqp_message.message_of(envelope)
    key_of = getattr(amqp_message, "routing_key", None)
    header = ContentHeader(body_size=len(sent.body), properties=sent.properties)
    if codec.decode(kind, sent.body) != message:
        raise ValueError(f"{kind} is not read as it was written")
    return {
        "inbox": inbox,
        "routing_key": key_of(to, kind) if key_of else to.routing_key,
        "header": base64.b64encode(header.marshal()).decode(),
        "body": base64.b64encode(sent.body).decode(),
        "envelope": {
            item.name: getattr(envelope, item.name)
            for item in dataclasses.fields(envelope)
            if item.name not in ("message", "to")
        },
        "message": plain(message),
    }


def main() -> None:
    """Read which inbox each kind goes to, and write the examples."""
    inboxes = json.load(sys.stdin)
    number = count(1)
    found = []
    for kind, cls in sorted(KINDS.items()):
        for is_whole in (True, False):
            message = with_columns(example(cls, number, is_whole=is_whole), number)
            found.append(on_the_wire(message, inboxes.get(kind, "core.default")))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
