"""Preemption by YuniKorn's rules: queues below their guarantee take from queues over theirs.

Rule 1: an ask preempts once, when it is as old as its queue's ``preemption.delay``, with at least
        CHECK_AGAIN_NS between tries, if it may preempt, has no required node, and its queue's
        guarantee covers it.
Rule 2: victims are in other leaves below the fence: the nearest queue above the ask with ``fence``,
        or that the ask would take over its max, or the root. Leaves that disable preemption or are
        within their guarantee have no victims; no victim takes a queue below its guarantee.
Rule 3: a victim has no higher priority than the ask, offsets and fences applied, no required node,
        and a type in common. Ordinary ones come before originators, those that opted out last,
        newer before older. After their end the ask fits one node and the queues, and none of them
        is unnecessary.
Rule 4: the freed capacity is claimed for the ask until it starts or ends, on the node and in its
        queues.
Source: docs/rules/preemption.md; cases X-01 to X-16.
Limit: MAX_ATTEMPTS asks of a leaf in one pass; as many more are logged as not tried. The result of
a try is in the ask's allocation log.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Self

from services.core.scheduler.actions import freed_nodes, live_actions, starvation_guard
from services.core.scheduler.actions.gang_places import members
from services.core.scheduler.actions.live_actions import SearchPolicy
from services.core.scheduler.actions.preemption_checks import CHECK_DELAY_NS, has_guarantee, is_due
from services.core.scheduler.actions.victims import evict_for
from services.core.scheduler.constraints.guarantees import is_within, left
from services.core.scheduler.model.preemptors import (
    CHECK_AGAIN_NS,
    Preemptors,
    due_at,
    may_ever,
)
from services.core.scheduler.model.rows import Application, AskGroup, Node, Queue, depth_first
from services.core.scheduler.model.search_pass import MAX_PIECES, SearchPass
from services.core.scheduler.model.settings import CONSOLIDATION, KAI, PREEMPT, YUNIKORN
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.victim_kinds import Victim
from services.core.scheduler.ordering import queueing
from services.core.scheduler.policies import kai
from services.core.scheduler.policies.gang_preemption import cheapest_way, would_be_whole
from services.core.scheduler.policies.preemption_choice import NoChoice, choose_victims
from services.core.scheduler.policies.preemption_victims import Eligible, eligible
from services.core.scheduler.statement import allocation_log
from services.core.scheduler.statement.allocation_log import note
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.statement import Statement
from services.core.scheduler.statement.tentative import PREEMPTING, RESERVED, Tentative
from shared.model.reasons import EvictionCause
from shared.model.resources import ResourceView, multiply

MAX_ATTEMPTS = 10
_TEXTS = {
    NoChoice.NO_NODE: "",  # not logged
    NoChoice.NO_HELP: allocation_log.NO_HELP,
    NoChoice.SHORTFALL: allocation_log.SHORTFALL,
}
Alike = tuple[Queue, Shape, int, Application | None, Ask | None]
SEARCH_POLICIES: dict[str, SearchPolicy] = {YUNIKORN: kai, KAI: kai}  # shared by both policies
REASON = "preempting allocations to free up resources to run ask: "


def begin_pass(partition: Partition) -> None:
    """Begin a pass over the actions; if one is still running, another follows it."""
    partition.preemption_due_ns = 0
    partition.end_claims_for_moved()
    partition.find_stuck()
    partition.let_grow()
    if partition.searches is not None:
        partition.searches.is_asked_for = True
    elif partition.preemption_enabled:
        partition.begin_searches()
        go_on(partition)


def go_on(partition: Partition) -> None:
    """Run the actions in order, with YuniKorn's preemption among them; schedule the next pass.

    A pass that reaches its limit continues in the next call.
    """
    so_far, settings = partition.searches, partition.settings
    if so_far is None:
        return
    freed_nodes.requeue_all(partition)  # asks that fit now need no victims
    partition.requeue_gangs(is_all=True)
    is_yunikorn = settings.policy == YUNIKORN
    groups = groupby(settings.actions, lambda name: is_yunikorn and name == PREEMPT)
    so_far.pieces += 1
    for is_ours, names in [(is_ours, tuple(names)) for is_ours, names in groups][so_far.group :]:
        if not partition.preemption_enabled or so_far.pieces > MAX_PIECES:
            break
        if is_ours:
            _preempt(partition)
        else:
            live_actions.run(partition, names, SEARCH_POLICIES[settings.policy], so_far)
            if so_far.is_cut:
                return
        so_far.next_group()
    partition.end_searches()
    if partition.preemption_enabled:
        _schedule_next(partition, so_far)


def finish(partition: Partition) -> None:
    """Complete a pass at once, for a what-if."""
    while partition.searches is not None:
        go_on(partition)


def _schedule_next(partition: Partition, so_far: SearchPass) -> None:
    """Schedule the next pass."""
    settings = partition.settings
    partition.check_stale_gangs()
    is_tried_again = settings.policy != YUNIKORN or CONSOLIDATION in settings.actions
    if (is_tried_again and partition.root.pending) or live_actions.may_shrink(partition):
        partition.check_preemption_at(partition.now_ns + CHECK_AGAIN_NS)
    if so_far.is_asked_for:
        partition.check_preemption_at(partition.now_ns + CHECK_DELAY_NS)


def _preempt(partition: Partition) -> None:
    """Let the asks that are due preempt, leaf by leaf."""
    with Search(partition) as search:
        for leaf in [queue for queue in depth_first(partition.root) if queue.is_leaf]:
            if has_guarantee(leaf):
                partition.victims.start(partition.applications.values())
                _try_leaf(search, leaf)
            else:
                _note_unguaranteed(partition, leaf)


def _note_unguaranteed(partition: Partition, leaf: Queue) -> None:
    """Log for due asks that their queues have no guarantee.

    For asks that were tried themselves, once each, at most MAX_ATTEMPTS of a leaf. The rest, and
    later ones, follow after CHECK_DELAY_NS at the earliest.
    """
    attempts = 0
    next_ns: list[int] = []
    for group in _waiting(leaf):
        ask = group.head()
        if ask is None or not ask.log or allocation_log.GUARANTEES in ask.log:
            continue
        if is_due(partition, leaf, ask) and attempts < MAX_ATTEMPTS:
            note(partition, group.application, ask, allocation_log.GUARANTEES)
            attempts += 1
        elif may_ever(ask):
            next_ns.append(due_at(ask, leaf.settings.preemption_delay_ns))
    if next_ns and partition.has_readers:
        partition.check_preemption_at(max(min(next_ns), partition.now_ns + CHECK_DELAY_NS))


def _try_leaf(search: "Search", leaf: Queue) -> None:
    """Let at most MAX_ATTEMPTS asks of a leaf preempt; as many more are logged as not tried.

    Of equal asks only the first is tried until one preempts: they get the same result.
    """
    partition = search.partition
    _admit_entitled_gangs(search, leaf)
    attempts = 0
    for group in _waiting(leaf):
        turns = _preemptors(partition, leaf, group)
        asks = turns.take(partition.now_ns, 2 * MAX_ATTEMPTS - attempts)
        for ask in asks:
            attempts += 1
            _attempt(search, group.application, ask, attempts)
        turns.put_back(asks, partition.now_ns)
        if attempts == 2 * MAX_ATTEMPTS:
            return
        if turns.next_ns is not None:
            partition.check_preemption_at(turns.next_ns)


def _attempt(search: "Search", application: Application, ask: Ask, number: int) -> None:
    """Let an ask preempt, or log that too many were tried before."""
    partition = search.partition
    if number > MAX_ATTEMPTS:
        partition.check_preemption_at(partition.now_ns + CHECK_DELAY_NS)
        note(partition, application, ask, allocation_log.EXHAUSTED)
        return
    partition.set(ask, preemption_checked_ns=partition.now_ns)
    if not search.preempt_for(application, ask):
        partition.check_preemption_at(partition.now_ns + CHECK_AGAIN_NS)


def _preemptors(partition: Partition, leaf: Queue, group: AskGroup) -> Preemptors:
    """Return the asks of a group that may preempt, up to date."""
    delay_ns = leaf.settings.preemption_delay_ns
    if group.preemptors is None or group.preemptors.delay_ns != delay_ns:
        group.preemptors = Preemptors(group.asks, delay_ns)
    group.preemptors.follow(partition.now_ns)
    return group.preemptors


def _admit_entitled_gangs(search: "Search", leaf: Queue) -> None:
    """Admit gangs that wait as a whole and whose guarantees cover all limited types.

    Their members then preempt one by one. A type with a max but no guarantee is not covered:
    nothing would be evicted for it, and the gang would hold a part forever. The same is true
    without enough places, on the nodes or by victims.
    """
    partition, are_whole = search.partition, dict[object, bool]()
    for application in _due_gangs(partition, leaf):
        if application.is_restarting or application.has_topology:
            _preempt_as_a_whole(search, application)
            are_whole.clear()
        else:
            alike = _needs(partition, application)
            if alike not in are_whole:
                in_part = application.starts_in_part
                are_whole[alike] = in_part or would_be_whole(search.trial, application)
            if are_whole[alike]:
                are_whole.clear()
                partition.admit(application)
                queueing.activate(application)
                starvation_guard.watch(partition, application)
            else:
                partition.check_preemption_at(partition.now_ns + CHECK_AGAIN_NS)


def _due_gangs(partition: Partition, leaf: Queue) -> Iterator[Application]:
    """Yield the gangs of a leaf that have waited for its delay, and are covered by guarantees."""
    for application in list(leaf.applications.values()):
        is_waiting = application.refusal is not None and application.waits_as_a_whole
        if not is_waiting or application.is_behind_starved_gang:
            continue
        due_ns = application.refused_since_ns + leaf.settings.preemption_delay_ns
        if due_ns > partition.now_ns:
            partition.check_preemption_at(due_ns)
        elif _may_be_let_start(partition, application):
            yield application


def _preempt_as_a_whole(search: "Search", application: Application) -> None:
    """Evict victims for all members of a gang that starts as a whole, or none.

    Only for its minimum. Each member gets a reservation, with or without victims. If one is lost,
    the others are given up, and all is tried again later.
    """
    partition = search.partition
    if application.tree is not None and not application.missing:
        return  # it is above its minimum
    kept = [claim for claim in application.reservations.values() if claim.has_preempted]
    if kept:
        if len(kept) < sum(count for _, count in application.to_start()):
            for claim in kept:
                partition.unreserve(claim)
            partition.check_preemption_at(partition.now_ns + CHECK_AGAIN_NS)
        return
    with partition.timings.preemption:
        way = cheapest_way(search.trial, application)
    gone = [victim.allocation for _, _, victims in way.places for victim in victims] if way else []
    if way is None or not gone or not partition.agree(PREEMPT, gone, application):
        partition.check_preemption_at(partition.now_ns + CHECK_AGAIN_NS)
        return
    for ask, node, victims in way.places:
        search.take(application, ask, node, victims)
    queueing.find_class_again(application)


def _may_be_let_start(partition: Partition, application: Application) -> bool:
    """Whether guarantees cover a gang, and no plugin refuses it.

    For a gang that starts in part one member must be covered.
    """
    groups = members(application) if application.starts_in_part else []
    gang = groups[0].bucket.shape.resource if groups else application.outstanding()
    return (
        _is_owed(partition, application.queue, gang)
        and partition.no_capacity(application, gang) is None
    )


def _needs(partition: Partition, application: Application) -> object:
    """Key of gangs of a leaf that get the same result.

    Plugins decide for each application separately.
    """
    judged = application if partition.hooks is not None else None
    return judged, *(
        (group.bucket.shape, len(group.asks), head.request.priority, may_ever(head))
        for group in members(application)
        if (head := group.head()) is not None
    )


def _is_owed(partition: Partition, leaf: Queue, gang: ResourceView) -> bool:
    """Whether a leaf's guarantees cover a gang, in all types limited there.

    Outstanding members of admitted gangs count as used.
    """
    limited = [name for name in leaf.configured_max() if gang.get(name, 0) > 0]
    with Tentative(partition.nodes) as trial:
        for level in leaf.lineage():
            trial.count((level,), RESERVED, dict(level.promised))
        trial.count(leaf.lineage(), RESERVED, gang)
        owed = left(leaf, leaf) or {}
        return is_within(leaf, gang) and all(name in owed for name in limited)


def _waiting(leaf: Queue) -> Iterator[AskGroup]:
    """Yield the groups of a leaf blocked by a queue or by nodes, in order."""
    groups = [
        group
        for bucket in leaf.buckets.values()
        if bucket.refusal is not None and not bucket.is_blocked_by_user
        for group in bucket.groups
        if group.asks and group.application.may_schedule
    ]
    for group in sorted(groups, key=lambda group: group.application.order):
        application = group.application
        if queueing.hold(application, group) is None and not application.is_behind_starved_gang:
            yield group


class Search:
    """One pass of asks that search for victims, on one open statement.

    A refusal of one ask applies to all equal ones, until one preempts.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._trial: Statement | None = None
        self._refused: dict[Alike, str] = {}  # the text for the allocation log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._trial is not None:
            self._trial.discard()

    @property
    def trial(self) -> Statement:
        """Return the open statement."""
        if self._trial is None:
            self._trial = Statement(self.partition, alone=True)
        return self._trial

    def preempt_for(self, application: Application, ask: Ask) -> bool:
        """Release victims for an ask and claim their capacity; return False without any."""
        partition = self.partition
        alike = _alike(partition, application, ask)
        text = self._refused.get(alike)
        if text is None:
            with partition.timings.preemption:
                found = _find(self.trial, application, ask)
            if not isinstance(found, str):
                self.take(application, ask, *found)
                return True
            text = self._refused[alike] = found
        if text:
            note(partition, application, ask, text)
        return False

    def take(self, application: Application, ask: Ask, node: Node, victims: list[Victim]) -> None:
        """Release victims for an ask, and claim their capacity."""
        self._refused.clear()
        partition, taken = self.partition, [victim.allocation for victim in victims]
        evict_for(
            partition, taken, application, ask, f"{REASON}{ask.key}", cause=EvictionCause.GUARANTEE
        )
        partition.claim_freed_room(application, ask, node)


