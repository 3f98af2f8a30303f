"""A trial: what the queues would use, tried on their own ledgers and taken back.

Rule 1: every change has its inverse; ``rollback`` takes back what came after a checkpoint, the last
        first, and leaves the ledgers as they were.
Rule 2: nobody is woken by it and nothing is told. A trial that is used in a ``with`` is taken back
        at its end; no message may be handled before.
"""

from types import TracebackType
from typing import Self

from services.core.scheduler.model.rows import Queue
from shared.model.resources import Resource, ResourceView, add_into, subtract_into


class QueueTrial:
    """Changes of the queues' ledgers, from a queue to the root, that are to be taken back."""

    def __init__(self) -> None:
        self._changes: list[tuple[Resource, ResourceView, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.rollback()

    def evict(self, leaf: Queue, amount: ResourceView) -> None:
        """Let a leaf give something back."""
        for level in leaf.lineage():
            self._change(level.preempting, amount, 1)

    def spare(self, leaf: Queue, amount: ResourceView) -> None:
        """Let a leaf give something back after all not."""
        for level in leaf.lineage():
            self._change(level.preempting, amount, -1)

    def keep(self, leaf: Queue, amount: ResourceView) -> None:
        """Let something be kept for asks of a leaf."""
        for level in leaf.lineage():
            self._change(level.kept, amount, 1)

    def keep_promises(self, leaf: Queue) -> None:
        """Let what was promised to gangs, in a leaf and above it, be kept for them."""
        for level in leaf.lineage():
            self._change(level.kept, dict(level.promised), 1)

    def checkpoint(self) -> int:
        """Return where the trial is, for a rollback."""
        return len(self._changes)

    def rollback(self, to: int = 0) -> None:
        """Take back what came after a checkpoint, the last first."""
        while len(self._changes) > to:
            ledger, amount, change = self._changes.pop()
            (subtract_into if change > 0 else add_into)(ledger, amount)

    def _change(self, ledger: Resource, amount: ResourceView, change: int) -> None:
        (add_into if change > 0 else subtract_into)(ledger, amount)
        self._changes.append((ledger, amount, change))
