"""Sections: merging, splitting and summing up messages, without knowing what they mean.

A section is a field whose type is a tuple of dataclass items. Sections are applied in field order,
so two messages of one kind may be merged when the second begins no earlier than the first ends:
the merged message then says the same things in the same order.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast, get_args, get_origin, get_type_hints

from shared.messages.envelope import Outgoing
from shared.messages.registry import STREAMED
from shared.model.memo import once_per_class

MAX_ITEMS_PER_MESSAGE = 1_000  # what is too large all the same is taken apart by the bus
_MOST_APPLICATIONS_PER_RECORD = 64


@once_per_class
def sections_of(cls: type[Any]) -> tuple[tuple[str, type[Any]], ...]:
    """Return the sections of a message class: field names with their item classes, in order."""
    hints = get_type_hints(cls)
    found: list[tuple[str, type[Any]]] = []
    for item in fields(cls):
        hint = hints[item.name]
        arguments = get_args(hint)
        if get_origin(hint) is tuple and is_dataclass(arguments[0]):
            found.append((item.name, cast(type[Any], arguments[0])))
    return tuple(found)


@once_per_class
def scalars_of(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of a message class' fields that are not sections."""
    names = {name for name, _ in sections_of(cls)}
    return tuple(item.name for item in fields(cls) if item.name not in names)


def item_count(message: object) -> int:
    """Return how many items a message carries in all its sections."""
    return sum(len(getattr(message, name)) for name, _ in sections_of(type(message)))


def merged(first: Outgoing, second: Outgoing) -> Outgoing | None:
    """Return one message that says what the two say in the same order, or None."""
    if type(first.message) is not type(second.message) or type(first.message) not in STREAMED:
        return None
    if replace(first, message=None) != replace(second, message=None):
        return None
    left: Any = first.message
    right: Any = second.message
    cls = type(left)
    if any(getattr(left, name) != getattr(right, name) for name in scalars_of(cls)):
        return None
    names = [name for name, _ in sections_of(cls)]
    last = max((i for i, name in enumerate(names) if getattr(left, name)), default=0)
    start = min((i for i, name in enumerate(names) if getattr(right, name)), default=len(names))
    if start < last or item_count(left) + item_count(right) > MAX_ITEMS_PER_MESSAGE:
        return None
    joined = {name: getattr(left, name) + getattr(right, name) for name in names[start:]}
    return replace(first, message=replace(left, **joined))


def coalesced(outgoing: list[Outgoing]) -> list[Outgoing]:
    """Return the same messages in the same order, neighbours to one address merged."""
    result: list[Outgoing] = []
    last_at: dict[str, int] = {}
    for item in outgoing:
        key = item.to.routing_key
        position = last_at.get(key)
        joined = merged(result[position], item) if position is not None else None
        if joined is not None and position is not None:
            result[position] = joined
            continue
        last_at[key] = len(result)
        result.append(item)
    return [part for item in result for part in split(item)]


def split(outgoing: Outgoing, most: int = MAX_ITEMS_PER_MESSAGE) -> list[Outgoing]:
    """Return the message in parts of at most ``most`` items, in order.

    Commands stay whole. Where a message starts something anew (``reset``), its first part does;
    where it can say that there is ``more`` of it, every part but the last does.
    """
    message: Any = outgoing.message
    if item_count(message) <= most or type(message) not in STREAMED:
        return [outgoing]
    names = [name for name, _ in sections_of(type(message))]
    empty = replace(message, **dict.fromkeys(names, ()))
    parts: list[Outgoing] = []
    current: dict[str, tuple[Any, ...]] = {}
    room = most
    for name in names:
        items = getattr(message, name)
        while items:
            taken, items = items[:room], items[room:]
            current[name] = taken
            room -= len(taken)
            if room == 0:
                parts.append(replace(outgoing, message=replace(empty, **current)))
                current, room = {}, most
    if current:
        parts.append(replace(outgoing, message=replace(empty, **current)))
    if getattr(message, "reset", False):
        parts[1:] = [replace(p, message=replace(_any(p.message), reset=False)) for p in parts[1:]]
    if hasattr(message, "more"):
        parts[:-1] = [replace(p, message=replace(_any(p.message), more=True)) for p in parts[:-1]]
    return parts


def _any(message: object) -> Any:
    return message


def items_of(message: object) -> Iterator[tuple[str, object]]:
    """Yield every item with the name of its section, in the order of application."""
    for name, _ in sections_of(type(message)):
        for item in getattr(message, name):
            yield name, item


def story_of(outgoing: Outgoing) -> str:
    """Return the application that a message is about, or "" when it is about none or several."""
    found = getattr(outgoing.message, "application_id", "")
    for _, item in items_of(outgoing.message):
        name = getattr(item, "application_id", "")
        if name and name != found:
            if found:
                return ""
            found = name
    return found if isinstance(found, str) else ""


def contents_by_application(message: object) -> dict[str, str]:
    """Return a phrase for each application that a message speaks of: ``3 asks, 1 releases``."""
    counts: dict[str, Counter[str]] = {}
    scalar = getattr(message, "application_id", None)
    if isinstance(scalar, str):
        counts[scalar] = Counter()
    for name, item in items_of(message):
        application_id = getattr(item, "application_id", None)
        if not isinstance(application_id, str):
            continue
        if application_id not in counts and len(counts) >= _MOST_APPLICATIONS_PER_RECORD:
            continue
        counts.setdefault(application_id, Counter())[_phrase(name, item)] += 1
    return {
        application_id: ", ".join(f"{count} {what}" for what, count in counter.items())
        for application_id, counter in counts.items()
    }


def _phrase(name: str, item: object) -> str:
    flags = [f"({flag})" for flag in ("placeholder", "removed") if getattr(item, flag, False)]
    words = (getattr(item, word, "") for word in ("termination_type", "state", "kind"))
    return " ".join([name.replace("_", " "), *flags, *(str(word) for word in words if word)])
