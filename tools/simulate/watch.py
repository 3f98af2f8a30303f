"""Machines that are watched: what must never happen is seen when it happens.

Every machine: a message is handled once, and nothing behind what its sender published later. The
core: an ask is allocated at most once until it is released, no timer has an effect early, news of
an epoch that is over has none, and no decision breaks a level that a gang requires, or its minimum.
The shim adapter: a decision of an epoch that is over does nothing to a pod.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

from services.core.scheduler.actions.domain_places import required_parts
from services.core.scheduler.model.rows import Application
from services.core.scheduler.scheduler import Scheduler
from services.core.scheduler.statement.partition import Partition
from services.shim_adapter.machine import ShimMachine
from shared.messages.envelope import Envelope, Outgoing
from shared.messages.gang_tree import GangTree
from shared.messages.interface import TerminationType, UpdateRequest, UpdateResponse
from shared.messages.protocol import PARTITION_TIMER, SyncBegin, TimerFirings
from shared.messages.trace import TraceRecords
from tools.simulate.order import Order, Sender
from tools.simulate.resource_manager import Disk, FaultyCluster, Report


class Watched:
    """A machine, with everything handed through but what is watched, and other ways in."""

    def __init__(self, inner: Any, report: Report, order: Order) -> None:
        self.inner = inner
        self._report = report
        self._order = order
        self._heard: dict[str, None] = {}
        self._latest: dict[Sender, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Handle a message, once."""
        self._hear(envelope)
        outgoing: list[Outgoing] = self.inner.handle(envelope, now_ns)
        return outgoing

    def _hear(self, envelope: Envelope) -> None:
        """See that a message comes once, and in its order.

        The records of the trace may be told again: they are read from their start.
        """
        if isinstance(envelope.message, TraceRecords):
            return
        if envelope.message_id in self._heard:
            self._report(f"{envelope.kind} {envelope.message_id} was handled again")
        self._heard[envelope.message_id] = None
        places = self._order.places(envelope.message_id)
        if places and all(self._latest.get(who, 0) > place for who, place in places.items()):
            self._report(f"{envelope.kind} {envelope.message_id} came behind a later one")
        if len(places) == 1:
            self._latest.update(places)


