"""The cluster's topology: its domains, with used and free amounts in each."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from services.api.projection.model import Model, NodeView
from services.api.projection.topology import levels_of
from shared.model.resources import Resource, add_into


@dataclass(slots=True)
class _Domain:
    """A domain with the sums of its nodes."""

    name: str
    nodes: int = 0
    schedulable: int = 0
    capacity: Resource = field(default_factory=dict)
    allocated: Resource = field(default_factory=dict)
    occupied: Resource = field(default_factory=dict)
    free: Resource = field(default_factory=dict)  # of schedulable nodes
    below: dict[str, "_Domain"] = field(default_factory=dict)

    def count(self, node: NodeView) -> None:
        """Add a node."""
        state = node.state
        self.nodes += 1
        add_into(self.capacity, state.capacity)
        add_into(self.allocated, state.allocated)
        add_into(self.occupied, state.occupied)
        if state.schedulable:
            self.schedulable += 1
            left = {name: value for name, value in state.available.items() if value > 0}
            add_into(self.free, left)

    def row(self, levels: list[str], at: int) -> dict[str, Any]:
        """Return it with its children; ``at`` is the index of its level, -1 for the root."""
        below = [self.below[name].row(levels, at + 1) for name in sorted(self.below)]
        return {
            "name": self.name,
            "level": levels[at] if at >= 0 else "",
            "nodes": self.nodes,
            "schedulable": self.schedulable,
            "capacity": dict(sorted(self.capacity.items())),
            "allocated": dict(sorted(self.allocated.items())),
            "occupied": dict(sorted(self.occupied.items())),
            "free": dict(sorted(self.free.items())),
            "domains": below,
        }


def topology(model: Model) -> dict[str, Any]:
    """Return the tree of domains; ``outside`` are the nodes that lack one of its labels."""
    levels = levels_of(model)
    root = _Domain("")
    outside = []
    for name, node in sorted(model.nodes.items()):
        root.count(node)
        if not node.state.domain:
            outside.append(name)
            continue
        for domain in _path(root, node.state.domain):
            domain.count(node)
    return {**model.mark, "levels": levels, "outside": outside, **root.row(levels, -1)}


def _path(root: _Domain, names: Iterable[str]) -> list[_Domain]:
    found = []
    for name in names:
        root = root.below.setdefault(name, _Domain(name))
        found.append(root)
    return found
