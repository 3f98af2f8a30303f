"""The ledgers of queues: a tree of sums with limits.

Rule 1: ``allocated`` of a parent is the sum of its children's; a leaf's is the sum of its
        applications', placeholders included.
Rule 2: an ask fits a queue when it fits every queue on the path to the root. A type that a
        queue's max lacks is unlimited there; the root's max is the cluster, and must have it.
Rule 3: ``current_priority`` is what a queue shows to its siblings: the highest priority that
        waits in it, with its offset added, or its offset alone behind a fence. It is kept right
        on the way up when an application's highest priority changes, and costs the depth.
Source: docs/rules/scheduling.md and docs/rules/quotas.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from services.core.scheduler.model.access import NOBODY, Access
from services.core.scheduler.model.priority_counts import NO_PRIORITY, PriorityCounts
from services.core.scheduler.model.queue_settings import USAGE, Limit, QueueSettings, Template
from services.core.scheduler.model.usage import Usage, UsageClock
from shared.model.reasons import Shortage
from shared.model.resources import (
    Resource,
    ResourceView,
    add,
    add_into,
    shared_types,
    smaller_of,
    subtract,
    subtract_into,
)

Q = TypeVar("Q")
HIGHEST_PRIORITY = 2**31 - 1
ACTIVE = "Active"
DRAINING = "Draining"
MANY = 2**31  # of what nothing limits there is headroom for so many
OrderKey = tuple[Any, ...]


@dataclass(slots=True)
class Tree:
    """What all queues of a tree share: how often what they are promised has changed."""

    version: int = 0
    promised: int = 0  # how often that was for what they are promised
    keys: "Keys | None" = None  # a policy's own, which it works out when they are asked for
    usage: UsageClock | None = None  # of usage over time; None: nobody asks for it


class Keys(Protocol):
    """A policy's own order of queues."""

    def renew(self) -> bool:
        """Work the order out again where that is due; return whether it was."""

    def key(self, queue: Any) -> OrderKey:
        """Return the key by which a queue is served."""

    def begin_run(self, leaf: Any, next_group: Callable[[], Any]) -> None:
        """Ask ``next_group`` for the next group of a leaf, until the run ends."""

    def end_run(self, leaf: Any) -> None:
        """Ask the leaf again."""


@dataclass(slots=True)
class Turns(Generic[Q]):
    """The order of a queue's active children, as far as it has been worked out.

    ``heap`` has an entry for every child with a ``turn``, and lapsed ones: a key, a number that
    breaks ties, the child. ``unordered`` are those that have changed since.
    """

    heap: list[tuple[OrderKey, int, Q]] = field(default_factory=list)
    unordered: dict[Q, None] = field(default_factory=dict)
    made: int = 0
    version: int = -1  # of the tree, for which it was worked out


class Division(NamedTuple):
    """What a queue was entitled to, and by which millionths of its level it weighed."""

    entitled: Resource
    weight_ppm: Resource


