"""What the API server refuses, and for how long: rights that it does not know yet, quotas, conflicts."""

import asyncio
from datetime import UTC, datetime

import pytest

from services.shim_adapter.backends.kubernetes import bodies, operations
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec
from tests.integration.kubernetes.test_backend import QUEUES, member, until_condition, until_told
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import patience, until

LABELS = {"applicationId": "app", "queue": "root.a"}
PODS = "/namespaces/default/pods$"
BINDING = "/binding$"
HARD = "gangSchedulingStyle=Hard"
CHANGED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@pytest.fixture
async def muster(server):
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="100")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


def placeholders(muster):
    return [pod for pod in muster.world.all_pods() if pod.spec.placeholder]


def runs(muster, *names):
    return lambda: all(name in muster.kubelets.ran for name in names)


async def reasons(muster):
    return [event["reason"] for event in await muster.kubectl.events()]


async def no_placeholder_is_left(muster, names):
    async def none_is_left():
        return set(await muster.kubectl.pods()) <= set(names)

    await until(none_is_left, "no placeholder is left")


async def test_a_gang_survives_an_api_server_that_does_not_know_our_rights_yet(muster, double):
    """A Hard gang of eight with room for four stays whole: none of it runs, then all of it."""
    names = [f"m{at}" for at in range(8)]
    double.forget_rights()
    for name in names:
        await muster.kubectl.pod(member(name, "gang", members=8, policy=HARD))
    await until(lambda: len(placeholders(muster)) == 8, "every placeholder is made")
    await until(lambda: sum(bool(pod.node) for pod in placeholders(muster)) == 4, "four reserve")
    assert not set(names) & set(muster.kubelets.ran)
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="100")
    await until(runs(muster, *names), "the whole gang")
    await no_placeholder_is_left(muster, names)
    failed = [e["note"] for e in await muster.kubectl.events() if e["reason"] == "FailedScheduling"]
    assert set(failed) == {"0/1 nodes are available: 1 Insufficient cpu."}


async def test_a_gang_survives_a_restart_of_the_api_server_in_its_middle(muster, double):
    names = [f"m{at}" for at in range(8)]
    double.fault(method="POST", path=PODS, code=0, times=8, skip=8, delay=0.3)
    for name in names:
        await muster.kubectl.pod(member(name, "gang", members=8, policy=HARD))
    await until(lambda: double.faults[0].times < 8, "placeholders are being made")
    port = double.port
    await double.stop()
    await double.start(port)
    await until(lambda: len(placeholders(muster)) == 8, "every placeholder is made")
    await until(lambda: sum(bool(pod.node) for pod in placeholders(muster)) == 4, "four reserve")
    assert not set(names) & set(muster.kubelets.ran)
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="100")
    await until(runs(muster, *names), "the whole gang")
    await no_placeholder_is_left(muster, names)


@pytest.mark.parametrize("code", [401, 403])
async def test_a_bind_is_tried_again_while_our_rights_are_not_known(muster, double, code):
    if code == 403:
        double.forget_rights()
    else:
        double.fault(method="POST", path=BINDING, code=401, times=3, reason="Unauthorized")
    await muster.kubectl.pod(a_pod("p", labels=LABELS))
    await until(runs(muster, "p"), "the pod runs")
    assert muster.cluster.shim_machine.mirror.refused_binds == 0
    assert "FailedScheduling" not in await reasons(muster)


async def test_a_quota_is_final_and_what_was_made_of_its_gang_goes(muster):
    await muster.kubectl.quota("q", pods=3)
    await muster.kubectl.pod(member("m0", "gang", members=4))
    await until(runs(muster, "m0"), "it continues without gang scheduling")
    await no_placeholder_is_left(muster, ["m0"])
    said = [event["note"] for event in await until_told(muster.kubectl, "PlaceholderCreateFailed")]
    assert any("exceeded quota: q" in note for note in said), said


async def test_a_gang_that_is_given_up_has_no_more_placeholders_made(muster, double):
    """The creates that still wait are cancelled, those under way are deleted when they are seen."""
    text = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9'
    double.fault(method="POST", path=PODS, code=403, times=1, skip=1, message=text)
    double.fault(method="POST", path=PODS, code=0, times=200, skip=1, delay=0.2)
    await muster.kubectl.pod(member("m0", "gang", members=100, cpu="10m"))
    await until(runs(muster, "m0"), "it continues without gang scheduling")
    await until(lambda: muster.kubernetes.session.operations.pending == 0, "nothing waits")
    assert double.requests["POST pods"] < 60
    await no_placeholder_is_left(muster, ["m0"])


async def test_a_conflict_with_a_quota_is_not_a_pod_that_is_there(muster, double):
    text = f'Operation cannot be fulfilled on resourcequotas "q": {CHANGED}'
    fault = {"code": 409, "reason": "Conflict", "message": text}
    double.fault(method="POST", path=PODS, times=3, skip=3, **fault)
    names = [f"m{at}" for at in range(3)]
    for name in names:
        await muster.kubectl.pod(member(name, "gang"))
    await until(runs(muster, *names), "the gang")
    assert double.requests["POST pods"] == 6  # the three that were refused were never counted
    await no_placeholder_is_left(muster, names)


