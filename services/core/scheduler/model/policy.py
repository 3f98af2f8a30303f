"""What a plugin registers: the hooks of a policy, which live decisions ask.

A plugin is ``def register(policy: Policy) -> None``, found by the entry point group
``muster.plugins``. It is called once for every model of the cluster, so also at every recovery:
what its hooks remember belongs into that call. All hooks of a kind are asked, in the order of
registration; a "no" of any is a no. They judge and watch; they never change what they are shown.
docs/plugins.md has an example.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from shared.messages.interface import Allocation
from shared.model.resources import ResourceView

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application, Node
    from services.core.scheduler.model.shapes import Shape

OrderKey = Callable[["Application"], int]
Feasible = Callable[["Node", "Shape"], bool]
NodeScore = Callable[["Node", "Shape"], float]
Capacity = Callable[["Application", ResourceView], str]
VictimFilter = Callable[[str, "Victim", "Application"], bool]
ScenarioCheck = Callable[[str, Sequence["Victim"], "Application"], bool]
Moved = Callable[["Application", Allocation], None]
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Victim(NamedTuple):
    """An allocation that may be taken for another application, and whose it is."""

    application: "Application"
    allocation: Allocation


class Reads(Flag):
    """What a hook checks beside what an ask or an application says of itself."""

    NOTHING = 0
    NODES = auto()  # what a node is: its name, labels, taints, attributes and capacity
    PODS = auto()  # what is on the nodes
    LEDGERS = auto()  # what queues, users and applications have allocated


def reads(what: Reads) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Say what a hook reads: only when that has changed is it asked again about what it refused."""

    def mark(hook: Callable[_P, _R]) -> Callable[_P, _R]:
        marked = partial(hook)  # a method has no attributes of its own
        marked.reads = what  # type: ignore[attr-defined]
        return marked

    return mark


@dataclass(slots=True)
class Policy:
    """The hooks that one plugin registers.

    ``order``: keys that come before the leaf queue's own order of applications, the smaller first.
    ``feasible``: whether a node may take asks of a shape. ``score``: keys that come before the
    node's own score, ``node.score``, the smaller first. ``capacity``: why an application may not
    take an amount now, "" if it may; for a gang it is asked about the whole, then about each.
    ``victim``: whether an action may take a victim for an application; ``scenario``: whether
    all that it would take may go. ``on_allocate`` and ``on_deallocate`` are called for every
    allocation that comes to a node or leaves it, those of a trial and of its end like any other.

    Of a shape hooks read the ``resource`` and the ``constraints``: asks that agree in these are
    answered alike.
    """

    order: list[OrderKey] = field(default_factory=list)
    feasible: list[Feasible] = field(default_factory=list)
    score: list[NodeScore] = field(default_factory=list)
    capacity: list[Capacity] = field(default_factory=list)
    victim: list[VictimFilter] = field(default_factory=list)
    scenario: list[ScenarioCheck] = field(default_factory=list)
    on_allocate: list[Moved] = field(default_factory=list)
    on_deallocate: list[Moved] = field(default_factory=list)


Register = Callable[[Policy], None]
