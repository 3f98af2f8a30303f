"""Where an ask may go: the answers of the Kubernetes documentation, through the whole scheduler."""

import pytest

from shared.messages.constraints import (
    AttachedVolume,
    Constraints,
    HostPort,
    NodeTerm,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from shared.messages.interface import (
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.messages.state import StateDelta
from shared.model.reasons import Reason
from shared.model.sentences import text_of
from tests.builders import Core, config_of, section

ZONE, HOST = "zone", "kubernetes.io/hostname"
APP_X = (Requirement("app", "In", ("x",)),)


class Cluster:
    """A core with nodes n1, n2, ... in zones, and pods with labels."""

    def __init__(self, *zones: str, vcore: int = 10_000, taints: tuple = ()) -> None:
        self.core = Core(config_of("{name: a}"))
        self.core.application("app", "root.a")
        for at, zone in enumerate(zones, start=1):
            self.add(f"n{at}", zone, vcore=vcore, taints=taints)

    def add(self, name: str, zone: str, *, vcore: int = 10_000, taints: tuple = ()) -> None:
        labels = {HOST: name, **({ZONE: zone} if zone else {})}
        info = NodeInfo(name, NodeAction.CREATE, {"vcore": vcore, "pods": 100}, {}, labels, taints)
        self.core.update(nodes=(info,))

    def limit(self, name: str, **limits: int) -> list[tuple[str, str]]:
        """Say how many volumes a node takes, by driver; return who is placed then, and where."""
        node = self.core.partition.nodes.nodes[name]
        info = NodeInfo(name, NodeAction.UPDATE, {}, {}, node.labels, volume_limits=limits)
        placed = section(self.core.update(nodes=(info,)), "new_allocations")
        return [(item.allocation_key, item.node_id) for item in placed]

    def pod(self, key: str, labels: dict | None = None, /, vcore: int = 1000, **constraints):
        """Ask for a pod; return its node, or None when it waits."""
        tags = {"kubernetes.io/meta/namespace": "d"}
        tags |= {f"kubernetes.io/label/{name}": value for name, value in (labels or {}).items()}
        ask = AllocationAsk(
            key,
            "app",
            {"vcore": vcore, "pods": 1},
            allocation_tags=tags,
            constraints=Constraints(namespace="d", **constraints),
        )
        placed = section(self.core.update(asks=(ask,)), "new_allocations")
        self.core.check()
        return placed[0].node_id if placed else None

    def why(self, key: str):
        """Return why a pod waits."""
        asks = self.core.partition.applications["app"].asks()
        shape = next(ask.shape for ask in asks if ask.key == key)
        return self.core.partition.nodes.room.refusal(shape)

    def end(self, key: str) -> list[tuple[str, str]]:
        """End a pod; return who is placed then, and where."""
        release = AllocationRelease("app", key, TerminationType.STOPPED_BY_RM)
        placed = section(self.core.update(releases=(release,)), "new_allocations")
        self.core.check()
        return [(item.allocation_key, item.node_id) for item in placed]


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (Requirement("k", "In", ("a", "b")), True),
        (Requirement("k", "In", ("b",)), False),
        (Requirement("none", "In", ("a",)), False),
        (Requirement("k", "NotIn", ("b",)), True),
        (Requirement("k", "NotIn", ("a",)), False),
        (Requirement("none", "NotIn", ("a",)), True),
        (Requirement("k", "Exists"), True),
        (Requirement("none", "Exists"), False),
        (Requirement("none", "DoesNotExist"), True),
        (Requirement("k", "DoesNotExist"), False),
        (Requirement("size", "Gt", ("4",)), True),
        (Requirement("size", "Gt", ("5",)), False),
        (Requirement("size", "Lt", ("6",)), True),
        (Requirement("k", "Gt", ("1",)), False),
        (Requirement("none", "Lt", ("1",)), False),
        (Requirement("odd", "Gt", ("1",)), False),  # 1_0 is a label, and no number
        (Requirement("huge", "Gt", ("1",)), False),  # nor is what int64 does not hold
        (Requirement("plus", "Gt", ("4",)), True),
    ],
)
def test_node_affinity_expressions(requirement, matches):
    cluster = Cluster()
    labels = {"k": "a", "size": "5", "odd": "1_0", "huge": "9" * 19, "plus": "+5"}
    info = NodeInfo("n1", NodeAction.CREATE, {"vcore": 1000, "pods": 1}, {}, labels)
    cluster.core.update(nodes=(info,))
    found = cluster.pod("p", node_terms=(NodeTerm((requirement,)),))
    assert (found == "n1") is matches


