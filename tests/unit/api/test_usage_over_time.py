"""What users are shown of usage over time: the queue tree, why, metrics."""

from services.api.views.progress import queue_tree
from services.api.why.standing import why
from services.cli.render import queue_columns, queue_rows
from shared.messages.interface import AllocationRelease, TerminationType, UserGroupInformation
from shared.messages.protocol import Heartbeat
from shared.model.units import seconds
from tests.builders import config_of
from tests.unit.api.following import System

HOUR = seconds(3_600)
LEAF = "{name: %s, properties: {deserved.vcore: '0'}}"


def used(system: System, leaf: str, pods: int, hours: int) -> None:
    system.application(f"was-{leaf}", f"root.{leaf}", ugi=UserGroupInformation("ann"))
    keys = [f"{leaf}-{at}" for at in range(pods)]
    system.asks(f"was-{leaf}", keys, {"vcore": 1})
    system.now_ns += hours * HOUR
    why = TerminationType.STOPPED_BY_RM
    system.update(releases=tuple(AllocationRelease(f"was-{leaf}", key, why) for key in keys))


def test_the_tree_has_usage_weight_and_share_and_why_says_so():
    settings = (("policy", "kai"), ("usageWindow", "87600h"))
    system = System(config_of(LEAF % "a", LEAF % "b"), settings=settings)
    system.node("n", vcore=16)
    used(system, "a", 16, 6)
    used(system, "b", 16, 1)
    system.now_ns += 3 * HOUR
    for leaf in "ba":
        system.application(leaf, f"root.{leaf}", ugi=UserGroupInformation("bob"))
        system.asks(leaf, [f"{leaf}{at}" for at in range(16)], {"vcore": 1})
    root = queue_tree(system.model)
    one, two = root["children"]
    assert root["usedOverTime"] == {"vcore": 0.7}
    assert (one["usedOverTime"], two["usedOverTime"]) == ({"vcore": 0.6}, {"vcore": 0.1})
    system.now_ns += 60 * seconds(1)
    system.send(Heartbeat("t"))
    root = queue_tree(system.model)
    one, two = root["children"]
    parts = (0.4 / 1.3, 0.9 / 1.3)
    for queue, part, share in ((one, parts[0], 5), (two, parts[1], 11)):
        assert abs(queue["weightOverQuota"]["vcore"] - part) < 0.001
        assert queue["fairShare"] == {"vcore": share}
    rows = queue_rows(root)
    shown = {column.name: column.cell(rows[1]).plain for column in queue_columns(rows)}
    assert (shown["OVER TIME"], shown["FAIR SHARE"]) == ("vcore 60 %", "vcore 0.005")
    sentence = why(system.model, "b").sentence
    assert "has used" not in sentence
    sentence = why(system.model, "a").sentence
    assert (
        "Over time queue root.a has used 60.0 % of the cluster's vcore, and queue root.b 10."
        in sentence
    )
    assert sentence.endswith("its fair share is 0.005 vcore.")
    assert (
        abs(system.metric('muster_queue_used_over_time{queue="root.a",resource="vcore"}') - 0.6)
        < 0.01
    )
    assert system.metric('muster_queue_fair_share{queue="root.b",resource="vcore"}') == 11


def test_of_a_leaf_its_users_are_shown():
    system = System(config_of("{name: a}"), settings=(("usageHalfLife", "24h"),))
    system.node("n", vcore=2)
    system.application("x", "root.a", ugi=UserGroupInformation("bob"))
    system.asks("x", ["x0"], {"vcore": 1})
    system.now_ns += HOUR
    system.send(Heartbeat("t"))
    (leaf,) = queue_tree(system.model)["children"]
    assert leaf["usersOverTime"] == {"bob": {"vcore": 0.5}}
    assert "fairShare" not in leaf


def test_without_the_settings_nothing_of_it_is_there():
    system = System(config_of("{name: a}"))
    system.node("n", vcore=2)
    used(system, "a", 2, 5)
    (leaf,) = queue_tree(system.model)["children"]
    assert not {"usedOverTime", "usersOverTime", "fairShare"} & set(leaf)
    assert "OVER TIME" not in [column.name for column in queue_columns([leaf])]
    assert "muster_queue_used_over_time{" not in system.metrics()


def test_why_says_whose_first_time_ends_next_and_which_property_says_so():
    queues = (
        "{name: p, parent: true, properties: {reclaim.min.runtime: 30m}, queues: [%s]}"
        % LEAF
        % "a",
        "{name: b, properties: {deserved.vcore: 2m, preempt.min.runtime: 60s}}",
    )
    system = System(config_of(*queues), settings=(("policy", "kai"),))
    system.node("n", vcore=2)
    system.application("train-7", "root.p.a")
    system.asks("train-7", ["t0"], {"vcore": 1})
    system.now_ns += seconds(60)
    system.application("late", "root.b")
    system.asks("late", ["l0"], {"vcore": 1})
    system.application("x", "root.b")
    system.asks("x", ["x0"], {"vcore": 1}, priority=5)
    for _ in range(3):
        system.fire_own("preemption")
    assert why(system.model, "x").sentence.endswith(
        " Application late in queue root.b may be evicted for it from 2026-01-01 00:02:00 UTC on"
        " (preempt.min.runtime 1m)."
    )
    system.now_ns += seconds(600)
    released = [
        name for name in ("late", "train-7") if system.partition.applications[name].released
    ]
    assert released == []
    system.update(releases=(AllocationRelease("x", "x0", TerminationType.STOPPED_BY_RM),))
    system.application("y", "root.b")
    system.asks("y", ["y0"], {"vcore": 1})
    assert why(system.model, "y").sentence.endswith(
        " Application train-7 in queue root.p.a may be evicted for it from 2026-01-01 00:30:00 UTC on"
        " (reclaim.min.runtime 30m)."
    )
