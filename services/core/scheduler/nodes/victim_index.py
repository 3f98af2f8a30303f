"""The index of possible victims, updated as allocations are added, resized, released and ended.

Rule 1: it contains every allocation of an application on an existing node that is not being
        released, has no required node, and may be evicted now.
Rule 2: a node has its victims in order: by rank, newest first, by key. Allocations being released
        are held separately.
Rule 3: victims of one leaf, priority and amount are one kind. A node, and a leaf, count victims by
        kind, so that sums need no allocations.
Rule 4: nothing is indexed before the first search for victims. Changes of a node are in the log of
        the node table; ``released`` adds releases to it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from services.core.scheduler.nodes.victim_bounds import BoundsTable, NodeBounds
from services.core.scheduler.nodes.victim_budgets import VictimBudgets
from services.core.scheduler.nodes.victim_kinds import (
    NOBODY,
    Kind,
    KindKey,
    NodeVictims,
    Victim,
    rank_of,
)
from shared.messages.interface import Allocation, Disruption, DisruptionState

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application, Node, Queue
    from services.core.scheduler.nodes.node_table import NodeTable


class VictimIndex:
    """The victims of every node and leaf."""

    def __init__(self, nodes: "NodeTable") -> None:
        self.is_kept = False
        self.by_leaf: dict[Queue, dict[Kind, None]] = {}
        self.disruptions: dict[str, DisruptionState] = {}  # by key; others are FREE
        self.budgets = VictimBudgets()
        self._nodes = nodes
        self._by_node: dict[str, NodeVictims] = {}
        self._kinds: dict[KindKey, Kind] = {}
        self._last: Kind | None = None  # the last kind found
        self._supposed: dict[str, Victim] = {}  # released by the open statement
        self._bounds = BoundsTable()

    def start(self, applications: "Iterable[Application]") -> None:
        """Index all allocations, unless that was done, and keep the index up to date."""
        if self.is_kept:
            return
        self.is_kept = True
        for application in applications:
            for allocation in application.allocations.values():
                self.placed(application, allocation)

    def on(self, node: "Node") -> NodeVictims:
        """Return the victims of a node; read-only."""
        return self._by_node.get(node.node_id, NOBODY)

    def kind_of(self, application: "Application", allocation: Allocation) -> Kind | None:
        """Return an allocation's kind of victim; None if it is none."""
        node = self._nodes.nodes.get(allocation.node_id)
        needs_its_node = bool(allocation.constraints.required_node)
        if node is None or needs_its_node or allocation.allocation_key in application.released:
            return None
        if self.is_barred(allocation.allocation_key):
            return None
        return self._kinds.get(_key(application.queue, allocation))

    def is_barred(self, key: str) -> bool:
        """Whether an allocation must not be evicted now."""
        return self.disruptions.get(key) == DisruptionState.BARRED

    def rank_of(self, allocation: Allocation) -> int:
        """Return an allocation's rank as a victim: the lowest is evicted first."""
        return rank_of(allocation, self.disruptions)

    def bounds(self, names: tuple[str, ...], kinds: tuple[Kind, ...]) -> NodeBounds:
        """Return the bounds by node for victims of some kinds and for some types."""
        return self._bounds.of(self._nodes, self.on, names, kinds)

    # --- updates --------------------------------------------------------------------------------

    def placed(self, application: "Application", allocation: Allocation) -> None:
        """Add an allocation of an application."""
        if not self.is_kept:
            return
        name, key = allocation.node_id, allocation.allocation_key
        here = self._by_node.get(name)
        if here is None:
            if name not in self._nodes.nodes:
                return
            here = self._by_node[name] = NodeVictims()
        if key in application.released:
            if key not in application.stuck:
                here.releasing[key] = allocation
        elif not (allocation.constraints.required_node or self.is_barred(key)):
            kind = self._kind_of(application.queue, allocation)
            kind.count += 1
            here.kinds[kind] = here.kinds.get(kind, 0) + 1
            newest = -allocation.create_time_ns
            if application.keeps_minimum and not allocation.placeholder:
                self.budgets.join_gang(key, application, allocation.task_group_name)
            insort(here.order, Victim(self.rank_of(allocation), newest, key, allocation, kind))

    def gone(self, allocation: Allocation) -> None:
        """Remove an allocation that ended, or is about to be released or resized."""
        if not self.is_kept:
            return
        here = self._by_node.get(allocation.node_id)
        if here is None or here.releasing.pop(allocation.allocation_key, None) is not None:
            return
        self.budgets.leave_gang(allocation.allocation_key)
        at = bisect_left(here.order, self._place_of(allocation))
        if at == len(here.order) or here.order[at].key != allocation.allocation_key:
            return  # it has a required node, or a budget blocks it
        kind = here.order.pop(at).kind
        here.kinds[kind] -= 1
        if not here.kinds[kind]:
            del here.kinds[kind]
        self._count_out(kind)

    def released(self, application: "Application", allocation: Allocation) -> None:
        """Add an allocation that is being released, after ``gone`` removed it."""
        self.placed(application, allocation)
        node = self._nodes.nodes.get(allocation.node_id)
        if node is not None:
            self._nodes.touch(node)

    def try_release(self, allocation: Allocation, *, is_gone: bool) -> None:
        """Remove an allocation that the open statement releases, or add it again.

        Its kind stays, so that bounds stay valid.
        """
        key = allocation.allocation_key
        if is_gone:
            here = self._by_node.get(allocation.node_id, NOBODY)
            at = bisect_left(here.order, self._place_of(allocation))
            if at == len(here.order) or here.order[at].key != key:
                return
            victim = self._supposed[key] = here.order.pop(at)
        elif key in self._supposed:
            victim = self._supposed.pop(key)
            insort(self._by_node[allocation.node_id].order, victim)
        else:
            return
        kinds = self._by_node[allocation.node_id].kinds
        count = kinds.get(victim.kind, 0) + (-1 if is_gone else 1)
        victim.kind.count += -1 if is_gone else 1
        if count:
            kinds[victim.kind] = count
        else:
            del kinds[victim.kind]

    def renew(self, node: "Node") -> None:
        """Mark a node in the bounds for an update after the open statement changed it."""
        if self.is_kept:
            self._bounds.renew(node)

    def _place_of(self, allocation: Allocation) -> tuple[int, int, str]:
        """Return an allocation's sort key among the victims of its node."""
        return (self.rank_of(allocation), -allocation.create_time_ns, allocation.allocation_key)

    def stuck(self, allocation: Allocation) -> None:
        """Stop expecting the capacity of a released allocation that does not end."""
        here = self._by_node.get(allocation.node_id)
        node = self._nodes.nodes.get(allocation.node_id)
        if here is not None:
            here.releasing.pop(allocation.allocation_key, None)
            if node is not None:
                self._nodes.touch(node)

    def disrupt(self, application: "Application", allocation: Allocation, news: Disruption) -> None:
        """Record whether an allocation may be evicted now."""
        self.gone(allocation)
        if news.state is DisruptionState.FREE:
            self.forget(allocation.allocation_key)
        else:
            self.disruptions[allocation.allocation_key] = news.state
            self.budgets.set(allocation.allocation_key, news.budget, news.allowed)
        self.placed(application, allocation)
        node = self._nodes.nodes.get(allocation.node_id)
        if node is not None:
            self._nodes.touch(node)

    def forget(self, key: str) -> None:
        """Drop an allocation's disruption state: it has ended, or has no budget."""
        self.disruptions.pop(key, None)
        self.budgets.forget(key)

    def node_gone(self, node: "Node") -> None:
        """Remove a node and its victims."""
        here = self._by_node.pop(node.node_id, NOBODY)
        for victim in here.order:
            self.budgets.leave_gang(victim.key)
            self._count_out(victim.kind)

    def _kind_of(self, leaf: "Queue", allocation: Allocation) -> Kind:
        last, amount = self._last, allocation.resource_per_alloc
        if (
            last is not None
            and last.leaf is leaf
            and last.priority == allocation.priority
            and last.amount == amount
        ):
            return last
        key = _key(leaf, allocation)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind(key, leaf, allocation.priority, amount)
            self.by_leaf.setdefault(leaf, {})[kind] = None
        self._last = kind
        return kind

    def _count_out(self, kind: Kind) -> None:
        kind.count -= 1
        if kind.count:
            return
        self._last = None
        del self._kinds[kind.key]
        kinds = self.by_leaf[kind.leaf]
        del kinds[kind]
        if not kinds:
            del self.by_leaf[kind.leaf]


def _key(leaf: "Queue", allocation: Allocation) -> KindKey:
    return (leaf, allocation.priority, tuple(sorted(allocation.resource_per_alloc.items())))
