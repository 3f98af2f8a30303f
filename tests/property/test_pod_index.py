"""What pods leave open to others, kept as pods and nodes come and go, is what a count anew says."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes import pod_topology
from services.core.scheduler.nodes.filters.base import After
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.nodes.node_view import ELIGIBLE, SELECTED
from shared.messages.constraints import (
    AttachedVolume,
    Constraints,
    HostPort,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from shared.messages.interface import Allocation
from shared.messages.selectors import all_hold, is_tolerated, selects
from tests.soak import examples

NAMESPACES = ("d", "e")
KEYS = ("zone", "host", "rack")
REQUIREMENTS = st.sampled_from(
    [
        Requirement("app", "In", ("x",)),
        Requirement("app", "In", ("x", "y", "x")),
        Requirement("app", "In", ()),
        Requirement("app", "NotIn", ("x",)),
        Requirement("tier", "Exists"),
        Requirement("tier", "In", ("1",)),
        Requirement("app", "DoesNotExist"),
    ]
)
SELECTORS = st.lists(REQUIREMENTS, max_size=2).map(tuple)
TERMS = st.builds(
    PodTerm,
    st.sampled_from(KEYS),
    SELECTORS,
    st.sampled_from([(), ("d",), ("e", "d", "e"), ("*",), ("d", "*")]),
    st.integers(1, 3),
)
SPREADS = st.builds(
    SpreadConstraint,
    st.sampled_from(KEYS),
    st.integers(1, 2),
    st.booleans(),
    SELECTORS,
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
PORTS = st.builds(
    HostPort,
    st.sampled_from([80, 81]),
    st.sampled_from(["TCP", "UDP"]),
    st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]),
)
CLAIMS = st.builds(
    AttachedVolume,
    st.sampled_from(["disk", "files"]),
    st.sampled_from(["c", "e"]),
    st.booleans(),
)
VOLUMES = st.tuples(
    st.lists(st.builds(AttachedVolume, st.sampled_from(["disk", "files"])), max_size=2),
    st.lists(CLAIMS, max_size=2, unique_by=lambda item: (item.driver, item.claim)),
).map(lambda kinds: (*kinds[0], *kinds[1]))
LIMITS = st.sampled_from([{}, {"disk": 2}, {"disk": 1, "files": 3}, {"files": 0}])


def few(items):
    """Choose none, one or two of something: mostly none."""
    return st.one_of(st.just(()), st.just(()), st.lists(items, min_size=1, max_size=2).map(tuple))


CONSTRAINTS = st.builds(
    Constraints,
    node_selector=st.sampled_from([(), (), (("zone", "a"),)]),
    tolerations=st.sampled_from([(), (Toleration("t", "Exists"),)]),
    pod_affinity=few(TERMS),
    pod_anti_affinity=few(TERMS),
    preferred_pods=few(TERMS),
    avoided_pods=few(TERMS),
    spread=few(SPREADS),
    host_ports=few(PORTS),
    volumes=st.one_of(st.just(()), VOLUMES),
    namespace=st.sampled_from(NAMESPACES),
)
X = (Requirement("app", "In", ("x",)),)
# Judged in every run, beside what is drawn: what the counts that are kept can get wrong.
ALWAYS = [
    Constraints(spread=(SpreadConstraint("zone", selector=X),), namespace="d"),
    Constraints(spread=(SpreadConstraint("host", selector=X, min_domains=3),), namespace="d"),
    Constraints(pod_anti_affinity=(PodTerm("rack", X),), namespace="d"),
    Constraints(pod_affinity=(PodTerm("zone", X),), namespace="d"),
    Constraints(host_ports=(HostPort(80),), namespace="d"),
    Constraints(volumes=(AttachedVolume("disk"), AttachedVolume("disk", "c"))),
    Constraints(volumes=(AttachedVolume("files", "e", exclusive=True),)),
]
LABELS = st.one_of(
    st.just({"app": "x"}),
    st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y", "1"])),
)
PODS = st.one_of(
    st.just(Constraints(namespace="d")),
    st.sampled_from([Constraints(host_ports=(HostPort(80),)), ALWAYS[2], *ALWAYS[-2:]]),
    st.builds(Constraints, volumes=VOLUMES),
    CONSTRAINTS,
)
NODE_LABELS = st.fixed_dictionaries(
    {},
    optional={
        "zone": st.sampled_from("abc"),
        "rack": st.sampled_from("rs"),
        "host": st.integers(0, 99).map(str),
    },
)
TAINTS = st.sampled_from([(), (), (Taint("t"),)])


class PodIndexAgainstACount(RuleBasedStateMachine):
    """Pods and nodes come and go; after every step some asks are judged both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.table = NodeTable()
        self.pods: dict[str, Allocation] = {}
        self.asks: list[tuple[Constraints, dict[str, str], str]] = []
        self.waiting: dict[Shape, tuple[tuple[bool, ...], tuple]] = {}
        self.always: list[tuple[Constraints, dict[str, str], str]] = []
        self.made = 0

    @initialize(
        terms=st.sampled_from([3, 1_000]),
        labels=st.lists(NODE_LABELS, max_size=4),
        always=st.lists(st.sampled_from(ALWAYS), max_size=5, unique=True),
    )
    def begin(self, terms, labels, always):
        for item in always:
            self.learn(item)
        self.always = [(item, {"app": "x"}, "d") for item in always]
        self.most_terms, pod_topology.MAX_TERMS = pod_topology.MAX_TERMS, terms
        for item in labels:
            self.add_node(item, (), {"disk": 1})

    def teardown(self):
        pod_topology.MAX_TERMS = getattr(self, "most_terms", pod_topology.MAX_TERMS)

    # --- what comes and goes -----------------------------------------------------------------

    @rule(labels=NODE_LABELS, taints=TAINTS, limits=LIMITS)
    def add_node(self, labels, taints, limits):
        self.made += 1
        node = Node(f"n{self.made}", 0, {"pods": 99}, {}, dict(labels), taints, True)
        node.volume_limits = limits
        self.table.add(node)
        self.nodes_changed()

    @precondition(lambda self: self.table.nodes)
    @rule(data=st.data())
    def remove_node(self, data):
        node = self.node(data)
        self.table.remove(node)
        for key in (*node.allocations, *node.foreign):
            del self.pods[key]
        self.nodes_changed()

    @precondition(lambda self: self.table.nodes)
    @rule(data=st.data(), labels=NODE_LABELS, taints=TAINTS, limits=LIMITS)
    def relabel_node(self, data, labels, taints, limits):
        node = self.node(data)
        self.table.relabel(node, dict(labels), taints, limits)
        self.nodes_changed()

    @precondition(lambda self: self.table.nodes)
    @rule(
        data=st.data(),
        constraints=PODS,
        labels=LABELS,
        namespace=st.sampled_from(NAMESPACES),
        is_foreign=st.booleans(),
    )
    def place(self, data, constraints, labels, namespace, is_foreign):
        self.made += 1
        node = self.node(data)
        pod = Allocation(
            f"p{self.made}",
            "app",
            node.node_id,
            {"pods": 1},
            constraints=constraints,
            allocation_tags=tags_of(labels, namespace),
        )
        self.learn(constraints)
        (self.table.occupy if is_foreign else self.table.place)(node, pod)
        self.pods[pod.allocation_key] = pod

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end(self, data):
        key = data.draw(st.sampled_from(sorted(self.pods)))
        node = self.table.nodes[self.pods.pop(key).node_id]
        if key in node.foreign:
            self.table.vacate(node, key)
        else:
            self.table.free(node, key)

    @precondition(lambda self: self.pods and self.asks)
    @rule(data=st.data())
    def think_of_an_end(self, data):
        key = data.draw(st.sampled_from(sorted(self.pods)))
        ask = data.draw(st.sampled_from(self.asks))
        pod, shape = self.pods[key], self.shape_of(*ask)
        node = self.table.nodes[pod.node_id]
        others = [item for item in self.pods.values() if item is not pod]
        is_open = self.judge(shape, ask, others)[0][node.row]
        is_eligible = bool(self.table.views.of(shape).first[ELIGIBLE][node.row])
        takes = self.table.filters.takes.holds(node, shape, After([pod]))
        assert takes == (is_eligible and is_open)

    @rule(constraints=CONSTRAINTS, labels=LABELS, namespace=st.sampled_from(NAMESPACES))
    def ask(self, constraints, labels, namespace):
        self.learn(constraints)
        self.asks = [*self.asks, (constraints, labels, namespace)][-6:]

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def wait(self, data):
        ask = data.draw(st.sampled_from(self.asks))
        shape = self.shape_of(*ask)
        self.waiting[shape] = (self.answer(shape), ask)
        self.table.pods.waiting.add(shape)

    # --- what holds --------------------------------------------------------------------------

    @invariant()
    def nobody_that_a_change_may_help_is_overlooked(self):
        noted = self.table.pods.waiting.take_noted()
        for shape in noted:
            self.table.pods.waiting.remove(shape)
            del self.waiting[shape]
        for shape, (before, ask) in self.waiting.items():
            now = self.answer(shape)
            assert not any(is_open > was for is_open, was in zip(now, before, strict=True))
            self.waiting[shape] = (now, ask)

    @invariant()
    def judged_as_by_a_count(self):
        for ask in (*self.always, *self.asks):
            shape = self.shape_of(*ask)
            rows, wishes = self.judge(shape, ask, list(self.pods.values()))
            assert self.table.filters.between_pods.mask(shape).tolist() == rows
            first = self.table.views.of(shape).first
            found = self.table.pods.preference(shape, first[ELIGIBLE], first[SELECTED])
            assert [(scores.tolist(), less) for scores, less in found] == wishes

    # --- helpers -----------------------------------------------------------------------------

    def node(self, data):
        return self.table.nodes[data.draw(st.sampled_from(sorted(self.table.nodes)))]

    def learn(self, constraints):
        """Let those whose labels count from now on wait no more: they get another shape."""
        self.table.pods.learn(constraints)
        for shape, (_, ask) in list(self.waiting.items()):
            if self.shape_of(*ask).labels != shape.labels:
                self.table.pods.waiting.remove(shape)
                del self.waiting[shape]

    def nodes_changed(self):
        """Wake everybody whom pods may matter to, as the partition does; others see no pods."""
        self.table.pods.waiting.note_all()
        for shape in (*self.table.pods.waiting.take_noted(), *self.waiting):
            self.table.pods.waiting.remove(shape)
        self.waiting.clear()

    def shape_of(self, constraints, labels, namespace):
        seen = self.table.pods.labels_of(tags_of(labels, namespace))
        return Shape("s", {"pods": 1}, constraints, seen)

    def answer(self, shape):
        return tuple(self.table.filters.between_pods.mask(shape).tolist())

    def judge(self, shape, ask, pods):
        """Judge every row by counting the pods anew; return what is open, and the preferences."""
        return Judge(self.table, pods, *ask).answer()


