"""Adds many existing allocations with one update of each sum."""

from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.statement import application_ledger
from services.core.scheduler.statement.journal import AllocationsFound
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.resources import Resource, ResourceView, add, add_into, multiply


class _Sum:
    """A sum of many amounts, most of them equal to the previous one."""

    __slots__ = ("_amount", "_times", "_total")

    def __init__(self) -> None:
        self._total: Resource = {}
        self._amount: ResourceView = {}
        self._times = 0

    def add(self, amount: ResourceView) -> None:
        if amount is self._amount or amount == self._amount:
            self._times += 1
        else:
            self.total()
            self._amount, self._times = amount, 1

    def total(self) -> Resource:
        add_into(self._total, multiply(self._amount, self._times))
        self._times = 0
        return self._total


class Existing:
    """Existing real allocations, in order of arrival, that are rows but not yet in the sums."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._place = partition.nodes.hold
        self._index = partition.victims.placed
        self._found: list[tuple[Application, Allocation]] = []
        self._of_applications: dict[Application, _Sum] = {}
        self._of_nodes: dict[Node, ResourceView] = {}

    def hold(self, application: Application, allocation: Allocation, node: Node) -> None:
        """Add an allocation to its application and node; ``count`` adds it to the sums."""
        self._place(node, allocation)
        application.hold_allocation(allocation, self._partition.now_ns)
        self._index(application, allocation)
        self._found.append((application, allocation))
        if application not in self._of_applications:
            self._of_applications[application] = _Sum()
        amount = allocation.resource_per_alloc
        self._of_applications[application].add(amount)
        before = self._of_nodes.get(node)
        self._of_nodes[node] = amount if before is None else add(before, amount)

    def count(self) -> None:
        """Add all of them to every ledger and record them in the journal."""
        if not self._found:
            return
        partition = self._partition
        for node, amount in self._of_nodes.items():
            partition.nodes.count_placed(node, amount)
        partition.requeue_for_pods()
        for application, sums in self._of_applications.items():
            total = sums.total()
            application.queue.allocate(total)
            for tracker in application.trackers:
                tracker.count_in(application.queue, application.id, total)
            application_ledger.count_held(application, total)
        partition.journal.record(AllocationsFound(self._found, list(self._of_nodes)))
        self._found, self._of_applications, self._of_nodes = [], {}, {}
