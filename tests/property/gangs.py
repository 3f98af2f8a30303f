"""What must hold of gangs from one step to the next, said without the scheduler's own words."""

from services.core.scheduler.actions.gang_places import could_be_held, first_could_be_held
from shared.model.resources import add, add_into, fits_limit, total_of
from shared.model.sentences import text_of

RESERVING = ("New", "Accepted")


class GangWatch:
    """Remembers a step, and compares the next one with it."""

    def __init__(self, core):
        self.remember(core)

    def remember(self, core):
        partition = core.partition
        self.were_over = _over(partition)
        self.had_parts = _with_parts_of(partition)
        self.partition = partition
        self.checksum = partition.config_checksum
        self.overdue = list(_overdue(partition))
        self.waiting = {
            name: app.order
            for name, app in partition.applications.items()
            if app.state in RESERVING and not _has_started(app)
        }
        self.known = set(partition.applications)
        self.admitted = {name for name, app in partition.applications.items() if app.gang_admitted}
        self.kept = {name for name, app in partition.applications.items() if app.queue.reserved}

    def check(self, core):
        """Raise when gangs together are over a max, or one that was overdue has been passed."""
        partition = core.partition
        is_same = partition is self.partition and partition.config_checksum == self.checksum
        if is_same and not _takes_room(partition):
            assert set(_over(partition)) <= set(self.were_over)  # a reload may lower a max
            assert set(_with_parts_of(partition)) <= set(self.had_parts)
        if is_same:
            self._nobody_passed(partition)
        self.remember(core)

    def _nobody_passed(self, partition):
        for name, queue, order in self.overdue:
            gang = partition.applications.get(name)
            if gang is None or gang.allocations or gang.order != order:
                continue
            if (name, queue, order) not in list(_overdue(partition)):
                continue  # something else keeps it now
            for other, app in partition.applications.items():
                if app is gang or app.queue is not queue or app.order < order:
                    continue
                if other in self.known and self.waiting.get(other, ()) < order:
                    continue
                has_started = app.allocations or (app.gang_admitted and other not in self.admitted)
                swapped_in = [swap.ask.request for swap in app.replacing.values()]
                was_ahead = any(  # with an ask that does not wait any more
                    _order(app, held.priority) < order
                    for held in (*app.allocations.values(), *swapped_in)
                )
                is_kept = other in self.kept
                assert not has_started or was_ahead or is_kept, f"{other} has passed {name}"


class WholeWatch:
    """Sees that a gang goes from nothing to everything that it was announced with, in one step."""

    def __init__(self):
        self.waited = {}

    def check(self, core):
        """Raise when a gang that held nothing holds a part: a place or more, and not all."""
        for name, app in core.partition.applications.items():
            held = [a for a in app.allocations.values() if a.placeholder]
            announced = app.request.placeholder_ask
            if _takes_room(core.partition):
                continue  # its members may preempt one by one (ADR 32)
            if self.waited.get(name) is app and held and not app.is_gang_over:
                whole = {}
                for item in held:
                    add_into(whole, item.resource_per_alloc)
                assert fits_limit(whole, announced), f"{name} holds {whole} of {announced}"
        self.waited = {
            name: app
            for name, app in core.partition.applications.items()
            if app.request.placeholder_ask and not app.allocations and app.state in RESERVING
        }


def _takes_room(partition):
    """Return whether gangs may start over their headroom, by preemption or because they exist."""
    return any(queue.guaranteed_resource for queue in partition.queues.values()) or (
        partition.settings.policy == "kai" or partition.epoch > 1
    )


def _order(app, priority):
    """Return where an application stands in its leaf while it asks with some priority."""
    if app.queue.settings.priority_sorting:
        return -priority, app.submission_time_ns, app.sequence
    return app.submission_time_ns, -priority, app.sequence


def _overdue(partition):
    """Yield the gangs that have waited for longer than their patience: for their queue, or nodes."""
    for name, app in partition.applications.items():
        since_ns = partition.now_ns - app.submission_time_ns
        if (
            (
                _waits_for_its_first(partition, app) and not _others_lack_nodes(partition, app)
                if app.gang_admitted
                else (_waits_for_its_queue(app) or app.is_refused_for("GANG_PLACES"))
                and (not app.starts_placed or could_be_held(partition.nodes, app))
            )
            and app.state == "Accepted"
            and since_ns >= partition.settings.starvation_guard_ns
            and app.queue.settings.sort_policy == "fifo"
            and all(
                app.gang_admitted or fits_limit(level.max_resource or {}, app.outstanding())
                for level in app.queue.lineage()
                if level.parent is not None
            )
        ):
            yield name, app.queue, app.order


