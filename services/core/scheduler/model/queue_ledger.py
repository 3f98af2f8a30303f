"""The ledgers of queues: a tree of sums with limits.

Rule 1: ``allocated`` of a parent is the sum of its children's; a leaf's is the sum of its
        applications', placeholders included.
Rule 2: an ask fits a queue if it fits every queue on the path to the root. A type that a queue's
        max lacks is unlimited there; the root's max is the cluster, and a type that it lacks has
        none.
Rule 3: ``current_priority`` is the priority that a queue shows to its siblings: the highest waiting
        in it plus its offset, or the offset alone with a fence. It is updated on the path when an
        application's highest priority changes.
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
MANY = 2**31  # the number that fits if nothing is limited
OrderKey = tuple[Any, ...]


@dataclass(slots=True)
class Tree:
    """What all queues of a tree share; ``version`` counts changes of their order's inputs."""

    version: int = 0
    promised: int = 0  # version of maxima, guarantees and settings
    keys: "Keys | None" = None  # a policy's own order, computed on demand
    usage: UsageClock | None = None  # of usage over time; None: not counted


class Keys(Protocol):
    """A policy's own order of queues."""

    def renew(self) -> bool:
        """Recompute the order if due; return whether it was."""

    def key(self, queue: Any) -> OrderKey:
        """Return a queue's sort key."""

    def begin_run(self, leaf: Any, next_group: Callable[[], Any]) -> None:
        """Read the next group of a leaf from ``next_group`` until the run ends."""

    def end_run(self, leaf: Any) -> None:
        """Read the next group from the leaf again."""


@dataclass(slots=True)
class Turns(Generic[Q]):
    """The order of a queue's active children, as far as it is computed.

    ``heap`` has an entry for every child with a ``turn``, and stale ones: key, tie breaker, child.
    ``unordered`` are the children that changed since.
    """

    heap: list[tuple[OrderKey, int, Q]] = field(default_factory=list)
    unordered: dict[Q, None] = field(default_factory=dict)
    made: int = 0
    version: int = -1  # of the tree at the last full sort


class Division(NamedTuple):
    """A queue's fair share, and its weight in its level in millionths."""

    entitled: Resource
    weight_ppm: Resource