def _alike(partition: Partition, application: Application, ask: Ask) -> Alike:
    """Key of asks that get the same result.

    An ask with a reservation may preempt on its node, others may not; applications of a barred pair
    may not evict each other; and plugins decide for each application separately.
    """
    own = ask if ask.key in application.reservations else None
    judged = bool(partition.evictions.held_until_ns) or partition.hooks is not None
    held = application if judged else None
    return (application.queue, ask.shape, ask.request.priority, held, own)


def _find(trial: Statement, application: Application, ask: Ask) -> tuple[Node, list[Victim]] | str:
    """Return the node and the victims for an ask, or the text for its allocation log."""
    partition, leaf = trial.partition, application.queue
    if partition.no_capacity(application, ask.shape.resource) is not None:
        return ""
    spared = partition.evictions.spared(application.id, partition.now_ns)
    victims = eligible(partition, leaf, ask, spared)
    if not guarantees_hold(trial, leaf, ask, victims):
        return allocation_log.GUARANTEES
    found = choose_victims(trial, leaf, ask, victims)
    if isinstance(found, NoChoice):
        return _TEXTS[found]
    taken = [victim.allocation for victim in found[1]]
    return found if partition.agree(PREEMPT, taken, application) else ""


def guarantees_hold(trial: Statement, leaf: Queue, ask: Ask, victims: Eligible) -> bool:
    """Whether the guarantees cover an ask, if necessary without the victims."""
    start = trial.checkpoint()
    holds = _guarantees_hold(trial, leaf, ask.shape.resource, victims)
    trial.rollback(start)
    return holds


def _guarantees_hold(
    trial: Statement, leaf: Queue, wanted: ResourceView, victims: Eligible
) -> bool:
    trial.count(leaf.lineage(), RESERVED, wanted)
    if is_within(leaf, wanted):
        return True
    for kind in victims.kinds:
        trial.count(kind.leaf.lineage(), PREEMPTING, multiply(kind.amount, kind.count))
    for name in victims.spared:
        _spare(trial, trial.partition.applications.get(name), victims)
    return is_within(leaf, wanted)


def _spare(trial: Statement, application: Application | None, victims: Eligible) -> None:
    """Count an application's allocations again that may not be evicted."""
    if application is None:
        return
    for allocation in application.allocations.values():
        if trial.partition.victims.kind_of(application, allocation) in victims.kinds:
            amount = allocation.resource_per_alloc
            trial.count(application.queue.lineage(), PREEMPTING, amount, -1)
