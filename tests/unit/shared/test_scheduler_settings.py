"""Old names of the scheduler settings: each with its values, as the new name that it is now."""

from itertools import product

from services.core.scheduler.model.settings import settings_from
from shared.model.scheduler_settings import PRESETS, named

CLUSTER = {"gangAdmission": "cluster"}
MUSTER, YUNIKORN = {"preset": "muster"}, {"preset": "yunikorn"}
# What is set by old names, and what that is by new ones.
TABLE = [
    ({"gangPatience": "0"}, {"starvationGuard": "0"}),
    ({"gangPatience": "90s"}, {"starvationGuard": "90s"}),
    ({"gangAdmission": "whole"}, {"gangAdmission": "queue"}),
    ({"reservations": "enabled"}, {"reservations": "heads"}),
    ({"reservations": "disabled"}, {"reservations": "none"}),
    ({"reservationsFor": "heads"}, {"reservations": "heads"}),
    ({"reservationsFor": "asks"}, {"reservations": "asks"}),
    ({"reservationsFor": "asks", "reservations": "enabled"}, {"reservations": "asks"}),
    ({"reservationsFor": "asks", "reservations": "disabled"}, {"reservations": "none"}),
    ({"gangLane": "disabled"}, {"reservations": "heads"}),
    ({"gangLane": "disabled", "reservations": "disabled"}, {"reservations": "none"}),
    ({"gangLane": "disabled", "reservationsFor": "asks"}, {"reservations": "asks"}),
    ({"gangLane": "enabled"}, {"reservations": "gang"}),
    ({**CLUSTER, "gangLane": "enabled"}, {**CLUSTER, "reservations": "gang"}),
    (
        {**CLUSTER, "gangLane": "enabled", "reservations": "disabled"},
        {**CLUSTER, "reservations": "gang"},
    ),
    (
        {"policy": "kai", "gangLane": "enabled", "reservationsFor": "asks"},
        {"policy": "kai", "reservations": "gang"},
    ),
    ({"gangLane": "enabled", "reservations": "disabled"}, {"reservations": "none"}),
    ({"gangLane": "enabled", "reservationsFor": "asks"}, {"reservations": "asks"}),
    ({**MUSTER, "reservations": "disabled"}, {**MUSTER, "reservations": "gang"}),
    ({**MUSTER, "gangLane": "disabled"}, {**MUSTER, "reservations": "heads"}),
    (
        {**MUSTER, "gangLane": "disabled", "reservations": "disabled"},
        {**MUSTER, "reservations": "none"},
    ),
    (
        {**MUSTER, "gangAdmission": "queue", "reservations": "disabled"},
        {**MUSTER, "gangAdmission": "queue", "reservations": "none"},
    ),
    ({**YUNIKORN, "reservations": "enabled"}, {**YUNIKORN, "reservations": "asks"}),
    ({**YUNIKORN, "gangLane": "disabled"}, {**YUNIKORN, "reservations": "asks"}),
    ({**YUNIKORN, "reservations": "disabled"}, {**YUNIKORN, "reservations": "none"}),
    ({"backfillOrder": "submission"}, {"backfill": "disabled"}),
    (
        {"backfill": "enabled", "backfillOrder": "shortestFirst"},
        {"backfill": "shortestFirst"},
    ),
    ({"nodeScores": "enabled"}, {}),
    ({"nodeScores": "disabled"}, {}),
    ({"nodeScoreWindow": "500"}, {"nodeScoreWindow": "500"}),
    ({"fairLeafGangs": "enabled"}, {"fairLeafGangs": "enabled"}),
    ({**MUSTER, "fairLeafGangs": "disabled"}, {**MUSTER, "fairLeafGangs": "disabled"}),
    ({"stateAware": "fifo"}, {"stateAware": "fifo"}),
    ({"stateAware": "filtered"}, {"stateAware": "filtered"}),
    ({"remakePlaceholders": "disabled"}, {"remakePlaceholders": "disabled"}),
    ({**YUNIKORN, "remakePlaceholders": "enabled"}, {**YUNIKORN, "remakePlaceholders": "enabled"}),
    ({"gangPatience": "", "gangLane": "", "backfillOrder": ""}, {}),
]  # fmt: skip
SCORES = "a nodesortpolicy may always name gpu-binpacking and fgd"
SENTENCES = [
    ({"gangPatience": "90s"}, ["gangPatience: 90s is now starvationGuard: 90s"]),
    ({"gangAdmission": "whole"}, ["gangAdmission: whole is now gangAdmission: queue"]),
    (
        {"reservations": "disabled", "reservationsFor": "asks"},
        [
            "reservations: disabled is now reservations: none",
            "reservationsFor: asks is now reservations: none",
        ],
    ),
    (
        {"gangPatience": "90s", "starvationGuard": "1m"},
        ["gangPatience: 90s is ignored: starvationGuard: 1m is set"],
    ),
    (
        {"gangLane": "enabled", "reservations": "asks"},
        ["gangLane: enabled is ignored: reservations: asks is set"],
    ),
    (
        {"backfill": "enabled", "backfillOrder": "shortestFirst"},
        ["backfillOrder: shortestFirst is now backfill: shortestFirst"],
    ),
    (
        {"backfill": "shortestFirst", "backfillOrder": "submission"},
        ["backfillOrder: submission is ignored: backfill: shortestFirst is set"],
    ),
    (
        {"backfillOrder": "shortestFirst"},
        ["backfillOrder: shortestFirst is ignored: backfill: disabled is used"],
    ),
    (
        {"nodeScores": "disabled"},
        [f"nodeScores: disabled is ignored: {SCORES}"],
    ),
    (
        {"fairLeafGangs": "enabled"},
        ["fairLeafGangs: enabled is used, but is no longer a setting: preset: muster enables it"],
    ),
    ({"reservations": "gang", "backfill": "enabled"}, []),
    (
        {"gangPatience": "x" * 60},
        [f"gangPatience: {'x' * 60} is now starvationGuard: {'x' * 60}"],
    ),
    (
        {"gangPatience": "x" * 99},
        [f"gangPatience: {'x' * 60}… is now starvationGuard: {'x' * 60}…"],
    ),
]


