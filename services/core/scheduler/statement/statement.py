"""A statement: moves that are tried on the partition itself, and kept or undone as a whole.

Rule 1: a pod has one place, and ``_count`` adds or removes it in the ledgers of that place. An
        operation is a pod with its old and new place, so that its inverse in the log
        (``tentative.py``) has the two swapped.
Rule 2: while a statement is open, nodes count capacity being released as expected, less what is
        claimed for asks it was freed for; pod counts too. ``NodeTable.expected_on`` and
        ``would_have`` include this, everything else shows the present.
Rule 3: ``commit`` undoes everything too and returns the net decisions, one for each pod, in the
        order of their first operation. ``actions.victims.carry_out`` applies them by the
        partition's moves.

============= =============================== ============================= ===================
place         node                            queues up to the root         pods that are counted
============= =============================== ============================= ===================
WAITING       --                              --                            --
NOMINATED     less is expected there          kept                          there
PLACED, ask   allocated, not available        allocated; users, application there
PLACED, pod   --                              --                            --
RELEASING     more is expected there          preempting                    not there
   (an ask: and as if it were placed)
MOVING        both: on the old, on the new    --                            on the new
============= =============================== ============================= ===================

A moved pod counts once in its queues: the old pod until it ends, then its replacement. At most one
statement is open at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, partial

from services.core.scheduler.model.devices import need_of
from services.core.scheduler.model.rows import Application, Node, Queue
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.filters.base import After
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.tentative import Noted, Tentative
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.gpus import Devices
from shared.model.resources import Resource, ResourceView, add_into, subtract_into


class Place(IntEnum):
    """A pod's place within a statement."""

    WAITING = 0
    NOMINATED = 1  # an ask, on capacity being released
    PLACED = 2
    RELEASING = 3
    MOVING = 4  # released on its node, nominated on another


@dataclass(frozen=True, slots=True)
class At:
    """A place, with the node of a pod that is to start there."""

    place: Place
    node: Node | None = None


Pod = Ask | Allocation
Follow = Callable[[Pod, At], None]
_Why = tuple[str, str]  # the reason shown to users, and the action
_WAITING, _PLACED, _RELEASING = At(Place.WAITING), At(Place.PLACED), At(Place.RELEASING)


@dataclass(frozen=True, slots=True)
class Decision:
    """The net result of a statement for one pod.

    ``evicts``: its allocation ends. ``node``: it, or its replacement, starts there, at once
    (``is_now``) or when capacity is released; "" for none. ``by`` is the application that benefits,
    ``reason`` the cause shown to users, ``action`` the deciding action.
    """

    application: str
    key: str
    evicts: bool = False
    node: str = ""
    is_now: bool = False
    by: str = ""
    reason: str = ""
    action: str = ""


@dataclass(slots=True)
class _Operation:
    application: Application
    pod: Pod
    was: At
    now: At
    why: "_Why"
    by: str


class StatementEndedError(AssertionError):
    """A committed or discarded statement was used again: a bug."""


