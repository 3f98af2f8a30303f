"""``muster why`` of pods that the core was never asked for, over HTTP, as people ask it."""

import httpx
import pytest

from services.api.replica import Replica
from services.api.routes.app import make_app
from services.shim_adapter.backends.kubernetes.held import MOST_NAMED
from tests.integration.kubernetes.test_backend import QUEUES, member
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

LABELS = {"applicationId": "app", "queue": "root.a"}


@pytest.fixture
async def muster(server):
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="100")
    async with muster_over(server.access, server.kubectl) as running:
        cluster = running.cluster
        app = make_app(Replica(lambda: cluster.running["api"].host, lambda: cluster.api))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://muster") as running.http:
            yield running


async def why(muster, name):
    answer = await muster.http.get(f"/v1/why/{name}")
    return answer.json() if answer.status_code == 200 else {}


def claiming(name, claim):
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    return a_pod(name, labels=LABELS, volumes=[volume])


async def test_each_of_many_pods_that_are_held_back_has_its_own_answer(muster):
    count = MOST_NAMED + 3
    uids = {}
    for at in range(count):
        pod = await muster.kubectl.pod(claiming(f"p{at}", f"c{at}"))
        uids[at] = pod["metadata"]["uid"]

    async def are_told():
        return (await why(muster, "app")).get("waits", [{}])[0].get("asks") == count

    await until(are_told, "all are held back")
    for at in (0, 1, count - 1):
        for name in (f"p{at}", uids[at]):
            told = await why(muster, name)
            assert (told["kind"], told["name"], told["reason"]) == ("pod", f"p{at}", "VOLUMES")
            assert (
                f'"c{at}" not found. It is one of {count} pods of application app'
                in (told["sentence"])
            )
    assert (await muster.http.get("/v1/why/nobody")).status_code == 404
    await muster.kill_shim()
    await until(muster.is_ready, "the next turn")

    async def is_found_again():
        return f'"c{count - 1}" not found' in (await why(muster, f"p{count - 1}")).get(
            "sentence", ""
        )

    await until(is_found_again, "whoever comes after it answers alike")


async def test_a_quota_that_refuses_a_gangs_placeholders_is_named(muster):
    await muster.kubectl.quota("few", pods=3)
    await muster.kubectl.pod(member("m0", "gang", members=4))

    async def is_named():
        found = (await why(muster, "gang")).get("mismatches") or [{}]
        return "exceeded quota: few" in found[0].get("message", "")

    await until(is_named, "the quota is named")
    await until(lambda: "m0" in muster.kubelets.ran, "it continues without gang scheduling")
    assert (await why(muster, "m0"))["mismatches"][0]["reason"] == "PlaceholderCreateFailed"
