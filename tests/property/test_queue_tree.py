"""Random queue trees, loads and reloads against a reference that is slow and obvious.

The reference knows the rules of docs/rules/scheduling.md as one reads them: every decision
looks at every queue, application and ask again. What the scheduler places, in which order, must be
the same; so must headrooms, shares and priorities.
"""

from dataclasses import dataclass, field

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from services.core.configuration import parse_configuration
from services.core.scheduler.ordering.turns import fair_max_of, fair_share
from shared.messages.interface import (
    AllocationAsk,
    NodeAction,
    NodeInfo,
    UpdateConfiguration,
    UpdateResponse,
)
from shared.messages.state import StateDelta
from tests.builders import Core

UNSET = -(2**31)
CLUSTER = {"vcore": 12_000, "memory": 60, "pods": 40}


# --- the reference ------------------------------------------------------------------------------


@dataclass
class Ref:
    """A queue of the reference: its own configuration and what is in it."""

    path: str
    limit: dict | None = None
    guaranteed: dict = field(default_factory=dict)
    properties: dict = field(default_factory=dict)
    children: list = field(default_factory=list)
    apps: list = field(default_factory=list)

    def all_apps(self):
        return self.apps + [app for child in self.children for app in child.all_apps()]

    def sum(self, what):
        total = {}
        for app in self.all_apps():
            for ask in getattr(app, what):
                for name, value in ask.resource.items():
                    total[name] = total.get(name, 0) + value
        return total

    def priority(self):
        if self.children:
            inner = max((child.priority() for child in self.children), default=UNSET)
        else:
            inner = max((app.priority() for app in self.apps), default=UNSET)
        if inner == UNSET:
            return UNSET
        offset = int(self.properties.get("priority.offset", "0"))
        if self.properties.get("priority.policy") == "fence":
            return offset
        return max(UNSET, min(2**31 - 1, inner + offset))

    def share(self, above):
        fair_max = {**above, **(self.limit or {})}
        shares = [0.0]
        for name, value in self.sum("placed").items():
            whole = self.guaranteed.get(name, fair_max.get(name))
            if whole is not None:
                shares.append(value / whole if whole else float(value > 0))
        return max(shares)

    def by_priority(self):
        return self.properties.get("application.sort.priority") != "disabled"


@dataclass
class App:
    name: str
    number: int
    waiting: list = field(default_factory=list)
    placed: list = field(default_factory=list)

    def priority(self):
        return max((ask.priority for ask in self.waiting), default=UNSET)


@dataclass
class Ask:
    key: str
    resource: dict
    priority: int
    number: int


def order_of_apps(queue):
    def key(app):
        priority = -app.priority()
        if queue.properties.get("application.sort.policy") == "fair":
            used = {}
            for ask in app.placed:
                for name, value in ask.resource.items():
                    used[name] = used.get(name, 0) + value
            shares = [
                v / queue.guaranteed[n] if queue.guaranteed.get(n, 0) > 0 else float(v)
                for n, v in used.items()
            ]
            other = tuple(sorted(shares, reverse=True))
        else:
            other = app.number
        first = (priority, other) if queue.by_priority() else (other, priority)
        return (*first, app.number)

    return sorted((app for app in queue.apps if app.waiting), key=key)


def headroom(lineage):
    room = {}
    for queue in lineage:
        used = queue.sum("placed")
        for name, most in (queue.limit or {}).items():
            left = most - used.get(name, 0)
            room[name] = min(room.get(name, left), left)
    return room


def next_placement(queue, lineage, above):
    """Return (app, ask) that is placed next below a queue, trying everything in order."""
    lineage = [*lineage, queue]
    fair_max = {**above, **(queue.limit or {})}
    if not queue.children:
        room = headroom(lineage)
        for app in order_of_apps(queue):
            for ask in sorted(app.waiting, key=lambda a: (-a.priority, a.number)):
                if all(value <= room.get(name, value) for name, value in ask.resource.items()):
                    return app, ask
        return None

    def key(child):
        share, priority = child.share(fair_max), -child.priority()
        first = (priority, share) if queue.by_priority() else (share, priority)
        return (*first, -sum(child.sum("waiting").values()), child.path)

    for child in sorted((c for c in queue.children if c.sum("waiting")), key=key):
        found = next_placement(child, lineage, fair_max)
        if found is not None:
            return found
    return None