class WatchedCore(Watched):
    """A core."""

    inner: Scheduler

    def __init__(self, inner: Scheduler, report: Report, order: Order) -> None:
        super().__init__(inner, report, order)
        self._life = order.begin(inner.core_id, inner.name)
        self._allocated: dict[str, None] = {}

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Handle a message; what releases comes to is taken from what is allocated."""
        self._life.heard.append((envelope, now_ns))
        message = envelope.message
        early: list[str] = []
        if isinstance(message, SyncBegin):
            self._begin_again()
        elif isinstance(message, UpdateRequest):
            for release in message.releases:
                self._allocated.pop(release.allocation_key, None)
        elif isinstance(message, TimerFirings):
            early = self._not_due(message, now_ns)
        is_over = isinstance(message, UpdateRequest) and 0 < envelope.epoch < self.inner._epoch
        before = self._sums() if is_over else ()
        outgoing = super().handle(envelope, now_ns)
        if is_over and before != self._sums():
            self._report(f"news of epoch {envelope.epoch} had an effect in a later one")
        armed = self._timers() if early else {}
        for timer_id in early:
            if timer_id not in armed:
                self._report(f"timer {timer_id} had its effect before it was due")
        return outgoing

    def _begin_again(self) -> None:
        self._allocated.clear()
        if not self.inner.is_synced:
            self._latest.clear()  # its first place went to the core that read before this one

    def _sums(self) -> tuple[int, ...]:
        """Return how much of everything there is: what news changes."""
        partition = self.inner.partition
        applications = partition.applications.values()
        return (
            len(partition.nodes.nodes),
            sum(partition.nodes.total.values()),
            len(applications),
            sum(len(application.group_of) for application in applications),
            sum(len(application.allocations) for application in applications),
            len(partition.foreign),
        )

    def _timers(self) -> dict[str, tuple[str, int]]:
        return timers_of(self.inner)

    def _not_due(self, firings: TimerFirings, now_ns: int) -> list[str]:
        """Return which of the timers that fire stand, and are not due."""
        armed, partition = self._timers(), self.inner.partition
        now_ns = max(now_ns, partition.now_ns)
        return [
            fired.timer_id
            for fired in firings.fired
            if fired.timer_id in armed
            and armed[fired.timer_id][0] == fired.generation
            and armed[fired.timer_id][1] > now_ns
        ]

    def flush(self, now_ns: int) -> list[Outgoing]:
        """Decide, and see that nothing is allocated twice."""
        self._life.heard.append((None, now_ns))
        outgoing = self.inner.flush(now_ns)
        for item in outgoing:
            if isinstance(item.message, UpdateResponse):
                self._note(item.message)
        return outgoing

    def _note(self, response: UpdateResponse) -> None:
        for allocation in response.new_allocations:
            key = allocation.allocation_key
            if key in self._allocated:
                self._report(f"ask {key} was allocated again")
            self._allocated[key] = None
        for release in response.released_allocations:
            if not release.termination_type.is_schedulers:
                self._allocated.pop(release.allocation_key, None)
        for problem in of_gangs(self.inner.partition, response):
            self._report(problem)


def of_gangs(partition: Partition, response: UpdateResponse) -> Iterator[str]:
    """See that decisions break no level that a gang requires, and no gang's minimum.

    What others did to it, a pod that was lost or bound elsewhere, is not judged.
    """
    new = {item.allocation_key: item for item in response.new_allocations}
    victims = {
        item.allocation_key
        for item in response.released_allocations
        if item.termination_type is TerminationType.PREEMPTED_BY_SCHEDULER
    }
    ids = [item.application_id for item in new.values()]
    ids += [item.application_id for item in response.released_allocations]
    for name in dict.fromkeys(ids):
        application = partition.applications.get(name)
        if application is None:
            continue
        if application.layout is not None:
            yield from _out_of_its_domain(partition, application, new.keys())
        if application.tree is not None and not application.succeeded:
            yield from _below_its_minimum(application, application.tree, victims)


def _out_of_its_domain(
    partition: Partition, application: Application, new: Collection[str]
) -> Iterator[str]:
    """See that new pods of each part that requires a level are where those that stay are."""
    assert application.layout is not None
    for part in required_parts(application.layout):
        names, racks = part.minima(), {True: dict[str, None](), False: dict[str, None]()}
        for key, pod in application.allocations.items():
            node = partition.nodes.nodes.get(pod.node_id)
            if pod.task_group_name in names and key not in application.released and node:
                racks[key in new][node.labels.get(part.topology.required, "")] = None
        come, stay = [*racks[True]], [*racks[False]]
        if len(come) > 1 or (come and len(stay) == 1 and come != stay):
            yield f"gang {application.id} is in {stay}, and gets pods in {come}"


def _below_its_minimum(
    application: Application, tree: GangTree, victims: Collection[str]
) -> Iterator[str]:
    """See that what is taken of a gang that had its minimum leaves it that, or nothing.

    A pod that is moved is not taken: its place elsewhere is kept for the next.
    """
    now = Counter(application.real_pods())
    before = Counter(now)
    for key in application.released:
        pod = application.allocations[key]
        is_moved = application.moved(key) is not None
        if not pod.placeholder and (is_moved or key in victims):
            before[pod.task_group_name] += 1
            now[pod.task_group_name] += is_moved
    is_taken = before != now and any(now.values())
    if is_taken and tree.is_satisfied(before) and not tree.is_satisfied(now):
        yield f"gang {application.id} had {dict(before)}, and is left {dict(now)}"


class WatchedShim(Watched):
    """A shim adapter: it reads what is kept when it becomes the active one."""

    inner: ShimMachine

    def __init__(
        self, make: Callable[[], ShimMachine], disk: Disk, report: Report, order: Order
    ) -> None:
        super().__init__(None, report, order)
        self._make = make
        self._disk = disk

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Handle a message, in one piece."""
        said: list[Outgoing] = []
        for _ in self.slices(envelope, now_ns, said):
            pass
        return said

    def slices(self, envelope: Envelope, now_ns: int, said: list[Outgoing]) -> Iterator[None]:
        """Handle a message as the host has it handled."""
        if self.inner is None:
            self.inner = self._make()
            self.inner._handlers[UpdateResponse] = self._on_response
        self._hear(envelope)
        yield from self.inner.slices(envelope, now_ns, said)
        self._disk.check_gangs(self.inner.world)

    def _on_response(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Have a decision carried out, apart from what the cluster does meanwhile by itself."""
        cluster = self.inner.cluster
        assert isinstance(cluster, FaultyCluster)
        done = cluster.done
        outgoing = self.inner._on_response(envelope, now_ns)
        is_over = envelope.epoch < self.inner.world.epoch_of(envelope.partition)
        is_said = any(isinstance(item.message, UpdateRequest) for item in outgoing)
        if is_over and (is_said or cluster.done != done):
            self._report(f"a decision of epoch {envelope.epoch} was carried out in a later one")
        return outgoing

    def flush(self, now_ns: int) -> list[Outgoing]:
        """Keep what was done."""
        return self.inner.flush(now_ns) if self.inner is not None else []

    def next_due_ns(self) -> int | None:
        """Return when there is something to do by itself."""
        return self.inner.next_due_ns() if self.inner is not None else None

    def figures(self) -> dict[str, int | dict[str, int]]:
        """Return what is measured."""
        return self.inner.figures() if self.inner is not None else {}


def timers_of(core: Scheduler) -> dict[str, tuple[str, int]]:
    """Return the generation and the moment of every timer that a core has armed."""
    found = dict(core.partition.timers)
    for application in core.partition.applications.values():
        found |= application.timers
    assert PARTITION_TIMER not in found
    return found
