"""Tentative moves: everything tried on a partition is kept, or undone as a whole.

Rule 1: there is one undo. Each tried move is logged with its inverse; inverses run last first.
        ``checkpoint`` and ``rollback`` nest.
Rule 2: nothing is requeued for a tried move: the shapes that its pods would requeue are noted, and
        forgotten on undo; if it is kept, the next final move requeues them.
Rule 3: ``tentative`` is for whole cycles, whose moves have no inverses: its one entry restores a
        checkpoint of everything. Journal entries can be read before that. Plugins that are notified
        of pods are notified of undone ones as of any end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Self

from services.core.scheduler.model.hooks import Hooks
from services.core.scheduler.model.rows import Claim, Node, Queue
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.timings import UNTIMED
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.statement.checkpoint import Checkpoint
from services.core.scheduler.statement.partition import Partition
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation
from shared.model.resources import Resource, ResourceView, add_into, subtract_into

Ledger = Callable[[Queue], Resource]
RESERVED: Ledger = attrgetter("reserved")
PREEMPTING: Ledger = attrgetter("preempting")


class Tentative:
    """A log of moves with their inverses. As a context manager it undoes what was not kept."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self._inverses: list[Callable[[], object]] = []
        self._lasting = 0  # entries that only ``discard`` takes back

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def did(self, inverse: Callable[[], object]) -> None:
        """Log the inverse of a move."""
        self._inverses.append(inverse)

    def checkpoint(self) -> int:
        """Return the position in the log, for a rollback."""
        return len(self._inverses)

    def rollback(self, to: int = 0) -> None:
        """Undo the moves after a checkpoint, last first."""
        inverses, least = self._inverses, max(to, self._lasting)
        while len(inverses) > least:
            inverses.pop()()

    def discard(self) -> None:
        """Undo all moves."""
        self._lasting = 0
        self.rollback()

    def last_until_discarded(self) -> None:
        """Exempt the moves so far from rollbacks; only ``discard`` undoes them."""
        self._lasting = len(self._inverses)

    def make_final(self) -> None:
        """Keep all moves."""
        self._inverses.clear()

    def noted(self) -> "Noted":
        """Return the shapes to requeue for pods that changed so far."""
        return self.nodes.pods_changed, self.nodes.pods.waiting.noted()

    def note_only(self, noted: "Noted") -> None:
        """Restore the shapes to requeue to those of ``noted``."""
        self.nodes.pods_changed, shapes = noted
        self.nodes.pods.waiting.note_only(shapes)

    # --- moves ----------------------------------------------------------------------------------

    def place(self, ask: Ask, node: Node) -> None:
        """Put an ask on a node's ledgers only."""
        noted = self.noted()
        self.nodes.place(node, allocation_of(ask.request, node.node_id))
        self.did(partial(self._take_off, ask, node, noted))

    def _take_off(self, ask: Ask, node: Node, noted: "Noted") -> None:
        self.nodes.free(node, ask.key)
        self.note_only(noted)

    def open(self, claim: Claim) -> None:
        """Open a node claimed by the head gang, to try the gang itself."""
        self.nodes.close(claim.node, None)
        self.did(partial(self.nodes.close, claim.node, claim))

    def count(
        self, queues: Sequence[Queue], ledger: Ledger, amount: ResourceView, change: int = 1
    ) -> None:
        """Add an amount to a ledger of some queues, or (-1) subtract it."""
        _count(queues, ledger, amount, change)
        self._inverses.append(partial(_count, queues, ledger, amount, -change))


def _count(queues: Sequence[Queue], ledger: Ledger, amount: ResourceView, change: int) -> None:
    count = add_into if change > 0 else subtract_into
    for held in map(ledger, queues):
        count(held, amount)


Noted = tuple[bool, tuple[Shape, ...]]


@contextmanager
def tentative(partition: Partition) -> Iterator[None]:
    """Undo on exit everything done on a partition, whole cycles included; nothing is timed."""
    hooks, restore = partition.hooks, Checkpoint(partition).restore
    if hooks is not None and hooks.are_notified:
        restore = partial(_restore, partition, hooks, restore, _pods(partition))
    with Tentative(partition.nodes) as log:
        log.did(restore)
        partition.timings = UNTIMED
        yield


def _restore(
    partition: Partition,
    hooks: Hooks,
    restore: Callable[[], None],
    before: dict[tuple[str, str], Allocation],
) -> None:
    """Restore the checkpoint, and notify plugins of the pods removed and added by it."""
    now = _pods(partition)
    for key, allocation in now.items():
        if before.get(key) is not allocation:
            hooks.allocation_removed(allocation)
    restore()
    for key, allocation in before.items():
        if now.get(key) is not allocation:
            hooks.allocation_added(allocation)


def _pods(partition: Partition) -> dict[tuple[str, str], Allocation]:
    """Return all allocations on nodes, by application and key."""
    return {
        (allocation.application_id, key): allocation
        for node in partition.nodes.rows
        for key, allocation in node.allocations.items()
    }
