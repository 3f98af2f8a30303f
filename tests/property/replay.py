"""The journal replayed onto an empty model: plain rows, made of what its entries carry.

Nothing is read of a row that an entry names but who it is: its id, its path, what was asked for.
"""

import re

from hypothesis.stateful import invariant

from services.core.scheduler.model.rows import Node, Purpose, Queue
from shared.messages.interface import TerminationType
from shared.model.resources import add_into, without_zeros


class Replica:
    """What there is, as the journal says it."""

    def __init__(self):
        self.nodes = {}  # by id: capacity, labels, schedulable
        self.nodes_there = {}  # one that comes again under its name is another
        self.limits = {}  # of queues, by path: max and guaranteed
        self.applications = {}  # by id: queue path, user, state
        self.groups = {}  # by application id
        self.swaps = {}  # by placeholder key: application, ask's key, node, whether it is there
        self.kept = {}  # by whose it is: in queues, node, on that
        self.moved = {}  # by key: application
        self.promises = {}  # by application id
        self.asks = {}  # that wait, by key: application, amount
        self.allocations = {}  # by key
        self.released = {}  # by key: why
        self.foreign = {}  # by key
        self.reservations = {}  # by ask key: node
        self.timers = {}  # by id: generation, moment

    def read(self, entries):
        for entry in entries:
            reader = getattr(self, method_of(type(entry).__name__), None)
            if reader is not None:
                reader(entry)

    def node_accepted(self, entry):
        self.nodes[entry.node.node_id] = {}
        self.nodes_there[entry.node] = None

    def node_ended(self, entry):
        del self.nodes[entry.node.node_id], self.nodes_there[entry.node]

    def row_set(self, entry):
        match entry.row:
            case Node() as node:
                self.nodes[node.node_id].update(entry.values)
            case Queue() as queue:
                known = ("max_resource", "guaranteed_resource")
                values = {name: entry.values[name] for name in known if name in entry.values}
                if values:
                    self.limits.setdefault(queue.path, {}).update(values)

    def queue_ended(self, entry):
        del self.limits[entry.queue.path]

    def application_accepted(self, entry):
        app = entry.application
        self.applications[app.id] = [app.queue.path, app.request.ugi.user, "New"]

    def state_changed(self, entry):
        self.applications[entry.application.id][2] = entry.state.value

    def application_ended(self, entry):
        del self.applications[entry.application.id]
        self.groups.pop(entry.application.id, None)
        assert not self.promises.pop(entry.application.id, None), "its promise outlives it"

    def group_found(self, entry):
        self.groups.pop(entry.application.id, None)
        if entry.group:
            self.groups[entry.application.id] = entry.group

    def swap_begun(self, entry):
        item = entry.allocation
        row = (entry.application.id, item.allocation_key, item.node_id, entry.is_placed)
        self.swaps[entry.placeholder_key] = (row, item.resource_per_alloc)

    def swap_confirmed(self, entry):
        self.swaps.pop(entry.placeholder_key, None)  # none had begun before a restart

    def swap_failed(self, entry):
        del self.swaps[entry.placeholder_key]

    def claim_made(self, entry):
        claim = entry.claim
        if claim.is_reservation:
            self.reservations[claim.key] = claim.node.node_id
        elif claim.purpose is Purpose.MOVED:
            self.moved[claim.key] = claim.application.id

    def claim_changed(self, entry):
        row = entry.claim
        if row.purpose is Purpose.GANG:
            self.promises[row.application.id] = dict(entry.in_queues)
            return
        self.kept[row] = (dict(entry.in_queues), row.node, dict(entry.on_node))

    def claim_ended(self, entry):
        claim = entry.claim
        self.kept.pop(claim, None)
        if claim.purpose is Purpose.GANG:
            del self.promises[claim.application.id]
        if claim.is_reservation:
            del self.reservations[claim.key]
        elif claim.purpose is Purpose.MOVED:
            del self.moved[claim.key]

    def ask_changed(self, entry):
        request = entry.ask.request
        self.asks[entry.ask.key] = (entry.application.id, request.resource_per_alloc)

    def ask_ended(self, entry):
        self.asks.pop(entry.ask.key, None)  # one that was to take a placeholder's place has ended

    def allocated(self, entry):
        key = entry.allocation.allocation_key
        assert key not in self.allocations, f"{key} came twice"
        self.allocations[key] = entry.allocation
        if entry.allocation.released:
            self.released[key] = TerminationType.TIMEOUT

    def allocations_found(self, entry):
        for _, allocation in entry.found:
            assert allocation.allocation_key not in self.allocations
            self.allocations[allocation.allocation_key] = allocation

    def run_placed(self, entry):
        for _, ask, allocation in entry.placed:
            del self.asks[ask.key]
            self.allocations[ask.key] = allocation

    def allocation_changed(self, entry):
        self.allocations[entry.allocation.allocation_key] = entry.allocation

    def allocation_released(self, entry):
        self.released[entry.allocation.allocation_key] = entry.why

    def allocation_ended(self, entry):
        key = entry.allocation.allocation_key
        del self.allocations[key]
        self.released.pop(key, None)

    def foreign_changed(self, entry):
        if entry.is_gone:
            del self.foreign[entry.allocation.allocation_key]
        else:
            self.foreign[entry.allocation.allocation_key] = entry.allocation

    def timer_armed(self, entry):
        self.timers[entry.timer.timer_id] = (entry.timer.generation, entry.timer.due_ns)

    def timer_cancelled(self, entry):
        del self.timers[entry.timer_id]

    def timer_spent(self, entry):
        del self.timers[entry.timer_id]

    # --- what it comes to ----------------------------------------------------------------------

    def rows(self):
        return {
            "nodes": {
                name: (without_zeros(n["capacity"]), n["labels"], n["schedulable"])
                for name, n in self.nodes.items()
            },
            "limits": {
                path: (limits.get("max_resource"), limits.get("guaranteed_resource"))
                for path, limits in self.limits.items()
                if any(limit is not None for limit in limits.values())
            },
            "applications": {name: tuple(row) for name, row in self.applications.items()},
            "asks": self.asks,
            "allocations": self.allocations,
            "released": self.released,
            "foreign": self.foreign,
            "reservations": self.reservations,
            "timers": self.timers,
            "groups": self.groups,
            "swaps": {key: row for key, (row, _) in self.swaps.items()},
            "moved": self.moved,
            "promises": {app: amount for app, amount in self.promises.items() if amount},
        }

    def sums(self):
        """Return the ledgers that follow from the rows."""
        found = Sums()
        self._count_allocations(found)
        self._count_asks_and_others(found)
        self._count_kept(found)
        return without_nothing(found)

    def _count_allocations(self, found):
        for key, held in self.allocations.items():
            name, amount = held.application_id, held.resource_per_alloc
            kind = "placeholders" if held.placeholder else "allocated"
            found.count(amount, ("node", held.node_id), (kind, name))
            found.count_up("allocated in", self.path_of(name), amount)
            for owner in self.owners_of(name):
                found.count_up(("used by", owner), self.path_of(name), amount)
            is_preempted = self.released.get(key) == TerminationType.PREEMPTED_BY_SCHEDULER
            if is_preempted and key not in self.moved:
                found.count_up("preempting in", self.path_of(name), amount)

    def _count_asks_and_others(self, found):
        for name, amount in self.asks.values():
            found.count(amount, ("pending of", name))
            found.count_up("pending in", self.path_of(name), amount)
        for held in self.foreign.values():
            found.count(held.resource_per_alloc, ("foreign", held.node_id))
        for (_, _, node, is_placed), amount in self.swaps.values():
            if is_placed:
                found.count(amount, ("node", node))

    def _count_kept(self, found):
        for name, amount in self.promises.items():
            found.count_up("promised in", self.path_of(name), amount)
            for owner in self.owners_of(name):
                found.count_up(("promised to", owner), self.path_of(name), amount)
        for claim, (in_queues, node, on_node) in self.kept.items():
            name = claim.application.id
            found.count_up("kept in", self.path_of(name), in_queues)
            if node in self.nodes_there:
                found.count(on_node, ("kept on", node.node_id))
            for owner in self.owners_of(name) if claim.counts_for_users else ():
                found.count_up(("kept for", owner), self.path_of(name), in_queues)

    def path_of(self, application):
        return self.applications[application][0]

    def owners_of(self, application):
        """Return the user and the group that an application counts for."""
        yield "user", self.applications[application][1]
        if application in self.groups:
            yield "group", self.groups[application]


