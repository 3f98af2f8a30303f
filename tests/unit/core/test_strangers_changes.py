"""Changes that CONTRIBUTING's table describes, made here as it says: what it names is enough.

Each test changes what is in the files of its row, or is a plugin, and nothing else.
"""

from collections import Counter

import pytest

from services.core.scheduler.actions import live_actions
from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.actions.live_actions import Step
from services.core.scheduler.model import settings
from services.core.scheduler.model.policy import Reads, reads
from services.core.scheduler.model.rows import Node
from services.core.scheduler.nodes import filters, scores
from services.core.scheduler.nodes.filters.base import NodeFilter
from services.core.scheduler.nodes.scores.base import NodeScore
from services.core.scheduler.statement.journal import NodeAccepted, RowSet
from services.core.scheduler.statement.trial import is_evictable
from services.shim_adapter.backends.kubernetes.cluster import KubernetesCluster
from services.shim_adapter.backends.kubernetes.objects import node_record
from services.shim_adapter.backends.kubernetes.observed import NodeSeen
from services.shim_adapter.mirror.asks import NODE_ACTIONS, node_info
from services.shim_adapter.mirror.world import World
from shared.messages.interface import Allocation, NodeAction, NodeInfo
from shared.model.sentences import text_of
from shared.queueconfig import validator
from tests.builders import Core, config_of, section

POD = {"vcore": 1, "pods": 1}

# --- an action: actions/live_actions.py, model/settings.py ----------------------------------------

DRAIN = "evictdrained"


def evict_from_drained_nodes(trial, _):
    """What a stranger writes: end what runs on nodes that take nothing new."""
    attempt = Attempt(trial)
    for node in trial.nodes.rows:
        for allocation in [] if node.schedulable else list(node.allocations.values()):
            job = trial.job_of(trial.partition.applications[allocation.application_id])
            (task,) = [task for task in job.tasks if task.name == allocation.allocation_key]
            if is_evictable(task):
                attempt.evict(task, f"node {node.node_id} is drained", DRAIN)


def is_drained(entry):
    if isinstance(entry, NodeAccepted):
        return not entry.node.schedulable
    return isinstance(entry, RowSet) and isinstance(entry.row, Node) and not entry.row.schedulable


@pytest.fixture(params=["kai", "yunikorn"])
def policy(request, monkeypatch):
    step = Step(evict_from_drained_nodes, after=is_drained)
    monkeypatch.setitem(live_actions.STEPS, DRAIN, step)
    monkeypatch.setattr(settings, "ACTIONS", (*settings.ACTIONS, DRAIN))
    for name, named in settings.MAY_BE_NAMED.items():
        monkeypatch.setitem(settings.MAY_BE_NAMED, name, (*named, DRAIN))
    return request.param


def drained(policy: str, actions: str = "") -> Core:
    """Return a cluster of which a node is drained that has two pods; nobody waits."""
    named = (("actions", actions),) if actions else ()
    core = Core(config_of("{name: a}"), settings=(("policy", policy), *named))
    core.node("n0", vcore=2, pods=9)
    core.application("app", "root.a")
    assert len(section(core.asks("app", ["k0", "k1"], POD), "new_allocations")) == 2
    core.node("n1", vcore=9, pods=9)
    core.update(nodes=(NodeInfo("n0", NodeAction.DRAIN_NODE),))
    return core


def looked(core: Core) -> list[tuple[str, str]]:
    if "preemption" not in core.partition.timers:
        return []
    responses = core.fire_own("preemption")
    core.check()
    return [
        (item.allocation_key, item.message) for item in section(responses, "released_allocations")
    ]


@pytest.mark.parametrize("actions", [DRAIN, f"consolidation,{DRAIN}", f"{DRAIN},preempt"])
def test_an_action_of_its_own_runs_when_nobody_waits(policy, actions):
    core = drained(policy, actions)
    says = "node n0 is drained"
    assert looked(core) == [("k0", says), ("k1", says)]
    assert looked(core) == []
    evicted = [item for a in core.answers for item in getattr(a.message, "evictions", ())]
    assert [(item.law, item.message, item.winner) for item in evicted] == [(DRAIN, says, "")] * 2