class Judge:
    """The rules of Kubernetes, by looking at every pod."""

    def __init__(self, table, pods, constraints, labels, namespace):
        self.nodes = sorted(table.nodes.values(), key=lambda node: node.row)
        self.on = {node.node_id: node for node in self.nodes}
        self.pods = pods
        self.wants = constraints
        self.me = Allocation("me", "app", "", {}, allocation_tags=tags_of(labels, namespace))

    def answer(self):
        rows = [self.is_open(node) for node in self.nodes]
        wishes = []
        signed = [(term, 1) for term in self.wants.preferred_pods]
        signed += [(term, -1) for term in self.wants.avoided_pods]
        if signed:
            scores = [
                sum(sign * t.weight * self.near(node, t, self.wants) for t, sign in signed)
                for node in self.nodes
            ]
            wishes.append((scores, False))
        soft = [item for item in self.wants.spread if not item.hard]
        if soft:
            scores = [sum(self.near(node, t, self.wants) for t in soft) for node in self.nodes]
            wishes.append((scores, True))
        return rows, wishes

    def is_open(self, node):
        wants = self.wants
        if any(self.near(node, term, wants) for term in wants.pod_anti_affinity):
            return False
        for pod in self.pods:
            for term in pod.constraints.pod_anti_affinity:
                shared = self.same_domain(node, self.on[pod.node_id], term.topology_key)
                if shared and matches(term, pod.constraints, self.me):
                    return False
        return (
            self.is_near(node)
            and self.is_even(node)
            and self.takes_volumes(node)
            and not any(
                wanted.port == port.port
                and wanted.protocol == port.protocol
                and (wanted.ip == port.ip or "0.0.0.0" in (wanted.ip, port.ip))
                for pod in self.pods
                if pod.node_id == node.node_id
                for port in pod.constraints.host_ports
                for wanted in wants.host_ports
            )
        )

    def takes_volumes(self, node):
        wanted = self.wants.volumes
        everywhere = {
            (item.driver, item.claim) for pod in self.pods for item in pod.constraints.volumes
        }
        if any(item.exclusive and (item.driver, item.claim) in everywhere for item in wanted):
            return False
        there = [
            item
            for pod in self.pods
            if pod.node_id == node.node_id
            for item in pod.constraints.volumes
        ]
        for driver in {item.driver for item in wanted}:
            before, after = (
                sum(not item.claim for item in found if item.driver == driver)
                + len({item.claim for item in found if item.driver == driver and item.claim})
                for found in (there, [*there, *wanted])
            )
            if before < after > node.volume_limits.get(driver, 99):
                return False
        return True

    def is_near(self, node):
        terms = self.wants.pod_affinity
        if all(term.topology_key in node.labels for term in terms) and not any(
            matches(term, self.wants, pod) for term in terms for pod in self.pods
        ):
            return all(matches(term, self.wants, self.me) for term in terms)
        return all(self.near(node, term, self.wants) for term in terms)

    def is_even(self, node):
        hard = [item for item in self.wants.spread if item.hard]
        with_keys = [n for n in self.nodes if all(item.topology_key in n.labels for item in hard)]
        if node not in with_keys:
            return False
        for item in hard:
            counts = {}
            for other in with_keys:
                is_selected = selects(self.wants, other.node_id, other.labels)
                if item.honor_affinity and not is_selected:
                    continue
                if item.honor_taints and not is_tolerated(self.wants, other.taints):
                    continue  # each policy for itself, as Kubernetes has it
                domain = other.labels[item.topology_key]
                counts[domain] = counts.get(domain, 0) + sum(
                    pod.node_id == other.node_id and matches(item, self.wants, pod)
                    for pod in self.pods
                )
            least = min(counts.values()) if len(counts) >= item.min_domains else 0
            mine = counts.get(node.labels[item.topology_key], 0)
            if mine + matches(item, self.wants, self.me) - least > item.max_skew:
                return False
        return True

    def near(self, node, term, owner):
        return sum(
            matches(term, owner, pod)
            for pod in self.pods
            if self.same_domain(node, self.on[pod.node_id], term.topology_key)
        )

    def same_domain(self, one, other, key):
        return key in one.labels and one.labels.get(key) == other.labels.get(key)