def test_every_old_name_and_value_is_read_as_its_new_one():
    for old, new in TABLE:
        read = named(old)
        assert read.stated == new, old
        assert not read.refused, old
        assert bool(read.warnings) == any(old.values()), old
        assert named(read.stated).stated == new, old


def test_the_warnings_name_the_new_setting_or_what_is_set_instead():
    for old, sentences in SENTENCES:
        assert list(named(old).warnings) == sentences
        assert list(settings_from(old.items()).renamed) == sentences


def test_the_new_name_holds_beside_any_old_one():
    old = {"reservationsFor": "asks", "gangLane": "enabled", "gangPatience": "1s"}
    new = {"reservations": "none", "starvationGuard": "2s"}
    assert named({**old, **new}).stated == new
    assert len(named({**old, **new}).warnings) == len(old)


def test_an_old_value_that_there_is_not_is_refused_by_its_old_name():
    for name in ("gangLane", "reservationsFor", "backfillOrder", "nodeScores"):
        (refused,) = named({name: "maybe"}).refused
        assert refused.startswith(f"{name}: one of ")
        assert refused.endswith(", found 'maybe'; the default is used")
        assert named({name: "maybe"}).stated == {}


def test_by_old_names_and_by_new_ones_the_settings_are_the_same():
    for old, new in TABLE:
        by_old, by_new = settings_from(old.items()), settings_from(new.items())
        assert _decided(by_old) == _decided(by_new), old


def test_any_combination_of_old_reservations_means_what_it_meant():
    """What they were: a lane where gangs are admitted by the cluster, else heads or asks or none."""
    switch = (None, "enabled", "disabled")
    ways = product(
        (None, *PRESETS),
        (None, "queue", "cluster", "partial"),
        switch,
        (None, "heads", "asks"),
        switch,
    )
    for preset, admission, lane, who, reservations in ways:
        stated = {
            "preset": preset,
            "gangAdmission": admission,
            "gangLane": lane,
            "reservationsFor": who,
            "reservations": reservations,
        }
        stated = {name: text for name, text in stated.items() if text is not None}
        found = settings_from(stated.items())
        has_lane = (lane or ("enabled" if preset == "muster" else "")) == "enabled"
        if has_lane and found.gang_admission == "cluster":
            expected = "gang"
        elif reservations == "disabled":
            expected = "none"
        else:
            expected = who or ("asks" if preset == "yunikorn" else "heads")
        assert found.reservations == expected, stated


def _decided(settings):
    names = [name for name in settings.__slots__ if name not in ("renamed", "refused")]
    return {name: getattr(settings, name) for name in names}