def test_node_terms_are_alternatives_and_an_empty_one_matches_nothing():
    cluster = Cluster("a", "b")
    in_b = NodeTerm((Requirement(ZONE, "In", ("b",)),))
    in_c = NodeTerm((Requirement(ZONE, "In", ("c",)),))
    assert cluster.pod("p1", node_terms=(in_c, in_b)) == "n2"
    assert cluster.pod("p2", node_terms=(in_c,)) is None
    assert cluster.pod("p3", node_terms=(NodeTerm(),)) is None
    by_name = NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    assert cluster.pod("p4", node_terms=(by_name,)) == "n1"


def test_preferred_nodes_come_first_and_are_no_condition():
    cluster = Cluster("a", "b", vcore=2000)
    likes_b = (NodeTerm((Requirement(ZONE, "In", ("b",)),), weight=10),)
    placed = [cluster.pod(f"p{at}", preferred_nodes=likes_b) for at in range(4)]
    assert placed == ["n2", "n2", "n1", "n1"]


def test_the_heavier_preference_wins():
    cluster = Cluster("a", "b")
    wishes = (
        NodeTerm((Requirement(ZONE, "In", ("a",)),), weight=1),
        NodeTerm((Requirement(ZONE, "In", ("b",)),), weight=100),
    )
    assert cluster.pod("p", preferred_nodes=wishes) == "n2"


def test_taints_and_tolerations():
    cluster = Cluster("a", taints=(Taint("gpu", "yes"),))
    assert cluster.pod("p1") is None
    assert cluster.pod("p2", tolerations=(Toleration("gpu", "Equal", "no"),)) is None
    assert cluster.pod("p3", tolerations=(Toleration("gpu", "Equal", "yes"),)) == "n1"
    assert cluster.pod("p4", tolerations=(Toleration("", "Exists"),)) == "n1"
    hard = (Toleration("gpu", "Exists", effect="NoExecute"),)
    assert cluster.pod("p5", tolerations=hard) is None


def test_a_soft_taint_is_avoided_while_there_is_another_node():
    cluster = Cluster("a", vcore=1000, taints=(Taint("busy", effect="PreferNoSchedule"),))
    cluster.add("n2", "b", vcore=1000)
    assert [cluster.pod("p1"), cluster.pod("p2")] == ["n2", "n1"]


# --- pods ---------------------------------------------------------------------------------------


def test_anti_affinity_keeps_pods_apart_and_lets_them_in_when_one_ends():
    cluster = Cluster("a", "a", "b")
    apart = (PodTerm(ZONE, APP_X),)
    placed = [cluster.pod(f"p{at}", {"app": "x"}, pod_anti_affinity=apart) for at in range(3)]
    assert placed == ["n1", "n3", None]
    assert cluster.end("p0") == [("p2", "n1")]


def test_anti_affinity_holds_the_other_way_round():
    cluster = Cluster("a", "b")
    assert cluster.pod("keeper", pod_anti_affinity=(PodTerm(ZONE, APP_X),)) == "n1"
    assert cluster.pod("x1", {"app": "x"}) == "n2"
    assert cluster.pod("x2", {"app": "x"}) == "n2"
    assert cluster.pod("y", {"app": "y"}) == "n1"


def test_a_node_without_the_key_is_nobodys_domain():
    cluster = Cluster("", vcore=10_000)
    apart = (PodTerm(ZONE, APP_X),)
    placed = [cluster.pod(f"p{at}", {"app": "x"}, pod_anti_affinity=apart) for at in range(2)]
    assert placed == ["n1", "n1"]
    assert cluster.pod("near", {"app": "x"}, pod_affinity=(PodTerm(ZONE, APP_X),)) is None