def matches(term, owner, pod):
    """Return whether a term of somebody's constraints matches a pod."""
    tags = pod.allocation_tags
    namespaces = getattr(term, "namespaces", ()) or (owner.namespace,)
    if "*" not in namespaces and tags[pod_topology.NAMESPACE_TAG] not in namespaces:
        return False
    start = pod_topology.LABEL_TAG
    labels = {key[len(start) :]: value for key, value in tags.items() if key.startswith(start)}
    return all_hold(term.selector, labels)


def tags_of(labels, namespace):
    tags = {f"{pod_topology.LABEL_TAG}{key}": value for key, value in labels.items()}
    return {pod_topology.NAMESPACE_TAG: namespace, **tags}


TestPodIndex = PodIndexAgainstACount.TestCase
TestPodIndex.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


def test_a_spread_that_honors_taints_alone_is_counted_where_no_node_is():
    state = PodIndexAgainstACount()
    state.begin(terms=3, labels=[], always=[])
    spread = SpreadConstraint("zone", 1, True, (), 1, False, True)
    state.ask(constraints=Constraints(spread=(spread,)), labels={"app": "x"}, namespace="d")
    state.judged_as_by_a_count()
    state.teardown()


TAINTS_ALONE = SpreadConstraint("zone", 1, True, (), 1, False, True)


