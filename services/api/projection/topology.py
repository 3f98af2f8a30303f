"""The cluster's levels by name, and the domains of an application's pods."""

from services.api.projection.model import ApplicationView, Model
from shared.model.scheduler_settings import TOPOLOGY_LEVELS, topology_levels


def levels_of(model: Model) -> list[str]:
    """Return the names of the cluster's levels, the widest first."""
    extra = model.configuration.extra if model.configuration is not None else {}
    return [name for name, _ in topology_levels(extra.get(TOPOLOGY_LEVELS, "")) or ()]


def pods_by_level(model: Model, view: ApplicationView) -> list[tuple[str, dict[str, int]]]:
    """Return the number of an application's pods in each domain, by level, the widest first."""
    found: list[tuple[str, dict[str, int]]] = [(name, {}) for name in levels_of(model)]
    for allocation in view.allocations.values():
        node = model.nodes.get(allocation.node_id)
        for at, (_, pods) in enumerate(found if node is not None and node.state.domain else ()):
            assert node is not None
            path = "/".join(node.state.domain[: at + 1])
            pods[path] = pods.get(path, 0) + 1
    return [(name, dict(sorted(pods.items()))) for name, pods in found if pods]
