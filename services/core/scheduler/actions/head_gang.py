"""The head gang: the first waiting gang that needs more than one node claims nodes (EASY).

Rule 1: with ``reservations: gang`` there is one head gang: of those that lack places, need more
        than one node and fit on empty ones, the one with the highest priority, then the oldest. It
        stays so until it starts or ends. Its claims are the only ones for age, and no application
        of its queue waits behind it for places (``starvation_guard.py``).
Rule 2: it claims the nodes that are expected to be free soonest. They are chosen again when one of
        them changes, another is expected sooner, or a pod outlives its expected end
        (``model/run_times.py``; a pod without one ends last). A gang that must be in one domain
        claims the domain that is free soonest. If ends are predicted, nodes that are empty, or
        whose only pod frees a member's capacity, come first: of many pods one outlives its
        prediction, and the rest of the node would be idle.
Rule 3: it is tried, on all nodes, as soon as its nodes have the capacity.
Rule 4: other asks use claimed nodes only by ``backfill``: asks with a stated run time that come
        before the gang or end before its expected start, and asks that need no more than the gang
        leaves (EASY, Lifka 1995). If all ends are stated, of the nodes free in time the last ones
        are claimed, so that long asks may use the others. With ``enabled`` and ``shortestFirst``
        asks without a stated time may backfill if they are predicted to end before the start and no
        other node fits. Coming before the gang is no reason for them: with several queues nearly
        all waiting asks do.
Rule 5: with ``backfill: shortestFirst`` asks behind the gang are tried in the order of run times,
        in leaves ordered by arrival: predicted ones, but at most the stated. What may backfill, and
        what is reported, follows the stated times (Tsafrir et al. 2007).
Rule 6: so the expected start moves later only if a pod runs longer than stated or predicted, or a
        node is removed.
Rule 7: nodes are claimed on predicted ends only while the allowance for idle capacity lasts
        (``model/idle_allowance.py``), and only if it is enough for the expected idle time. Without
        it no nodes are claimed.
Rule 8: a gang that has waited for LONG_WAIT_NS has an allowance of its own. As in rule 4 the last
        nodes that are free in time are claimed, stated ends or not. If no ask waiting for nodes
        comes before it, asks without a stated time may backfill by prediction with ``backfill:
        stated`` too.

A gang whose members have pod affinities or a required node is never the head gang, because sums of
capacity do not tell where these fit.
Source: docs/adr/0060, 0136, 0141. Limits: MAX_PER_NODE members are counted on one node.
Cost: a check reads the changed nodes; choosing again is one partition of an array.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from services.core.scheduler.actions.domain_places import in_one_domain
from services.core.scheduler.actions.expected_room import ends, fits_times, is_stated, rooms
from services.core.scheduler.actions.gang_places import amount, could_be_held
from services.core.scheduler.model.head_gang import HeadGang, Moments
from services.core.scheduler.model.reservations import rank_of, rank_of_gang
from services.core.scheduler.model.rows import (
    BY_ASK,
    BY_HEAD_GANG,
    Application,
    AskGroup,
    Bucket,
    Members,
    Node,
    Queue,
)
from services.core.scheduler.model.run_times import NEVER_NS
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import Amounts, When
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.ordering import queueing
from services.core.scheduler.place.domain_capacity import capacity_of
from services.core.scheduler.statement.journal import ApplicationChanged
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.tentative import Tentative
from shared.messages.interface import Allocation
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.reasons import Fact, HeldNodes, Kind, Reason
from shared.model.resources import (
    MEMORY,
    VCORE,
    Resource,
    add_into,
    fits_room,
    multiply,
    subtract_into,
)
from shared.model.units import seconds

MAX_NAMED = 3  # nodes named to users; the others are counted
LATER_NS = NEVER_NS // 2  # beyond all times: added to sort a node after all others
MEASURES = (GPU, VCORE, MEMORY)  # idle capacity is measured by the first requested of these
LONG_WAIT_NS = seconds(12 * 3_600)  # waiting time after which rule 8 applies
MAX_PER_NODE = 64  # members of a gang counted on one node; more are not expected there


# --- the choice of the head gang ----------------------------------------------------------------


def consider(partition: Partition, application: Application, lacking: Mapping[Shape, int]) -> None:
    """Make a gang that was just refused for lack of places the head gang, if it is first."""
    if not partition.settings.reserves_for_gang or not lacking:
        return
    if _comes_first(partition, application):
        _make_head(partition, application)


def _comes_first(partition: Partition, application: Application) -> bool:
    """Whether a refused gang becomes the head gang, possibly instead of another."""
    head_gang = partition.head_gang
    is_taken = head_gang is not None and (
        head_gang.application is application
        or head_gang.since_ns < partition.now_ns
        or head_gang.rank < rank_of_gang(application)
    )
    return not is_taken and _is_eligible(partition, application)


def _make_head(partition: Partition, application: Application) -> None:
    """Make a gang the head gang; it inherits the last one's claims until its nodes are chosen."""
    last = partition.head_gang
    for claim in list(last.claims.values()) if last is not None else ():
        partition.claims.inherit(claim, application)
    needs = application.placeholder_needs()
    head_gang = HeadGang(application, partition.now_ns, needs, rank_of_gang(application))
    partition.set_head_gang(head_gang)
    _size_allowance(partition, head_gang)
    _recheck(partition, head_gang)
    if last is not None and last.rank < head_gang.rank:  # more asks come before the new gang
        _requeue_for(partition, head_gang.nodes)


