"""Applies the state events of one partition's core to the read model of that partition.

Rule 1: events are applied in order of ``seq``. After a gap, or without a state, a snapshot is
        requested, and the last good model is shown until it arrives. A missing last event is
        detected by the number that the core sends with its heartbeats. A change in several parts is
        applied completely or not at all; a snapshot is complete with its last part.
Rule 2: events of a lower epoch, or repeated ones, are refused; a higher epoch starts with a
        snapshot. The sender may be the core all the same, and the followed snapshot wrong: so a
        snapshot is requested, and the next one is followed whatever its epoch is.
Rule 3: ended applications outlive a snapshot, because the core forgets them (``ended.py``).
Rule 4: a complete change of the state becomes events (``news``); a snapshot yields what is new
        since the last one, and at first everything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from services.api.projection.ended import EndedApplications, Key
from services.api.projection.event_settings import event_settings
from services.api.projection.hour import Hour
from services.api.projection.live import Changes
from services.api.projection.model import (
    ApplicationView,
    Model,
    NodeView,
    Refusals,
    UserView,
    changing_amounts,
)
from services.api.projection.news import (
    RUNNABLE_DETAILS,
    ApplicationNews,
    foreign_event,
    node_events,
    queue_events,
)
from services.api.projection.timeline import note_step
from shared.messages.columns import values_of
from shared.messages.envelope import Envelope, Outgoing, core_of
from shared.messages.interface import PodsHeld
from shared.messages.protocol import MAX_EPOCH
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    ConfigurationState,
    EventState,
    EvictionState,
    NodeState,
    PartitionState,
    QueueState,
    RefusalState,
    SnapshotRequest,
    StateDelta,
    UserState,
)
from shared.model.event_codes import EventType
from shared.model.names import DEFAULT_PARTITION
from shared.model.states import ENDED, ApplicationState
from shared.model.units import seconds

ASK_AGAIN_NS = seconds(10)
_RESULTS = (("accepted", ApplicationState.ACCEPTED), ("rejected", ApplicationState.REJECTED))


class Projection:
    """The read model of one partition, of one API replica."""

    def __init__(self, instance: str, partition: str = DEFAULT_PARTITION) -> None:
        self.instance = instance
        self.partition = partition
        self.model = Model()
        self.is_ready = False
        self.epoch = 0
        self.seq = 0
        self.changes = Changes()
        self.hour = Hour()
        self.ended = EndedApplications()
        self._next = (1, 0)  # the seq and the part that come next
        self._asked_ns = 0
        self._is_in_doubt = False  # whether it follows the core
        self._last: Model | None = None  # while a snapshot comes, what was known before it
        self._news: dict[Key, ApplicationNews] = {}  # of the change that is coming in
        self._said: list[EventState] = []
        self._going: list[EventState] = []  # nodes and queues that go, after what was on them
        self._gone: dict[tuple[EventType, str], None] = {}
        self._nodes_gone: dict[str, NodeView] = {}
        self._ended: list[ApplicationSummary] = []
        self._superseded: dict[str, ApplicationView] = {}
        self._returned: dict[str, None] = {}  # allocations that are asks again
        self._stepped: dict[str, None] = {}  # applications of which something has changed

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Apply an event; request a snapshot if one is needed."""
        self.ended.expire(self.model, now_ns)
        if isinstance(envelope.message, StateDelta):
            self._on_delta(envelope, envelope.message)
            # It is coming: only if it stops is it asked for again.
            if self._next[1] and not self._is_in_doubt:
                self._asked_ns = max(now_ns, 1)
        return self._ask(now_ns)

    def compare(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Request a snapshot if the last change that an active core published is missing.

        A snapshot in transit is as new as the core's last change when it began.
        """
        is_followed = self.is_ready or self._next[1] > 0
        missed = (self.epoch, self._next[0] + (self._next[1] > 0))
        is_told = envelope.seq > 0 and envelope.epoch <= max(MAX_EPOCH, self.epoch + 1)
        if not (is_followed and is_told and (envelope.epoch, envelope.seq) >= missed):
            return []
        self._miss()
        return self._ask(now_ns)

    def _ask(self, now_ns: int) -> list[Outgoing]:
        is_answered = self.is_ready and not self._is_in_doubt
        if is_answered or (self._asked_ns and now_ns - self._asked_ns < ASK_AGAIN_NS):
            return []
        self._asked_ns = max(now_ns, 1)
        request = SnapshotRequest(self.instance)
        return [
            Outgoing(
                core_of(self.partition),
                request,
                partition=self.partition,
                correlation_id="recovery",
                asked_by=self.instance,
            )
        ]

    @property
    def settled(self) -> Model:
        """The model, or the previous one while a snapshot is incomplete."""
        return self._last or self.model

    # --- state ----------------------------------------------------------------------------------

    def _on_delta(self, envelope: Envelope, delta: StateDelta) -> None:
        if envelope.epoch > max(MAX_EPOCH, self.epoch + 1):
            return
        is_below = envelope.epoch < self.epoch
        if delta.reset and (self._is_in_doubt or not is_below):
            self._complete()
            self._start_over(envelope)
        elif is_below:
            self._is_in_doubt = True
            return
        elif envelope.epoch == self.epoch and self._is_known(envelope.seq, delta.part):
            self._is_in_doubt |= self.is_ready or self._next[1] > 0
            return
        elif (envelope.epoch, envelope.seq, delta.part) != (self.epoch, *self._next):
            self._miss()
            return
        self.seq = envelope.seq
        if not delta.reset:
            self._count_submissions(delta)
        self._apply(delta)
        self.changes.is_whole = not delta.more
        self._next = (self.seq, delta.part + 1) if delta.more else (self.seq + 1, 0)
        if not delta.more:
            self._complete()
            self.is_ready = True

    def _is_known(self, seq: int, part: int) -> bool:
        """Whether a message is a repetition, or useless until a snapshot arrives."""
        is_waiting = not (self.is_ready or self._next[1])
        return is_waiting or (seq, part) < self._next

    def _miss(self) -> None:
        """Record that an event was lost: a snapshot will be requested."""
        self._complete()
        if self.is_ready or self._next[1]:
            self._asked_ns = 0
        self.is_ready = False
        self._next = (self.seq + 1, 0)

    def _start_over(self, envelope: Envelope) -> None:
        """Begin a snapshot; its later parts have the same epoch and seq."""
        last = self.model
        self.model = Model(
            ended=last.ended,
            events=last.events,
            event_settings=last.event_settings,
            evictions=last.evictions,
            evicted=last.evicted,
            nodes_gone=last.nodes_gone,
            submissions=last.submissions,
            attempts=last.attempts,
            queue_attempts=last.queue_attempts,
            types_seen=last.types_seen,
            ended_counts=last.ended_counts,
        )
        self._last = last
        self.changes.start_over()
        self.epoch = envelope.epoch
        self.is_ready = self._is_in_doubt = False

    def _count_submissions(self, delta: StateDelta) -> None:
        """Count submissions when they are first published, and the outcome of each once."""
        counts = self.model.submissions
        for summary in delta.applications:
            view = self.model.applications.get(summary.application_id)
            known = view.summary if view is not None else None
            if known is None or known.submission != summary.submission:
                known = None
                counts["new"] = counts.get("new", 0) + 1
            for name, state in _RESULTS:
                if _was(summary, state) and (known is None or not _was(known, state)):
                    counts[name] = counts.get(name, 0) + 1

    def _apply(self, delta: StateDelta) -> None:
        self.model.time_ns = delta.time_ns
        handlers: tuple[tuple[Iterable[Any], Callable[[Any], None]], ...] = (
            (delta.partitions, self._on_partition),
            (delta.configurations, self._on_configuration),
            (delta.queues, self._on_queue),
            (delta.refusals, self._on_refusal),
            (delta.nodes, self._on_node),
            (delta.applications, self._on_application),
            (_asks_in(delta), self._on_ask),
            (delta.allocations, self._on_allocation),
            (delta.users, self._on_user),
            (delta.events, self._on_event),
            (delta.evictions, self._on_eviction),
            (delta.pods_held, self._on_pods_held),
        )
        for items, handler in handlers:
            for item in items:
                handler(item)
        self._ended += [summary for summary in delta.applications if summary.state in ENDED]

    def _complete(self) -> None:
        """Finish a complete change: append its events, and update ended applications."""
        for news in self._news.values():
            self.model.events.add_all(news)
        for event in (*self._said, *self._going):
            self.model.events.add(event)
        for name in self._stepped:
            if name in self.model.applications:
                note_step(self.model.applications[name], self.model.time_ns)
        for summary in self._ended:
            self._retire(summary)
        self._news, self._said, self._going, self._ended = {}, [], [], []
        self._gone, self._nodes_gone, self._superseded, self._returned = {}, {}, {}, {}
        self._stepped = {}
        self._last = None
        self.changes.is_whole = True

    def _on_partition(self, partition: PartitionState) -> None:
        self.model.partition = partition
        self.changes.partition = True

    def _on_configuration(self, configuration: ConfigurationState) -> None:
        settings = event_settings(configuration.extra)
        ring = self.model.events
        ring.is_open = settings.is_tracking
        if settings.capacity != self.model.event_settings.capacity:
            ring.hold(settings.capacity)
        self.model.configuration, self.model.event_settings = configuration, settings

    def _on_eviction(self, eviction: EvictionState) -> None:
        self.model.evictions.append(eviction)
        counts = self.model.evicted
        counts[eviction.law] = counts.get(eviction.law, 0) + 1
        self.changes.evictions += 1
        victim = self.model.applications.get(eviction.application_id)
        owner = (victim.summary.user, victim.summary.group) if victim else ("", "")
        self.hour.note_eviction(eviction.queue_name, *owner)

    def _on_pods_held(self, held: PodsHeld) -> None:
        if held.held:
            self.model.pods_held[held.application_id] = held
        else:
            self.model.pods_held.pop(held.application_id, None)

    def _on_queue(self, queue: QueueState) -> None:
        self.changes.note_queue(queue.path)
        before = self.model.queues.get(queue.path)
        if before is None and self._last is not None:
            before = self._last.queues.get(queue.path)
        if queue.removed:
            self.model.queues.pop(queue.path, None)
            self.model.refusals.pop(queue.path, None)
            self.model.types_seen.pop(queue.path, None)
        else:
            self.model.queues[queue.path] = queue
            self._see_types(queue)
        if not queue.tells_refusals:  # a core of before, which says all of them with each change
            by_asks = {waiting.asks: waiting for waiting in queue.waiting}
            self.model.refusals[queue.path] = Refusals(by_asks)
        events = queue_events(before, queue, self.model.time_ns)
        self._append_events(events, (EventType.QUEUE, queue.path), is_gone=queue.removed)

    def _see_types(self, queue: QueueState) -> None:
        """Remember the resource types of a queue: their gauges stay, at 0 if need be."""
        seen = self.model.types_seen.setdefault(queue.path, {})
        for what, amount in changing_amounts(queue):
            seen.setdefault(what, {}).update(dict.fromkeys(amount))

    def _on_refusal(self, refusal: RefusalState) -> None:
        self.changes.note_queue(refusal.path)
        self.model.refusals.setdefault(refusal.path, Refusals()).set(refusal.asks, refusal.why)

    def _append_events(
        self, events: Iterator[EventState], row: tuple[EventType, str], *, is_gone: bool
    ) -> None:
        """Append events; those of a removed row follow after everything that was on it.

        Events of a new row of the same name follow after that.
        """
        if is_gone:
            self._gone[row] = None
        if row in self._gone:
            self._going += events
        else:
            for event in events:
                self.model.events.add(event)

    def _on_event(self, event: EventState) -> None:
        view = None
        if event.type == EventType.USERGROUP:  # limits, before the users that they concern
            self.model.events.add(event)
            return
        if event.type == EventType.APP and event.change_detail in RUNNABLE_DETAILS:
            view = self.model.applications.get(event.object_id)
        elif event.type == EventType.REQUEST:  # why it waits, before what it gets
            view = self.model.applications.get(event.reference_id)
        if view is not None:
            self._news_of(view).said.append(event)
        else:
            self._said.append(event)

    def _on_user(self, user: UserState) -> None:
        table = self.model.groups if user.is_group else self.model.users
        if user.removed:
            table.pop(user.name, None)
            return
        view = table.get(user.name)
        if view is None or not user.is_partial:
            view = table[user.name] = UserView(user.name)
        for usage in user.queues:
            if usage.removed:
                view.usage.pop(usage.path, None)
            else:
                view.usage[usage.path] = usage

    def _on_node(self, node: NodeState) -> None:
        name = node.node_id
        self.changes.note_node(name)
        view = self.model.nodes.get(name)
        before = view if view is not None or self._last is None else self._last.nodes.get(name)
        events = node_events(before.state if before else None, node, self.model.time_ns)
        self._append_events(events, (EventType.NODE, name), is_gone=node.removed)
        if node.removed and view is not None:
            self._nodes_gone[name] = self.model.nodes.pop(name)
            self.model.nodes_gone += 1
        elif view is not None:
            view.state, view.written = node, None
        elif not node.removed:
            self.model.nodes[name] = NodeView(node)

    def _on_application(self, summary: ApplicationSummary) -> None:
        name = summary.application_id
        view = self.model.applications.get(name)
        if view is not None and view.summary.submission == summary.submission:
            before, view.summary, view.written = view.summary, summary, None
            self._note(view, before, len(before.state_log))
        elif view is None or int(summary.submission) > int(view.summary.submission):
            if view is not None:
                self._superseded[name] = view
                self._retire(view.summary)
            last = self._last.applications.get(name) if self._last is not None else None
            view = self.model.applications[name] = ApplicationView(summary)
            if last is not None:  # known from before a snapshot: only where it stands is news
                view.gone, view.steps, view.known_ns = last.gone, last.steps, last.known_ns
                same = last.summary.state == summary.state
                self._note(view, last.summary, len(summary.state_log) - (not same))
            else:
                view.known_ns = self.model.time_ns if self._last is not None else 0
                self._note(view, None, 0)
        self.changes.note_application(self.model.applications[name])
        self._stepped[name] = None

    def _note(self, view: ApplicationView, before: ApplicationSummary | None, known: int) -> None:
        """Record what is new in an application; ``known`` entries of its state log are not."""
        summary = view.summary
        states = summary.state_log[known:]
        group = before.group if before is not None else ""
        if before is None or states or summary.group != group:
            news = self._news_of(view)
            news.is_new = news.is_new or before is None
            news.states += states
            news.group_before = group
            if before is not None:
                news.regrouped(before)
            news.has_left = summary.state in ENDED

    def _news_of(self, view: ApplicationView) -> ApplicationNews:
        summary = view.summary
        key = (summary.application_id, summary.submission)
        news = self._news.get(key)
        if news is None:
            news = ApplicationNews(summary, self.model.time_ns, group_before=summary.group)
            self._news[key] = news
        news.summary = summary
        return news

    def _retire(self, summary: ApplicationSummary) -> None:
        view = self.model.applications.get(summary.application_id)
        if view is None or view.summary.submission != summary.submission:
            return
        del self.model.applications[summary.application_id]
        self.changes.note_application(view)
        name = (summary.application_id, f"{self.epoch}.{summary.submission}")
        self.ended.add(self.model, name, view)

    # --- asks and allocations -----------------------------------------------------------------

    def _view_of(
        self, application_id: str, key: str, *, is_removed: bool
    ) -> ApplicationView | None:
        """Return the application of an ask or allocation; of two submissions, its own."""
        view = self.model.applications.get(application_id)
        if is_removed and self._superseded:
            older = self._superseded.get(application_id)
            if older is not None and (key in older.asks or key in older.allocations):
                return older
        return view

    def _known(self, view: ApplicationView) -> ApplicationView:
        """Return an application as it was before the current snapshot, if it was known."""
        last = self._last.applications.get(view.summary.application_id) if self._last else None
        return last or view

    def _on_ask(self, told: "_ToldAsk") -> None:
        ask, key, application_id, resource, is_removed, why = told
        view = self._view_of(application_id, key, is_removed=is_removed)
        if view is None:
            return
        self.changes.note_application(view)
        self._stepped[application_id] = None
        view.written = None
        known = self._known(view)
        if key not in known.asks and key not in known.swapping:
            self._note_return(view, key)
            self._news_of(view).ask_added(key, resource)
        view.swapping.pop(key, None)
        if ask is not None and not is_removed:
            view.asks[key] = ask
            return
        view.asks.pop(key, None)
        if why:
            self._news_of(view).ask_ended(key, resource, why)
        else:
            view.swapping[key] = None

    def _note_return(self, view: ApplicationView, key: str) -> None:
        """Record that an allocation became an ask again, because it could not be bound."""
        allocation = view.allocations.pop(key, None)
        if allocation is not None:
            self._leave(allocation)
            self._returned[key] = None
            self._count_attempt(view, "released")
            self._count_attempt(view, "error")
            self._news_of(view).allocation_returned(allocation)

    def _on_allocation(self, allocation: AllocationState) -> None:
        key = allocation.allocation_key
        view = self._view_of(allocation.application_id, key, is_removed=allocation.removed)
        node = self.model.nodes.get(allocation.node_id)
        before = view.allocations.get(key) if view is not None else None
        self.changes.note_node(allocation.node_id)
        if view is not None:
            self.changes.note_application(view)
            self._stepped[allocation.application_id] = None
            view.written = None
            self._note_allocation(view, allocation)
        elif allocation.is_foreign:
            self._note_foreign(allocation)
        if before is not None and before.node_id != allocation.node_id:
            self._leave(before)
        if node is not None:
            node.written = None
        for allocations in (
            view.allocations if view is not None else None,
            _shelf(node, allocation) if node is not None else None,
        ):
            if allocations is None:
                continue
            if allocation.removed:
                allocations.pop(key, None)
            else:
                allocations[key] = allocation

    def _leave(self, allocation: AllocationState) -> None:
        """Remove an allocation from its node."""
        self.changes.note_node(allocation.node_id)
        node = self.model.nodes.get(allocation.node_id)
        if node is not None:
            node.written = None
            node.allocations.pop(allocation.allocation_key, None)

    def _note_allocation(self, view: ApplicationView, allocation: AllocationState) -> None:
        """Record what is new of an application's allocation."""
        key = allocation.allocation_key
        before = self._known(view).allocations.get(key)
        view.swapping.pop(key, None)
        if allocation.removed and key in self._returned:
            return
        if before is None:
            self._count_attempt(view, "allocated")
            self._news_of(view).allocation_added(allocation)
        elif before.resource != allocation.resource and not allocation.removed:
            self._news_of(view).resized(before, allocation)
        if allocation.removed:
            self._count_attempt(view, "released")
            if not allocation.placeholder:
                view.gone[allocation.why] = view.gone.get(allocation.why, 0) + 1
            self._news_of(view).allocation_ended(allocation)

    def _count_attempt(self, view: ApplicationView, result: str) -> None:
        """Count the result of an allocation, in total and for its queue."""
        counts, key = self.model.attempts, (view.summary.queue_name, result)
        counts[result] = counts.get(result, 0) + 1
        own = self.model.queue_attempts
        own[key] = own.get(key, 0) + 1

    def _note_foreign(self, foreign: AllocationState) -> None:
        """Append the event of an added or removed pod of another scheduler."""
        key, name = foreign.allocation_key, foreign.node_id
        nodes = self._last.nodes if self._last is not None else self.model.nodes
        here = (nodes.get(name), self._nodes_gone.get(name))
        time_ns = self.model.time_ns
        if all(node is None or key not in node.foreign for node in here):
            self._said.append(foreign_event(foreign, time_ns, is_added=True))
        if foreign.removed:
            self._said.append(foreign_event(foreign, time_ns, is_added=False))


_ToldAsk = tuple[AskState | None, str, str, Mapping[str, int], bool, str]


def _asks_in(delta: StateDelta) -> Iterator[_ToldAsk]:
    """Yield each ask with its columns; if all were removed, no records are made."""
    asks = delta.asks
    kept = [None] * len(asks) if all(values_of(asks, "removed")) else asks
    names = ("allocation_key", "application_id", "resource", "removed", "why")
    return zip(kept, *(values_of(asks, name) for name in names), strict=True)


def _was(summary: ApplicationSummary, state: ApplicationState) -> bool:
    return any(change.state == state for change in summary.state_log)


def _shelf(node: NodeView, allocation: AllocationState) -> dict[str, AllocationState]:
    """Return the table of a node for an allocation; foreign ones have a separate one."""
    return node.foreign if allocation.is_foreign else node.allocations