def place_all(root):
    keys = []
    while True:
        found = next_placement(root, [], {})
        if found is None:
            return keys
        app, ask = found
        app.waiting.remove(ask)
        app.placed.append(ask)
        keys.append(ask.key)


# --- trees and loads ----------------------------------------------------------------------------

properties = st.fixed_dictionaries(
    {},
    optional={
        "priority.offset": st.sampled_from(["0", "3", "-2", "2147483647"]),
        "priority.policy": st.sampled_from(["default", "fence"]),
        "application.sort.priority": st.sampled_from(["enabled", "disabled"]),
        "application.sort.policy": st.sampled_from(["fifo", "fair"]),
    },
)


def amounts(vcore, memory):
    """Return amounts that fit into each other: guaranteed below max below the parent's max."""
    return st.fixed_dictionaries(
        {},
        optional={
            "vcore": st.integers(*vcore).map(str),
            "memory": st.integers(*memory).map(str),
        },
    )


leaves = st.fixed_dictionaries(
    {
        "properties": properties,
        "max": amounts((4, 10), (15, 40)),
        "guaranteed": amounts((0, 3), (0, 12)),
        "queues": st.just(()),
    }
)
queues = st.one_of(
    leaves,
    st.fixed_dictionaries(
        {
            "properties": properties,
            "max": amounts((10, 12), (40, 60)),
            "guaranteed": st.just({}),
            "queues": st.lists(leaves, min_size=1, max_size=3).map(tuple),
        }
    ),
)
trees = st.lists(queues, min_size=2, max_size=3)
loads = st.lists(
    st.tuples(
        st.integers(0, 8),  # which leaf
        st.lists(
            st.tuples(st.sampled_from([0, 0, 1, 7]), st.integers(1, 4), st.integers(0, 9)),
            min_size=1,
            max_size=4,
        ),
    ),
    min_size=1,
    max_size=6,
)


def as_yaml(tree) -> str:
    def queue(name, spec):
        resources = {kind: spec[kind] for kind in ("max", "guaranteed") if spec[kind]}
        found = {"name": name, "properties": spec["properties"], "resources": resources}
        below = [queue(f"{name}{at}", item) for at, item in enumerate(spec["queues"])]
        return {**found, "queues": below} if below else found

    top = [queue("qrs"[at], spec) for at, spec in enumerate(tree)]
    root = {"name": "root", "submitacl": "*", "queues": top}
    return yaml.safe_dump({"partitions": [{"name": "default", "queues": [root]}]})


def reference_of(config, apps=None) -> Ref:
    """Return the reference's tree; the applications keep their leaves by path."""

    def build(spec, above):
        path = spec.name if not above else f"{above}.{spec.name}"
        queue = Ref(path, spec.max_resource, spec.guaranteed_resource or {}, dict(spec.properties))
        queue.children = [build(child, path) for child in spec.children]
        queue.apps = (apps or {}).get(path, [])
        return queue

    def inherit(queue, inherited):
        """How applications are sorted comes down."""
        own = dict(queue.properties)
        for name, value in inherited.items():
            own.setdefault(name, value)
        queue.properties = own
        sorting = ("application.sort.policy", "application.sort.priority")
        down = {name: own[name] for name in sorting if name in own}
        for child in queue.children:
            inherit(child, down)

    root = build(config.root, "")
    root.limit = dict(CLUSTER)
    inherit(root, {})
    return root


def all_queues(root):
    return [root, *(below for child in root.children for below in all_queues(child))]


def compare(core: Core, root: Ref) -> None:
    above = {}
    for ref in all_queues(root):
        queue = core.partition.queues[ref.path]
        above[ref.path] = {**above.get(ref.path.rpartition(".")[0], {}), **(ref.limit or {})}
        lineage = [
            q for q in all_queues(root) if ref.path == q.path or ref.path.startswith(f"{q.path}.")
        ]
        assert queue.headroom() == headroom(lineage), ref.path
        assert queue.current_priority == ref.priority(), ref.path
        assert fair_max_of(queue) == above[ref.path]
        over = above.get(ref.path.rpartition(".")[0], {})
        assert fair_share(queue, {**over, **(ref.limit or {})}) == ref.share(over), ref.path
    core.check()


