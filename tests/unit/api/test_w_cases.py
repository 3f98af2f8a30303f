"""Cases W over HTTP, from a replica that follows a core (W-05 and W-16 apart)."""

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from services.api.projection.event_settings import MOST_EVENTS, EventSettings, event_settings
from services.api.projection.events import EventRing
from services.api.yunikorn import events as ws_v1_events
from services.api.yunikorn.answers import application_info
from shared.messages.interface import Allocation, UpdateConfiguration, UserGroupInformation
from shared.messages.state import EventState
from tests.builders import config_of
from tests.table import each_row
from tests.unit.api.following import System
from tests.unit.api.test_application_lists import one_in_every_state, refused

ONE = {"vcore": 1000, "pods": 1}
PARTITION = "/ws/v1/partition/default"


async def answered(system, path):
    response = await system.get(path)
    assert response.status_code == 200, response.text
    return response.json()


# --- partitions, queues, nodes ------------------------------------------------------------------


async def test_w_01_before_there_is_anything_the_list_is_empty():
    system = System()
    system.model.partition = None
    response = await system.get("/ws/v1/partitions")
    assert (response.status_code, response.text) == (200, "[]\n")


async def test_w_01_applications_are_counted_by_state():
    system = one_in_every_state()
    (partition,) = await answered(system, "/ws/v1/partitions")
    states = Counter({"Running": 2, "total": 10})  # one of them in another queue
    for state in ("New", "Accepted", "Completing", "Failing", "Resuming"):
        states[state] = 1
    for state in ("Rejected", "Completed", "Failed"):
        states[state] = 1
    assert partition["applications"] == dict(states)


async def test_w_01_capacity_and_what_is_used_of_it():
    system = System(config_of("{name: a}"))
    for name in ("node-1", "node-2"):
        system.node(name, memory=500, vcore=500)
    system.application("app", "root.a")
    for at, (memory, vcore) in enumerate(((100, 400), (200, 300)), start=1):
        amount = {"memory": memory, "vcore": vcore}
        system.update(allocations=(Allocation(f"k{at}", "app", f"node-{at}", amount),))
    (partition,) = await answered(system, "/ws/v1/partitions")
    assert partition["capacity"] == {
        "capacity": {"memory": 1000, "vcore": 1000},
        "usedCapacity": {"memory": 300, "vcore": 700},
        "utilization": {"memory": 30, "vcore": 70},
    }
    wanted = {
        "name": "default", "state": "Active", "preemptionEnabled": True, "totalNodes": 2,
        "quotaPreemptionEnabled": False, "totalContainers": 2,
        "nodeSortingPolicy": {"type": "fair", "resourceWeights": {"memory": 1.0, "vcore": 1.0}},
    }  # fmt: skip
    assert {key: partition[key] for key in wanted} == wanted