def test_affinity_follows_and_waits():
    cluster = Cluster("a", "b")
    near = (PodTerm(ZONE, APP_X),)
    assert cluster.pod("waits", pod_affinity=near) is None
    in_b = (("zone", "b"),)
    placed = cluster.core.update(
        asks=(
            AllocationAsk(
                "x",
                "app",
                {"vcore": 1000, "pods": 1},
                allocation_tags={
                    "kubernetes.io/meta/namespace": "d",
                    "kubernetes.io/label/app": "x",
                },
                constraints=Constraints(node_selector=in_b),
            ),
        )
    )
    nodes = {a.allocation_key: a.node_id for a in section(placed, "new_allocations")}
    assert nodes == {"x": "n2", "waits": "n2"}
    cluster.core.check()


def test_the_first_of_a_group_may_start_where_it_likes():
    cluster = Cluster("a", "b")
    near = (PodTerm(ZONE, APP_X),)
    placed = [cluster.pod(f"p{at}", {"app": "x"}, pod_affinity=near) for at in range(3)]
    assert placed == ["n1", "n1", "n1"]


def test_terms_look_at_their_namespaces():
    cluster = Cluster("a", "b")
    assert cluster.pod("x", {"app": "x"}) == "n1"
    elsewhere = (PodTerm(ZONE, APP_X, ("other",)),)
    everywhere = (PodTerm(ZONE, APP_X, ("*",)),)
    assert cluster.pod("p1", pod_anti_affinity=elsewhere) == "n2"
    assert cluster.pod("p2", pod_affinity=elsewhere) is None
    assert cluster.pod("p3", pod_affinity=everywhere) == "n1"


def test_preferred_and_avoided_pods():
    cluster = Cluster("a", "b", "c")
    assert cluster.pod("x", {"app": "x"}) == "n1"
    assert cluster.pod("near", preferred_pods=(PodTerm(ZONE, APP_X, weight=5),)) == "n1"
    far = (PodTerm(ZONE, APP_X, weight=5),)
    assert cluster.pod("far", {"app": "y"}, avoided_pods=far) in ("n2", "n3")


def test_spread_within_the_skew():
    cluster = Cluster("a", "a", "b")
    even = (SpreadConstraint(ZONE, 1, selector=APP_X),)
    placed = [cluster.pod(f"p{at}", {"app": "x"}, spread=even) for at in range(4)]
    zones = {"n1": "a", "n2": "a", "n3": "b"}
    assert [zones[node] for node in placed] == ["a", "b", "a", "b"]


def test_spread_waits_for_the_smallest_domain():
    """The Kubernetes documentation's own picture: 2 and 1 with maxSkew 1, and no room in b."""
    cluster = Cluster("a")
    cluster.add("n2", "b", vcore=1000)
    even = (SpreadConstraint(ZONE, 1, selector=APP_X),)
    placed = [cluster.pod(f"p{at}", {"app": "x"}, spread=even) for at in range(4)]
    assert placed == ["n1", "n2", "n1", None]
    assert cluster.end("p2") == [("p3", "n1")]


def test_spread_is_looked_at_again_when_a_pod_ends_in_another_domain():
    cluster = Cluster("a", "b", vcore=2000)
    even = (SpreadConstraint(ZONE, 1, selector=APP_X),)
    for at in range(2):
        cluster.pod(f"fill{at}", vcore=1000, node_selector=((ZONE, "b"),))
    assert cluster.pod("x1", {"app": "x"}, spread=even) == "n1"
    assert cluster.pod("x2", {"app": "x"}, spread=even) is None
    # x1 ends in zone a: the skew allows x2 there, though b is as full as before
    assert cluster.end("x1") == [("x2", "n1")]


def test_spread_is_looked_at_again_when_a_pod_comes_to_the_smallest_domain():
    cluster = Cluster("a")
    cluster.add("n2", "b", vcore=1000)
    even = (SpreadConstraint(ZONE, 1, selector=APP_X),)
    assert cluster.pod("x1", {"app": "x"}, spread=even) == "n1"
    assert cluster.pod("x2", {"app": "x"}, vcore=2000, spread=even) is None
    in_b = cluster.pod("x3", {"app": "x"}, node_selector=((ZONE, "b"),))
    assert in_b == "n2"
    assert "x2" in cluster.core.partition.applications["app"].allocations