def test_an_action_is_tried_again_though_searches_before_it_found_nothing(policy):
    core = drained(policy, f"consolidation,{DRAIN}")
    core.application("large", "root.a")
    core.asks("large", ["l"], {"vcore": 99, "pods": 1})
    assert len(looked(core)) == 2
    core.node("n2", vcore=1, pods=9)
    core.application("late", "root.a")
    core.asks("late", ["m"], {"vcore": 9, "pods": 1})
    assert section(core.asks("late", ["p"], POD), "new_allocations")[0].node_id == "n2"
    core.update(nodes=(NodeInfo("n2", NodeAction.DRAIN_NODE),))
    assert looked(core) == [("p", "node n2 is drained")]


def test_an_action_follows_what_was_there_before_the_core_was(policy):
    core = Core(config_of("{name: a}"), settings=(("policy", policy), ("actions", DRAIN)))
    core.application("app", "root.a")
    held = Allocation("k0", application_id="app", node_id="n0", resource_per_alloc=POD)
    node = NodeInfo("n0", NodeAction.CREATE_DRAIN, {"vcore": 2, "pods": 9})
    core.update(nodes=(node,), allocations=(held,))
    core.node("n1", vcore=2, pods=9)
    assert looked(core) == [("k0", "node n0 is drained")]


def test_nothing_is_evicted_where_a_drain_is_taken_back_before(policy):
    core = drained(policy, DRAIN)
    core.update(nodes=(NodeInfo("n0", NodeAction.DRAIN_TO_SCHEDULABLE),))
    assert looked(core) == []


def test_an_action_that_is_not_named_is_off_by_default(policy):
    core = drained(policy)
    assert looked(core) == []
    assert DRAIN not in core.partition.settings.actions


def test_an_action_that_may_not_be_named_is_refused_with_those_that_may(policy, monkeypatch):
    monkeypatch.setitem(settings.MAY_BE_NAMED, policy, ("allocate", "preempt"))
    found = settings.settings_from([("policy", policy), ("actions", f"preempt,{DRAIN}")])
    assert found.actions == ("preempt",)
    assert "there are allocate, preempt" in found.refused[0]


# --- a score that spreads by the ask's own shape: a plugin ----------------------------------------


def spread_alike(policy):
    @reads(Reads.PODS)
    def score(node, shape):
        return sum(held.resource_per_alloc == shape.resource for held in node.allocations.values())

    policy.score.append(score)


def test_a_score_spreads_asks_by_their_own_shape():
    core = Core(config_of("{name: a}"), plugins={"spread": spread_alike})
    for name in ("n0", "n1", "n2"):
        core.node(name, vcore=90, pods=90)
    core.application("app", "root.a")
    where = {}
    for at in range(6):
        for size in (1, 7):
            found = section(core.asks("app", [f"{size}-{at}"], {"vcore": size}), "new_allocations")
            where.setdefault(size, []).append(found[0].node_id)
    assert {size: Counter(nodes) for size, nodes in where.items()} == {
        1: {"n0": 2, "n1": 2, "n2": 2},
        7: {"n0": 2, "n1": 2, "n2": 2},
    }
    many = section(core.asks("app", [f"m{at}" for at in range(9)], {"vcore": 2}), "new_allocations")
    assert set(Counter(item.node_id for item in many).values()) == {3}


# --- a filter by an annotation of a node: a plugin ------------------------------------------------

UNTIL = "muster.io/maintenance"


def not_in_maintenance(policy):
    @reads(Reads.NODES)
    def feasible(node, _):
        return UNTIL not in node.attributes

    policy.feasible.append(feasible)