async def test_w_02_the_queue_tree_is_one_object():
    system = System(
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a, "
        "resources: {guaranteed: {memory: 500000, vcore: 50000}, max: {memory: 800000, vcore: 80000}}, "
        "childtemplate: {maxapplications: 10, resources: {max: {memory: 600000}, "
        "guaranteed: {memory: 400000}}}, queues: [{name: a1}]}]}]}]"
    )
    root = await answered(system, f"{PARTITION}/queues")
    assert (root["queuename"], root["partition"], root["isLeaf"]) == ("root", "default", False)
    assert (root["currentPriority"], root["childNames"]) == (-2147483648, ["root.a"])
    assert "template" not in root
    (a,) = root["children"]
    assert (a["queuename"], a["partition"], a["parent"]) == ("root.a", "", "root")
    assert a["maxResource"] == {"memory": 800_000, "vcore": 80_000_000}
    assert a["guaranteedResource"] == {"memory": 500_000, "vcore": 50_000_000}
    assert a["template"] == {
        "maxApplications": 10,
        "maxResource": {"memory": 600_000},
        "guaranteedResource": {"memory": 400_000},
    }
    (a1,) = a["children"]
    assert (a1["queuename"], a1["partition"], a1["isLeaf"]) == ("root.a.a1", "", True)
    assert a1["currentPriority"] == -2147483648
    assert ("template" in a1, "children" in a1) == (False, False)
    alone = await answered(system, f"{PARTITION}/queue/root.a")
    assert (alone["partition"], "children" in alone) == ("", False)
    assert alone["childNames"] == ["root.a.a1"]
    with_those_below = await answered(system, f"{PARTITION}/queue/ROOT.A?subtree")
    assert with_those_below["children"] == [a1]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (f"{PARTITION}/queue/root.notexists!", 400, "invalid queue name, max 64 characters"),
        (f"{PARTITION}/queue/notexists", 404, "Queue not found"),
        (f"{PARTITION}/queue/root..a", 400, "invalid queue name"),
        ("/ws/v1/partition/notexists/queue/root.a", 404, "Partition not found"),
        ("/ws/v1/partition/notexists/queues", 404, "Partition not found"),
        (f"{PARTITION}/queue/%25Zt", 400, 'invalid URL escape "%Zt"'),
        (f"{PARTITION}/queue/root.a%25", 400, 'invalid URL escape "%"'),
        (f"{PARTITION}/queue/root.a%252", 400, 'invalid URL escape "%2"'),
        (f"{PARTITION}/queue/root.a%25Zt/applications", 400, 'invalid URL escape "%Zt"'),
        (f"{PARTITION}/queue/root.a%250A", 400, "invalid queue name"),
        (f"{PARTITION}/usage/user/%25Zt", 400, 'invalid URL escape "%Zt"'),
        (f"{PARTITION}/usage/group/%25Zt", 400, 'invalid URL escape "%Zt"'),
    ],
)
async def test_w_04_what_is_no_queue(path, status, message):
    code, text = await refused(System(config_of("{name: a}")), path)
    assert (code, text[: len(message)]) == (status, message)


async def test_w_04_names_are_unescaped_a_second_time():
    system = System(config_of("{name: a/b}"))
    assert (await answered(system, f"{PARTITION}/queue/root.a%252Fb"))["queuename"] == "root.a/b"
    code, _ = await refused(system, f"{PARTITION}/queue/root.a+b")  # a space
    assert code == 400


# --- applications, users ------------------------------------------------------------------------


async def test_w_07_a_backoff_shows_until_when():
    system = System(config_of("{name: a}"))
    system.application("app", "root.a")
    assert "backoffDeadline" not in await answered(system, f"{PARTITION}/application/app")
    view = system.model.applications["app"]
    view.summary = replace(view.summary, backoff_until_ns=123 * 10**9)
    for path in ("application/app", "queue/root.a/application/app"):
        answer = await answered(system, f"{PARTITION}/{path}")
        assert answer["backoffDeadline"] == "1970-01-01T00:02:03Z"
    assert answer == application_info(system.model, view)
    for path in ("application/none", "queue/root.a/application/none"):
        assert await refused(system, f"{PARTITION}/{path}") == (404, "Application not found")


async def test_w_10_what_a_user_and_a_group_use():
    system = System(
        config_of("{name: default, limits: [{groups: [testgroup], maxresources: {cpu: 200}}]}")
    )
    system.node("n1", vcore=10, pods=10)
    ugi = UserGroupInformation("testuser", ("testgroup",))
    system.application("app-1", "root.default", ugi=ugi)
    system.asks("app-1", ["k"], {"vcore": 1})
    below = {
        "queuePath": "root.default",
        "resourceUsage": {"vcore": 1},
        "runningApplications": ["app-1"],
    }
    root = {**below, "queuePath": "root"}
    user = {
        "userName": "testuser",
        "groups": {"app-1": "testgroup"},
        "queues": {**root, "children": [below]},
    }
    group = {
        "groupName": "testgroup",
        "applications": ["app-1"],
        "queues": {**root, "children": [{**below, "maxResources": {"cpu": 200}}]},
    }
    usage = f"{PARTITION}/usage"
    assert await answered(system, f"{usage}/user/testuser") == user
    assert await answered(system, f"{usage}/users") == [user]
    assert await answered(system, f"{usage}/group/testgroup") == group
    assert await answered(system, f"{usage}/groups") == [group]
    other = usage.replace("default", "any")  # the partition is not looked at
    assert await answered(system, f"{other}/user/testuser") == user


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("user/unknown", (404, "User not found")),
        ("user/1InvalidUser", (400, "Invalid user name")),
        ("user/testuser%0A", (400, "Invalid user name")),
        ("group/unknown", (404, "Group not found")),
        ("group/1InvalidGroup", (400, "Invalid group name")),
        ("group/testgroup%0A", (400, "Invalid group name")),
    ],
)
async def test_w_10_who_is_not_there_or_nobody_can_be(path, expected):
    assert await refused(System(config_of("{name: a}")), f"{PARTITION}/usage/{path}") == expected


