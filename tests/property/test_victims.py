"""The index of victims, and the choice made with it, against the laws as they are read."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.model.preemptors import due_at, may_ever
from services.core.scheduler.model.rows import Node, Queue
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.victim_bounds import BoundsTable
from services.core.scheduler.policies import preemption, preemption_choice
from services.core.scheduler.policies.preemption_choice import NoChoice
from services.core.scheduler.policies.preemption_victims import eligible
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.statement import Statement
from shared.messages.constraints import Constraints, HostPort, PodTerm, Requirement
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.model.resources import Resource, add_into, multiply, total_of
from tests.builders import Core, config_of
from tests.property import plain_preemption as plain
from tests.victims import eligible_keys

SIZES = [{"vcore": 1}, {"vcore": 2}, {"vcore": 3, "gpu": 1}, {"gpu": 1}, {"vcore": 5}]
APART = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("x",)),), ("d",))
CONSTRAINTS = [
    Constraints(),
    Constraints(),
    Constraints(),
    Constraints(required_node="n1"),
    Constraints(pod_anti_affinity=(APART,), namespace="d"),
    Constraints(host_ports=(HostPort(80),)),
]
TAGS = [{}, *({"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": v} for v in "xy")]
PROPERTIES = {
    "preemption.policy": ["", "", "", "fence", "disabled"],
    "priority.offset": ["", "", 1, -1],
    "priority.policy": ["", "", "", "fence"],
}
LIMITS = {"guaranteed": [0, 0, 2, 4], "max": [0, 0, 8, 12]}  # milli of vcore, 0: none
LEAVES = ["a", "p.b", "p.c", "q.d", "q.e"]


# --- brute force --------------------------------------------------------------------------------


def check_index(partition: Partition) -> None:
    """See that the index holds what there is, in order, with the right sums."""
    index = partition.victims
    if not index.is_kept:
        return
    by_leaf: dict[Queue, Resource] = {}
    for node in partition.nodes.nodes.values():
        expected, releasing = _victims_on(partition, node)
        here = index.on(node)
        assert [victim.allocation for victim in here.order] == [
            victim.allocation for victim in sorted(expected, key=lambda victim: victim.order)
        ]
        assert here.releasing == releasing
        assert all(here.kinds.values())
        given = total_of(victim.allocation.resource_per_alloc for victim in expected)
        assert total_of(multiply(kind.amount, n) for kind, n in here.kinds.items()) == given
        for victim in expected:
            add_into(by_leaf.setdefault(victim.leaf, {}), victim.allocation.resource_per_alloc)
    assert by_leaf == {
        leaf: total_of(multiply(kind.amount, kind.count) for kind in kinds)
        for leaf, kinds in index.by_leaf.items()
    }
    assert all(kind.leaf is leaf for leaf, kinds in index.by_leaf.items() for kind in kinds)


def _victims_on(
    partition: Partition, node: Node
) -> tuple[list[plain.PlainVictim], dict[str, Allocation]]:
    victims, releasing = [], {}
    for key, allocation in node.allocations.items():
        owner = partition.applications.get(allocation.application_id)
        if owner is None or key not in owner.allocations:
            continue
        if key in owner.released:
            if key not in owner.stuck:  # nobody waits for its room any more
                releasing[key] = allocation
        elif not allocation.constraints.required_node:
            victims.append(plain.PlainVictim(allocation, owner.queue))
    return victims, releasing


def check_turns(partition: Partition) -> None:
    """See that the asks whose time has come have their turn, in order, and the others later."""
    for leaf in [queue for queue in partition.queues.values() if queue.is_leaf]:
        delay_ns = leaf.settings.preemption_delay_ns
        for group in preemption._waiting(leaf):
            asks = sorted(filter(may_ever, group.asks.values()), key=lambda ask: ask.order)
            due = [ask for ask in asks if due_at(ask, delay_ns) <= partition.now_ns]
            later = [due_at(ask, delay_ns) for ask in asks if ask not in due]
            turns = preemption._preemptors(partition, leaf, group)
            taken = turns.take(partition.now_ns, len(asks))
            assert taken == due
            turns.put_back(taken, partition.now_ns)
            assert turns.next_ns == min(later, default=None)


def check_choices(partition: Partition) -> list[object]:
    """See that every ask that waits is given the victims that the laws give it, or the same no."""
    partition.victims.start(partition.applications.values())
    check_index(partition)
    check_turns(partition)
    answers = []
    for application in partition.applications.values():
        for group in application.groups.values():
            for ask in list(group.asks.values())[:3]:
                if not ask.shape.constraints.required_node and not ask.has_preempted:
                    answers.append(_same_answer(partition, application.queue, ask))
    return answers


def _same_answer(partition: Partition, leaf: Queue, ask: Ask) -> object:
    queues = list(partition.queues.values())
    before = [(dict(queue.preempting), dict(queue.reserved)) for queue in queues]
    victims = plain.eligible_victims(partition, leaf, ask)
    found = eligible(partition, leaf, ask)
    keys = sorted(victim.allocation.allocation_key for victim in victims)
    assert sorted(eligible_keys(partition, ask)) == keys
    wanted = plain.choose_victims(partition, leaf, ask, victims)
    with Statement(partition, alone=True) as trial:
        is_owed = preemption.guarantees_hold(trial, leaf, ask, found)
        chosen = preemption_choice.choose_victims(trial, leaf, ask, found)
    assert is_owed == plain.guarantees_hold(leaf, ask, victims)
    assert [(dict(queue.preempting), dict(queue.reserved)) for queue in queues] == before
    if isinstance(wanted, NoChoice):
        assert chosen is wanted
        return wanted
    assert not isinstance(chosen, NoChoice), f"{chosen} instead of victims"
    node, taken = wanted
    assert chosen[0] is node
    assert [v.key for v in chosen[1]] == [v.allocation.allocation_key for v in taken]
    return node


# --- clusters -----------------------------------------------------------------------------------


@st.composite
def queues(draw):
    """Draw a tree of queues with fences, offsets, maxima and guarantees."""

    def one(name, below=""):
        properties, resources = ["preemption.delay: 1s"], []
        for key, values in PROPERTIES.items():
            value = draw(st.sampled_from(values))
            properties += [f"{key}: '{value}'"] if value else []
        for kind, sizes in LIMITS.items():
            vcore = draw(st.sampled_from(sizes))
            gpu = f", gpu: {vcore // 2}" if draw(st.booleans()) else ""
            resources += [f"{kind}: {{vcore: {vcore}m{gpu}}}"] if vcore else []
        more = f", queues: [{below}]" if below else ""
        return "{name: %s, properties: {%s}, resources: {%s}%s}" % (
            name, ", ".join(properties), ", ".join(resources), more
        )  # fmt: skip

    p = one("p", f"{one('b')}, {one('c')}")
    q = one("q", f"{one('d')}, {one('e')}")
    return config_of(one("a"), p, q)


pods = st.fixed_dictionaries(
    {
        "leaf": st.sampled_from(LEAVES),
        "size": st.sampled_from(SIZES),
        "priority": st.sampled_from([0, 0, 1, 5]),
        "originator": st.sampled_from([False, False, True]),
        "allow_preempt_self": st.sampled_from([True, True, False]),
        "constraints": st.sampled_from(CONSTRAINTS),
        "tags": st.sampled_from(TAGS),
        "created": st.integers(1, 6),
    }
)
steps = st.one_of(
    st.tuples(st.just("ask"), pods),
    st.tuples(st.just("ask"), pods),
    st.tuples(st.just("ask"), pods),
    st.tuples(st.just("look"), st.integers(1, 40)),
    st.tuples(st.just("confirm"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("resize"), st.integers(0, 20), st.sampled_from(SIZES)),
    st.tuples(st.just("node goes"), st.integers(0, 3)),
)


class Cluster:
    """A cluster that is driven step by step."""

    def __init__(self, config: str, nodes: list[int]) -> None:
        self.core = Core(config)
        self.count = 0
        for at, vcore in enumerate(nodes):
            self.add_node(f"n{at}", vcore)
        for leaf in LEAVES:
            self.core.application(leaf, f"root.{leaf}")

    def add_node(self, name: str, vcore: int) -> None:
        labels = {"kubernetes.io/hostname": name}
        capacity = {"vcore": vcore, "gpu": 2}
        self.core.update(nodes=(NodeInfo(name, NodeAction.CREATE, capacity, labels=labels),))

    def do(self, name, *values) -> None:
        getattr(self, name.replace(" ", "_"))(*values)

    def _fields(self, pod) -> dict:
        return {
            "priority": pod["priority"],
            "originator": pod["originator"],
            "allow_preempt_self": pod["allow_preempt_self"],
            "constraints": pod["constraints"],
            "allocation_tags": pod["tags"],
            "create_time_ns": self.core.now_ns + pod["created"] - 10,
        }

    def ask(self, pod) -> None:
        self.count += 1
        asked = AllocationAsk(f"k{self.count}", pod["leaf"], pod["size"], **self._fields(pod))
        self.core.update(asks=(asked,))

    def exists(self, pod, node) -> None:
        """Let a pod exist, whatever the node and its queue have."""
        self.count += 1
        nodes = sorted(self.core.partition.nodes.nodes)
        if nodes:
            at = nodes[node % len(nodes)]
            key = f"k{self.count}"
            held = Allocation(key, pod["leaf"], at, pod["size"], **self._fields(pod))
            self.core.update(allocations=(held,))

    def look(self, seconds) -> None:
        self.core.now_ns += seconds * 1_000_000_000
        if "preemption" in self.core.partition.timers:
            self.core.fire_own("preemption")

    def _allocations(self, *, released: bool) -> list[tuple[str, str]]:
        applications = self.core.partition.applications.values()
        return sorted(
            (app.id, key)
            for app in applications
            for key in app.allocations
            if (key in app.released) == released
        )

    def confirm(self, at) -> None:
        self._release(at, TerminationType.PREEMPTED_BY_SCHEDULER, released=True)

    def end(self, at) -> None:
        self._release(at, TerminationType.STOPPED_BY_RM, released=False)

    def _release(self, at, why, *, released) -> None:
        found = self._allocations(released=released)
        if found:
            application, key = found[at % len(found)]
            self.core.update(releases=(AllocationRelease(application, key, why),))

    def resize(self, at, size) -> None:
        found = self._allocations(released=False)
        if found:
            name, key = found[at % len(found)]
            held = self.core.partition.applications[name].allocations[key]
            fields = {f: getattr(held, f) for f in held.__dataclass_fields__}
            self.core.update(allocations=(Allocation(**fields | {"resource_per_alloc": size}),))

    def node_goes(self, at) -> None:
        """Take a node away, and let one of its name come back."""
        nodes = sorted(self.core.partition.nodes.nodes)
        if nodes:
            name = nodes[at % len(nodes)]
            vcore = self.core.partition.nodes.nodes[name].capacity["vcore"]
            self.core.update(nodes=(NodeInfo(name, NodeAction.DECOMISSION),))
            self.add_node(name, vcore)


@given(
    config=queues(),
    nodes=st.lists(st.sampled_from([4, 6, 9]), min_size=1, max_size=4),
    there=st.lists(st.tuples(pods, st.integers(0, 3)), min_size=5, max_size=20),
    done=st.lists(steps, min_size=4, max_size=20),
)
def test_the_index_answers_as_the_laws_are_read(config, nodes, there, done):
    cluster = Cluster(config, nodes)
    for pod, node in there:
        cluster.exists(pod, node)
    for step in done:
        cluster.do(*step)
        check_choices(cluster.core.partition)
        cluster.core.check()


def bounds_of(partition: Partition) -> list[list[int]]:
    """Return the bounds of all nodes for all kinds, as they are kept."""
    kinds = tuple(kind for of_leaf in partition.victims.by_leaf.values() for kind in of_leaf)
    bounds = partition.victims.bounds(("gpu", "vcore"), kinds)
    parts = (*bounds.room, *bounds.reach, *bounds.largest, bounds.first[0], bounds.first[1])
    return [part.tolist() for part in parts]


def fresh_bounds(partition: Partition) -> list[list[int]]:
    """Return the same, made from nothing."""
    kept, partition.victims._bounds = partition.victims._bounds, BoundsTable()
    found = bounds_of(partition)
    partition.victims._bounds = kept
    return found


@given(
    there=st.lists(st.tuples(pods, st.integers(0, 3)), min_size=3, max_size=12),
    data=st.data(),
)
def test_the_index_follows_an_open_statement_and_its_end(there, data):
    cluster = Cluster(config_of("{name: a}", "{name: p, queues: [{name: b}, {name: c}]}",
                                "{name: q, queues: [{name: d}, {name: e}]}"), [6, 9, 4])  # fmt: skip
    for pod, node in there:
        cluster.exists(pod, node)
    cluster.ask({**there[0][0], "constraints": Constraints(), "size": {"vcore": 30}})
    partition = cluster.core.partition
    partition.victims.start(partition.applications.values())
    nodes = list(partition.nodes.nodes.values())
    order = [[*partition.victims.on(node).order] for node in nodes]
    before = bounds_of(partition)
    waiting = partition.applications[there[0][0]["leaf"]]
    asks = [ask for group in waiting.groups.values() for ask in group.asks.values()]
    with Statement(partition, alone=True) as trial:
        marks = [trial.checkpoint()]
        found = [victim.allocation for here in order for victim in here]
        for allocation in (
            data.draw(st.lists(st.sampled_from(found), unique_by=id)) if found else []
        ):
            trial.evict(partition.applications[allocation.application_id], allocation, "")
            assert bounds_of(partition) == fresh_bounds(partition)
            marks.append(trial.checkpoint())
        for ask in asks:
            trial.pipeline(waiting, ask, data.draw(st.sampled_from(nodes)))
        assert bounds_of(partition) == fresh_bounds(partition)
        trial.rollback(data.draw(st.sampled_from(marks)))
        assert bounds_of(partition) == fresh_bounds(partition)
    assert [partition.victims.on(node).order for node in nodes] == order
    assert bounds_of(partition) == before == fresh_bounds(partition)
    check_index(partition)
