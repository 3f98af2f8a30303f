"""Tentative: what is tried on a partition is kept, or undone whole.

Rule 1: there is one undo. Every move that is tried is logged with its inverse; they are taken back
        the last first. ``checkpoint`` and ``rollback`` nest.
Rule 2: nobody is requeued for what is only tried: whom pods that come and go would wake is noted,
        and no more when that is taken back; what is kept wakes them with the next move for good.
Rule 3: ``tentative`` is for whole cycles, which make more moves than have inverses: its one entry
        brings back a checkpoint of everything. What is recorded meanwhile can be read until then.
        Plugins that are told of pods are told of what is undone as of any other end.
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
KEPT: Ledger = attrgetter("kept")
PREEMPTING: Ledger = attrgetter("preempting")


class Tentative:
    """A log of moves with their inverses. Used in a ``with``, what was not kept is undone."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self._inverses: list[Callable[[], object]] = []
        self._lasting = 0  # entries that only ``discard`` takes back

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def did(self, inverse: Callable[[], object]) -> None:
        """Log a move that was made."""
        self._inverses.append(inverse)

    def checkpoint(self) -> int:
        """Return where the log is, for a rollback."""
        return len(self._inverses)

    def rollback(self, to: int = 0) -> None:
        """Take back what came after a checkpoint, the last first."""
        inverses, least = self._inverses, max(to, self._lasting)
        while len(inverses) > least:
            inverses.pop()()

    def discard(self) -> None:
        """Undo all moves."""
        self._lasting = 0
        self.rollback()

    def last_until_discarded(self) -> None:
        """Have what was done until now taken back by ``discard`` alone, by no rollback."""
        self._lasting = len(self._inverses)

    def make_final(self) -> None:
        """Make all moves final."""
        self._inverses.clear()

    def noted(self) -> "Noted":
        """Return who is woken by the pods that have come and gone until now."""
        return self.nodes.pods_changed, self.nodes.pods.waiting.noted()

    def note_only(self, noted: "Noted") -> None:
        """Requeue those and no others."""
        self.nodes.pods_changed, shapes = noted
        self.nodes.pods.waiting.note_only(shapes)

    # --- moves ----------------------------------------------------------------------------------

    def place(self, ask: Ask, node: Node) -> None:
        """Count an ask on a node's ledgers, and nowhere else."""
        noted = self.noted()
        self.nodes.place(node, allocation_of(ask.request, node.node_id))
        self.did(partial(self._take_off, ask, node, noted))

    def _take_off(self, ask: Ask, node: Node, noted: "Noted") -> None:
        self.nodes.free(node, ask.key)
        self.note_only(noted)

    def open(self, claim: Claim) -> None:
        """Open a node that the head gang claims: the gang itself is tried."""
        self.nodes.close(claim.node, None)
        self.did(partial(self.nodes.close, claim.node, claim))

    def count(
        self, queues: Sequence[Queue], ledger: Ledger, amount: ResourceView, change: int = 1
    ) -> None:
        """Count an amount into a ledger of some queues, or (-1) out of it."""
        _count(queues, ledger, amount, change)
        self._inverses.append(partial(_count, queues, ledger, amount, -change))


def _count(queues: Sequence[Queue], ledger: Ledger, amount: ResourceView, change: int) -> None:
    count = add_into if change > 0 else subtract_into
    for held in map(ledger, queues):
        count(held, amount)


Noted = tuple[bool, tuple[Shape, ...]]


@contextmanager
def tentative(partition: Partition) -> Iterator[None]:
    """Try anything on a partition, whole cycles too, and undo it. Nothing of it is timed."""
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
    """Restore everything; tell plugins of the pods that come and go by it."""
    now = _pods(partition)
    for key, allocation in now.items():
        if before.get(key) is not allocation:
            hooks.allocation_removed(allocation)
    restore()
    for key, allocation in before.items():
        if now.get(key) is not allocation:
            hooks.allocation_added(allocation)


def _pods(partition: Partition) -> dict[tuple[str, str], Allocation]:
    """Return all allocations that are on nodes."""
    return {
        (allocation.application_id, key): allocation
        for node in partition.nodes.rows
        for key, allocation in node.allocations.items()
    }
