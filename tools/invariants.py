"""What must hold after every message, recomputed the slow and obvious way.

The tests, the simulator and the scenario runner call ``violations`` after each step.
"""

from collections import Counter
from collections.abc import Iterator

from services.core.scheduler.actions import gang_places
from services.core.scheduler.actions.expected_room import opens_in_vain
from services.core.scheduler.model.devices import change, need_of
from services.core.scheduler.model.priority_counts import NO_PRIORITY
from services.core.scheduler.model.rows import (
    Application,
    EntryKey,
    EquivalenceClass,
    Node,
    Purpose,
    Queue,
    depth_first,
)
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.model.user_table import first_full, first_shortage
from services.core.scheduler.ordering import queueing
from services.core.scheduler.ordering.turns import order_of_children
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import TerminationType
from shared.model.gpus import WHOLE
from shared.model.reasons import Reason
from shared.model.resources import (
    ResourceView,
    add,
    add_into,
    excess,
    fits_room,
    subtract,
    total_of,
    without_zeros,
)
from shared.model.states import ENDED


def violations(partition: Partition) -> list[str]:
    """Return a sentence for each invariant that does not hold; an empty list is good news."""
    found: list[str] = []
    for application in partition.applications.values():
        found += _application(application)
    for queue in depth_first(partition.root):
        found += _queue(queue)
    found += _priorities(partition)
    found += _users(partition)
    found += _reservations(partition)
    found += _placeholder_sets(partition)
    found += _overlooked(partition)
    if partition.root.max_resource is not None:  # without a node nobody is considered
        found += _gangs_overlooked(partition)
        found += _starts_overlooked(partition)
    found += _nodes(partition)
    found += _keys(partition)
    found += _orders(partition)
    found += _releasing(partition)
    return found


def _differs(what: str, ledger: ResourceView, truth: ResourceView) -> Iterator[str]:
    if without_zeros(ledger) != without_zeros(truth):
        yield f"{what} is {dict(ledger)}, the sum of its parts {dict(truth)}"


def _application(application: Application) -> Iterator[str]:
    name = f"application {application.id}"
    allocations = application.allocations.values()
    real = total_of(a.resource_per_alloc for a in allocations if not a.placeholder)
    held = total_of(a.resource_per_alloc for a in allocations if a.placeholder)
    asks = list(application.asks())
    yield from _differs(f"{name} allocated", application.allocated, real)
    yield from _differs(f"{name} allocatedPlaceholder", application.allocated_placeholder, held)
    yield from _differs(
        f"{name} pending",
        application.pending,
        total_of(ask.request.resource_per_alloc for ask in asks),
    )
    if application.pending_placeholders != sum(ask.request.placeholder for ask in asks):
        yield f"{name} counts {application.pending_placeholders} pending placeholders"
    yield from _gang(application)


def _gang(application: Application) -> Iterator[str]:
    name = f"application {application.id}"
    if application.state in ENDED:
        yield f"{name} has ended as {application.state} and is still in its queue"
    yield from _placeholders(application)
    for group, counts in application.task_groups.items():
        free = application.allocations.keys() - application.released.keys()
        for key in counts.held.keys() - free:
            yield f"{name} group {group}: {key} is held but gone or released"
    yield from _real_pods(application)
    for key, swap in application.replacing.items():
        if application.released.get(key) != "PLACEHOLDER_REPLACED":
            yield f"{name}: placeholder {key} is being replaced but not released for it"
        if swap.ask.key in application.allocations or swap.ask.key in application.group_of:
            yield f"{name}: ask {swap.ask.key} is being swapped in and elsewhere too"


def _placeholders(application: Application) -> Iterator[str]:
    """Check that each placeholder of a task group waits, is allocated, replaced or timed out."""
    there = Counter(
        item.task_group_name for item in application.allocations.values() if item.placeholder
    )
    there.update(
        ask.request.task_group_name for ask in application.asks() if ask.request.placeholder
    )
    for group, counts in application.task_groups.items():
        if counts.replaced + counts.timedout + there[group] != counts.count:
            yield f"application {application.id} group {group}: {counts}, and {there[group]} left"