def _size_allowance(partition: Partition, head_gang: HeadGang) -> None:
    """Set the type by which idle capacity is measured: the gang's first of MEASURES, else any."""
    nodes, allowance = partition.nodes, partition.idle_allowance
    asked = {
        name for shape in head_gang.needs for name in shape.wanted if nodes.total.get(name, 0) > 0
    }
    name = next((name for name in (*MEASURES, *sorted(asked)) if name in asked), "")
    share = partition.settings.idle_share(nodes.columns.schedulable_count())
    allowance.configure(name, nodes.total.get(name, 0), share)


def _is_eligible(partition: Partition, application: Application) -> bool:
    """Whether a gang needs more than one node, and fits on empty ones."""
    needs, nodes = application.placeholder_needs(), partition.nodes
    if not application.needs_places or any(
        shape.constraints.asks_about_pods or shape.constraints.required_node for shape in needs
    ):
        return False
    if any(GPU_SHARE in shape.resource for shape in needs):  # device shares do not fit by sums
        fits_one = all(
            int(nodes.room.places(shape, when=When.EMPTY).max(initial=0)) >= count
            for shape, count in needs.items()
        )
    else:
        whole = amount(application)
        fits_one = any(
            nodes.filters.could_hold.mask(Shape("", whole, shape.constraints)).any()
            for shape in needs
        )
    return not fits_one and could_be_held(nodes, application) and _fits_a_domain(nodes, application)


def _fits_a_domain(nodes: NodeTable, application: Application) -> bool:
    """Whether a domain of the gang's required level could fit it when empty."""
    part = in_one_domain(application)
    if part is None:
        return True
    resolved = nodes.domains.resolve(part.topology)
    if isinstance(resolved, str):
        return False
    left = np.ones(len(resolved.tree.paths[resolved.required]), dtype=np.bool_)
    for shape, count in application.placeholder_needs().items():
        capacity = capacity_of(resolved, nodes.room.places(shape, when=When.EMPTY))
        left &= capacity.whole[resolved.required] >= count
    return bool(left.any()) or bool(nodes.domains.gangs[application.id].members(part))


def choose_again(partition: Partition) -> None:
    """Choose a head gang, if there is none, after the nodes' capacity changed.

    Called before a cycle: the waiting gangs may have been too large before.
    """
    settings = partition.settings
    if partition.is_capacity_new and settings.reserves_for_gang and partition.head_gang is None:
        _choose(partition)


