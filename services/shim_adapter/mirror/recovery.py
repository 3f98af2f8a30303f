"""Recovery: the messages from which a core rebuilds its state.

Source: ARCHITECTURE.md, Recovery. The order is nodes and applications, then allocations, then asks,
so that every item finds what it refers to.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from services.shim_adapter.mirror.asks import (
    allocation_of,
    application_request,
    ask_of,
    disruption_of,
    forced,
    foreign_allocation,
    node_info,
    nominated_allocation,
)
from services.shim_adapter.mirror.notes import all_notes
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationPhase, ApplicationRecord, NodeRecord, PodRecord
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAskRelease,
    DisruptionState,
    NodeAction,
    NodeInfo,
    PodsHeld,
    TerminationType,
    UpdateRequest,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from shared.model.names import DEFAULT_PARTITION
from shared.model.states import ApplicationState

_STARTING = (
    "",
    ApplicationState.NEW,
    ApplicationState.ACCEPTED,
    ApplicationState.RESUMING,
)
_CREATED = {False: NodeAction.CREATE, True: NodeAction.CREATE_DRAIN}  # by whether it is cordoned

_Item = TypeVar("_Item", NodeRecord, ApplicationRecord)


class Existing:
    """The nodes, applications and waiting pods of one partition.

    The default partition includes those that name an unknown partition, and rejects them.
    """

    def __init__(self, world: World, partition: str) -> None:
        self._world = world
        self._partition = partition
        self.nodes = self._of(world.nodes.values())
        self.applications = [
            application
            for application in self._of(world.applications.values())
            if application.is_live
        ]

    @cached_property
    def waiting(self) -> list[PodRecord]:
        """The waiting pods; read it after every gang's phase was updated from its pods."""
        return [
            pod
            for application in self.applications
            for pod in self._world.pods_of(application.application_id)
            if is_to_be_asked(application, pod)
        ]

    def _of(self, items: Iterable[_Item]) -> list[_Item]:
        """Return the items of the partition; unknown partitions belong to the default one."""
        partition, resolved = self._partition, self._world.partition_for
        if partition != DEFAULT_PARTITION:
            return [item for item in items if item.partition == partition]
        return [item for item in items if resolved(item.partition) == partition]

    def messages(
        self,
        rm_id: str,
        unconfirmed: tuple[AllocationAskRelease, ...],
        left_out: Container[tuple[type, str]] = (),
        held_back: tuple[PodsHeld, ...] = (),
    ) -> Iterator[object]:
        """Yield SyncBegin, update requests, SyncEnd, and notes for users.

        ``left_out`` are nodes by id and allocations by key that cannot be sent: they are skipped.
        """
        world = self._world
        settings = tuple(sorted(world.scheduler_settings.items()))
        yield SyncBegin(world.config, settings, world.last_good_config, finds_pods=True)
        usage = world.usage.of(self._partition)
        if usage:
            yield UpdateRequest(rm_id, usage=usage)
        nodes = tuple(
            node_info(node, _CREATED[node.is_cordoned], rm_id)
            for node in self.nodes
            if (NodeInfo, node.name) not in left_out
        )
        applications = tuple(map(self._request, self.applications))
        yield UpdateRequest(rm_id, nodes=nodes, new_applications=applications)
        pods = [
            pod
            for application in self.applications
            for pod in world.pods_of(application.application_id)
            if not pod.has_ended
        ]
        allocations = tuple(
            existing(world, pod)
            for pod in pods
            if pod.node and (Allocation, pod.uid) not in left_out
        )
        foreign = tuple(self._foreign(left_out))
        yield UpdateRequest(rm_id, allocations=allocations + foreign)
        held = [pod for pod in pods if pod.disruption is not DisruptionState.FREE]
        if held:
            yield UpdateRequest(rm_id, disruptions=tuple(map(disruption_of, held)))
        asks = tuple(ask_of(pod, originator=world.is_originator(pod)) for pod in self.waiting)
        yield UpdateRequest(rm_id, asks=asks, ask_releases=unconfirmed)
        yield SyncEnd(len(nodes), len(allocations), len(asks))
        notes = tuple(all_notes(world, self.applications))  # now each has its state again
        if notes or held_back:
            yield UpdateRequest(rm_id, notes=notes, pods_held=held_back)

    def _foreign(self, left_out: Container[tuple[type, str]]) -> Iterator[Allocation]:
        """Yield the pods of other schedulers, and those nominated for a node."""
        for node in self.nodes:
            there = [pod for pod in self._world.on_nodes.of(node.name) if pod.spec.foreign]
            coming = self._world.on_nodes.nominated(node.name)
            for pods, written in ((there, foreign_allocation), (coming, nominated_allocation)):
                yield from (written(pod) for pod in pods if (Allocation, pod.uid) not in left_out)

    def _request(self, application: ApplicationRecord) -> AddApplicationRequest:
        """Return the request for an application that must be accepted whatever its queue is now.

        One with pods on nodes goes to the recovery queue if no rule places it any more, as does
        every one of a removed partition. One that was asked for and has no pod left was accepted,
        although the core's message is still in transit. So was one that is ending, whose gang is
        over: only its end is left.
        """
        request = application_request(application)
        name = application.application_id
        is_asked_for = (
            application.phase is ApplicationPhase.RUNNING and not application.is_announced
        )
        is_ending = application.phase is ApplicationPhase.ENDING and request.state in _STARTING
        is_deserted = is_asked_for and not request.state and not self._world.has_waiting_pod(name)
        if is_ending or is_deserted:
            request = replace(request, state=ApplicationState.ACCEPTED)
        pods = self._world.pods_of(name)
        is_dropped = application.partition in self._world.dropped
        if not (is_dropped or any(pod.node and not pod.has_ended for pod in pods)):
            return request
        return forced(request)


def is_to_be_asked(application: ApplicationRecord, pod: PodRecord) -> bool:
    """Whether to ask for a pod now: placeholders first, real pods after them."""
    if pod.node or pod.has_ended or pod.deletion_ns or pod.gates or not application.is_live:
        return False
    if pod.spec.placeholder:
        return application.phase is ApplicationPhase.RESERVING
    return application.phase is ApplicationPhase.RUNNING


def existing(world: World, pod: PodRecord) -> Allocation:
    """Return a bound pod as an allocation.

    A placeholder being replaced by a real pod is not reported as released: the core will decide the
    same again, and its place is not lost to another pod.
    """
    released = pod.release not in ("", TerminationType.PLACEHOLDER_REPLACED)
    return allocation_of(pod, originator=world.is_originator(pod), released=released)
