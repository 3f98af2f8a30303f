"""An application: its state, its asks and allocations, and the sums over them.

Rule 1: the state changes by ``fire`` alone, along the rows of the table in ``shared.model.states``.
Rule 2: ``allocated`` is the sum of the real allocations, ``allocated_placeholder`` that of the
        placeholders, ``pending`` that of the asks in ``groups``. An ask whose placeholder is being
        released for it is in ``replacing``, in none of the sums.
Rule 3: a group is entered in its leaf's bucket only while ``may_schedule`` lets it be. Until its
        gang is admitted as a whole it is entered in the leaf's ``to_admit`` instead, so that what
        refuses single asks of its shape does not keep the gang from being considered.
Source: contract sections 3.1, 3.3 and 6.3.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from services.core.scheduler.model.gates import EquivalenceClass, GangList, Gate, class_key
from services.core.scheduler.model.queue_settings import FAIR
from services.core.scheduler.model.queues import NO_PRIORITY, Queue
from services.core.scheduler.model.resource_history import History
from services.core.scheduler.model.shapes import Ask, AskGroup, GroupKey, Shape
from services.core.scheduler.model.successors import Successor
from services.core.scheduler.model.task_groups import Replacement, TaskGroupCount
from services.core.scheduler.model.users import Owner
from shared.messages.interface import (
    DEFAULT_PLACEHOLDER_TIMEOUT_MS,
    AddApplicationRequest,
    Allocation,
    GangSchedulingStyle,
    TerminationType,
)
from shared.model.numbers import parse_int64
from shared.model.reasons import Reason, Refusal
from shared.model.resources import (
    Resource,
    ResourceView,
    add_into,
    is_zero,
    multiply,
    subtract_into,
)
from shared.model.states import ApplicationEvent, ApplicationState, next_state
from shared.model.units import NANOS_PER_MILLI

if TYPE_CHECKING:
    from services.core.scheduler.model.covers import Cover
    from services.core.scheduler.model.reservations import Reservation

MAX_NOTES = 8  # sentences about an application; more say nothing new
CREATION_TIME_TAG = "yunikorn.apache.org/creationTime"
_SCHEDULING_STATES = (
    ApplicationState.ACCEPTED,
    ApplicationState.RUNNING,
    ApplicationState.COMPLETING,
)
_RESERVING_STATES = (ApplicationState.NEW, ApplicationState.ACCEPTED)


def _group_key(ask: Ask) -> GroupKey:
    request = ask.request
    group = request.task_group_name
    return ask.shape, request.priority, group, request.placeholder, ask.is_covered


@dataclass(eq=False, repr=False)
class Application:
    """One application in a leaf queue."""

    request: AddApplicationRequest
    queue: Queue
    sequence: int
    submission_time_ns: int
    state: ApplicationState = ApplicationState.NEW
    state_log: list[tuple[int, str]] = field(default_factory=list)
    state_messages: list[str] = field(default_factory=list)  # beside each of ``state_log``
    start_time_ns: int = 0
    finished_time_ns: int = 0
    message: str = ""
    groups: dict[GroupKey, AskGroup] = field(default_factory=dict)
    group_of: dict[str, AskGroup] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    placeholder_used: set[str] = field(default_factory=set)
    placed_ns: dict[str, int] = field(default_factory=dict)  # since when allocations run, by key
    history: History = field(default_factory=dict)  # of what it has used, when that ended
    notes: dict[tuple[str, str], None] = field(default_factory=dict)  # (reason, sentence)
    released: dict[str, str] = field(default_factory=dict)  # key -> why, until confirmed
    replacing: dict[str, Replacement] = field(default_factory=dict)  # by placeholder key
    positions: dict[str, int] = field(default_factory=dict)  # of allocations, when they were asks
    replacing_ask: dict[str, str] = field(default_factory=dict)  # ask key -> placeholder key
    covers: dict[str, "Cover"] = field(default_factory=dict)  # by ask key
    successors: dict[str, Successor] = field(default_factory=dict)  # by the key of who is moved
    covering: dict[str, str] = field(default_factory=dict)  # placeholder key -> ask key
    task_groups: dict[str, TaskGroupCount] = field(default_factory=dict)
    allocated: Resource = field(default_factory=dict)
    allocated_placeholder: Resource = field(default_factory=dict)
    max_allocated: Resource = field(default_factory=dict)
    pending: Resource = field(default_factory=dict)
    pending_placeholders: int = 0
    ask_priorities: dict[int, int] = field(default_factory=dict)
    starts_in_part: bool = False  # the whole gang need not fit for its placeholders to start
    starts_placed: bool = False  # every one of them must have a place on the nodes
    refused_needs: dict[Shape, int] | None = None  # what had no places, while it waits for them
    waiting_among: GangList | None = None
    is_gang_over: bool = False  # given up: it goes on without
    is_placeholder_wait_over: bool = False  # real asks have waited long enough for the first one
    gang_admitted: bool = False
    promise: Resource = field(default_factory=dict)
    trackers: Owner = ()  # of its user and, where a limit names one, its group
    owner: Owner | None = None  # the same, where any limit concerns them
    reservations: dict[str, "Reservation"] = field(default_factory=dict)  # by ask key
    parked_refusal: Refusal | None = None
    parked_since_ns: int = 0
    waits_in: EquivalenceClass | None = None  # with those who are refused alike
    trying_for: EquivalenceClass | None = None  # those for whom it is to be considered
    patience_due_ns: int = 0  # when it will have waited too long, if that is being watched
    backoff_until_ns: int = 0
    cannot_run: tuple[str, ...] = ()  # by whom people were told that it may not start yet
    succeeded: int = 0  # pods that ran to their end, and well
    stale_since_ns: int = 0  # since when a gang that ran is below its minimum; 0: it is not
    reservation_start_ns: int = 0
    execution_start_ns: int = 0  # when it ran first, in whichever core; 0: not yet
    timers: dict[str, tuple[str, int]] = field(default_factory=dict)  # id -> generation, due
    order: tuple[object, ...] = ()
    keys_before: "Callable[[Application], tuple[int, ...]] | None" = None  # those of plugins
    keys_follow_use: bool = False

    def __post_init__(self) -> None:
        self.reorder()

    @cached_property
    def id(self) -> str:
        """Return the application's id."""
        return self.request.application_id

    @cached_property
    def is_hard(self) -> bool:
        """Return whether a placeholder timeout fails the application; unknown styles are Soft."""
        return self.request.gang_scheduling_style == GangSchedulingStyle.HARD

    @cached_property
    def is_gang(self) -> bool:
        """Return whether the application reserves all its members before it starts."""
        return not is_zero(self.request.placeholder_ask)

    @property
    def max_priority(self) -> int:
        """Return the highest priority of the asks that wait; NO_PRIORITY when none does."""
        return max(self.ask_priorities, default=NO_PRIORITY)

    @property
    def may_schedule(self) -> bool:
        """Return whether the application's asks may be allocated in its present state."""
        return self.state in _SCHEDULING_STATES and self.parked_refusal is None

    @property
    def awaits_admission(self) -> bool:
        """Return whether placeholders are asked for that wait for the gang's admission."""
        return not self.gang_admitted and self.pending_placeholders > 0 and self.is_gang

    @property
    def awaits_placeholders(self) -> bool:
        """Return whether a gang was announced of which no placeholder has been asked for yet."""
        return (
            self.is_gang
            and not (self.task_groups or self.is_gang_over or self.is_placeholder_wait_over)
            and self.state in _RESERVING_STATES
        )

    @property
    def is_reserving(self) -> bool:
        """Return whether it has not run yet, nor has its gang been given up."""
        return not self.is_gang_over and self.state in _RESERVING_STATES

    @property
    def needs_places(self) -> bool:
        """Return whether all placeholders that wait must have a place before any is allocated."""
        return self.starts_placed and self.awaits_admission and self.is_reserving

    @property
    def waits_as_a_whole(self) -> bool:
        """Return whether its queue or the nodes lack room for the whole gang: no user's limit."""
        return self.waits_for_its_queue or self.is_parked_for(Reason.GANG_PLACES)

    @property
    def parked_at(self) -> Gate | None:
        """Return the gate at which the whole application waits, or None."""
        home = self.waits_in.home if self.waits_in is not None else None
        return home if isinstance(home, Gate) else None

    @property
    def waits_for_its_queue(self) -> bool:
        """Return whether a queue has not enough room for the whole gang: the limit of no user."""
        refusal = self.parked_refusal
        return (
            refusal is not None
            and refusal.reason is Reason.GANG_HEADROOM
            and any(queue.gate is self.parked_at for queue in self.queue.lineage())
        )

    @property
    def is_starting(self) -> bool:
        """Return whether it waits to start: it has nothing, nor is anything kept or promised."""
        return (
            self.state is ApplicationState.ACCEPTED
            and not self.allocations
            and not (self.gang_admitted and not self.is_gang_over)
            and not any(held.has_preempted for held in self.reservations.values())
        )

    @property
    def is_behind_overdue_gang(self) -> bool:
        """Return whether it may not start before a gang of its leaf that has waited too long."""
        gang = self.queue.overdue_gang
        return (
            gang is not None and gang is not self and self.order > gang.order and self.is_starting
        )

    @property
    def has_nothing(self) -> bool:
        """Return whether no real allocation and no ask is left, nor one being swapped in."""
        return is_zero(self.allocated) and is_zero(self.pending) and not self.replacing

    def placeholder_timeout_ms(self, now_ns: int) -> int:
        """Return how long the placeholders may be held, from now on.

        A creation time in the tags (contract section 3.3) has the time since then taken off, so
        that a resource manager without a better memory does not start the clock anew.
        """
        request = self.request
        timeout = request.placeholder_timeout_milli_seconds
        timeout = timeout if timeout > 0 else request.execution_timeout_milli_seconds
        timeout = timeout if timeout > 0 else DEFAULT_PLACEHOLDER_TIMEOUT_MS
        created = parse_int64(self.request.tags.get(CREATION_TIME_TAG, ""))
        if created is not None and created >= 0:
            elapsed_ms = now_ns // NANOS_PER_MILLI - created * 1000
            timeout = max(1, timeout - max(0, elapsed_ms))
        return timeout

    @property
    def execution_timeout_ms(self) -> int:
        """Return how long the application may run from its first start on; 0: for ever.

        Without a placeholder timeout of its own what is said is that one (contract section 3.3).
        """
        request = self.request
        is_own = request.placeholder_timeout_milli_seconds > 0
        return max(0, request.execution_timeout_milli_seconds) if is_own else 0

    def note(self, reason: str, message: str) -> bool:
        """Keep a sentence for the application's people; return whether it is a new one.

        The first MAX_NOTES stay; what the application waits for goes with its state.
        """
        key = (reason, message)
        if key in self.notes or len(self.notes) >= MAX_NOTES:
            return False
        self.notes[key] = None
        return True

    def fire(self, event: ApplicationEvent, now_ns: int, message: str = "") -> bool:
        """Move to the next state; return whether it differs. Raises IllegalTransitionError."""
        state = next_state(self.state, event)
        if state is self.state:
            return False
        self.state = state
        self.is_gang_over |= state is ApplicationState.RESUMING
        self.message = message
        for key in [key for key in self.notes if key[0] == Reason.APPLICATION_ENDING]:
            del self.notes[key]
        self.state_log.append((now_ns, state.value))
        self.state_messages.append(message)
        if state is ApplicationState.RUNNING and not self.start_time_ns:
            self.start_time_ns = now_ns
        return True

    # --- asks -----------------------------------------------------------------------------------

    def add_ask(self, ask: Ask) -> None:
        """Put an ask into its group and let it wait."""
        request = ask.request
        key = _group_key(ask)
        group = self.groups.get(key)
        if group is None:
            bucket = self.queue.bucket((ask.shape, self.owner))
            group = AskGroup(
                self, bucket, request.task_group_name, request.placeholder, ask.is_covered, key
            )
            self.groups[key] = group
            bucket.groups[group] = None
        self.join(group, ask)
        self.count_waiting(request.resource_per_alloc, request.priority, 1)
        self._was_there_at(request.create_time_ns)

    def join(self, group: AskGroup, ask: Ask) -> None:
        """Put an ask into a group; ``count_waiting`` is the caller's to call."""
        group.add(ask)
        self.group_of[ask.key] = group
        self.pending_placeholders += group.placeholder

    def count_waiting(self, amount: ResourceView, priority: int, times: int) -> None:
        """Count like asks in that wait, so many."""
        total = amount if times == 1 else multiply(amount, times)
        add_into(self.pending, total)
        self.queue.add_pending(total)
        self._count_priority(priority, times)

    def _was_there_at(self, created_ns: int) -> bool:
        """Have the submission be no later than what was created for it; return whether it moved.

        0 is not known. Source: contract section 6.3.
        """
        if not 0 < created_ns < self.submission_time_ns:
            return False
        self.submission_time_ns = created_ns
        self.reorder()
        return True

    def take_ask(self, key: str) -> Ask | None:
        """Take an ask out of its group, or return None when it does not wait."""
        group = self.group_of.pop(key, None)
        ask = group.remove(key) if group is not None else None
        if group is None or ask is None:
            return None
        request = ask.request
        self.pending_placeholders -= request.placeholder
        subtract_into(self.pending, request.resource_per_alloc)
        self.queue.remove_pending(request.resource_per_alloc)
        self._count_priority(request.priority, -1)
        if not group.asks:
            self._drop(group)
        return ask

    def set_covered(self, ask: Ask, *, is_covered: bool) -> None:
        """Let an ask wait with those that placeholders go for, or with its own kind again."""
        self.take_ask(ask.key)
        ask.is_covered = is_covered
        self.add_ask(ask)

    def _drop(self, group: AskGroup) -> None:
        group.bucket.withdraw(group)
        if group.refused is not None:
            group.refused[1].groups.pop(group, None)
        self.groups.pop(group.key)
        self._leave(group)

    def _leave(self, group: AskGroup) -> None:
        bucket = group.bucket
        bucket.groups.pop(group)
        bucket.untold.pop(group, None)
        bucket.told -= sum(ask.is_told for ask in group.asks.values())
        if not bucket.groups:
            self.queue.drop(bucket)

    def rejoin_buckets(self) -> bool:
        """Move every group to the bucket of the present owner; return whether any had to."""
        moved = False
        for (shape, *_), group in self.groups.items():
            bucket = self.queue.bucket((shape, self.owner))
            if bucket is not group.bucket:
                group.bucket.withdraw(group)
                self._leave(group)
                group.bucket = bucket
                bucket.groups[group] = None
                bucket.untold[group] = None
                bucket.told += sum(ask.is_told for ask in group.asks.values())
                moved = True
        return moved

    def asks(self) -> Iterator[Ask]:
        """Yield every ask that waits."""
        for group in self.groups.values():
            yield from group.asks.values()

    def _count_priority(self, priority: int, change: int) -> None:
        known = self.ask_priorities.get(priority, 0)
        count = known + change
        if known and count:
            self.ask_priorities[priority] = count
            return
        before = self.max_priority
        if count:
            self.ask_priorities[priority] = count
        else:
            self.ask_priorities.pop(priority, None)
        after = self.max_priority
        if before != after:
            self.queue.change_priority(before, after)
            self.reorder()

    # --- order and entry ------------------------------------------------------------------------

    def reorder(self) -> None:
        """Work out anew where the application stands among those of its leaf."""
        before = self.order
        priority = -self.max_priority
        if self.queue.settings.sort_policy == FAIR:
            shares = self._usage_shares()
            first: tuple[object, ...] = (
                (priority, shares) if self.queue.settings.priority_sorting else (shares, priority)
            )
        elif self.queue.settings.priority_sorting:
            first = (priority, self.submission_time_ns)
        else:
            first = (self.submission_time_ns, priority)
        if self.keys_before is not None:
            first = (*self.keys_before(self), *first)
        self.order = (*first, self.sequence)
        if self.order != before:
            self._find_place_in_class()
        if self.queue.overdue_gang is self and self.order != before:
            self.queue.open(self.queue.behind)

    def _find_place_in_class(self) -> None:
        """Have the first of those who are refused alike be the one that is tried for them."""
        if self.waits_in is not None:
            self.waits_in.add(self)
        for waiting in (self.waits_in, self.trying_for):
            if waiting is not None and waiting.tried is not None:
                waiting.requeue()

    def _usage_shares(self) -> tuple[float, ...]:
        """Return usage over the queue's guaranteed, largest first; raw where there is none."""
        guaranteed = self.queue.guaranteed_resource or {}
        used: Resource = dict(self.allocated)
        add_into(used, self.allocated_placeholder)
        shares = (
            value / guaranteed[name] if guaranteed.get(name, 0) > 0 else float(value)
            for name, value in used.items()
        )
        return tuple(sorted(shares, reverse=True))

    def enter(self) -> None:
        """Enter every group that may be scheduled now, and withdraw the others."""
        self._review_waiting()
        is_behind = self.is_parked_for(Reason.GANG_PATIENCE)
        for group in self.groups.values():
            if is_behind:
                self.queue.behind.push(group)
            elif not self.may_schedule or self.hold(group) is not None:
                group.bucket.withdraw(group)
            elif group.placeholder and self.awaits_admission:
                self.queue.to_admit.push(group)
                self.queue.open(self.queue.to_admit)
            else:
                self.queue.enter(group)

    def _review_waiting(self) -> None:
        """Stop waiting for what the application needs no more, and let others pass one that does.

        Asks that came or went, an allocation or another state may have changed that.
        """
        if not self.awaits_admission or self.state is not ApplicationState.ACCEPTED:
            self.queue.wait_no_more_for(self)
        if (
            (self._is_refused_as_a_whole and not self.awaits_admission)
            or (self.is_parked_for(Reason.GANG_PATIENCE) and not self.is_behind_overdue_gang)
            or (self.waiting_among is not None and not self._lacks_the_same_places())
            or (self.waits_in is not None and not self._is_like_others(self.waits_in.key))
        ):
            self._forget_refusal()

    @property
    def _is_refused_as_a_whole(self) -> bool:
        return self.is_parked_for(Reason.GANG_HEADROOM) or self.is_parked_for(Reason.PLUGIN)

    def _is_like_others(self, key: Hashable) -> bool:
        """Return whether whoever is tried for a class is still tried for this application."""
        return self.parked_refusal is not None and key == class_key(self, self.parked_refusal)

    def needs_of_the_whole(self) -> Hashable:
        """Return all that decides over the gang's admission, in the order in which it is tried."""
        announced = tuple(sorted(self.outstanding().items()))
        if not (self.starts_placed or self.starts_in_part):
            return announced
        groups = tuple(
            (group.bucket.shape, len(group.asks))
            for group in self.groups.values()
            if group.placeholder and group.asks
        )
        return announced, self.needs_places, groups

    def _lacks_the_same_places(self) -> bool:
        """Return whether a gang that the nodes have refused still asks for what they refused."""
        return self.needs_places and self.placeholder_needs() == self.refused_needs

    def placeholder_needs(self) -> dict[Shape, int]:
        """Return how many placeholders of each shape wait."""
        wanted: dict[Shape, int] = {}
        for (shape, *_), group in self.groups.items():
            if group.placeholder and group.asks:
                wanted[shape] = wanted.get(shape, 0) + len(group.asks)
        return wanted

    def requeue_rest(self, group: AskGroup) -> None:
        """Enter a group anew of which asks were placed, or drop it where it has none left."""
        if group.asks:
            self.queue.enter(group)
        else:
            self._drop(group)

    def requeue(self, group: AskGroup, order_before: tuple[object, ...]) -> None:
        """Enter a group anew after its head was taken; all of them if the order changed."""
        if self.order != order_before:
            self.enter()
        elif group.asks:
            self.queue.enter(group)

    def hold(self, group: AskGroup) -> Refusal | None:
        """Return why a group is held back by its own application, or None."""
        if group.refused is not None:
            return group.refused[0]
        if group.placeholder:
            return None
        if group.is_covered:
            return Refusal(
                Reason.AWAITING_REPLACEMENT,
                f"task group {group.task_group_name}: placeholders make way for larger pods, "
                f"{len(self.covering)} of the application have yet to go",
            )
        if self.pending_placeholders:
            return Refusal(
                Reason.GANG_PLACEHOLDERS_PENDING,
                f"{self.pending_placeholders} placeholders of the gang are not allocated yet",
            )
        if self.awaits_placeholders:
            return Refusal(
                Reason.GANG_PLACEHOLDERS_PENDING,
                "none of the placeholders of the gang has been asked for yet",
            )
        counts = self.task_groups.get(group.task_group_name)
        if counts is not None and not counts.is_used_up:
            if group.unplaced is not None:
                return group.unplaced
            left = counts.count - counts.replaced - counts.timedout
            return Refusal(
                Reason.AWAITING_REPLACEMENT,
                f"task group {group.task_group_name} has {left} placeholders left to replace",
            )
        return None

    def park(
        self, refusal: Refusal, now_ns: int, at: Gate | None, *, by_need: bool = False
    ) -> None:
        """Take the application out of its buckets until a gate opens, or nodes have places.

        Without either it waits for a time to come, or for a gang that is ahead of it. One that was
        tried for those like it and is refused again waits since it did before. ``by_need`` leaves a
        gang aside until all of it fits what the gate's queue has left.
        """
        self._leave_class()
        self.parked_refusal = refusal
        self.parked_since_ns = now_ns
        if at is not None:
            self.waits_in = at.class_of(self, refusal, by_need=by_need)
        elif self.waiting_among is not None:
            self.waits_in = self.waiting_among.class_of(self, refusal)
        if self.waits_in is not None:
            self.waits_in.add(self)
            if self.waits_in is self.trying_for:
                self.parked_since_ns = self.trying_for.tried_since_ns
        self.was_tried()
        self.enter()

    def unpark(self) -> None:
        """Let the application be considered again."""
        self._forget_refusal()
        self.enter()

    def was_tried(self) -> None:
        """Let those for whom the application was considered sleep, if it is back, or be next."""
        if self.trying_for is not None:
            self.trying_for.was_tried()

    def wait_no_more(self) -> None:
        """Leave those who wait: the application ends."""
        self._leave_class()
        self.was_tried()

    def _leave_class(self) -> None:
        waiting, self.waits_in = self.waits_in, None
        if waiting is not None:
            waiting.remove(self)

    def _forget_refusal(self) -> None:
        self._leave_class()
        if self.parked_refusal is not None:
            self.queue.root.reopened[self] = None
        self.parked_refusal = None
        if self.waiting_among is not None:
            self.waiting_among.remove(self)
        for reservation in self.reservations.values():
            reservation.retry()

    def is_parked_for(self, reason: Reason) -> bool:
        """Return whether a reason keeps the whole application out of its buckets."""
        return self.parked_refusal is not None and self.parked_refusal.reason is reason

    # --- the gang's promise ---------------------------------------------------------------------

    def admit(self) -> None:
        """Let the placeholders start, and keep the room for those not yet allocated."""
        self.gang_admitted = True
        self.keep_promise()
        self.enter()

    def outstanding(self) -> Resource:
        """Return what the gang was announced with, less the placeholders it holds."""
        held = self.allocated_placeholder
        return {
            name: value - held.get(name, 0)
            for name, value in self.request.placeholder_ask.items()
            if value > held.get(name, 0)
        }

    def keep_promise(self) -> None:
        """Bring the promise to what is outstanding; who reserves no more has none."""
        reserves = self.gang_admitted and not self.is_gang_over and self.state in _RESERVING_STATES
        after = self.outstanding() if reserves else {}
        before = self.promise
        if before == after:
            return
        self.queue.change_promise(before, after)
        for tracker in self.trackers:
            tracker.change_promise(self.queue, before, after)
        self.promise = after
        if not reserves:
            for gate in self.gates():
                gate.open()

    def gates(self) -> Iterator[Gate]:
        """Yield every gate at which the application's asks may wait."""
        for queue in self.queue.lineage():
            yield queue.gate
        for tracker in self.trackers:
            yield tracker.gate

    # --- allocations ----------------------------------------------------------------------------

    def add_allocation(self, allocation: Allocation) -> None:
        """Count an allocation in; the queue's ledger is the caller's to keep."""
        self.allocations[allocation.allocation_key] = allocation
        if allocation.placeholder:
            add_into(self.allocated_placeholder, allocation.resource_per_alloc)
            self.counts_of(allocation).held[allocation.allocation_key] = None
        else:
            add_into(self.allocated, allocation.resource_per_alloc)
        if self._was_there_at(allocation.create_time_ns):
            self.enter()
        self.usage_changed()

    def hold_allocation(self, allocation: Allocation, now_ns: int) -> None:
        """Hold an allocation that a run places; ``count_placed`` counts it in."""
        key = allocation.allocation_key
        self.allocations[key] = allocation
        self.placed_ns[key] = allocation.allocated_ns or now_ns
        if allocation.placeholder:
            self.counts_of(allocation).held[key] = None

    def count_placed(self, group: AskGroup, times: int) -> None:
        """Count so many asks of a group out that were placed; ``count_run`` knows the amounts."""
        if group.placeholder:
            self.pending_placeholders -= times
        self._count_priority(group.key[1], -times)

    def count_run(self, total: ResourceView, *, is_placeholder: bool) -> None:
        """Count as allocated what waited; the queue's sums know it."""
        subtract_into(self.pending, total)
        add_into(self.allocated_placeholder if is_placeholder else self.allocated, total)
        self.usage_changed()

    def count_size(self, allocation: Allocation, before: ResourceView) -> None:
        """Count an allocation anew that held another amount before."""
        self.allocations[allocation.allocation_key] = allocation
        ledger = self.allocated_placeholder if allocation.placeholder else self.allocated
        subtract_into(ledger, before)
        add_into(ledger, allocation.resource_per_alloc)
        self.usage_changed()

    def remove_allocation(self, key: str) -> Allocation | None:
        """Count an allocation out, or return None when there is none of that key."""
        allocation = self.allocations.pop(key, None)
        if allocation is None:
            return None
        self.released.pop(key, None)
        self.positions.pop(key, None)
        self.placeholder_used.discard(key)
        if allocation.placeholder:
            subtract_into(self.allocated_placeholder, allocation.resource_per_alloc)
            counts = self.counts_of(allocation)
            counts.held.pop(key, None)
            counts.unclaimed.pop(key, None)
        else:
            subtract_into(self.allocated, allocation.resource_per_alloc)
        self.usage_changed()
        return allocation

    def moves(self, key: str) -> bool:
        """Return whether an allocation is going so that another comes elsewhere in its stead."""
        successor = self.successors.get(key)
        return successor is not None and not successor.until_ns

    def mark_released(self, key: str, why: str) -> None:
        """Write down that a release was decided, so that it is decided once."""
        self.released[key] = why
        allocation = self.allocations[key]
        if allocation.placeholder:
            counts = self.counts_of(allocation)
            counts.held.pop(key, None)
            if why != TerminationType.PREEMPTED_BY_SCHEDULER:
                counts.unclaimed[key] = None

    def counts_of(self, item: Allocation) -> TaskGroupCount:
        """Return the counts of an allocation's task group."""
        return self.task_groups.setdefault(item.task_group_name, TaskGroupCount())

    def count_dropped(self, task_group_name: str) -> None:
        """Count a placeholder that was asked for and will never be allocated as timed out."""
        self.task_groups[task_group_name].timedout += 1

    def count_placeholder(self, task_group_name: str, resource: ResourceView) -> None:
        """Count a placeholder that is asked for, or that exists already."""
        counts = self.task_groups.setdefault(task_group_name, TaskGroupCount())
        counts.count += 1
        counts.min_resource = dict(resource)

    def usage_changed(self) -> None:
        """Note what was used at most, and find the place that the present use gives.

        What it has decides whether it may start: one that waits is not like others any more.
        """
        for name, value in self.allocated.items():
            if value > self.max_allocated.get(name, 0):
                self.max_allocated[name] = value
        if self.queue.settings.sort_policy == FAIR or self.keys_follow_use:
            self.reorder()
            self.enter()
        if self.waits_in is not None:
            self.unpark()
