"""The read model as rows for the live page: first a snapshot, then changes.

Rule 1: changes are recorded by name, only while a page follows; a row is made when a frame is due,
        so that a thousand changes of a row are one.
Rule 2: frames are numbered from 1; a snapshot has the number of the frame it replaces. A client
        with a snapshot and every later frame, in order, has the whole read model.
Rule 3: after a replacement of the read model (a new epoch, a gap) every client needs a snapshot.
An application row has the reason why its first ask waits: its own, or by ``shape`` that of its
queue, which changes independently. Amounts are lists in the order of ``types``; times are
milliseconds of Unix time, 0 for none.
Limits: MAX_ROWS changed rows of a kind per frame (the others are in the next), MAX_LIVE and
MAX_ENDED applications, MAX_EVENTS events per frame (the others are counted), MAX_TYPES types of
resource, MAX_TEXT characters of a reason, MAX_WAITS refusals and MAX_PROPERTIES properties of a
queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from services.api.projection.events import MAX_BESIDE
from services.api.projection.model import ApplicationView, Model, NodeView
from shared.messages.interface import TerminationType
from shared.messages.state import EventState, QueueState, Waiting
from shared.model.event_codes import ChangeDetail, ChangeType, EventType
from shared.model.sentences import plain_text
from shared.model.units import NANOS_PER_MILLI

MAX_ROWS = 1_000
MAX_LIVE = 10_000
MAX_ENDED = 500
MAX_EVENTS = 60
MAX_LOOKED_AT = MAX_BESIDE
MAX_TYPES = 64
MAX_TEXT = 400
MAX_WAITS = 200
MAX_PROPERTIES = 30  # properties of a queue on the page; the first by name are shown
MAX_PROPERTY = 100  # characters of a queue's property, name and value each; cut
_D = ChangeDetail
_QUIET = (
    _D.NODE_ALLOC, _D.APP_ALLOC, _D.APP_REQUEST, _D.UG_APP_LINK, _D.UG_USER_RESOURCE,
    _D.UG_GROUP_RESOURCE, _D.REQUEST_CANCEL, _D.ALLOC_CANCEL, _D.ALLOC_REPLACED, _D.QUEUE_APP,
)  # fmt: skip
Row = list[Any]
Frame = dict[str, Any]
NODE_COLUMNS = (
    "id", "schedulable", "pods", "foreign", "capacity", "allocated", "occupied", "reservations",
    "attributes",
)  # fmt: skip
APPLICATION_COLUMNS = (
    "id", "queue", "state", "user", "submitted", "finished", "wanted", "held", "replaced",
    "timedout", "running", "pending", "ended", "lost", "evicted", "reason", "message", "since",
    "shape", "allocated", "asked",
)  # fmt: skip
EVENT_COLUMNS = (
    "number", "time", "type", "object", "reference", "change", "detail", "message",
)  # fmt: skip


@dataclass(slots=True)
class Changes:
    """Names of what has changed since the last frame; none while no page follows."""

    is_followed: bool = False
    is_whole: bool = True  # no part of a change is still to come
    needs_snapshot: bool = False  # another read model
    partition: bool = False
    evictions: int = 0  # since the start, noted always
    queues: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)
    applications: dict[str, ApplicationView] = field(default_factory=dict)

    def start_over(self) -> None:
        """Record that the read model was replaced."""
        self.needs_snapshot = True
        for noted in (self.queues, self.nodes, self.applications):
            noted.clear()

    def note_queue(self, path: str) -> None:
        """Record a changed queue."""
        if self.is_followed:
            self.queues[path] = None

    def note_node(self, name: str) -> None:
        """Record a changed node."""
        if self.is_followed:
            self.nodes[name] = None

    def note_application(self, view: ApplicationView) -> None:
        """Record a changed application, live or ended."""
        if self.is_followed:
            self.applications[view.summary.application_id] = view


class Feed:
    """Makes the frames of one read model; ``number`` is that of the last one."""

    def __init__(self, changes: Changes) -> None:
        self.number = 0
        self._changes = changes
        self._types: dict[str, None] = {}
        self._types_told = 0
        self._next_event = 0
        changes.is_followed = True
        changes.start_over()

    def close(self) -> None:
        """Stop following."""
        self._changes.is_followed = False
        self._changes.start_over()

    def snapshot(self, model: Model, now_ns: int) -> Frame:
        """Return everything, as of the last frame."""
        live = list(islice(model.applications.values(), MAX_LIVE))
        ended = list(islice(reversed(model.ended.values()), MAX_ENDED))
        views = [v for v in reversed(ended) if v.summary.application_id not in model.applications]
        frame: Frame = {
            "number": self.number,
            "now": _ms(now_ns),
            "partition": self._partition(model),
            "nodes": [self._node(node) for node in model.nodes.values()],
            "queues": [self._queue(model, queue) for queue in model.queues.values()],
            "applications": [self._application(view) for view in (*views, *live)],
            "evictions": self._changes.evictions,
            "columns": {
                "nodes": NODE_COLUMNS,
                "applications": APPLICATION_COLUMNS,
                "events": EVENT_COLUMNS,
            },
        }
        _, frame["events"] = _events(model, 0, MAX_EVENTS * 4)
        frame["types"] = list(self._types)  # after all that may have named one
        return frame

    def needs_snapshot(self, model: Model) -> bool:
        """Return whether every client needs a snapshot now, and follow the model from here on."""
        if not self._changes.needs_snapshot:
            return False
        self._changes.needs_snapshot = False
        self._next_event = model.events.next
        self.number += 1
        return True

    def difference(self, model: Model, now_ns: int) -> Frame | None:
        """Return the next frame, or None when nothing has changed."""
        changes = self._changes
        frame: Frame = {}
        if changes.partition:
            frame["partition"], changes.partition = self._partition(model), False
        for name in _first(changes.nodes):
            node = model.nodes.get(name)
            _put(frame, "nodes", name, self._node(node) if node is not None else None)
        for path in _first(changes.queues):
            queue = model.queues.get(path)
            _put(frame, "queues", path, self._queue(model, queue) if queue else None)
        noted = changes.applications
        for name, view in [(name, noted.pop(name)) for name in list(islice(noted, MAX_ROWS))]:
            known = model.applications.get(name, view)
            _put(frame, "applications", name, self._application(known))
        left_out, events = _events(model, self._next_event, MAX_EVENTS)
        if events or left_out:
            frame |= {"events": events, "eventsLeftOut": left_out}
        self._next_event = model.events.next
        if not frame:
            return None
        if len(self._types) > self._types_told:
            frame["types"] = list(self._types)
            self._types_told = len(self._types)
        self.number += 1
        frame |= {"number": self.number, "now": _ms(now_ns), "evictions": changes.evictions}
        return frame

    # --- rows -----------------------------------------------------------------------------------

    def _amounts(self, resource: Mapping[str, int] | None) -> list[int] | None:
        """Return amounts in the order of the types; a new type is appended to them."""
        if resource is None:
            return None
        for name in resource:
            if name not in self._types and len(self._types) < MAX_TYPES:
                self._types[name] = None
        return [resource.get(name, 0) for name in self._types]

    def _partition(self, model: Model) -> Frame:
        partition = model.partition
        assert partition is not None
        return {
            "name": partition.name,
            "state": partition.state,
            "capacity": self._amounts(partition.capacity),
            "allocated": self._amounts(partition.allocated),
            "configError": partition.config_error[:MAX_TEXT],
            "warnings": len(partition.config_warnings),
            "applications": len(model.applications),
        }

    def _node(self, node: NodeView) -> Row:
        state = node.state
        return [
            state.node_id,
            state.schedulable,
            len(node.allocations),
            len(node.foreign),
            self._amounts(state.capacity),
            self._amounts(state.allocated),
            self._amounts(state.occupied),
            len(state.reservations),
            {
                name.removeprefix("si/"): value
                for name, value in state.attributes.items()
                if name in _GROUPS
            },
        ]

    def _queue(self, model: Model, queue: QueueState) -> Frame:
        refusals = model.refusals.get(queue.path)
        waiting = refusals.by_asks.values() if refusals is not None else ()
        return {
            "path": queue.path,
            "parent": queue.parent,
            "isLeaf": queue.is_leaf,
            "isManaged": queue.is_managed,
            "status": queue.status,
            "max": self._amounts(queue.max_resource),
            "guaranteed": self._amounts(queue.guaranteed_resource),
            "allocated": self._amounts(queue.allocated),
            "pending": self._amounts(queue.pending),
            "preempting": self._amounts(queue.preempting),
            "runningApps": queue.running_apps,
            "maxRunningApps": queue.max_running_apps,
            "priority": queue.current_priority,
            "waiting": [_waiting(wait) for wait in islice(waiting, MAX_WAITS)],
            "properties": [
                [name[:MAX_PROPERTY], text[:MAX_PROPERTY]]
                for name, text in sorted(queue.properties.items())[:MAX_PROPERTIES]
            ],
        }

    def _application(self, view: ApplicationView) -> Row:
        summary, groups = view.summary, view.summary.placeholders
        held = sum(group.allocated for group in groups)
        ask = None if view.has_ended else next(iter(view.asks.values()), None)
        wait = Model.own_why(view, ask) if ask is not None else None
        gone = dict(view.gone)
        lost = gone.pop(TerminationType.UNKNOWN_TERMINATION_TYPE, 0)
        evicted = gone.pop(TerminationType.PREEMPTED_BY_SCHEDULER, 0)
        return [
            summary.application_id,
            summary.queue_name,
            summary.state,
            summary.user,
            _ms(summary.submission_time_ns),
            _ms(summary.finished_time_ns),
            sum(group.count for group in groups),
            held,
            sum(group.replaced for group in groups),
            sum(group.timedout for group in groups),
            max(0, len(view.allocations) - held),
            len(view.asks),
            sum(gone.values()),
            lost,
            evicted,
            wait.reason if wait is not None else "",
            (wait.text if wait is not None else summary.text)[:MAX_TEXT],
            _ms(wait.since_ns) if wait is not None else 0,
            ask.shape if ask is not None and wait is None else "",
            self._amounts(summary.allocated),
            self._amounts(summary.pending),
        ]


_GROUPS = ("si/rackname", "si/instance-type")


def _waiting(wait: Waiting) -> Row:
    return [wait.asks, wait.reason, wait.text[:MAX_TEXT], _ms(wait.since_ns)]


def _events(model: Model, start: int, most: int) -> tuple[int, list[Row]]:
    """Return how many events from a number on are left out, and the rows of the others.

    If there are more than ``most``, events about the place of a single pod are left out first.
    """
    first = max(start, model.events.lowest, model.events.next - MAX_LOOKED_AT)
    found = list(enumerate(model.events.newest(first), first))
    if len(found) > most:
        found = [item for item in found if item[1].change_detail not in _QUIET][-most:]
    return model.events.next - start - len(found), [_event(at, event) for at, event in found]


def _event(number: int, event: EventState) -> Row:
    return [
        number,
        _ms(event.time_ns),
        EventType(event.type).name,
        event.object_id,
        event.reference_id,
        ChangeType(event.change_type).name,
        ChangeDetail(event.change_detail).name,
        plain_text(event.message)[:MAX_TEXT],
    ]


def _first(noted: dict[str, None]) -> Iterable[str]:
    names = list(islice(noted, MAX_ROWS))
    for name in names:
        del noted[name]
    return names


def _put(frame: Frame, kind: str, name: str, row: Any) -> None:
    """Put a row, or the name of a removed one (None), into a frame."""
    if row is None:
        frame.setdefault(f"{kind}Gone", []).append(name)
    else:
        frame.setdefault(kind, []).append(row)


def _ms(time_ns: int) -> int:
    return time_ns // NANOS_PER_MILLI
