"""The read models of a replica, one for each partition by name, and what spans them.

Rule 1: ``default`` always exists. The message ``Partitions`` names the others; messages about other
        partitions are ignored, and one that is no longer named is forgotten.
Rule 2: each partition follows its own core, and requests its own snapshot: no partition waits for
        another.
Rule 3: the cost of a change does not depend on the number of partitions; heartbeats and ticks reach
        all of them.
Rule 4: history, events and traces belong to the replica: a sample sums over the partitions, events
        are numbered together, a trace is known by the application's name.
"""

from collections.abc import Iterable, Iterator

from services.api.projection.event_settings import EventSettings
from services.api.projection.events import EventRing
from services.api.projection.history import History
from services.api.projection.hour import EVERY_NS
from services.api.projection.model import Model
from services.api.projection.projection import Projection
from services.api.projection.stories import Stories
from services.api.projection.works import Works
from shared.messages.envelope import SHIM_ADAPTER, Envelope, Outgoing
from shared.messages.protocol import AtWork, Partitions, PartitionsRequest
from shared.messages.state import StateDelta
from shared.messages.trace import TraceRecords
from shared.model.names import DEFAULT_PARTITION


class Projections:
    """The projections of one API replica, the default one first and the others by name."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.history = History()
        self.stories = Stories()
        self.works = Works()
        self._of = {DEFAULT_PARTITION: Projection(instance)}
        self._whole: EventRing | None = None  # once there was a second partition
        self._point_due_ns = 0  # the next point of each partition's hour
        self._is_told = False  # which partitions there are, or has asked
        self._before: dict[str, Projection] = {}  # what is shown of those that have no state yet

    def __iter__(self) -> Iterator[Projection]:
        return iter(self._of.values())

    def __len__(self) -> int:
        return len(self._of)

    def get(self, name: str) -> Projection | None:
        """Return a partition's projection, ignoring case, or None for an unknown name.

        Until it has a state, the previous one is shown (``stand_in``).
        """
        found = self._of.get(name.lower())
        has_state = found is not None and found.model.partition is not None
        return found if has_state else self._before.get(name.lower(), found)

    def stand_in(self, before: "Projections") -> None:
        """Show the previous state of each partition until its core has published a new one."""
        known = {**before._before, **before._of}
        self._before = {
            key: item for key, item in known.items() if item.model.partition is not None
        }
        for key, item in self._of.items():
            if key in known:
                item.hour.go_on_from(known[key].hour)

    def follows(self, name: str) -> bool:
        """Whether a partition follows its core now; the shown state may be a previous one."""
        found = self._of.get(name.lower())
        return found is not None and found.is_ready

    @property
    def default(self) -> Projection:
        """The projection of the default partition."""
        return self._of[DEFAULT_PARTITION]

    @property
    def models(self) -> list[Model]:
        """The read models of partitions with a state."""
        shown = [self.get(key) for key in {**self._of, **self._before}]
        return [item.model for item in shown if item and item.model.partition is not None]

    @property
    def events(self) -> EventRing:
        """The events of all partitions."""
        return self._whole or self.default.model.events

    @property
    def event_settings(self) -> EventSettings:
        """The settings of events, which are equal for all partitions."""
        return self.default.model.event_settings

    @property
    def waiting(self) -> list[str]:
        """The partitions that do not follow their core."""
        return [item.partition for item in self._of.values() if not item.is_ready]

    @property
    def names(self) -> list[str]:
        """The names of the partitions."""
        return [item.partition for item in self._of.values()]

    def name(self, names: Iterable[str]) -> None:
        """Set the partitions."""
        told = {name.lower(): name for name in names} | {DEFAULT_PARTITION: DEFAULT_PARTITION}
        if len(told) > 1 and self._whole is None:
            self._whole = self.default.model.events.copy()
            self.default.model.events.join(self._whole)
        self._before = {key: item for key, item in self._before.items() if key in told}
        keys = sorted(told, key=lambda key: (key != DEFAULT_PARTITION, key))
        self._of = {key: self._of.get(key) or self._new(told[key]) for key in keys}

    def _new(self, name: str) -> Projection:
        projection = Projection(self.instance, name)
        before = self._before.get(name.lower())
        if before is not None:
            projection.hour.go_on_from(before.hour)
        if self._whole is not None:
            projection.model.events.join(self._whole)
        return projection

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Apply an event; request a snapshot from each core that is not followed."""
        if self.history.is_due(now_ns):
            self.history.pass_time([item.settled for item in self._of.values()], now_ns)
        if self._point_due_ns <= now_ns:
            self._take_points(now_ns - now_ns % EVERY_NS)
        match envelope.message:
            case AtWork():
                self.works.hear(envelope, now_ns)
                projection = self._of.get(envelope.partition.lower())
                return projection.compare(envelope, now_ns) if projection is not None else []
            case StateDelta():
                self.works.hear(envelope, now_ns)
                projection = self._of.get(envelope.partition.lower())
                return projection.handle(envelope, now_ns) if projection is not None else []
            case TraceRecords(records):
                for record in records:
                    self.stories.remember(record)
                return []
            case Partitions(names):
                self.name(names)
                self._is_told = True
            case _:
                pass
        outgoing = [item for one in self._of.values() for item in one.handle(envelope, now_ns)]
        return outgoing + self._asked_once()

    def _take_points(self, time_ns: int) -> None:
        """Add a point to the hour of each partition that follows its core."""
        self._point_due_ns = time_ns + EVERY_NS
        for projection in self._of.values():
            if projection.is_ready:
                projection.hour.take(projection.settled, time_ns)

    def _asked_once(self) -> list[Outgoing]:
        """Request the list of partitions, once, unless it is known."""
        if self._is_told:
            return []
        self._is_told = True
        request = PartitionsRequest(self.instance)
        return [Outgoing(SHIM_ADAPTER, request, asked_by=self.instance)]

    def next_due_ns(self) -> int | None:
        """Return when the next ended application expires or is removed, or None."""
        due = (projection.ended.next_due_ns() for projection in self._of.values())
        return min((at for at in due if at is not None), default=None)
