"""Sections: merges, splits and summarises messages independently of their meaning.

A section is a field whose type is a tuple of dataclass items, or a Sequence of them if there may be
one per pod; the latter may be columns. Sections are applied in field order. So two messages of one
kind may be merged if the second starts with no earlier section than the first ends with: the merged
message has the same items in the same order.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, cast, get_args, get_origin, get_type_hints

from shared.messages.columns import Columns, Same, joined, values_of
from shared.messages.envelope import Outgoing
from shared.messages.registry import STREAMED
from shared.model.memo import once_per_class

MAX_ITEMS_PER_MESSAGE = 1_000  # the bus splits messages with too many bytes
_MOST_APPLICATIONS_PER_RECORD = 64
_MOST_REASONS = 3  # of an application in one message
_SUBJECTS = ("allocation_key", "timer_id")
_MOST_OF_A_STORY = 2  # names: one application, and ""


@once_per_class
def sections_of(cls: type[Any]) -> tuple[tuple[str, type[Any]], ...]:
    """Return the sections of a message class: field names with their item classes, in order."""
    hints = get_type_hints(cls)
    found: list[tuple[str, type[Any]]] = []
    for item in fields(cls):
        hint = hints[item.name]
        arguments = get_args(hint)
        if get_origin(hint) in (tuple, Sequence) and is_dataclass(arguments[0]):
            found.append((item.name, cast(type[Any], arguments[0])))
    return tuple(found)


@once_per_class
def columned_in(cls: type[Any]) -> frozenset[str]:
    """Return the sections stored as columns: those whose type is any sequence."""
    hints = get_type_hints(cls)
    return frozenset(name for name, _ in sections_of(cls) if get_origin(hints[name]) is Sequence)


@once_per_class
def scalars_of(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of a message class' fields that are not sections."""
    names = {name for name, _ in sections_of(cls)}
    return tuple(item.name for item in fields(cls) if item.name not in names)


def item_count(message: object) -> int:
    """Return how many items a message carries in all its sections."""
    return sum(len(getattr(message, name)) for name, _ in sections_of(type(message)))


def coalesced(outgoing: list[Outgoing]) -> list[Outgoing]:
    """Merge consecutive messages to the same address; their order is kept.

    A message is merged if it differs from the previous one only in its sections, starts with no
    earlier section, and both have at most MAX_ITEMS_PER_MESSAGE items together.
    """
    return [item for item, _ in merged(outgoing)]


def merged(outgoing: list[Outgoing]) -> list[tuple[Outgoing, list[int]]]:
    """Return coalesced messages, each with the indexes of the messages it consists of."""
    if len(outgoing) == 1:
        return [(part, [0]) for part in split(outgoing[0])]
    runs: list[_Run] = []
    open_runs: dict[str, _Run] = {}
    for at, item in enumerate(outgoing):
        key = item.to.routing_key
        run = open_runs.get(key)
        if run is not None and run.take(item, at):
            continue
        run = _Run(item, at)
        runs.append(run)
        if type(item.message) in STREAMED:
            open_runs[key] = run
        else:
            open_runs.pop(key, None)
    return [(part, run.places) for run in runs for part in split(run.merged())]


class _Run:
    """Messages to one address that will be sent as one."""

    __slots__ = ("_count", "_first", "_last", "_messages", "places")

    def __init__(self, first: Outgoing, at: int) -> None:
        self.places = [at]
        self._first = first
        self._messages: list[object] = [first.message]
        self._count, _, self._last = _extent(first.message)

    def take(self, item: Outgoing, at: int) -> bool:
        """Merge a message with those before it, or return False if that is impossible."""
        message, first = item.message, self._first
        if type(message) is not type(first.message) or _header(item) != _header(first):
            return False
        if _scalars(message) != _scalars(first.message):
            return False
        count, start, last = _extent(message)
        if start < self._last or self._count + count > MAX_ITEMS_PER_MESSAGE:
            return False
        self._messages.append(message)
        self.places.append(at)
        self._count += count
        self._last = max(self._last, last)
        return True

    def merged(self) -> Outgoing:
        """Return the merged message."""
        if len(self._messages) == 1:
            return self._first
        said = [_sections(message) for message in self._messages]
        names = [name for name, _ in sections_of(type(self._messages[0]))]
        columns = zip(names, zip(*said, strict=True), strict=True)
        whole = {name: joined(parts) for name, parts in columns}
        return replace(self._first, message=replace(_any(self._messages[0]), **whole))