async def test_w_14_the_rules_in_order_with_their_parents():
    text = config_of("{name: a}").removesuffix("}]")
    system = System(f"{text}, placementrules: {RULES}}}]")
    rules = await answered(system, f"{PARTITION}/placementrules")
    assert [rule["name"] for rule in rules] == ["user", "tag", "fixed", "recovery"]
    assert rules[1]["parentRule"]["name"] == "fixed"
    assert rules[1]["parentRule"]["parameters"] == {
        "queue": "root.default", "create": "true", "qualified": "true",
    }  # fmt: skip
    assert ["parentRule" in rule for rule in rules] == [False, True, False, False]
    plain = await answered(System(config_of("{name: a}")), f"{PARTITION}/placementrules")
    assert [rule["name"] for rule in plain] == ["provided", "recovery"]


RULES = (
    "[{name: User, create: false}, "
    "{name: tag, value: namespace, create: true, "
    "parent: {name: Fixed, value: root.default, create: true}}, "
    "{name: fixed, value: root.default, create: true}]"
)


# --- events -------------------------------------------------------------------------------------


def with_events(number, message=""):
    system = System(config_of("{name: a}"))
    ring = system.model.events = EventRing()
    for at in range(number):
        ring.add(EventState(2, f"app-{at}", message, 0))
    return system


async def ids(system, query):
    answer = await answered(system, f"/ws/v1/events/batch{query}")
    events = answer["EventRecords"]
    return None if events is None else [event["objectID"] for event in events]


async def test_w_11_events_from_a_number_on():
    system = with_events(3)
    assert await ids(system, "") == ["app-0", "app-1", "app-2"]
    assert await ids(system, "?count=1") == ["app-0"]
    assert await ids(system, "?start=2") == ["app-2"]
    assert await ids(system, "?start=1&count=1") == ["app-1"]
    assert await ids(system, "?count=&start=") == ["app-0", "app-1", "app-2"]
    answer = await answered(system, "/ws/v1/events/batch?start=3")
    assert (answer["LowestID"], answer["HighestID"], answer["EventRecords"]) == (0, 2, None)
    assert str(UUID(answer["InstanceUUID"])) == answer["InstanceUUID"]
    system.model.event_settings = event_settings({"event.RESTResponseSize": "1"})
    assert await ids(system, "?count=3") == await ids(system, "") == ["app-0"]


async def test_w_11_without_events_there_is_no_answer_and_they_can_be_switched_on_again():
    config = config_of("{name: a}")
    system = System(config, settings=(("event.trackingEnabled", "false"),))
    system.application("app-1", "root.a")
    for path in ("batch", "batch?count=0", "stream"):
        told = await refused(system, f"/ws/v1/events/{path}")
        assert told == (500, "Event tracking is disabled")
    assert system.model.events.next_id == 0
    system.send(UpdateConfiguration(config, {"event.trackingEnabled": "true"}))
    system.application("app-2", "root.a")
    assert "app-2" in await ids(system, "")
    assert "app-1" not in await ids(system, "")


async def test_w_11_how_many_events_are_held_and_told_is_configured():
    settings = (("event.ringBufferCapacity", "20"), ("event.RESTResponseSize", "3"))
    system = System(config_of("{name: a}"), settings=settings)
    for at in range(30):
        system.application(f"app-{at}", "root.a")
    ring = system.model.events
    assert ring.next_id - ring.lowest == 20
    assert len(await ids(system, "?count=9")) == len(await ids(system, "")) == 3
    lowest, highest = ring.lowest, ring.highest
    system.send(UpdateConfiguration(config_of("{name: a}"), {"event.ringBufferCapacity": "30"}))
    assert (ring.lowest, ring.highest, ring.read(lowest - 1, 1)) == (lowest, highest, [])
    assert len(ring.read(lowest, 100)) == 20


