"""What the API was told, beside what is: its read model after every step, and a fresh one.

What may differ: how often, and when last, a text of an ask's log was said (rule 3 of
``allocation_log``).
"""

from dataclasses import replace

from hypothesis.stateful import invariant

from services.api.projection import Projection
from services.api.yunikorn.usage import groups_info, users_info
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.state import StateDelta


def read(projection, delta, epoch, seq, now_ns):
    message = Envelope("m", "StateDelta", delta, API_ALL, "core", epoch=epoch, seq=seq)
    projection.handle(message, now_ns)


def texts(asks):
    return {
        key: (replace(ask, log=()), {line.message for line in ask.log}) for key, ask in asks.items()
    }


def values(projection):
    """Return all values of a read model, without its memory of what has been."""
    model = projection.model
    return {
        "partition": model.partition,
        "queues": model.queues,
        "refusals": {path: held.by_asks for path, held in model.refusals.items() if held.by_asks},
        "users": model.users,
        "groups": model.groups,
        "nodes": {
            name: (view.state, view.allocations, view.foreign) for name, view in model.nodes.items()
        },
        "applications": {
            name: (view.summary, texts(view.asks), view.allocations)
            for name, view in model.applications.items()
        },
    }


def differences(told, present):
    """Yield what was told otherwise than it is: the table, the row, both values."""
    for table, rows in present.items():
        was = told[table]
        if table == "partition":
            if was != rows:
                yield table, was, rows
            continue
        for name in {**was, **rows}:
            if was.get(name) != rows.get(name):
                yield table, name, was.get(name), rows.get(name)


def running(usage):
    """Yield each queue of a usage answer with the applications that it says run there."""
    yield usage["queuePath"], set(usage.get("runningApplications", ()))
    for child in usage.get("children", ()):
        yield from running(child)


def answered(model):
    """Return whose the applications are, and where they run, as users and groups are answered."""
    users = users_info(model, model.users.values())
    groups = groups_info(model, model.groups.values())
    return (
        {at["userName"]: (at.get("groups", {}), dict(running(at["queues"]))) for at in users},
        {at["groupName"]: (set(at["applications"]), dict(running(at["queues"]))) for at in groups},
    )


def counted(partition):
    """Return the same as the core counts it."""

    def runs(tracker):
        return {path: set(names) for path, names in tracker.running.items()} or {"root": set()}

    users, groups = partition.users.users, partition.users.groups
    return (
        {
            name: ({app: group for app, group in at.links.items() if group}, runs(at))
            for name, at in users.items()
        },
        {name: (set(at.links), runs(at)) for name, at in groups.items()},
    )


class Listener:
    """The API's read model of one core, from what it has said."""

    def __init__(self, core):
        self.core, self.heard = core, 0
        self.projection = Projection("a")

    def check(self):
        """Read what is new, and compare it with what a snapshot would say now."""
        core = self.core
        for out in core.answers[self.heard :]:
            if isinstance(out.message, StateDelta) and out.to == API_ALL:
                read(self.projection, out.message, out.epoch, out.seq, core.now_ns)
        self.heard = len(core.answers)
        assert self.projection.is_ready, "a delta was lost"
        fresh = Projection("b")
        snapshot = core.scheduler.snapshot()
        read(fresh, snapshot, self.projection.epoch, 0, core.now_ns)
        found = list(differences(values(self.projection), values(fresh)))
        assert not found, found[0]
        assert answered(self.projection.model) == counted(core.partition)


class ListensAsTheAPI:
    """For a machine with a ``core``: what it says to the API is what a snapshot would say."""

    @invariant()
    def what_was_told_is_what_is(self):
        if not hasattr(self, "core"):
            return
        if getattr(self, "listener", None) is None or self.listener.core is not self.core:
            self.listener = Listener(self.core)
        self.listener.check()