def test_spread_is_looked_at_again_when_the_smallest_domain_goes():
    """Found by the state machine: a node goes, and with it the domain that held everybody back."""
    cluster = Cluster("a")
    cluster.add("n2", "b", vcore=500)
    even = (SpreadConstraint(ZONE, 1, selector=APP_X),)
    assert cluster.pod("x1", {"app": "x"}, spread=even) == "n1"
    assert cluster.pod("x2", {"app": "x"}, spread=even) is None
    gone = NodeInfo("n2", NodeAction.DECOMISSION)
    placed = section(cluster.core.update(nodes=(gone,)), "new_allocations")
    assert [(item.allocation_key, item.node_id) for item in placed] == [("x2", "n1")]
    cluster.core.check()


def test_min_domains_counts_missing_ones_as_empty():
    cluster = Cluster("a", "b")
    wide = (SpreadConstraint(ZONE, 1, selector=APP_X, min_domains=3),)
    placed = [cluster.pod(f"p{at}", {"app": "x"}, spread=wide) for at in range(3)]
    assert placed == ["n1", "n2", None]
    cluster.add("n3", "c")
    cluster.core.check()
    assert "p2" in cluster.core.partition.applications["app"].allocations


def test_domains_that_the_selector_leaves_out_do_not_count():
    cluster = Cluster("a", "b")
    only_a = {
        "node_selector": ((ZONE, "a"),),
        "spread": (SpreadConstraint(ZONE, 1, selector=APP_X),),
    }
    assert [cluster.pod(f"p{at}", {"app": "x"}, **only_a) for at in range(3)] == ["n1"] * 3
    strict = (SpreadConstraint(ZONE, 1, selector=APP_X, honor_affinity=False),)
    found = cluster.pod("q", {"app": "x"}, node_selector=((ZONE, "a"),), spread=strict)
    assert found is None


@pytest.mark.parametrize(
    ("honor_affinity", "honor_taints", "expected"),
    [
        (True, True, ["n1", "n1", "n1"]),  # a alone counts
        (True, False, ["n1", "n1", "n1"]),
        (False, True, ["n1", None, None]),  # a and b, which is empty
        (False, False, ["n1", None, None]),
    ],
)
def test_each_policy_of_a_spread_leaves_out_its_own_nodes(honor_affinity, honor_taints, expected):
    """Affinity names zone a; b is open to all, c is tainted."""
    cluster = Cluster("a", "b")
    cluster.add("n3", "c", taints=(Taint("gpu"),))
    even = SpreadConstraint(
        ZONE, 1, selector=APP_X, honor_affinity=honor_affinity, honor_taints=honor_taints
    )
    asked = {"node_selector": ((ZONE, "a"),), "spread": (even,)}
    assert [cluster.pod(f"p{at}", {"app": "x"}, **asked) for at in range(3)] == expected


@pytest.mark.parametrize(("honor_taints", "expected"), [(True, "n1"), (False, None)])
def test_a_tainted_domain_counts_unless_taints_are_honored(honor_taints, expected):
    """The default is Ignore: the tainted zone is a domain, and empty."""
    cluster = Cluster("a")
    cluster.add("n2", "b", taints=(Taint("gpu"),))
    for honor_affinity in (True, False):
        key = f"honors-{honor_affinity}"
        mine = (Requirement("app", "In", (key,)),)
        even = SpreadConstraint(
            ZONE, 1, selector=mine, honor_affinity=honor_affinity, honor_taints=honor_taints
        )
        assert cluster.pod(f"{key}-1", {"app": key}, spread=(even,)) == "n1"
        assert cluster.pod(f"{key}-2", {"app": key}, spread=(even,)) == expected


def test_schedule_anyway_prefers_the_emptier_domain():
    cluster = Cluster("a", "a", "b")
    soft = (SpreadConstraint(ZONE, 1, hard=False, selector=APP_X),)
    placed = [cluster.pod(f"p{at}", {"app": "x"}, spread=soft) for at in range(3)]
    assert placed[:2] == ["n1", "n3"]
    assert placed[2] is not None


