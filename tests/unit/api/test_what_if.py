"""What if over HTTP: a whole system in one process answers, and nothing is changed."""

import asyncio
import re

import pytest

from services.api import machine
from services.api.routes import why as routes_why
from services.api.web.answers import AnswerError
from services.api.why.what_if import read_question
from services.core.scheduler.policies.questions import BUSY, RECOVERING
from services.shim_adapter.records import PodPhase
from shared.messages.what_if import WhatIf
from tests import patience
from tests.table import each_row
from tests.unit.api.test_routes import GANG, system, until  # noqa: F401


async def ask(client, **question):
    answer = await client.post("/v1/what-if", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_gang_that_would_start_is_forecast_and_then_does(system):  # noqa: F811
    told = await ask(system, manifest=GANG)
    assert told["sentence"] == "1 application would start pods now: 3."
    (gang,) = told["starts"]
    assert (gang["applicationID"], gang["wanted"], gang["placed"], gang["isGang"]) == (
        "gang", 3, 3, True,
    )  # fmt: skip
    assert (await system.get("/v1/applications")).json() == []
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/applications", lambda found: found and found[0]["running"] == 3)
    held = (await system.get("/v1/pods?application=gang")).json()["pods"]
    assert sorted(pod["nodeID"] for pod in held) == sorted(p["nodeID"] for p in gang["places"])


async def test_more_nodes_and_a_drained_node_are_forecast(system):  # noqa: F811
    nodes = (await system.get("/ws/v1/partition/default/nodes")).json()
    name = nodes[0]["nodeID"]
    assert (await ask(system, addNodes=2, like=name))["sentence"] == "nothing would change."
    told = await ask(system, drain=name)
    assert told["sentence"] == (
        f"if node {name} were drained and its 0 pods evicted, 0 would find a place elsewhere and "
        "0 would wait."
    )
    assert (await ask(system, addNodes=1, like="x"))["sentence"] == (
        "there is no node 'x' to add nodes like"
    )
    assert not (await ask(system, queues="partitions: 3"))["done"]


async def test_a_core_that_does_not_answer_ends_a_question_with_a_sentence(
    system,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr(machine, "ANSWER_TIMEOUT_SECONDS", 0.2)
    await system.cluster.crash("core")
    for question in ({"drain": "n"}, {"queues": "a: 1"}, {"addNodes": 1, "like": "n"}):
        answer = await system.post("/v1/what-if", json=question)
        assert answer.status_code == 504
        assert answer.json()["message"] == (
            "no answer within 0.2 s; no core is at work, or it is still recovering; "
            "nothing was changed"
        )
    await system.cluster.start_service("core")
    monkeypatch.undo()
    name = (await system.get("/ws/v1/partition/default/nodes")).json()[0]["nodeID"]

    async def is_answered():
        told = await ask(system, drain=name)
        assert told["done"] or told["sentence"] in (RECOVERING, BUSY)
        return told["done"]

    await patience.until(is_answered, "an answer")


async def test_a_question_waits_for_those_before_it_so_many_and_for_so_long(
    system,  # noqa: F811
    monkeypatch,
):
    name = (await system.get("/ws/v1/partition/default/nodes")).json()[0]["nodeID"]
    monkeypatch.setattr(routes_why, "TURN_SECONDS", 60.0)
    told = await asyncio.gather(*(ask(system, drain=name) for _ in range(routes_why.MAX_WAITING)))
    assert all(answer["done"] for answer in told)
    await system.cluster.crash("core")
    monkeypatch.setattr(machine, "ANSWER_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(routes_why, "TURN_SECONDS", 0.1)
    asked = (system.post("/v1/what-if", json={"drain": name}) for _ in range(10))
    answers = await asyncio.gather(*asked)
    first, *others = answers
    assert first.status_code == 504
    assert {answer.status_code for answer in others} == {503}
    assert {answer.json()["message"] for answer in others} == {
        "8 what-ifs wait already; try again in a moment",
        "no what-if ahead of this one was answered within 0.1 s: ask again in a moment",
    }


POD = """
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {applicationId: %s, queue: root.a}}
spec:
  schedulerName: yunikorn
  activeDeadlineSeconds: %s
  containers: [{name: c, resources: {requests: {cpu: "4"}}}]
"""


async def test_an_expected_start_follows_from_the_deadlines_of_running_pods(system):  # noqa: F811
    for name, deadline in (("one", 600), ("two", 900)):
        await system.post("/v1/manifests", content=POD % (name, name, deadline))
    running = await until(
        system, "/v1/applications", lambda apps: sum(app["running"] for app in apps) == 2
    )
    since = min(app["submissionTime"] for app in running)
    (waits,) = (await ask(system, manifest=POD % ("new", "new", 60)))["waits"]
    assert waits["noStart"] == ""
    assert 600 <= (waits["expectedStart"] - since) / 10**9 < 900


async def test_when_a_pod_that_waits_starts_is_asked_by_its_name(system):  # noqa: F811
    for name, deadline in (("one", 600), ("two", 900), ("late", 60)):
        await system.post("/v1/manifests", content=POD % (name, name, deadline))
    await until(system, "/v1/applications", lambda apps: sum(app["running"] for app in apps) == 2)
    told = (await system.get("/v1/when/late")).json()
    assert (told["waiting"], told["noStart"]) == (1, "")
    assert 0 < told["expectedStart"] <= told["latestStart"]
    assert told["sentence"].startswith("late is expected to have started by ")
    assert (await system.get("/v1/when/one")).json()["sentence"] == "one waits for nothing."
    assert (await system.get("/v1/when/nobody")).status_code == 404
    await system.delete("/v1/applications/one")
    await until(
        system,
        "/v1/applications",
        lambda apps: "one" in [a["applicationID"] for a in apps if a["hasEnded"]],
    )
    ended = (await system.get("/v1/when/one")).json()
    assert re.fullmatch("one has ended: [A-Z][a-z]+[.]", ended["sentence"])


async def test_a_simulated_pod_fails_at_its_deadline(system):  # noqa: F811
    await system.post("/v1/manifests", content=POD % ("short", "short", 1))
    (pod,) = [p for p in system.cluster.shim_machine.world.pods.values() if p.spec.name == "short"]
    await patience.until(lambda: pod.has_ended, "its deadline")
    assert (pod.phase, pod.reason) == (PodPhase.FAILED, "DeadlineExceeded")


async def test_what_is_wrong_with_a_manifest_is_said(system):  # noqa: F811
    told = await ask(system, manifest="kind: Nothing\napiVersion: v1\n")
    assert told["starts"] == []
    assert told["refused"][0]["document"] == 1


@each_row(
    ("body", "message"),
    [
        (b"{}", "one of manifest, drain, addNodes, queues and delete is needed"),
        (b'{"delete": []}', "one of manifest"),
        (b'{"drain": "a", "like": "a"}', "like needs addNodes"),
        (b'{"delete": [""]}', "delete.0: String should have at least 1 character"),
        (b'{"addNodes": 100000, "like": "a"}', "addNodes: Input should be less than"),
        (b'{"what": 1}', "what: Extra inputs are not permitted"),
        (b"[", "body: Invalid JSON"),
        (b'{"manifest": "{"}', "manifest: document 1:"),
    ],
)
def test_a_question_that_is_none_is_refused(body, message):
    with pytest.raises(AnswerError) as caught:
        read_question(body)
    assert caught.value.status == 400
    assert caught.value.message.startswith(message)


async def test_any_changes_are_supposed_together(system):  # noqa: F811
    """A gang too large for the cluster starts on added nodes, though another one is drained."""
    names = [row["nodeID"] for row in (await system.get("/ws/v1/partition/default/nodes")).json()]
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/applications", lambda found: found and found[0]["running"] == 3)
    wide = POD.replace("%s", "wide", 2) % 60
    job = wide.replace('cpu: "4"', 'cpu: "4000"')
    alone = await ask(system, manifest=job)
    assert alone["sentence"] == "1 application would wait."
    grown = await ask(system, manifest=wide, addNodes=30, drain=names[0], delete=["gang"])
    assert grown["sentence"].startswith(
        f"if 30 nodes like {grown['like']} were added, application gang were deleted, node "
        f"{names[0]} were drained and the manifest were submitted: "
    )
    assert [(one["applicationID"], one["placed"]) for one in grown["starts"]] == [("wide", 1)]
    assert grown["starts"][0]["places"][0]["nodeID"] != names[0]
    assert (await ask(system, addNodes=2))["sentence"] == (
        f"if 2 nodes like {grown['like']} were added: nothing would change."
    )
    assert (await ask(system, delete=["nobody"]))["sentence"] == (
        "there is no application 'nobody' to delete"
    )
    assert len((await system.get("/v1/applications")).json()) == 1


def test_a_question_says_what_it_supposes():
    together = b'{"drain": "n", "addNodes": 3, "queues": "a: 1", "delete": ["x", "y", "x"]}'
    assert read_question(together) == WhatIf(
        drain="n", add_nodes=3, queues="a: 1", delete=("x", "y")
    )
    assert read_question(b'{"drain": "n"}') == WhatIf(drain="n")
    assert read_question(b'{"queues": "a: 1"}') == WhatIf(queues="a: 1")
