"""A statement: changes of a session that are kept whole or taken back whole.

Rule 1: every operation remembers what it changed from. ``rollback`` takes back those after a
        checkpoint, ``discard`` all of them, each exactly once, the last first; the session is then
        what it was, to the last number.
Rule 2: ``commit`` returns what is to happen, once a task, and ends the statement: one record, so
        that whoever carries it out carries it out whole.
Source: contract kai.md, 1.8.
"""

from dataclasses import dataclass

from services.core.scheduler.kai.session import NO_NODE, Session, Status, Task

Place = tuple[Status, int, int]  # status, node and ghost


@dataclass(frozen=True, slots=True)
class Decision:
    """What a statement comes to for one task.

    ``evicts``: it is to end where it is. ``node``: it is to go there, at once (``is_now``) or when
    the room has been given back; "" for nowhere, also where an earlier statement had a place for
    it. ``by`` is the job that the statement was for, ``reason`` why the task ends, as people are
    told.
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
    """What a task was before; ``reason`` is that of an eviction, None otherwise."""

    task: Task
    before: Place
    reason: str | None


def is_out(task: Task) -> bool:
    """Return whether a task that was evicted has no other place yet."""
    return task.status in (Status.RELEASING, Status.PENDING)


def _home(place: Place) -> int:
    """Return the node that a task's pod is really on, NO_NODE if it has none."""
    status, node, ghost = place
    return ghost if status is Status.PIPELINED else node


class StatementEndedError(AssertionError):
    """A statement that was committed or discarded is used again: a bug."""


class Statement:
    """One attempt on a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._operations: list[_Operation] = []
        self._before: dict[Task, Place] = {}  # of the tasks that were evicted
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
        if before is not None and before[1] == node and is_out(task):
            self._move(task, *before)
        else:
            ghost = task.node if task.status is Status.RELEASING else NO_NODE
            self._move(task, Status.PIPELINED, node, ghost)

    def evict(self, task: Task, reason: str) -> None:
        """Have a task give back its room; ``reason`` is the sentence that is shown for it.

        One that was only promised room has no pod to end: it waits again.
        """
        before = (task.status, task.node, task.ghost)
        home = _home(before)
        self._before.setdefault(task, before)
        status = Status.PENDING if home == NO_NODE else Status.RELEASING
        self._move(task, status, home, reason=reason)

    def has_changed(self, task: Task) -> bool:
        """Return whether a task that was evicted is not where it was."""
        return task in self._before and self._before[task][:2] != (task.status, task.node)

    def _move(
        self,
        task: Task,
        status: Status,
        node: int,
        ghost: int = NO_NODE,
        *,
        reason: str | None = None,
    ) -> None:
        if self._has_ended:
            raise StatementEndedError(f"{task.name}: the statement has ended")
        before = (task.status, task.node, task.ghost)
        self._operations.append(_Operation(task, before, reason))
        self.session.move(task, status, node, ghost)

    def rollback(self, checkpoint: int) -> None:
        """Take back what came after a checkpoint."""
        while len(self._operations) > checkpoint:
            last = self._operations.pop()
            self.session.move(last.task, *last.before)
            if last.reason is not None and not any(
                operation.task is last.task and operation.reason is not None
                for operation in self._operations
            ):
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
            first.setdefault(operation.task, operation.before[:2])
            if operation.reason is not None:
                reasons[operation.task] = operation.reason
        decisions = []
        for task, (status, node) in first.items():
            if (task.status, task.node) != (status, node):
                decisions.append(self._decision(task, by, reasons.get(task, "")))
        return decisions

    def _decision(self, task: Task, by: str, reason: str) -> Decision:
        name = self.session.node_names[task.node] if task.node != NO_NODE else ""
        is_placed = task.status in (Status.ALLOCATED, Status.PIPELINED)
        has_ended = task in self._before and _home(self._before[task]) != NO_NODE
        return Decision(
            task=task.name,
            job=task.job.name,
            evicts=has_ended,
            node=name if is_placed else "",
            is_now=task.status is Status.ALLOCATED,
            by=by,
            reason=reason if has_ended else "",
        )
