"""What-if: would applications start now, where, and which pods would be evicted for them.

Rule 1: the supposed changes are made: applications submitted, nodes added, a configuration applied,
        by the same intake as usual. Then the cycle runs, and what it placed is the answer.
        Everything is undone afterwards.
Rule 2: if asks still wait, the clock moves to when the last of them may preempt, and the victims
        are those of the policy's own search. Queues over their max evict last.
Rule 3: all pods of a drained node end, except those that require it, and are asked for again.
Rule 4: for submitted applications that would wait, and for waiting ones that are named, the
        expected start is computed (``expected_start.py``).
Rule 5: a what-if may suppose several changes. They are made in this order: queues, added nodes,
        deleted applications, the drained node, submitted applications; then one cycle runs.
Limits: MAX_STEPS decisions of the cycle; the answer tells what was not tried. MAX_LOOKS searches
for victims. MAX_PLACES places, MAX_TOLD applications and as many queues in the answer.
"""

from dataclasses import dataclass, field, replace
from operator import attrgetter

from services.core.scheduler.actions import cycle, quota_preemption, starvation_guard
from services.core.scheduler.intake import configurations, updates
from services.core.scheduler.intake.nodes import update_nodes
from services.core.scheduler.model.preemptors import due_at
from services.core.scheduler.model.rows import Application, AskGroup, Claim, Node, Purpose
from services.core.scheduler.model.settings import YUNIKORN
from services.core.scheduler.ordering import queueing
from services.core.scheduler.policies import preemption
from services.core.scheduler.policies.expected_start import NOW, Start, expected
from services.core.scheduler.policies.what_if_queues import changes, configured
from services.core.scheduler.queues.tree import PartitionConfig
from services.core.scheduler.statement.journal import (
    ApplicationRejected,
    AskRejected,
    ClaimChanged,
    ClaimEnded,
    ClaimMade,
    Preempted,
)
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.tentative import tentative
from shared.messages.conversions import ask_of
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateRequest,
)
from shared.messages.what_if import (
    Forecast,
    ForecastApplication,
    ForecastPlace,
    ForecastQueue,
    ForecastVictim,
    WhatIf,
)
from shared.model.names import POD_NAME_TAG
from shared.model.reasons import EvictionCause, Fact, Kind, Reason, Refusal
from shared.model.sentences import fact_text, text_of
from shared.model.states import ApplicationState

MAX_STEPS = 5_000
MAX_LOOKS = 100
MAX_PLACES = 1_000
MAX_TOLD = 200
MAX_ADDED = 1_000
_PARTS = 1_000_000  # unit of a capacity relative to the largest
_MAY_START = (ApplicationState.ACCEPTED, ApplicationState.RUNNING)
_NOT_TRIED = Refusal(Reason.NO_NODE_FITS, Fact(Kind.NOT_TRIED, count=MAX_STEPS))
_ROOM_WOULD_HELP = (Reason.QUEUE_QUOTA, Reason.NO_NODE_FITS, Reason.GANG_HEADROOM)


class UnansweredError(ValueError):
    """A what-if has no forecast; the message says why."""


@dataclass(slots=True, eq=False)
class _Asked:
    """An application in the answer: its asks, and their results."""

    application: Application
    asks: dict[str, AllocationAsk]
    is_new: bool = False
    had: frozenset[str] = frozenset()  # keys of its earlier allocations
    placed: list[Allocation] = field(default_factory=list)
    after_evictions: list[Claim] = field(default_factory=list)
    why_not: Refusal | None = None
    start: Start = NOW

    @property
    def would_room_help(self) -> bool:
        """Whether its waiting asks lack capacity."""
        return self.why_not is not None and self.why_not.reason in _ROOM_WOULD_HELP


def forecast(
    partition: Partition, question: WhatIf, config: PartitionConfig | None = None
) -> Forecast:
    """Return the forecast of a what-if. The partition is unchanged afterwards.

    ``config`` is the configuration that it supposes.
    """
    with tentative(partition):
        try:
            return _Forecaster(partition).answer(question, config)
        except UnansweredError as error:
            return Forecast(done=False, message=str(error))