@dataclass(slots=True, eq=False, repr=False)
class QueueLedger:
    """What a queue may use and uses. ``max_resource`` is its own; the root's is all nodes' sum."""

    name: str
    parent: Self | None = None
    is_leaf: bool = True
    is_managed: bool = True
    status: str = ACTIVE
    max_resource: Resource | None = None
    guaranteed_resource: Resource | None = None
    max_applications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    settings: QueueSettings = field(default_factory=QueueSettings)
    submit_access: Access = NOBODY
    admin_access: Access = NOBODY
    template: Template | None = None
    user_limits: dict[str, Limit] = field(default_factory=dict)
    group_limits: dict[str, Limit] = field(default_factory=dict)
    children: dict[str, Self] = field(default_factory=dict)
    allocated: Resource = field(default_factory=dict)
    pending: Resource = field(default_factory=dict)
    promised: Resource = field(default_factory=dict)  # to admitted gangs, not allocated yet
    preempting: Resource = field(default_factory=dict)  # released to make room, not gone yet
    kept: Resource = field(default_factory=dict)  # for asks that have preempted, and wait
    fixed: Resource = field(default_factory=dict)  # of both, under kai: what is not preemptible
    quota: Resource = field(default_factory=dict)  # what it is owed, by ordering/quotas.py
    quota_version: int = -1  # of the tree, for which that was worked out
    used: Usage | None = None  # over time, once the tree's clock has asked
    division: Division | None = None  # under kai, the last one with usage over time
    ranked_until_ns: int = 0  # until when its applications need no other ranks by that
    running_apps: int = 0
    allocating_accepted: dict[str, None] = field(default_factory=dict)
    current_priority: int = NO_PRIORITY
    priorities: PriorityCounts = field(default_factory=PriorityCounts)  # before offset and fence
    active_children: dict[str, Self] = field(default_factory=dict)
    tree: Tree = field(init=False)
    turns: Turns[Self] = field(default_factory=Turns)
    turn: OrderKey | None = None  # its own among its siblings, None while that is not known
    promised_by_type: Resource = field(default_factory=dict)  # of which its share is taken
    quota_since_ns: int = 0  # since when more than its max is used, and to be given back
    quota_due_ns: int = 0  # when it is made to; 0: never
    path: str = ""
    _lineage: tuple[Self, ...] = ()  # a queue never moves

    def __post_init__(self: Self) -> None:
        self._lineage = (self,) if self.parent is None else (self, *self.parent.lineage())
        self.path = self.name if self.parent is None else f"{self.parent.path}.{self.name}"
        self.tree = Tree() if self.parent is None else self.parent.tree
        self.forget_turns()

    def lineage(self) -> tuple[Self, ...]:
        """Return this queue and every one above it, the root last."""
        return self._lineage

    @property
    def root(self) -> Self:
        """Return the queue above all."""
        return self._lineage[-1]

    # --- limits and ledgers ---------------------------------------------------------------------

    def effective_max(self) -> Resource | None:
        """Return the tightest limit on the path to the root, type by type; None is no limit."""
        result: Resource | None = None
        for queue in self.lineage():
            if queue.max_resource is not None:
                result = smaller_of(result or {}, queue.max_resource)
        return result

    def configured_max(self) -> Resource:
        """Return the tightest limit that is set on the path, type by type.

        The root's is not among them: it is the size of the cluster, which may grow.
        """
        result: Resource = {}
        for queue in self.lineage():
            if queue.parent is not None and queue.max_resource is not None:
                result = smaller_of(result, queue.max_resource)
        return result

    def headroom(self) -> Resource:
        """Return what may still be allocated here, for the types with a limit on the path."""
        room: Resource = {}
        for queue in self.lineage():
            limit = queue.max_resource or {}
            left = {name: most - queue.allocated.get(name, 0) for name, most in limit.items()}
            room = smaller_of(room, left)
        return room

    def first_without_room(
        self, amount: ResourceView, *, count_kept: bool = True, own: ResourceView | None = None
    ) -> tuple[Self, Shortage] | None:
        """Return the nearest queue on the path that cannot take an amount, with the numbers.

        ``count_kept`` counts what is kept for those who have preempted as allocated, less what is
        kept for who asks, its ``own``.
        """
        for queue in self.lineage():
            if queue.max_resource is None:
                continue
            is_kept = count_kept and queue.kept
            used = add(queue.allocated, queue.kept) if is_kept else queue.allocated
            if own:
                used = subtract(used, own)
            short = queue._shortage(used, amount)
            if short:
                return queue, short
        return None

    def room_for(self, amount: ResourceView) -> int:
        """Return how many times an amount there is headroom for, what is kept counted as used."""
        room = MANY
        for queue in self._lineage:
            limit = queue.max_resource
            if limit is None:
                continue
            for name, value in amount.items():
                most = limit.get(name)
                if value <= 0 or (most is None and queue.parent is not None):
                    continue
                used = queue.allocated.get(name, 0) + queue.kept.get(name, 0)
                times = ((most or 0) - used) // value
                if times < room:  # noqa: PLR1730 - asked for each group of a run
                    room = times
        return max(room, 0)

    def first_without_quota(
        self, amount: ResourceView, *, if_promised: bool = False, own: ResourceView | None = None
    ) -> tuple[Self, Shortage] | None:
        """Return the nearest queue whose configured max has no room for a whole gang.

        What admitted gangs have yet to allocate, and what is kept for those who have preempted,
        counts as allocated. The root has no quota: its max is what the nodes have today.
        ``if_promised``: only types count that admitted gangs have yet to get there. ``own`` is kept
        for the gang itself, and does not count.
        """
        for queue in self.lineage():
            if queue.parent is None:
                continue
            used = add(add(queue.allocated, queue.promised), queue.kept)
            if own:
                used = subtract(used, own)
            wanted = shared_types(amount, queue.promised) if if_promised else amount
            short = queue._shortage(used, wanted)
            if short:
                return queue, short
        return None

    def own_room(self, *, for_gangs: bool = False) -> Resource:
        """Return what this queue's own max leaves, at most, for the types that it names.

        ``for_gangs`` takes off what is promised and what is kept.
        """
        room = dict(self.max_resource or {})
        for used in (self.allocated, self.promised, self.kept) if for_gangs else (self.allocated,):
            for name in room:
                room[name] -= used.get(name, 0)
        return room

    def _shortage(self, used: ResourceView, amount: ResourceView) -> Shortage | None:
        """Return of which type the queue's own max has too little, or None."""
        limit = self.max_resource
        if limit is None:
            return None
        for name, value in amount.items():
            most = limit.get(name)
            if most is None:
                if self.parent is not None or value <= 0:
                    continue
                most = 0
            left = most - used.get(name, 0)
            if 0 < value > left:
                return Shortage(f"queue {self.path}", self.path, name, left, most, amount)
        return None

    def first_over_applications(self, application_id: str) -> Self | None:
        """Return the nearest queue on the path that may not run one more application."""
        for queue in self.lineage():
            if application_id in queue.allocating_accepted:
                continue
            running = queue.running_apps + len(queue.allocating_accepted)
            if queue.max_applications and running >= queue.max_applications:
                return queue
        return None

    def allocate(self, amount: ResourceView) -> None:
        """Add to the ledgers from here to the root."""
        self._advance_path()
        for queue in self._lineage:
            add_into(queue.allocated, amount)
            queue.moved()

    def place(self, amount: list[tuple[str, int]]) -> None:
        """Count what waited as allocated, here and not above; ``amount`` has no zeros."""
        if self.tree.usage is not None:
            self.advance_usage()
        allocated, pending = self.allocated, self.pending
        for name, value in amount:
            now = allocated.get(name, 0) + value
            if now:
                allocated[name] = now
            else:
                del allocated[name]
            rest = pending.get(name, 0) - value
            if rest:
                pending[name] = rest
            else:
                del pending[name]
        self.moved()

    def release(self, amount: ResourceView) -> None:
        """Subtract from the ledgers from here to the root."""
        self._advance_path()
        for queue in self.lineage():
            subtract_into(queue.allocated, amount)
            queue.moved()

    def _advance_path(self) -> None:
        """Count what each queue from here to the root has held, where usage over time is asked."""
        if self.tree.usage is not None:
            for queue in self._lineage:
                queue.advance_usage()

    def advance_usage(self) -> None:
        """Count what it has held until now into its usage over time, before that changes."""
        clock = self.tree.usage
        if clock is not None:
            self.used = self.used or clock.row_of(self.path)
            clock.advance(self.used, self.allocated)

    def change_promise(self, before: ResourceView, after: ResourceView) -> None:
        """Change what an admitted gang has yet to allocate, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.promised, before)
            add_into(queue.promised, after)

    def change_preempting(self, before: ResourceView, after: ResourceView) -> None:
        """Change what is being released to make room, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.preempting, before)
            add_into(queue.preempting, after)

    def change_fixed(self, before: ResourceView, after: ResourceView) -> None:
        """Change what is used by what may not be preempted, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.fixed, before)
            add_into(queue.fixed, after)

    def claim(self, amount: ResourceView) -> None:
        """Keep room for an ask that has preempted, from here to the root."""
        for queue in self.lineage():
            add_into(queue.kept, amount)

    def release_claim(self, amount: ResourceView) -> None:
        """Give kept room back, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.kept, amount)

    def add_pending(self, amount: ResourceView) -> None:
        """Add to what waits, from here to the root."""
        for queue in self._lineage:
            add_into(queue.pending, amount)
            queue.moved()

    def remove_pending(self, amount: ResourceView) -> None:
        """Take from what waits, from here to the root."""
        for queue in self._lineage:
            subtract_into(queue.pending, amount)
            queue.moved()

    def set_max(self, limit: Resource | None) -> None:
        """Change the queue's own limit."""
        self.max_resource = limit
        self.forget_turns()

    # --- priority -------------------------------------------------------------------------------

    def change_priority(self: Self, before: int, after: int) -> None:
        """Count an application, or a child, from one priority to another (NO_PRIORITY: none)."""
        queue: Self | None = self
        while queue is not None and before != after:
            queue._count(before, after)
            before, after = queue.current_priority, queue.published()
            queue.current_priority = after
            queue.moved()
            queue = queue.parent

    def _count(self, before: int, after: int) -> None:
        if after != NO_PRIORITY:
            self.priorities.change(after, 1)
        if before != NO_PRIORITY:
            self.priorities.change(before, -1)

    def published(self) -> int:
        """Return what the queue shows to its siblings; nothing waiting stays NO_PRIORITY."""
        highest = self.priorities.highest
        return NO_PRIORITY if highest == NO_PRIORITY else self.shown(highest)

    def shown(self, priority: int) -> int:
        """Return as what a priority inside the queue shows outside of it.

        Source: docs/rules/scheduling.md#priority.
        """
        offset = self.settings.priority_offset
        if self.settings.priority_fence:
            return offset
        return max(NO_PRIORITY, min(HIGHEST_PRIORITY, priority + offset))

    def configure(self, settings: QueueSettings) -> None:
        """Take settings over; what the queue shows to its siblings may change with them."""
        self.settings = settings
        self.forget_turns()
        before, after = self.current_priority, self.published()
        self.current_priority = after
        if self.parent is not None:
            self.parent.change_priority(before, after)

    # --- order ----------------------------------------------------------------------------------

    def moved(self: Self) -> None:
        """Say that the queue may have another place among its siblings now."""
        if self.parent is not None:
            self.parent.turns.unordered[self] = None

    def forget_turns(self) -> None:
        """Say that what queues are promised has changed, by a max, a guarantee or a setting."""
        self.tree.version += 1
        self.tree.promised += 1

    def rank_of_user(self, user: str) -> int:
        """Return what orders a user's applications in a leaf that goes by usage over time."""
        clock = self.tree.usage
        if clock is None or self.settings.sort_policy != USAGE:
            return 0
        return clock.rank(clock.row_of(self.path, user), {})