def _real_pods(application: Application) -> Iterator[str]:
    """See that the real pods of each task group are counted."""
    own = Counter(
        allocation.task_group_name
        for key, allocation in application.allocations.items()
        if not (allocation.placeholder or key in application.released)
    )
    for group, counts in application.task_groups.items():
        if counts.real != own[group]:
            yield f"application {application.id} group {group}: {counts.real} real, has {own}"


def _queue(queue: Queue) -> Iterator[str]:
    below = queue.children.values()
    applications = queue.applications.values()
    allocated = total_of(child.allocated for child in below)
    pending = total_of(child.pending for child in below)
    promised = total_of(child.promised for child in below)
    running = sum(child.running_apps for child in below)
    if queue.is_leaf:
        allocated = total_of(add(a.allocated, a.allocated_placeholder) for a in applications)
        pending = total_of(a.pending for a in applications)
        promised = total_of(a.promise for a in applications)
        running = sum(a.state == "Running" for a in applications)
    yield from _differs(f"queue {queue.path} allocated", queue.allocated, allocated)
    yield from _differs(f"queue {queue.path} pending", queue.pending, pending)
    yield from _differs(f"queue {queue.path} promised", queue.promised, promised)
    if queue.running_apps != running:
        yield f"queue {queue.path} counts {queue.running_apps} running applications, has {running}"


def _priorities(partition: Partition) -> Iterator[str]:
    """Compare what every queue shows to its siblings with what its asks make of it."""

    def shown(queue: Queue) -> int:
        if queue.is_leaf:
            own = queue.applications.values()
            waiting = [ask.request.priority for application in own for ask in application.asks()]
        else:
            waiting = [shown(child) for child in queue.children.values()]
        highest = max(waiting, default=NO_PRIORITY)
        if highest == NO_PRIORITY:
            return NO_PRIORITY
        settings = queue.settings
        value = settings.priority_offset + (0 if settings.priority_fence else highest)
        return max(-(2**31), min(2**31 - 1, value))

    for queue in depth_first(partition.root):
        if queue.current_priority != shown(queue):
            yield f"queue {queue.path} shows priority {queue.current_priority}, not {shown(queue)}"


def _users(partition: Partition) -> Iterator[str]:
    """Compare what users and groups use with what their applications do."""
    for tracker in partition.users.all():
        own = [a for a in partition.applications.values() if tracker in a.trackers]
        if set(tracker.links) != {a.id for a in own}:
            yield f"{tracker.title} counts applications {sorted(tracker.links)}"
        for queue in depth_first(partition.root):
            inside = [a for a in own if queue in a.queue.lineage()]
            usage = total_of(add(a.allocated, a.allocated_placeholder) for a in inside)
            promised = total_of(a.promise for a in inside)
            running = {a.id for a in inside if a.allocations}
            name = f"{tracker.title} in {queue.path}"
            yield from _differs(f"{name} usage", tracker.usage.get(queue.path, {}), usage)
            yield from _differs(f"{name} promised", tracker.promised.get(queue.path, {}), promised)
            if set(tracker.running.get(queue.path, ())) != running:
                yield f"{name} runs {sorted(tracker.running.get(queue.path, ()))}, not {running}"


def _reservations(partition: Partition) -> Iterator[str]:
    """See that a reservation is known to its ask's application, its node and its shape."""
    for application in partition.applications.values():
        claims = [one for alike in application.claims.values() for one in alike.values()]
        if {c.key: c for c in claims if c.is_reservation} != application.reservations:
            yield f"application {application.id} has other reservations than claims"
        for key, held in application.reservations.items():
            if key not in application.group_of:
                yield f"{key} has a reservation and does not wait"
            if held.node.reservations.get(key) is not held:
                yield f"the reservation of {key} is not on node {held.node.node_id}"
            if held not in partition.reserved_nodes.of_shape(held.ask.shape):
                yield f"the reservation of {key} is not with its shape"
    yield from _reserved_nodes(partition)


