"""An API server that is away, slow, throttling or forgetful, and services that are killed: nothing is
lost, and every pod is bound once."""

import asyncio

import pytest

from services.shim_adapter.backends.kubernetes import client, operations
from tests.integration.kubernetes.test_backend import QUEUES, member
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

LABELS = {"applicationId": "app", "queue": "root.a"}
BINDING = "/binding$"


@pytest.fixture
async def muster(server):
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="64", memory="256Gi", pods="110")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


def all_run(muster, names):
    return lambda: all(name in muster.kubelets.ran for name in names)


def bound_once(muster):
    assert all(len(nodes) == 1 for nodes in muster.kubelets.nodes_of.values())


@pytest.mark.parametrize(
    "fault",
    [
        {"code": 429, "times": 3, "retry_after": 1},
        {"code": 500, "times": 5},
        {"code": 503, "times": 5},
        {"code": 504, "times": 2, "after": True},
        {"code": 500, "times": 4, "after": True},
        {"code": 0, "times": 5, "delay": 0.3},
    ],
    ids=lambda fault: "-".join(f"{key}={value}" for key, value in fault.items()),
)
async def test_binds_that_are_refused_for_now_are_tried_again(muster, double, fault):
    double.fault(method="POST", path=BINDING, **fault)
    names = [f"p{at}" for at in range(8)]
    for name in names:
        await muster.kubectl.pod(a_pod(name, labels=LABELS))
    await until(all_run(muster, names), "every pod runs")
    bound_once(muster)
    assert muster.cluster.shim_machine.mirror.refused_binds == 0


async def test_a_bind_that_is_refused_for_good_goes_back_to_pending_with_its_reason(muster, double):
    double.fault(method="POST", path=BINDING, code=403, times=1)
    await muster.kubectl.pod(a_pod("p", labels=LABELS))
    await until(lambda: "p" in muster.kubelets.ran, "the pod runs in the end")
    assert muster.cluster.shim_machine.mirror.refused_binds == 1
    bound_once(muster)
    events = [e.message for e in muster.model.events.read(0, 1000)]
    assert any("could not be bound and waits again: told to fail" in text for text in events)


async def test_another_scheduler_may_bind_our_pod_first(muster, double):
    """The decision is then ours no more: the pod is counted where it is."""
    await muster.kubectl.node("n2", cpu="64", memory="256Gi", pods="110")
    double.fault(method="POST", path=BINDING, code=0, times=1, delay=0.5)
    await muster.kubectl.pod(a_pod("p", labels=LABELS))
    await until(lambda: double.faults[0].times == 0, "our bind is on its way")
    (pod,) = [p for p in muster.world.all_pods() if p.spec.name == "p"]
    other = "n2" if pod.node == "n1" else "n1"
    path = "/api/v1/namespaces/default/pods/p/binding"
    body = {"metadata": {"name": "p"}, "target": {"name": other}}
    await muster.kubectl.client.request("POST", path, body)
    await until(lambda: muster.kubelets.ran.get("p") == other, "it runs where the other put it")
    await until(
        lambda: [n for n, v in muster.model.nodes.items() if v.allocations] == [other], "and counts"
    )
    bound_once(muster)


async def test_an_api_server_that_is_away_for_a_while_loses_nothing(muster, double):
    names = [f"p{at}" for at in range(10)]
    for name in names[:5]:
        await muster.kubectl.pod(a_pod(name, labels=LABELS))
    port = double.port
    await double.stop()
    await asyncio.sleep(0.5)
    await double.start(port)
    for name in names[5:]:
        await muster.kubectl.pod(a_pod(name, labels=LABELS))
    await until(all_run(muster, names), "every pod runs")
    bound_once(muster)


async def test_the_first_answer_after_an_outage_ends_every_pause(muster, double, monkeypatch):
    """What is asked of an API server without etcd fails at once, again and again, and pauses grow."""
    monkeypatch.setattr(operations, "_PAUSE_SECONDS", (3600.0, 3600.0))
    monkeypatch.setattr(client, "AWAY_SECONDS", 0.0)
    names = [f"p{at}" for at in range(20)]
    double.fault(method="POST", path=BINDING, code=500, times=20)
    for name in names:
        await muster.kubectl.pod(a_pod(name, labels=LABELS))
    await until(lambda: not double.faults[0].times, "every bind is tried")
    double.lose_storage()
    with pytest.raises(client.ApiServerError):
        await muster.kubernetes._client.request("GET", "/api/v1/nodes")
    double.regain_storage()
    await until(all_run(muster, names), "every pod runs")
    bound_once(muster)


async def test_what_an_api_server_holds_until_its_etcd_is_back_is_done_once(
    muster, double, monkeypatch
):
    """One that says nothing meanwhile: requests run out of time, and are asked again and again."""
    gang = [f"m{at:02d}" for at in range(40)]
    for name in gang:
        await muster.kubectl.pod(member(name, "gang", members=len(gang)))
    await until(lambda: double.requests.get("POST pods/binding"), "the first bind")
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.3)
    double.lose_storage(holds=True)
    before = sum(double.requests.values())
    await until(lambda: sum(double.requests.values()) > before + 60, "it is asked in vain")
    assert not all_run(muster, gang)()
    monkeypatch.undo()
    double.regain_storage()
    await until(all_run(muster, gang), "the gang runs")
    bound_once(muster)
    assert sorted(await muster.kubectl.pods()) == gang


