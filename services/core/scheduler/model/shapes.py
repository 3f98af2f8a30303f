"""Asks, and shapes: asks that are alike are placed, refused and woken together.

A Shape is a request and its constraints, one object for the whole partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from services.core.scheduler.model.devices import Need, need_of
from shared.messages.constraints import Constraints
from shared.messages.interface import AllocationAsk
from shared.model.resources import MEMORY, VCORE

Labels = tuple[tuple[str, str], ...]
Rest = tuple[Constraints, Labels, int, int, Any]  # run_ns, expected_ns, bond
ShapeKey = tuple[tuple[tuple[str, int], ...], Rest]


class Demand(NamedTuple):
    """What scores look at of an ask: ``size`` thousandths of each of ``number`` devices, or 0."""

    vcore: int
    memory: int
    size: int = 0
    number: int = 0


AskedFor: TypeAlias = tuple[Demand, Constraints]


def demand_of(resource: Mapping[str, int], need: Need | None) -> Demand:
    """Return what scores look at of an amount that takes so much of devices."""
    return Demand(resource.get(VCORE, 0), resource.get(MEMORY, 0), *(need or (0, 0)))


@dataclass(slots=True, eq=False, repr=False)
class Shape:
    """A request with its constraints. ``name`` is short and stable within one core's life."""

    name: str
    resource: dict[str, int]
    constraints: Constraints
    labels: Labels = ()  # those that constraints of any pod ask about
    run_ns: int = 0  # for how long at most, where backfill asks; 0: not known, or not used
    expected_ns: int = 0  # for how long by prediction, where that counts; 0: as above
    bond: Any = None  # the gang and its part by which it is bound to domains of the nodes
    on_devices: Need | None = field(init=False)  # None: it asks for no GPU
    asked_for: AskedFor = field(init=False)  # what it is in the recent mix
    # What the room ``nodes`` remembers of it: only that reads and writes these.
    view: Any = None  # what its constraints make of the nodes, and when
    candidates: Any = None  # the first nodes in order that take it
    plan: Any = None  # what its constraints ask of other pods

    def __post_init__(self) -> None:
        self.on_devices = need_of(self.resource, self.constraints)
        self.asked_for = demand_of(self.resource, self.on_devices), self.constraints


@dataclass(slots=True)
class LogLine:
    """One sentence of an ask's allocation log: how often, when last, when last published."""

    count: int = 0
    last_ns: int = 0
    reported_ns: int = 0


@dataclass(slots=True, eq=False)
class Ask:
    """An ask that is not allocated. ``sequence`` is the order of arrival.

    ``created_ns`` is when it was made, or where that is not said, when it came.
    """

    request: AllocationAsk
    shape: Shape
    sequence: int
    created_ns: int = 0
    lacks_headroom_by: str = ""  # whose limit its event named for want of headroom
    has_preempted: bool = False
    preemption_checked_ns: int = 0
    is_marked: bool = False  # Unschedulable, at the resource manager: more nodes would help
    log: dict[str, LogLine] | None = None  # by text; None: it was never refused itself
    told_of_nodes_ns: int = 0  # when its event last said what nodes fail on, but for room
    is_covered: bool = False  # by placeholders that go for it
    is_mismatch_reported: bool = False  # to users, that it is larger than its placeholder
    key: str = field(init=False)
    order: tuple[int, int, int] = field(init=False)  # of asks of one application

    def __post_init__(self) -> None:
        request = self.request
        self.key = request.allocation_key
        self.order = (-request.priority, request.create_time_ns, self.sequence)


class ShapeTable:
    """The shapes that asks have, by what makes them one; a shape without asks is forgotten."""

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
        bond: Any = None,
    ) -> Shape:
        """Return the shape of an ask, the same object for every ask like it, and count its use."""
        resource, constraints = dict(ask.resource_per_alloc), ask.constraints
        key = _key_of(resource, (constraints, labels, run_ns, expected_ns, bond))
        shape = self._shapes.get(key)
        if shape is None:
            self._made += 1
            name = f"shape-{self._made}"
            shape = Shape(name, resource, constraints, labels, run_ns, expected_ns, bond)
            self._shapes[key] = shape
        self.use(shape, 1)
        return shape

    def use(self, shape: Shape, times: int) -> None:
        """Count uses of a shape."""
        self._uses[shape] = self._uses.get(shape, 0) + times

    def release_shape(self, shape: Shape, times: int = 1) -> bool:
        """Count uses out; return whether that was the last one, and the shape is forgotten."""
        left = self._uses[shape] - times
        if left:
            self._uses[shape] = left
            return False
        del self._uses[shape]
        rest = (shape.constraints, shape.labels, shape.run_ns, shape.expected_ns, shape.bond)
        del self._shapes[_key_of(shape.resource, rest)]
        return True

    def __len__(self) -> int:
        return len(self._shapes)


def _key_of(resource: Mapping[str, int], rest: Rest) -> ShapeKey:
    return (tuple(sorted(resource.items())), rest)