def _reserved_nodes(partition: Partition) -> Iterator[str]:
    book, ordinary = partition.reserved_nodes, 0
    preempted = dict.fromkeys(book.after_preemption, 0)
    if [entry[0] for entry in book.by_age] != sorted(entry[0] for entry in book.by_age):
        yield "the reservations are not in the order of their ranks"
    for node in partition.nodes.nodes.values():
        own = [held for held in node.reservations.values() if held.is_ordinary]
        ordinary += len(own)
        if len(own) > 1 or (own and sum(c.closes_node for c in node.reservations.values()) > 1):
            yield f"node {node.node_id} is reserved for {list(node.reservations)}"
        for key, held in node.reservations.items():
            if held.application.reservations.get(key) is not held:
                yield f"node {node.node_id} is reserved for {key}, which does not know"
            if held.purpose is Purpose.PREEMPTOR:
                preempted[node.node_id] = preempted.get(node.node_id, 0) + 1
    if len(book.by_age) != ordinary or book.after_preemption != preempted:
        yield f"{len(book)} nodes are counted as reserved: {ordinary} for age, {preempted}"


def _add_moved(partition: Partition, on_nodes: dict[str, dict[str, int]]) -> None:
    """Add what nodes keep for who comes in the stead of pods that are moved."""
    for application in partition.applications.values():
        for claim in application.claims_for(Purpose.MOVED).values():
            if claim.claimant is None:
                add_into(on_nodes[claim.node.node_id], claim.wanted)


def _placeholder_sets(partition: Partition) -> Iterator[str]:
    """See that what is kept is kept for asks that wait, and for no more than that."""
    on_nodes: dict[str, dict[str, int]] = {name: {} for name in partition.nodes.nodes}
    for application in partition.applications.values():
        yield from _placeholder_set(application)
        for claim in application.claims_for(Purpose.PLACEHOLDERS).values():
            if partition.nodes.nodes.get(claim.node.node_id) is claim.node:
                add_into(on_nodes[claim.node.node_id], claim.on_node)
    _add_moved(partition, on_nodes)
    for node in partition.nodes.nodes.values():
        yield from _differs(f"node {node.node_id} reserved", node.reserved, on_nodes[node.node_id])
    for queue in depth_first(partition.root):
        inside = [a for a in partition.applications.values() if queue in a.queue.lineage()]
        reserved = total_of(_reserved_for(application) for application in inside)
        yield from _differs(f"queue {queue.path} reserved", queue.reserved, reserved)
        non_preemptible = total_of(map(_non_preemptible_use, inside))
        yield from _differs(
            f"queue {queue.path} non-preemptible", queue.non_preemptible, non_preemptible
        )
        for tracker in partition.users.all():
            own = [
                claim.in_queues
                for application in inside
                if tracker in application.trackers
                for claim in application.claims_for(Purpose.PLACEHOLDERS).values()
            ]
            name = f"{tracker.title} in {queue.path} reserved"
            yield from _differs(name, tracker.reserved.get(queue.path, {}), total_of(own))


def _non_preemptible_use(application: Application) -> ResourceView:
    """Return what an application takes of quotas that may not be preempted, or its minimum."""
    if not application.is_non_preemptible:
        return application.non_preemptible_use() if application.keeps_minimum_in_quota else {}
    going = [
        allocation.resource_per_alloc
        for key, allocation in application.allocations.items()
        if key in application.released and not allocation.placeholder
    ]
    return subtract(add(application.in_use(), application.claimed_room()), total_of(going))


def _reserved_for(application: Application) -> ResourceView:
    """Return what the queues keep for an application's asks."""
    claims = [claim for alike in application.claims.values() for claim in alike.values()]
    return total_of(claim.in_queues for claim in claims if claim.purpose is not Purpose.GANG)


def _placeholder_set(application: Application) -> Iterator[str]:
    name = f"application {application.id}"
    claimed = application.replacing.keys() | application.covering.keys()
    unclaimed = {key for counts in application.task_groups.values() for key in counts.unclaimed}
    for key in unclaimed - (application.released.keys() - claimed):
        yield f"{name}: {key} goes for nobody, and does not go, or goes for somebody"
    covered = {ask.key: ask for ask in application.asks() if ask.is_covered}
    claims = application.claims_for(Purpose.PLACEHOLDERS)
    if covered.keys() != claims.keys():
        yield f"{name} covers {sorted(claims)}, and {sorted(covered)} wait for it"
    going = {key: claim for claim in claims.values() for key in claim.awaited}
    if going != application.covering or going.keys() - application.released.keys():
        yield f"{name}: {going} go, {application.covering} are known to, or are not released"
    yield from _reserved_by(application)