def submit(core: Core, root: Ref, load, numbers) -> list[str]:
    """Submit a load to both; return the keys in the order in which the scheduler places them."""
    places = [queue for queue in all_queues(root) if not queue.children and queue.path != "root"]
    asks = []
    for where, wishes in load:
        leaf = places[where % len(places)]
        number = next(numbers)
        core.now_ns += 1_000_000_000
        app = App(f"app-{number}", number)
        core.application(app.name, leaf.path)
        leaf.apps.append(app)
        for priority, vcore, memory in wishes:
            key = f"k{next(numbers)}"
            resource = {"vcore": vcore * 1000, "memory": memory, "pods": 1}
            resource = {name: value for name, value in resource.items() if value}
            app.waiting.append(Ask(key, resource, priority, next(numbers)))
            asks.append(AllocationAsk(key, app.name, resource, priority=priority))
    known = len(core.answers)
    core.update(asks=tuple(asks))
    return placed_by(core.answers[known:])


def placed_by(answers) -> list[str]:
    """Return the keys that were placed, in the order of the decisions.

    Allocations are shown in this order. The resource manager is told the same, but in an order
    that holds for one application only.
    """
    messages = [item.message for item in answers]
    told = [
        new.allocation_key
        for message in messages
        if isinstance(message, UpdateResponse)
        for new in message.new_allocations
    ]
    shown = [
        allocation.allocation_key
        for message in messages
        if isinstance(message, StateDelta)
        for allocation in message.allocations
    ]
    assert sorted(told) == sorted(shown)
    return shown


PLAIN = {"properties": {}, "max": {}, "guaranteed": {}, "queues": ()}


@given(first=trees, second=trees, load=loads, more=loads)
@example([PLAIN] * 2, [PLAIN] * 2, [(0, [(0, 1, 0)])], [(0, [(0, 1, 0)] * 3)])  # decided in a run
@example(  # seed 197767669663290636881382056147649169176
    [PLAIN, {**PLAIN, "max": {"memory": "16"}, "guaranteed": {"memory": "11", "vcore": "0"}}],
    [PLAIN] * 2,
    [(5, [(7, 4, 5), (1, 4, 2), (1, 1, 9), (7, 3, 1)])],
    [(0, [(0, 4, 7)])],
)
def test_what_is_placed_and_in_which_order(first, second, load, more):
    configs = [(text, parse_configuration(text)) for text in map(as_yaml, (first, second))]
    numbers = iter(range(1, 10_000))
    core = Core(configs[0][0])
    core.update(nodes=(NodeInfo("n", NodeAction.CREATE, CLUSTER),))
    root = reference_of(configs[0][1])
    assert submit(core, root, load, numbers) == place_all(root)
    compare(core, root)
    core.send(UpdateConfiguration(configs[1][0]))
    if core.partition.config_error:
        return  # a leaf with applications would have become a parent
    if "cleaner" in core.partition.timers:
        core.fire_own("cleaner")  # a parent becomes a leaf when those below it have gone
    apps = {queue.path: queue.apps for queue in all_queues(root)}
    present = {spec.path for spec in all_queues(reference_of(configs[1][1]))}
    if any(found and path not in present for path, found in apps.items()):
        return  # what drains is tested elsewhere
    root = reference_of(configs[1][1], apps)
    placed_by_reload = place_all(root)
    held = {key for app in core.partition.applications.values() for key in app.allocations}
    assert {ask.key for app in root.all_apps() for ask in app.placed} == held, placed_by_reload
    compare(core, root)
    assert submit(core, root, more, numbers) == place_all(root)
    compare(core, root)


def test_the_reference_places_something():
    """The comparison would be empty if neither placed anything."""
    tree = [PLAIN] * 2
    core = Core(as_yaml(tree))
    core.update(nodes=(NodeInfo("n", NodeAction.CREATE, CLUSTER),))
    root = reference_of(parse_configuration(as_yaml(tree)))
    placed = submit(core, root, [(0, [(0, 1, 1)]), (1, [(7, 1, 1)])], iter(range(100)))
    assert placed == place_all(root)
    assert len(placed) == 2