@dataclass(slots=True, eq=False, repr=False)
class QueueLedger:
    """A queue's limits and usage. ``max_resource`` is its own, the root's the sum of the nodes."""

    name: str
    parent: Self | None = None
    is_leaf: bool = True
    becomes_leaf: bool = False  # configured as a leaf, but has queues below it still
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
    promised: Resource = field(default_factory=dict)  # admitted gangs' outstanding members
    preempting: Resource = field(default_factory=dict)  # of victims that have not ended yet
    reserved: Resource = field(default_factory=dict)  # claimed for asks that have preempted
    non_preemptible: Resource = field(default_factory=dict)  # under kai: such usage and claims
    quota: Resource = field(default_factory=dict)  # KAI's quota, by ordering/quotas.py
    quota_version: int = -1  # of the tree when the quota was computed
    used: Usage | None = None  # usage over time, once counted
    division: Division | None = None  # under kai: the last reported fair share
    ranked_until_ns: int = 0  # when its applications are ranked by usage again
    running_apps: int = 0
    allocating_accepted: dict[str, None] = field(default_factory=dict)
    current_priority: int = NO_PRIORITY
    priorities: PriorityCounts = field(default_factory=PriorityCounts)  # before offset and fence
    active_children: dict[str, Self] = field(default_factory=dict)
    tree: Tree = field(init=False)
    turns: Turns[Self] = field(default_factory=Turns)
    turn: OrderKey | None = None  # its sort key among its siblings, None if unknown
    promised_by_type: Resource = field(default_factory=dict)  # reference of its fair share
    quota_since_ns: int = 0  # since when its usage has exceeded its max
    quota_due_ns: int = 0  # when the excess is evicted; 0: never
    path: str = ""
    _lineage: tuple[Self, ...] = ()  # a queue never moves

    def __post_init__(self: Self) -> None:
        self._lineage = (self,) if self.parent is None else (self, *self.parent.lineage())
        self.path = self.name if self.parent is None else f"{self.parent.path}.{self.name}"
        self.tree = Tree() if self.parent is None else self.parent.tree
        self.forget_turns()

    def lineage(self) -> tuple[Self, ...]:
        """Return this queue and every queue above it, the root last."""
        return self._lineage

    @property
    def root(self) -> Self:
        """Return the root."""
        return self._lineage[-1]

    # --- limits and ledgers ---------------------------------------------------------------------

    def effective_max(self) -> Resource | None:
        """Return the tightest max on the path to the root, type by type; None: no limit."""
        result: Resource | None = None
        for queue in self.lineage():
            if queue.max_resource is not None:
                result = smaller_of(result or {}, queue.max_resource)
        return result

    def configured_max(self) -> Resource:
        """Return the tightest configured max on the path, type by type.

        Without the root's: it is the size of the cluster, which may grow.
        """
        result: Resource = {}
        for queue in self.lineage():
            if queue.parent is not None and queue.max_resource is not None:
                result = smaller_of(result, queue.max_resource)
        return result

    def headroom(self) -> Resource:
        """Return what may still be allocated, for the types with a max on the path."""
        room: Resource = {}
        for queue in self.lineage():
            limit = queue.max_resource or {}
            left = {name: most - queue.allocated.get(name, 0) for name, most in limit.items()}
            room = smaller_of(room, left)
        return room

    def first_without_room(
        self, amount: ResourceView, *, count_reserved: bool = True, own: ResourceView | None = None
    ) -> tuple[Self, Shortage] | None:
        """Return the nearest queue on the path that an amount does not fit, with the numbers.

        With ``count_reserved`` claims for asks that have preempted count as allocated, less
        ``own``, the claims of the asking application.
        """
        for queue in self.lineage():
            if queue.max_resource is None:
                continue
            is_reserved = count_reserved and queue.reserved
            used = add(queue.allocated, queue.reserved) if is_reserved else queue.allocated
            if own:
                used = subtract(used, own)
            short = queue._shortage(used, amount)
            if short:
                return queue, short
        return None

    def room_for(self, amount: ResourceView) -> int:
        """Return how many times an amount fits the headroom; claims count as used."""
        room = MANY
        for queue in self._lineage:
            limit = queue.max_resource
            if limit is None:
                continue
            for name, value in amount.items():
                most = limit.get(name)
                if value <= 0 or (most is None and queue.parent is not None):
                    continue
                used = queue.allocated.get(name, 0) + queue.reserved.get(name, 0)
                times = ((most or 0) - used) // value
                if times < room:  # noqa: PLR1730 - asked for each group of a run
                    room = times
        return max(room, 0)

    def first_without_quota(
        self, amount: ResourceView, *, if_promised: bool = False, own: ResourceView | None = None
    ) -> tuple[Self, Shortage] | None:
        """Return the nearest queue whose configured max a whole gang exceeds, with the numbers.

        Outstanding members of admitted gangs, and claims for asks that have preempted, count as
        allocated. The root's max is not a quota. ``if_promised``: only types with outstanding
        members there count. ``own`` is claimed for the gang itself and does not count.
        """
        for queue in self.lineage():
            if queue.parent is None:
                continue
            used = add(add(queue.allocated, queue.promised), queue.reserved)
            if own:
                used = subtract(used, own)
            wanted = shared_types(amount, queue.promised) if if_promised else amount
            short = queue._shortage(used, wanted)
            if short:
                return queue, short
        return None

    def own_room(self, *, for_gangs: bool = False) -> Resource:
        """Return what this queue's own max leaves, for the types that it names.

        ``for_gangs`` subtracts outstanding members and claims too.
        """
        room = dict(self.max_resource or {})
        for used in (
            (self.allocated, self.promised, self.reserved) if for_gangs else (self.allocated,)
        ):
            for name in room:
                room[name] -= used.get(name, 0)
        return room

    def _shortage(self, used: ResourceView, amount: ResourceView) -> Shortage | None:
        """Return the first type of an amount that exceeds the queue's own max, or None."""
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
        """Return the nearest queue on the path that may not run one more application, or None."""
        for queue in self.lineage():
            if application_id in queue.allocating_accepted:
                continue
            running = queue.running_apps + len(queue.allocating_accepted)
            if queue.max_applications and running >= queue.max_applications:
                return queue
        return None

    def allocate(self, amount: ResourceView) -> None:
        """Add usage from here to the root."""
        self._advance_path()
        for queue in self._lineage:
            add_into(queue.allocated, amount)
            queue.moved()

    def place(self, amount: list[tuple[str, int]]) -> None:
        """Move an amount from pending to allocated, in this queue only; ``amount`` has no zeros."""
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
        """Subtract usage from here to the root."""
        self._advance_path()
        for queue in self.lineage():
            subtract_into(queue.allocated, amount)
            queue.moved()

    def _advance_path(self) -> None:
        """Update usage over time from here to the root, if it is counted."""
        if self.tree.usage is not None:
            for queue in self._lineage:
                queue.advance_usage()

    def advance_usage(self) -> None:
        """Update usage over time before the usage changes, if it is counted."""
        clock = self.tree.usage
        if clock is not None:
            self.used = self.used or clock.row_of(self.path)
            clock.advance(self.used, self.allocated)

    def change_promise(self, before: ResourceView, after: ResourceView) -> None:
        """Change an admitted gang's outstanding members, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.promised, before)
            add_into(queue.promised, after)

    def change_preempting(self, before: ResourceView, after: ResourceView) -> None:
        """Change the amount of victims that have not ended, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.preempting, before)
            add_into(queue.preempting, after)

    def change_non_preemptible(self, before: ResourceView, after: ResourceView) -> None:
        """Change the non-preemptible usage, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.non_preemptible, before)
            add_into(queue.non_preemptible, after)

    def claim(self, amount: ResourceView) -> None:
        """Claim an amount for an ask that has preempted, from here to the root."""
        for queue in self.lineage():
            add_into(queue.reserved, amount)

    def release_claim(self, amount: ResourceView) -> None:
        """End a claim of an amount, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.reserved, amount)

    def add_pending(self, amount: ResourceView) -> None:
        """Add to the pending amount, from here to the root."""
        for queue in self._lineage:
            add_into(queue.pending, amount)
            queue.moved()

    def remove_pending(self, amount: ResourceView) -> None:
        """Subtract from the pending amount, from here to the root."""
        for queue in self._lineage:
            subtract_into(queue.pending, amount)
            queue.moved()

    def set_max(self, limit: Resource | None) -> None:
        """Set the queue's own max."""
        self.max_resource = limit
        self.forget_turns()

    # --- priority -------------------------------------------------------------------------------

    def change_priority(self: Self, before: int, after: int) -> None:
        """Move an application, or a child, from one priority to another (NO_PRIORITY: none)."""
        queue: Self | None = self
        while queue is not None and before != after:
            if after != NO_PRIORITY:
                queue.priorities.change(after, 1)
            if before != NO_PRIORITY:
                queue.priorities.change(before, -1)
            before, after = queue.current_priority, queue.shown(queue.priorities.highest)
            queue.current_priority = after
            queue.moved()
            queue = queue.parent

    def shown(self, priority: int) -> int:
        """Return how a priority inside the queue appears outside of it (NO_PRIORITY: none).

        Source: docs/rules/scheduling.md#priority.
        """
        if priority == NO_PRIORITY:
            return NO_PRIORITY
        settings = self.settings
        if settings.priority_fence:
            return settings.priority_offset
        return max(NO_PRIORITY, min(HIGHEST_PRIORITY, priority + settings.priority_offset))

    def configure(self, settings: QueueSettings) -> None:
        """Set the settings; the priority shown to siblings may change."""
        self.settings = settings
        self.forget_turns()
        before, after = self.current_priority, self.shown(self.priorities.highest)
        self.current_priority = after
        if self.parent is not None:
            self.parent.change_priority(before, after)

    # --- order ----------------------------------------------------------------------------------

    def moved(self: Self) -> None:
        """Record that the queue's sort key among its siblings may have changed."""
        if self.parent is not None:
            self.parent.turns.unordered[self] = None

    def next_changed(self: Self) -> None:
        """Say that another ask comes next here: a policy's own order may depend on it."""
        if self.tree.keys is not None:
            for queue in self.lineage():
                queue.moved()

    def forget_turns(self) -> None:
        """Record that a max, a guarantee or a setting changed."""
        self.tree.version += 1
        self.tree.promised += 1

    def rank_of_user(self, user: str) -> int:
        """Return a user's rank in a leaf ordered by usage over time."""
        clock = self.tree.usage
        if clock is None or self.settings.sort_policy != USAGE:
            return 0
        return clock.rank(clock.row_of(self.path, user), {})