def _reserved_by(application: Application) -> Iterator[str]:
    name = f"application {application.id}"
    for key, claim in application.claims_for(Purpose.MOVED).items():
        in_queues = claim.wanted if claim.until_ns else {}
        yield from _differs(f"{name} in the queues for moved {key}", claim.in_queues, in_queues)
    for key, claim in application.reservations.items():
        if claim.in_queues and (not claim.has_preempted or claim.in_queues != claim.wanted):
            yield f"{name}: the queues keep {claim.in_queues} for {key}"
    for key, claim in application.claims_for(Purpose.PLACEHOLDERS).items():
        left = [application.allocations[k] for k in claim.awaited if k in application.allocations]
        from_node = [a for a in left if a.node_id == claim.node.node_id]
        on_node = excess(claim.wanted, total_of(a.resource_per_alloc for a in from_node))
        in_queues = excess(claim.wanted, total_of(a.resource_per_alloc for a in left))
        yield from _differs(f"{name} on the node for {key}", claim.on_node, on_node)
        yield from _differs(f"{name} in the queues for {key}", claim.in_queues, in_queues)
        if not claim.awaited:
            yield f"{name}: {key} waits for placeholders that have gone"


def _await_their_part(partition: Partition, shape: Shape) -> bool:
    """Return whether asks of a shape wait for a part of a device that is to come, as one may."""
    return any(
        claim.purpose is Purpose.SHARE and opens_in_vain(partition, claim.node, shape, claim)
        for claim in partition.reserved_nodes.of_shape(shape)
    )


def _overlooked(partition: Partition) -> Iterator[str]:
    """See that what waits would be refused again now: nobody has been forgotten."""
    asking = [item for item in partition.applications.values() if item.groups]
    if asking != partition.in_order_asking():
        yield f"{len(asking)} applications ask, and {len(partition.root.asking)} are known to"
    for application in partition.applications.values():
        for group in application.groups.values():
            bucket, ask = group.bucket, group.head()
            if (
                ask is None
                or queueing.hold(application, group) is not None
                or bucket.refusal is None
            ):
                continue
            if not application.may_schedule or bucket.shape.constraints.required_node:
                continue
            room = not first_shortage(application, bucket.shape.resource)
            room = room and not bucket.leaf.first_without_room(bucket.shape.resource)
            if bucket.blocked_at is not None and room:
                yield f"ask {ask.key} waits at a queue and has the headroom"
            room = room and not _await_their_part(partition, bucket.shape)
            node = partition.nodes.order.best(bucket.shape, backfill=partition.settings.backfill)
            if bucket.blocked_at is None and node is not None and room:
                yield f"ask {ask.key} waits for a node and {node.node_id} would take it"


def _has_headroom(application: Application) -> bool:
    """Return whether a gang has the headroom it needs as a whole.

    One that is placed as a whole needs it for all its placeholders, which may be more than it
    announced.
    """
    queue, own, gang = application.queue, application.claimed_room(), application.outstanding()
    short = first_shortage(application, gang, count_promises=True)
    if short or queue.first_without_quota(gang, own=own):
        return False
    asked = gang_places.amount(application) if application.needs_places else {}
    return not first_shortage(application, asked) and not queue.first_without_room(asked, own=own)


def _gangs_overlooked(partition: Partition) -> Iterator[str]:
    """See that a gang that waits as a whole has to, and who waits behind one."""
    for application in partition.applications.values():
        if application.awaits_admission and application.may_schedule:
            yield f"gang {application.id} was not considered for its admission"
        if application.waits_for_its_queue and _has_headroom(application):
            yield f"gang {application.id} waits at a queue and has the headroom"
        yield from _with_places(partition, application)
        if (
            application.is_refused_for(Reason.GANG_PATIENCE)
            and not application.is_behind_starved_gang
        ):
            yield f"application {application.id} waits behind a gang that does not"
    for queue in partition.queues.values():
        gang_ahead = queue.starved_gang
        if gang_ahead is not None and not (
            queue.applications.get(gang_ahead.id) is gang_ahead
            and (gang_ahead.waits_as_a_whole or gang_ahead.waits_for_first_member)
        ):
            yield f"queue {queue.path} waits for {gang_ahead.id}, which does not"


