"""What the API says of queues, users, rules and events, from the core's own state events."""

import re
from dataclasses import replace

from services.api.projection.events import EventRing
from services.api.views import progress
from services.api.yunikorn import answers
from services.api.yunikorn import events as ws_v1_events
from services.api.yunikorn import usage as ws_v1_usage
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.state import (
    ApplicationSummary,
    EventState,
    SnapshotRequest,
    StateChange,
    StateDelta,
)
from shared.model.event_codes import EventType
from tests.builders import config_of
from tests.unit.api.following import System

ONE = {"vcore": 1000, "pods": 1}
NODE = {"vcore": 10_000, "memory": 100_000, "pods": 100}


def with_rules(rules: str) -> str:
    return config_of("{name: a}").removesuffix("}]") + f", placementrules: {rules}}}]"


def test_p_01_the_effective_rules_without_any():
    system = System(config_of("{name: a}"))
    assert ws_v1_usage.rules_info(system.model) == [
        {"name": "provided", "parameters": {"create": "false"}},
        {"name": "recovery", "parameters": {"queue": "root.@recovery@"}},
    ]


def test_p_01_an_unknown_rule_leaves_the_old_ones():
    system = System(with_rules("[{name: user, create: true}]"))
    system.send(UpdateConfiguration(with_rules("[{name: unknown}]")))
    names = [rule["name"] for rule in ws_v1_usage.rules_info(system.model)]
    assert names == ["user", "recovery"]
    error = progress.configuration(system.model)["error"]
    assert "unknown rule name specified unknown" in error


def test_rules_with_parents_and_filters():
    system = System(
        with_rules(
            "[{name: tag, value: NameSpace, create: true, filter: {type: deny, users: [bob]}, "
            "parent: {name: fixed, value: top, create: true}}]"
        )
    )
    assert ws_v1_usage.rules_info(system.model)[0] == {
        "name": "tag",
        "parameters": {"tagName": "namespace", "create": "true"},
        "filter": {"type": "deny", "userList": ["bob"]},
        "parentRule": {
            "name": "fixed",
            "parameters": {"queue": "top", "create": "true", "qualified": "false"},
        },
    }


def test_queue_fields():
    system = System(
        config_of(
            "{name: a, parent: true, properties: {priority.policy: fence, priority.offset: '3', "
            "preemption.policy: fence, preemption.delay: 90s}, childtemplate: {maxapplications: 10, "
            "resources: {max: {memory: 600}, guaranteed: {memory: 400}}}, queues: [{name: b}]}"
        )
    )
    info = answers.queue_info(system.model, "root.a", subtree=False)
    assert info["template"] == {
        "maxApplications": 10,
        "maxResource": {"memory": 600},
        "guaranteedResource": {"memory": 400},
    }
    assert info["currentPriority"] == -(2**31)
    wanted = {
        "isPriorityFence": True, "priorityOffset": 3, "isPreemptionFence": True,
        "preemptionDelay": "1m30s", "quotaPreemptionDelay": "0s", "preemptionEnabled": True,
    }  # fmt: skip
    assert {key: info[key] for key in wanted} == wanted
    below = answers.queue_info(system.model, "root.a.b", subtree=False)
    assert "template" not in below
    assert below["properties"]["priority.policy"] == "default"


def test_usage_of_users_and_groups():
    system = System(
        config_of(
            "{name: a, limits: [{users: [testuser], maxresources: {vcore: 5}, maxapplications: 3}, "
            "{groups: [testgroup], maxresources: {vcore: 8}}]}"
        )
    )
    system.node("n1", **NODE)
    ugi = UserGroupInformation("testuser", ("testgroup",))
    system.application("app-1", "root.a", ugi=ugi)
    system.asks("app-1", ["k"], ONE)
    [user] = ws_v1_usage.users_info(system.model, system.model.users.values())
    assert user == {
        "userName": "testuser",
        "groups": {"app-1": "testgroup"},
        "queues": {
            "queuePath": "root",
            "resourceUsage": ONE,
            "runningApplications": ["app-1"],
            "children": [
                {
                    "queuePath": "root.a",
                    "resourceUsage": ONE,
                    "runningApplications": ["app-1"],
                    "maxResources": {"vcore": 5000},
                    "maxApplications": 3,
                }
            ],
        },
    }
    [group] = ws_v1_usage.groups_info(system.model, system.model.groups.values())
    assert (group["groupName"], group["applications"]) == ("testgroup", ["app-1"])
    assert group["queues"]["children"][0]["maxResources"] == {"vcore": 8000}
    system.update(remove_applications=(RemoveApplicationRequest("app-1"),))
    assert system.model.users == {}
    assert system.model.groups == {}


