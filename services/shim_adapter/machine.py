"""The shim adapter's machine: commands and decisions in, requests to the core and replies out.

It runs the mirror and the backend alternately until neither has work left, and saves the world
before any resulting message is sent (``flush``).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from services.shim_adapter.backends.base import Backend, CommandRefusedError, Playground
from services.shim_adapter.deletions import NOT_THERE, by_application, pods_there
from services.shim_adapter.idempotency import repeatable
from services.shim_adapter.mirror import ClusterMirror
from services.shim_adapter.mirror.calls import Call, News, PodAdded
from services.shim_adapter.mirror.world import World
from services.shim_adapter.proposals import Proposals
from services.shim_adapter.records import Answer, ApplicationRecord, Proposal
from services.shim_adapter.refusals import check_command
from services.shim_adapter.translation.bounds import bounded_seconds
from services.shim_adapter.translation.manifests import (
    TranslatedDocument,
    Translation,
    translating,
)
from services.shim_adapter.translation.task_groups import TaskGroupsError
from services.shim_adapter.what_if import question_of
from shared.messages.commands import (
    ChangeNodes,
    CommandResult,
    DeleteApplication,
    DeleteManifests,
    DeletePods,
    HoldConfirmations,
    PlaceForeignPods,
    PodName,
    RefusedDocument,
    SubmitApplication,
    SubmitManifests,
    SubmitPods,
    SubmitResult,
    SubmittedObject,
)
from shared.messages.envelope import (
    API_ALL,
    CORE,
    MEMBERS,
    Envelope,
    Outgoing,
    core_of,
    reply_address,
)
from shared.messages.find_pod import FindPod, PodFound
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    ConfigurationResult,
    NodeInfo,
    RejectedAllocation,
    RejectedApplication,
    UpdateConfiguration,
    UpdateResponse,
)
from shared.messages.protocol import Heartbeat, Partitions, PartitionsRequest, SyncRequest, Tick
from shared.messages.what_if import Forecast, WhatIf
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import seconds

NOT_READY = "the shim adapter is still reading the cluster; try again in a moment"
USE_CONFIG_MAP = "the queues are in the ConfigMap yunikorn-configs: change it there"
USE_KUBECTL = "the resource manager is a Kubernetes cluster: use kubectl"
USE_CORDON = "the nodes are a Kubernetes cluster's: use kubectl cordon, and kubectl uncordon"
DEFAULT_RUN_NS = seconds(30)
LONG_SAVE = 2_000  # records: some 30 microseconds each
SLICE_PODS = 2_000  # translated or made, some 10 microseconds each; a document is one piece
_Outcome = tuple[list[SubmittedObject], list[RefusedDocument], list[Outgoing]]


class ShimMachine:
    """The machine of one resource manager. ``save`` writes the world to its storage.

    ``playground`` is the cluster whose pods and nodes users create through the API; None if they
    are created elsewhere.
    """

    def __init__(
        self,
        world: World,
        cluster: Backend,
        *,
        playground: Playground | None = None,
        rm_id: str = "mycluster",
        default_run_ns: int = DEFAULT_RUN_NS,
        save: Callable[[World], None] | None = None,
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.mirror = ClusterMirror(world, rm_id)
        self.proposals = Proposals(world, self._propose)
        self._people = playground
        self._default_run_ns = default_run_ns
        self._save = save
        self._has_announced = False
        self._proposed: list[Outgoing] = []
        self._told: tuple[str, ...] = ()  # the last published partitions
        self._had_several = False  # partitions, at some time
        self._to_sync: dict[str, int] = {}  # syncs requested before the partitions were known
        self._handlers: dict[type, Callable[[Envelope, int], list[Outgoing]]] = {
            SyncRequest: lambda asked, _: self._sync(asked.partition, asked.epoch),
            Heartbeat: lambda *_: self._publish_partitions() if self._had_several else [],
            PartitionsRequest: lambda *_: self._publish_partitions() if self._had_several else [],
            UpdateResponse: self._on_response,
            ConfigurationResult: self._on_configuration_result,
            UpdateConfiguration: self._on_configuration,
            WhatIf: self._on_question,
            FindPod: self._find_pod,
        }
        self._commands: dict[type, Callable[[Envelope, int], list[Outgoing]]] = {
            SubmitApplication: self._submit_application,
            SubmitPods: self._submit_pods,
            PlaceForeignPods: self._place_foreign,
            DeletePods: self._delete_pods,
            DeleteApplication: self._delete_application,
            ChangeNodes: self._change_nodes,
            HoldConfirmations: self._hold,
        }

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Handle a message in one piece."""
        said: list[Outgoing] = []
        for _ in self.slices(envelope, now_ns, said):
            pass
        return said

    def slices(self, envelope: Envelope, now_ns: int, said: list[Outgoing]) -> Iterator[None]:
        """Handle a message; yield to other tasks after some SLICE_PODS pods.

        Until it ends, nothing of ``said`` is sent and nothing new is saved: a crash in between has
        no effect.
        """
        outgoing, is_answered = self._catch_up(envelope, now_ns)
        said += outgoing
        if is_answered:
            return
        if isinstance(envelope.message, SubmitManifests | DeleteManifests):
            yield from self._on_documents(envelope, now_ns, said)
            return
        kind = type(envelope.message)
        handler = self._handlers.get(kind)
        if handler is not None:
            said += handler(envelope, now_ns)
            return
        command = self._commands.get(kind)
        if command is not None:
            said += self._obey(command, envelope, now_ns)

    def _catch_up(self, envelope: Envelope, now_ns: int) -> tuple[list[Outgoing], bool]:
        """Apply pending events; return messages, and whether the message is answered already.

        The first message makes the machine send everything that exists.
        """
        outgoing: list[Outgoing] = []
        kind = type(envelope.message)
        if not self.cluster.is_ready:
            self.cluster.activate()
            return _refuse(envelope, NOT_READY), True
        if not self._has_announced:
            self._has_announced = True
            outgoing += self._announce(envelope.partition if kind is SyncRequest else "")
        outgoing += self._settle(self.cluster.advance(now_ns), now_ns)
        if kind is Tick and self.mirror.has_more:
            outgoing += self._react(self.mirror.go_on(), now_ns)
        answer = self.world.answers.by_message.get(envelope.message_id)
        if answer is not None:
            return outgoing + _reply(answer.asker, answer.message), True
        return outgoing, False

    def is_flush_long(self) -> bool:
        """Whether saving takes longer than heartbeats can wait."""
        return self._save is not None and self.world.changes() > LONG_SAVE

    def flush(self, now_ns: int) -> list[Outgoing]:  # noqa: ARG002 - the host's interface
        """Save what has changed; only then may the answers be sent."""
        if self._save is not None:
            self._save(self.world)
        else:
            self.world.forget_changes()
        return []

    def on_unsendable(
        self, envelope: Envelope, item: object, reason: str, now_ns: int
    ) -> list[Outgoing]:
        """Reject an item that cannot be sent, as the core would, or answer the waiting sender."""
        refused: dict[str, tuple[object, ...]] = {}
        match item:
            case AddApplicationRequest():
                refusal: object = RejectedApplication(item.application_id, reason)
                refused["rejected_applications"] = (refusal,)
            case AllocationAsk():
                refusal = RejectedAllocation(item.allocation_key, item.application_id, reason)
                refused["rejected_allocations"] = (refusal,)
            case NodeInfo() | Allocation():
                self.mirror.leave_out(item, envelope.partition)
                return []
            case None if isinstance(envelope.message, SubmitResult):
                answer = SubmitResult(refused=(RefusedDocument("", 0, "", reason),))
                return _reply(envelope.reply_to, answer)
            case None:
                return _reply(envelope.reply_to, CommandResult(done=False, message=reason))
            case _:
                return []
        response = UpdateResponse(**refused)  # type: ignore[arg-type]
        epoch, partition = self.world.epoch_of(envelope.partition), envelope.partition
        return self._react(self.mirror.on_response(response, epoch, partition), now_ns)

    def figures(self) -> dict[str, int | dict[str, int]]:
        """Return the machine's figures for metrics."""
        refused = self.mirror.refused_binds
        return {"epoch": dict(self.world.epochs), "binds_refused_total": refused}

    def next_due_ns(self) -> int | None:
        """Return when the machine has work of its own, or None; 0 continues a cut slice."""
        if not self._has_announced:
            return None
        return 0 if self.mirror.has_more else self.cluster.next_due_ns()

    # --- the two halves -------------------------------------------------------------------------

    def _settle(self, news: list[News], now_ns: int) -> list[Outgoing]:
        """Pass reports to the mirror and calls to the cluster until there are none left."""
        heard: deque[News] = deque(news)
        while heard:
            for call in self.mirror.hear(heard.popleft()):
                heard.extend(self.cluster.carry_out(call, now_ns))
        return self.mirror.outgoing()

    def _react(self, reaction: tuple[list[Call], list[Outgoing]], now_ns: int) -> list[Outgoing]:
        calls, outgoing = reaction
        news = [news for call in calls for news in self.cluster.carry_out(call, now_ns)]
        return outgoing + self._settle(news, now_ns)

    # --- the core -------------------------------------------------------------------------------

    def _sync(self, partition: str, known_epoch: int = 0) -> list[Outgoing]:
        """Send everything of a partition; an unknown one is synced once it is known."""
        if self.world.partition_for(partition) != partition:
            if not self.world.partitions:
                self._to_sync[partition] = known_epoch
            return []
        outgoing = self.mirror.sync(known_epoch, partition)
        if partition == DEFAULT_PARTITION:
            self.proposals.again()
        return outgoing + self._take_proposed()

    # --- the partitions -------------------------------------------------------------------------

    def _announce(self, asker: str) -> list[Outgoing]:
        """Send everything that exists, except to the core that has requested it.

        A core that has never requested it does not know its partition yet.
        """
        outgoing: list[Outgoing] = []
        for partition in {DEFAULT_PARTITION: 0, **self.world.epochs}:
            if partition != asker:
                outgoing += self._sync(partition)
        return outgoing

    def _publish_partitions(self) -> list[Outgoing]:
        """Publish the list of partitions to the services that need it.

        It is published when first known and at each change; once there have been several
        partitions, also with every heartbeat, for newly started instances.
        """
        self.world.forget_ended()
        self._told = self.world.partition_names
        self._had_several = self._had_several or len(self._told) > 1
        message = Partitions(self._told)
        return [Outgoing(to, message) for to in (API_ALL, *MEMBERS)]

    def _publish_if_changed(self) -> list[Outgoing]:
        is_known = bool(self.world.partitions)
        is_new = is_known and self._told != self.world.partition_names
        return self._publish_partitions() if is_new else []

    def _on_partitions(self, names: tuple[str, ...]) -> list[Outgoing]:
        """Set the partitions of the accepted configuration.

        Syncs that were requested before are answered, and items of unknown partitions are rejected.
        """
        world = self.world
        was_known = bool(world.partitions)
        if tuple(world.partitions) == names:
            return self._publish_if_changed()
        world.set_partitions(names)
        outgoing = self._publish_if_changed()
        for partition, epoch in self._to_sync.items():
            outgoing += self._sync(partition, epoch)
        self._to_sync.clear()
        return outgoing + ([] if was_known else self.mirror.reject_unknown_partitions())

    def _publish_configuration(self, proposal: Proposal) -> list[Outgoing]:
        """Send the accepted configuration to the cores of the other partitions; each answers."""
        update = UpdateConfiguration(proposal.config, proposal.settings)
        return [
            Outgoing(core_of(name), update, epoch=epoch, partition=name)
            for name, epoch in self.world.epochs.items()
            if name != DEFAULT_PARTITION and self.world.partition_for(name) == name
        ]

    # --- configurations -------------------------------------------------------------------------

    def _on_response(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        response = envelope.message
        assert isinstance(response, UpdateResponse)
        outgoing = self._react(
            self.mirror.on_response(response, envelope.epoch, envelope.partition), now_ns
        )
        self.world.forget_ended()
        return outgoing + self._publish_if_changed()

    def _propose(self, config: str, settings: Mapping[str, str]) -> None:
        update = UpdateConfiguration(config, settings)
        epoch = self.world.epoch_of(DEFAULT_PARTITION)
        self._proposed.append(Outgoing(CORE, update, epoch=epoch))

    def _take_proposed(self) -> list[Outgoing]:
        proposed, self._proposed = self._proposed, []
        return proposed

    def _on_configuration(self, envelope: Envelope, _: int) -> list[Outgoing]:
        update = envelope.message
        assert isinstance(update, UpdateConfiguration)
        asker = envelope.reply_to
        if self._people is None and asker:
            return _refuse(envelope, USE_CONFIG_MAP)
        why_not = self.proposals.add(envelope.message_id, update.config, update.scheduler, asker)
        if why_not:
            return self._answer(asker, CommandResult(done=False, message=why_not), envelope)
        return self._take_proposed()

    def _on_configuration_result(self, envelope: Envelope, _: int) -> list[Outgoing]:
        """Store a configuration that the core accepted; a refused one has changed nothing.

        The core of the default partition validates it as a whole. Results of other cores are shown
        to users in their state only.
        """
        result = envelope.message
        assert isinstance(result, ConfigurationResult)
        is_of_default = envelope.partition == DEFAULT_PARTITION
        if not is_of_default or envelope.epoch < self.world.epoch_of(DEFAULT_PARTITION):
            return []
        proposal = self.proposals.judge(result)
        names = result.partitions or (DEFAULT_PARTITION,)
        outgoing = self._on_partitions(names) if result.accepted else []
        if proposal is None:
            return outgoing
        if result.accepted:
            outgoing += self._publish_configuration(proposal)
        answer = CommandResult(result.accepted, result.error)
        self.world.answers.remember(proposal.message_id, Answer(proposal.asker, result=answer))
        outgoing += self._take_proposed()
        return outgoing + self._answer(proposal.asker, answer, envelope)

    def _playground(self) -> Playground:
        """Return the cluster in which users create objects through the API, or refuse."""
        if self._people is None:
            raise CommandRefusedError(USE_KUBECTL)
        return self._people

    # --- commands -------------------------------------------------------------------------------

    def _obey(
        self,
        command: Callable[[Envelope, int], list[Outgoing]],
        envelope: Envelope,
        now_ns: int,
    ) -> list[Outgoing]:
        """Carry out a command and answer its sender, also if it is refused."""
        try:
            check_command(envelope.message)
            outgoing = command(envelope, now_ns)
            answer = CommandResult(done=True)
        except (CommandRefusedError, TaskGroupsError) as error:
            outgoing, answer = [], CommandResult(done=False, message=str(error))
        return outgoing + self._answer(envelope.reply_to, answer, envelope)

    def _answer(
        self, asker: str, message: CommandResult | SubmitResult, envelope: Envelope
    ) -> list[Outgoing]:
        """Answer a command, and retain the answer for a repeated message.

        Created objects are saved before the answer is sent. After a crash in between, the message
        is redelivered to a world in which it was already carried out.
        """
        wanted = envelope.message
        if isinstance(message, CommandResult):
            self.world.answers.remember(envelope.message_id, Answer(asker, result=message))
        elif isinstance(wanted, SubmitManifests | DeleteManifests):
            answer = Answer(asker, submitted=message)
            repeatable(wanted).remember(self.world, envelope.message_id, answer)
        return _reply(asker, message)

    def _submit_application(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        wanted = envelope.message
        assert isinstance(wanted, SubmitApplication)
        self._playground()
        existing = self.world.applications.get(wanted.application_id)
        if existing is not None and existing.is_live:
            raise CommandRefusedError(
                f"adding application {wanted.application_id} to partition {existing.partition}, "
                "but application already existed"
            )
        timeout = bounded_seconds("the placeholder timeout", wanted.placeholder_timeout_seconds)
        application = ApplicationRecord(
            application_id=wanted.application_id,
            submission=self.world.next_submission(),
            queue_name=wanted.queue_name,
            namespace=wanted.namespace,
            partition=wanted.partition,
            user=wanted.user,
            groups=wanted.groups,
            tags={**self.world.namespace_tags.get(wanted.namespace, {}), **wanted.tags},
            style=wanted.style,
            placeholder_timeout_seconds=timeout[0],
            execution_timeout_seconds=wanted.execution_timeout_seconds,
            task_groups=wanted.task_groups,
            created_ns=now_ns,
            is_announced=True,
            message=timeout[1],
        )
        self.world.add_application(application)
        return self._react(self.mirror.on_application(application), now_ns)

    def _submit_pods(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        wanted = envelope.message
        assert isinstance(wanted, SubmitPods)
        news = self._playground().create_pods(wanted.pods, envelope.message_id, now_ns)
        return self._settle(news, now_ns)

    def _place_foreign(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        wanted = envelope.message
        assert isinstance(wanted, PlaceForeignPods)
        cause = envelope.message_id
        news = self._playground().place_foreign(wanted.node, wanted.pods, cause, now_ns)
        return self._settle(news, now_ns)

    def _delete_pods(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        wanted = envelope.message
        assert isinstance(wanted, DeletePods)
        return self._settle(self.cluster.delete_pods(wanted.pods, now_ns), now_ns)

    def _delete_application(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Delete every pod of an application; the core then completes or removes it."""
        wanted = envelope.message
        assert isinstance(wanted, DeleteApplication)
        application = self.world.applications.get(wanted.application_id)
        if application is None:
            raise CommandRefusedError(f"Application {wanted.application_id} not found")
        return self._end_application(application, now_ns)

    def _end_application(self, application: ApplicationRecord, now_ns: int) -> list[Outgoing]:
        """Delete an application's pods; if it has ended, its remaining ones."""
        is_live = application.is_live
        pods = [
            PodName(pod.spec.name, pod.spec.namespace)
            for pod in self.world.pods_of(application.application_id)
            if not (is_live and pod.has_ended)
        ]
        if is_live:
            application.is_announced, application.is_deleted = False, True
            self.world.touch_application(application)
        if is_live and not pods:
            return self._react(self.mirror.remove_application(application), now_ns)
        return self._settle(self.cluster.delete_pods(tuple(pods), now_ns), now_ns)

    def _change_nodes(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        wanted = envelope.message
        assert isinstance(wanted, ChangeNodes)
        if self._people is None:
            raise CommandRefusedError(USE_CORDON)
        return self._settle(self._playground().change_nodes(wanted.nodes, now_ns), now_ns)

    def _hold(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        wanted = envelope.message
        assert isinstance(wanted, HoldConfirmations)
        return self._settle(
            self._playground().hold_confirmations(held=wanted.held, now_ns=now_ns), now_ns
        )

    # --- manifests ------------------------------------------------------------------------------

    def _on_documents(
        self, envelope: Envelope, now_ns: int, said: list[Outgoing]
    ) -> Iterator[None]:
        """Create or delete the objects of documents; every document gets a result."""
        wanted = envelope.message
        assert isinstance(wanted, SubmitManifests | DeleteManifests)
        if self._people is None:
            said += _refuse(envelope, USE_KUBECTL)
            return
        known = repeatable(wanted).answered(self.world)
        if known is not None:
            said += _reply(envelope.reply_to, known)
            return
        run_ns = wanted.run_ns if isinstance(wanted, SubmitManifests) else 0
        run_ns = self._default_run_ns if run_ns < 0 else run_ns
        translation = Translation()
        nodes = tuple(self.world.nodes.values())
        yield from _sliced(translating(translation, wanted.documents, run_ns, nodes))
        done: list[SubmittedObject] = []
        refused = [
            RefusedDocument(document.source, document.index, error.field_path, error.message)
            for document, error in translation.refused
        ]
        yield from _sliced(self._carry_out(translation, envelope, now_ns, (done, refused, said)))
        result = SubmitResult(tuple(done), tuple(refused))
        said += self._answer(envelope.reply_to, result, envelope)

    def _carry_out(
        self, translation: Translation, envelope: Envelope, now_ns: int, outcome: _Outcome
    ) -> Iterator[int]:
        """Create or delete document by document; yield each one's number of pods."""
        done, refused, said = outcome
        is_new = isinstance(envelope.message, SubmitManifests)
        for taken in translation.taken if is_new else ():
            if taken.namespace_tags is not None:
                self.world.set_namespace(taken.name, taken.namespace_tags)
        carry_out = self._create if is_new else self._delete
        for number, taken in enumerate(translation.taken):
            cause = f"{envelope.message_id}/{number}"  # items of a List share their index
            try:
                submitted, outgoing = carry_out(taken, cause, now_ns)
            except CommandRefusedError as error:
                at = taken.document
                refused.append(RefusedDocument(at.source, at.index, "metadata.name", str(error)))
            else:
                done.append(submitted)
                said += outgoing
            yield len(taken.pods)

    def _create(
        self, taken: TranslatedDocument, cause: str, now_ns: int
    ) -> tuple[SubmittedObject, list[Outgoing]]:
        news = self._playground().create_pods(taken.pods, cause, now_ns)
        submitted = _submitted(taken)
        first = next((item for item in news if isinstance(item, PodAdded)), None)
        if first is not None:  # it may be named after its UID
            submitted = replace(submitted, application_id=first.pod.spec.application_id)
        return submitted, self._settle(news, now_ns)

    def _delete(
        self, taken: TranslatedDocument, _: str, now_ns: int
    ) -> tuple[SubmittedObject, list[Outgoing]]:
        pods = pods_there(self.world, taken.pods)
        if taken.pods and not pods:
            raise CommandRefusedError(NOT_THERE)
        said: list[Outgoing] = []
        for application, names in by_application(self.world, pods):
            said += (
                self._settle(self.cluster.delete_pods(names, now_ns), now_ns)
                if application is None
                else self._end_application(application, now_ns)
            )
        return replace(_submitted(taken), pods=len(pods), warnings=()), said

    def _on_question(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Translate a what-if request and pass it on to a core, which answers it.

        It is the core of the partition that the first application names, else of the requested one.
        """
        asked = envelope.message
        assert isinstance(asked, WhatIf)
        question = question_of(self.world, asked, now_ns)
        named = [request.partition_name for request in question.applications[:1]]
        partition = self.world.partition_for(named[0] if named else envelope.partition)
        partition = partition or DEFAULT_PARTITION
        to = core_of(partition)
        return [Outgoing(to, question, reply_to=envelope.reply_to, partition=partition)]

    def _find_pod(self, envelope: Envelope, _: int) -> list[Outgoing]:
        """Answer where a pod is; the core knows only pods with asks."""
        asked = envelope.message
        assert isinstance(asked, FindPod)
        found = self.cluster.find_held(asked.name) or self._in_the_world(asked.name)
        if found is None:
            return _reply(envelope.reply_to, PodFound())
        partition = self.world.partition_for(found.partition) or DEFAULT_PARTITION
        return _reply(envelope.reply_to, replace(found, partition=partition))

    def _in_the_world(self, name: str) -> PodFound | None:
        pod = self.world.find_pod(name)
        if pod is None:
            return None
        application_id = pod.spec.application_id
        end = (pod.message or pod.reason or pod.phase) if pod.has_ended else ""
        partition = self.world.partition_of(application_id)
        return PodFound(application_id, partition, pod.spec.name, end=end)


def _sliced(counts: Iterable[int]) -> Iterator[None]:
    """Yield whenever SLICE_PODS pods have been counted."""
    pods = 0
    for count in counts:
        pods += count
        if pods >= SLICE_PODS:
            pods = 0
            yield


def _refuse(envelope: Envelope, why: str) -> list[Outgoing]:
    """Refuse a request with the type of answer that it expects."""
    message = envelope.message
    if isinstance(message, SubmitManifests | DeleteManifests):
        refused = tuple(
            RefusedDocument(document.source, document.index, "", why)
            for document in message.documents
        )
        return _reply(envelope.reply_to, SubmitResult(refused=refused))
    if isinstance(message, WhatIf):
        return _reply(envelope.reply_to, Forecast(done=False, message=why))
    return _reply(envelope.reply_to, CommandResult(done=False, message=why))


def _submitted(taken: TranslatedDocument) -> SubmittedObject:
    return SubmittedObject(
        source=taken.document.source,
        index=taken.document.index,
        kind=taken.kind,
        name=taken.name,
        application_id=taken.pods[0].application_id if taken.pods else "-",
        pods=len(taken.pods),
        warnings=taken.warnings,
    )


def _reply(reply_to: str, message: object) -> list[Outgoing]:
    address = reply_address(reply_to)
    return [] if address is None else [Outgoing(address, message, reply_to=reply_to)]