class Statement(Tentative):
    """One attempt on a partition: a sequence of operations on pods."""

    def __init__(
        self, partition: Partition, follow: Follow | None = None, *, alone: bool = False
    ) -> None:
        """Open a statement.

        ``follow`` is called with every pod that changes its place, forward and back. With ``alone``
        earlier decisions are not counted on opening, which then costs nothing; ``under_way`` gives
        them for single nodes.
        """
        super().__init__(partition.nodes)
        self.partition = partition
        self._follow, self._alone = follow, alone
        self._operations: list[_Operation] = []
        self._at: dict[str, At] = {}  # of pods whose place changed
        self._has_ended = False
        self._to_have: dict[str, Devices] = {}  # planned devices of nominated pods
        self._whys: dict[str, list[_Why]] = {}  # of evicted pods, the latest last
        for count, node, pod in () if alone else _under_way(partition):
            count(self, node, pod, 1)
            self.did(partial(count, self, node, pod, -1))
        self.last_until_discarded()

    # --- operations -----------------------------------------------------------------------------

    def allocate(self, application: Application, ask: Ask, node: Node) -> None:
        """Place an ask on free capacity."""
        self._move(application, ask, At(Place.PLACED, node))

    def pipeline(self, application: Application, ask: Ask, node: Node) -> None:
        """Place an ask on capacity that is being released, on the node and in its queues."""
        self._move(application, ask, At(Place.NOMINATED, node))

    def withdraw(self, application: Application, ask: Ask, by: str = "") -> None:
        """Return a placed or nominated ask to waiting."""
        self._move(application, ask, _WAITING, by=by)

    def evict(
        self, application: Application, pod: Pod, reason: str, by: str = "", action: str = ""
    ) -> None:
        """Evict an allocation for another application; a moved one loses its new place.

        An ask placed in this statement can be evicted too; a nominated one waits again.
        """
        now = _RELEASING
        if isinstance(pod, Ask):
            at = self.at(pod)
            now = At(Place.RELEASING, at.node) if at.place is Place.PLACED else _WAITING
        self._move(application, pod, now, (reason, action), by)

    def move(
        self, application: Application, allocation: Allocation, node: Node, by: str = ""
    ) -> None:
        """Nominate the replacement of an evicted allocation on another node."""
        self._move(application, allocation, At(Place.MOVING, node), self._why_of(allocation), by)

    def spare(self, application: Application, allocation: Allocation) -> None:
        """Undo an eviction: the allocation stays on its node."""
        self._move(application, allocation, _PLACED)

    def put_back(self, application: Application, pod: Pod, at: At, by: str = "") -> None:
        """Return a pod to a place that it had in this statement."""
        self._move(application, pod, at, self._why_of(pod), by)

    def _move(
        self, application: Application, pod: Pod, now: At, why: "_Why" = ("", ""), by: str = ""
    ) -> None:
        if self._has_ended:
            raise StatementEndedError(f"{_key(pod)}: the statement has ended")
        operation = _Operation(application, pod, self.at(pod), now, why, by)
        self._operations.append(operation)
        if why[0]:
            self._whys.setdefault(_key(pod), []).append(why)
        noted = self.noted()
        self._apply(operation, operation.was, now)
        self.did(partial(self._take_back, noted))

    def _take_back(self, noted: Noted) -> None:
        last = self._operations.pop()
        if last.why[0]:
            self._whys[_key(last.pod)].pop()
        self._apply(last, last.now, last.was)
        self.note_only(noted)

    # --- what it is now -------------------------------------------------------------------------

    def at(self, pod: Pod) -> At:
        """Return a pod's present place."""
        return self._at.get(_key(pod)) or _base(pod)

    def evicted(self) -> list[str]:
        """Return the keys of the pods that are to end."""
        ends = (Place.RELEASING, Place.MOVING)
        return [key for key, at in self._at.items() if at.place in ends]

    def _why_of(self, pod: Pod) -> "_Why":
        """Return the reason and action of a pod's last eviction."""
        whys = self._whys.get(_key(pod))
        return whys[-1] if whys else ("", "")

    @cached_property
    def leaving(self) -> dict[Queue, Resource]:
        """Return the capacity being released in each queue other than by preemption; cached.

        A placeholder that is being replaced counts with the difference to its real pod; one of
        several that one pod replaces does not count.
        """
        found: dict[Queue, Resource] = {}
        for key, application in self.partition.leaving.items():
            if key in application.covering:
                continue
            swap = application.replacing.get(key)
            for level in application.queue.lineage():
                total = found.setdefault(level, {})
                add_into(total, application.allocations[key].resource_per_alloc)
                if swap is not None:
                    subtract_into(total, swap.allocation.resource_per_alloc)
        return found

    # --- the end --------------------------------------------------------------------------------

    def discard(self) -> None:
        """Undo everything and end the statement."""
        super().discard()
        self._has_ended = True

    def commit(self) -> list[Decision]:
        """Undo everything, end the statement, and return its net decisions, one for each pod."""
        decisions = list(self._net())
        self.discard()
        return decisions

    def _net(self) -> Iterator[Decision]:
        last: dict[str, _Operation] = {}
        for operation in self._operations:
            last[_key(operation.pod)] = operation  # a dict keeps the position of the first
        for key, operation in last.items():
            if operation.now == _base(operation.pod):
                continue
            place, node = operation.now.place, operation.now.node
            yield Decision(
                application=operation.application.id,
                key=key,
                evicts=place in (Place.RELEASING, Place.MOVING),
                node=node.node_id if node is not None and place is not Place.RELEASING else "",
                is_now=place is Place.PLACED,
                by=operation.by,
                reason=operation.why[0],
                action=operation.why[1],
            )

    # --- ledgers --------------------------------------------------------------------------------

    def _apply(self, operation: _Operation, was: At, now: At) -> None:
        """Move a pod in the ledgers from one place to another."""
        key = _key(operation.pod)
        self._count(operation.application, operation.pod, was, -1)
        self._count(operation.application, operation.pod, now, 1)
        if now == _base(operation.pod):
            self._at.pop(key, None)
        else:
            self._at[key] = now
        if self._follow is not None:
            self._follow(operation.pod, now)

    def _count(self, application: Application, pod: Pod, at: At, change: int) -> None:
        leaf, amount = application.queue, _amount(pod)
        if at.place is Place.NOMINATED:
            assert at.node is not None
            self._pipeline(at.node, pod, change)
            _change(leaf, "reserved", amount, change)
        elif at.place is Place.PLACED and isinstance(pod, Ask):
            self._assume(application, pod, at, change)
        elif at.place is Place.RELEASING and isinstance(pod, Ask):
            assert at.node is not None
            if change > 0:  # its devices are known only while it is on the node
                self._assume(application, pod, at, change)
            self._expect(at.node, pod, change)
            if change < 0:
                self._assume(application, pod, at, change)
            _change(leaf, "preempting", amount, change)
        elif at.place in (Place.RELEASING, Place.MOVING):
            assert isinstance(pod, Allocation)
            self.partition.victims.try_release(pod, is_gone=change > 0)
            self._expect(self.partition.nodes.nodes[pod.node_id], pod, change)
            if at.node is None:
                _change(leaf, "preempting", amount, change)
            else:
                self._pipeline(at.node, pod, change)

    def _expect(self, node: Node, pod: Pod, change: int) -> None:
        """Expect a pod's capacity to become free on its node (1), or undo that (-1)."""
        nodes = self.partition.nodes
        nodes.expect(node, _amount(pod), change, nodes.devices.of(node, _key(pod)))
        self.partition.victims.renew(node)
        nodes.pods.count_tentatively(node, _spec(pod), -change)

    def _pipeline(self, node: Node, pod: Pod, change: int) -> None:
        """Place a pod on capacity that its node will have (1), or undo that (-1)."""
        nodes, key = self.partition.nodes, _key(pod)
        if change > 0:
            need = need_of(_amount(pod), _spec(pod).constraints)
            before = under_way(self.partition, node) if self._alone and need else After()
            self._to_have[key] = nodes.devices.planned(node, need, before.gone, before.coming)
        nodes.expect(node, _amount(pod), -change, self._to_have[key])
        self.partition.victims.renew(node)
        nodes.pods.count_tentatively(node, _spec(pod), change)

    def _assume(self, application: Application, ask: Ask, at: At, change: int) -> None:
        """Count an ask as if it were allocated (1), or undo that (-1)."""
        nodes, node, amount = self.partition.nodes, at.node, _amount(ask)
        assert node is not None
        if change > 0:
            nodes.place(node, allocation_of(ask.request, node.node_id))
        else:
            nodes.free(node, ask.key)
        _change(application.queue, "allocated", amount, change)
        is_placeholder = ask.request.placeholder
        ledger = application.allocated_placeholder if is_placeholder else application.allocated
        (add_into if change > 0 else subtract_into)(ledger, amount)
        is_only = not (application.allocations or self._has_placed(application, ask))
        for tracker in application.trackers:
            if change > 0:
                tracker.count_in(application.queue, application.id, amount)
            else:
                tracker.take_back(application.queue, application.id, amount, is_last=is_only)

    def _has_placed(self, application: Application, but: Ask) -> bool:
        return any(
            at.place in (Place.PLACED, Place.RELEASING)
            and key != but.key
            and key in application.group_of
            for key, at in self._at.items()
        )


