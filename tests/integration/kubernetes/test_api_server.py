"""What we rely on of an API server: the same of the double and of a real one."""

import asyncio
import socket
from contextlib import suppress
from functools import partial

import pytest
from structlog.testing import capture_logs

from services.shim_adapter.backends.kubernetes import client as client_module
from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiClient,
    ApiServerError,
)
from services.shim_adapter.backends.kubernetes.reflector import Reflector, Source
from services.shim_adapter.backends.kubernetes.turn import LEASE, Turn
from tests.kubernetes import pods
from tests.kubernetes.double import Double, a_pod
from tests.kubernetes.store import ApiFailureError
from tests.kubernetes.versions import IN_PLACE_RESIZE, OLDEST
from tests.patience import until

PODS = "/api/v1/namespaces/default/pods"


def binding(name, node="n1", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def refused(doing):
    with pytest.raises(ApiServerError) as caught:
        await doing
    return caught.value.code, caught.value.reason


async def test_what_is_not_served_is_not_found(server):
    await server.needs(25, "no betas of what is stable")
    for path in ("/apis/policy/v1beta1/poddisruptionbudgets", "/apis/events.k8s.io/v1beta1/events"):
        assert (await refused(server.client.request("GET", path)))[0] == 404


async def test_an_api_server_that_lacks_what_we_need_is_told_so_and_asked_again(server, double):
    budgets = double.served.pop("policy/v1")
    source = Source("budgets", "/apis/policy/v1/poddisruptionbudgets")

    async def hear(change, item):
        pass

    reflector = Reflector(server.client, source, hear)
    with capture_logs() as logs:
        task = asyncio.create_task(reflector.run())
        await until(lambda: logs, "it is told")
        double.served["policy/v1"] = budgets
        await until(reflector.is_listed.is_set, "the list")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    said = logs[0]["log_level"], logs[0]["kind"], logs[0]["needed"]
    assert said == ("error", "budgets", f"Kubernetes {OLDEST}")


async def test_an_object_has_a_uid_and_a_version_and_exists_once(server):
    pod = await server.kubectl.pod(a_pod("p"))
    assert pod["metadata"]["uid"]
    assert pod["metadata"]["resourceVersion"]
    assert pod["status"]["phase"] == "Pending"
    assert await refused(server.kubectl.pod(a_pod("p"))) == (409, "AlreadyExists")
    assert await refused(server.client.request("GET", f"{PODS}/none")) == (404, "NotFound")


async def test_a_binding_holds_only_for_the_pod_it_names(server):
    await server.needs(27, "bindings to a pod's uid")
    await server.kubectl.pod(a_pod("p"))
    wrong = binding("p", uid="00000000-0000-0000-0000-000000000000")
    assert await refused(server.client.request("POST", f"{PODS}/p/binding", wrong)) == (
        409,
        "Conflict",
    )


async def test_a_binding_holds_once(server):
    pod = await server.kubectl.pod(a_pod("p"))
    body = binding("p", uid=pod["metadata"]["uid"])
    answer = await server.client.request("POST", f"{PODS}/p/binding", body)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    bound = await server.client.request("GET", f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n1"
    conditions = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    assert await refused(server.client.request("POST", f"{PODS}/p/binding", body)) == (
        409,
        "Conflict",
    )
    assert (await refused(server.client.request("POST", f"{PODS}/q/binding", binding("q"))))[
        0
    ] == 404


async def test_a_gated_pod_cannot_be_bound(server):
    await server.needs(27, "scheduling gates")
    gates = [{"name": "example.com/wait"}]
    pod = await server.kubectl.pod(a_pod("p", schedulingGates=gates))
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    code = await refused(server.client.request("POST", f"{PODS}/p/binding", binding("p")))
    assert code == (409, "Conflict")
    ungate = {"spec": {"schedulingGates": None}}
    await server.client.request("PATCH", f"{PODS}/p", ungate, content_type=MERGE_PATCH)
    await server.client.request("POST", f"{PODS}/p/binding", binding("p"))


async def test_a_deletion_is_for_the_uid_it_names_and_a_bound_pod_stays_for_its_grace(server):
    pod = await server.kubectl.pod(a_pod("p"))
    other = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert (await refused(server.client.request("DELETE", f"{PODS}/p", other)))[0] == 409
    await server.client.request("POST", f"{PODS}/p/binding", binding("p"))
    mine = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    await server.client.request("DELETE", f"{PODS}/p", mine)
    going = await server.client.request("GET", f"{PODS}/p")
    assert going["metadata"]["deletionTimestamp"]
    await server.client.request("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await refused(server.client.request("GET", f"{PODS}/p")))[0] == 404


async def test_an_eviction_heeds_a_budget(server):
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await server.kubectl.pod(a_pod("p"))
    await server.client.request("POST", f"{PODS}/p/binding", binding("p"))
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await server.client.request("PATCH", f"{PODS}/p/status", running, content_type=STRATEGIC_PATCH)
    await server.client.request("POST", budgets, budget)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await refused(server.client.request("POST", f"{PODS}/p/eviction", body)))[0] == 429
    await server.client.request("DELETE", f"{budgets}/b")
    await server.client.request("POST", f"{PODS}/p/eviction", body)


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
READY = [{"type": "Ready", "status": "True"}]
AVAILABLE = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
HEALTHY = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "disruptionsAllowed": 0}
DISRUPTED = {**HEALTHY, "currentHealthy": 0}


async def evicted(server, budgets, phase="Running", conditions=None, **deletion):
    """Evict a pod under these budgets, each a spec and a status; return the code of the answer."""
    await server.needs_no_controllers("the status of a budget is the test's own")
    for spec, _ in budgets:
        if "unhealthyPodEvictionPolicy" in spec:
            await server.needs(27, "budgets that let pods go which are not ready")
        if spec.get("selector") == {}:
            await server.needs(21, "budgets whose empty selector is every pod's")
    await server.kubectl.pod(a_pod("p"))
    await server.client.request("POST", f"{PODS}/p/binding", binding("p"))
    status = {"status": {"phase": phase, "conditions": conditions or []}}
    await server.client.request("PATCH", f"{PODS}/p/status", status, content_type=STRATEGIC_PATCH)
    for at, (spec, told) in enumerate(budgets):
        body = {"metadata": {"name": f"b{at}"}, "spec": spec, "status": {"disruptionsAllowed": 9}}
        made = await server.client.request("POST", BUDGETS, body)
        assert not (made.get("status") or {}).get("disruptionsAllowed")  # it is the controller's
        status = {"observedGeneration": made["metadata"]["generation"], **told}
        await server.kubectl.patch(f"{BUDGETS}/b{at}/status", {"status": status})
    if deletion:
        await server.client.request("DELETE", f"{PODS}/p", deletion)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    try:
        await server.client.request("POST", f"{PODS}/p/eviction", body)
    except ApiServerError as error:
        return error.code
    return 201


@pytest.mark.parametrize(
    ("budgets", "pod", "code"),
    [
        ([(AVAILABLE, HEALTHY)], {"conditions": READY}, 429),
        ([(AVAILABLE, {**HEALTHY, "disruptionsAllowed": 1})], {"conditions": READY}, 201),
        ([(AVAILABLE, HEALTHY)], {}, 201),  # not ready, and its application is not disrupted
        ([(AVAILABLE, DISRUPTED)], {}, 429),
        ([({**AVAILABLE, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}, DISRUPTED)], {}, 429),
        ([({**AVAILABLE, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, DISRUPTED)], {}, 201),
        ([(AVAILABLE, {**HEALTHY, "desiredHealthy": 0})], {}, 429),  # of no pods: nobody counted
        ([(AVAILABLE, DISRUPTED)], {"phase": "Pending"}, 201),
        ([(AVAILABLE, DISRUPTED)], {"phase": "Succeeded"}, 201),
        ([(AVAILABLE, DISRUPTED)], {"conditions": READY, "gracePeriodSeconds": 30}, 201),
        ([(AVAILABLE, {**HEALTHY, "disruptionsAllowed": 1})] * 2, {"conditions": READY}, 500),
        ([(AVAILABLE, HEALTHY)] * 2, {"phase": "Pending"}, 201),
        ([({"minAvailable": 1, "selector": {}}, HEALTHY)], {"conditions": READY}, 429),
        ([({"minAvailable": 1}, HEALTHY)], {"conditions": READY}, 201),  # it selects nobody
    ],
)
async def test_which_evictions_need_a_budget(server, budgets, pod, code):
    assert await evicted(server, budgets, **pod) == code


@pytest.mark.parametrize(
    ("status", "code"),
    [({"observedGeneration": 0}, 429), ({}, 201)],
)
async def test_a_budget_whose_status_is_of_another_spec_lets_nobody_go(server, status, code):
    allowed = {**HEALTHY, "disruptionsAllowed": 3, **status}
    assert await evicted(server, [(AVAILABLE, allowed)], conditions=READY) == code


async def test_a_status_patch_changes_the_status_alone_and_conditions_by_their_type(server):
    await server.kubectl.pod(a_pod("p"))
    for reason in ("First", "Unschedulable"):
        condition = {"type": "PodScheduled", "status": "False", "reason": reason}
        body = {"status": {"conditions": [condition]}, "spec": {"nodeName": "nowhere"}}
        await server.client.request("PATCH", f"{PODS}/p/status", body, content_type=STRATEGIC_PATCH)
    pod = await server.client.request("GET", f"{PODS}/p")
    assert "nodeName" not in pod["spec"]
    scheduled = [c["reason"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert scheduled == ["Unschedulable"]


async def test_what_a_kubelet_says_of_resizing_is_kept_where_that_is_on_and_dropped_elsewhere(
    server,
):
    await server.kubectl.pod(a_pod("p"))
    container = {"name": "c", "allocatedResources": {"cpu": "2"}, "ready": True, "image": "pause"}
    container |= {"imageID": "", "restartCount": 0}
    body = {"status": {"containerStatuses": [container]}}
    await server.client.request("PATCH", f"{PODS}/p/status", body, content_type=STRATEGIC_PATCH)
    (kept,) = (await server.client.request("GET", f"{PODS}/p"))["status"]["containerStatuses"]
    minor = int((await server.client.request("GET", "/version"))["minor"].rstrip("+"))
    assert kept["ready"]
    assert ("allocatedResources" in kept) == (minor >= IN_PLACE_RESIZE)


async def test_a_list_comes_in_pages_and_a_lease_is_swapped_once(server):
    for at in range(5):
        await server.kubectl.pod(a_pod(f"p{at}"))
    page = await server.client.request("GET", PODS, query={"limit": "2"})
    names = [item["metadata"]["name"] for item in page["items"]]
    while page["metadata"].get("continue"):
        query = {"limit": "2", "continue": page["metadata"]["continue"]}
        page = await server.client.request("GET", PODS, query=query)
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == [f"p{at}" for at in range(5)]
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    made = await server.client.request("POST", leases, {"metadata": {"name": "l"}, "spec": {}})
    first = {**made, "spec": {"holderIdentity": "a", "leaseTransitions": 1}}
    await server.client.request("PUT", f"{leases}/l", first)
    assert await refused(server.client.request("PUT", f"{leases}/l", first)) == (409, "Conflict")


async def test_the_turn_is_taken_of_a_lease_that_was_made_empty(server):
    """deploy/ makes it, so that it goes with everything else: the first turn is 1 there, too."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    with suppress(ApiServerError):
        await server.client.request("DELETE", f"{leases}/{LEASE}")
    await server.client.request("POST", leases, {"metadata": {"name": LEASE}})
    for turn in (1, 2):
        taken = Turn(server.client, "somebody")
        await taken.take()
        assert taken.number == turn
    await server.client.request("DELETE", f"{leases}/{LEASE}")


def _has_watched(double, times):
    return double.watched >= times


class Heard:
    """What a reflector reports."""

    def __init__(self, server, selector=""):
        self.events = []
        self.reflector = Reflector(server.client, Source("test", PODS, selector), self.hear)
        self.task = asyncio.create_task(self.reflector.run())

    async def hear(self, change, item):
        self.events.append((change, item["metadata"]["name"]))

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_a_reflector_sees_what_is_there_and_what_happens(server):
    await server.kubectl.pod(a_pod("old"))
    heard = Heard(server)
    try:
        await until(lambda: ("ADDED", "old") in heard.events, "the list")
        await server.kubectl.pod(a_pod("new"))
        await server.client.request("POST", f"{PODS}/new/binding", binding("new"))
        await server.kubectl.delete("old", gracePeriodSeconds=0)
        await until(lambda: ("DELETED", "old") in heard.events, "the deletion")
        assert [e for e in heard.events if e[1] == "new"] == [("ADDED", "new"), ("MODIFIED", "new")]
    finally:
        await heard.stop()


async def test_a_field_selector_makes_a_bound_pod_leave_the_watch(server):
    heard = Heard(server, "spec.nodeName=")
    try:
        await until(heard.reflector.is_listed.is_set, "the list")
        await server.kubectl.pod(a_pod("p"))
        await until(lambda: ("ADDED", "p") in heard.events, "the pod")
        await server.client.request("POST", f"{PODS}/p/binding", binding("p"))
        await until(lambda: ("DELETED", "p") in heard.events, "its leaving")
    finally:
        await heard.stop()


async def test_a_relist_after_410_reports_the_differences(server, double):
    """Pods were deleted, made again under the same name, and added while nobody was watching."""
    for name in ("stays", "goes", "again"):
        await server.kubectl.pod(a_pod(name))
    heard = Heard(server)
    try:
        await until(lambda: len(heard.events) == 3, "the list")
        heard.events.clear()
        await until(lambda: double.watches, "the watch")
        double.fault(method="GET", path="watch=1", code=500, times=1_000)
        double.cut()
        await until(lambda: not double.watches, "its end")
        await server.kubectl.delete("goes")
        await server.kubectl.delete("again")
        await server.kubectl.pod(a_pod("again"))
        await server.kubectl.pod(a_pod("new"))
        double.compact()
        double.faults.clear()
        await until(lambda: ("ADDED", "new") in heard.events, "the relist")
        expected = [("ADDED", "again"), ("ADDED", "new"), ("DELETED", "again"), ("DELETED", "goes")]
        await until(lambda: len(heard.events) >= 4, "every difference")
        assert sorted(heard.events) == expected
        assert heard.events.index(("DELETED", "again")) < heard.events.index(("ADDED", "again"))
    finally:
        await heard.stop()


async def test_a_watch_that_is_cut_again_and_again_loses_nothing_and_repeats_nothing(
    server, double
):
    heard = Heard(server)
    try:
        await until(heard.reflector.is_listed.is_set, "the list")
        for at in range(30):
            await server.kubectl.pod(a_pod(f"p{at:02d}"))
            if at % 5 == 0:
                await until(partial(_has_watched, double, 1 + at // 5), "the next watch")
                double.cut()
        await until(lambda: len(heard.events) >= 30, "every pod")
        assert sorted(heard.events) == [("ADDED", f"p{at:02d}") for at in range(30)]
    finally:
        await heard.stop()


async def test_a_watch_of_which_nothing_is_heard_is_no_broken_one(monkeypatch):
    """It may be silent for as long as it was asked for; what is gone is seen by keep-alives."""
    double = Double(bookmark_seconds=100)
    await double.start()
    client = ApiClient(Access(double.url), "tests")

    async def watched():
        query = {"timeoutSeconds": "1", "resourceVersion": str(double.store.version)}
        return [event async for event in client.watch("/api/v1/nodes", query)]

    monkeypatch.setattr(client_module, "LATE_SECONDS", -0.5)
    with pytest.raises(ApiServerError, match="broke"):
        await watched()
    monkeypatch.setattr(client_module, "LATE_SECONDS", 5.0)
    assert await watched() == []
    async with client._open().get(f"{double.url}/api/v1/nodes", params={"watch": "1"}) as response:
        made = response.connection.transport.get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    await client.close()
    await double.stop()


# --- what the double does when a process behind it is killed -------------------------------------


def kept(double):
    return {kind: objects for kind, objects in double.store.objects.items() if objects}


async def test_a_double_that_is_killed_comes_back_with_all_that_it_answered(tmp_path):
    """And with nothing that it was still writing; who watched it before has to list anew."""
    journal = tmp_path / "journal"
    first = Double(journal=journal)
    first.submit(3, "root.a")
    pods.bind(first.store, "default", "mine-000000", binding("mine-000000"))
    pods.delete(first.store, "default", "mine-000001", {})
    with journal.open("ab") as file:
        file.write(b'[9999, "pods", ["default", "half"], {"meta')
    for _ in range(2):  # the second one finds the torn line gone
        again = Double(journal=journal)
        assert kept(again) == kept(first)
        assert again.store.version == first.store.version
    with pytest.raises(ApiFailureError) as caught:
        list(again.store.since("pods", first.store.version - 1))
    assert caught.value.code == 410
    await again.start()
    assert not again.is_warm
    await again.stop()


async def test_without_etcd_nothing_is_confirmed_and_every_watch_is_to_be_listed_anew(
    server, double
):
    for name in ("a", "b", "c", "d", "e"):
        await server.kubectl.pod(a_pod(name))
    heard = Heard(server)
    try:
        await until(lambda: len(heard.events) == 5, "the list")
        await until(lambda: double.watches, "the watch")
        watched = double.watched
        double.lose_storage()
        for name in ("a", "b", "c", "d"):
            path = f"{PODS}/{name}/binding"
            doing = server.client.request("POST", path, binding(name))
            assert await refused(doing) == (409, "Conflict")
        assert await refused(server.kubectl.delete("e")) == (500, "InternalError")
        assert await refused(server.kubectl.pods()) == (500, "InternalError")
        assert double.watched == watched
        double.regain_storage()
        bound = {name: "nodeName" in p["spec"] for name, p in (await server.kubectl.pods()).items()}
        assert bound == {"a": True, "b": True, "c": True, "d": False, "e": False}
        await until(lambda: len(heard.events) == 8, "what the list shows anew")
        assert sorted(heard.events[5:]) == [("MODIFIED", name) for name in "abc"]
    finally:
        await heard.stop()


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
async def test_it_is_back_when_it_answers_after_nothing_went_for_a_while(
    server, double, monkeypatch, seconds
):
    """What fails beside much that goes has its own pauses: that the rest goes ends none of them."""
    monkeypatch.setattr(client_module, "AWAY_SECONDS", seconds)
    await server.kubectl.get(PODS)
    waiting = asyncio.create_task(server.client.until_back())
    await server.kubectl.get(PODS)
    assert not waiting.done()  # it was never away
    double.fault(method="GET", path="/pods$", code=500, times=1)
    with pytest.raises(ApiServerError):
        await server.kubectl.get(PODS)
    await asyncio.sleep(0)
    assert not waiting.done()
    await server.kubectl.get(PODS)
    await asyncio.sleep(0)
    assert waiting.done() == (seconds == 0.0)
    waiting.cancel()