def seen(cluster, **annotations):
    """Return what the shim adapter says of a node that the API server has so."""
    raw = {
        "metadata": {"name": "n0", "annotations": {"cni.example.com/ip": "::1", **annotations}},
        "status": {"allocatable": {"cpu": "4", "pods": "9"}},
    }
    cluster.report(NodeSeen(node_record(raw)))
    return [node_info(news.node, NODE_ACTIONS[news.action], "rm") for news in cluster.advance(1)]


def test_a_filter_reads_an_annotation_of_a_node_and_its_going_lets_who_waits_try_again():
    cluster = KubernetesCluster(World(), operate=lambda _: None, now_text=lambda: "t")
    core = Core(config_of("{name: a}"), plugins={"maintenance": not_in_maintenance})
    core.update(nodes=seen(cluster, **{UNTIL: "tonight"}))
    core.application("app", "root.a")
    assert section(core.asks("app", ["k"], POD), "new_allocations") == []
    assert seen(cluster, **{UNTIL: "tonight"}) == []  # nothing new
    (placed,) = section(core.update(nodes=seen(cluster)), "new_allocations")
    assert placed.node_id == "n0"
    core.update(nodes=seen(cluster, **{UNTIL: "again"}))
    assert section(core.asks("app", ["l"], POD), "new_allocations") == []
    assert core.partition.nodes.nodes["n0"].attributes[UNTIL] == "again"
    core.check()


def test_annotations_of_a_node_are_bounded_and_those_of_others_are_not_read():
    for size, is_read in ((4_000, True), (4_001, False)):
        text = "x" * (size - len(UNTIL))
        metadata = {"name": "n", "annotations": {UNTIL: text, "other": "o"}}
        assert node_record({"metadata": metadata}).annotations == ({UNTIL: text} if is_read else {})


# --- the same two for everybody: a file in nodes/scores and in nodes/filters, and their lines -----


class Alike(NodeScore):
    """How many pods like the ask a node has."""

    looks_at_ask = True

    def of_node(self, node, shape):
        held = node.allocations.values()
        return float(sum(each.resource_per_alloc == shape.resource for each in held))


class NotInMaintenance(NodeFilter):
    """The node is not in maintenance."""

    on = "maintenance"

    def admits(self, node, shape):
        return UNTIL not in node.attributes


def test_a_score_that_looks_at_the_ask_is_an_order_of_nodes(monkeypatch):
    monkeypatch.setitem(scores.SCORES, "alike", Alike)
    monkeypatch.setattr(validator, "NODE_SCORES", (*validator.NODE_SCORES, "alike"))
    queues = config_of("{name: a}")
    core = Core(queues.replace("queues:", "nodesortpolicy: {type: alike}, queues:", 1))
    assert core.partition.config_error == ""
    for name in ("n0", "n1", "n2"):
        core.node(name, vcore=90, pods=90)
    core.application("app", "root.a")
    for size in (1, 7):
        keys = [f"{size}-{at}" for at in range(6)]
        found = section(core.asks("app", keys, {"vcore": size}), "new_allocations")
        assert set(Counter(item.node_id for item in found).values()) == {2}
    core.check()


def test_a_filter_that_looks_at_the_node_says_why_and_lets_who_waits_try_again(monkeypatch):
    monkeypatch.setattr(filters, "NODE_FILTERS", (*filters.NODE_FILTERS, NotInMaintenance))
    cluster = KubernetesCluster(World(), operate=lambda _: None, now_text=lambda: "t")
    core = Core(config_of("{name: a}"))
    core.update(nodes=seen(cluster, **{UNTIL: "tonight"}))
    core.application("app", "root.a")
    assert section(core.asks("app", ["k"], POD), "new_allocations") == []
    (bucket,) = core.partition.queues["root.a"].buckets.values()
    assert "maintenance" in text_of(bucket.refusal)
    (placed,) = section(core.update(nodes=seen(cluster)), "new_allocations")
    assert placed.node_id == "n0"
    core.check()