def _choose(partition: Partition) -> None:
    """Make the first eligible waiting gang the head gang, or none."""
    first = partition.waiting_gangs.first(
        partition.nodes.columns.facts,
        lambda application: (
            application.is_refused_for(Reason.GANG_PLACES) and _is_eligible(partition, application)
        ),
    )
    if first is not None:
        _make_head(partition, first)
    elif partition.head_gang is not None:
        head_gang = partition.head_gang
        partition.idle_allowance.pass_time(partition.now_ns)
        partition.set_head_gang(None)
        partition.nodes.backfill_window.backfill_ns = (
            partition.nodes.backfill_window.predicted_ns
        ) = 0
        _requeue_for(partition, _hold(partition, head_gang, {}))


# --- the cycle ----------------------------------------------------------------------------------


def update(partition: Partition) -> None:
    """Update the head gang's claims; requeue the gang when its nodes have the capacity."""
    head_gang = partition.head_gang
    while head_gang is not None and not _still_waits(partition, head_gang):
        _choose(partition)
        head_gang = partition.head_gang
    if head_gang is None:
        return
    _recheck(partition, head_gang)
    _set_claimed(partition, head_gang)
    is_due = (
        0 < head_gang.start_ns <= partition.now_ns
        and head_gang.tried != partition.nodes.order.changes
    )
    if is_due and head_gang.application.refusal is not None:
        queueing.activate(head_gang.application)


def _set_claimed(partition: Partition, head_gang: HeadGang) -> None:
    """Set in the gang's refusal which nodes are claimed, since when and until when."""
    refusal = head_gang.application.refusal
    if refusal is None:
        return
    names = tuple(node.node_id for node in islice(head_gang.nodes, MAX_NAMED))
    held = HeldNodes(
        names,
        max(len(head_gang.nodes) - MAX_NAMED, 0),
        head_gang.since_ns,
        head_gang.reported_start_ns,
    )
    fact = refusal.fact or Fact(Kind.PLACES)
    if fact.held != held:
        partition.set(
            head_gang.application, refusal=replace(refusal, fact=replace(fact, held=held))
        )
        partition.journal.record(ApplicationChanged(head_gang.application))


def is_behind(partition: Partition, application: Application, ask: Ask) -> bool:
    """Whether an ask with a stated run time comes before the head gang (EASY)."""
    head_gang = partition.head_gang
    return (
        head_gang is not None
        and partition.settings.backfill
        and ask.shape.run_ns > 0
        and rank_of(application.queue, ask) < head_gang.rank
    )


def first_group(partition: Partition, leaf: Queue) -> AskGroup | None:
    """Return the leaf's group to try next (rule 5), or None."""
    entry = leaf.first_group()
    head_gang = partition.head_gang
    if (
        entry is None
        or head_gang is None
        or 0 < head_gang.start_ns <= partition.now_ns
        or not partition.settings.shortest_first
        or not leaf.settings.goes_by_arrival
    ):
        return entry[1] if entry is not None else None
    group, head = entry[1], entry[1].head()
    if (
        head is None
        or group.application is head_gang.application
        or rank_of(leaf, head) < head_gang.rank
    ):
        return group
    return leaf.shortest_group()


def open_claims(partition: Partition, application: Application, log: Tentative) -> bool:
    """Open the head gang's nodes to the gang itself for a try; return whether it is the head."""
    head_gang = partition.head_gang
    if head_gang is None or head_gang.application is not application:
        return False
    for claim in head_gang.claims.values():
        log.open(claim)
    return True


def was_tried(partition: Partition, application: Application, *, is_own: bool) -> None:
    """Update the claims after the head gang was tried.

    If not ``is_own``, it became the head gang during the try, refused because of another's claims;
    it is then tried again before all others.
    """
    head_gang = partition.head_gang
    if head_gang is None or head_gang.application is not application:
        return
    if _still_waits(partition, head_gang):
        _recheck(partition, head_gang)
        if is_own:
            head_gang.was_tried(partition.nodes.order.changes)
    else:
        _choose(partition)