_header = attrgetter(*(item.name for item in fields(Outgoing) if item.name != "message"))


def _sections(message: object) -> tuple[Sequence[Any], ...]:
    return tuple([getattr(message, name) for name, _ in sections_of(type(message))])


def _scalars(message: object) -> list[Any]:
    return [getattr(message, name) for name in scalars_of(type(message))]


def _extent(message: object) -> tuple[int, int, int]:
    """Return the number of items of a message, and its first and last non-empty section."""
    lengths = [len(items) for items in _sections(message)]
    filled = [at for at, length in enumerate(lengths) if length]
    if not filled:
        return 0, len(lengths), 0
    return sum(lengths), filled[0], filled[-1]


def split(outgoing: Outgoing, most: int = MAX_ITEMS_PER_MESSAGE) -> list[Outgoing]:
    """Split a message into parts of at most ``most`` items, in order.

    Commands stay whole. Only the first part has ``reset``; all parts but the last have ``more``,
    and parts are numbered, if the kind has these fields.
    """
    message: Any = outgoing.message
    if item_count(message) <= most or type(message) not in STREAMED:
        return [outgoing]
    names = [name for name, _ in sections_of(type(message))]
    empty = replace(message, **dict.fromkeys(names, ()))
    parts: list[Outgoing] = []
    current: dict[str, Sequence[Any]] = {}
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
    return [
        replace(part, message=_marked(part.message, at, is_last=at == len(parts) - 1))
        for at, part in enumerate(parts)
    ]


def _marked(message: Any, at: int, *, is_last: bool) -> object:
    """Set ``reset``, ``part`` and ``more`` of a part, if its kind has them."""
    marks: dict[str, Any] = {}
    if at and getattr(message, "reset", False):
        marks["reset"] = False
    if hasattr(message, "part"):
        marks["part"] = message.part + at
    if hasattr(message, "more") and not is_last:
        marks["more"] = True
    marked: object = replace(message, **marks)
    return marked


def _any(message: object) -> Any:
    return message


def items_of(message: object) -> Iterator[tuple[str, object]]:
    """Yield every item with the name of its section, in the order of application."""
    for name, _ in sections_of(type(message)):
        for item in getattr(message, name):
            yield name, item


def story_of(outgoing: Outgoing) -> str:
    """Return the single application that a message concerns, "" for none or several."""
    message = outgoing.message
    found = {getattr(message, "application_id", "")}
    for name, item_class in sections_of(type(message)):
        items = getattr(message, name)
        if items and _kind_of(item_class):
            found.update(values_of(items, "application_id"))
            if len(found) > _MOST_OF_A_STORY:
                return ""
    names = [name for name in found if name]
    return names[0] if len(names) == 1 and isinstance(names[0], str) else ""


def applications_of(message: object) -> list[str]:
    """Return the applications in a message, in order, each once."""
    found: dict[str, None] = dict.fromkeys([_own_application(message)])
    for name, item_class in sections_of(type(message)):
        items = getattr(message, name)
        if items and _kind_of(item_class):
            found.update(dict.fromkeys(values_of(items, "application_id")))
    return [name for name in found if name]


def _own_application(message: object) -> str:
    """Return the application that a message names outside its sections, or ""."""
    name = getattr(message, "application_id", "")
    return name if isinstance(name, str) else ""


def subjects_of(message: object) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the applications and keys (of allocations or timers) of each section's items."""
    for section, item_class in sections_of(type(message)):
        items = getattr(message, section)
        key = _subject_in(item_class)
        if items and key:
            yield values_of(items, "application_id"), values_of(items, key)


@once_per_class
def _subject_in(cls: type[Any]) -> str:
    names = {item.name for item in fields(cls)}
    found = [name for name in _SUBJECTS if name in names and "application_id" in names]
    return found[0] if found else ""


