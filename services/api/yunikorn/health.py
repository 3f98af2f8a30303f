"""``/ws/v1/scheduler/healthcheck``: nine checks of the read models.

The names of the fields, of the checks and what they say are YuniKorn's.

Source: docs/rules/rest.md#health; W-13.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from services.api.projection.model import Model
from services.api.yunikorn.answers import Answer
from shared.messages.state import NodeState, PartitionState
from shared.model.resources import Resource, add_into, bounded

MOST_NAMED = 100  # of what is wrong; a list of everything would help no one


def health(models: Sequence[Model], away: Sequence[str] = ()) -> Answer:
    """Return SchedulerHealthDAOInfo: each check is of all partitions together.

    YuniKorn has no services that can be away; while some are, a tenth check names them.
    """
    checks = [*_counts(models), *_sums(models), _reservations(models), *_orphans(models)]
    if away:
        checks.append(
            _check("Services at work", "Check if all services work", "; ".join(away), holds=False)
        )
    return {"Healthy": all(check["Succeeded"] for check in checks), "HealthChecks": checks}


def _check(name: str, description: str, diagnosis: str, *, holds: bool) -> Answer:
    return {
        "Name": name,
        "Succeeded": holds,
        "Description": description,
        "DiagnosisMessage": diagnosis,
    }


def _listed(names: Iterable[str]) -> str:
    """Format names as Go prints a list."""
    shown = list(names)
    more = [f"and {len(shown) - MOST_NAMED} more"] if len(shown) > MOST_NAMED else []
    return f"[{' '.join(shown[:MOST_NAMED] + more)}]"


def _none_of(name: str, description: str, diagnosis: str, wrong: Iterable[str]) -> Answer:
    """Return a check that succeeds if nothing was found."""
    found = list(wrong)
    return _check(name, description, f"{diagnosis}: {_listed(found)}", holds=not found)


def _counts(models: Sequence[Model]) -> Iterator[Answer]:
    errors = sum(model.attempts.get("error", 0) for model in models)
    failed = sum(state.failed_nodes for state in _states(models))
    yield _check(
        "Scheduling errors",
        "Check for scheduling error entries in metrics",
        f"There were {errors} scheduling errors logged in the metrics",
        holds=errors == 0,
    )
    yield _check(
        "Failed nodes",
        "Check for failed nodes entries in metrics",
        f"There were {failed} failed nodes logged in the metrics",
        holds=failed == 0,
    )


def _states(models: Sequence[Model]) -> list[PartitionState]:
    return [model.partition for model in models if model.partition is not None]


def _sums(models: Sequence[Model]) -> Iterator[Answer]:
    nodes = [node.state for model in models for node in model.nodes.values()]
    yield _none_of(
        "Negative resources",
        "Check for negative resources in the partitions",
        "Partitions with negative resources",
        (state.name for state in _states(models) if _is_negative(state.capacity, state.allocated)),
    )
    yield _none_of(
        "Negative resources",
        "Check for negative resources in the nodes",
        "Nodes with negative resources",
        (node.node_id for node in nodes if _is_negative(*_amounts(node))),
    )
    yield _none_of(
        "Consistency of data",
        "Check if a node's allocated resource <= total resource of the node",
        "Nodes with inconsistent data",
        (node.node_id for node in nodes if not _holds(node)),
    )
    yield _none_of(
        "Consistency of data",
        "Check if total partition resource == sum of the node resources from the partition",
        "Partitions with inconsistent data",
        (model.name for model in models if not _is_the_sum(model)),
    )


def _holds(node: NodeState) -> bool:
    """Whether neither a node nor one of its GPU devices is overcommitted."""
    return _fits(node.allocated, node.capacity) and min(node.devices, default=0) >= 0


def _is_the_sum(model: Model) -> bool:
    assert model.partition is not None
    total: Resource = {}
    for node in model.nodes.values():
        add_into(total, node.state.capacity)
    return _same(bounded(total), model.partition.capacity)


def _amounts(node: NodeState) -> tuple[Mapping[str, int], ...]:
    return (node.capacity, node.allocated, node.occupied, node.available)


def _is_negative(*amounts: Mapping[str, int]) -> bool:
    return any(value < 0 for amount in amounts for value in amount.values())


def _fits(part: Mapping[str, int], whole: Mapping[str, int]) -> bool:
    return all(value <= whole.get(name, 0) for name, value in part.items())


def _same(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return _fits(one, other) and _fits(other, one)


def _reservations(models: Sequence[Model]) -> Answer:
    counts = [
        (sum(len(node.state.reservations) for node in model.nodes.values()), len(model.nodes))
        for model in models
    ]
    ratios = _listed(f"{held / nodes if nodes else 0:f}" for held, nodes in counts)
    return _check(
        "Reservation check",
        "Check the reservation nr compared to the number of nodes",
        f"Reservation/node nr ratio: {ratios}",
        holds=all(held <= nodes for held, nodes in counts),
    )


def _orphans(models: Sequence[Model]) -> Iterator[Answer]:
    on_nodes: Counter[str] = Counter()
    of_applications: Counter[str] = Counter()
    for model in models:
        on_nodes.update(key for node in model.nodes.values() for key in node.allocations)
        of_applications.update(
            key for app in model.applications.values() for key in app.allocations
        )
    yield _none_of(
        "Orphan allocation on node check",
        "Check if there are orphan allocations on the nodes",
        "Orphan allocations",
        on_nodes - of_applications,
    )
    yield _none_of(
        "Orphan allocation on app check",
        "Check if there are orphan allocations on the applications",
        "OrphanAllocations",
        of_applications - on_nodes,
    )
