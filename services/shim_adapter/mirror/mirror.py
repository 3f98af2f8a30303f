"""The mirror: reports of the resource manager become asks, decisions of the core become calls.

Rule 1: an application with task groups gets its placeholders first; its real pods are held back
        until every group's placeholders are bound (docs/rules/gangs.md#the-course).
Rule 2: a pod whose deletion the core decided is confirmed with the core's own termination type once
        it is gone, as an allocation or as an ask; a confirmation is never confirmed.
Rule 3: an application that was created by its pods ends with them. If they are deleted before they
        became asks, it is removed from the core once none of its pods is on a node. A pod that
        arrives while its application ends gets a note, and starts the application again afterwards.
Rule 4: the resource manager is the truth: ``sync`` sends all of it under a new epoch, and decisions
        of a lower epoch are refused.
Rule 5: a decision about a node that the core has not answered yet concerns an earlier node of that
        name, which was removed: the pod is not bound, as if the node did not exist.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from services.shim_adapter.mirror.asks import (
    NODE_ACTIONS,
    disruption_of,
    foreign_allocation,
    node_info,
    nominated_allocation,
)
from services.shim_adapter.mirror.calls import (
    BindPod,
    BindRefused,
    Call,
    DeletePod,
    Disruptable,
    FailPod,
    GangNews,
    MarkUnschedulable,
    News,
    NodeNews,
    PlaceholderFailed,
    PodAdded,
    PodBound,
    PodChanged,
    PodEnded,
    PodGone,
    PodNominated,
    PodsHeldBack,
    WriteEvent,
)
from services.shim_adapter.mirror.gangs import PlaceholdersToMake
from services.shim_adapter.mirror.moves import IN_THE_WAY, Reaction
from services.shim_adapter.mirror.notes import notes_of_gang
from services.shim_adapter.mirror.phases import Phases
from services.shim_adapter.mirror.recovery import Existing, existing, is_to_be_asked
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import (
    ApplicationPhase,
    ApplicationRecord,
    PodRecord,
)
from shared.messages.columns import values_of
from shared.messages.envelope import Outgoing
from shared.messages.gang_tree import follows
from shared.messages.interface import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    ContainerSchedulingState,
    GangChanged,
    GangGivenUp,
    GangSettings,
    NodeAction,
    NodeInfo,
    PodsHeld,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    SchedulingState,
    TerminationType,
    UpdatedApplication,
    UpdateResponse,
)
from shared.model.gpus import Devices
from shared.model.names import DEFAULT_PARTITION
from shared.model.reasons import PLACEHOLDER_CREATE_FAILED
from shared.model.states import ApplicationState

MAX_UNSENDABLE = 10_000  # remembered; one that is forgotten delays the next recovery once


class ClusterMirror(Phases):
    """The mirror of one resource manager. ``world`` is the resource manager's state."""

    def __init__(self, world: World, rm_id: str) -> None:
        super().__init__(world, rm_id)
        self.refused_decisions = 0
        self.refused_binds = 0
        self._held_back: dict[tuple[str, str], PodsHeld] = {}  # by partition and application
        self._decided_in = DEFAULT_PARTITION  # partition whose decision is being carried out
        self._to_make = PlaceholdersToMake(world)
        self._unsendable: dict[tuple[type, str], None] = {}  # nodes and allocations, oldest first
        # how often a node was sent, by partition and name, without an answer yet
        self._unanswered: dict[tuple[str, str], int] = {}
        self._reports: dict[type, Callable[[Any], None]] = {
            NodeNews: self._on_node,
            PodNominated: self._on_nominated,
            PodAdded: lambda news: self._on_pod(news.pod),
            PodBound: lambda news: self._on_bound(news.pod),
            PodChanged: lambda news: self._on_changed(news.pod),
            PodEnded: lambda news: self._on_pod_ended(news.pod),
            PodGone: lambda news: self._on_pod_gone(news.pod),
            BindRefused: self._on_bind_refused,
            PlaceholderFailed: self._on_placeholder_failed,
            PodsHeldBack: self._on_held_back,
            GangNews: lambda news: self._on_gang(news.application_id, news.gang),
            Disruptable: lambda news: self._send(
                self._partition_of(news.pod),
                disruptions=(disruption_of(news.pod, is_refused=news.is_refused),),
            ),
        }

    # --- the way in -----------------------------------------------------------------------------

    def on_news(self, news: News) -> Reaction:
        """Apply a report of the resource manager."""
        return self.hear(news), self.outgoing()

    def hear(self, news: News) -> list[Call]:
        """Apply a report of the resource manager; ``outgoing`` returns the resulting messages."""
        self._reports[type(news)](news)
        return self._called()

    def on_application(self, application: ApplicationRecord) -> Reaction:
        """Add an application that was created before any of its pods."""
        self._announce(application)
        return self._taken()

    def on_response(
        self, response: UpdateResponse, epoch: int, partition: str = DEFAULT_PARTITION
    ) -> Reaction:
        """Carry out the decisions of a partition's core, section by section.

        An epoch lower than the partition's is refused.
        """
        if epoch < self.world.epoch_of(partition):
            self.refused_decisions += 1
            return [], []
        self._decided_in = partition
        is_busy = self.has_more  # then ticks continue it
        handlers: tuple[tuple[Iterable[Any], Callable[[Any], None]], ...] = (
            (response.accepted_nodes, self._on_node_answered),
            (response.rejected_nodes, self._on_node_answered),
            (response.accepted_applications, self._on_accepted),
            (response.rejected_applications, self._on_rejected),
            (response.rejected_allocations, self._on_ask_rejected),
            (_places(response.new_allocations), self._on_allocation),
            (response.released_asks, self._on_ask_released),
            (response.released_allocations, self._on_released),
            (response.updated_applications, self._on_updated),
            (response.scheduling_states, self._on_scheduling_state),
            (response.usage, partial(self.world.usage.record, partition)),
        )
        for items, handler in handlers:
            for item in items:
                handler(item)
        if not is_busy:
            self._calls += self._to_make.next()
        return self._taken()

    @property
    def has_more(self) -> bool:
        """Whether work was interrupted: ``go_on`` continues it."""
        return bool(self._to_make)

    def go_on(self) -> Reaction:
        """Create the next placeholders of gangs that are too large for one message."""
        self._calls += self._to_make.next()
        return self._taken()

    def remove_application(self, application: ApplicationRecord) -> Reaction:
        """Remove an application without pods: the core ends it at once."""
        application.phase = ApplicationPhase.ENDED
        self.world.touch_application(application)
        self._remove(application)
        return self._taken()

    def sync(self, known_epoch: int = 0, partition: str = DEFAULT_PARTITION) -> list[Outgoing]:
        """Return everything that exists in a partition, under its next epoch.

        Pending work is done after the core's answer. Source: ARCHITECTURE.md, Recovery.
        """
        world = self.world
        world.next_epoch(known_epoch, partition)
        there = Existing(world, partition)
        for application in there.applications:
            self._bound.take_up(application)
            for pod in world.pods_of(application.application_id):
                self._asked.pop(pod.uid, None)
                self._displaced.pop(pod.uid, None)
                self._nominate(pod.uid, "")
            self._clear_the_way(application)
        self._asked.update(dict.fromkeys(pod.uid for pod in there.waiting))
        self._unanswered = {
            key: count for key, count in self._unanswered.items() if key[0] != partition
        }
        for node in there.nodes:
            if not self._is_left_out(node.name):
                self._unanswered[partition, node.name] = 1
        unconfirmed = [
            release
            for release in self._unconfirmed.values()
            if world.partition_for(world.partition_of(release.application_id)) == partition
        ]
        held = tuple(
            told
            for (named, _), told in self._held_back.items()
            if self.world.partition_for(named) == partition
        )
        messages = there.messages(self.rm_id, tuple(unconfirmed), self._unsendable, held)
        return [self._to_core(partition, message) for message in messages]

    def reject_unknown_partitions(self) -> list[Outgoing]:
        """Send items of unknown partitions to the default partition's core, which rejects them."""
        for node in self.world.nodes.values():
            if self.world.partition_for(node.partition) != node.partition:
                self._on_node(NodeNews(node, "add"))
        for application in self.world.applications.values():
            named = application.partition
            if application.is_live and self.world.partition_for(named) != named:
                self._announce(application)
        return self.outgoing()

    def leave_out(self, item: NodeInfo | Allocation, partition: str) -> None:
        """Omit an unsendable item from recoveries: a core waits for as many as SyncEnd counts."""
        self._decided_in = partition
        name = item.node_id if isinstance(item, NodeInfo) else item.allocation_key
        if isinstance(item, NodeInfo):
            self._on_node_answered(item)
        self._unsendable[type(item), name] = None
        if len(self._unsendable) > MAX_UNSENDABLE:
            del self._unsendable[next(iter(self._unsendable))]

    def _is_left_out(self, node: str) -> bool:
        return (NodeInfo, node) in self._unsendable

    # --- from the resource manager --------------------------------------------------------------

    def _on_node(self, news: NodeNews) -> None:
        action = NODE_ACTIONS[news.action]
        if news.node.is_cordoned and action is NodeAction.CREATE:
            action = NodeAction.CREATE_DRAIN
        info = node_info(news.node, action, self.rm_id)
        pods: list[PodRecord] = []
        partition = self.world.partition_for(news.node.partition)
        if news.action == "add" and partition is not None:
            pods = self.world.on_nodes.of(news.node.name)
            key = partition, news.node.name
            self._unanswered[key] = self._unanswered.get(key, 0) + 1
        named = news.node.partition
        allocations = [self._held(pod) for pod in pods if self._partition_of(pod) == named]
        if news.action == "add":
            allocations += map(nominated_allocation, self.world.on_nodes.nominated(news.node.name))
        self._send(named, nodes=(info,), allocations=allocations)
        if news.action in ("add", "remove"):
            self._count_placeholders_on(news.node.name)

    def _held(self, pod: PodRecord) -> Allocation:
        self._displaced.pop(pod.uid, None)
        return foreign_allocation(pod) if pod.spec.foreign else existing(self.world, pod)

    def _on_pod(self, pod: PodRecord) -> None:
        if pod.spec.foreign:
            self._on_foreign(pod)
            return
        if pod.gates:
            return
        application = self.world.applications.get(pod.spec.application_id)
        if application is not None and not application.is_live:
            application = None
        unwanted = _unwanted(application) if pod.spec.placeholder else ""
        if unwanted:
            self._calls.append(DeletePod(pod.uid, "", unwanted))
            return
        if application is None:
            application = self.world.application_of(pod)
            self._announce(application, has_place=bool(pod.node) and not pod.has_ended)
        self._on_gang(application.application_id, pod.spec.gang)
        self._note(application, pod)
        if application.phase is ApplicationPhase.ENDING:
            self._finish(application)
        elif is_to_be_asked(application, pod):
            self._send(application.partition, asks=(self._ask(pod),))

    def _on_gang(self, name: str, gang: GangSettings) -> None:
        """Send the core new minimums of a gang without placeholders."""
        application = self.world.applications.get(name)
        if application is None or gang == application.gang or not application.is_live:
            return
        if not follows(gang, application.gang):
            return
        application.gang = gang
        self.world.touch_application(application)
        if not application.is_gang_over:
            self._send(application.partition, gangs_changed=(GangChanged(name, gang),))

    def _on_foreign(self, pod: PodRecord) -> None:
        """Count a pod of another scheduler, or its new size, if its node exists."""
        node = self.world.nodes.get(pod.node)
        if node is not None and not pod.has_ended:
            self._send(node.partition, allocations=(foreign_allocation(pod),))

    def _on_nominated(self, news: PodNominated) -> None:
        """Count a nominated pod of another scheduler, or stop counting it."""
        pod, node = news.pod, self.world.nodes.get(news.pod.node)
        if node is not None and news.is_over:
            why = TerminationType.STOPPED_BY_RM
            release = AllocationRelease("", pod.uid, why, message="it is no longer nominated")
            self._send(node.partition, releases=(release,))
        elif node is not None:
            self._send(node.partition, allocations=(nominated_allocation(pod),))

    def _foreign_ended(self, pod: PodRecord) -> None:
        why = TerminationType.STOPPED_BY_RM
        release = AllocationRelease("", pod.uid, why, message="pod terminated")
        self._send(self._partition_of(pod), releases=(release,))

    def _on_changed(self, pod: PodRecord) -> None:
        """Send a pod's new size, or ask for a pod that may be scheduled now."""
        if pod.spec.foreign or not pod.node:
            self._asked.pop(pod.uid, None)
            self._on_pod(pod)
        elif not pod.has_ended:
            self._send(self._partition_of(pod), allocations=(existing(self.world, pod),))

    def _on_pod_ended(self, pod: PodRecord) -> None:
        if pod.spec.foreign:
            self._foreign_ended(pod)
        elif pod.node:
            self._bound.forget(pod)
            self._release(pod, TerminationType.STOPPED_BY_RM, "task completed")
        else:
            self._release_ask(pod)
        self._after_pod(pod)

    def _on_pod_gone(self, pod: PodRecord) -> None:
        if pod.has_ended and not pod.release:
            return
        if pod.spec.foreign:
            self._foreign_ended(pod)
        elif pod.node:
            self._bound.forget(pod)
            why = TerminationType(pod.release) if pod.release else TerminationType.STOPPED_BY_RM
            self._release(pod, why, "pod terminated")
        else:
            self._release_ask(pod)
        self._after_pod(pod)

    def _on_bind_refused(self, news: BindRefused) -> None:
        """Return an allocation: its ask waits again, at its old position.

        If the core released it with its node during the bind, it is asked for again, and a
        placeholder that is no longer needed is deleted.
        """
        pod = news.pod
        self.refused_binds += 1
        self._bound.forget(pod)
        application = self.world.applications.get(pod.spec.application_id)
        if application is not None and self._displaced.pop(pod.uid, pod) is None:
            self._ask_again(application, pod)
            return
        self._release(pod, TerminationType.SCHEDULING_FAILED_ON_RM, news.reason)
        self._asked[pod.uid] = None

    def _ask_again(self, application: ApplicationRecord, pod: PodRecord) -> None:
        self._asked.pop(pod.uid, None)
        if is_to_be_asked(application, pod):
            self._send(application.partition, asks=(self._ask(pod),))
        elif pod.spec.placeholder and not application.may_reserve:
            self._calls.append(DeletePod(pod.uid, "", IN_THE_WAY))

    def _on_placeholder_failed(self, news: PlaceholderFailed) -> None:
        """Give up a gang: delete its placeholders, and ask for its real pods one by one."""
        application = self.world.applications.get(news.application_id)
        if application is None or application.phase is not ApplicationPhase.RESERVING:
            return
        application.is_gang_over = True
        application.placeholders_refused = news.reason
        application.phase = ApplicationPhase.RUNNING
        self._cancel_creates(application)
        self.world.touch_application(application)
        self._report(application, PLACEHOLDER_CREATE_FAILED, news.reason, is_warning=True)
        given_up = GangGivenUp(application.application_id, news.reason)
        self._send(application.partition, gangs_given_up=(given_up,))
        self._ask_for_pods(application)
        self._send(application.partition, notes=tuple(notes_of_gang(self.world, application)))
        for pod in self.world.pods_of(application.application_id):
            if pod.spec.placeholder and not pod.has_ended:
                if not pod.node:
                    self._release_ask(pod)
                self._calls.append(DeletePod(pod.uid, "", news.reason))

    def _on_held_back(self, news: PodsHeldBack) -> None:
        """Report the held-back pods to users; a recovering core gets the list again."""
        key, told = (news.partition, news.told.application_id), news.told
        if told.held:
            self._held_back[key] = told
        elif self._held_back.pop(key, None) is None:
            return
        self._send(news.partition, pods_held=(told,))

    # --- from the core --------------------------------------------------------------------------

    def _on_node_answered(self, answer: AcceptedNode | RejectedNode | NodeInfo) -> None:
        """Record that the core knows a node: later decisions concern the current one."""
        key = self._decided_in, answer.node_id
        left = self._unanswered.pop(key, 0) - 1
        if left > 0:
            self._unanswered[key] = left

    def _on_accepted(self, accepted: AcceptedApplication) -> None:
        application = self._meant(accepted)
        if application is None or application.phase is not ApplicationPhase.NEW:
            return
        if self._is_deserted(application):
            self._end(application)
            return
        for pod in self.world.pods_of(application.application_id):
            self._note(application, pod)
        is_gang = bool(application.task_groups) and not application.is_gang_over
        reserves = is_gang and not self._bound.has_started(application)
        application.phase = ApplicationPhase.RESERVING if reserves else ApplicationPhase.RUNNING
        self.world.touch_application(application)
        if reserves:
            self._report(
                application, "CreatingPlaceholders", "creating the placeholders of its gang"
            )
            self._ask_for_pods(application)
            self._to_make.add(application)
        else:
            self._clear_the_way(application)
            self._ask_for_pods(application)

    def _on_rejected(self, rejected: RejectedApplication) -> None:
        application = self._meant(rejected)
        if application is None or application.phase is not ApplicationPhase.NEW:
            return
        application.phase = ApplicationPhase.REJECTED
        application.message = rejected.reason
        self.world.touch_application(application)
        for pod in self.world.pods_of(application.application_id):
            self._note(application, pod)
        self._fail_unbound(application, "ApplicationRejected", rejected.reason)

    def _on_ask_rejected(self, rejected: RejectedAllocation) -> None:
        pod = self.world.pods.get(rejected.allocation_key)
        if pod is not None and not pod.node and rejected.allocation_key in self._asked:
            del self._asked[pod.uid]
            self._calls.append(FailPod(pod.uid, "AskRejected", rejected.reason))

    def _on_allocation(self, place: tuple[str, str, Devices]) -> None:
        key, node, devices = place
        pod = self.world.pods.get(key)
        if pod is None or pod.node or pod.has_ended:
            return
        if pod.deletion_ns:
            return  # the core will be informed of its end
        is_anew = (self._decided_in, node) in self._unanswered
        shortage = f'nodes "{node}" not found: there is a new one of that name' if is_anew else ""
        shortage = shortage or self.world.on_nodes.shortage(node, pod.spec.resource, devices)
        if shortage:
            self._on_bind_refused(BindRefused(pod, shortage))
        else:
            self._calls.append(BindPod(pod.uid, node, devices))

    def _on_bound(self, pod: PodRecord) -> None:
        """Record that a pod was bound; if its gang is whole now, ask for the gang's real pods."""
        self._nominated.pop(pod.uid, None)
        application = self.world.applications.get(pod.spec.application_id)
        if application is not None and pod.spec.placeholder and not pod.deletion_ns:
            self._bound.note(pod)
            if not application.reservation_start_ns:
                application.reservation_start_ns = pod.bound_ns
                self.world.touch_application(application)
            if application.phase is ApplicationPhase.RESERVING:
                self._report_reserved(application, pod.spec.task_group_name)
                self._start_if_whole(application)

    def _count_placeholders_on(self, node: str) -> None:
        """Count the bound placeholders of a node that was added or removed."""
        for pod in self.world.on_nodes.of(node):
            self._bound.forget(pod)
            self._bound.note(pod)
            application = self.world.applications.get(pod.spec.application_id)
            if pod.spec.placeholder and application is not None:
                self._start_if_whole(application)

    def _on_ask_released(self, release: AllocationAskRelease) -> None:
        """Confirm that the core dropped an ask; for a placeholder once its pod is gone."""
        self._unconfirmed.pop(release.allocation_key, None)
        if not release.termination_type.is_schedulers:
            return  # it confirms our own release
        pod = self.world.pods.get(release.allocation_key)
        if pod is None or pod.node or not pod.spec.placeholder:
            self._asked.pop(release.allocation_key, None)
            self._send(self._decided_in, ask_releases=(release,))
        else:
            self._asked.pop(pod.uid, None)
            self._carry_on(pod, release)
            self._calls.append(DeletePod(pod.uid, release.termination_type, release.message))

    def _on_released(self, release: AllocationRelease) -> None:
        """Delete a pod that the core released; echoes of our own releases delete nothing.

        A pod that is not bound lost its place with the node before the bind: it is asked for again.
        """
        pod = self.world.pods.get(release.allocation_key)
        if release.termination_type is TerminationType.STOPPED_BY_RM:
            application = self.world.applications.get(release.application_id)
            if pod is None or application is None:
                return
            if is_to_be_asked(application, pod):
                self._send(application.partition, asks=(self._ask(pod),))
            elif pod.node and not pod.has_ended:
                self._displaced[pod.uid] = None
            return
        if pod is None:
            self._send(self._decided_in, releases=(release,))
            return
        self._carry_on(pod, release)
        if not pod.node:
            self._release(pod, release.termination_type, "pod was not bound")
            self._calls.append(DeletePod(pod.uid, "", release.message))
        else:
            self._calls.append(DeletePod(pod.uid, release.termination_type, release.message))

    def _on_updated(self, updated: UpdatedApplication) -> None:
        application = self._meant(updated)
        if application is None or not application.is_live:
            return
        application.core_state = updated.state
        application.core_state_ns = updated.state_transition_timestamp_ns
        if updated.state == ApplicationState.RUNNING and not application.execution_start_ns:
            application.execution_start_ns = updated.state_transition_timestamp_ns
        self.world.touch_application(application)
        if updated.state in (ApplicationState.COMPLETED, ApplicationState.FAILED):
            self._on_core_ended(application)
        elif application.phase is not ApplicationPhase.ENDING:
            self._follow(application, updated)
        elif updated.state == ApplicationState.RESUMING:
            self._finish(application)

    def _on_scheduling_state(self, state: ContainerSchedulingState) -> None:
        """Write a pod's condition (unschedulable, for autoscalers), nominated node, or an event.

        Events are written for running pods, too.
        """
        key, pod = state.allocation_key, self.world.pods.get(state.allocation_key)
        if state.state is SchedulingState.SKIPPED and pod is not None and not pod.has_ended:
            self._calls.append(WriteEvent(key, "Informational", state.reason))
        if key not in self._asked:
            return
        if state.state is SchedulingState.RESERVED:
            self._nominate(key, state.node_id)
        elif state.state is SchedulingState.FAILED:
            self._calls.append(MarkUnschedulable(key, state.reason))

    def _meant(
        self, news: AcceptedApplication | RejectedApplication | UpdatedApplication
    ) -> ApplicationRecord | None:
        """Return the application of a message; None if it concerns an earlier submission."""
        application = self.world.applications.get(news.application_id)
        if application is None or news.submission not in (0, application.submission):
            return None
        return application


def _unwanted(application: ApplicationRecord | None) -> str:
    """Return why an application needs no new placeholder, "" if it does."""
    if application is None or application.phase is ApplicationPhase.ENDING:
        return "its application is gone"
    return "" if application.may_reserve else IN_THE_WAY


def _places(allocations: Sequence[Allocation]) -> Iterator[tuple[str, str, Devices]]:
    """Yield the key, node and devices of each allocation; its other fields are not needed."""
    columns = (values_of(allocations, name) for name in ("allocation_key", "node_id", "devices"))
    return zip(*columns, strict=True)
