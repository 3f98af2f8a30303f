"""The core's state machine: messages in, messages out, no I/O.

The host calls ``handle`` for each message and ``flush`` after each batch; ``flush`` runs one
scheduling cycle and returns the outgoing messages, so that a burst is scheduled and reported once.

Recovery (ARCHITECTURE.md, "Recovery"): until SyncEnd nothing is scheduled. A SyncBegin whose epoch
is not lower starts an empty partition; messages of lower epochs are refused. The core sends
SyncRequest again if a recovery stalls or if the resource manager uses a lower epoch: the answer
has a higher epoch than the request. Epochs above MAX_EPOCH are ignored, because no epoch could
follow them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from services.core.scheduler.actions import (
    cycle,
    gang,
    live_actions,
    removed_partition,
    starvation_guard,
    usage_reports,
)
from services.core.scheduler.intake import allocations, configurations, nodes, updates
from services.core.scheduler.lifecycle import endings
from services.core.scheduler.model.hooks import Find, PluginError, Report, registered
from services.core.scheduler.model.policy import Register
from services.core.scheduler.model.rows import Application, depth_first
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.model.timings import UNTIMED, Timings
from services.core.scheduler.ordering import queueing
from services.core.scheduler.policies import firing, preemption
from services.core.scheduler.policies.questions import RECOVERING, Questions, refused
from services.core.scheduler.queues.tree import PartitionConfig
from services.core.scheduler.report import placed
from services.core.scheduler.report.builder import ReportBuilder
from services.core.scheduler.report.views import (
    allocation_state,
    application_summary,
    ask_state,
    configuration_state,
    node_state,
    partition_state,
    queue_state,
    refusals_in,
    user_state,
)
from services.core.scheduler.statement import usage_moves
from services.core.scheduler.statement.existing import Existing
from services.core.scheduler.statement.journal import (
    ConfigurationRefused,
    NotSent,
    PartitionChanged,
    TimePassed,
)
from services.core.scheduler.statement.partition import COMPLETING_TIMEOUT_MS, Partition
from shared.messages.columns import joined
from shared.messages.envelope import (
    API_ALL,
    SHIM_ADAPTER,
    Address,
    Envelope,
    Outgoing,
    core_of,
    timers_of,
)
from shared.messages.interface import (
    ConfigurationResult,
    UpdateConfiguration,
    UpdateRequest,
)
from shared.messages.protocol import (
    MAX_EPOCH,
    ContinueCycle,
    Heartbeat,
    SyncBegin,
    SyncEnd,
    SyncRequest,
    Tick,
    TimerFirings,
    TimerKind,
    TimerSyncRequest,
)
from shared.messages.state import AllocationState, ApplicationSummary, SnapshotRequest, StateDelta
from shared.messages.what_if import WhatIf
from shared.model.checksum import checksum_of
from shared.model.names import DEFAULT_PARTITION
from shared.model.resources import is_zero
from shared.model.service_keys import is_handed_on
from shared.model.states import ApplicationEvent, ApplicationState
from shared.model.units import milliseconds, seconds

ASK_AGAIN_NS = seconds(10)
# Messages that cannot change the result of a search for victims; for timer firings see ``firing``.
_CHANGING_NOTHING = (
    ContinueCycle,
    Heartbeat,
    SnapshotRequest,
    Tick,
    TimerFirings,
    TimerSyncRequest,
    WhatIf,
)
ParseConfig = Callable[[str], PartitionConfig]


class ConfigurationError(ValueError):
    """A queue configuration is invalid; the message says where and why."""


def _no_plugin(name: str) -> Register:
    raise PluginError(name, "there are none")


class Scheduler:
    """The scheduler of one partition, ``name``.

    ``parse`` returns the configuration in a queues.yaml text, or raises ConfigurationError;
    ``find`` returns the plugin of a name, or raises PluginError; ``report`` receives errors of
    plugins; ``questions`` answers what-ifs. They are passed in because the scheduler itself is
    pure. Without ``has_readers`` no state events are published, and no timer is armed for a report
    only; the decisions are the same.
    """

    recovers = True  # the resource manager sends everything (ARCHITECTURE.md, "Recovery")

    def __init__(
        self,
        core_id: str,
        parse: ParseConfig,
        find: Find = _no_plugin,
        report: Report = lambda _: None,
        timings: Timings = UNTIMED,
        *,
        name: str = DEFAULT_PARTITION,
        has_readers: bool = True,
        questions: Questions | None = None,
    ) -> None:
        self.core_id = core_id
        self._has_readers = has_readers
        self._timings = timings
        self.name = name
        self.partition = Partition(name, has_readers=has_readers)
        self._existing = Existing(self.partition)
        self._reports = ReportBuilder()
        self._cycles = 0
        self._goes_on = False  # whether a ContinueCycle is on its way
        self.is_synced = False
        self.decisions = 0
        self._parse = parse
        self._find = find
        self._report = report
        self._epoch = 0
        self._is_syncing = False
        self._heard: tuple[int, ...] = (0, 0, 0)  # nodes, allocations, asks since SyncBegin
        self._asked_sync_ns = 0
        self._has_asked = False  # before its own SyncRequest, messages may answer a core that died
        self._heard_ns = 0  # time of the recovery's last message
        self._seq = 0
        self._answers: list[Outgoing] = []
        self._snapshot_for: dict[str, None] = {}
        self._questions = questions or Questions()
        self._handlers: dict[type, Callable[[Envelope], None]] = {
            Heartbeat: lambda _: None,
            Tick: lambda _: None,
            SyncBegin: self._on_sync_begin,
            SyncEnd: self._on_sync_end,
            UpdateRequest: self._on_update,
            UpdateConfiguration: self._on_configuration,
            TimerFirings: self._on_firings,
            TimerSyncRequest: self._on_timer_sync,
            SnapshotRequest: self._on_snapshot_request,
            ContinueCycle: self._on_continue,
            WhatIf: self._on_question,
        }

    def prepare(self, envelope: Envelope) -> Callable[[], object] | None:
        """Return a function that parses the configurations in a message, or None if it has none.

        Parsing is slow and needs no lock, so that the host runs it in a thread. ``parse`` caches
        its result for ``handle``.
        """
        match envelope.message:
            case UpdateConfiguration(config=text):
                texts = [text]
            case SyncBegin(config=text, last_good=last_good):
                texts = [text, last_good]
            case WhatIf(queues=text) if text:
                texts = [text]
            case _:
                return None

        def read() -> None:
            for text in texts:
                with suppress(ConfigurationError):
                    self._parse(text)

        return read

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Apply one message to the model. Messages that are not for the core are ignored."""
        self._pass_time(now_ns)
        starvation_guard.update(self.partition)
        handler = self._handlers.get(type(envelope.message))
        if envelope.epoch > max(MAX_EPOCH, self._epoch + 1):
            return []
        if envelope.epoch > self._epoch and not isinstance(envelope.message, SyncBegin):
            self.is_synced = self._is_syncing = False  # another core has been active since
        if handler is not None and not (envelope.epoch and envelope.epoch < self._epoch):
            if not isinstance(envelope.message, _CHANGING_NOTHING):
                self.partition.failed_searches.changed()
            handler(envelope)
        elif isinstance(envelope.message, UpdateRequest | SyncBegin):
            self._ask_for_everything(now_ns)  # from another resource manager than the one followed
        is_stuck = self._is_syncing and now_ns - self._heard_ns > ASK_AGAIN_NS
        if not self._has_asked or is_stuck or not (self.is_synced or self._is_syncing):
            self._ask_for_everything(now_ns)
        return []

    def _pass_time(self, now_ns: int) -> None:
        """Advance the partition's clock; it never goes back."""
        if now_ns > self.partition.now_ns:
            self.partition.pass_time(now_ns)

    def _ask_for_everything(self, now_ns: int) -> None:
        """Send a SyncRequest, at most one in ASK_AGAIN_NS.

        It carries the core's own epoch: the answer has a higher one, whoever set the core's.
        """
        if self._asked_sync_ns and now_ns - self._asked_sync_ns < ASK_AGAIN_NS:
            return
        self._asked_sync_ns = max(now_ns, 1)
        self._has_asked = True
        request = SyncRequest(self.core_id)
        self._answers.append(
            Outgoing(
                SHIM_ADAPTER, request, self._epoch,
                correlation_id="recovery", asked_by=self.core_id,
            )
        )  # fmt: skip

    def flush(self, now_ns: int) -> list[Outgoing]:
        """Run a scheduling cycle and return all outgoing messages."""
        self._pass_time(now_ns)
        with self._timings.latency:
            return self._flush()

    def _flush(self) -> list[Outgoing]:
        outgoing, self._answers = self._answers, []
        if not self.is_synced:
            return outgoing + self._questions.refused(RECOVERING)
        with self._timings.cycle:
            decisions, is_cut = cycle.run(self.partition)
        self.decisions += decisions
        if decisions:
            self.partition.failed_searches.changed()
            self._questions.forecasts.compare_started(self.partition.now_ns)
        self.partition.write_requeued()
        live_actions.check_for_followers(self.partition)
        usage_reports.report(self.partition)
        self._reports.read(self.partition.journal.trim())
        outgoing += self._reports.responses.take(self._epoch, timers_of(self.name))
        outgoing += self._to_go_on(is_cut=is_cut)
        outgoing += self._state_events()
        return outgoing + self._questions.answers(self.partition, is_busy=is_cut)

    def next_due_ns(self) -> int | None:
        """Return when a what-if's answer is to be polled, None if there is none."""
        return self._questions.next_due_ns(self.partition.now_ns)

    def _to_go_on(self, *, is_cut: bool) -> list[Outgoing]:
        """Return a ContinueCycle to the core itself if a cycle or a search has more to do.

        At most one is on its way at a time.
        """
        has_more = is_cut or self.partition.searches is not None
        if not has_more or self._goes_on:
            return []
        self._goes_on = True
        self._cycles += 1
        return [Outgoing(core_of(self.name), ContinueCycle(self._cycles), epoch=self._epoch)]

    def _on_continue(self, _: Envelope) -> None:
        """Continue a pass of searches; the cycle itself continues with every batch."""
        self._goes_on = False
        if self.is_synced:
            preemption.go_on(self.partition)

    @property
    def epoch(self) -> int:
        """Return the epoch of the current recovery, 0 before the first."""
        return self._epoch

    def figures(self) -> dict[str, int | dict[str, int]]:
        """Return the values of the core's metrics."""
        partition = self.partition
        return {
            "epoch": {self.name: self._epoch},
            "decisions_total": self.decisions,
            "pairs_held": partition.evictions.held(partition.now_ns),
            "lost_gpu_seconds_total": {self.name: partition.lost_work[0] // 1_000},
            "lost_vcore_seconds_total": {self.name: partition.lost_work[1] // 1_000},
            "held_idle_ppm": {self.name: partition.idle_allowance.share_ppm},
            "timers_ordered": sum(len(app.timers) for app in partition.applications.values())
            + len(partition.timers),
            "is_synced": {self.name: int(self.is_synced)},
            **self._questions.forecasts.figures(self.name),
        }

    def on_unsendable(self, _: Envelope, item: object, reason: str, now_ns: int) -> list[Outgoing]:
        """Report on an application that an item about it could not be sent, and why."""
        self._pass_time(now_ns)
        name = getattr(item, "application_id", "")
        application = self.partition.applications.get(name)
        if application is not None:
            self.partition.set(application, message=reason)
        self.partition.journal.record(NotSent(name, reason))
        return []

    # --- what if --------------------------------------------------------------------------------

    def _on_question(self, envelope: Envelope) -> None:
        question = envelope.message
        assert isinstance(question, WhatIf)
        try:
            config = self._parse(question.queues) if question.queues else None
        except ConfigurationError as error:
            if envelope.reply_to:
                self._answers.append(refused(envelope, str(error)))
            return
        self._questions.take(envelope, config)

    # --- recovery -------------------------------------------------------------------------------

    def _on_sync_begin(self, envelope: Envelope) -> None:
        begin = envelope.message
        assert isinstance(begin, SyncBegin)
        self._epoch = envelope.epoch
        self._is_syncing = True
        self._goes_on = False
        self._heard = (0, 0, 0)
        self._heard_ns = self.partition.now_ns
        self.is_synced = False
        now_ns = self.partition.now_ns
        self.partition = Partition(
            self.name,
            epoch=envelope.epoch,
            now_ns=now_ns,
            timings=self._timings,
            has_readers=self._has_readers,
        )
        self._existing = Existing(self.partition)
        self._questions.forecasts.forget()
        self._reports = ReportBuilder()
        self.partition.journal.record(TimePassed(self.partition.now_ns))
        self.partition.configure(
            settings=settings_from(begin.scheduler),
            config_extra=tuple(sorted(begin.scheduler)),
            started_ns=self.partition.now_ns,
            finds_pods=begin.finds_pods,
        )
        usage_moves.begin(self.partition)
        self.partition.nodes.domains.use(self.partition.settings.topology_levels)
        self.partition.nodes.keep_spares(*self.partition.settings.spares)
        self._use_plugins()
        self._reconfigure(begin)

    def _use_plugins(self) -> None:
        """Register the plugins that the settings name with the new partition."""
        partition = self.partition

        def report(sentence: str) -> None:
            partition.journal.record(PartitionChanged())
            self._report(sentence)

        names = partition.settings.plugins
        partition.use(registered(names, self._find, report, partition.applications))

    def _on_sync_end(self, envelope: Envelope) -> None:
        """End a recovery. If messages were lost on the way, it is requested again."""
        end = envelope.message
        assert isinstance(end, SyncEnd)
        if not self._is_syncing:
            return
        self._is_syncing = False
        self._existing.count()
        told = (end.nodes, end.allocations, end.asks)
        if any(heard < count for heard, count in zip(self._heard, told, strict=True)):
            return
        self._asked_sync_ns = 0
        self.is_synced = True
        usage_moves.resume(self.partition)
        partition = self.partition
        for application in list(partition.applications.values()):
            _resume_state(partition, application)
            allocations.recover_timer(partition, application)
            queueing.enter(application)
            partition.check_replacements(application)
        removed_partition.fail_all(partition)
        self._reports.read(partition.journal.trim())
        self._reports.responses.forget_timers()
        self._publish_timers()
        self._seq = 0
        self._snapshot_for[API_ALL.routing_key] = None

    # --- news -----------------------------------------------------------------------------------

    def _on_update(self, envelope: Envelope) -> None:
        request = envelope.message
        assert isinstance(request, UpdateRequest)
        if not (self.is_synced or self._is_syncing) or envelope.epoch != self._epoch:
            return
        if self._is_syncing:
            self._heard_ns = self.partition.now_ns
            own = sum(1 for item in request.allocations if item.application_id)
            heard = (len(request.nodes), own, len(request.asks))
            self._heard = tuple(map(sum, zip(self._heard, heard, strict=True)))
        if request.rm_id != self.partition.rm_id:
            self.partition.configure(rm_id=request.rm_id)
        if self._is_syncing and updates.has_only_allocations(request):
            updates.update_allocations(self.partition, request, self._existing)
            return
        self._existing.count()
        if self._is_syncing:
            usage_moves.restore(self.partition, request.usage)
        nodes.update_nodes(self.partition, request.nodes)
        updates.update_applications(self.partition, request)

    def _on_configuration(self, envelope: Envelope) -> None:
        update = envelope.message
        assert isinstance(update, UpdateConfiguration)
        if not self.is_synced:
            return
        error = self._configure(update.config)
        if update.scheduler and not error:
            self._take_up(update.scheduler)
        self._judged(update.config, error)

    def _take_up(self, settings: Mapping[str, str]) -> None:
        """Record other services' settings for the API; the core's own apply at its next start."""
        own = [pair for pair in self.partition.config_extra if not is_handed_on(pair[0])]
        told = [pair for pair in settings.items() if is_handed_on(pair[0])]
        self.partition.configure(config_extra=tuple(sorted(own + told)))

    def _reconfigure(self, begin: SyncBegin) -> None:
        """Apply the configuration of a recovery, or the last good one if it is invalid.

        Each result is sent as for a reload, so that the resource manager knows which one is in use.
        """
        error = self._configure(begin.config)
        falls_back = error and begin.last_good and not self._configure(begin.last_good)
        if falls_back:
            error = f"{error} (the last good configuration stays in use)"
            self._refuse_configuration(error)
        self._judged(begin.config, error)
        if falls_back:
            self._judged(begin.last_good, "")

    def _judged(self, text: str, error: str) -> None:
        """Send whether a configuration, identified by the checksum of its text, is in use now."""
        held = self.partition.config_partitions
        said = held if not error and len(held) > 1 else ()
        result = ConfigurationResult(not error, checksum_of(text), error, said)
        self._answers.append(Outgoing(SHIM_ADAPTER, result, epoch=self._epoch))

    def _configure(self, text: str) -> str:
        """Apply a configuration as a whole; return the error, "" if there is none."""
        try:
            config = self._parse(text)
        except ConfigurationError as error:
            return self._refuse_configuration(str(error))
        error_text = configurations.take(self.partition, config)
        return self._refuse_configuration(error_text) if error_text else ""

    def _refuse_configuration(self, error: str) -> str:
        """Keep the configuration in use, and record the error for users."""
        self.partition.configure(config_error=error)
        self.partition.journal.record(ConfigurationRefused(error))
        return error

    # --- timers ---------------------------------------------------------------------------------

    def _on_firings(self, envelope: Envelope) -> None:
        firings = envelope.message
        assert isinstance(firings, TimerFirings)
        if not self.is_synced:
            return
        for fired in firings.fired:
            firing.fire(self.partition, fired)

    def _on_timer_sync(self, _: Envelope) -> None:
        if self.is_synced:
            self._publish_timers()

    def _publish_timers(self) -> None:
        orders = self.partition.timer_orders()
        self._answers.append(Outgoing(timers_of(self.name), orders, epoch=self._epoch))

    # --- state events ---------------------------------------------------------------------------

    def _on_snapshot_request(self, envelope: Envelope) -> None:
        request = envelope.message
        assert isinstance(request, SnapshotRequest)
        self._snapshot_for[f"api.{request.instance}"] = None

    def _state_events(self) -> list[Outgoing]:
        if not self._has_readers:
            self._reports.changes.take_without_values(self.partition)
            self._snapshot_for.clear()
            return []
        outgoing: list[Outgoing] = []
        is_anew = API_ALL.routing_key in self._snapshot_for
        changes = self._reports.changes
        rejected = tuple(changes.rejected)
        said = changes.take_without_values(self.partition) if is_anew else StateDelta()
        delta = changes.take(self.partition)
        if delta is not None:
            self._seq += 1
            outgoing.append(Outgoing(API_ALL, delta, epoch=self._epoch, seq=self._seq))
        for address in self._snapshot_for:
            service, _, name = address.partition(".")
            snapshot = self.snapshot(rejected)
            if is_anew and address == API_ALL.routing_key:
                snapshot = replace(snapshot, events=said.events, evictions=said.evictions)
            outgoing.append(
                Outgoing(Address(service, name), snapshot, epoch=self._epoch, seq=self._seq)
            )
        if self._snapshot_for:
            changes.published.forget()
        self._snapshot_for.clear()
        return outgoing

    def snapshot(self, rejected: tuple[ApplicationSummary, ...] = ()) -> StateDelta:
        """Return the whole state for a read model, with the recently rejected applications."""
        partition = self.partition
        applications = partition.applications.values()
        return StateDelta(
            reset=True,
            time_ns=partition.now_ns,
            partitions=(partition_state(partition),),
            configurations=(configuration_state(partition),),
            queues=tuple(map(queue_state, depth_first(partition.root))),
            refusals=tuple(chain.from_iterable(map(refusals_in, depth_first(partition.root)))),
            nodes=tuple(map(node_state, partition.nodes.nodes.values())),
            applications=(*map(application_summary, applications), *rejected),
            users=tuple(map(user_state, partition.users.all())),
            asks=tuple(ask_state(ask, app.owner) for app in applications for ask in app.asks()),
            allocations=joined((placed.all_held(applications), _all_foreign(partition))),
            pods_held=tuple(partition.pods_held.values()),
        )


def _all_foreign(partition: Partition) -> tuple[AllocationState, ...]:
    return tuple(
        allocation_state(allocation, allocation_time_ns=allocation.create_time_ns)
        for node in partition.nodes.nodes.values()
        for allocation in node.foreign.values()
    )


def _resume_state(partition: Partition, application: Application) -> None:
    """Restore a recovered application's state where its allocations do not imply it.

    A gang that ran with placeholders only still waits for its real pods. An application whose asks
    were all withdrawn during the recovery ends.
    """
    was = application.request.state
    is_gang = not is_zero(application.request.placeholder_ask)  # which may ask again
    is_empty = application.state is ApplicationState.NEW and not is_gang
    if was in (ApplicationState.FAILING, ApplicationState.RESUMING):
        if application.state in (ApplicationState.NEW, ApplicationState.ACCEPTED):
            fail = was == ApplicationState.FAILING
            partition.fire(
                application,
                ApplicationEvent.FAIL if fail else ApplicationEvent.RESUME,
                gang.RESERVATION_TIMEOUT,
            )
        endings.after_placeholders_changed(partition, application)
    elif was == ApplicationState.ACCEPTED and is_empty:
        partition.fire(application, ApplicationEvent.RUN)
        endings.after_asks_removed(partition, application)
    elif was == ApplicationState.RUNNING:
        _resume_run(partition, application)
        if is_zero(application.allocated_placeholder):
            endings.after_real_removed(partition, application)
    elif was == ApplicationState.COMPLETING:
        _resume_completing(partition, application)


def _resume_run(partition: Partition, application: Application) -> None:
    while application.state in (ApplicationState.NEW, ApplicationState.ACCEPTED):
        partition.fire(application, ApplicationEvent.RUN)


def _resume_completing(partition: Partition, application: Application) -> None:
    """Continue the completing timeout of an application, even if it never ran."""
    if not application.request.execution_start_ns:
        if application.state is ApplicationState.NEW:
            partition.fire(application, ApplicationEvent.RUN)
        endings.after_asks_removed(partition, application)
    _resume_run(partition, application)
    endings.after_real_removed(partition, application)
    since_ns = application.request.state_since_ns
    if application.state is ApplicationState.COMPLETING and since_ns:
        due_ns = partition.since(since_ns) + milliseconds(COMPLETING_TIMEOUT_MS)
        partition.arm_timer_at(application, TimerKind.COMPLETING, due_ns)