def _with_places(partition: Partition, application: Application) -> Iterator[str]:
    """See that a gang which waits for places on the nodes has none, and is known to wait."""
    if not application.is_refused_for(Reason.GANG_PLACES):
        return
    if application.waiting_among is not partition.waiting_gangs:
        yield f"gang {application.id} waits for places and is not among those that do"
    gang, backfill = gang_places.amount(application), partition.settings.backfill
    queue, own = application.queue, application.claimed_room()
    if (
        not first_shortage(application, gang, count_promises=True)
        and not queue.first_without_quota(gang, own=own)
        and not queue.first_without_room(gang, own=own)
        and not application.is_behind_starved_gang
        and not application.has_topology  # of which the room alone says nothing
        and gang_places.are_there(partition.nodes, application, backfill=backfill)
    ):
        yield f"gang {application.id} waits for places on the nodes, which are there"


def _starts_overlooked(partition: Partition) -> Iterator[str]:
    """See that who waits for others to end may not start, and waits with those like it."""
    for application in partition.applications.values():
        if application.is_refused_for(Reason.MAX_APPLICATIONS) and not (
            application.queue.first_over_applications(application.id) or first_full(application)
        ):
            yield f"application {application.id} waits to run and may"
        waiting, refusal = application.waits_in, application.refusal
        if waiting is not None and (
            refusal is None
            or application not in waiting.members
            or waiting.key != queueing.class_key(application, refusal)
        ):
            yield f"application {application.id} is not in the class in which it waits"
        if application.trying_for is not None:
            yield f"application {application.id} was to be considered for others and was not"


def _nodes(partition: Partition) -> Iterator[str]:
    for node in partition.nodes.nodes.values():
        total = total_of(a.resource_per_alloc for a in node.allocations.values())
        yield from _differs(f"node {node.node_id} allocated", node.allocated, total)
        others = total_of(a.resource_per_alloc for a in node.foreign.values())
        yield from _differs(f"node {node.node_id} occupied", node.occupied, others)
        for key in node.foreign:
            if partition.foreign.get(key) != node.node_id:
                yield f"foreign pod {key} is on {node.node_id}, not {partition.foreign.get(key)}"
        rest = subtract(subtract(node.capacity, node.allocated), node.occupied)
        rest = subtract(rest, node.reserved)
        yield from _differs(f"node {node.node_id} available", node.available, rest)
        yield from _devices(node)
    for key, node_id in partition.nominated.items():
        if partition.foreign.get(key) != node_id:
            yield f"a pod {key} that is nominated for {node_id} is not counted there"
    if len(partition.foreign) != sum(len(n.foreign) for n in partition.nodes.nodes.values()):
        yield "a foreign pod is known that is on no node"
    yield from _differs(
        "the sum of the nodes",
        partition.nodes.total,
        total_of(node.capacity for node in partition.nodes.nodes.values()),
    )


def _devices(node: Node) -> Iterator[str]:
    """See that devices have free what their holders leave, and that who asks for some has them."""
    free = [WHOLE] * len(node.devices)
    for (is_foreign, key), held in node.held_devices.items():
        change(free, held, -1)
        if key not in (node.foreign if is_foreign else node.allocations):
            yield f"{key} has devices {held} of node {node.node_id} and is not there"
    if free != node.devices:
        yield f"node {node.node_id} has devices {node.devices}, their holders leave {free}"
    for is_foreign, pods in ((False, node.allocations), (True, node.foreign)):
        for key, allocation in pods.items() if node.devices else ():
            need = need_of(allocation.resource_per_alloc, allocation.constraints)
            held = node.held_devices.get((is_foreign, key), ())
            if need is None or (
                {amount for _, amount in held} == {need[0]}
                and min(need[1], len(node.devices)) <= len(held) <= need[1]
            ):
                continue
            yield f"{key} asks for {need} of the devices of node {node.node_id}, has {held}"


def over_capacity(partition: Partition) -> list[str]:
    """Return the nodes that hold more than they can; only shrinking or recovery may do that."""
    return [
        node.node_id
        for node in partition.nodes.nodes.values()
        if not fits_room(node.capacity, node.allocated) or min(node.devices, default=0) < 0
    ]


