"""One application, one trace: a gang's whole life is one tree."""

from pathlib import Path

import pytest

from services.api.projection import stories as module
from services.api.projection.stories import Stories
from services.api.views.trace import trace_entries
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.trace import TraceRecord, causes_of
from tools.scenario.runner import ScenarioRunner
from tools.scenario.schema import Scenario

CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: gangs}
          - {name: owed, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: "1"}}}
"""
LIFE = {
    "name": "a gang's life",
    "nodes": [{"name": "n1", "capacity": {"cpu": "3", "pods": 10}}],
    "steps": [
        {
            "submit": {
                "app": "gang",
                "queue": "root.gangs",
                "placeholderTimeoutInSeconds": 10,
                "taskGroups": [{"name": "w", "minMember": 3, "minResource": {"cpu": "1"}}],
            }
        },
        {"expect": {"applications": {"gang": {"placeholders": 3}}}},
        {
            "pods": {
                "app": "gang",
                "taskGroup": "w",
                "name": "w",
                "count": 2,
                "requests": {"cpu": "1"},
            }
        },
        {"expect": {"applications": {"gang": {"placeholders": 1, "state": "Running"}}}},
        {"advance": "11s"},
        {"expect": {"applications": {"gang": {"placeholders": 0}}}},
        {
            "pods": {
                "app": "gang",
                "name": "late",
                "requests": {"cpu": "1"},
            }
        },
        {"hold": {"confirmations": True}},
        {"submit": {"app": "owed", "queue": "root.owed"}},
        {"pods": {"app": "owed", "name": "owed", "requests": {"cpu": "1"}}},
        {"advance": "3s"},
        {"hold": {"confirmations": False}},
        {"expect": {"pods": {"owed": {"state": "Running"}}}},
        {"delete": {"app": "gang"}},
        {"advance": "40s"},
    ],
}


async def lived(scenario=LIFE):
    """Run a scenario; return the stories that the API knows at its end."""
    broker = MemoryBroker()
    runner = ScenarioRunner(
        Scenario.model_validate(scenario), CONFIG, Path("life"), lambda: MemoryBus(broker)
    )
    kept, stop = [], runner.cluster.stop

    async def keep():
        kept.append(runner.cluster.api.partitions.stories)
        await stop()

    runner.cluster.stop = keep
    result = await runner.run()
    assert result.failures == []
    return kept[0]


def ancestors(entry, by_id):
    while entry["causeID"]:
        entry = by_id[entry["causeID"]]
        yield entry


async def test_a_gang_s_whole_life_is_one_tree_without_causes_outside_it():
    stories = await lived()
    for name in ("gang", "owed"):
        steps = stories.of(name)
        known = {step.record.message_id for step in steps} | {""}
        assert [s for s in steps if causes_of(s.record, s.at)[0] not in known] == []
        assert [s for s in steps if s.parent != causes_of(s.record, s.at)[0]] == []
        entries = trace_entries(steps, name)
        assert len({entry["traceID"] for entry in entries}) == 1
        seen = {""}
        for entry in entries:  # what caused a step stands above it
            assert entry["parentSpanID"] in seen
            seen.add(entry["spanID"])
        below = {entry["message"] for entry in entries if entry["causeID"] == ""}
        told_from_outside = {"SubmitApplication", "SubmitPods", "DeleteApplication"}
        assert below - {"submission", "HoldConfirmations"} <= told_from_outside


async def test_timers_evictions_swaps_and_the_end_hang_below_their_true_cause():
    entries = trace_entries((await lived()).of("gang"), "gang")
    by_id = {entry["messageID"]: entry for entry in entries}

    def the(message, text):
        found = [
            entry
            for entry in entries
            if entry["message"] == message and text in entry["contents"] + entry["decision"]
        ]
        assert found, (message, text)
        return found[0]

    def is_below(entry, message, text):
        return any(
            message == one["message"] and text in one["contents"] + one["decision"]
            for one in ancestors(entry, by_id)
        )

    fired = the("TimerFirings", "1 placeholder timer fired")
    armed = [one for one in ancestors(fired, by_id) if one["message"] == "TimerOrders"]
    assert [one["contents"] for one in armed] == ["1 placeholder timer armed"]
    assert is_below(the("decision", "TIMEOUT"), "TimerFirings", "1 placeholder timer fired")
    assert is_below(the("decision", "PLACEHOLDER_REPLACED"), "SubmitPods", "2 pods")
    swapped = the("UpdateRequest", "releases PLACEHOLDER_REPLACED")
    assert is_below(swapped, "UpdateResponse", "released allocations PLACEHOLDER_REPLACED")
    evicted = the("decision", "PREEMPTED_BY_SCHEDULER")
    assert "preempting allocations" in evicted["reason"]
    assert evicted["links"]  # what was looked for at that moment, in nobody's story
    gone = the("HoldConfirmations", "1 release PREEMPTED_BY_SCHEDULER")
    (led,) = gone["links"]
    assert "1 released allocation PREEMPTED_BY_SCHEDULER" in by_id[led]["contents"]
    assert is_below(the("decision", "Completed"), "TimerFirings", "1 completing timer fired")


@pytest.mark.parametrize("at", [4, len(LIFE["steps"])])
async def test_the_trace_outlives_the_api_replica(at):
    whole = trace_entries((await lived()).of("gang"), "gang")
    steps = [*LIFE["steps"][:at], {"restart": "api"}, *LIFE["steps"][at:]]
    kept = trace_entries((await lived({**LIFE, "steps": steps})).of("gang"), "gang")

    def shape(entries):
        places = {entry["spanID"]: at for at, entry in enumerate(entries)}
        return [(e["message"], e["decision"], places.get(e["parentSpanID"])) for e in entries]

    assert shape(kept) == shape(whole)


def step(step_id, cause_id, at=0, applications=("app",), causes=()):
    said = ("",) * len(applications)
    return TraceRecord(
        step_id, cause_id, "", "", "UpdateRequest", "x", "y", at, 0, 1,
        applications, said, said, said, causes,
    )  # fmt: skip


def of(*records):
    stories = Stories()
    for record in records:
        stories.remember(record)
    return [(s.record.message_id, s.parent, s.links, s.depth) for s in stories.of("app")]


def test_a_cause_stands_before_what_it_led_to_though_its_clock_is_behind():
    assert of(step("b", "a", at=1), step("a", "", at=5)) == [
        ("a", "", (), 1),
        ("b", "a", (), 2),
    ]


def test_what_is_not_known_here_is_below_the_submission_and_linked():
    assert of(step("b", "lost")) == [("b", "", ("lost",), 1)]
    led = step("c", "", causes=(("lost", "b", "other"),))
    assert of(step("b", ""), led)[1] == ("c", "b", ("lost", "other"), 2)


def test_a_command_stays_below_the_submission_though_it_links_to_what_is_known():
    assert of(step("b", ""), step("c", "", causes=(("", "b"),)))[1] == ("c", "", ("b",), 1)


def test_causes_in_a_circle_end_at_the_submission():
    assert of(step("a", "b"), step("b", "a")) == [("b", "", ("a",), 1), ("a", "b", (), 2)]


def test_what_was_told_twice_is_one_step():
    assert of(step("a", ""), step("a", "")) == [("a", "", (), 1)]


@pytest.mark.parametrize(
    ("limit", "kept"),
    [("MAX_STORY", ["two", "three"]), ("MAX_HELD", []), ("MAX_STORIES", ["one", "two", "three"])],
)
def test_stories_have_limits_and_the_oldest_go(monkeypatch, limit, kept):
    monkeypatch.setattr(module, limit, 2)
    stories = Stories()
    for number, name in enumerate(("one", "two", "three")):
        stories.remember(step(name, "", at=number))
    assert [s.record.message_id for s in stories.of("app")] == kept
    for name in ("other", "another"):
        stories.remember(step(name, "", applications=(name,)))
    assert [bool(stories.of(name)) for name in ("app", "other", "another")] == [
        limit == "MAX_STORY", True, True
    ]  # fmt: skip
