"""The utilisation of nodes, in ten steps.

Foreign allocations are not counted.

Source: docs/rules/rest.md#node-utilizations, PartitionNodesUtilDAOInfo; W-08.
"""

from collections.abc import Iterable, Iterator

from services.api.projection.model import Model
from services.api.yunikorn.answers import PERCENT, Answer, cluster_id, pruned

BUCKETS = 10


def node_utilizations(models: Iterable[Model]) -> list[Answer] | None:
    """Return each partition's nodes by type and step; None before there is a partition."""
    return [_utilizations(model) for model in models] or None


def _utilizations(model: Model) -> Answer:
    assert model.partition is not None
    return pruned(
        {
            "clusterId": cluster_id(model.partition),
            "partition": model.name,
            "utilizations": [
                {"type": name, "utilization": [_bucket(*step) for step in enumerate(full)]}
                for name, full in nodes_by_use(model)
            ],
        },
        always=("clusterId", "partition"),
    )


def nodes_by_use(model: Model) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield every resource type, by name, with the nodes that have it in each of ten steps."""
    found: dict[str, list[list[str]]] = {}
    for node in model.nodes.values():
        state = node.state
        for name, capacity in state.capacity.items():
            if capacity > 0:
                steps = found.setdefault(name, [[] for _ in range(BUCKETS)])
                steps[_step(state.allocated.get(name, 0), capacity)].append(state.node_id)
    yield from sorted(found.items())


def _step(used: int, capacity: int) -> int:
    percent = used * PERCENT // capacity
    return min(max(0, -(-percent // BUCKETS) - 1), BUCKETS - 1)


def _bucket(at: int, nodes: list[str]) -> Answer:
    name = f"{at * BUCKETS}-{(at + 1) * BUCKETS}%"
    return pruned(
        {"bucketName": name, "numOfNodes": len(nodes), "nodeNames": nodes}, always=("bucketName",)
    )
