"""Case W-05: the lists of applications by state and status."""

from urllib.parse import quote

import pytest

from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
)
from tests.builders import config_of
from tests.unit.api.following import System

ONE = {"vcore": 1000, "pods": 1}
PARTITION = "/ws/v1/partition/default"
QUEUE = f"{PARTITION}/queue/root.a"
LIVE = ("New", "Accepted", "Running", "Completing", "Failing", "Resuming")
ENDED = {"rejected": ["Rejected"], "completed": ["Completed", "Failed"]}
STATES_SENTENCE = "Only following application states are allowed: active, rejected, completed"
STATUSES = {state.lower() for state in LIVE}


def one_in_every_state() -> System:
    """Return a system with an application in each state, named after it, and one elsewhere."""
    system = System(config_of("{name: a}", "{name: b}"))
    system.node("n1", vcore=5000, pods=100)
    for name in ("Failed", "Failing", "Resuming"):
        style = "Soft" if name == "Resuming" else "Hard"
        ask = {"vcore": 1000, "pods": 2}
        gang = AddApplicationRequest(
            name, "root.a", gang_scheduling_style=style, placeholder_ask=ask
        )
        placeholder = AllocationAsk(f"{name}-ph", name, ONE, placeholder=True, task_group_name="g")
        system.update(new_applications=(gang,), asks=(placeholder,))
        system.fire(name, "placeholder")
    system.update(releases=(AllocationRelease("Failed", "Failed-ph", TerminationType.TIMEOUT),))
    for name in ("Completed", "Completing", "Running", "Accepted"):
        system.application(name, "root.a")
        amount = {"vcore": 9000, "pods": 1} if name == "Accepted" else ONE  # larger than the node
        system.asks(name, [name], amount)
    for name in ("Completed", "Completing"):
        system.update(releases=(AllocationRelease(name, name, TerminationType.STOPPED_BY_RM),))
        if name == "Completed":
            system.fire(name, "completing")
    system.application("Rejected", "root.nowhere")
    system.application("New", "root.a")
    system.application("elsewhere", "root.b")
    system.asks("elsewhere", ["e"], ONE)
    return system


@pytest.fixture(scope="module")
def system():
    return one_in_every_state()


async def listed(system, path):
    answer = await system.get(path)
    assert answer.status_code == 200, answer.text
    return {app["applicationID"]: app["applicationState"] for app in answer.json()}


async def test_an_application_that_is_rejected_again_is_one_rejected_application():
    """ "Rejected apps are held in a separate map keyed by appID": the last one is shown."""
    system = System(config_of("{name: a}"))
    for queue in ("root.nowhere", "root.neither", "root.nor"):
        system.now_ns += 1
        system.application("again", queue)
    system.application("once", "root.nowhere")
    rejected = (await system.get(f"{PARTITION}/applications/rejected")).json()
    shown = [(app["applicationID"], app["queueName"]) for app in rejected]
    assert sorted(shown) == [("again", "root.nor"), ("once", "root.nowhere")]
    system.application("again", "root.a")
    (partition,) = (await system.get("/ws/v1/partitions")).json()
    assert partition["applications"] == {"New": 1, "Rejected": 2, "total": 3}


async def refused(system, path):
    answer = await system.get(path)
    body = answer.json()
    assert body == {
        "status_code": answer.status_code,
        "message": body["message"],
        "description": body["message"],
    }
    return answer.status_code, body["message"]


@pytest.mark.parametrize("state", ["Active", "active", "ACTIVE"])
async def test_w_05_active_is_every_live_state_in_any_case(system, state):
    apps = {name: name for name in LIVE}
    path = f"applications/{state}"
    assert await listed(system, f"{PARTITION}/{path}") == {**apps, "elsewhere": "Running"}
    assert await listed(system, f"{QUEUE}/{path}") == apps
    assert await listed(system, f"{PARTITION}/{path}?status=") == {**apps, "elsewhere": "Running"}


@pytest.mark.parametrize("status", LIVE)
async def test_w_05_a_status_narrows_the_live_ones_in_any_case(system, status):
    for text in (status, status.lower(), status.upper()):
        path = f"applications/Active?status={text}"
        more = {"elsewhere": "Running"} if status == "Running" else {}
        assert await listed(system, f"{PARTITION}/{path}") == {status: status, **more}
        assert await listed(system, f"{QUEUE}/{path}") == {status: status}


@pytest.mark.parametrize("state", ENDED)
async def test_w_05_ended_ones_are_by_whether_they_were_ever_accepted(system, state):
    expected = {name: name for name in ENDED[state]}
    for text in (state, state.capitalize(), state.upper()):
        assert await listed(system, f"{PARTITION}/applications/{text}") == expected
        # a status is of the active ones alone
        assert await listed(system, f"{PARTITION}/applications/{text}?status=x") == expected


@pytest.mark.parametrize("state", ["Accepted", "Running", "new", "failed", "all", "active "])
async def test_w_05_any_other_state_is_refused_with_those_there_are(system, state):
    assert await refused(system, f"{PARTITION}/applications/{quote(state)}") == (
        400,
        STATES_SENTENCE,
    )


@pytest.mark.parametrize("state", ["Accepted", "rejected", "Completed"])
async def test_w_05_of_a_queue_only_active_ones_are_listed(system, state):
    assert await refused(system, f"{QUEUE}/applications/{state}") == (
        400,
        "Only following application states are allowed: active",
    )


@pytest.mark.parametrize("status", ["invalid", "completed", "rejected", "active"])
@pytest.mark.parametrize("of", [PARTITION, QUEUE])
async def test_w_05_a_status_that_is_none_of_a_live_application_is_refused(system, of, status):
    code, message = await refused(system, f"{of}/applications/Active?status={status}")
    assert code == 400
    head, _, names = message.partition(": ")
    assert head == "Only following active statuses are allowed"
    assert set(names.split(", ")) == STATUSES


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("partition/gpu/applications/nonsense", (404, "Partition not found")),
        ("partition/gpu/queue/root.a/applications/nonsense", (404, "Partition not found")),
        ("partition/default/queue/root.none/applications/nonsense", (404, "Queue not found")),
        ("partition/default/queue/root.none/applications/active", (404, "Queue not found")),
    ],
)
async def test_w_05_what_is_not_there_comes_before_what_is_asked_of_it(system, path, expected):
    assert await refused(system, f"/ws/v1/{path}") == expected


async def test_w_05_a_parent_queue_has_none(system):
    assert await listed(system, f"{PARTITION}/queue/root/applications/active") == {}
    assert await listed(system, f"{PARTITION}/queue/ROOT.A/applications/active?status=new") == {
        "New": "New"
    }


async def test_w_05_one_that_ran_twice_is_listed_each_time_it_ended():
    system = System(config_of("{name: a}"))
    system.node("n1", vcore=5000, pods=100)
    for _ in range(2):
        system.application("again", "root.a")
        system.asks("again", ["k"], ONE)
        system.update(releases=(AllocationRelease("again", "k", TerminationType.STOPPED_BY_RM),))
        system.fire("again", "completing")
    answer = await system.get(f"{PARTITION}/applications/completed")
    assert [app["applicationID"] for app in answer.json()] == ["again", "again"]
    assert (await system.get(f"{PARTITION}/applications/active")).text == "[]\n"
