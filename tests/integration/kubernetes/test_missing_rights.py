"""A verb is taken from the shim adapter's role: an event at the pod, and ``why``, say which it is."""

import httpx
import pytest

from services.api.replica import Replica
from services.api.routes.app import make_app
from tests.integration.kubernetes.test_backend import QUEUES, member
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

LABELS = {"applicationId": "app", "queue": "root.a"}


@pytest.fixture
async def muster(server, double):
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="100")
    async with muster_over(server.access, server.kubectl) as running:
        cluster = running.cluster
        app = make_app(Replica(lambda: cluster.running["api"].host, lambda: cluster.api))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://muster") as running.http:
            yield running


def take_away(double, verb, resource):
    """Take a verb from the role; return what gives it back."""
    rights = double.rights["muster"]
    taken = {right for right in rights if (right[0], right[2]) == (verb, resource)}
    assert taken
    double.rights["muster"] = rights - taken
    return lambda: double.rights.update(muster=rights)


async def why(muster, name):
    answer = await muster.http.get(f"/v1/why/{name}")
    return answer.json() if answer.status_code == 200 else {}


async def until_said(muster, verb, resource, *, at, names):
    """Wait until an event at a pod, and ``why`` of these names, say which verb is missing."""
    right = f'the verb "{verb}" on resource "{resource}"'

    async def is_told():
        return any(
            right in event["note"] and event["regarding"]["name"] == at
            for event in await muster.kubectl.events()
        )

    if at:
        await until(is_told, f"{at} is told of {right}")
    for name in names:

        async def is_explained(name=name):
            return right in str(await why(muster, name))

        await until(is_explained, f"why {name} says {right}")


async def until_explained_otherwise(muster, name):
    async def is_so():
        return "MISSING_RIGHTS" not in str(await why(muster, name))

    await until(is_so, f"{name} lacks nothing any more")


async def test_a_pod_that_may_not_be_bound_says_so_and_starts_once_it_may(muster, double):
    give_back = take_away(double, "create", "pods/binding")
    await muster.kubectl.pod(a_pod("p", labels=LABELS))
    await until_said(muster, "create", "pods/binding", at="p", names=["p", "app"])
    told = await why(muster, "p")
    assert (told["verdict"], told["reason"]) == ("waiting", "MISSING_RIGHTS")
    give_back()
    await until(lambda: "p" in muster.kubelets.ran, "it runs")
    await until_explained_otherwise(muster, "p")
    await until_explained_otherwise(muster, "app")


async def test_a_gang_whose_placeholders_may_not_be_made_says_so_at_its_first_pod(muster, double):
    give_back = take_away(double, "create", "pods")
    for name in ("m0", "m1", "m2"):
        await muster.kubectl.pod(member(name, "gang"))
    await until_said(muster, "create", "pods", at="m0", names=["gang"])
    give_back()
    await until(lambda: {"m0", "m1", "m2"} <= set(muster.kubelets.ran), "the gang runs")
    await until_explained_otherwise(muster, "gang")


async def test_a_placeholder_that_may_not_be_deleted_says_so(muster, double):
    give_back = take_away(double, "delete", "pods")
    for name in ("m0", "m1", "m2"):
        await muster.kubectl.pod(member(name, "gang"))
    placeholders = []

    async def are_held():
        placeholders[:] = [name for name in await muster.kubectl.pods() if name.startswith("tg-")]
        return len(placeholders) == 3

    await until(are_held, "placeholders are made")
    await until_said(muster, "delete", "pods", at=placeholders[0], names=["gang"])
    give_back()
    await until(lambda: {"m0", "m1", "m2"} <= set(muster.kubelets.ran), "the gang runs")
    await until_explained_otherwise(muster, "gang")


async def test_a_victim_that_may_not_be_evicted_says_so(muster, double):
    give_back = take_away(double, "create", "pods/eviction")
    await muster.kubectl.pod(a_pod("low", cpu="4", labels=LABELS))
    await until(lambda: "low" in muster.kubelets.ran, "it runs")
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="100")  # room in the queues
    daemon = a_pod("daemon", cpu="4", labels={"applicationId": "d", "queue": "root.a"})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}
    daemon["metadata"]["ownerReferences"] = [owner]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    daemon["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    await muster.kubectl.pod(daemon)
    await until_said(muster, "create", "pods/eviction", at="low", names=["low", "app"])
    give_back()
    await until(lambda: "daemon" in muster.kubelets.ran, "it runs")


async def test_a_condition_that_may_not_be_written_is_told_in_an_event(muster, double):
    take_away(double, "patch", "pods/status")
    await muster.kubectl.pod(a_pod("big", cpu="64", labels=LABELS))
    await until_said(muster, "patch", "pods/status", at="big", names=["big", "app"])


async def test_where_no_event_may_be_written_why_says_so(muster, double):
    take_away(double, "create", "events")
    await muster.kubectl.pod(a_pod("big", cpu="64", labels=LABELS))
    await until_said(muster, "create", "events", at="", names=["big", "app"])


async def test_a_restart_of_the_api_server_is_no_missing_right(muster, double):
    double.forget_rights()
    await muster.kubectl.pod(a_pod("big", cpu="64", labels=LABELS))
    await muster.kubectl.pod(a_pod("p", labels={**LABELS, "applicationId": "other"}))
    await until(lambda: "p" in muster.kubelets.ran, "it runs")

    async def is_marked():
        conditions = (await muster.kubectl.pods())["big"]["status"]["conditions"]
        return any(one.get("reason") == "Unschedulable" for one in conditions)

    await until(is_marked, "its condition is written all the same")
    assert "MissingRights" not in [event["reason"] for event in await muster.kubectl.events()]
    assert (await why(muster, "big"))["reason"] != "MISSING_RIGHTS"