class Drawn:
    """What a rule draws, in its order: a found example's."""

    def __init__(self, *values):
        self.values = list(values)

    def draw(self, _strategy):
        return self.values.pop(0)


def place_x(state, node_id):
    """Place a pod that the spreads below count."""
    state.place(
        constraints=Constraints(namespace="d"),
        data=Drawn(node_id),
        is_foreign=False,
        labels={"app": "x"},
        namespace="d",
    )


def ask_in_zone_a(state, *spread):
    """Ask, with some spreads, for nodes of zone a alone."""
    wants = Constraints(node_selector=(("zone", "a"),), spread=spread, namespace="d")
    state.ask(constraints=wants, labels={"app": "x"}, namespace="d")


def test_found_a_spread_that_honors_taints_counts_zones_that_the_selector_leaves_out():
    state = PodIndexAgainstACount()
    state.begin(terms=3, labels=[{}, {}, {"zone": "a"}, {"zone": "b"}], always=[])
    for gone in ("n1", "n2"):
        state.remove_node(data=Drawn(gone))
    place_x(state, "n3")
    ask_in_zone_a(state, TAINTS_ALONE)
    state.judged_as_by_a_count()
    assert list(state.answer(state.shape_of(*state.asks[-1]))) == [True, False]  # n4, n3
    state.teardown()


def test_found_a_hard_and_a_soft_spread_over_one_zone_after_an_end_was_supposed():
    state = PodIndexAgainstACount()
    state.begin(terms=3, labels=[{"zone": "b"}], always=[])
    plain = (Constraints(namespace="d"), {"app": "x"}, "d")
    state.ask(*plain)
    state.judged_as_by_a_count()
    state.add_node(labels={"zone": "a"}, limits={}, taints=())
    state.judged_as_by_a_count()
    state.ask(*plain)
    place_x(state, "n1")
    state.judged_as_by_a_count()
    state.think_of_an_end(data=Drawn("p3", plain))
    state.judged_as_by_a_count()
    ask_in_zone_a(state, SpreadConstraint("zone", 1, False, (), 1, False, False), TAINTS_ALONE)
    state.judged_as_by_a_count()
    assert list(state.answer(state.shape_of(*state.asks[-1]))) == [False, True]
    state.teardown()
