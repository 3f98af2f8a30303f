"""Nodes as a scenario, a replay and a file of `muster up --nodes` list them: one, or several."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from shared.messages.commands import NodeSpec
from shared.messages.constraints import Taint
from shared.model.names import NODE_PARTITION
from shared.model.quantity import QuantityError, pod_resources


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def quantities(value: Any) -> Any:
    """Return amounts by resource, in the smallest units. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("a map of quantities was expected")  # noqa: TRY004 - pydantic's way
    try:
        resource = pod_resources(value)
    except QuantityError as error:
        raise ValueError(str(error)) from error
    return resource


class TaintStep(_Strict):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeEntry(_Strict):
    """One or, with ``count``, several nodes at the start."""

    name: str
    count: int | None = Field(default=None, ge=1, le=100_000)
    capacity: dict[str, int]
    labels: dict[str, str] = {}
    taints: list[TaintStep] = []
    partition: str = ""

    @field_validator("capacity", mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        return quantities(value)


def nodes_of_entry(entry: NodeEntry) -> list[NodeSpec]:
    """Return the nodes that an entry stands for."""
    names = (
        [entry.name] if entry.count is None else [f"{entry.name}-{at}" for at in range(entry.count)]
    )
    taints = tuple(Taint(t.key, t.value, t.effect) for t in entry.taints)
    labels = labels_of(entry.labels, entry.partition)
    return [NodeSpec(name, "add", entry.capacity, labels, taints) for name in names]


def labels_of(labels: dict[str, str], partition: str) -> dict[str, str]:
    """Return a node's labels, with its partition's where it names one."""
    return {**labels, **({NODE_PARTITION: partition} if partition else {})}
