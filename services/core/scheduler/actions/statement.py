"""A statement: changes of a session that are kept whole or taken back whole.

Rule 1: every operation remembers what it changed from. ``rollback`` takes back those after a
        checkpoint, ``discard`` all of them, each exactly once, the last first; the session is then
        what it was, to the last number.
Rule 2: ``commit`` returns what is to happen, once a task, and ends the statement: one record, so
        that whoever carries it out carries it out whole.
Source: contract kai.md, 1.8.
"""

from dataclasses import dataclass

from services.core.scheduler.actions.session import NO_NODE, Session, Status, Task


@dataclass(frozen=True, slots=True)
class Decision:
    """What a statement comes to for one task.

    ``evicts``: it is to end where it is. ``node``: it is to go there, at once (``is_now``) or when
    the room has been given back; "" for nowhere. ``by`` is the job that the statement was for,
    ``reason`` why the task ends, as people are told.
    """

    task: str
    job: str
    evicts: bool = False
    node: str = ""
    is_now: bool = False
    by: str = ""
    reason: str = ""


@dataclass(slots=True)
class _Operation:
    task: Task
    status: Status
    node: int
    ghost: int
    reason: str


class StatementEndedError(AssertionError):
    """A statement that was committed or discarded is used again: a bug."""


class Statement:
    """One attempt on a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._operations: list[_Operation] = []
        self._before: dict[Task, tuple[Status, int]] = {}  # of the tasks that were evicted
        self._has_ended = False

    def checkpoint(self) -> int:
        """Return where the statement is, for a rollback."""
        return len(self._operations)

    def allocate(self, task: Task, node: int) -> None:
        """Place a task on idle room."""
        self._move(task, Status.ALLOCATED, node)

    def pipeline(self, task: Task, node: int) -> None:
        """Place a task on room that is being released; on its own node it just stays."""
        before = self._before.get(task)
        if before is not None and before[1] == node and task.status is Status.RELEASING:
            self._move(task, before[0], node)
            return
        ghost = before[1] if before is not None else NO_NODE
        self._move(task, Status.PIPELINED, node, ghost)

    def evict(self, task: Task, reason: str) -> None:
        """Have a task give back its room; ``reason`` is the sentence that is shown for it."""
        self._before.setdefault(task, (task.status, task.node))
        self._move(task, Status.RELEASING, task.node, reason=reason)

    def _move(
        self, task: Task, status: Status, node: int, ghost: int = NO_NODE, reason: str = ""
    ) -> None:
        if self._has_ended:
            raise StatementEndedError(f"{task.name}: the statement has ended")
        self._operations.append(_Operation(task, task.status, task.node, task.ghost, reason))
        self.session.move(task, status, node, ghost)

    def rollback(self, checkpoint: int) -> None:
        """Take back what came after a checkpoint."""
        while len(self._operations) > checkpoint:
            last = self._operations.pop()
            self.session.move(last.task, last.status, last.node, last.ghost)
            before = self._before.get(last.task)
            if before == (last.status, last.node) and last.ghost == NO_NODE:
                is_evicted = any(operation.task is last.task for operation in self._operations)
                if not is_evicted:
                    del self._before[last.task]

    def discard(self) -> None:
        """Take everything back; the statement ends."""
        self.rollback(0)
        self._has_ended = True

    def commit(self, by: str = "") -> list[Decision]:
        """Keep everything; return what is to happen, in the order in which it was first decided."""
        self._has_ended = True
        first: dict[Task, tuple[Status, int]] = {}
        reasons: dict[Task, str] = {}
        for operation in self._operations:
            first.setdefault(operation.task, (operation.status, operation.node))
            if operation.reason:
                reasons[operation.task] = operation.reason
        decisions = []
        for task, (status, node) in first.items():
            if (task.status, task.node) != (status, node):
                decisions.append(self._decision(task, by, reasons.get(task, "")))
        return decisions

    def _decision(self, task: Task, by: str, reason: str) -> Decision:
        name = self.session.node_names[task.node] if task.node != NO_NODE else ""
        is_placed = task.status in (Status.ALLOCATED, Status.PIPELINED)
        return Decision(
            task=task.name,
            job=task.job.name,
            evicts=task in self._before,
            node=name if is_placed else "",
            is_now=task.status is Status.ALLOCATED,
            by=by,
            reason=reason,
        )