def _still_waits(partition: Partition, head_gang: HeadGang) -> bool:
    application = head_gang.application
    return (
        partition.applications.get(application.id) is application
        and application.needs_places
        and (application.refusal is None or application.is_refused_for(Reason.GANG_PLACES))
        and application.placeholder_needs() == head_gang.needs
    )


# --- which nodes --------------------------------------------------------------------------------


def _recheck(partition: Partition, head_gang: HeadGang) -> None:
    """Update the changed nodes, and choose nodes again if that may matter.

    Asks that may use claimed nodes now are requeued.
    """
    nodes, now_ns = partition.nodes, partition.now_ns
    partition.idle_allowance.pass_time(now_ns)
    improved: dict[Node, None] = {}
    window = nodes.backfill_window
    longest_ns = window.backfill_ns + window.predicted_ns
    news = _newly_blocked(partition, head_gang)
    had_waited_long = head_gang.waited_long
    head_gang.waited_long = _has_waited_long(partition, head_gang)
    changed = (
        nodes.order.changed_since(head_gang.seen)
        if head_gang.facts == nodes.columns.facts
        else None
    )
    if changed is None:
        _count_all(partition, head_gang)
        is_other = True
    else:
        late = np.flatnonzero(head_gang.next_end_ns <= now_ns).tolist()
        found = dict.fromkeys([*changed, *(nodes.rows[row] for row in late)])
        is_other = head_gang.waited_long != had_waited_long
        is_other |= (
            not head_gang.is_known and head_gang.planned_ns < now_ns
        )  # its idle cost has changed
        for node in found:
            is_other |= _count(partition, head_gang, node) or node.is_held
    head_gang.seen = nodes.order.changes
    if is_other:
        improved = _plan(partition, head_gang)
        head_gang.seen = nodes.order.changes
    is_promised = head_gang.start_ns and not _is_an_ask_before(partition, head_gang, news)
    head_gang.reported_start_ns = head_gang.start_ns if is_promised else 0
    may_pass = partition.settings.backfill and is_promised
    window.backfill_ns = max(0, head_gang.start_ns - now_ns) if may_pass else 0
    is_passed = _is_passed_by_predictions(partition, head_gang, news)
    window.predicted_ns = window.backfill_ns if is_passed else 0
    if window.backfill_ns + window.predicted_ns > longest_ns:
        improved.update(dict.fromkeys(head_gang.nodes))
    _requeue_for(partition, improved)


def _requeue_for(partition: Partition, nodes: Iterable[Node]) -> None:
    """Requeue what some nodes may fit now."""
    for node in nodes:
        partition.node_improved(node)


def _has_waited_long(partition: Partition, head_gang: HeadGang) -> bool:
    if not partition.settings.backfill:
        return False
    due_ns = head_gang.application.submission_time_ns + LONG_WAIT_NS
    if due_ns > partition.now_ns:
        partition.check_head_gang_at(due_ns)
    return due_ns <= partition.now_ns


def _is_passed_by_predictions(
    partition: Partition, head_gang: HeadGang, news: list[Bucket]
) -> bool:
    """Whether asks without a stated run time may backfill by prediction.

    Always with some settings; else if the gang has waited long and no ask waiting for nodes comes
    before it.
    """
    if partition.settings.passes_predicted or not head_gang.waited_long:
        return partition.settings.passes_predicted
    if not head_gang.has_read_older:
        head_gang.has_read_older = True
        news = _all_blocked(partition)
    return not _is_any_before(head_gang.older, news, head_gang, may_be_any=True)


def _newly_blocked(partition: Partition, head_gang: HeadGang) -> list[Bucket]:
    """Return the buckets blocked by nodes since the last call."""
    if not partition.settings.backfill:
        return []
    news = partition.root.take_newly_blocked()
    if head_gang.has_read:
        return [*news]
    head_gang.has_read = True
    return _all_blocked(partition)


def _all_blocked(partition: Partition) -> list[Bucket]:
    root = partition.root
    by_nodes = chain.from_iterable(root.blocked_buckets.values())
    return [*by_nodes, *root.wait_list.buckets]  # the root's max is the nodes' sum


