"""Why a pod is where it is that the core was never asked for: the shim adapter says which it is."""

from services.api import machine
from services.api.why.standing import why_of_found
from shared.messages.find_pod import FindPod, PodFound
from tests.unit.api.following import System
from tests.unit.api.test_routes import GANG, system, until  # noqa: F401


async def drain_all(client):
    for node in (await client.get("/ws/v1/partition/default/nodes")).json():
        await client.post(f"/v1/nodes/{node['nodeID']}/drain")


def questions(cluster):
    """Return the names that the shim adapter is asked about from now on."""
    asked = []
    find = cluster.shim_machine._handlers[FindPod]

    def found(envelope, now_ns):
        asked.append(envelope.message.name)
        return find(envelope, now_ns)

    cluster.shim_machine._handlers[FindPod] = found
    return asked


async def test_a_real_pod_whose_gang_has_no_places_yet_says_what_its_gang_waits_for(
    system,  # noqa: F811
):
    await drain_all(system)
    await system.post("/v1/manifests", content=GANG)
    whole = await until(system, "/v1/why/gang", lambda told: told.get("verdict") == "waiting")
    (name, *_), key = await real_pods(system)
    for asked in (name, key):
        told = (await system.get(f"/v1/why/{asked}")).json()
        assert told["sentence"] == f"pod {name} has not been requested yet: {whole['sentence']}"
        assert (told["kind"], told["name"], told["reason"], told["applicationID"]) == (
            "pod", name, whole["reason"], "gang",
        )  # fmt: skip


async def real_pods(client):
    pods = client.cluster.shim_machine.world.all_pods()
    found = [pod for pod in pods if not pod.spec.placeholder]
    return [pod.spec.name for pod in found], found[0].uid


async def test_what_nobody_knows_is_404_and_who_is_known_is_asked_of_nobody(
    system,  # noqa: F811
):
    asked = questions(system.cluster)
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/applications", lambda found: found and found[0]["running"] == 3)
    names, key = await real_pods(system)
    for name in (*names, key, "gang"):
        assert (await system.get(f"/v1/why/{name}")).status_code == 200
    assert asked == []
    answer = await system.get("/v1/why/nobody")
    assert (answer.status_code, answer.json()["message"]) == (
        404, "no application and no pod is called nobody",
    )  # fmt: skip
    assert asked == ["nobody"]


async def test_where_the_shim_adapter_is_away_nobody_is_said_not_to_be(
    system,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr(machine, "ANSWER_TIMEOUT_SECONDS", 0.2)
    await system.cluster.crash("shim_adapter")
    answer = await system.get("/v1/why/nobody")
    assert answer.status_code == 504
    assert answer.json()["message"] == (
        "no answer within 0.2 s; the core knows no such pod, and no shim adapter is available "
        "to look for it"
    )


async def test_a_resource_manager_that_answers_no_such_question_is_not_asked():
    system = System()  # noqa: F811 - one whose SyncBegin says nothing of it
    assert not system.model.partition.finds_pods
    assert (await system.get("/v1/why/nobody")).status_code == 404


def test_a_pod_that_has_ended_says_how_and_one_of_no_known_application_nothing():
    system = System()  # noqa: F811
    system.application("a")
    told = why_of_found(system.model, PodFound("a", "default", "p", end="OOMKilled"))
    assert (told.sentence, told.verdict) == ("pod p has ended: OOMKilled.", "ended")
    assert why_of_found(system.model, PodFound("b", "default", "p")) is None
