"""The order of queues in a cycle under the policy kai.

Rule 1: it is KAI's: not over the fair share, within the quota with the next job, higher priority,
        smaller dominant share with and without the job, older.
Rule 2: fair shares are computed once a cycle, and only if several queues compete: from the nodes'
        capacity, the queues' usage and what waits in them.
Rule 3: a queue's next job is what its leaf would place next: an ask, or a gang's first members. A
        queue's key is recomputed when its sums or its next job change.
Cost: the queues that use or request something, in a cycle in which queues compete.
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
    """Use this order for a cycle, under kai."""
    if partition.settings.policy == KAI:
        partition.root.tree.keys = KaiTurns(partition)


def end(partition: Partition) -> None:
    """Drop the order: it is computed again for each cycle."""
    tree = partition.root.tree
    if tree.keys is not None:
        tree.keys = None
        tree.version += 1


class KaiTurns:
    """The shares of a cycle and the sort keys from them."""

    names: tuple[str, ...] = ()
    total: Amount = ()

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._shares: dict[Queue, Share] = {}
        self._next_in_run: dict[Queue, Callable[[], AskGroup | None]] = {}

    def renew(self) -> bool:
        """Compute the fair shares once; return whether that happened now."""
        if self._shares:
            return False
        self._work_out(self._partition)
        return True

    def _work_out(self, partition: Partition) -> None:
        self.names, self.total, self._shares = divided(partition)

    def key(self, queue: Queue) -> tuple[object, ...]:
        """Return the sort key of a queue with something to schedule."""
        return queue_key(self, self._shares[queue], self._next_of(queue))

    def begin_run(self, leaf: Queue, next_group: Callable[[], AskGroup | None]) -> None:
        """Read a leaf's next group from a run, which holds some of them, until it ends."""
        self._next_in_run[leaf] = next_group

    def end_run(self, leaf: Queue) -> None:
        """Read the next group from the leaf again."""
        del self._next_in_run[leaf]

    def _next_of(self, queue: Queue) -> Amount:
        """Return the next request of a queue; zeros if there is none."""
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
    """Return the resource types, their totals, and the shares of all queues with fair shares."""
    names = tuple(sorted(name for name in partition.nodes.total if name != PODS))
    total = total_of(partition.nodes, names)
    shares = shares_of(partition.root, names, PartitionAdapter(partition).share)
    set_requested(partition, shares, names)
    divide_level([shares[partition.root]], total, len(names), partition.settings.k_value)
    return names, total, shares