async def test_the_streams_are_as_many_as_is_configured():
    settings = (("event.maxStreams", "2"), ("event.maxStreamsPerHost", "0"))
    system = System(config_of("{name: a}"), settings=settings)
    too_many = (503, "Too many streaming connections")
    assert await refused(system, "/ws/v1/events/stream") == too_many
    more = {"event.maxStreams": "1", "event.maxStreamsPerHost": "5"}
    system.send(UpdateConfiguration(config_of("{name: a}"), more))
    system.machine.streams.join("other", system.model.events, 0, 0)
    assert await refused(system, "/ws/v1/events/stream") == too_many


@each_row("bad", ["", "-1", "many", "1.5", str(2**64)])
def test_a_number_of_the_events_that_does_not_hold_is_the_default(bad):
    keys = ("ringBufferCapacity", "RESTResponseSize", "maxStreams", "maxStreamsPerHost")
    assert event_settings({f"event.{key}": bad for key in keys}) == EventSettings()
    assert event_settings({"event.ringBufferCapacity": str(10**12)}).capacity == MOST_EVENTS


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("count=0", '0 is not a valid value for "count"'),
        ("count=xyz", 'strconv.ParseUint: parsing "xyz": invalid syntax'),
        ("count=-100", 'strconv.ParseUint: parsing "-100": invalid syntax'),
        (
            "count=18446744073709551616",
            'strconv.ParseUint: parsing "18446744073709551616": value out of range',
        ),
        ("count=%2B5", 'strconv.ParseUint: parsing "+5": invalid syntax'),
        ("start=%2B5", 'strconv.ParseUint: parsing "+5": invalid syntax'),
        ("start=xyz", 'strconv.ParseUint: parsing "xyz": invalid syntax'),
        ("start=-100", 'strconv.ParseUint: parsing "-100": invalid syntax'),
    ],
)
async def test_w_11_what_is_no_number_is_refused_in_gos_words(query, message):
    assert await refused(with_events(3), f"/ws/v1/events/batch?{query}") == (400, message)


def test_w_17_where_nothing_is_held_the_range_is_still_told():
    ring = EventRing(20)

    def told(start, count=100):
        answer = ws_v1_events.batch(ring, "i", start, count)
        events = answer["EventRecords"]
        held = None if events is None else [event["objectID"] for event in events]
        return answer["LowestID"], answer["HighestID"], held

    assert told(0) == told(None) == (0, 0, None)
    for at in range(25):
        ring.add(EventState(1, f"{at}", "", 0))
    assert told(18) == (5, 24, [f"{at}" for at in range(18, 25)])
    assert told(18, 2) == (5, 24, ["18", "19"])
    assert told(311) == told(4) == told(25) == (5, 24, None)


@pytest.mark.parametrize(("length", "shown"), [(1024, 1024), (1025, 1021), (1100, 1021)])
async def test_w_19_a_long_message_is_cut(length, shown):
    system = with_events(1, "x" * length)
    answer = await answered(system, "/ws/v1/events/batch")
    (event,) = answer["EventRecords"]
    assert event["message"] == "x" * shown + ("..." if shown < length else "")
    assert len(event["message"]) == 1024


async def test_w_20_the_metrics_answer_has_both_families():
    system = System(config_of("{name: a}"))
    system.application("app", "root.a")
    response = await system.get("/ws/v1/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    for line in (
        'yunikorn_scheduler_application_submission_total{result="new"} 1.0',
        'yunikorn_queue_app{queue="root.a",state="new"} 1.0',
    ):
        assert line in response.text.splitlines()


# --- what stands there before there is anything to tell -------------------------------------------


async def test_partition_without_an_application_counts_none():
    (partition,) = await answered(System(config_of("{name: a}")), "/ws/v1/partitions")
    assert partition["applications"] == {"total": 0}


@pytest.mark.parametrize(
    ("groups", "told"), [((), ["sue"]), (("dev",), ["dev"]), (("dev", "ops"), ["dev", "ops"])]
)
async def test_who_names_no_group_has_one_of_the_own_name(groups, told):
    system = System(config_of("{name: a}"))
    for name, queue in (("app", "root.a"), ("refused", "root.none")):
        system.application(name, queue, ugi=UserGroupInformation("sue", groups))
    app = await answered(system, f"{PARTITION}/application/app")
    (refused_one,) = await answered(system, f"{PARTITION}/applications/rejected")
    assert (app["groups"], refused_one["groups"]) == (told, told)