@pytest.mark.parametrize("pause", [0.1, 1.0], ids=["while it is there", "when it has gone again"])
async def test_a_placeholder_whose_answer_was_lost_is_made_once(muster, double, monkeypatch, pause):
    """The same is tried again after a pause; in a longer one the whole gang has begun to run."""
    monkeypatch.setattr(operations, "_PAUSE_SECONDS", (pause, 10.0))
    double.fault(method="POST", path=PODS, code=500, times=2, skip=3, after=True)
    names = [f"m{at}" for at in range(3)]
    for name in names:
        await muster.kubectl.pod(member(name, "gang"))
    await until(runs(muster, *names), "the gang")
    await until(lambda: not muster.kubernetes.session.operations.pending, "nothing is left to do")
    await no_placeholder_is_left(muster, names)


@pytest.mark.parametrize("after", [False, True])
async def test_a_bind_that_meets_a_failure_of_etcd_is_looked_at_and_tried_again(
    muster, double, after
):
    text = 'Operation cannot be fulfilled on pods/binding "p": etcdserver: leader changed'
    fault = {"code": 409, "reason": "Conflict", "message": text}
    double.fault(method="POST", path=BINDING, times=2, after=after, **fault)
    await muster.kubectl.pod(a_pod("p", labels=LABELS))
    await until(runs(muster, "p"), "the pod runs")
    assert muster.cluster.shim_machine.mirror.refused_binds == 0
    assert "FailedScheduling" not in await reasons(muster)


# --- what is told --------------------------------------------------------------------------------


async def test_a_condition_says_since_when_it_is_so(muster):
    await muster.kubectl.pod(a_pod("p", cpu="64", labels=LABELS))
    await until_condition(muster.kubectl, "p", ("False", "Unschedulable"))
    conditions = (await muster.kubectl.pods())["p"]["status"]["conditions"]
    since = [c["lastTransitionTime"] for c in conditions if c["type"] == "PodScheduled"]
    assert [datetime.fromisoformat(text).tzinfo for text in since] == [UTC]


async def test_an_event_has_a_name_and_a_note_that_the_api_takes(muster):
    """A dot as the fortieth character, and characters of several bytes."""
    name = f"{'a' * 39}.b"
    await muster.kubectl.pod(a_pod(name, labels=LABELS))
    await until(runs(muster, name), "the pod runs")

    async def told():
        return any(event["regarding"]["name"] == name for event in await muster.kubectl.events())

    await until(told, f"an event about {name}")


def test_a_note_is_cut_by_its_bytes_between_characters():
    pod = PodRecord("u", PodSpec("p", "app", {}), 0, 0)
    for text in ("\u20ac" * 1000, "x" * 1025, "x" + "\U0001f600" * 400):
        note = bodies.event(pod, "r", text, instance="i", now="n")["note"]
        assert 1020 <= len(note.encode()) <= 1024
        assert note.endswith("...")
        assert text.startswith(note.removesuffix("..."))
    assert bodies.event(pod, "r", "\u20ac" * 341, instance="i", now="n")["note"] == "\u20ac" * 341


async def test_a_pod_that_has_gone_is_not_failed_in_its_successor(muster, double):
    """The answer to the status comes late: by then the name is another pod's."""
    double.fault(method="PATCH", path="/gone/status$", code=0, times=1, delay=0.6)
    await muster.kubectl.pod(a_pod("gone", labels=LABELS | {"queue": "root.nowhere.at-all"}))
    await until(lambda: double.faults[0].times == 0, "it is being failed")
    await muster.kubectl.delete("gone", gracePeriodSeconds=0)
    await muster.kubectl.pod(a_pod("gone", scheduler="someone-else"))
    await until(lambda: muster.kubernetes.session.operations.pending == 0, "it was answered")
    pod = (await muster.kubectl.pods())["gone"]
    assert pod["status"]["phase"] == "Pending"


# --- placeholders that are lost --------------------------------------------------------------------


async def test_a_placeholder_that_is_lost_while_its_gang_reserves_is_made_again(muster):
    """At once, so that the gang is whole as soon as there is room for it."""
    names = [f"m{at}" for at in range(6)]
    for name in names:
        await muster.kubectl.pod(member(name, "gang", members=6, policy=HARD))
    await until(lambda: sum(bool(pod.node) for pod in placeholders(muster)) == 4, "four reserve")
    lost = [pod for pod in placeholders(muster) if pod.node][:2]
    lost += [pod for pod in placeholders(muster) if not pod.node][:1]
    for pod in lost:
        await muster.kubectl.delete(pod.spec.name, gracePeriodSeconds=0)
    gone = {pod.uid for pod in lost}
    await until(
        lambda: (
            len(placeholders(muster)) == 6 and not gone & {pod.uid for pod in placeholders(muster)}
        ),
        "as many others",
    )
    await until(lambda: sum(bool(pod.node) for pod in placeholders(muster)) == 4, "four reserve")
    assert not set(names) & set(muster.kubelets.ran)
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="100")
    await until(runs(muster, *names), "the whole gang")
    await no_placeholder_is_left(muster, names)


async def test_a_placeholder_that_is_lost_again_and_again_is_made_ever_later(muster):
    """Who deletes them all the time does not keep the API server busy: 0, 0, 1, 1, 3 seconds."""
    await muster.kubectl.pod(member("m0", "gang", members=2, cpu="3", policy=HARD))
    made: dict[str, None] = {}

    async def delete_all_new() -> None:
        for pod in placeholders(muster):
            if pod.uid not in made:
                made[pod.uid] = None
                await muster.kubectl.delete(pod.spec.name, gracePeriodSeconds=0)
        await asyncio.sleep(0.01)

    async with patience():
        while len(made) < 4:  # two, and two more at once
            await delete_all_new()
    deadline = asyncio.get_running_loop().time() + 2.0
    while asyncio.get_running_loop().time() < deadline:
        await delete_all_new()
    assert len(made) <= 8
