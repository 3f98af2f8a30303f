"""What is supposed of a partition for a question, on the partition itself, and taken back whole.

Rule 1: besides what a statement tries, applications may have come, nodes be there or be closed, and
        another configuration hold. Each has its inverse; ``discard`` takes back the last first, and
        every ledger and every answer is what it was.
Rule 2: nobody is woken, nothing is told, no timer is armed: an application that is supposed stands
        in no queue and in no bucket, only its user's and its group's limits know it meanwhile.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Self

from services.core.scheduler.model.queue_settings import QueueSettings
from services.core.scheduler.model.rows import (
    Application,
    AskGroup,
    Bucket,
    Node,
    Queue,
    Reservation,
    group_key,
)
from services.core.scheduler.model.settings import CLUSTER_GANG, PARTIAL_GANG
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.node_table import DEFAULT_WEIGHTS
from services.core.scheduler.statement.application_ledger import count_priority
from services.core.scheduler.statement.journal import Row
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.statement import Statement
from shared.messages.conversions import ask_of
from shared.messages.interface import AddApplicationRequest, Allocation, AllocationAsk
from shared.model.gpus import GPU_SHARE
from shared.model.resources import Resource, add_into, subtract_into
from shared.model.states import ApplicationState

_LAST = 2**62  # what is supposed to come has come after everything that is there


class Hypothesis:
    """One question's suppositions. It is used in a ``with``, at whose end all is taken back."""

    def __init__(self, partition: Partition, statement: Statement | None = None) -> None:
        self.partition = partition
        self.statement = statement or Statement(partition)
        self._undo: list[Callable[[], object]] = []
        self._promised: dict[Application, Resource] = {}
        self._freed: dict[Node, None] = {}
        self._numbers = _LAST

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Take everything back, the last first."""
        pods = self.partition.nodes.pods
        had_changed, noted = self.partition.nodes.pods_changed, pods.waiting.noted()
        self.statement.discard()
        while self._undo:
            self._undo.pop()()
        self.partition.nodes.pods_changed = had_changed
        pods.waiting.note_only(noted)

    def undo_later(self, undo: Callable[[], object]) -> None:
        """Have something that is supposed taken back with the rest."""
        self._undo.append(undo)

    # --- applications ---------------------------------------------------------------------------

    def application(self, request: AddApplicationRequest, queue: Queue) -> Application:
        """Suppose that an application was accepted into a queue, the last of all."""
        partition = self.partition
        self._numbers += 1
        way = partition.settings.gang_admission
        application = Application(
            request,
            queue,
            self._numbers,
            request.submission_time_ns or partition.now_ns,
            state=ApplicationState.ACCEPTED,
            starts_in_part=way == PARTIAL_GANG,
            starts_placed=way == CLUSTER_GANG,
        )
        partition.users.link(application)
        self._undo.append(lambda: partition.users.unlink(application))
        return application

    def ask(self, application: Application, request: AllocationAsk) -> Ask:
        """Suppose that an application asks for a pod."""
        partition = self.partition
        if GPU_SHARE in request.resource_per_alloc:
            self._share_devices()
        labels = partition.nodes.pods.labels_of(request.allocation_tags)
        self._numbers += 1
        shape = partition.shapes.as_if_used(request, labels)
        created_ns = request.create_time_ns or partition.now_ns
        ask = Ask(request, shape, self._numbers, created_ns)
        key = group_key(ask)
        group = application.groups.get(key)
        if group is None:
            bucket = Bucket(application.queue, (shape, application.owner))
            name, is_placeholder = request.task_group_name, request.placeholder
            group = AskGroup(application, bucket, name, is_placeholder, ask.is_covered, key)
            application.groups[key] = group
        if request.placeholder:
            application.count_placeholder(request.task_group_name, request.resource_per_alloc)
        application.join(group, ask)
        self._count_waiting(application, ask, 1)
        return ask

    def _share_devices(self) -> None:
        """Suppose that nodes announce shares of their GPUs."""
        nodes, root = self.partition.nodes, self.partition.root
        if nodes.are_devices_shared:
            return
        before = root.max_resource
        nodes.share_devices()
        _limit(root, dict(nodes.total) or None)

        def undo() -> None:
            nodes.share_devices(are_shared=False)
            _limit(root, before)

        self._undo.append(undo)

    def place(self, application: Application, ask: Ask, node: Node) -> None:
        """Suppose that an ask which waits is placed: it waits no more."""
        self.statement.place(application, ask, node)
        self._count_waiting(application, ask, -1)
        if ask.request.placeholder:
            self.set(application, pending_placeholders=application.pending_placeholders - 1)
        if application.state is ApplicationState.ACCEPTED:
            self._start(application)

    def _start(self, application: Application) -> None:
        """Count an application that has something placed among those that run."""
        for level in application.queue.lineage():
            if application.id not in level.allocating_accepted:
                level.allocating_accepted[application.id] = None
                self._undo.append(partial(level.allocating_accepted.pop, application.id))

    def _count_waiting(self, application: Application, ask: Ask, change: int) -> None:
        """Count an ask into what waits, or out of it: queues and applications are ordered by it.

        What waits with those that are refused alike keeps its place among them.
        """
        order = application.order
        if _count(application, ask, change):
            application.order = application.order_at(application.in_use())

        def undo() -> None:
            _count(application, ask, -change)
            application.order = order

        self._undo.append(undo)

    def admit(self, application: Application) -> None:
        """Suppose that a gang is let start: the room for it is promised to it."""
        self.set(application, gang_admitted=True)
        self.promise(application)

    def promise(self, application: Application) -> None:
        """Let what an admitted gang has yet to allocate be promised to it, as it is by now."""
        if not application.is_reserving:
            return
        known = self._promised.get(application)
        if known is None:
            self._undo.append(lambda: self._set_promise(application, application.promise))
        self._set_promise(application, application.outstanding())

    def withdraw_admission(self, application: Application) -> None:
        """Suppose that a gang waits for its admission again: nothing is promised to it."""
        for held in [held for held in application.reservations.values() if held.is_ordinary]:
            self.end_reservation(held)
        if application not in self._promised:
            self._undo.append(lambda: self._set_promise(application, application.promise))
        self._set_promise(application, {})
        self.set(application, gang_admitted=False)

    def _set_promise(self, application: Application, after: Resource) -> None:
        before = self._promised.get(application, application.promise)
        application.queue.change_promise(before, after)
        for tracker in application.trackers:
            tracker.change_promise(application.queue, before, after)
        self._promised[application] = after

    def leaf(self, path: str) -> Queue:
        """Return the leaf of a path, as placement would make it where it is not there."""
        known = self.partition.queues.get(path)
        if known is not None:
            return known
        above, _, name = path.rpartition(".")
        parent = self.partition.root
        for part in above.split(".")[1:]:
            parent = parent.children.get(part) or self._child(part, parent, is_leaf=False)
        return self._child(name, parent, is_leaf=True)

    @staticmethod
    def _child(name: str, parent: Queue, *, is_leaf: bool) -> Queue:
        """Return a queue that its parent does not know of, with what the template gives it."""
        queue = Queue(name, parent, is_leaf=is_leaf, is_managed=False)
        queue.template = None if is_leaf else parent.template
        template = parent.template
        if is_leaf and template is not None:
            queue.max_applications = template.max_applications
            queue.guaranteed_resource = template.guaranteed_resource
            queue.max_resource = template.max_resource
        return queue

    def ask_like(self, allocation: Allocation) -> Ask:
        """Return the ask of whoever is made in the stead of a pod that is evicted."""
        request = ask_of(allocation)
        labels = self.partition.nodes.pods.labels_of(request.allocation_tags)
        shape = self.partition.shapes.as_if_used(request, labels)
        self._numbers += 1
        return Ask(request, shape, self._numbers, self.partition.now_ns)

    # --- nodes ----------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Suppose that there is one node more; the cluster has as much more."""
        nodes, root = self.partition.nodes, self.partition.root
        before = root.max_resource
        nodes.add(node)
        _limit(root, dict(nodes.total))

        def undo() -> None:
            nodes.remove(node)
            _limit(root, before)

        self._undo.append(undo)

    def come(self, node: Node, allocation: Allocation) -> None:
        """Suppose that a pod which is elsewhere comes to a node; its queues count it already."""
        self.partition.nodes.place(node, allocation)
        key = allocation.allocation_key
        self._undo.append(lambda: self.partition.nodes.free(node, key))

    def end_pod(self, application: Application, allocation: Allocation) -> None:
        """Suppose that a pod has ended. Its user runs as many applications as before."""
        nodes = self.partition.nodes
        node, key = nodes.nodes[allocation.node_id], allocation.allocation_key
        if node not in self._freed:
            self._freed[node] = None
            self._undo.append(partial(_put_in_order, node.allocations, [*node.allocations]))
        held = nodes.devices_of(node, key)
        nodes.free(node, key)
        self._count_held(application, allocation, -1)

        def undo() -> None:
            nodes.place(node, allocation, held)
            self._count_held(application, allocation, 1)

        self._undo.append(undo)

    @staticmethod
    def _count_held(application: Application, allocation: Allocation, change: int) -> None:
        """Count what an allocation holds, or held, in every ledger but its node's."""
        amount, queue = allocation.resource_per_alloc, application.queue
        count = add_into if change > 0 else subtract_into
        for level in queue.lineage():
            count(level.allocated, amount)
            for tracker in application.trackers:
                count(tracker.usage[level.path], amount)
        own = application.allocated_placeholder if allocation.placeholder else application.allocated
        count(own, amount)

    def close_node(self, node: Node) -> None:
        """Suppose that nothing more may go to a node."""
        if node.schedulable:
            self._set_schedulable(node, schedulable=False)
            self._undo.append(lambda: self._set_schedulable(node, schedulable=True))

    def _set_schedulable(self, node: Node, *, schedulable: bool) -> None:
        node.schedulable = schedulable
        self.partition.nodes.refresh(node)

    # --- a configuration ------------------------------------------------------------------------

    def set(self, row: Row | Partition, **values: object) -> None:
        """Suppose other values of fields that are in no sum."""
        before = {name: getattr(row, name) for name in values}
        _write(row, values)
        self._undo.append(lambda: _write(row, before))

    def add_queue(self, queue: Queue) -> None:
        """Suppose a queue, below its parent."""
        assert queue.parent is not None
        children = queue.parent.children
        children[queue.name] = queue
        self._undo.append(lambda: children.pop(queue.name))

    def configure_queue(self, queue: Queue, settings: QueueSettings) -> None:
        """Suppose other settings of a queue, with what it then shows to its siblings."""
        before = queue.settings
        queue.configure(settings)
        self._undo.append(lambda: queue.configure(before))

    def order_nodes(self, policy: str, weights: Mapping[str, float]) -> None:
        """Suppose another order of the nodes."""
        nodes = self.partition.nodes
        before, weights_before = nodes.policy, nodes.weights
        if (policy, dict(weights) or DEFAULT_WEIGHTS) == (before, weights_before):
            return
        nodes.set_policy(policy, weights)
        self._undo.append(lambda: nodes.set_policy(before, weights_before))

    def find_owners(self) -> None:
        """Suppose that limits of users and groups concern those whom they concern by now."""
        users = self.partition.users
        self._undo.append(users.remember())
        for application in self.partition.applications.values():
            before = {"trackers": application.trackers, "owner": application.owner}
            users.find_group(application)
            if any(getattr(application, name) != value for name, value in before.items()):
                self._undo.append(partial(_set_all, application, before))

    def keep_node(self, application: Application, ask: Ask, node: Node) -> None:
        """Suppose that a node is kept for an ask that requires it, and not for age any more."""
        now_ns = self.partition.now_ns
        kept = Reservation({}, application, ask, node, now_ns, is_required=True)
        held = {k: one for k, one in node.reservations.items() if not one.is_ordinary}
        self._reserve(node, {**held, ask.key: kept})

    def end_reservation(self, reservation: Reservation) -> None:
        """Suppose that a node is not kept for an ask any more."""
        held = reservation.node.reservations
        self._reserve(
            reservation.node, {k: one for k, one in held.items() if one is not reservation}
        )

    def _reserve(self, node: Node, reservations: dict[str, Reservation]) -> None:
        """Suppose other reservations of a node."""
        self.set(node, reservations=reservations)
        self.partition.nodes.refresh(node)
        self._undo.insert(-1, lambda: self.partition.nodes.refresh(node))  # after that is undone


def _set_all(row: object, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(row, name, value)


def _put_in_order(allocations: dict[str, Allocation], keys: list[str]) -> None:
    """Bring back the order in which allocations came; whoever is not there any more is left out."""
    held = dict(allocations)
    allocations.clear()
    allocations.update((key, held[key]) for key in keys if key in held)


def _count(application: Application, ask: Ask, change: int) -> bool:
    """Count an ask that waits, in or out; return whether the highest priority has changed."""
    amount, queue = ask.shape.resource, application.queue
    if change > 0:
        add_into(application.pending, amount)
        queue.add_pending(amount)
    else:
        subtract_into(application.pending, amount)
        queue.remove_pending(amount)
    return count_priority(application, ask.request.priority, change)


def _write(row: Row | Partition, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(row, name, value)


def _limit(queue: Queue, limit: Resource | None) -> None:
    """Set a queue's max, and nobody is requeued for what it leaves."""
    queue.max_resource = limit
    queue.forget_turns()