class Sums(dict):
    """Amounts by what they are sums of."""

    def count(self, amount, *owners):
        for owner in owners:
            add_into(self.setdefault(owner, {}), amount)

    def count_up(self, what, path, amount):
        """Count at a queue and at every one above it."""
        self.count(amount, *((what, above) for above in upwards(path)))


def method_of(entry):
    """Return what reads an entry: ``row_set`` a RowSet."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", entry).lower()


def upwards(path):
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def without_nothing(sums):
    stripped = {owner: without_zeros(amount) for owner, amount in sums.items()}
    return {owner: amount for owner, amount in stripped.items() if amount}


def live_rows(partition):
    apps = partition.applications
    timers = dict(partition.timers)
    for app in apps.values():
        timers |= app.timers
    return {
        "nodes": {
            name: (without_zeros(n.capacity), n.labels, n.schedulable)
            for name, n in partition.nodes.nodes.items()
        },
        "limits": {
            q.path: (q.max_resource, q.guaranteed_resource)
            for q in (partition.root, *partition.queues.values())
            if not (q.max_resource is None and q.guaranteed_resource is None)
        },
        "applications": {
            name: (app.queue.path, app.request.ugi.user, app.state.value)
            for name, app in apps.items()
        },
        "asks": {
            ask.key: (name, ask.request.resource_per_alloc)
            for name, app in apps.items()
            for ask in app.asks()
        },
        "allocations": {key: a for app in apps.values() for key, a in app.allocations.items()},
        "released": {key: why for app in apps.values() for key, why in app.released.items()},
        "foreign": {
            key: held for node in partition.nodes.rows for key, held in node.foreign.items()
        },
        "reservations": {
            key: held.node.node_id
            for app in apps.values()
            for key, held in app.reservations.items()
        },
        "timers": timers,
        "groups": {
            name: tracker.name
            for name, app in apps.items()
            for tracker in app.trackers
            if tracker.is_group
        },
        "swaps": {
            key: (name, swap.ask.key, swap.allocation.node_id, swap.is_placed)
            for name, app in apps.items()
            for key, swap in app.replacing.items()
        },
        "moved": {key: claim.application.id for key, claim in partition.moved.items()},
        "promises": {name: app.promise for name, app in apps.items() if app.promise},
    }


def live_sums(partition):
    """Return the live ledgers."""
    found = {}
    for node in partition.nodes.rows:
        found["node", node.node_id] = node.allocated
        found["foreign", node.node_id] = node.occupied
        found["kept on", node.node_id] = node.reserved
    for name, app in partition.applications.items():
        found["allocated", name], found["pending of", name] = app.allocated, app.pending
        found["placeholders", name] = app.allocated_placeholder
    for queue in partition.queues.values():
        path = queue.path
        found["allocated in", path], found["pending in", path] = queue.allocated, queue.pending
        found["kept in", path], found["promised in", path] = queue.reserved, queue.promised
        found["preempting in", path] = queue.preempting
    for tracker in partition.users.all():
        owner = ("group" if tracker.is_group else "user", tracker.name)
        ledgers = (tracker.usage, tracker.promised, tracker.reserved)
        for what, by_path in zip(("used by", "promised to", "kept for"), ledgers, strict=True):
            found |= {((what, owner), path): amount for path, amount in by_path.items()}
    return without_nothing(found)


class Reader:
    """Reads what a core's journal hands over, from each new partition's beginning."""

    def __init__(self, core):
        self.core, self.report = core, None
        self.listen()

    def listen(self):
        """Read along with the core's report builder: a new one after each recovery."""
        report = self.core.scheduler._reports
        if report is self.report:
            return
        self.report, self.replica = report, Replica()
        read = report.read

        def both(entries):
            entries = list(entries)
            self.replica.read(entries)
            read(entries)

        report.read = both

    def check(self):
        partition = self.core.partition
        replayed, live = self.replica.rows(), live_rows(partition)
        for table, rows in live.items():
            for key in {**rows, **replayed[table]}:
                was, now = replayed[table].get(key), rows.get(key)
                assert was == now, f"{table}: {key} is {now}, the journal says {was}"
        sums, ledgers = self.replica.sums(), live_sums(partition)
        for owner in {**sums, **ledgers}:
            was, now = sums.get(owner), ledgers.get(owner)
            assert was == now, f"{owner} counts {now}, the journal says {was}"


class ReplayedCore:
    """For a Core: its journal is replayed from the first entry on."""

    def send(self, message, *, epoch=None):
        if not hasattr(self, "reader"):
            self.reader = Reader(self)
        self.reader.listen()
        return super().send(message, epoch=epoch)


class ReplaysTheJournal:
    """For a machine with a ``core`` whose journal is replayed."""

    @invariant()
    def the_journal_says_all_that_is(self):
        if hasattr(self, "core"):
            self.core.reader.check()
