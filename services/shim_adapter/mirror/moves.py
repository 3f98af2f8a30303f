"""The mirror's actions: ask, release, report. ``mirror.py`` decides when.

The results, calls to the resource manager and messages to the core, are collected until ``_taken``.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from services.shim_adapter.mirror.asks import ask_of
from services.shim_adapter.mirror.calls import (
    Call,
    CancelCreates,
    DeletePod,
    FailPod,
    NominatePod,
    WriteEvent,
)
from services.shim_adapter.mirror.gangs import BoundPlaceholders
from services.shim_adapter.mirror.notes import notes_of
from services.shim_adapter.mirror.recovery import is_to_be_asked
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationRecord, PodPhase, PodRecord
from shared.messages.envelope import Outgoing, core_of
from shared.messages.interface import (
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    TerminationType,
    UpdateRequest,
)
from shared.model.names import DEFAULT_PARTITION

MAX_UNCONFIRMED = 200_000  # ask releases; of those before them no confirmation is awaited
IN_THE_WAY = "its gang no longer reserves"
Reaction = tuple[list[Call], list[Outgoing]]


class _Open:
    """The sections of a message being built, and the last section with items."""

    __slots__ = ("last", "sections")

    def __init__(self) -> None:
        self.sections: dict[str, list[Any]] = {}
        self.last = 0


_ORDER = {item.name: at for at, item in enumerate(fields(UpdateRequest))}


class Moves:
    """The world, the open asks, and the pending messages and calls."""

    def __init__(self, world: World, rm_id: str) -> None:
        self.world = world
        self.rm_id = rm_id
        self._asked: dict[str, None] = {}  # pods that the core has an ask for
        self._displaced: dict[str, None] = {}  # the core dropped their node first
        self._bound = BoundPlaceholders(world)
        self._nominated: dict[str, str] = {}  # nominated node, by waiting pod
        self._unconfirmed: dict[str, AllocationAskRelease] = {}  # our releases, by pod
        self._noted: dict[str, None] = {}  # pods whose notes were sent
        self._failed: dict[str, None] = {}  # pods that are being failed at this moment
        self._calls: list[Call] = []
        self._outgoing: list[Outgoing] = []
        self._open: dict[str, _Open] = {}  # the message being built, by partition

    # --- asking ---------------------------------------------------------------------------------

    def _ask_for_pods(self, application: ApplicationRecord) -> None:
        """Ask for the pods that may be scheduled: placeholders while reserving, real ones after."""
        asks = tuple(
            self._ask(pod)
            for pod in self.world.pods_of(application.application_id)
            if is_to_be_asked(application, pod) and pod.uid not in self._asked
        )
        if asks:
            self._send(application.partition, asks=asks)

    def _ask(self, pod: PodRecord) -> AllocationAsk:
        self._asked[pod.uid] = None
        if not pod.spec.placeholder:
            name = f"{pod.spec.namespace}/{pod.spec.name}"
            text = f"{name} is queued and waiting for allocation"
            self._calls.append(WriteEvent(pod.uid, "Scheduling", text))
            self._report_member(pod)
        return ask_of(pod, originator=self.world.is_originator(pod))

    def _report_member(self, pod: PodRecord) -> None:
        """Write an event at a pod that belongs to a task group of its application."""
        application = self.world.applications.get(pod.spec.application_id)
        name = pod.spec.task_group_name
        if application is None or application.is_gang_over or not name:
            return
        if any(group.name == name for group in application.task_groups):
            text = f"Pod belongs to the taskGroup {name}, it will be scheduled as a gang member"
            self._calls.append(WriteEvent(pod.uid, "GangScheduling", text, action="TaskGroupMatch"))

    def _nominate(self, uid: str, node: str) -> None:
        """Set a pod's nominated node if it changed; "" clears it."""
        if self._nominated.pop(uid, "") != node:
            self._calls.append(NominatePod(uid, node))
        if node:
            self._nominated[uid] = node

    # --- releasing ------------------------------------------------------------------------------

    def _fail_unbound(self, application: ApplicationRecord, reason: str, message: str) -> None:
        """Fail the unbound pods; write the event at the first pod, with preset yunikorn at each."""
        failed = f"Application {application.application_id} scheduling failed, reason: {message}"
        at_each = self.world.is_preset_yunikorn
        if not at_each:
            self._report(application, "ApplicationFailed", failed, is_warning=True)
        for pod in self.world.pods_of(application.application_id):
            if not pod.node and not pod.has_ended:
                self._asked.pop(pod.uid, None)
                if pod.spec.placeholder:
                    self._calls.append(DeletePod(pod.uid, "", reason))
                else:
                    self._failed[pod.uid] = None
                    if at_each:
                        self._calls.append(
                            WriteEvent(pod.uid, "ApplicationFailed", failed, is_warning=True)
                        )
                    self._calls.append(FailPod(pod.uid, reason, message))

    def _clear_the_way(self, application: ApplicationRecord) -> None:
        """Delete waiting placeholders of a gang that no longer reserves.

        There may be some: an instance that dies while a create is in progress leads to two
        placeholders.
        """
        if application.may_reserve:
            return
        for pod in self.world.pods_of(application.application_id):
            if pod.spec.placeholder and not (pod.node or pod.has_ended or pod.deletion_ns):
                self._release_ask(pod)
                self._calls.append(DeletePod(pod.uid, "", IN_THE_WAY))

    def _cancel_creates(self, application: ApplicationRecord) -> None:
        if application.placeholders_made:
            self._calls.append(CancelCreates(application.application_id))

    def _release(self, pod: PodRecord, why: TerminationType, message: str) -> None:
        self._asked.pop(pod.uid, None)
        application = self.world.applications.get(pod.spec.application_id)
        release = AllocationRelease(
            pod.spec.application_id,
            pod.uid,
            why,
            message=message,
            has_succeeded=pod.phase is PodPhase.SUCCEEDED,
            is_final=application is not None and application.is_deleted,
            has_failed=pod.phase is PodPhase.FAILED,
        )
        self._send(self._partition_of(pod), releases=(release,))

    def _release_ask(self, pod: PodRecord) -> None:
        """Withdraw an ask, or confirm the core's release of it, because its pod is gone."""
        why = TerminationType(pod.release) if pod.release else TerminationType.STOPPED_BY_RM
        is_asked = self._asked.pop(pod.uid, pod) is None
        if not (is_asked or pod.release):
            return
        release = AllocationAskRelease(pod.spec.application_id, pod.uid, why)
        if not why.is_schedulers:
            self._unconfirmed[pod.uid] = release
            if len(self._unconfirmed) > MAX_UNCONFIRMED:
                del self._unconfirmed[next(iter(self._unconfirmed))]
        self._send(self._partition_of(pod), ask_releases=(release,))

    def _report(
        self, application: ApplicationRecord, reason: str, text: str, *, is_warning: bool = False
    ) -> None:
        """Write an event about an application at its first real pod."""
        pod = self.world.originator(application.application_id)
        if pod is not None:
            self._calls.append(WriteEvent(pod.uid, reason, text, is_warning))

    def _note(self, application: ApplicationRecord, pod: PodRecord) -> None:
        """Report a problem of a pod, or why it waits, once, in an event and to the core."""
        notes = () if pod.uid in self._noted else tuple(notes_of(application, pod))
        if not notes:
            return
        self._noted[pod.uid] = None
        for note in notes:
            self._calls.append(WriteEvent(pod.uid, note.reason, note.message, is_warning=True))
        self._send(application.partition, notes=notes)

    # --- sending --------------------------------------------------------------------------------

    def _partition_of(self, pod: PodRecord) -> str:
        """Return a pod's partition: its application's, or its node's for a foreign pod."""
        if not pod.spec.foreign:
            return self.world.partition_of(pod.spec.application_id)
        node = self.world.nodes.get(pod.node)
        return DEFAULT_PARTITION if node is None else node.partition

    def _to_core(self, partition: str, message: object) -> Outgoing:
        epoch = self.world.epoch_of(partition)
        return Outgoing(core_of(partition), message, epoch=epoch, partition=partition)

    def _send(self, named: str, **sections: Sequence[Any]) -> None:
        """Send items to the core of a named partition.

        They are added to the message of earlier items, if no section begins before its last one.
        Until it is known whether the partition exists nothing is sent: a recovery sends it.
        """
        partition = self.world.partition_for(named)
        if partition is None:
            return
        filled = [(_ORDER[name], name, items) for name, items in sections.items() if items]
        if filled and min(filled)[0] < self._open.setdefault(partition, _Open()).last:
            self._close(partition)
        for order, name, items in filled:
            said = self._open.setdefault(partition, _Open())
            said.last = max(said.last, order)
            said.sections.setdefault(name, []).extend(items)

    def _close(self, partition: str) -> None:
        said = self._open.pop(partition, None)
        if said is not None and said.sections:
            sections: Any = {name: tuple(items) for name, items in said.sections.items()}
            request = UpdateRequest(self.rm_id, **sections)
            self._outgoing.append(self._to_core(partition, request))

    def outgoing(self) -> list[Outgoing]:
        """Return the messages to the cores since the last call."""
        for partition in list(self._open):
            self._close(partition)
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _called(self) -> list[Call]:
        calls, self._calls = self._calls, []
        self._failed.clear()
        return calls

    def _taken(self) -> Reaction:
        return self._called(), self.outgoing()