def test_s_16_only_asks_that_more_nodes_would_help_are_outstanding():
    system = System(config_of("{name: a, resources: {max: {vcore: 3}}}"))
    system.application("app", "root.a")
    asks = {"vcore": 1000, "memory": 1}
    system.asks("app", ["k1", "k2", "k3"], asks)
    assert progress.outstanding([system.model]) == []  # no node, no attempt
    system.node("full", vcore=500, memory=10)
    system.node("big", vcore=9_000, memory=0)
    found = progress.outstanding([system.model])
    assert len(found) == 3
    assert sum(item["resource"]["memory"] for item in found) == 3
    assert sum(item["resource"]["vcore"] for item in found) == 3000
    system.asks("app", ["large"], {"vcore": 4000, "memory": 1})
    assert len(progress.outstanding([system.model])) == 3  # what its quota refuses is left out


def test_u_07_a_request_says_once_that_it_does_not_fit_and_once_that_it_does():
    system = System(config_of("{name: default, resources: {max: {memory: 100, vcores: 10}}}"))
    system.node("n1", memory=1000, vcores=100)
    system.application("filler", "root.default")
    system.asks("filler", ["f"], {"memory": 100, "vcores": 10})
    system.application("app", "root.default")
    system.asks("app", ["alloc-0"], {"memory": 100, "vcores": 10})

    def texts():
        records = ws_v1_events.batch(system.model.events, "i", None, 100)["EventRecords"] or []
        return [r["message"] for r in records if r["objectID"] == "alloc-0"]

    not_fit = (
        "Request 'alloc-0' does not fit in queue 'root.default' "
        "(requested map[memory:100 vcores:10], available map[memory:0 vcores:0])"
    )
    assert texts() == [not_fit]
    system.send(
        UpdateConfiguration(
            config_of("{name: default, resources: {max: {memory: 150, vcores: 15}}}")
        )
    )
    assert texts() == [not_fit]  # looked at again, and still too large
    system.update(releases=(AllocationRelease("filler", "f", TerminationType.STOPPED_BY_RM),))
    assert texts() == [not_fit, "Request 'alloc-0' has become schedulable in queue 'root.default'"]


def test_a_users_quota_speaks_too():
    system = System(config_of("{name: a, limits: [{users: [u], maxresources: {vcore: 1}}]}"))
    system.node("n1", **NODE)
    system.application("app", "root.a", ugi=UserGroupInformation("u"))
    system.asks("app", ["k1", "k2"], ONE)
    system.update(releases=(AllocationRelease("app", "k1", TerminationType.STOPPED_BY_RM),))
    records = ws_v1_events.batch(system.model.events, "i", None, 100)["EventRecords"]
    records = [record for record in records if record["type"] == EventType.REQUEST]
    assert [record["message"] for record in records] == [
        (
            "Request 'k2' exceeds the available user quota (requested map[pods:1 vcore:1000], "
            "available map[vcore:0])"
        ),
        "Request 'k2' fits in the available user quota",
    ]
    assert {record["referenceID"] for record in records} == {"app"}


def test_g_29_metrics_follow_the_states():
    system = System(config_of("{name: a, resources: {max: {memory: 1}}}"))
    system.node("n1", vcore=1000, pods=10)
    # app-1: gives its gang up (Resuming), then runs to its end
    request = AddApplicationRequest("app-1", "root.a", placeholder_ask={"vcore": 1000, "pods": 2})
    ask = AllocationAsk("ph0", "app-1", ONE, placeholder=True, task_group_name="g")
    system.update(new_applications=(request,), asks=(ask,))
    system.fire("app-1", "placeholder")
    system.update(releases=(AllocationRelease("app-1", "ph0", TerminationType.TIMEOUT),))
    system.asks("app-1", ["real"], ONE)
    for name in ("app-2", "app-3"):
        gang = AddApplicationRequest(
            name, "root.a", gang_scheduling_style="Hard", placeholder_ask={"vcore": 1000, "pods": 2}
        )
        system.update(releases=(AllocationRelease("app-1", "real", TerminationType.STOPPED_BY_RM),))
        system.update(
            new_applications=(gang,),
            asks=(AllocationAsk(f"{name}-ph", name, ONE, placeholder=True, task_group_name="g"),),
        )
        system.fire(name, "placeholder")
        system.update(releases=(AllocationRelease(name, f"{name}-ph", TerminationType.TIMEOUT),))
    system.application("app-4", "A", placeholder_ask={"memory": 2})
    system.fire("app-1", "completing")
    assert queue_gauges(system) == {"completed": 1, "failed": 2, "rejected": 1}
    assert queue_gauges(system, "yunikorn_queue_app_total") == queue_gauges(system)
    assert scheduler_gauges(system) == {"completed": 1, "failed": 2}
    assert submissions(system) == {"new": 4, "accepted": 3, "rejected": 1}
    assert system.metric('yunikorn_scheduler_node{state="active"}') == 1