def test_host_ports():
    cluster = Cluster("a", "a")
    web = (HostPort(80),)
    assert [cluster.pod(f"p{at}", host_ports=web) for at in range(3)] == ["n1", "n2", None]
    assert cluster.pod("udp", host_ports=(HostPort(80, "UDP"),)) is not None
    assert cluster.pod("other", host_ports=(HostPort(81),)) is not None
    one, two = (HostPort(82, "TCP", f"10.0.0.{n}") for n in (1, 2))
    assert cluster.pod("one", host_ports=(one,), node_selector=((HOST, "n1"),)) == "n1"
    assert cluster.pod("two", host_ports=(two,), node_selector=((HOST, "n1"),)) == "n1"
    anywhere = (HostPort(82),)
    assert cluster.pod("any", host_ports=anywhere, node_selector=((HOST, "n1"),)) is None
    assert cluster.end("p0") == [("p2", "n1")]


def test_a_node_takes_so_many_volumes_of_a_driver_and_a_shared_one_once():
    cluster = Cluster("a", "a")
    disk, shared = AttachedVolume("disk"), AttachedVolume("disk", "d/shared")
    cluster.limit("n1", disk=2)
    cluster.limit("n2", disk=1, other=0)
    assert cluster.pod("p0", volumes=(disk, shared), node_selector=((HOST, "n1"),)) == "n1"
    assert cluster.pod("p1", volumes=(shared,), node_selector=((HOST, "n1"),)) == "n1"
    assert [cluster.pod(f"q{at}", volumes=(disk,)) for at in range(2)] == ["n2", None]
    refusal = cluster.why("q1")
    assert refusal.reason is Reason.VOLUMES
    assert "1 more volume of disk would be too many on 2 of the 2 nodes" in text_of(refusal)
    assert "whose limit is 2 each" in text_of(refusal)
    assert [(item.on, item.nodes) for item in refusal.nodes.failures] == [("volumes", 2)]
    assert cluster.pod("free", volumes=(AttachedVolume("other"),)) == "n1"
    assert cluster.end("p1") == []  # p0 has it still
    assert cluster.end("p0") == [("q1", "n1")]


def test_more_volumes_than_a_node_ever_takes_and_a_limit_that_is_raised():
    cluster = Cluster("a")
    cluster.limit("n1", disk=2)
    assert cluster.pod("p", volumes=(AttachedVolume("disk"),) * 3) is None
    assert cluster.why("p").reason is Reason.VOLUMES
    assert cluster.limit("n1", disk=3) == [("p", "n1")]


def test_of_an_exclusive_claim_one_pod_runs_at_a_time_wherever():
    cluster = Cluster("a", "b")
    mine = (AttachedVolume("disk", "d/mine", exclusive=True),)
    assert cluster.pod("p0", volumes=mine) == "n1"
    assert cluster.pod("p1", volumes=mine) is None
    refusal = cluster.why("p1")
    assert refusal.reason is Reason.VOLUMES
    assert (
        "PersistentVolumeClaim d/mine is ReadWriteOncePod and 1 other pod uses it, on n1"
        in text_of(refusal)
    )
    assert cluster.end("p0") == [("p1", "n1")]


def test_pods_that_only_differ_in_labels_nobody_asks_about_share_their_work():
    cluster = Cluster("a", vcore=1000)
    for at in range(5):
        cluster.pod(f"p{at}", {"index": str(at)})
    leaf = cluster.core.partition.queues["root.a"]
    assert len(leaf.buckets) == 1
    cluster.pod("x", {"app": "x"}, pod_anti_affinity=(PodTerm(ZONE, APP_X),))
    assert len(leaf.buckets) == 2


def test_waiting_asks_learn_that_a_label_counts():
    """An ask waits before anybody looks at its label; then somebody does."""
    cluster = Cluster("a", vcore=1000)
    assert cluster.pod("first") == "n1"
    assert cluster.pod("x", {"app": "x"}) is None
    cluster.add("n2", "b")
    cluster.core.check()
    assert "x" in cluster.core.partition.applications["app"].allocations
    assert cluster.pod("x2", {"app": "x"}, vcore=10_000) is None
    keeper = {"pod_anti_affinity": (PodTerm(ZONE, APP_X),)}
    assert cluster.pod("keeper", vcore=1000, **keeper) is None  # x is in b, a is full
    cluster.add("n3", "c", vcore=10_000)
    placed = cluster.core.partition.applications["app"].allocations
    assert "x2" in placed
    assert "keeper" not in placed
    cluster.core.check()