def reasons_by_application(message: object) -> dict[str, str]:
    """Return the reasons in a message's items, at most _MOST_REASONS per application."""
    found: dict[str, dict[str, None]] = {}
    for section, item_class in sections_of(type(message)):
        items = getattr(message, section)
        name = _reason_in(item_class) if items else ""
        if not name:
            continue
        rows = zip(values_of(items, "application_id"), values_of(items, name), strict=True)
        for application_id, reason in dict.fromkeys(rows):
            if reason and len(said := found.setdefault(application_id, {})) < _MOST_REASONS:
                said[reason] = None
    return {name: "; ".join(reasons) for name, reasons in found.items()}


@once_per_class
def _reason_in(cls: type[Any]) -> str:
    """Return the reason field of an item, or ""."""
    names = {item.name for item in fields(cls)}
    if "application_id" not in names:
        return ""
    return next((name for name in ("reason", "message") if name in names), "")


def contents_by_application(message: object) -> dict[str, str]:
    """Summarise a message for each of its applications: ``3 asks, 1 release``."""
    counts: dict[str, Counter[tuple[str, str]]] = {}
    own = _own_application(message)
    if own:
        counts[own] = Counter()
    for name, item_class in sections_of(type(message)):
        kind_of = _kind_of(item_class)
        items = getattr(message, name)
        if kind_of is None or not items:
            continue
        for (application_id, *values), count in _kinds(items, kind_of).items():
            is_full = len(counts) >= _MOST_APPLICATIONS_PER_RECORD
            if not application_id or (application_id not in counts and is_full):
                continue
            phrase = _phrase(name, item_class, values)
            counts.setdefault(application_id, Counter())[phrase] += count
    return {
        application_id: ", ".join(
            f"{count} {one if count == 1 else many}" for (one, many), count in counter.items()
        )
        for application_id, counter in counts.items()
    }


def _kinds(
    items: Sequence[Any], kind_of: Callable[[object], tuple[Any, ...]]
) -> Mapping[tuple[Any, ...], int]:
    """Return the number of items by application and kind."""
    if not isinstance(items, Columns):
        return Counter(map(kind_of, items))
    kept = [items.raw(name) for name in _named_of(items.item_class)]
    same = [column.value for column in kept if isinstance(column, Same)]
    if len(same) == len(kept):
        return {tuple(same): len(items)}
    return Counter(items.rows(*_named_of(items.item_class)))


@once_per_class
def _flags_and_words(cls: type[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of an item that a phrase mentions: flags, and texts."""
    names = {item.name for item in fields(cls)}
    flags = tuple(name for name in ("placeholder", "removed") if name in names)
    words = tuple(name for name in ("termination_type", "state", "kind") if name in names)
    return flags, words


@once_per_class
def _kind_of(cls: type[Any]) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return a getter of an item's application, flags and texts; None without an application.

    It is called for every sent item, so it is no Python loop.
    """
    if "application_id" not in {item.name for item in fields(cls)}:
        return None
    names = _named_of(cls)
    return attrgetter(*names) if len(names) > 1 else lambda item: (item.application_id,)


@once_per_class
def _named_of(cls: type[Any]) -> tuple[str, ...]:
    flags, words = _flags_and_words(cls)
    return ("application_id", *flags, *words)


_TIMERS = frozenset({"armed", "cancelled", "fired"})  # sections whose names are verbs of timers


def _phrase(name: str, item_class: type[Any], values: list[Any]) -> tuple[str, str]:
    """Return the name of items of a kind, in singular and plural."""
    flags, _ = _flags_and_words(item_class)
    said = [f"({flag})" for flag, is_set in zip(flags, values, strict=False) if is_set]
    said += [str(word) for word in values[len(flags) :] if word]
    if name in _TIMERS:
        return " ".join([*said, "timer", name]), " ".join([*said, "timers", name])
    many = name.replace("_", " ")
    one = " ".join(word.removesuffix("s") for word in many.split())
    return " ".join([one, *said]), " ".join([many, *said])