class _Forecaster:
    """One forecast, on a partition that is restored afterwards."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._start = len(partition.journal)
        self._asked: dict[str, _Asked] = {}
        self._rejected: list[ForecastApplication] = []
        self._queues: list[ForecastQueue] = []
        self._drained: set[str] = set()  # keys of the pods of the drained node
        self._like = ""  # the node that added ones are copies of
        self._left = MAX_STEPS  # remaining decisions
        self._is_cut_short = False

    def answer(self, question: WhatIf, config: PartitionConfig | None) -> Forecast:
        """Return the forecast of a what-if. Raises UnansweredError."""
        self._apply(question, config)
        self._run()
        self._is_cut_short = self._left <= 0
        for asked in self._asked.values():
            self._read(asked)
        waiting = [asked for asked in self._asked.values() if asked.why_not is not None]
        new = [asked for asked in waiting if asked.is_new]
        victims: list[ForecastVictim] = []
        if config is not None or new:
            with tentative(self._partition):
                victims = self._victims(waiting if config is not None else new)
                victims += self._over_maxima() if config is not None else []
        names = question.when
        timed = [asked for asked in waiting if asked.is_new or asked.application.id in names]
        if timed:
            self._expect(timed)
        return self._forecast(question, victims)

    def _apply(self, question: WhatIf, config: PartitionConfig | None) -> None:
        """Make the supposed changes (rule 5). Raises UnansweredError."""
        if config is not None:
            self._configure(config)
        self._ask_when(question.when)
        if question.add_nodes:
            self._add_nodes(question.add_nodes, question.like)
        for name in question.delete:
            self._delete(name)
        if question.drain:
            self._drain(question.drain)
        if config is not None or question.add_nodes or question.delete:
            self._ask_of_all_waiting()
        self._submit(question)

    def _forecast(self, question: WhatIf, victims: list[ForecastVictim]) -> Forecast:
        told = [*map(_application_forecast, self._asked.values()), *self._rejected]
        told.sort(key=lambda item: not (item.is_new or item.placed))
        return Forecast(
            done=True,
            message=self._unsaid(victims),
            applications=tuple(told[:MAX_TOLD]),
            victims=tuple(victims[:MAX_PLACES]),
            queues=tuple(self._queues[:MAX_TOLD]),
            refused=question.refused,
            like=self._like,
            drained=len(self._drained),
            moved=sum(
                each.allocation_key in self._drained
                for asked in self._asked.values()
                for each in asked.placed
            ),
        )

    def _unsaid(self, victims: list[ForecastVictim]) -> str:
        """Return what the forecast does not cover, "" if nothing."""
        open_: list[str] = []
        if self._is_cut_short:
            open_.append(f"not all was tried: a forecast takes {MAX_STEPS} steps")
        if any(victim.law == EvictionCause.QUOTA for victim in victims):
            open_.append("who would start in the room that queues over their max leave is not told")
        return "; ".join(open_)

    # --- the supposed changes -------------------------------------------------------------------

    def _ask_of_all_waiting(self) -> None:
        for application in self._partition.in_order_asking():
            if application.state in _MAY_START:
                asks = {ask.key: ask.request for ask in application.asks()}
                self._ask_of(application, asks)

    def _ask_when(self, names: tuple[str, ...]) -> None:
        """Include existing applications in the answer."""
        for name in names:
            application = self._partition.applications.get(name)
            if application is None:
                raise UnansweredError(f"there is no application {name!r}")
            self._ask_of(application, {ask.key: ask.request for ask in application.asks()})

    def _ask_of(
        self, application: Application, asks: dict[str, AllocationAsk], *, is_new: bool = False
    ) -> None:
        preempted = {k for k, held in application.reservations.items() if held.has_preempted}
        had = frozenset((*application.allocations, *preempted))
        self._asked[application.id] = _Asked(application, asks, is_new, had)

    def _submit(self, question: WhatIf) -> None:
        """Submit applications with their asks; rejected ones are recorded."""
        partition = self._partition
        known = {*partition.applications}
        for request in question.applications:
            self._take_in(UpdateRequest(partition.rm_id, new_applications=(request,)))
        for entry in self._news():
            if isinstance(entry, ApplicationRejected):
                name = entry.request.application_id
                path = entry.queue.path if entry.queue else entry.request.queue_name
                why = fact_text(entry.fact) if entry.fact is not None else entry.reason
                told = ForecastApplication(name, path, 0, 0, is_new=True, rejected=why)
                self._rejected.append(told)
        names = [request.application_id for request in question.applications]
        for name in dict.fromkeys(names):
            application = partition.applications.get(name)
            if application is not None and name not in known:
                own = (ask for ask in question.asks if ask.application_id == name)
                self._ask_of(application, {ask.allocation_key: ask for ask in own}, is_new=True)
        asks = tuple(ask for ask in question.asks if ask.application_id in self._asked)
        self._take_in(UpdateRequest(partition.rm_id, asks=asks))

    def _add_nodes(self, count: int, like: str) -> None:
        if count > MAX_ADDED:
            raise UnansweredError(f"at most {MAX_ADDED} nodes are added, found {count}")
        model = self._partition.nodes.nodes.get(like) if like else self._largest()
        if model is None:
            which = f"no node {like!r}" if like else "no node yet"
            raise UnansweredError(f"there is {which} to add nodes like")
        like = self._like = model.node_id
        names = [f"{like}+{number}" for number in range(1, count + 1)]
        added = (
            NodeInfo(
                name,
                NodeAction.CREATE,
                model.capacity,
                model.attributes,
                {key: name if value == like else value for key, value in model.labels.items()},
                model.taints,
                model.volume_limits,
            )
            for name in names
        )
        update_nodes(self._partition, added)

    def _largest(self) -> Node | None:
        """Return the first node of the largest kind: by the sum of relative capacities."""
        nodes = self._partition.nodes.nodes.values()
        most: dict[str, int] = {}
        for node in nodes:
            for name, amount in node.capacity.items():
                most[name] = max(amount, most.get(name, 0))

        def size(node: Node) -> int:
            held = ((most[name], amount) for name, amount in node.capacity.items())
            return sum(_PARTS * amount // largest for largest, amount in held if largest)

        return max(sorted(nodes, key=attrgetter("node_id")), key=size, default=None)

    def _delete(self, name: str) -> None:
        if name not in self._partition.applications:
            raise UnansweredError(f"there is no application {name!r} to delete")
        self._take_in(
            UpdateRequest(
                self._partition.rm_id, remove_applications=(RemoveApplicationRequest(name),)
            )
        )

    def _configure(self, config: PartitionConfig) -> None:
        before = configured(self._partition)
        error = configurations.take(self._partition, config)
        if error:
            raise UnansweredError(error)
        self._queues = changes(self._partition, before)

    def _drain(self, name: str) -> None:
        """Close a node, end its pods, and ask for them again."""
        partition = self._partition
        node = partition.nodes.nodes.get(name)
        if node is None:
            raise UnansweredError(f"there is no node {name!r} to drain")
        update_nodes(partition, (NodeInfo(name, NodeAction.DRAIN_NODE),))
        again: dict[Application, dict[str, AllocationAsk]] = {}
        for key, allocation in [*node.allocations.items()]:
            owner = partition.applications.get(allocation.application_id)
            may_go = not allocation.constraints.required_node
            if owner is not None and may_go and key in owner.allocations.keys() - owner.released:
                ask = replace(ask_of(allocation), create_time_ns=0)
                self._drained.add(key)
                again.setdefault(owner, {})[key] = ask
                self._end(allocation)
        for owner, asks in again.items():
            self._ask_of(owner, asks)
            self._take_in(UpdateRequest(partition.rm_id, asks=tuple(asks.values())))

    def _end(self, allocation: Allocation) -> None:
        why = TerminationType.STOPPED_BY_RM
        name, key = allocation.application_id, allocation.allocation_key
        updates.release_allocation(self._partition, AllocationRelease(name, key, why))

    def _take_in(self, request: UpdateRequest) -> None:
        updates.update_applications(self._partition, request)

    # --- the cycle ------------------------------------------------------------------------------

    def _run(self) -> int:
        """Run the cycle until it has nothing to decide; return its number of decisions."""
        partition, before, is_cut = self._partition, self._left, True
        partition.failed_searches.changed()
        starvation_guard.update(partition)
        while is_cut and self._left > 0:
            made, is_cut = cycle.run(partition)
            self._left -= made
        return before - self._left

    def _read(self, asked: _Asked) -> None:
        """Read an application's new allocations, and why the rest waits."""
        held = asked.application.allocations.items()
        asked.placed = [each for key, each in held if key in asked.asks and key not in asked.had]
        asked.after_evictions = _preempting(asked)
        if len(asked.placed) < len(asked.asks):
            asked.why_not = self._why_not(asked)

    def _why_not(self, asked: _Asked) -> Refusal:
        application = asked.application
        if application.refusal is not None:
            return application.refusal
        waiting = [group for group in application.groups.values() if group.asks]
        for group in sorted(waiting, key=_head_order):
            refusal = queueing.hold(application, group) or group.bucket.refusal
            if refusal is not None:
                return refusal
        for entry in self._news():
            if isinstance(entry, AskRejected) and entry.item.application_id == application.id:
                return Refusal(Reason.POD_REFUSED, Fact(Kind.WORDS, text=entry.reason))
        if waiting and not self._is_cut_short:
            return self._partition.nodes.room.refusal(waiting[0].bucket.shape)
        return _NOT_TRIED

    # --- later ----------------------------------------------------------------------------------

    def _victims(self, waiting: list[_Asked]) -> list[ForecastVictim]:
        """Return the victims for waiting applications, once these may preempt."""
        partition = self._partition
        if any(asked.would_room_help for asked in waiting):
            _pass_time(partition, max(_due_ns(partition, asked.application) for asked in waiting))
            for _ in range(MAX_LOOKS):
                seen = len(partition.journal)
                preemption.begin_pass(partition)
                preemption.finish(partition)
                self._run()
                made = partition.journal.since(seen)
                if not any(map(_may_help, made)):
                    break
        for asked in waiting:
            asked.after_evictions = _preempting(asked)
        return [told for told in self._evicted() if told.winner in self._asked]

    def _over_maxima(self) -> list[ForecastVictim]:
        """Return the victims of queues over their max, when quotas are enforced."""
        partition = self._partition
        _pass_time(partition, max(queue.quota_due_ns for queue in partition.queues.values()))
        quota_preemption.enforce(partition)
        return [told for told in self._evicted() if told.law == EvictionCause.QUOTA]

    def _evicted(self) -> list[ForecastVictim]:
        return [_victim(entry) for entry in self._news() if isinstance(entry, Preempted)]

    def _expect(self, waiting: list[_Asked]) -> None:
        """Set the expected starts of waiting applications."""
        self._left = 2 * MAX_STEPS
        asks = {asked.application: [*asked.asks] for asked in waiting}
        starts = expected(self._partition, asks, self._run, self._left)
        for asked in waiting:
            asked.start = starts[asked.application]

    def _news(self) -> list[object]:
        """Return the journal entries of the forecast."""
        return self._partition.journal.since(self._start)