def test_an_empty_selector_matches_every_pod_of_the_namespace():
    cluster = Cluster("a", "b")
    assert cluster.pod("first") == "n1"
    alone = (PodTerm(ZONE),)
    assert cluster.pod("alone", pod_anti_affinity=alone) == "n2"
    assert cluster.pod("next") == "n1"
    assert cluster.pod("elsewhere", pod_anti_affinity=(PodTerm(ZONE, (), ("other",)),)) == "n1"
    assert cluster.pod("alone-2", pod_anti_affinity=alone) is None


def test_a_label_that_counts_from_now_on_gives_new_shapes_to_those_who_have_it_alone():
    cluster = Cluster("a", vcore=1000)
    cluster.pod("x", {"app": "x"}, pod_anti_affinity=(PodTerm(ZONE, APP_X),))
    cluster.pod("y", {"app": "y"}, vcore=500)
    cluster.pod("z", {"app": "z", "tier": "1"}, vcore=500)
    asks = {ask.key: ask for ask in cluster.core.partition.applications["app"].asks()}
    cluster.pod("t", pod_anti_affinity=(PodTerm(ZONE, (Requirement("tier", "Exists"),)),))
    now = {ask.key: ask for ask in cluster.core.partition.applications["app"].asks()}
    assert now["y"] is asks["y"]
    assert now["z"].shape.labels != asks["z"].shape.labels


def test_a_pod_wakes_only_those_whom_its_end_may_help():
    cluster = Cluster("a")
    apart_x = {"pod_anti_affinity": (PodTerm(ZONE, APP_X),)}
    apart_y = {"pod_anti_affinity": (PodTerm(ZONE, (Requirement("app", "In", ("y",)),)),)}
    for name, terms in (("x", apart_x), ("y", apart_y)):
        assert cluster.pod(name, {"app": name}) == "n1"
        assert cluster.pod(f"waits-for-{name}", **terms, vcore=9_000) is None
    shapes = {ask.key: ask.shape for ask in cluster.core.partition.applications["app"].asks()}
    waiting = cluster.core.partition.nodes.pods.waiting
    node = cluster.core.partition.nodes.nodes["n1"]
    waiting.take_noted()
    cluster.core.partition.nodes.free(node, "x")
    assert waiting.take_noted() == [shapes["waits-for-x"]]


def tried_again(cluster, key):
    """End a pod a second later; return how many refusals that changed: they are of that time."""
    core = cluster.core
    core.now_ns += 1_000_000_000
    assert cluster.end(key) == []
    told = [out.message for out in core.answers if isinstance(out.message, StateDelta)]
    return len(told[-1].refusals)


def test_room_where_other_pods_keep_an_ask_away_is_no_reason_to_try_it_again():
    cluster = Cluster("a", "b")
    apart = {"pod_anti_affinity": (PodTerm(ZONE, (Requirement("app", "In", ("x",)),)),)}
    assert cluster.pod("near", vcore=2_000, node_selector=((ZONE, "a"),)) == "n1"
    assert cluster.pod("far", vcore=9_500, node_selector=((ZONE, "b"),)) == "n2"
    assert cluster.pod("first", {"app": "x"}, node_selector=((ZONE, "a"),), **apart) == "n1"
    assert cluster.pod("second", {"app": "x"}, **apart) is None
    assert tried_again(cluster, "near") == 0, "its zone is closed to it, whatever room there is"
    assert cluster.end("far") == [("second", "n2")]
    assert cluster.pod("third", {"app": "x"}, **apart) is None
    assert cluster.end("first") == [("third", "n1")]


def test_an_ask_that_no_zone_is_open_to_waits_for_a_pod_that_is_in_its_way():
    cluster = Cluster("a", "a")
    apart = {"pod_anti_affinity": (PodTerm(ZONE, (Requirement("app", "In", ("x",)),)),)}
    assert cluster.pod("other") in ("n1", "n2")
    assert cluster.pod("first", {"app": "x"}, **apart) in ("n1", "n2")
    assert cluster.pod("second", {"app": "x"}, **apart) is None
    assert tried_again(cluster, "other") == 0
    assert len(cluster.end("first")) == 1
    assert cluster.pod("third", {"app": "x"}, **apart) is None
    cluster.add("n3", "b")
    assert cluster.core.partition.applications["app"].allocations["third"].node_id == "n3"
