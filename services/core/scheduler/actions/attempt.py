"""An attempt: what an action tries for one job, on top of what the trial has decided already.

What it does stays in the trial's statement unless it is discarded.
Source: docs/rules/kai.md#the-statement.
"""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.statement.statement import At
from services.core.scheduler.statement.trial import Task, Trial, is_out


class Attempt:
    """One attempt, for a job (``by``) or for nobody."""

    def __init__(self, trial: Trial, by: str = "") -> None:
        self.trial = trial
        self._by = by
        self._statement = trial.statement
        self._start = self._statement.checkpoint()
        self._before: dict[Task, tuple[At, Node | None]] = {}  # of those that it evicted

    def checkpoint(self) -> int:
        """Return where the attempt is, for a rollback."""
        return self._statement.checkpoint()

    def pipeline(self, task: Task, node: Node) -> None:
        """Place a task on room that is being released; where it was before it just stays.

        It may not where its devices are for another: then it is to come again, on others.
        """
        application, pod = task.job.application, task.pod
        before, may_stay = (
            self._before.get(task),
            self.trial.nodes.devices.may_stay(node, task.name),
        )
        if before is not None and before[1] is node and is_out(task) and may_stay:
            self._statement.put_back(application, pod, before[0], self._by)
        elif isinstance(pod, Ask):
            self._statement.pipeline(application, pod, node)
        elif pod.node_id == node.node_id and may_stay:
            self._statement.spare(application, pod)
        else:
            self._statement.move(application, pod, node, self._by)

    def evict(self, task: Task, reason: str, action: str) -> None:
        """Have an action take a task's room; ``reason`` is the sentence that is shown for it.

        One that was only promised room has no pod to end: it waits again.
        """
        application, pod = task.job.application, task.pod
        self._before.setdefault(task, (self._statement.at(pod), task.node))
        self._statement.evict(application, pod, reason, self._by, action)

    def has_changed(self, task: Task) -> bool:
        """Return whether a task that was evicted is not where it was."""
        before = self._before.get(task)
        return before is not None and before[0] != self._statement.at(task.pod)

    def rollback(self, checkpoint: int) -> None:
        """Take back what came after a checkpoint."""
        self._statement.rollback(checkpoint)

    def discard(self) -> None:
        """Take back all that was tried."""
        self._statement.rollback(self._start)