def _is_an_ask_before(partition: Partition, head_gang: HeadGang, news: list[Bucket]) -> bool:
    """Whether an ask with a stated run time waits for a node before the gang (EASY)."""
    return partition.settings.backfill and _is_any_before(
        head_gang.before, news, head_gang, may_be_any=False
    )


def _is_any_before(
    before: dict[Bucket, None], news: Iterable[Bucket], head_gang: HeadGang, *, may_be_any: bool
) -> bool:
    """Whether any bucket comes before the gang; ``before`` is updated to those that do."""
    found = (bucket for bucket in news if _is_before(bucket, head_gang, may_be_any=may_be_any))
    before.update(dict.fromkeys(found))
    while before:
        bucket = next(iter(before))
        if _is_before(bucket, head_gang, may_be_any=may_be_any):
            return True
        del before[bucket]
    return False


def _is_before(bucket: Bucket, head_gang: HeadGang, *, may_be_any: bool) -> bool:
    """Whether a bucket's first ask waits for a node and comes before the gang.

    Unless ``may_be_any`` only asks with a stated run time count.
    """
    entry = bucket.first() if bucket.waits_for_nodes else None
    head = entry[1].head() if entry is not None else None
    return (
        head is not None
        and (may_be_any or head.shape.run_ns > 0)
        and rank_of(bucket.leaf, head) < head_gang.rank
    )


def _count_all(partition: Partition, head_gang: HeadGang) -> None:
    """Compute for every node when it fits how many members."""
    rows = partition.nodes.rows
    head_gang.facts = partition.nodes.columns.facts
    head_gang.next_end_ns = np.full(len(rows), NEVER_NS, dtype=np.int64)
    head_gang.gathers = np.zeros(len(rows), dtype=np.bool_)
    head_gang.guessed = np.zeros(len(rows), dtype=np.bool_)
    for shape, count in head_gang.needs.items():
        width = max(1, min(count, MAX_PER_NODE, _most(partition, shape)))
        head_gang.rooms[shape] = np.full((len(rows), width), NEVER_NS + 1, dtype=np.int64)
    for node in rows:
        _count(partition, head_gang, node)


def _most(partition: Partition, shape: Shape) -> int:
    return int(partition.nodes.room.places(shape, when=When.EMPTY).max(initial=1))


def _count(partition: Partition, head_gang: HeadGang, node: Node) -> bool:
    """Compute when a node fits members; return whether any of them sooner than before.

    0: now; NEVER_NS: unknown; above: never.
    """
    going = sorted(ends(partition, node), key=lambda end: end[0])
    head_gang.next_end_ns[node.row] = going[0][0] if going else NEVER_NS
    is_known = all(is_stated(partition, ended) for _, ended in going)
    head_gang.guessed[node.row] = not is_known
    head_gang.gathers[node.row] = not (
        is_known or _ends_at_once(head_gang, [ended for _, ended in going])
    )
    is_sooner = False
    for shape, known in head_gang.rooms.items():
        moments = np.full(known.shape[1], NEVER_NS + 1, dtype=np.int64)
        if (
            node.schedulable
            and not node.claimed & BY_ASK
            and partition.nodes.filters.admits.holds(node, shape)
        ):
            had = 0
            for at_ns, room, free in rooms(partition, node, going):
                has = min(fits_times(room, free, shape), known.shape[1])
                if has > had:
                    moments[had:has] = at_ns
                    had = has
        is_sooner |= bool((moments < known[node.row]).any())
        known[node.row] = moments
    return is_sooner


def _ends_at_once(head_gang: HeadGang, going: Sequence[Allocation]) -> bool:
    """Whether a node becomes free by the end of a single pod."""
    return len(going) == 1 and all(
        fits_room(going[0].resource_per_alloc, shape.resource) for shape in head_gang.needs
    )