_Count = Callable[[Statement, Node, Pod, int], None]


def _under_way(
    partition: Partition,
) -> Iterator[tuple[_Count, Node, Pod]]:
    """Yield earlier decisions: pods being released, replacements, asks with reserved capacity."""
    for key, application in partition.releasing.items():
        allocation = application.allocations[key]
        node = partition.nodes.nodes.get(allocation.node_id)
        if node is not None and key not in application.covering:
            yield Statement._expect, node, allocation
            swap = application.replacing.get(key)
            if swap is not None and not swap.is_placed:
                yield Statement._pipeline, node, swap.allocation
    for node in partition.nodes.columns.reserved_nodes():
        for reservation in node.reservations.values():
            if not reservation.is_ordinary:
                yield Statement._pipeline, node, reservation.ask


def under_way(partition: Partition, node: Node) -> After:
    """Return the pods that end on a node, and those that start, by earlier decisions.

    A placeholder that is being replaced counts as both; one of several that one pod replaces does
    not count. A reservation counts once its ask has preempted.
    """
    gone: list[Allocation] = []
    coming: list[Allocation | AllocationAsk] = [
        held.ask.request for held in node.reservations.values() if held.has_preempted
    ]
    for key, allocation in partition.victims.on(node).releasing.items():
        owner = partition.applications.get(allocation.application_id)
        if owner is None or key in owner.covering:
            continue
        gone.append(allocation)
        swap = owner.replacing.get(key)
        if swap is not None and not swap.is_placed:
            coming.append(swap.allocation)
    return After(gone, coming)


def _key(pod: Pod) -> str:
    return pod.key if isinstance(pod, Ask) else pod.allocation_key


def _amount(pod: Pod) -> ResourceView:
    return pod.shape.resource if isinstance(pod, Ask) else pod.resource_per_alloc


def _spec(pod: Pod) -> AllocationAsk | Allocation:
    return pod.request if isinstance(pod, Ask) else pod


def _base(pod: Pod) -> At:
    return _WAITING if isinstance(pod, Ask) else _PLACED


def _change(queue: Queue, ledger: str, amount: ResourceView, change: int) -> None:
    """Change one ledger from a queue to the root; nothing is requeued."""
    count = add_into if change > 0 else subtract_into
    for level in queue.lineage():
        count(getattr(level, ledger), amount)
