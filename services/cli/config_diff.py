"""`muster config diff`: what a file changes, key by key, and what a what-if says of it."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from services.cli.table import Column
from shared.queueconfig import load_configuration
from shared.queueconfig.schema import (
    LimitSpec,
    PartitionSpec,
    PlacementRuleSpec,
    QueueSpec,
)

CHANGES = (
    Column("QUEUE", lambda row: row["queue"]),
    Column("SETTING", lambda row: row["setting"]),
    Column("NOW", lambda row: row["now"] or "-", wraps=20),
    Column("WOULD BE", lambda row: row["then"] or "-", wraps=20),
)
_NOT_SAID = ("line", "checksum", "name", "queues")
_Row = tuple[str, str]


def changes(before: str, after: str) -> list[dict[str, str]]:
    """Return what one configuration has otherwise than another, in the order of the later one.

    Raises QueueConfigError where the later one does not hold.
    """
    old, new = dict(_entries(before)), dict(_entries(after))
    named: dict[str, dict[str, None]] = {}
    for queue, name in (*new, *old):
        named.setdefault(queue, {})[name] = None
    keys = [(queue, name) for queue, names in named.items() for name in names]
    return [
        {"queue": queue, "setting": name, "now": old.get((queue, name), ""),
         "then": new.get((queue, name), "")}
        for queue, name in keys
        if old.get((queue, name), "") != new.get((queue, name), "")
    ]  # fmt: skip


def _entries(text: str) -> Iterator[tuple[_Row, str]]:
    """Yield what a configuration says: a queue, what of it, and its value as text."""
    if not text.strip():
        return
    for partition in load_configuration(text).partitions:
        lead = "" if partition.name == "default" else f"{partition.name}: "
        yield from _partition(partition, lead)
        for queue in partition.queues or []:
            yield from _queue(queue, f"{lead}{queue.name}")


def _partition(partition: PartitionSpec, lead: str) -> Iterator[tuple[_Row, str]]:
    where = f"{lead}the partition"
    for name, value in _fields(partition):
        for inner, text in _flat(name, value):
            yield (where, inner), text


def _queue(queue: QueueSpec, path: str) -> Iterator[tuple[_Row, str]]:
    yield (path, "queue"), "there"
    for name, value in _fields(queue):
        for inner, text in _flat(name, value):
            yield (path, inner), text
    for below in queue.queues or []:
        yield from _queue(below, f"{path}.{below.name}")


def _fields(record: object) -> Iterator[tuple[str, Any]]:
    for item in dataclasses.fields(record):  # type: ignore[arg-type]
        if item.name not in _NOT_SAID:
            yield item.name, getattr(record, item.name)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a value's parts, each by the keys that lead to it; nothing of what is not said."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flat(f"{name}.{key}", below)
    elif isinstance(value, list):
        yield from _of_list(name, value)
    elif dataclasses.is_dataclass(value):
        for key, below in _fields(value):
            yield from _flat(f"{name}.{key}", below)
    elif value not in (None, "", 0, False):
        yield name, _text(value)
    elif value is False and name.startswith("preemption"):
        yield name, "false"


def _of_list(name: str, values: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for number, value in enumerate(values, start=1):
        if isinstance(value, LimitSpec):
            whose = ",".join((*value.users, *(f"group {group}" for group in value.groups)))
            limit = dataclasses.replace(value, users=[], groups=[])
            yield from _flat(f"limits of {whose}", limit)
        elif isinstance(value, PlacementRuleSpec):
            yield f"{name} {number}", value.name
            yield from _flat(f"{name} {number}", value)
        else:
            yield f"{name} {number}", _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
