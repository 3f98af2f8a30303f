"""What the API server double keeps: objects with uid and resourceVersion, and what happened to them.

As a real one does it: every write has the next resourceVersion, events are kept for a while so that
watches resume, and what is older than the history is answered with 410. With a journal every write is
in a file before it is answered, so that a process which is killed comes back with all that it said;
the history is not in it, as an API server that starts has none.
"""

import asyncio
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

Object = dict[str, Any]
Selector = Callable[[Object], bool]
HISTORY = 200_000
LEASES = "leases.coordination.k8s.io"
WITH_GENERATION = ("poddisruptionbudgets.policy",)  # which a change of the spec, alone, raises
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class ApiFailureError(Exception):
    """An answer that is no success: a Status with code, reason and message."""

    def __init__(self, code: int, reason: str, message: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


@dataclass(slots=True)
class Event:
    """Something that happened to an object; ``before`` is None when it was created."""

    version: int
    resource: str
    before: Object | None
    after: Object | None  # None: deleted
    last: Object = field(default_factory=dict)  # the object, with the event's own version


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class Store:
    """Every object, by resource; ``changed`` is set, and made anew, with every write."""

    def __init__(self, journal: Path | None = None, counted: tuple[str, ...] = ()) -> None:
        """``counted`` are resources whose generation is counted beside WITH_GENERATION."""
        self.version = 1000
        self._counted = (*WITH_GENERATION, *counted)
        self.now: Callable[[], str] = now
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self.history: deque[Event] = deque(maxlen=HISTORY)
        self.changed = asyncio.Event()
        self._journal = None
        if journal is not None:
            if journal.exists():
                self._read(journal)
            self._journal = journal.open("ab", buffering=0)
        self.oldest = self.version

    def _read(self, journal: Path) -> None:
        """Take in what was written before; a last line that was cut short was never answered."""
        whole = 0
        with journal.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                self.version, resource, where, obj = orjson.loads(line)
                if obj is None:
                    self.all(resource).pop(tuple(where), None)
                else:
                    self.all(resource)[tuple(where)] = obj
            file.truncate(whole)

    def _keep(self, resource: str, obj: Object, after: Object | None) -> None:
        if self._journal is not None:
            entry = [self.version, resource, key_of(obj), after]
            self._journal.write(orjson.dumps(entry) + b"\n")

    def all(self, resource: str) -> dict[tuple[str, str], Object]:
        return self.objects.setdefault(resource, {})

    def has(self, resource: str, where: tuple[str, str]) -> bool:
        return where in self.all(resource)

    def get(self, resource: str, namespace: str, name: str) -> Object:
        found = self.all(resource).get((namespace, name))
        if found is None:
            raise ApiFailureError(404, "NotFound", f'{resource} "{name}" not found')
        return found

    def create(self, resource: str, namespace: str, body: Object) -> Object:
        obj = deepcopy(body)
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise ApiFailureError(422, "Invalid", "name or generateName is required")
            metadata["name"] = metadata["generateName"][:58] + uuid.uuid4().hex[:5]
        if not _NAME.fullmatch(metadata["name"]):
            text = f'{resource} "{metadata["name"]}" is invalid: metadata.name: Invalid value'
            raise ApiFailureError(422, "Invalid", text)
        if namespace:
            metadata["namespace"] = namespace
        if key_of(obj) in self.all(resource):
            name = metadata["name"]
            raise ApiFailureError(409, "AlreadyExists", f'{resource} "{name}" already exists')
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.now()
        return self._write(resource, None, obj)

    def update(self, resource: str, obj: Object, change: Callable[[Object], None]) -> Object:
        """Write a changed copy; whoever holds the old object is not surprised."""
        copy = {**deepcopy(obj)}
        change(copy)
        return self._write(resource, obj, copy)

    def delete(self, resource: str, obj: Object) -> Object:
        self.version += 1
        self._keep(resource, obj, None)
        del self.all(resource)[key_of(obj)]
        gone = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self._note(Event(self.version, resource, obj, None, gone))
        return gone

    def beat(self) -> None:
        """Write the lease that every API server renews by itself: versions go on by that alone."""
        lease = self.all(LEASES).get(("kube-system", "apiserver-double"))
        if lease is None:
            self.create(LEASES, "kube-system", {"metadata": {"name": "apiserver-double"}})
        else:
            self.update(LEASES, lease, lambda _: None)

    def compact(self) -> None:
        """Forget the history: whoever resumes from before now gets 410."""
        self.history.clear()
        self.oldest = self.version

    def since(self, resource: str, version: int) -> Iterable[Event]:
        """Yield the events after a version. Raises ApiFailureError 410 when it is too old."""
        if version < self.oldest:
            text = f"too old resource version: {version} ({self.oldest})"
            raise ApiFailureError(410, "Expired", text)
        found = []
        for event in reversed(self.history):
            if event.version <= version:
                break
            if event.resource == resource:
                found.append(event)
        return reversed(found)

    def _write(self, resource: str, before: Object | None, after: Object) -> Object:
        self.version += 1
        after["metadata"]["resourceVersion"] = str(self.version)
        if resource in self._counted:
            known = 0 if before is None else before["metadata"].get("generation", 0)
            is_new = before is None or before.get("spec") != after.get("spec")
            after["metadata"]["generation"] = known + is_new
        self._keep(resource, after, after)
        self.all(resource)[key_of(after)] = after
        self._note(Event(self.version, resource, before, after, after))
        return after

    def _note(self, event: Event) -> None:
        if len(self.history) == self.history.maxlen:
            self.oldest = self.history[0].version
        self.history.append(event)
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()


def field_of(obj: Object, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return "" if value is None else str(value)


def selector_of(fields: str, labels: str) -> Selector:
    """Return whether an object is one that a field and a label selector select (= != only)."""
    tests: list[Callable[[Object], bool]] = []
    for text, is_label in ((fields, False), (labels, True)):
        for part in filter(None, text.split(",")):
            name, wanted, differs = _parse(part)

            def test(
                obj: Object,
                name: str = name,
                wanted: str = wanted,
                differs: bool = differs,
                is_label: bool = is_label,
            ) -> bool:
                if is_label:
                    found = (obj["metadata"].get("labels") or {}).get(name, "")
                else:
                    found = field_of(obj, name)
                return (found == wanted) != differs

            tests.append(test)
    return lambda obj: all(test(obj) for test in tests)


def _parse(part: str) -> tuple[str, str, bool]:
    for sign, differs in (("!=", True), ("==", False), ("=", False)):
        name, found, wanted = part.partition(sign)
        if found:
            return name, wanted, differs
    raise ApiFailureError(400, "BadRequest", f"selector {part!r}")


def event_for(event: Event, selects: Selector) -> tuple[str, Object] | None:
    """Return what a watch with a selector sees of an event, or None."""
    was = event.before is not None and selects(event.before)
    is_now = event.after is not None and selects(event.after)
    if is_now:
        return ("MODIFIED" if was else "ADDED"), event.last
    return ("DELETED", event.last) if was else None