def _plan(partition: Partition, head_gang: HeadGang) -> dict[Node, None]:
    """Choose the nodes, claim them, and estimate the start.

    The previous nodes stay if others would be free later. Returns the nodes of which other asks may
    use more than before.
    """
    head_gang.planned_ns = partition.now_ns
    start_ns, chosen = _soonest(partition, head_gang)
    before_ns = _start_of(partition, head_gang, head_gang.nodes)
    if before_ns < start_ns:
        start_ns, chosen = before_ns, head_gang.nodes
    head_gang.start_ns = 0 if start_ns >= NEVER_NS else max(start_ns, partition.now_ns)
    head_gang.is_known = not any(head_gang.guessed[node.row] for node in chosen)
    if not (head_gang.is_known or _is_within_allowance(partition, head_gang, chosen)):
        head_gang.start_ns, chosen = 0, {}
    return _hold(partition, head_gang, chosen)


def _soonest(partition: Partition, head_gang: HeadGang) -> tuple[int, dict[Node, Members]]:
    """Return when all members may fit, and the number of members of each node.

    For a gang that must be in one domain it is the soonest domain; ties go to the one that it
    claims already, then by name.
    """
    domains = _domains(partition, head_gang)
    if domains is None:
        return _soonest_on(partition, head_gang, np.arange(len(partition.nodes.rows)))
    claimed = partition.nodes.columns.claimed
    best: tuple[tuple[int, bool], dict[Node, Members]] = (NEVER_NS + 1, True), {}
    for among in domains:
        start_ns, chosen = _soonest_on(partition, head_gang, among)
        key = start_ns, not (claimed[among] & BY_HEAD_GANG).any()
        if key < best[0]:
            best = key, chosen
    return best[0][0], best[1]


def _domains(partition: Partition, head_gang: HeadGang) -> list[Amounts] | None:
    """Return the rows of each domain that could contain the gang; None: no level is required."""
    application, domains = head_gang.application, partition.nodes.domains
    part = in_one_domain(application)
    if part is None:
        return None
    resolved = domains.resolve(part.topology)
    if isinstance(resolved, str):
        return []
    there = domains.gangs[application.id].members(part)
    home = domains.home(resolved.tree, resolved.required, there) if there else None
    known = resolved.tree.known(resolved.required) if home is None else [home]
    ids = resolved.tree.ids(resolved.required, len(partition.nodes.rows))
    return [np.flatnonzero(ids == at) for at in known]


def _soonest_on(
    partition: Partition, head_gang: HeadGang, among: Amounts
) -> tuple[int, dict[Node, Members]]:
    """Return when all members may fit on some rows, and the number of members of each node."""
    rows = partition.nodes.rows
    chosen: dict[Node, Members] = {}
    start_ns = 0
    for shape, count in head_gang.needs.items():
        rooms = head_gang.rooms[shape]
        if chosen:  # nodes chosen for another group of the gang are excluded
            rooms = rooms.copy()
            rooms[[node.row for node in chosen]] = NEVER_NS + 1
        own = rooms[among]
        gathers = head_gang.gathers[among, None] & (not head_gang.waited_long)
        later = (own < NEVER_NS) & gathers
        at_ns, found = _first(partition, head_gang, among, own + later * LATER_NS, count)
        if LATER_NS <= at_ns < NEVER_NS:
            at_ns = max(int(rooms[row, times - 1]) for row, times in found.items())
        start_ns = max(start_ns, at_ns)
        chosen |= {rows[row]: (shape, times) for row, times in found.items()}
    return start_ns, chosen


def _is_within_allowance(
    partition: Partition, head_gang: HeadGang, chosen: Mapping[Node, Members]
) -> bool:
    """Whether the nodes' expected idle time until the start is within the allowance (rule 7).

    If the start is unknown, any remaining allowance is enough.
    """
    allowance, expected = partition.idle_allowance, 0
    for node, (shape, times) in chosen.items() if head_gang.start_ns else ():
        free_ns = max(int(head_gang.rooms[shape][node.row, times - 1]), partition.now_ns)
        amount = times * shape.resource.get(allowance.name, 0)
        expected += max(0, head_gang.start_ns - free_ns) * amount
    return allowance.suffice_for(expected, waited_long=head_gang.waited_long)