def by_label(system, family: str, label: str, more: str = "") -> dict[str, int]:
    """Return the samples of a family that are not 0, by one of their labels."""
    found = re.findall(
        rf'^{family}\{{{more}{label}="(\w+)"\}} (\S+)$', system.metrics(), re.MULTILINE
    )
    return {name: int(float(value)) for name, value in found if float(value)}


def queue_gauges(system, family: str = "yunikorn_queue_app") -> dict[str, int]:
    return by_label(system, family, "state", 'queue="root.a",')


def scheduler_gauges(system) -> dict[str, int]:
    return by_label(system, "yunikorn_scheduler_application_total", "state")


def submissions(system) -> dict[str, int]:
    return by_label(system, "yunikorn_scheduler_application_submission_total", "result")


def told(system, name: str, submission: str, state: str, log: tuple[StateChange, ...]) -> None:
    """Let the replica hear that an application is in a state, as if the core had said so."""
    summary = replace(
        SUMMARY, application_id=name, submission=submission, state=state, state_log=log
    )
    following = system.projection
    delta = StateDelta(applications=(summary,))
    envelope = Envelope(
        "e", "StateDelta", delta, API_ALL, "core", epoch=following.epoch, seq=following.seq + 1
    )
    assert not following.handle(envelope, 1)


SUMMARY = ApplicationSummary(
    "", "", "root.a", "New", "nobody", (), 1, 0, 0, {}, {}, {}, {}, -(2**31), "", ""
)  # fmt: skip
FAILS = ("Accepted", "Running", "Failing", "Failed")


def test_g_29_every_transition_moves_the_gauges_and_counters():
    """The case's own transitions, some of which nothing leads to while there is one partition."""
    system = System(config_of("{name: a}"))
    stories = {
        "app-1": ("Resuming", "Accepted", "Running", "Completing", "Completed"),
        "app-2": FAILS,
        "app-3": FAILS,
        "app-4": ("Rejected",),
    }
    ended: dict[str, int] = {}
    for number, (name, states) in enumerate(stories.items(), start=1):
        log: tuple[StateChange, ...] = ()
        for state in ("New", *states):
            if state != "New":
                log = (*log, StateChange(1, state))
            told(system, name, f"{number}", state, log)
            is_end = state == states[-1]
            if is_end:
                ended[state.lower()] = ended.get(state.lower(), 0) + 1
            now = {} if is_end else {state.lower(): 1}
            assert queue_gauges(system) == {**ended, **now}
            assert queue_gauges(system, "yunikorn_queue_app_total") == ended
            shown = {k: v for k, v in {**ended, **now}.items() if k in SHOWN}
            assert scheduler_gauges(system) == shown
            assert submissions(system)["new"] == number
    assert queue_gauges(system) == {"completed": 1, "failed": 2, "rejected": 1}
    assert scheduler_gauges(system) == {"completed": 1, "failed": 2}
    assert submissions(system) == {"new": 4, "accepted": 3, "rejected": 1}


SHOWN = {"running", "resuming", "failing", "completing", "completed", "failed"}


def test_a_submission_is_accepted_when_it_first_asks_and_once():
    system = System(config_of("{name: a}"))
    system.application("app", "root.a")
    assert submissions(system) == {"new": 1}
    system.asks("app", ["k"], ONE)
    assert submissions(system) == {"new": 1, "accepted": 1}
    system.node("n1", **NODE)
    system.update(releases=(AllocationRelease("app", "k", TerminationType.STOPPED_BY_RM),))
    system.asks("app", ["k2"], ONE)  # Completing, and Running again
    assert submissions(system) == {"new": 1, "accepted": 1}
    system.send(SnapshotRequest("one"))
    assert submissions(system) == {"new": 1, "accepted": 1}


