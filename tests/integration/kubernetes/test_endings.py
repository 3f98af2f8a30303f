"""Pods that are deleted while something of theirs is on its way, and what is told at pods."""

import pytest

from tests.integration.kubernetes.test_backend import GROUP, QUEUES, TASK_GROUPS, member
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until


@pytest.fixture
async def muster(server):
    await server.kubectl.config(QUEUES.replace("{name: a}", "{name: a}, {name: b}"))
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="20")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


def known(muster, *names):
    return lambda: {pod.spec.name for pod in muster.world.all_pods()} == set(names)


def in_queue_b(name):
    body = member(name, "gang", members=2)
    body["metadata"]["labels"]["queue"] = "root.b"
    return body


async def runs_in_queue_b(muster):
    for name in ("x0", "x1"):
        await muster.kubectl.pod(in_queue_b(name))
    await until(lambda: {"x0", "x1"} <= set(muster.kubelets.ran), "the next gang of the id runs")
    assert muster.model.application("gang").summary.queue_name == "root.b"
    await until(known(muster, "x0", "x1"), "its placeholders have gone")
    assert sorted(muster.kubelets.ran) == sorted(
        {"x0", "x1"} | {name for name in muster.kubelets.ran if name.startswith("tg-")}
    )


async def test_a_gang_deleted_before_it_is_accepted_gets_no_placeholders(muster):
    await muster.cluster.crash("core")
    for name in ("m0", "m1"):
        await muster.kubectl.pod(member(name, "gang", members=2))
    await until(known(muster, "m0", "m1"), "its pods")
    for name in ("m0", "m1"):
        await muster.kubectl.delete(name)
    await until(known(muster), "no pods")
    await muster.cluster.start_service("core")
    await until(muster.is_ready, "the core")
    await runs_in_queue_b(muster)
    assert set(await muster.kubectl.pods()) == {"x0", "x1"}
    assert len(muster.kubelets.nodes_of) <= 4  # they and their placeholders: none of the first's


async def test_placeholders_that_are_being_made_when_their_gang_is_deleted_go_again(muster, double):
    double.fault(method="POST", path="/pods$", code=0, times=2, skip=2, delay=0.3)
    for name in ("m0", "m1"):
        await muster.kubectl.pod(member(name, "gang", members=2))
    await until(
        lambda: [a.phase for a in muster.world.applications.values()] == ["Reserving"], "accepted"
    )
    for name in ("m0", "m1"):
        await muster.kubectl.delete(name)
    await until(lambda: double.requests.get("POST pods", 0) >= 4, "its placeholders are made")
    await until(known(muster), "and gone")

    async def none_is_left():
        return not await muster.kubectl.pods()

    await until(none_is_left, "and from the API server")
    await until(lambda: "gang" not in muster.cluster.core.partition.applications, "the core too")
    await runs_in_queue_b(muster)


async def test_placeholders_without_their_gang_are_removed_after_a_restart(muster):
    for name in ("m0", "m1"):
        await muster.kubectl.pod(member(name, "gang", members=3))
    await until(lambda: sum(p.spec.placeholder for p in muster.world.all_pods()) == 3, "reserving")
    await muster.cluster.crash("core")
    await muster.kill_shim()
    for name in ("m0", "m1"):
        await muster.kubectl.delete(name)
    await muster.cluster.start_service("core")
    await until(muster.is_ready, "it is back")
    await until(known(muster), "nothing is left")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            member("m0", "gang", annotations={TASK_GROUPS: '[{"name": "tg"}]'}),
            "can't get taskGroup MinResource from pod annotation",
        ),
        (
            member("m0", "gang", annotations={GROUP: "tgg"}),
            "task group 'tgg' is not in application gang (it has tg)",
        ),
        (
            a_pod("m0", labels={"applicationId": "gang"}, annotations={GROUP: "tg"}),
            "task group 'tg' is not in application gang (it has none)",
        ),
    ],
    ids=["malformed", "misspelt", "without groups"],
)
async def test_what_is_wrong_with_task_groups_is_an_event_and_a_sentence(muster, body, text):
    body["metadata"]["labels"]["queue"] = "root.a"
    await muster.kubectl.pod(body)

    async def events():
        answer = await muster.kubectl.get("/apis/events.k8s.io/v1/namespaces/default/events")
        return [e for e in answer["items"] if e["reason"] == "TaskGroupsError"]

    (event,) = await until(events, "it is told")
    assert (event["type"], event["regarding"]["name"]) == ("Warning", "m0")
    assert text in event["note"]
    await until(lambda: muster.model.application("gang"), "the application")
    await until(lambda: muster.model.application("gang").summary.noted, "its note")
    assert text in muster.model.application("gang").summary.noted[0].message
    await muster.kill_core()
    await until(muster.is_ready, "it is back")
    await until(lambda: muster.model.application("gang").summary.noted, "its note again")
