"""What judges a gang that was broken: each thing that may not be is found when it is."""

import asyncio

import aiohttp
import pytest

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError
from tests.chaos.gang_of_200 import MOMENTS, Bench, Case
from tests.integration.kubernetes.test_api_server import binding
from tests.kubernetes.between import Between, Trap
from tests.kubernetes.controllers import PODS, Controllers
from tests.kubernetes.double import Double, a_pod
from tests.kubernetes.harness import Kubectl
from tests.patience import until

MEMBERS = ["gang-0", "gang-1"]


@pytest.fixture
async def double():
    double = Double(bookmark_seconds=0.1)
    await double.start()
    yield double
    await double.stop()


@pytest.fixture
async def kubectl(double):
    client = ApiClient(Access(double.url), "tests")
    kubectl = Kubectl(client)
    for name in ("n1", "n2"):
        await kubectl.node(name, cpu="10", memory="8Gi", pods="20")
    yield kubectl
    await client.close()


@pytest.fixture
async def controllers(kubectl):
    async with Controllers(kubectl, {name: a_pod(name) for name in MEMBERS}) as controllers:
        await controllers.submit()
        for name in ("tg-0", "tg-1"):
            await kubectl.pod(a_pod(name))
        yield controllers


async def bind(kubectl, name, node="n1"):
    await kubectl.client.request("POST", f"{PODS}/{name}/binding", binding(name, node))


async def test_a_gang_whose_members_follow_its_placeholders_is_right(kubectl, controllers):
    for name in ("tg-0", "tg-1"):
        await bind(kubectl, name)
    await kubectl.delete("tg-0", gracePeriodSeconds=0)
    await bind(kubectl, "gang-0")
    await controllers.until_caught_up()
    assert (controllers.wrong, controllers.most_held, controllers.placeholders) == ([], 2, 2)


async def test_a_member_that_is_bound_before_the_gang_holds_its_places_is_found(
    kubectl, controllers
):
    await bind(kubectl, "tg-0")
    await bind(kubectl, "gang-0")
    await controllers.until_caught_up()
    assert controllers.wrong == ["gang-0 was bound when no more than 1 places were held"]


async def test_places_that_were_never_held_at_once_do_not_count(kubectl, controllers):
    await bind(kubectl, "tg-0")
    await kubectl.delete("tg-0", gracePeriodSeconds=0)
    await bind(kubectl, "tg-1")
    await controllers.until_caught_up()
    assert controllers.most_held == 1


async def test_what_was_on_a_node_that_goes_is_removed_and_members_are_made_again(
    kubectl, controllers
):
    before = (await kubectl.pods())["gang-0"]["metadata"]["uid"]
    await bind(kubectl, "gang-0", "n2")
    await controllers.until_caught_up()
    del kubectl.nodes["n2"]
    controllers.node_is_gone("n2")
    await bind(kubectl, "tg-0", "n2")  # a decision that comes too late

    async def is_cleared():
        pods = await kubectl.pods()
        again = pods.get("gang-0")
        return "tg-0" not in pods and again and again["metadata"]["uid"] != before

    await until(is_cleared, "what was there has gone, and the member is there again")
    assert controllers.made_again == {"gang-0": 1}


async def test_a_node_that_holds_too_many_and_a_pod_that_was_on_two_are_found(kubectl):
    bench = Bench(None, None, kubectl, None, None, None, members=2)
    case = Case(bench, "core", "half bound", "gang")
    pods = {f"p{at}": {"spec": {"nodeName": "n1"}} for at in range(11)}
    case._judge_room(pods)
    assert case.wrong == ["n1 holds 11 of 10"]


async def test_a_moment_that_is_another_one_is_found(kubectl, controllers):
    """Two members, two placeholders, none of them bound: that is one moment, and no other."""
    bench = Bench(None, None, kubectl, None, None, None, members=2)
    found = {}
    for moment in MOMENTS:
        case = Case(bench, "core", moment, "gang")
        await case._check_moment()
        found[moment] = not case.wrong
    assert [moment for moment, holds in found.items() if holds] == ["reserved, none bound"]


# --- the way between ------------------------------------------------------------------------------


@pytest.fixture
async def between(double):
    between = Between(Access(double.url))
    await between.start()
    yield between
    await between.stop()


@pytest.fixture
async def muster(between):
    client = ApiClient(Access(between.url), "tests")
    yield client
    await client.close()


def is_creation(method, path):
    return method == "POST" and path.endswith("/pods")


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_trap_holds_its_request_or_its_answer_and_all_that_comes_after(
    kubectl, between, muster, is_done
):
    trap = Trap(is_creation, 2, is_done)
    between.set_trap(trap)
    await muster.request("POST", PODS, a_pod("p1"))
    second = asyncio.create_task(muster.request("POST", PODS, a_pod("p2")))
    await trap.sprung.wait()
    third = asyncio.create_task(muster.request("POST", PODS, a_pod("p3")))
    assert set(await kubectl.pods()) == ({"p1", "p2"} if is_done else {"p1"})
    assert not second.done()
    between.open()
    await asyncio.gather(second, third)
    assert set(await kubectl.pods()) == {"p1", "p2", "p3"}


async def test_answers_of_a_server_that_was_killed_do_not_come_and_one_that_is_away_breaks_off(
    double, kubectl, between, muster
):
    trap = Trap(is_creation, 1, is_done=True)
    between.set_trap(trap)
    asked = asyncio.create_task(muster.request("POST", PODS, a_pod("p")))
    await trap.sprung.wait()
    await double.stop()
    between.open(are_answers_lost=True)
    with pytest.raises(ApiServerError, match="no answer"):
        await asked
    assert between.refused == 0
    with pytest.raises(ApiServerError, match="no answer"):
        await muster.request("GET", PODS)
    assert between.refused
    await double.start(double.port)
    assert set(await kubectl.pods()) == {"p"}


async def test_a_watch_that_breaks_off_behind_breaks_off_in_front(double, kubectl, between, muster):
    async def watch():
        async for event in muster.watch(PODS, {"timeoutSeconds": "60"}):
            if event["type"] == "ADDED":
                double.cut()

    watching = asyncio.create_task(watch())
    await until(lambda: double.watches, "the watch")
    await kubectl.pod(a_pod("p"))
    with pytest.raises(ApiServerError, match="broke"):
        await watching


async def test_whoever_gave_up_is_not_waited_for_behind_and_that_is_felt(
    double, kubectl, between, muster
):
    double.fault(method="POST", path="/pods$", code=0, times=1, delay=60)
    asked = asyncio.create_task(muster.request("POST", PODS, a_pod("p")))
    await until(lambda: not double.faults[0].times, "it is asked behind")
    asked.cancel()
    await until(lambda: between.refused, "it is felt")
    assert await kubectl.pods() == {}


async def test_large_answers_pass_as_they_are_packed(double, between, muster):
    double.load(1, 200)
    there = (await muster.request("GET", PODS))["items"]
    assert len(there) == 200
    headers = {"Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as plain:
        for url in (double.url, between.url):
            async with plain.get(url + PODS) as answer:
                assert len((await answer.json())["items"]) == 200