async def test_a_watch_that_is_cut_every_moment_and_a_history_that_is_gone_lose_no_pod(
    muster, double
):
    names = [f"p{at}" for at in range(40)]

    async def trouble():
        while True:
            await asyncio.sleep(0.1)
            double.compact()
            double.cut()

    cutting = asyncio.create_task(trouble())
    try:
        for at in range(0, 40, 4):
            for name in names[at : at + 4]:
                await muster.kubectl.pod(a_pod(name, labels=LABELS))
            await asyncio.sleep(0.1)
        await until(all_run(muster, names), "every pod runs")
    finally:
        cutting.cancel()
    bound_once(muster)


@pytest.mark.parametrize("victim", ["core", "shim"])
@pytest.mark.parametrize("moment", ["reserving", "binding", "replacing", "running"])
async def test_a_service_killed_in_mid_gang_leaves_every_pod_bound_once(
    server, muster, victim, moment
):
    """Ten members; the moment is when so many placeholders, or real pods, are there."""
    names = [f"m{at}" for at in range(10)]
    for name in names:
        await muster.kubectl.pod(member(name, "gang", members=10))

    def count(placeholder, bound):
        pods = muster.world.all_pods()
        found = [p for p in pods if p.spec.placeholder == placeholder and (p.node or not bound)]
        return len(found)

    moments = {
        "reserving": lambda: count(placeholder=True, bound=False) >= 3,
        "binding": lambda: count(placeholder=True, bound=True) >= 3,
        "replacing": lambda: count(placeholder=False, bound=True) >= 2,
        "running": lambda: count(placeholder=False, bound=True) == 10,
    }
    await until(moments[moment], moment)
    if victim == "core":
        await muster.kill_core()
    else:
        await muster.kill_shim()
    await until(muster.is_ready, "it is back")
    await until(all_run(muster, names), "the whole gang runs")

    async def none_is_left():
        return set(await muster.kubectl.pods()) <= set(names)

    await until(none_is_left, "only the gang is left")
    bound_once(muster)
    await until(
        lambda: muster.model.application("gang").summary.allocated.get("vcore") == 10_000, "counted"
    )
    await until(
        lambda: muster.model.nodes["n1"].state.allocated["vcore"] == 10_000, "on its node, too"
    )


async def test_a_shim_adapter_that_lost_the_bus_reads_everything_anew(server, muster):
    await muster.kubectl.pod(a_pod("before", labels=LABELS))
    await until(lambda: "before" in muster.kubelets.ran, "the first pod runs")
    epoch = muster.world.epoch
    host = muster.cluster.host_of("shim_adapter")
    host._driven.renew()  # as a host does when the bus was away
    await muster.kubectl.pod(a_pod("after", labels=LABELS))
    await until(lambda: "after" in muster.kubelets.ran, "the next pod runs")
    assert muster.world.epoch > epoch
    bound_once(muster)


async def test_a_foreign_pod_that_takes_the_room_first_is_no_accident(server, muster):
    await server.kubectl.node("n2", labels={"only": "here"}, cpu="2", memory="8Gi", pods="20")
    await until(lambda: "n2" in muster.model.nodes, "the node")
    sneak = a_pod("sneak", scheduler="someone-else", cpu="1500m", nodeName="n2")
    mine = a_pod("mine", labels=LABELS, nodeSelector={"only": "here"})
    await asyncio.gather(server.kubectl.pod(sneak), server.kubectl.pod(mine))
    await until(lambda: muster.model.nodes["n2"].state.occupied.get("vcore") == 1500, "the sneak")
    if "mine" not in muster.kubelets.ran:
        await server.kubectl.delete("sneak", gracePeriodSeconds=0)
    await until(lambda: "mine" in muster.kubelets.ran, "it runs")
    assert [e for e in muster.model.events.read(0, 1000) if "Preempted" in e.message] == []


@pytest.mark.parametrize("victim", ["core", "shim"])
async def test_a_restart_with_a_bad_config_map_has_the_last_good_queues_and_says_so(
    server, muster, victim
):
    await muster.kubectl.config(QUEUES.replace("{name: a}", "{name: a}, {name: b}"))
    await until(lambda: "root.b" in muster.model.queues, "the good one")
    await muster.kubectl.config(QUEUES.replace("{name: a}", "{name: 'no name'}"))
    await until(lambda: "invalid queue name" in muster.model.partition.config_error, "the bad one")
    if victim == "core":
        await muster.kill_core()
    else:
        await until(lambda: "{name: b}" in muster.kubernetes.session.turn.last_good, "it is kept")
        await muster.kill_shim()
    await until(muster.is_ready, "it is back")
    assert "root.b" in muster.cluster.core.partition.queues
    if victim == "shim":
        await until(lambda: "stays in use" in muster.model.partition.config_error, "its text")
    await muster.kubectl.pod(a_pod("p", labels={"applicationId": "app", "queue": "root.b"}))
    await until(lambda: "p" in muster.kubelets.ran, "it runs in the queue that held")
    await muster.kubectl.config(QUEUES.replace("{name: a}", "{name: c}"))
    await until(lambda: "root.c" in muster.model.queues, "a better one")
    await until(lambda: not muster.model.partition.config_error, "nothing is wrong with it")
