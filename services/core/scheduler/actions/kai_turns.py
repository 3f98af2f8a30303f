"""Under kai: whose turn it is among queues that have something to schedule.

Rule 1: the order is that of KAI's queues: not over the fair share, within the quota with the next
        job, the higher priority, the smaller dominant share with and without it, the older.
Rule 2: fair shares are worked out once a cycle, and only where several queues compete: of what the
        nodes have, by what queues use and what waits in them.
Rule 3: the next job of a queue is what its leaf would place next: an ask, or what a gang starts
        with. A queue finds its place anew when its sums change, or what comes next in it does.
Cost: of a cycle in which queues compete, the queues that use or want something.
"""

from collections.abc import Callable

from services.core.scheduler.actions.jobs_in_order import queue_key
from services.core.scheduler.actions.live_actions import PartitionAdapter
from services.core.scheduler.constraints.fair_share import divide_level, set_requested
from services.core.scheduler.model.rows import AskGroup, Queue
from services.core.scheduler.model.settings import KAI
from services.core.scheduler.ordering import turns
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.trial import (
    Amount,
    Share,
    in_order,
    shares_of,
    total_of,
)
from shared.model.resources import PODS


def begin(partition: Partition) -> None:
    """Have queues served in this order for a cycle, under kai."""
    if partition.settings.policy == KAI:
        partition.root.tree.keys = KaiTurns(partition)


def end(partition: Partition) -> None:
    """Forget the order: it is worked out anew for every cycle."""
    tree = partition.root.tree
    if tree.keys is not None:
        tree.keys = None
        tree.version += 1


class KaiTurns:
    """The shares of a cycle, and the keys that follow from them."""

    names: tuple[str, ...] = ()
    total: Amount = ()

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._shares: dict[Queue, Share] = {}
        self._next_in_run: dict[Queue, Callable[[], AskGroup | None]] = {}

    def renew(self) -> bool:
        """Work fair shares out once, when queues compete; return whether that was now."""
        if self._shares:
            return False
        self._work_out(self._partition)
        return True

    def _work_out(self, partition: Partition) -> None:
        self.names, self.total, self._shares = divided(partition)

    def key(self, queue: Queue) -> tuple[object, ...]:
        """Return the key by which a queue with something to schedule is served."""
        return queue_key(self, self._shares[queue], self._next_of(queue))

    def begin_run(self, leaf: Queue, next_group: Callable[[], AskGroup | None]) -> None:
        """Ask a run what is next in a leaf, some of which is in the run's lanes, until it ends."""
        self._next_in_run[leaf] = next_group

    def end_run(self, leaf: Queue) -> None:
        """Ask the leaf itself again."""
        del self._next_in_run[leaf]

    def _next_of(self, queue: Queue) -> Amount:
        """Return what the next job of a queue asks for; nothing where none is found."""
        leaf = turns.next_leaf(queue)
        group = self._first_group(leaf) if leaf is not None else None
        if group is None:
            return (0,) * len(self.names)
        application = group.application
        if application.awaits_admission:
            return in_order(application.outstanding(), self.names)
        return in_order(group.bucket.shape.resource, self.names)

    def _first_group(self, leaf: Queue) -> AskGroup | None:
        if leaf in self._next_in_run:
            return self._next_in_run[leaf]()
        entry = leaf.first_group()
        return entry[1] if entry is not None else None


def divided(partition: Partition) -> tuple[tuple[str, ...], Amount, dict[Queue, Share]]:
    """Return the types, what there is of them, and what each queue is entitled to, worked out."""
    names = tuple(sorted(name for name in partition.nodes.total if name != PODS))
    total = total_of(partition.nodes, names)
    shares = shares_of(partition.root, names, PartitionAdapter(partition).share)
    set_requested(partition, shares, names)
    divide_level([shares[partition.root]], total, len(names), partition.settings.k_value)
    return names, total, shares