def _pass_time(partition: Partition, at_ns: int) -> None:
    if at_ns > partition.now_ns:
        partition.pass_time(at_ns)


def _due_ns(partition: Partition, application: Application) -> int:
    """Return when all waiting asks of an application may preempt."""
    if partition.settings.policy != YUNIKORN:
        return partition.preemption_due_ns
    delay_ns = application.queue.settings.preemption_delay_ns
    asks = [due_at(ask, delay_ns) for ask in application.asks()]
    return max(application.refused_since_ns + delay_ns, partition.preemption_due_ns, *asks)


def _may_help(entry: object) -> bool:
    """Whether a journal entry of a search may help waiting asks: an eviction or an admission."""
    if isinstance(entry, ClaimMade | ClaimChanged | ClaimEnded):
        return entry.claim.purpose is Purpose.GANG
    return isinstance(entry, Preempted)


def _preempting(asked: _Asked) -> list[Claim]:
    """Return the new reservations of asks that have preempted."""
    held = asked.application.reservations.items()
    new = [(key, each) for key, each in held if each.has_preempted and key not in asked.had]
    return [each for key, each in new if key in asked.asks]


def _head_order(group: AskGroup) -> tuple[int, ...]:
    head = group.head()
    assert head is not None
    return head.order


def _application_forecast(asked: _Asked) -> ForecastApplication:
    application, refusal = asked.application, asked.why_not
    places = [(each.allocation_key, each.node_id) for each in asked.placed]
    places += [(held.ask.key, held.node.node_id) for held in asked.after_evictions]
    return ForecastApplication(
        application.id,
        application.queue.path,
        len(asked.asks),
        len(asked.placed),
        after_evictions=len(asked.after_evictions),
        is_gang=application.is_gang,
        is_new=asked.is_new,
        reason=refusal.reason if refusal is not None else "",
        message=text_of(refusal) if refusal is not None else "",
        expected_start_ns=asked.start.at_ns,
        no_start=asked.start.why,
        latest_start_ns=asked.start.most_ns,
        no_start_before_ns=asked.start.at_least_ns,
        places=tuple(
            ForecastPlace(key, asked.asks[key].allocation_tags.get(POD_NAME_TAG, ""), node_id)
            for key, node_id in places[:MAX_PLACES]
        ),
    )


def _victim(entry: Preempted) -> ForecastVictim:
    gone = entry.allocation
    return ForecastVictim(
        gone.allocation_key,
        gone.allocation_tags.get(POD_NAME_TAG, ""),
        gone.application_id,
        gone.node_id,
        entry.cause,
        entry.winner.id if entry.winner is not None else "",
    )
