"""An attempt: what an action tries for one job, on top of the trial's earlier decisions.

Its operations stay in the trial's statement unless the attempt is discarded.
Source: docs/rules/kai.md#the-statement.
"""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.statement.statement import At
from services.core.scheduler.statement.trial import Task, Trial, is_out


class Attempt:
    """One attempt, for a job (``by``) or, with "", for none."""

    def __init__(self, trial: Trial, by: str = "") -> None:
        self.trial = trial
        self._by = by
        self._statement = trial.statement
        self._start = self._statement.checkpoint()
        self._before: dict[Task, tuple[At, Node | None]] = {}  # of evicted tasks

    def checkpoint(self) -> int:
        """Return the position in the statement, for a rollback."""
        return self._statement.checkpoint()

    def pipeline(self, task: Task, node: Node) -> None:
        """Place a task on capacity that is being released; on its old node it stays as it was.

        It cannot stay if its devices are claimed for another; then it restarts on other devices.
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
        """Take a task's capacity for an action; ``reason`` is shown to users.

        A task that was only nominated has no pod to evict: it waits again.
        """
        application, pod = task.job.application, task.pod
        self._before.setdefault(task, (self._statement.at(pod), task.node))
        self._statement.evict(application, pod, reason, self._by, action)

    def has_changed(self, task: Task) -> bool:
        """Whether an evicted task is not back in its old place."""
        before = self._before.get(task)
        return before is not None and before[0] != self._statement.at(task.pod)

    def rollback(self, checkpoint: int) -> None:
        """Undo the operations after a checkpoint."""
        self._statement.rollback(checkpoint)

    def discard(self) -> None:
        """Undo the attempt's operations."""
        self._statement.rollback(self._start)
