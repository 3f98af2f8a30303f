"""The read model of a partition."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.api.projection.event_settings import EventSettings
from services.api.projection.events import EventRing
from shared.messages.interface import PodsHeld
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    ConfigurationState,
    EvictionState,
    NodeState,
    PartitionState,
    QueueState,
    UsageState,
    Waiting,
)
from shared.model.names import DEFAULT_PARTITION
from shared.model.resources import Resource, bounded, smaller_of
from shared.model.states import ENDED

MAX_EVICTIONS = 1_000  # that are remembered, the latest


@dataclass(slots=True)
class ApplicationView:
    """An application with its asks and allocations, by allocation key."""

    summary: ApplicationSummary
    asks: dict[str, AskState] = field(default_factory=dict)
    allocations: dict[str, AllocationState] = field(default_factory=dict)
    swapping: dict[str, None] = field(default_factory=dict)  # asks that get a placeholder's place
    gone: dict[str, int] = field(default_factory=dict)  # pods that have gone, counted by why
    steps: list[tuple[int, ...]] = field(default_factory=list)  # of a gang: ``timeline``
    known_ns: int = 0  # since when, where it was there before; 0: since it came
    written: tuple[object, bytes] | None = None  # its answer, until it changes: ``api.rows``

    @property
    def has_ended(self) -> bool:
        """Whether the application has ended."""
        return self.summary.state in ENDED


@dataclass(slots=True)
class NodeView:
    """A node with its allocations, and the foreign ones, by allocation key."""

    state: NodeState
    allocations: dict[str, AllocationState] = field(default_factory=dict)
    foreign: dict[str, AllocationState] = field(default_factory=dict)
    written: bytes | None = None  # its answer, until it changes: ``api.rows``


@dataclass(slots=True)
class UserView:
    """A user or a group, with usage by queue."""

    name: str
    usage: dict[str, UsageState] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Refusals:
    """Why asks in one queue are not allocated, by their shape; ``version`` counts the changes."""

    by_asks: dict[str, Waiting] = field(default_factory=dict)
    version: int = 0

    def set(self, asks: str, why: Waiting | None) -> None:
        """Set why asks are not allocated; None if nothing refuses them."""
        self.version += 1
        if why is None:
            self.by_asks.pop(asks, None)
        else:
            self.by_asks[asks] = why


@dataclass(slots=True)
class Model:
    """The whole read model. ``ended`` is by submission, the oldest first."""

    partition: PartitionState | None = None
    configuration: ConfigurationState | None = None
    event_settings: EventSettings = field(default_factory=EventSettings)
    queues: dict[str, QueueState] = field(default_factory=dict)
    refusals: dict[str, Refusals] = field(default_factory=dict)  # by queue, of those that refuse
    nodes: dict[str, NodeView] = field(default_factory=dict)
    applications: dict[str, ApplicationView] = field(default_factory=dict)
    users: dict[str, UserView] = field(default_factory=dict)
    groups: dict[str, UserView] = field(default_factory=dict)
    submissions: dict[str, int] = field(default_factory=dict)  # by result, since the start
    attempts: dict[str, int] = field(default_factory=dict)  # allocations by result, likewise
    queue_attempts: dict[tuple[str, str], int] = field(default_factory=dict)  # by queue, result
    # Of a queue, by what they are: the types of resources that it has had some of, at some time.
    types_seen: dict[str, dict[str, dict[str, None]]] = field(default_factory=dict)
    evicted: dict[str, int] = field(default_factory=dict)  # by law, since the start
    nodes_gone: int = 0  # since the start
    ended_counts: dict[tuple[str, str], int] = field(default_factory=dict)  # by queue and state
    events: EventRing = field(default_factory=EventRing)
    ended: dict[tuple[str, str], ApplicationView] = field(default_factory=dict)
    evictions: deque[EvictionState] = field(default_factory=lambda: deque(maxlen=MAX_EVICTIONS))
    pods_held: dict[str, PodsHeld] = field(default_factory=dict)  # by application, known or not
    time_ns: int = 0

    @property
    def name(self) -> str:
        """The partition's name."""
        return self.partition.name if self.partition is not None else DEFAULT_PARTITION

    @property
    def mark(self) -> dict[str, str]:
        """The partition field of Muster's own rows; rows of ``default`` have none."""
        return {} if self.name == DEFAULT_PARTITION else {"partition": self.name}

    def standing(self, application_id: str) -> int:
        """Return 2 for an application that is live, 1 for one that has ended, 0 for none."""
        if application_id in self.applications:
            return 2
        return int(self.application(application_id) is not None)

    def application(self, application_id: str) -> ApplicationView | None:
        """Return a live application, else the latest ended submission, else None."""
        live = self.applications.get(application_id)
        if live is not None:
            return live
        ended = [view for key, view in self.ended.items() if key[0] == application_id]
        return ended[-1] if ended else None

    def headroom(self, path: str) -> Resource:
        """Return what may still be allocated in a queue; types without a limit are absent."""
        room: Resource = {}
        queue = self.queues.get(path)
        while queue is not None:
            if queue.max_resource is not None:
                own = {
                    name: limit - queue.allocated.get(name, 0)
                    for name, limit in queue.max_resource.items()
                }
                room = smaller_of(room, own)
            queue = self.queues.get(queue.parent)
        return bounded(room)

    def outstanding(self) -> list[AskState]:
        """Return the asks that more nodes would help, as reported to the resource manager."""
        return [
            ask
            for view in self.applications.values()
            for ask in view.asks.values()
            if ask.triggered_scale_up
        ]

    def children(self, path: str) -> list[QueueState]:
        """Return a queue's children, ordered by name."""
        return sorted((q for q in self.queues.values() if q.parent == path), key=lambda q: q.path)

    def why(self, application: ApplicationView, ask: AskState) -> Waiting | None:
        """Return why an ask is not allocated, or None if it was not refused yet.

        The application's own reason precedes that of its queue or the nodes for its shape.
        """
        own = self.own_why(application, ask)
        if own is not None:
            return own
        refusals = self.refusals.get(application.summary.queue_name)
        return refusals.by_asks.get(ask.shape) if refusals is not None else None

    @staticmethod
    def own_why(application: ApplicationView, ask: AskState) -> Waiting | None:
        """Return the application's own reason to hold an ask back, or None."""
        own = {waiting.asks: waiting for waiting in application.summary.waiting}
        names = ("placeholder",) if ask.placeholder else (ask.task_group_name, "real")
        return next((own[name] for name in (*names, ask.shape) if name in own), None)


def changing_amounts(queue: QueueState) -> tuple[tuple[str, Mapping[str, int]], ...]:
    """Return the amounts of a queue that change with its pods, by the states of its gauge."""
    return (
        ("allocated", queue.allocated),
        ("pending", queue.pending),
        ("preempting", queue.preempting),
    )
