"""The policy kai on the live partition: what the actions must not overlook."""

from services.core.scheduler.actions import live_actions
from services.core.scheduler.actions.jobs_in_order import queue_key
from services.core.scheduler.actions.live_actions import STEPS, PartitionAdapter
from services.core.scheduler.constraints.fair_share import set_fair_shares
from services.core.scheduler.model.settings import ACTIONS, MAY_BE_NAMED, SHRINK, UNLESS_NAMED
from services.core.scheduler.policies.preemption import SEARCH_POLICIES
from services.core.scheduler.statement.statement import Decision, Statement
from services.core.scheduler.statement.trial import Trial
from shared.messages.constraints import Taint
from shared.messages.interface import (
    Allocation,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from tests.builders import Core, config_of, section

GPU = "nvidia.com/gpu"
KAI = (("policy", "kai"),)
FOREIGN = {"foreign": "default"}


def leaf(name: str, gpus: int) -> str:
    return "{name: %s, resources: {guaranteed: {%s: %d}}}" % (name, GPU, gpus)


def cluster(nodes: int = 2, gpus: int = 2) -> Core:
    """Return a cluster that queue one has filled, of which queue two is owed half."""
    half = nodes * gpus // 2
    core = Core(config_of(leaf("one", half), leaf("two", half)), settings=KAI)
    for at in range(nodes):
        core.node(f"n{at}", **{"vcore": 10_000, GPU: gpus, "pods": 100})
    core.application("greedy", "root.one")
    keys = [f"g{at}" for at in range(nodes * gpus)]
    core.asks("greedy", keys, {"vcore": 100, GPU: 1, "pods": 1})
    core.application("owed", "root.two")
    return core


def want(core: Core, key: str, **resource: int) -> None:
    core.asks("owed", [key], {"pods": 1, **resource})


def look(core: Core) -> list[str]:
    if "preemption" not in core.partition.timers:
        return []
    responses = core.fire_own("preemption")
    core.check()
    return [item.allocation_key for item in section(responses, "released_allocations")]


def test_every_action_and_every_policy_that_may_be_named_is_there():
    assert tuple(STEPS) == (*ACTIONS, SHRINK)  # which a setting of its own brings
    assert set(SEARCH_POLICIES) == set(MAY_BE_NAMED) == set(UNLESS_NAMED)
    for policy, named in UNLESS_NAMED.items():
        assert set(named) <= set(MAY_BE_NAMED[policy]) <= set(STEPS)


def test_room_that_is_kept_is_nobody_elses():
    core = cluster()
    want(core, "o1", vcore=100, **{GPU: 1})
    first = look(core)
    assert len(first) == 1
    want(core, "o2", vcore=100, **{GPU: 1})
    second = look(core)  # the first victim has not gone yet: its room is o1's
    assert len(second) == 1
    assert first != second
    for key in first + second:
        release = AllocationRelease("greedy", key, TerminationType.PREEMPTED_BY_SCHEDULER)
        core.update(releases=(release,))
    assert set(core.partition.applications["owed"].allocations) == {"o1", "o2"}
    for _ in range(5):
        assert look(core) == []


def test_a_type_that_no_node_has_evicts_nobody():
    core = cluster()
    want(core, "o1", **{GPU: 1, "example.com/fpga": 1})
    assert look(core) == []


def test_a_cordoned_node_gives_nothing():
    core = cluster()
    nodes = tuple(NodeInfo(f"n{at}", NodeAction.DRAIN_NODE) for at in range(2))
    core.update(nodes=nodes)
    want(core, "o1", vcore=100, **{GPU: 1})
    assert look(core) == []


def test_nodes_without_cpu_and_no_nodes_at_all():
    core = Core(config_of("{name: a}", "{name: b}"), settings=KAI)
    core.application("app", "root.a")
    core.asks("app", ["k"], {"memory": 5})
    assert look(core) == []
    core.node("n1", memory=9)
    core.asks("app", ["k2"], {"memory": 5})
    core.application("high", "root.a")
    core.asks("high", ["h"], {"memory": 9}, priority=5)
    assert look(core) == ["k"]


def test_those_that_may_not_be_preempted_are_no_victims():
    core = Core(config_of(leaf("one", 1), leaf("two", 1)), settings=KAI)
    core.node("n0", **{"vcore": 10_000, GPU: 2, "pods": 100})
    core.application("greedy", "root.one")
    core.asks("greedy", ["g0", "g1"], {"vcore": 1, GPU: 1}, allow_preempt_self=False)
    core.application("owed", "root.two")
    want(core, "o1", vcore=1, **{GPU: 1})
    assert look(core) == []


def test_a_trial_reads_what_the_partition_has():
    core = cluster()
    want(core, "o1", vcore=100, **{GPU: 1})
    trial = Trial(core.partition, PartitionAdapter(core.partition))
    at = trial.names.index(GPU)
    assert int(trial.room()[:, at].sum()) == 0
    shares = {share.name: share for share in trial.shares.values()}
    assert shares["root.one"].allocated[at] == 4
    assert shares["root.one"].quota[at] == shares["root.two"].quota[at] == 2
    assert shares["root"].allocated[at] == 4
    trial.statement.discard()
    core.check()


def one_type(max_vcore: str = "") -> Core:
    """Return a cluster that one has filled, of which two is owed half, in vcores only."""
    leaves = "{name: %s, resources: {guaranteed: {vcore: 5m}}}"
    inner = f"queues: [{leaves % 'one'}, {leaves % 'two'}]"
    core = Core(config_of("{name: d, parent: true, %s%s}" % (max_vcore, inner)), settings=KAI)
    core.node("n0", vcore=10)
    core.application("greedy", "root.d.one")
    core.asks("greedy", [f"g{at}" for at in range(10)], {"vcore": 1})
    core.application("owed", "root.d.two")
    return core


def test_a_limit_counts_what_is_there_once_the_victims_have_gone():
    # docs/rules/kai.md#allocate and docs/rules/kai.md#reclaim
    core = one_type("resources: {max: {vcore: 10m}}, ")
    core.node("n1", vcore=10)
    core.asks("owed", ["o0"], {"vcore": 3})
    assert look(core) == ["g9", "g8", "g7"]
    gone = [
        AllocationRelease("greedy", f"g{at}", TerminationType.PREEMPTED_BY_SCHEDULER)
        for at in (9, 8, 7)
    ]
    core.update(releases=tuple(gone))
    assert list(core.partition.applications["owed"].allocations) == ["o0"]
    core.check()


def test_a_node_that_holds_more_than_it_has_takes_no_room_from_others():
    core = one_type()
    core.node("n1", vcore=1)
    core.update(allocations=(Allocation("f", "", "n1", {"vcore": 30}, allocation_tags=FOREIGN),))
    core.asks("owed", ["o0"], {"vcore": 2})
    assert look(core) == ["g9", "g8"]


def total_of(core: Core) -> dict[str, int]:
    trial = Trial(core.partition, PartitionAdapter(core.partition))
    trial.statement.discard()
    return dict(zip(trial.names, trial.total, strict=True))


def test_what_is_divided_is_without_others_pods_and_nodes_that_are_not_ready():
    core = Core(config_of("{name: a}"), settings=KAI)  # docs/rules/kai.md#states-and-rooms
    core.node("n0", vcore=10)
    core.update(allocations=(Allocation("f", "", "n0", {"vcore": 3}, allocation_tags=FOREIGN),))
    assert total_of(core) == {"vcore": 7}
    for at, reason in enumerate(("not-ready", "unreachable"), start=1):
        taint = Taint(f"node.kubernetes.io/{reason}", "", "NoExecute")
        core.update(nodes=(NodeInfo(f"n{at}", NodeAction.CREATE, {"vcore": 5}, taints=(taint,)),))
        lost = Allocation(f"f{at}", "", f"n{at}", {"vcore": 1}, allocation_tags=FOREIGN)
        core.update(allocations=(lost,))
    core.node("n3", vcore=4)
    core.update(nodes=(NodeInfo("n3", NodeAction.DRAIN_NODE),))  # cordoned: what runs there counts
    assert total_of(core) == {"vcore": 11}


def test_who_has_too_much_of_cpu_memory_and_accelerators_has_too_much():
    one_each = "{name: %%s, resources: {guaranteed: {vcore: 1m, memory: 1, %s: 1}}}" % GPU
    core = Core(config_of(one_each % "a", one_each % "b"), settings=KAI)  # docs/rules/kai.md#order
    core.node("n0", vcore=4, memory=4, **{GPU: 4, "ephemeral-storage": 4})
    core.application("app", "root.a")
    core.asks("app", ["k0", "k1", "k2"], {"vcore": 1, "memory": 1, GPU: 1})
    core.application("other", "root.b")
    core.asks("other", ["o0", "o1"], {"vcore": 2, "memory": 2, GPU: 2})
    trial = Trial(core.partition, PartitionAdapter(core.partition))
    set_fair_shares(trial)
    over = {
        share.name: queue_key(trial, share, (0,) * trial.width)[0]
        for share in trial.shares.values()
    }
    trial.statement.discard()
    assert over == {"root": False, "root.a": True, "root.b": False}


def test_a_full_cluster_is_not_searched_for_what_could_be_moved(monkeypatch):
    core = one_type()  # docs/rules/kai.md#consolidation: moving cannot create capacity
    searched = []
    monkeypatch.setattr(
        live_actions, "solve", lambda trial, job, search, others: searched.append(search)
    )
    core.asks("greedy", ["w0"], {"vcore": 1})
    look(core)
    core.node("n1", vcore=1)
    core.asks("greedy", ["w1"], {"vcore": 2})
    look(core)
    assert not [search for search in searched if search.action == "consolidation"]


# --- what is shown ------------------------------------------------------------------------------


def shown(core: Core) -> list[tuple[str, str, str]]:
    """Return (pod, message of its release, event about it) for all that a look evicts."""
    before = len(core.answers)
    released = section(core.fire_own("preemption"), "released_allocations")
    events = {
        event.object_id: event.message
        for item in core.answers[before:]
        for event in getattr(item.message, "events", ())
    }
    return [(x.allocation_key, x.message, events[x.allocation_key]) for x in released]


def test_a_reclaimed_pod_is_told_for_whom_and_why():
    core = cluster(nodes=1)
    want(core, "o1", vcore=100, **{GPU: 1})
    ((_, message, event),) = shown(core)
    assert message == "reclaimed for application owed in root.two, which is below its fair share"
    assert event == message


def test_a_preempted_pod_is_told_of_the_priority():
    core = Core(config_of("{name: a}"), settings=KAI)
    core.node("n1", vcore=4)
    core.application("low", "root.a")
    core.asks("low", ["l"], {"vcore": 4})
    core.application("higher", "root.a")
    core.asks("higher", ["h"], {"vcore": 4}, priority=7)
    ((key, message, event),) = shown(core)
    assert key == "l"
    assert message == (
        "preempted for application higher in root.a, which has the higher priority 7"
    )
    assert event == message


def test_a_moved_pod_is_told_that_it_moves():
    core = Core(config_of("{name: a}", order="fair"), settings=KAI)
    core.node("n1", vcore=4)
    core.node("n2", vcore=4)
    core.application("small", "root.a")
    core.asks("small", ["s1"], {"vcore": 2})
    core.asks("small", ["s2"], {"vcore": 2})
    core.gang("gang", 1, {"vcore": 4}, queue="root.a")
    ((_, message, event),) = shown(core)
    assert message == "moved so that application gang in root.a fits"
    assert event == message


def test_a_stale_gang_is_told_so():
    core = Core(config_of("{name: a}"), settings=(*KAI, ("stalenessGracePeriod", "30s")))
    core.node("n1", vcore=4)
    core.gang("gang", 2, {"vcore": 1}, queue="root.a")
    core.asks("gang", ["r1", "r2"], {"vcore": 1}, task_group_name="tg")
    for key in ("gang-ph-0", "gang-ph-1"):
        replaced = TerminationType.PLACEHOLDER_REPLACED
        core.update(releases=(AllocationRelease("gang", key, replaced),))
    core.update(releases=(AllocationRelease("gang", "r1", TerminationType.STOPPED_BY_RM),))
    ((key, message, event),) = shown(core)
    assert key == "r2"
    assert message == (
        "evicted with its gang, application gang in root.a, which has been below its minimum for 30 s"
    )
    assert event == message


# --- several actions in one run -----------------------------------------------------------------


def test_the_last_word_on_a_pod_counts_and_it_ends_once():
    core = cluster()
    want(core, "o1", vcore=100, **{GPU: 1})
    want(core, "o2", vcore=100, **{GPU: 1})
    greedy, owed = (core.partition.applications[name] for name in ("greedy", "owed"))
    node = core.partition.nodes.nodes["n0"]
    first, second = list(owed.asks())
    pod = greedy.allocations["g0"]
    statement = Statement(core.partition)
    statement.evict(greedy, pod, "moved", "large")
    statement.move(greedy, pod, node, "large")
    statement.pipeline(owed, first, node)
    statement.evict(greedy, pod, "reclaimed", "owed")
    statement.withdraw(owed, first)
    statement.pipeline(owed, second, node)
    assert statement.commit() == [
        Decision("greedy", "g0", evicts=True, by="owed", reason="reclaimed"),
        Decision("owed", "o2", node="n0"),
    ]


def test_room_that_an_earlier_look_kept_is_taken_by_no_later_one():
    core = Core(config_of("{name: a}"), settings=KAI)
    core.node("n1", vcore=4)
    core.application("low", "root.a")
    core.asks("low", ["l"], {"vcore": 4})
    core.application("high", "root.a")
    core.asks("high", ["h"], {"vcore": 4}, priority=5)
    assert look(core) == ["l"]
    core.application("higher", "root.a")
    core.asks("higher", ["hh"], {"vcore": 4}, priority=9)
    for _ in range(3):
        assert look(core) == []
    assert list(core.partition.applications["high"].reservations) == ["h"]
