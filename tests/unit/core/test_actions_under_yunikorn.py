"""Consolidation and stale gang eviction beside YuniKorn's preemption: the setting ``actions``."""

import pytest

from services.core.scheduler.model.settings import Settings, settings_from
from shared.messages.interface import AllocationRelease, TerminationType
from shared.model.units import seconds
from tests.builders import Core, config_of, section
from tests.table import each_row

MOVES = (("actions", "allocate,consolidation,preempt"),)


@each_row(
    ("pairs", "actions", "refused"),
    [
        ({}, ("allocate", "preempt"), 0),
        ({"actions": " preempt , consolidation"}, ("preempt", "consolidation"), 0),
        ({"actions": "stalegangeviction"}, ("stalegangeviction",), 0),
        ({"actions": "allocate,reclaim,preempt"}, ("allocate", "preempt"), 1),
        ({"actions": "defragment,reclaim"}, (), 2),
        ({"policy": "kai"},
         ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"), 0),
        ({"policy": "kai", "actions": "reclaim,consolidate"}, ("reclaim",), 1),
        ({"preset": "muster"}, ("allocate", "preempt"), 0),
        ({"preset": "muster", "gangSurplus": "yields"}, ("allocate", "shrink", "preempt"), 0),
        ({"gangSurplus": "yields", "actions": "preempt"}, ("shrink", "preempt"), 0),
        ({"actions": "allocate,shrink"}, ("allocate",), 1),
    ],
)  # fmt: skip
def test_which_actions_may_be_named(pairs, actions, refused):
    settings = settings_from(pairs.items())
    assert settings.actions == actions
    assert len(settings.refused) == refused


@each_row(
    ("name", "good", "bad"),
    [
        ("gangAdmission", ("queue", "cluster", "partial"), "all"),
        ("starvationGuard", ("5m", "0s"), "soon"),
        ("reservations", ("heads", "asks", "none"), "on"),
        ("reservationDelay", ("2s",), "2"),
        ("avoidNode", ("10m", "0s"), "soon"),
        ("gangSurplus", ("kept", "yields"), "shared"),
        ("spares", ("rack=2",), "2"),
        ("maxReservedNodes", ("12", "5%", "100%"), "101%"),
        ("backfill", ("enabled", "disabled"), "yes"),
        ("backfillOrder", ("submission",), "shortest"),
        ("reservationsFor", ("heads", "asks"), "true"),
        ("gangLane", ("disabled",), "on"),
        ("fairLeafGangs", ("enabled", "disabled"), "True"),
        ("nodeScores", ("enabled", "disabled"), "1"),
        ("nodeScoreWindow", ("1", "10000"), "10001"),
        ("preset", ("yunikorn", "muster", "design"), "Muster"),
        ("stateAware", ("fifo", "filtered"), "fair"),
        ("policy", ("kai", "yunikorn"), "volcano"),
        ("stalenessGracePeriod", ("60s", "-1"), "never"),
        ("plugins", ("a, b",), None),
    ],
)
def test_a_setting_that_does_not_hold_is_said(name, good, bad):
    assert [settings_from([(name, text)]).refused for text in (*good, "")] == [()] * (len(good) + 1)
    if bad is not None:
        (said,) = settings_from([(name, bad)]).refused
        assert said.startswith(f"{name}: ")
        assert f"found '{bad}'; the default is used" in said
    (unknown,) = settings_from([(name.upper(), "1")]).refused
    assert (
        f"there is no setting '{name.upper()}'; there are actions, avoidNode, backfill" in unknown
    )


def test_an_old_name_is_a_sentence_that_the_api_shows_and_its_value_holds():
    core = Core(config_of("{name: a}"), settings=(("gangPatience", "7m"), ("nodeScores", "x")))
    told = [p for a in core.answers for p in getattr(a.message, "partitions", ())]
    assert told[-1].config_warnings == (
        "nodeScores: one of enabled, disabled, found 'x'; the default is used",
        "gangPatience: 7m is now starvationGuard: 7m",
    )
    assert core.partition.settings.starvation_guard_ns == seconds(7 * 60)


def test_a_refused_action_is_a_sentence_that_the_api_shows():
    core = Core(config_of("{name: a}"), settings=(("actions", "preempt,reclaim,defragment"),))
    told = [p for a in core.answers for p in getattr(a.message, "partitions", ())]
    assert told[-1].config_warnings == (
        (
            "actions: reclaim is an action of the policy kai; under yunikorn there are allocate, "
            "consolidation, preempt, stalegangeviction"
        ),
        (
            "actions: there is no 'defragment'; there are allocate, consolidation, preempt, "
            "stalegangeviction"
        ),
    )


def scattered(leaves: str, settings: tuple = MOVES, **large) -> Core:
    """Return two nodes that are half full of an application's pods, and a pod for a whole node."""
    core = Core(config_of(leaves), settings=settings)
    for name in ("n1", "n2"):
        core.node(name, vcore=4)
    core.application("small", "root.a")
    core.asks("small", ["s1"], {"vcore": 2})
    core.asks("small", ["s2"], {"vcore": 2})
    core.application("large", large.pop("queue", "root.a"), **large.pop("application", {}))
    core.asks("large", ["l"], {"vcore": 4}, **large)
    return core


def look(core: Core) -> list[str]:
    if "preemption" not in core.partition.timers:
        return []
    released = section(core.fire_own("preemption"), "released_allocations")
    core.check()
    return [item.allocation_key for item in released]


def test_one_is_moved_at_the_next_look_and_the_room_is_kept():
    core = scattered("{name: a}")
    before = core.now_ns
    (moved,) = look(core)
    assert core.now_ns - before == seconds(1)
    gone = AllocationRelease("small", moved, TerminationType.PREEMPTED_BY_SCHEDULER)
    assert [
        x.allocation_key for x in section(core.update(releases=(gone,)), "new_allocations")
    ] == ["l"]
    core.check()


@pytest.mark.parametrize(
    ("leaves", "large"),
    [
        # by default nothing moves
        ("{name: a}", {"settings": ()}),
        # what YuniKorn protects from preemption
        ("{name: a, properties: {preemption.policy: disabled}}, {name: b}", {"queue": "root.b"}),
        ("{name: a}, {name: b, properties: {preemption.policy: fence}}", {"queue": "root.b"}),
        ("{name: a}", {"allow_preempt_other": False}),
        # where the user may not have it, room would be no help
        ("{name: a}, {name: b, limits: [{users: ['*'], maxresources: {vcore: 3m}}]}",
         {"queue": "root.b"}),
        # nor where no one more may run
        ("{name: a, maxapplications: 1}", {}),
    ],
)  # fmt: skip
def test_nobody_is_moved(leaves, large):
    core = scattered(leaves, **large)
    for _ in range(3):
        assert look(core) == []


def test_a_fence_of_the_victims_keeps_nobody_out():
    core = scattered("{name: a, properties: {preemption.policy: fence}}, {name: b}", queue="root.b")
    assert len(look(core)) == 1


def test_yunikorns_preemption_still_has_its_turn():
    """Moving is no help: 3 of 4 are taken on each node. After the delay one is preempted."""
    core = Core(
        config_of("{name: a}", "{name: b, resources: {guaranteed: {vcore: 4m}}}"), settings=MOVES
    )
    for name in ("n1", "n2"):
        core.node(name, vcore=4)
    core.application("small", "root.a")
    for key in ("s1", "s2"):
        core.asks("small", [key], {"vcore": 4})
    core.application("large", "root.b")
    core.asks("large", ["l"], {"vcore": 4})
    begun = core.now_ns
    taken: list[str] = []
    while not taken and core.now_ns < begun + seconds(60):
        taken = look(core)
    assert len(taken) == 1
    assert core.now_ns - begun == seconds(30)
    text = "Preempted by l from application large in root.b"
    events = [e for a in core.answers for e in getattr(a.message, "events", ())]
    assert [e.object_id for e in events if e.message == text] == taken


@pytest.mark.parametrize(
    ("settings", "evicted"),
    [
        ((("actions", "preempt,stalegangeviction"), ("stalenessGracePeriod", "30s")), ["r2"]),
        ((("stalenessGracePeriod", "30s"),), []),
        ((("policy", "kai"), ("actions", "reclaim"), ("stalenessGracePeriod", "30s")), []),
        ((("policy", "kai"), ("stalenessGracePeriod", "30s")), ["r2"]),
    ],
)
def test_a_stale_gang_goes_where_that_is_named(settings, evicted):
    settings = (*settings, ("restartRoom", "0s"))  # which would be looked at by itself
    core = Core(config_of("{name: a}"), settings=settings)
    core.node("n1", vcore=4)
    core.gang("gang", 2, {"vcore": 1}, queue="root.a")
    core.asks("gang", ["r1", "r2"], {"vcore": 1}, task_group_name="tg")
    for key in ("gang-ph-0", "gang-ph-1"):
        replaced = TerminationType.PLACEHOLDER_REPLACED
        core.update(releases=(AllocationRelease("gang", key, replaced),))
    core.update(releases=(AllocationRelease("gang", "r1", TerminationType.STOPPED_BY_RM),))
    begun = core.now_ns
    if evicted:  # a look that comes earlier, for another reason, does not forget this one
        core.partition.check_preemption_at(core.now_ns + seconds(5))
        assert look(core) == []
        assert core.now_ns == begun + seconds(5)
    assert look(core) == evicted
    assert core.now_ns == begun + seconds(30 if evicted else 0)


def test_the_keys_of_the_events_are_handed_on_and_no_setting_of_the_scheduler():
    assert settings_from([("event.trackingEnabled", "false"), ("event.nosuch", "1")]).refused == ()
    assert settings_from([("events", "1")]).refused != ()


def test_what_is_told_of_settings_that_do_not_hold_is_bounded():
    many = settings_from([(f"s{at}", "") for at in range(1_000)]).refused
    assert (len(many), many[-1]) == (51, "and 950 more do not hold")
    for name, text in (("x" * 9_999, ""), ("backfill", "x" * 9_999), ("actions", "x" * 9_999)):
        (one,) = settings_from([(name, text)]).refused
        assert len(one) < 500


def test_a_list_of_actions_is_bounded_and_a_longer_one_is_none():
    assert settings_from([("actions", "allocate," * 100)]).actions == Settings().actions
    (said,) = settings_from([("actions", "allocate," * 100)]).refused
    assert said.startswith("actions: at most 100 names with commas, of 10000 characters in all")
    assert settings_from([("actions", ",".join(["allocate"] * 100))]).refused == ()


@pytest.mark.parametrize("text", [",".join(f"p{at}" for at in range(101)), "p" * 10_001])
def test_a_list_of_plugins_that_is_too_long_is_one_plugin_that_nobody_has(text):
    assert settings_from([("plugins", text)]).plugins == (f"{text[:60]}…",)
    assert settings_from([("plugins", "a, b,a")]).plugins == ("a", "b")
