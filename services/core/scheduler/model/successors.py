"""The new place of a pod that is moved, kept for who comes in its stead."""

from dataclasses import dataclass

from services.core.scheduler.model.nodes import Node
from services.core.scheduler.model.shapes import Ask
from shared.messages.interface import Allocation
from shared.model.units import seconds

# From the old pod's end on: longer than a controller backs off before its first two retries.
WAIT_NS = seconds(60)


@dataclass(slots=True, eq=False)
class Successor:
    """A place on a node for an ask like the one that a pod was made of.

    ``until_ns`` is set when the old pod has gone: from then on its queues keep the room, and before
    they count the old one. ``ask`` is who has come for it while the old pod is still going.
    """

    allocation: Allocation
    node: Node
    until_ns: int = 0
    ask: Ask | None = None

    def is_like(self, ask: Ask) -> bool:
        """Return whether an ask is of the kind of the pod that is moved."""
        old, new = self.allocation, ask.request
        return (
            self.ask is None
            and (old.task_group_name, old.placeholder) == (new.task_group_name, new.placeholder)
            and old.priority == new.priority
            and old.resource_per_alloc == new.resource_per_alloc
            and old.constraints == new.constraints
        )
