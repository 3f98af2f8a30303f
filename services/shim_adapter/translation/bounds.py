"""How much one pod, one task group or one application may hold of what goes with its messages.

What is sent of a pod goes to the core with its ask, with its allocation, and again at every
recovery. An object as large as a cluster takes it would make a message of its own each time.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from shared.messages.commands import PodSpec, TaskGroupSpec
from shared.messages.constraints import NO_CONSTRAINTS
from shared.messages.interface import DEFAULT_PLACEHOLDER_TIMEOUT_MS
from shared.model.memo import once_per_class
from shared.model.units import MAX_DURATION_NS, NANOS_PER_SECOND, timeout_ms

MAX_ITEM_BYTES = 32 * 1024
MAX_SECONDS = MAX_DURATION_NS // NANOS_PER_SECOND
MAX_GANG_MEMBERS = 100_000
_NUMBER_BYTES = 9
_OVERHEAD_BYTES = 3
_MOST_OF_A_CHARACTER = 4  # bytes
_MOST_OF_A_NAME = 16  # bytes, of what goes with a name: its overhead, its amount


def size_of(value: Any) -> int:
    """Return about how many bytes a value takes in a message, names of fields included."""
    if isinstance(value, str):
        return _OVERHEAD_BYTES + (len(value) if value.isascii() else len(value.encode()))
    if isinstance(value, int) or value is None:
        return _NUMBER_BYTES
    if isinstance(value, tuple):
        if set(map(type, value)) == {str}:
            return _OVERHEAD_BYTES * (len(value) + 1) + len("".join(value).encode())
        return _OVERHEAD_BYTES + sum(map(size_of, value))
    if isinstance(value, dict | Mapping):
        return _OVERHEAD_BYTES + sum([size_of(k) + size_of(v) for k, v in value.items()])
    names_bytes, values_of = _record(type(value))
    return names_bytes + sum([size_of(v) if v else _OVERHEAD_BYTES for v in values_of(value)])


@once_per_class
def _record(cls: type[Any]) -> tuple[int, Callable[[Any], tuple[Any, ...]]]:
    """Return how many bytes the names of a record's fields take, and what reads its values."""
    names = [item.name for item in fields(cls)]
    read = attrgetter(*names)
    return sum(map(len, names)), read if len(names) > 1 else lambda record: (read(record),)


def check_pod(spec: PodSpec, where: str) -> None:
    """Refuse a pod of which more is to be sent than MAX_ITEM_BYTES. Raises ManifestError."""
    if _is_small(spec):
        return
    _check(
        {
            "names": (spec.application_id, spec.queue_name, spec.task_group_name, spec.name),
            "namespace": spec.namespace,
            "partition": spec.partition,
            "user and groups": (spec.user, *spec.groups),
            "requests": spec.resource,
            "labels": spec.labels,
            "affinity, selectors and tolerations": spec.constraints,
            "imagePullSecrets": spec.pull_secrets,
        },
        where,
    )


def _is_small(spec: PodSpec) -> bool:
    """Return whether a pod is far from too large, as nearly all are, without summing it up."""
    names = (
        *(spec.application_id, spec.queue_name, spec.task_group_name, spec.name),
        *(spec.namespace, spec.user, spec.partition, *spec.groups, *spec.pull_secrets),
        *(*spec.resource, *spec.labels, *spec.labels.values()),
    )
    characters = sum(map(len, names)) + _MOST_OF_A_NAME * len(names)
    is_bounded = spec.constraints is NO_CONSTRAINTS or spec.constraints == NO_CONSTRAINTS
    return is_bounded and characters < MAX_ITEM_BYTES // _MOST_OF_A_CHARACTER


def check_group(group: TaskGroupSpec) -> None:
    """Refuse a task group whose placeholders would be too large. Raises ManifestError."""
    _check(
        {
            "name": group.name,
            "minResource": group.min_resource,
            "labels": group.labels,
            "affinity, selectors and tolerations": group.constraints,
        },
        f"taskGroup {group.name[: _NUMBER_BYTES * 7]!r}",
    )


def check_application(tags: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Refuse an application whose names and tags are too large. Raises ManifestError."""
    _check({"names": names, "tags": tags}, "application")


def _check(parts: Mapping[str, Any], where: str) -> None:
    sizes = {name: size_of(value) for name, value in parts.items()}
    total = sum(sizes.values())
    if total > MAX_ITEM_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise ManifestError(
            where,
            f"its data for the scheduler takes {total} bytes, at most {MAX_ITEM_BYTES}; "
            f"most of it are its {largest}: {sizes[largest]}",
        )


def bounded_seconds(name: str, stated: int) -> tuple[int, str]:
    """Return a timeout in seconds, 0 for the default, and the sentence if it is not as stated.

    What overflows an int64 of nanoseconds is the default, as YuniKorn has it; else it is at most
    MAX_SECONDS.
    """
    if stated <= MAX_SECONDS:
        return stated, ""
    if not timeout_ms(stated * 1000):
        seconds = DEFAULT_PLACEHOLDER_TIMEOUT_MS // 1000
        return 0, f"{name} {stated} overflows a duration: it is the default, {seconds} seconds"
    return MAX_SECONDS, (
        f"{name} {stated} is longer than 100 years: it is reduced to {MAX_SECONDS} seconds"
    )