def _start_of(partition: Partition, head_gang: HeadGang, chosen: Mapping[Node, Members]) -> int:
    """Return when the nodes of a choice fit the members counted on them."""
    needs = dict.fromkeys(head_gang.needs, 0)
    start_ns = 0
    for node, (shape, times) in chosen.items():
        rooms = head_gang.rooms.get(shape)
        if rooms is None or partition.nodes.nodes.get(node.node_id) is not node:
            return NEVER_NS + 1
        if times > rooms.shape[1]:
            return NEVER_NS + 1
        needs[shape] += times
        start_ns = max(start_ns, int(rooms[node.row, times - 1]))
    return start_ns if needs == head_gang.needs else NEVER_NS + 1


def _first(
    partition: Partition, head_gang: HeadGang, among: Amounts, rooms: Moments, count: int
) -> tuple[int, dict[int, int]]:
    """Return when ``count`` members fit, and the number of members of each row.

    ``rooms`` are the times of the rows ``among``.
    """
    moments = rooms.ravel()
    if moments.size < count:
        return NEVER_NS + 1, {}
    at_ns = int(np.partition(moments, count - 1)[count - 1])
    if at_ns > NEVER_NS:
        return at_ns, {}
    in_time = np.count_nonzero(rooms <= at_ns, axis=1)
    places = np.flatnonzero(in_time)
    rows, in_time = among[places], in_time[places]
    held = (partition.nodes.columns.claimed[rows] & BY_HEAD_GANG) != 0
    ranks = partition.nodes.order.ranks.of(rows)
    last = rooms[places, in_time - 1]
    is_the_last = head_gang.waited_long or not head_gang.guessed[rows].any()
    if partition.settings.backfill and at_ns < NEVER_NS and is_the_last:
        order = np.lexsort((ranks, ~held, -last))
    else:
        order = np.lexsort((ranks, ~held, last))
    chosen: dict[int, int] = {}
    for row, has in zip(rows[order].tolist(), in_time[order].tolist(), strict=True):
        chosen[row] = min(count, has)
        count -= chosen[row]
        if not count:
            break
    return at_ns, chosen


def _hold(
    partition: Partition, head_gang: HeadGang, chosen: dict[Node, Members]
) -> dict[Node, None]:
    """Claim exactly the chosen nodes; return those of which others may use more than before."""
    claims = partition.claims
    improved: dict[Node, None] = {}
    for claim in list(head_gang.claims.values()):
        if claim.node not in chosen:
            improved[claim.node] = None
            claims.end(claim)
    for node, members in chosen.items():
        leaves = _leaves(partition, head_gang, node, members)
        if claims.hold(head_gang.application, node, members, leaves):
            improved[node] = None
    _count_idle(partition, head_gang)
    return improved


def _count_idle(partition: Partition, head_gang: HeadGang) -> None:
    """Measure the idle capacity of the claimed nodes from now on, and schedule its end."""
    allowance = partition.idle_allowance
    idle = sum(max(0, node.available.get(allowance.name, 0)) for node in head_gang.nodes)
    allowance.set_idle(idle, is_charged=not head_gang.is_known, waited_long=head_gang.waited_long)
    ends_ns = allowance.ends_in_ns()
    if ends_ns:
        partition.check_head_gang_at(partition.now_ns + ends_ns)


def _leaves(partition: Partition, head_gang: HeadGang, node: Node, members: Members) -> Resource:
    """Return what the gang will leave of a node, as far as it is free now."""
    if not partition.settings.backfill:
        return {}
    room: Resource = dict(node.available)
    for at_ns, ended in ends(partition, node):
        is_sure = partition.settings.passes_predicted or is_stated(partition, ended)
        if at_ns <= head_gang.start_ns and is_sure:
            add_into(room, ended.resource_per_alloc)
    shape, times = members
    subtract_into(room, multiply(shape.resource, times))
    if shape.on_devices is not None:  # a share opens a whole device, which sums do not show
        room.pop(GPU_SHARE, None)
        if GPU_SHARE in shape.resource:
            room.pop(GPU, None)
    return {name: min(value, node.available.get(name, 0)) for name, value in room.items()}
