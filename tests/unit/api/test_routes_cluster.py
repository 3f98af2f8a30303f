"""Pods, draining, deleting by manifest and dead letters, over a whole system in one process."""

import asyncio
from dataclasses import replace

from shared.bus import codec
from shared.bus.base import DeadLetter
from shared.messages.commands import HoldConfirmations
from shared.messages.envelope import CORE
from shared.messages.protocol import Heartbeat
from tests.unit.api.test_routes import GANG, system, until

__all__ = ["system"]

POD = """
kind: Pod
apiVersion: v1
metadata: {name: %s, labels: {applicationId: %s, queue: root.a}}
spec:
  schedulerName: yunikorn
  containers: [{name: c, resources: {requests: {cpu: "%s"}}}]
"""
BASE = "/ws/v1/partition/default"


async def test_a_drained_node_takes_no_pod_until_it_is_undrained(system):
    answer = await system.post("/v1/nodes/node-0000/drain")
    assert (answer.status_code, answer.json()) == (
        200,
        {"nodeID": "node-0000", "schedulable": False},
    )
    await until(system, f"{BASE}/node/node-0000", lambda n: not n["schedulable"])
    await system.post("/v1/manifests", content=POD % ("p", "p", 3))
    await system.post("/v1/manifests", content=POD % ("q", "q", 3))
    value = await until(
        system, "/v1/pods", lambda v: len(v["pods"]) == 2 and any(p["waiting"] for p in v["pods"])
    )
    (waits,) = [pod for pod in value["pods"] if pod["state"] == "Pending"]
    (placed,) = [pod for pod in value["pods"] if pod["state"] == "Allocated"]
    assert placed["nodeID"] == "node-0001"
    assert waits["waiting"]["reason"] == "NO_NODE_FITS"
    await system.post("/v1/nodes/node-0000/undrain")
    value = await until(
        system, "/v1/pods?node=node-0000", lambda v: [p["name"] for p in v["pods"]] == ["q"]
    )
    assert value["total"] == 1
    assert (await system.get("/v1/pods?application=p")).json()["pods"][0]["queueName"] == "root.a"
    assert (await system.get("/v1/pods?queue=root.b")).json() == {"pods": [], "total": 0}


async def test_without_authentication_a_user_may_do_all(system):
    assert (await system.get("/v1/whoami")).json() == {"user": "anybody", "role": "operate"}


async def test_a_node_that_is_not_there_cannot_be_drained(system):
    answer = await system.post("/v1/nodes/nowhere/drain")
    assert (answer.status_code, answer.json()["message"]) == (404, "Node nowhere not found")


async def test_what_a_manifest_describes_is_deleted_with_its_placeholders(system):
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/pods", lambda v: len(v["pods"]) == 3)
    answer = await system.post("/v1/manifests/delete?source=gang.yaml", content=GANG)
    (item,) = answer.json()["accepted"]
    assert (answer.status_code, item["pods"], item["applicationID"]) == (200, 3, "gang")
    await until(system, "/v1/pods", lambda v: v["total"] == 0)
    await until(system, f"{BASE}/nodes", lambda nodes: not any(n.get("allocated") for n in nodes))
    again = await system.post("/v1/manifests/delete?source=gang.yaml", content=GANG)
    (item,) = again.json()["refused"]
    assert (again.status_code, item["field"]) == (422, "metadata.name")
    assert "it has no pods" in item["message"]


async def test_a_gang_that_waits_is_deleted_whole(system):
    await system.cluster.ask(HoldConfirmations(held=True))
    waits = GANG.replace('"1"', '"2500m"')
    await system.post("/v1/manifests", content=waits)
    await until(system, "/v1/applications", lambda a: a and a[0]["pending"] > 0)
    answer = await system.post("/v1/manifests/delete", content=waits)
    assert answer.status_code == 200
    await system.cluster.ask(HoldConfirmations(held=False))
    await until(system, "/v1/applications/gang", lambda a: a["state"] == "Completing")  # for 30 s
    assert not [pod for pod in system.cluster.shim_machine.world.all_pods() if not pod.has_ended]


async def test_of_an_application_that_others_are_in_only_the_pods_named_go(system):
    for name in ("one", "two"):
        await system.post("/v1/manifests", content=POD % (name, "both", 1))
    await until(system, "/v1/pods", lambda v: [p["state"] for p in v["pods"]] == ["Allocated"] * 2)
    await system.post("/v1/manifests/delete", content=POD % ("one", "both", 1))
    value = await until(system, "/v1/pods", lambda v: v["total"] == 1)
    assert value["pods"][0]["name"] == "two"
    assert (await system.get("/v1/applications/both")).json()["state"] == "Running"


