"""What is kept for one real pod that is larger than each of the placeholders that go for it."""

from dataclasses import dataclass, field

from services.core.scheduler.model.nodes import Node
from shared.model.resources import Resource, ResourceView


@dataclass(slots=True, eq=False)
class Cover:
    """Placeholders that go for an ask, and what is kept for it meanwhile.

    ``going`` are those that have not gone yet, with what they hold; ``from_node`` and ``in_all``
    the sums over those on ``node`` and over all. ``on_node`` and ``in_queues`` are in the ledgers.
    """

    node: Node
    wanted: ResourceView
    going: dict[str, ResourceView] = field(default_factory=dict)
    from_node: Resource = field(default_factory=dict)
    in_all: Resource = field(default_factory=dict)
    on_node: Resource = field(default_factory=dict)
    in_queues: Resource = field(default_factory=dict)
