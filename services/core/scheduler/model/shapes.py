"""Asks and shapes: asks of one shape are placed, refused and requeued together.

A Shape is a request with its constraints, one object for the whole partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from services.core.scheduler.model.devices import Need, need_of
from shared.messages.constraints import Constraints
from shared.messages.interface import AllocationAsk
from shared.model.resources import MEMORY, VCORE

Labels = tuple[tuple[str, str], ...]
Rest = tuple[Constraints, Labels, int, int, Any]  # run_ns, expected_ns, gang_part
ShapeKey = tuple[tuple[tuple[str, int], ...], Rest]


class Demand(NamedTuple):
    """What node scores read of an ask: ``size`` thousandths of each of ``number`` devices, or 0."""

    vcore: int
    memory: int
    size: int = 0
    number: int = 0


AskedFor: TypeAlias = tuple[Demand, Constraints]


def demand_of(resource: Mapping[str, int], need: Need | None) -> Demand:
    """Return what node scores read of a request with a need of devices."""
    return Demand(resource.get(VCORE, 0), resource.get(MEMORY, 0), *(need or (0, 0)))


@dataclass(slots=True, eq=False, repr=False)
class Shape:
    """A request with its constraints. ``name`` is short and unique within a core's life."""

    name: str
    resource: dict[str, int]
    constraints: Constraints
    labels: Labels = ()  # those that pod selectors of any constraints use
    run_ns: int = 0  # largest run time, if backfill uses it; 0: unknown or unused
    expected_ns: int = 0  # predicted run time, likewise
    gang_part: Any = None  # the gang and its part with a topology constraint
    wanted: dict[str, int] = field(init=False)  # the amounts that are more than nothing
    on_devices: Need | None = field(init=False)  # None: no GPU requested
    asked_for: AskedFor = field(init=False)  # its kind in the mix of recent asks
    # Caches of ``nodes``, which alone reads and writes them.
    view: Any = None  # the nodes' mask for its constraints, with a version
    candidates: Any = None  # the first nodes in order that fit it
    plan: Any = None  # the compiled pod selectors of its constraints

    def __post_init__(self) -> None:
        amounts = self.resource
        if min(amounts.values(), default=1) <= 0:
            amounts = {name: value for name, value in amounts.items() if value > 0}
        self.wanted = amounts
        self.on_devices = need_of(self.resource, self.constraints)
        self.asked_for = demand_of(self.resource, self.on_devices), self.constraints


@dataclass(slots=True)
class LogLine:
    """One text of an ask's allocation log: count, last time, and last publication."""

    count: int = 0
    last_ns: int = 0
    reported_ns: int = 0


@dataclass(slots=True, eq=False)
class Ask:
    """An ask that is not allocated. ``sequence`` is the order of arrival.

    ``created_ns`` is its creation, or its arrival if that is not known.
    """

    request: AllocationAsk
    shape: Shape
    sequence: int
    created_ns: int = 0
    lacks_headroom_by: str = ""  # the limit reported as exceeded: "queue", "user" or ""
    has_preempted: bool = False
    preemption_checked_ns: int = 0
    is_marked: bool = False  # reported as unschedulable: more nodes would help
    log: dict[str, LogLine] | None = None  # allocation log, by text; None: never refused itself
    told_of_nodes_ns: int = 0  # time of its last event on refusing nodes
    is_covered: bool = False  # several placeholders are being released for it
    is_mismatch_reported: bool = False  # reported as larger than its placeholders
    key: str = field(init=False)
    order: tuple[int, int, int] = field(init=False)  # of asks of one application

    def __post_init__(self) -> None:
        request = self.request
        self.key = request.allocation_key
        self.order = (-request.priority, request.create_time_ns, self.sequence)


class ShapeTable:
    """The shapes in use; a shape without asks is removed."""

    def __init__(self) -> None:
        self._shapes: dict[ShapeKey, Shape] = {}
        self._uses: dict[Shape, int] = {}
        self._made = 0

    def shape_of(
        self,
        ask: AllocationAsk,
        labels: Labels = (),
        run_ns: int = 0,
        expected_ns: int = 0,
        gang_part: Any = None,
    ) -> Shape:
        """Return the shape of an ask, one object for all equal asks, and count its use."""
        resource, constraints = dict(ask.resource_per_alloc), ask.constraints
        key = _key_of(resource, (constraints, labels, run_ns, expected_ns, gang_part))
        shape = self._shapes.get(key)
        if shape is None:
            self._made += 1
            name = f"shape-{self._made}"
            shape = Shape(name, resource, constraints, labels, run_ns, expected_ns, gang_part)
            self._shapes[key] = shape
        self.use(shape, 1)
        return shape

    def use(self, shape: Shape, times: int) -> None:
        """Count uses of a shape."""
        self._uses[shape] = self._uses.get(shape, 0) + times

    def release_shape(self, shape: Shape, times: int = 1) -> bool:
        """Subtract uses; return whether that was the last one, so that the shape was removed."""
        left = self._uses[shape] - times
        if left:
            self._uses[shape] = left
            return False
        del self._uses[shape]
        rest = (shape.constraints, shape.labels, shape.run_ns, shape.expected_ns, shape.gang_part)
        del self._shapes[_key_of(shape.resource, rest)]
        return True

    def __len__(self) -> int:
        return len(self._shapes)


def _key_of(resource: Mapping[str, int], rest: Rest) -> ShapeKey:
    return (tuple(sorted(resource.items())), rest)