def _keys(partition: Partition) -> Iterator[str]:
    """Every allocation is on its node once, and in no other place."""
    on_nodes: dict[str, str] = {}
    for node in partition.nodes.nodes.values():
        for key in node.allocations:
            if key in on_nodes:
                yield f"allocation {key} is on {on_nodes[key]} and on {node.node_id}"
            on_nodes[key] = node.node_id
    for application in partition.applications.values():
        for key, allocation in application.allocations.items():
            if on_nodes.get(key) != allocation.node_id:
                yield f"allocation {key} should be on {allocation.node_id}: {on_nodes.get(key)}"
            if key in application.group_of:
                yield f"{key} is allocated and waits as well"


def _orders(partition: Partition) -> Iterator[str]:
    """Compare every key in every heap with the key worked out again."""
    classes: dict[EquivalenceClass, None] = {}
    for application in partition.applications.values():
        order = application.order_at(application.in_use())
        if application.keys_before is None and application.order != order:
            yield f"application {application.id} is at {application.order}, not {order}"
        if application.waits_in is not None:
            classes[application.waits_in] = None
        yield from _starvation(partition, application)
    for waiting in classes:
        entered = {application: key for key, application in waiting.entries()}
        for application in waiting.members:
            if entered.get(application) != application.order:
                yield f"application {application.id} waits at {entered.get(application)}"
    for queue in depth_first(partition.root):
        yield from _buckets(queue)
        yield from _turns(queue)


def _starvation(partition: Partition, application: Application) -> Iterator[str]:
    """See that a gang that is watched is checked when it becomes starved."""
    due_ns = application.submission_time_ns + partition.settings.starvation_guard_ns
    watched_ns = application.starved_at_ns
    waits = application.waits_as_a_whole or application.waits_for_first_member
    may_wait = waits and application.is_starting and partition.root.max_resource is not None
    if watched_ns and watched_ns != due_ns and may_wait:
        yield f"gang {application.id} is starved at {due_ns} and is watched until {watched_ns}"


def _first(queue: Queue, first: EntryKey | None, keys: list[EntryKey]) -> Iterator[str]:
    if first != min(keys, default=None):
        yield f"queue {queue.path}: the first of a bucket is at {first}, of {sorted(keys)}"


def _buckets(queue: Queue) -> Iterator[str]:
    for bucket in (*queue.buckets.values(), queue.to_admit, queue.behind):
        for key, group in bucket.entries():
            head = group.head()
            now = group.application.order + head.order if head is not None else key
            if key != now:
                yield f"queue {queue.path}: asks of {group.application.id} are at {key}, not {now}"
        first, keys = bucket.first(), [key for key, _ in bucket.entries()]
        yield from _first(queue, first[0] if first is not None else None, keys)
        for by_time, now in bucket.entries_by_run_time():
            if by_time != now:
                yield f"queue {queue.path}: asks are at {by_time} by run time, not {now}"
    for key, bucket in queue.active_buckets.entries():
        first = bucket.first()
        if first is not None and first[0] < key:  # one that comes later is found by then
            yield f"queue {queue.path}: a bucket is at {key}, its first group at {first[0]}"


def _turns(queue: Queue) -> Iterator[str]:
    """Compare the places of a queue's children with what they would be, but for those noted."""
    turns = queue.turns
    if turns.version != queue.tree.version:
        return
    place_of = order_of_children(queue)
    for key, _, child in turns.heap:
        if child.turn is key and child not in turns.unordered and key != place_of(child):
            yield f"queue {child.path} is at {key}, not {place_of(child)}"


def _releasing(partition: Partition) -> Iterator[str]:
    """See that what is being released is known, and that no statement was left open."""
    everybody = partition.applications.values()
    released = {key for a in everybody for key in a.released if key not in a.stuck}
    stuck = {key: a for a in everybody for key in a.stuck}
    if partition.releasing.keys() != released:
        yield f"{sorted(partition.releasing)} are known to be released, {sorted(released)} are"
    for queue in depth_first(partition.root):
        going = (
            application.allocations[key].resource_per_alloc
            for key, application in {**partition.releasing, **stuck}.items()
            if application.released[key] == TerminationType.PREEMPTED_BY_SCHEDULER
            and not application.moved(key)
            and queue in application.queue.lineage()
        )
        yield from _differs(f"queue {queue.path} preempting", queue.preempting, total_of(going))
    if not partition.nodes.expects_nothing():
        yield "a statement was left open"
