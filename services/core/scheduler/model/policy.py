"""The interface for plugins: the hooks that a plugin registers for live decisions.

A plugin is ``def register(policy: Policy) -> None``, found by the entry point group
``muster.plugins``. It is called once for every model of the cluster, so also at every recovery: the
hooks' state belongs into that call. All hooks of a kind are called, in the order of registration;
one refusal is enough. Hooks must not change their arguments. docs/plugins.md has an example.
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
    """A potential victim and its application."""

    application: "Application"
    allocation: Allocation


class Reads(Flag):
    """What a hook reads, apart from the ask or application itself."""

    NOTHING = 0
    NODES = auto()  # a node's properties: name, labels, taints, attributes and capacity
    PODS = auto()  # the pods on the nodes
    LEDGERS = auto()  # the allocated amounts of queues, users and applications


def reads(what: Reads) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Declare what a hook reads: it is called again for what it refused only when that changed."""

    def mark(hook: Callable[_P, _R]) -> Callable[_P, _R]:
        marked = partial(hook)  # a method has no attributes of its own
        marked.reads = what  # type: ignore[attr-defined]
        return marked

    return mark


@dataclass(slots=True)
class Policy:
    """The hooks that one plugin registers.

    ``order``: sort keys before the leaf queue's own order of applications, smallest first.
    ``feasible``: whether a node may be used for asks of a shape. ``score``: sort keys before the
    node's own score, ``node.score``, smallest first. ``capacity``: why an application may not
    allocate an amount now, "" if it may; for a gang it is called for the whole, then for each
    member. ``victim``: whether an action may evict a victim for an application; ``scenario``:
    whether it may evict all of its victims. ``on_allocate`` and ``on_deallocate`` are called for
    every allocation added to or removed from a node, including those of a trial and its undo. Of a
    shape hooks may read ``resource`` and ``constraints``: asks equal in these get the same answer.
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