def _others_lack_nodes(partition, app):
    """Return whether an ask of another leaf waits for a node that could hold it (ADR 64)."""
    return any(
        bucket.refusal is not None
        and bucket.blocked_at in (None, partition.root.wait_list)
        and any(group.asks for group in bucket.groups)
        and partition.nodes.filters.could_hold.mask(bucket.shape).any()
        for queue in partition.queues.values()
        if queue is not app.queue
        for bucket in queue.buckets.values()
    )


def _has_started(app):
    """Return whether an application has anything, or had a part of its gang."""
    return app.allocations or (app.gang_admitted and app.id in app.queue.allocating_accepted)


def _waits_for_its_first(partition, app):
    """Return whether a gang that was let start holds nothing, and a node could take one of it."""
    queues = [level.max_resource or {} for level in app.queue.lineage() if level.parent is not None]
    users = [tracker.wait_list for tracker in app.trackers]
    return (
        not (app.allocations or app.replacing or app.is_gang_over or app.refusal)
        and app.id not in app.queue.allocating_accepted
        and first_could_be_held(partition.nodes, app)
        and any(
            ask.request.placeholder
            and app.group_of[ask.key].bucket.blocked_at not in users
            and all(fits_limit(level, ask.shape.resource) for level in queues)
            for ask in app.asks()
        )
    )


def _waits_for_its_queue(app):
    refusal = app.refusal
    is_refused = refusal is not None and refusal.reason == "GANG_HEADROOM"
    return is_refused and "queue" in text_of(refusal).split(" has ")[0]


def _over(partition):
    """Return the queues whose max the gangs that reserve would be over once they are whole.

    One that is over, fallen back to Accepted after a Soft timeout, will never be whole.
    """
    found = []
    for queue in partition.queues.values():
        whole = {}
        for app in partition.applications.values():
            is_whole = not (app.starts_in_part or app.is_gang_over) and app.state in RESERVING
            if is_whole and app.gang_admitted and queue in app.queue.lineage():
                add_into(whole, app.request.placeholder_ask)
        if queue.parent is not None and not fits_limit(queue.max_resource or {}, whole):
            found.append(queue.path)
    return found


def _with_parts_of(partition):
    """Return the queues of whose max several gangs hold a part each, and for want of them the rest.

    Whatever else runs there ends by itself: each could be whole if the other gangs held nothing.
    """
    found = []
    for queue in partition.queues.values():
        gangs = [
            app
            for app in partition.applications.values()
            if app.is_gang and not app.is_gang_over and app.state in RESERVING
            and app.allocated_placeholder and queue in app.queue.lineage()
        ]  # fmt: skip
        held = total_of(app.allocated_placeholder for app in gangs)
        stuck = [
            app
            for app in gangs
            if not fits_limit(queue.max_resource or {}, add(held, app.outstanding()))
        ]
        if queue.parent is not None and len(stuck) > 1:
            found.append(queue.path)
    return found


def count_of(count):
    """Return a count of pods, node by node."""
    return {node.node_id: pods for node, pods in count.at.items()}


def everything(core):
    """Return all that a trial could leave a trace in, in its order; empty counts are none."""
    partition, pods = core.partition, core.partition.nodes.pods
    table = partition.nodes
    count = len(table.rows)
    return {
        "nodes": [
            (
                name, list(node.allocated.items()), list(node.available.items()),
                list(node.allocations.items()), list(node.occupied.items()), list(node.reservations),
            )
            for name, node in table.nodes.items()
        ],
        "matrices": [
            matrix[:count].tobytes()
            for matrix in (
                table.columns.available, table.columns.capacity, table.columns.score,
                table.columns.schedulable, table.columns.claimed,
            )
        ],
        "changed": table.pods_changed,
        "counts": [(k, count_of(v)) for k, v in pods._counts.items() if v.total],
        "owners": [
            (k, key, count_of(v)) for k, by_key in pods._owners.items() for key, v in by_key.items()
        ],
        "noted": pods.waiting.noted(),
        "ports": {
            port: {node.node_id: dict(taken) for node, taken in nodes.items() if taken}
            for port, nodes in pods._ports.items()
            if any(nodes.values())
        },
        "queues": [
            (path, list(q.allocated.items()), list(q.pending.items()), dict(q.promised),
             dict(q.reserved), list(q.allocating_accepted))
            for path, q in partition.queues.items()
        ],
        "users": [(t.name, repr(t.usage), repr(t.promised)) for t in partition.users.all()],
        "applications": [
            (name, a.state, list(a.allocations), list(a.group_of), list(a.pending.items()),
             dict(a.promise), dict(a.timers))
            for name, a in partition.applications.items()
        ],
        "journal": len(partition.journal),
        "timers": dict(partition.timers),
    }  # fmt: skip
