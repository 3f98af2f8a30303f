"""Sections: merging, splitting and summing up messages, without knowing what they mean.

A section is a field whose type is a tuple of dataclass items. Sections are applied in field order,
so two messages of one kind may be merged when the second begins no earlier than the first ends:
the merged message then says the same things in the same order.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from operator import attrgetter
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


def coalesced(outgoing: list[Outgoing]) -> list[Outgoing]:
    """Return the same messages in the same order, neighbours to one address merged.

    A second one is merged when it differs in its sections alone, begins no earlier than the first
    ends, and both together are not more than MAX_ITEMS_PER_MESSAGE.
    """
    result: list[Outgoing | _Run] = []
    open_runs: dict[str, _Run] = {}
    for item in outgoing:
        key = item.to.routing_key
        run = open_runs.get(key)
        if run is not None and run.take(item):
            continue
        if type(item.message) in STREAMED:
            open_runs[key] = run = _Run(item)
            result.append(run)
        else:
            open_runs.pop(key, None)
            result.append(item)
    whole = [item if isinstance(item, Outgoing) else item.merged() for item in result]
    return [part for item in whole for part in split(item)]


class _Run:
    """Messages to one address that will be said as one."""

    __slots__ = ("_count", "_first", "_header", "_last", "_messages", "_scalars")

    def __init__(self, first: Outgoing) -> None:
        self._first = first
        self._header = _header(first)
        self._scalars = _scalars(first.message)
        self._messages: list[object] = [first.message]
        self._count, _, self._last = _extent(first.message)

    def take(self, item: Outgoing) -> bool:
        """Let a message be said with those before it, or return False where that cannot be."""
        message = item.message
        if type(message) is not type(self._messages[0]) or _header(item) != self._header:
            return False
        if _scalars(message) != self._scalars:
            return False
        count, start, last = _extent(message)
        if start < self._last or self._count + count > MAX_ITEMS_PER_MESSAGE:
            return False
        self._messages.append(message)
        self._count += count
        self._last = max(self._last, last)
        return True

    def merged(self) -> Outgoing:
        """Return the one message."""
        if len(self._messages) == 1:
            return self._first
        said = [_sections(message) for message in self._messages]
        names = [name for name, _ in sections_of(type(self._messages[0]))]
        columns = zip(names, zip(*said, strict=True), strict=True)
        joined = {name: tuple(chain.from_iterable(parts)) for name, parts in columns}
        return replace(self._first, message=replace(_any(self._messages[0]), **joined))


_header = attrgetter(*(item.name for item in fields(Outgoing) if item.name != "message"))


def _sections(message: object) -> tuple[tuple[Any, ...], ...]:
    return tuple([getattr(message, name) for name, _ in sections_of(type(message))])


def _scalars(message: object) -> list[Any]:
    return [getattr(message, name) for name in scalars_of(type(message))]


def _extent(message: object) -> tuple[int, int, int]:
    """Return how many items a message has, and its first and last section that has any."""
    lengths = [len(items) for items in _sections(message)]
    filled = [at for at, length in enumerate(lengths) if length]
    if not filled:
        return 0, len(lengths), 0
    return sum(lengths), filled[0], filled[-1]


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
    for name, item_class in sections_of(type(message)):
        kind_of = _kind_of(item_class)
        if kind_of is None:
            continue
        for (application_id, *values), count in Counter(
            map(kind_of, getattr(message, name))
        ).items():
            if application_id not in counts and len(counts) >= _MOST_APPLICATIONS_PER_RECORD:
                continue
            phrase = _phrase(name, item_class, values)
            counts.setdefault(application_id, Counter())[phrase] += count
    return {
        application_id: ", ".join(f"{count} {what}" for what, count in counter.items())
        for application_id, counter in counts.items()
    }


@once_per_class
def _told_of(cls: type[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags and the words of an item that a phrase names, those that it has."""
    names = {item.name for item in fields(cls)}
    flags = tuple(name for name in ("placeholder", "removed") if name in names)
    words = tuple(name for name in ("termination_type", "state", "kind") if name in names)
    return flags, words


@once_per_class
def _kind_of(cls: type[Any]) -> Callable[[object], tuple[Any, ...]] | None:
    """Return what reads an item's application, flags and words; None where it has no application.

    It is called for every item that is sent, so it is no loop of ours.
    """
    if "application_id" not in {item.name for item in fields(cls)}:
        return None
    flags, words = _told_of(cls)
    read = attrgetter("application_id", *flags, *words)
    return read if flags or words else lambda item: (read(item),)


def _phrase(name: str, item_class: type[Any], values: list[Any]) -> str:
    flags, _ = _told_of(item_class)
    said = [f"({flag})" for flag, is_set in zip(flags, values, strict=False) if is_set]
    said += [str(word) for word in values[len(flags) :] if word]
    return " ".join([name.replace("_", " "), *said])