async def test_a_rejected_application_can_be_deleted_and_its_pods_are_gone(system):
    await system.post("/v1/manifests", content=GANG.replace('"cpu": "1"', '"cpu": "9"'))
    await until(system, "/v1/applications", lambda a: a and a[0]["state"] == "Rejected")
    assert [pod.has_ended for pod in system.cluster.shim_machine.world.all_pods()] == [True] * 3
    answer = await system.delete("/v1/applications/gang")
    assert (answer.status_code, answer.json()) == (200, {"deleted": "gang", "hadEnded": True})
    assert not list(system.cluster.shim_machine.world.all_pods())
    await system.post("/v1/manifests", content=GANG)
    await until(
        system, "/v1/pods", lambda v: sum(p["state"] == "Allocated" for p in v["pods"]) == 3
    )


async def test_dead_letters_are_shown_and_stay(system):
    assert (await system.get("/v1/dead-letters")).json() == {"deadLetters": [], "total": 0}
    system.broker.put_raw(CORE, "UpdateRequest", b"\xc1", "bad-1")
    for _ in range(2):
        value = await until(system, "/v1/dead-letters", lambda v: v["total"])
        (letter,) = value["deadLetters"]
        assert (letter["inbox"], letter["kind"]) == ("core.default", "UpdateRequest")
        assert (letter["messageID"], letter["bytes"]) == ("bad-1", 1)
        assert letter["reason"]
        await asyncio.sleep(0)


async def dead_letter(system, kind="UpdateRequest", body=b"\xc1", name="bad-1"):
    total = (await system.get("/v1/dead-letters")).json()["total"]
    system.broker.put_raw(CORE, kind, body, name)
    await until(system, "/v1/dead-letters", lambda v: v["total"] > total)


async def test_one_dead_letter_is_shown_with_the_beginning_of_its_body(system):
    await dead_letter(system, body=b"\xc1" + b"text" * 5_000)
    value = (await system.get("/v1/dead-letters/bad-1")).json()
    assert (value["kind"], value["bytes"], value["isWhole"]) == ("UpdateRequest", 20_001, False)
    assert value["body"].startswith("\\xc1texttext")
    assert len(value["body"]) < 5_000
    assert (await system.get("/v1/dead-letters/bad-2")).status_code == 404


async def test_a_dead_letter_is_handled_after_all_by_its_own_service(system):
    await dead_letter(system, kind="SnapshotRequest", body=b"\xc1")
    await dead_letter(system, kind="Later", body=codec.encode(Heartbeat("x")), name="mended")
    refused = await system.post("/v1/dead-letters/bad-1/replay")
    assert refused.status_code == 409
    assert "not msgpack" in refused.json()["refused"][0]["reason"]
    letter = system.broker.dead_letters[1]
    system.broker.dead_letters[1] = replace(letter, kind="Heartbeat")  # as a newer core knows it
    answer = await system.post("/v1/dead-letters/mended/replay")
    assert (answer.status_code, answer.json()) == (200, {"replayed": ["mended"], "refused": []})
    left = (await system.get("/v1/dead-letters")).json()["deadLetters"]
    assert [item["messageID"] for item in left] == ["bad-1"]
    assert (await system.post("/v1/dead-letters/mended/replay")).status_code == 404


async def test_dead_letters_with_a_reason_are_replayed_or_dropped_together(system):
    for number in range(3):
        await dead_letter(system, kind="Unknown" if number else "UpdateRequest", name=f"n-{number}")
    found = (await system.get("/v1/dead-letters?reason=unknown kind")).json()["deadLetters"]
    assert [item["messageID"] for item in found] == ["n-1", "n-2"]
    answer = await system.post("/v1/dead-letters?reason=unknown kind")
    assert [item["messageID"] for item in answer.json()["refused"]] == ["n-1", "n-2"]
    dropped = await system.delete("/v1/dead-letters?reason=unknown kind")
    assert dropped.json() == {"dropped": ["n-1", "n-2"]}
    assert (await system.get("/v1/dead-letters")).json()["total"] == 1
    assert (await system.delete("/v1/dead-letters/n-0")).json() == {"dropped": ["n-0"]}
    for path in ("/v1/dead-letters?reason=unknown", "/v1/dead-letters/n-0"):
        assert (await system.delete(path)).status_code == 404


async def test_what_a_replica_put_aside_is_not_replayed(system):
    letter = DeadLetter("api.gone", "StateDelta", "delta", "because", b"")
    system.broker.dead_letters.append(letter)
    answer = await system.post("/v1/dead-letters/delta/replay")
    assert answer.status_code == 409
    assert "drop it" in answer.json()["refused"][0]["reason"]
    assert (await system.delete("/v1/dead-letters/delta")).status_code == 200


async def test_a_refused_configuration_is_forgotten_when_a_good_one_is_applied(system):
    good = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: %s}]}]}]"
    for name in ("a", "b", "b"):
        bad = await system.post("/v1/config", content="partitions: 7")
        assert bad.status_code == 422
        await until(system, "/v1/config", lambda c: c["error"])
        assert (await system.post("/v1/config", content=good % name)).status_code == 200
        now = await until(system, "/v1/config", lambda c: not c["error"])
        assert now["text"] == good % name
        assert system.cluster.shim_machine.proposals.error == ""


async def test_what_answers_says_its_version(system):
    assert (await system.get("/v1/version")).json()["version"]