def test_w_20_a_duplicate_that_is_rejected_counts_nothing():
    system = System(config_of("{name: a}"))
    system.application("app", "root.a")
    for _ in range(2):
        assert submissions(system) == {"new": 1}
        assert queue_gauges(system) == {"new": 1}
        assert system.metric('yunikorn_queue_app{queue="root.a",state="new"}') == 1
        system.application("app", "root.a")


def test_a_queue_that_has_gone_keeps_its_count_of_the_ended_alone():
    system = System(config_of("{name: a, resources: {max: {vcore: 1}}}", "{name: b}"))
    system.application("app", "root.a", placeholder_ask={"vcore": 1001})
    assert queue_gauges(system) == {"rejected": 1}
    system.send(UpdateConfiguration(config_of("{name: b}")))
    system.fire_own("cleaner")
    assert "root.a" not in system.model.queues
    assert queue_gauges(system) == {}
    assert queue_gauges(system, "yunikorn_queue_app_total") == {"rejected": 1}


def test_w_17_the_ring_of_events():
    ring = EventRing(20)
    assert (ring.lowest, ring.highest, ring.read(0, 5)) == (0, 0, [])
    for at in range(25):
        ring.add(EventState(1, f"{at}", "", 0))
    assert (ring.lowest, ring.highest) == (5, 24)
    assert len(ring.read(18, 100)) == 7
    assert [event.object_id for event in ring.read(18, 2)] == ["18", "19"]
    assert ring.read(311, 1) == ring.read(4, 1) == []


def test_a_refused_configuration_is_an_event_and_stands_in_the_answer():
    system = System(config_of("{name: a}"))
    system.send(UpdateConfiguration("partitions: 1"))
    said = progress.configuration(system.model)["error"]
    assert "cannot unmarshal" in said
    records = ws_v1_events.batch(system.model.events, "i", None, 10)["EventRecords"]
    assert said in records[-1]["message"]
    system.send(UpdateConfiguration(config_of("{name: a}", "{name: b}")))
    assert progress.configuration(system.model)["error"] == ""


def test_what_holds_a_queue_back():
    system = System(config_of("{name: a, resources: {max: {vcore: 1}}}", "{name: b}"))
    system.node("n1", **NODE)
    system.application("app", "root.a")
    system.asks("app", ["k1", "k2", "k3"], ONE)
    tree = progress.queue_tree(system.model)
    a, b = tree["children"]
    assert [(item["reason"], item["asks"]) for item in a["waiting"]] == [("QUEUE_QUOTA", 2)]
    assert b["waiting"] == []
    release = AllocationAskRelease("app", "", TerminationType.STOPPED_BY_RM)
    system.update(ask_releases=(release,))
    assert progress.queue_tree(system.model)["children"][0]["waiting"] == []


def test_the_allocation_log_of_the_one_that_was_tried_and_of_those_behind_it():
    system = System(config_of("{name: a, resources: {max: {vcore: 1}}}"))
    system.update(nodes=(NodeInfo("n", NodeAction.CREATE, NODE),))
    system.application("app", "root.a")
    system.asks("app", ["runs", "first", "second"], ONE)
    view = system.model.application("app")
    logs = {
        ask["allocationKey"]: ask["allocationLog"]
        for ask in answers.application_info(system.model, view)["requests"]
    }
    quota, preconditions = "Not enough queue quota", "Preemption preconditions failed"
    now = {"lastOccurrence": system.now_ns, "count": 1}
    assert logs == {
        "first": [{"message": quota, **now}, {"message": preconditions, **now}],
        "second": [{"message": quota, **now}],
    }


def test_what_an_application_used_is_told_by_what_became_of_it():
    system = System(config_of("{name: a}"))
    typed = NodeInfo("n", NodeAction.CREATE, NODE, attributes={"si/instance-type": "large"})
    system.update(nodes=(typed,))
    system.gang("app", 1, ONE, queue="root.a")
    view = system.model.application("app")
    assert answers.application_info(system.model, view)["resourceHistory"] == {}
    system.asks("app", ["real"], ONE, task_group_name="tg")
    system.now_ns += 5_900_000_000  # whole seconds count
    replaced = AllocationRelease("app", "app-ph-0", TerminationType.PLACEHOLDER_REPLACED)
    system.update(releases=(replaced,))
    system.now_ns += 2_000_000_000
    system.update(releases=(AllocationRelease("app", "real", TerminationType.STOPPED_BY_RM),))
    view = system.model.application("app")
    assert answers.application_info(system.model, view)["resourceHistory"] == {
        "placeholderResource": {"large": {"vcore": 5000, "pods": 5}},
        "resourceUsage": {"large": {"vcore": 2000, "pods": 2}},
    }
