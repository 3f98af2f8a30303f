"""From state events to the read model, and from the tap to the stories of applications.

Rule 1: events are applied in order of ``seq``; on a gap, or with nothing at all, a snapshot is
        asked for, and until it comes the last good model stands.
Rule 2: events of a lower epoch are refused; a higher epoch starts with a snapshot.
Rule 3: ended applications outlive a snapshot: the core forgets them, people do not.

Limits: MAX_ENDED ended applications, MAX_STORY records an application, MAX_STORIES applications;
the oldest go first.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from services.api.projection.model import ApplicationView, Model, NodeView
from shared.messages.envelope import CORE, Envelope, Outgoing
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    NodeState,
    PartitionState,
    QueueState,
    SnapshotRequest,
    StateDelta,
    UserState,
)
from shared.messages.trace import TraceRecord, TraceRecords
from shared.model.states import ENDED, ApplicationState
from shared.model.units import seconds

MAX_ENDED = 10_000
MAX_STORIES = 2_000
MAX_STORY = 2_000
ASK_AGAIN_NS = seconds(10)


_RESULTS = (("accepted", ApplicationState.ACCEPTED), ("rejected", ApplicationState.REJECTED))


class Projection:
    """The read model of one API replica."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.model = Model()
        self.is_ready = False
        self.epoch = 0
        self.seq = 0
        self.stories: dict[str, deque[TraceRecord]] = {}
        self._asked_ns = 0

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Take an event in; ask for a snapshot where one is needed."""
        match envelope.message:
            case StateDelta() as delta:
                self._on_delta(envelope, delta)
            case TraceRecords(records):
                for record in records:
                    self._remember(record)
            case _:
                pass
        if self.is_ready or (self._asked_ns and now_ns - self._asked_ns < ASK_AGAIN_NS):
            return []
        self._asked_ns = max(now_ns, 1)
        request = SnapshotRequest(self.instance)
        return [Outgoing(CORE, request, correlation_id="recovery", asked_by=self.instance)]

    # --- state ----------------------------------------------------------------------------------

    def _on_delta(self, envelope: Envelope, delta: StateDelta) -> None:
        if envelope.epoch < self.epoch:
            return
        if delta.reset:
            self._start_over(envelope)
        elif envelope.epoch > self.epoch or envelope.seq > self.seq + 1:
            self.is_ready = False
            self._asked_ns = 0
            return
        elif not self.is_ready or envelope.seq < self.seq:
            return
        self.seq = envelope.seq
        if not delta.reset:
            self._count_submissions(delta)
        self._apply(delta)

    def _start_over(self, envelope: Envelope) -> None:
        """Begin a snapshot; its later parts have the same epoch and seq, and go on with it."""
        last = self.model
        self.model = Model(
            ended=last.ended,
            events=last.events,
            submissions=last.submissions,
            ended_counts=last.ended_counts,
        )
        self.epoch = envelope.epoch
        self.is_ready = True
        self._asked_ns = 0

    def _count_submissions(self, delta: StateDelta) -> None:
        """Count submissions when they are told of first, and what becomes of each once."""
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
        handlers: tuple[tuple[tuple[Any, ...], Callable[[Any], None]], ...] = (
            (delta.partitions, self._on_partition),
            (delta.queues, self._on_queue),
            (delta.nodes, self._on_node),
            (delta.applications, self._on_application),
            (delta.asks, self._on_ask),
            (delta.allocations, self._on_allocation),
            (delta.users, self._on_user),
            (delta.events, self.model.events.add),
        )
        for items, handler in handlers:
            for item in items:
                handler(item)
        for summary in delta.applications:
            if summary.state in ENDED:
                self._retire(summary)

    def _on_partition(self, partition: PartitionState) -> None:
        self.model.partition = partition

    def _on_queue(self, queue: QueueState) -> None:
        if queue.removed:
            self.model.queues.pop(queue.path, None)
        else:
            self.model.queues[queue.path] = queue

    def _on_user(self, user: UserState) -> None:
        table = self.model.groups if user.is_group else self.model.users
        if user.removed:
            table.pop(user.name, None)
        else:
            table[user.name] = user

    def _on_node(self, node: NodeState) -> None:
        if node.removed:
            self.model.nodes.pop(node.node_id, None)
        elif node.node_id in self.model.nodes:
            self.model.nodes[node.node_id].state = node
        else:
            self.model.nodes[node.node_id] = NodeView(node)

    def _on_application(self, summary: ApplicationSummary) -> None:
        view = self.model.applications.get(summary.application_id)
        if view is not None and view.summary.submission == summary.submission:
            view.summary = summary
        elif view is None or int(summary.submission) > int(view.summary.submission):
            if view is not None:
                self._retire(view.summary)
            self.model.applications[summary.application_id] = ApplicationView(summary)

    def _retire(self, summary: ApplicationSummary) -> None:
        view = self.model.applications.get(summary.application_id)
        if view is None or view.summary.submission != summary.submission:
            return
        del self.model.applications[summary.application_id]
        key = (summary.queue_name, summary.state)
        self.model.ended_counts[key] = self.model.ended_counts.get(key, 0) + 1
        ended = self.model.ended
        ended[summary.application_id, f"{self.epoch}.{summary.submission}"] = view
        if len(ended) > MAX_ENDED:
            del ended[next(iter(ended))]

    def _on_ask(self, ask: AskState) -> None:
        view = self.model.applications.get(ask.application_id)
        if view is None:
            return
        if ask.removed:
            view.asks.pop(ask.allocation_key, None)
        else:
            view.asks[ask.allocation_key] = ask

    def _on_allocation(self, allocation: AllocationState) -> None:
        key = allocation.allocation_key
        view = self.model.applications.get(allocation.application_id)
        node = self.model.nodes.get(allocation.node_id)
        before = view.allocations.get(key) if view is not None else None
        if before is not None and before.node_id != allocation.node_id:
            moved_from = self.model.nodes.get(before.node_id)
            if moved_from is not None:
                moved_from.allocations.pop(key, None)
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

    # --- stories --------------------------------------------------------------------------------

    def _remember(self, record: TraceRecord) -> None:
        for name in record.applications:
            story = self.stories.get(name)
            if story is None:
                if len(self.stories) >= MAX_STORIES:
                    del self.stories[next(iter(self.stories))]
                story = self.stories[name] = deque(maxlen=MAX_STORY)
            story.append(record)

    def story(self, application_id: str) -> list[TraceRecord]:
        """Return an application's records in the order in which things happened."""
        records = self.stories.get(application_id, ())
        return sorted(records, key=lambda record: record.published_ns + record.queued_ns)


def _was(summary: ApplicationSummary, state: ApplicationState) -> bool:
    return any(change.state == state for change in summary.state_log)


def _shelf(node: NodeView, allocation: AllocationState) -> dict[str, AllocationState]:
    """Return where a node keeps an allocation: those of other schedulers apart."""
    return node.foreign if allocation.is_foreign else node.allocations
