"""Plugins: what a trial asks others for, by callbacks that they register.

A plugin is a function that registers its callbacks: ``def mine(plugins: Plugins) -> None``. All
that are registered for a question are asked, in the order of registration; a "no" of any is a no.
They judge and watch; they never change it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from services.core.scheduler.statement.trial import Amount, Job, Task, Trial

    Unit = tuple[Job, list[Task]]

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Plugins:
    """The registered callbacks.

    ``job_order``: keys that come before priority, the smaller first. ``feasible``: the rows on
    which a task may be placed, None for all. ``capacity``: why a job may not take an amount, "" if
    it may. ``victim``: whether an action may take from a job for another. ``scenario``: whether
    what an action would evict for a job is agreed to. ``moved``: told of every task that takes room
    (1) or gives it back (-1), also in simulations, where the second follows the first.
    """

    job_order: list[Callable[["Job"], Any]] = field(default_factory=list)
    feasible: list[Callable[["Trial", "Task"], NDArray[np.bool_] | None]] = field(
        default_factory=list
    )
    capacity: list[Callable[["Job", "Amount"], str]] = field(default_factory=list)
    victim: list[Callable[[str, "Job", "Job"], bool]] = field(default_factory=list)
    scenario: list[Callable[[str, "Job", "list[Unit]"], bool]] = field(default_factory=list)
    moved: list[Callable[["Task", int], None]] = field(default_factory=list)

    def refusal(self, job: "Job", amount: "Amount") -> str:
        """Return the first reason why a job may not take an amount, or ""."""
        return next((why for ask in self.capacity if (why := ask(job, amount))), "")

    def may_take_from(self, action: str, victim: "Job", job: "Job") -> bool:
        """Return whether every plugin lets an action take from a victim for a job."""
        return all(agrees(action, victim, job) for agrees in self.victim)

    def agree(self, action: str, job: "Job", evicted: "list[Unit]") -> bool:
        """Return whether every plugin agrees to what would be evicted for a job."""
        return all(agrees(action, job, evicted) for agrees in self.scenario)


Plugin = Callable[[Plugins], None]


def registered(plugins: Iterable[Plugin]) -> Plugins:
    """Return the callbacks of some plugins."""
    found = Plugins()
    for plugin in plugins:
        plugin(found)
    return found
