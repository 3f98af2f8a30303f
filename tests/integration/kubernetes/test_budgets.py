"""Preemption and disruption budgets: whoever may not go is not asked, and nobody goes for nobody."""

import asyncio

import pytest

from services.shim_adapter.backends.kubernetes.budgets import Budgets, budget_of
from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH
from services.shim_adapter.records import PodPhase, PodRecord
from shared.messages.commands import PodSpec
from shared.messages.interface import DisruptionState
from tests.integration.kubernetes.test_backend import until_told
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until
from tests.table import each_row

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {name: low}
          - {name: high, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 1}}}
"""
VICTIMS = [f"v{at}" for at in range(5)]
EVICTION = "/eviction$"
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


@pytest.fixture
async def muster(server):
    """Five victims that fill the cluster; the newest, which goes first, is under a budget."""
    await server.kubectl.config(QUEUES)
    for at in range(5):
        await server.kubectl.node(f"n{at}", cpu="1", memory="8Gi", pods="20")
    async with muster_over(server.access, server.kubectl) as running:
        for name in VICTIMS:
            labels = {"applicationId": "low", "queue": "root.low", "victim": name}
            body = a_pod(name, labels=labels, terminationGracePeriodSeconds=1)
            await running.kubectl.pod(body)
            await until(lambda name=name: name in running.kubelets.ran, "a victim runs")
        yield running


def wants():
    return a_pod("wants", labels={"applicationId": "high", "queue": "root.high"})


def held(muster):
    """Return the victims by what the core knows of their budgets."""
    names = {pod.uid: pod.spec.name for pod in muster.world.all_pods()}
    found = muster.cluster.core.partition.victims.disruptions
    return {names[key]: state.value for key, state in found.items() if key in names}


async def left(muster):
    pods = await muster.kubectl.pods()
    return {name for name in VICTIMS if name in pods}


async def test_a_protected_victim_is_passed_over(muster):
    protected = VICTIMS[1:]
    for name in protected:
        await muster.kubectl.budget(f"of-{name}", {"victim": name}, allowed=0)
    await until(lambda: held(muster) == dict.fromkeys(protected, "barred"), "it is known")
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room of the free one")
    assert await left(muster) == set(protected)


async def test_a_victim_without_a_budget_goes_before_one_that_may_go(muster):
    for name in VICTIMS[1:]:
        await muster.kubectl.budget(f"of-{name}", {"victim": name}, allowed=1)
    await until(lambda: set(held(muster).values()) == {"budgeted"}, "it is known")
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room of the free one")
    assert await left(muster) == set(VICTIMS[1:])


async def test_a_refused_eviction_is_taken_back_and_another_victim_is_chosen(muster, double):
    """As when two take the last disruption of a budget at the same moment."""
    double.fault(method="POST", path=EVICTION, code=429, times=1, message=REFUSED, retry_after=1)
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room of another")
    assert double.requests["POST pods/eviction"] == 1  # beside the one that was refused
    assert len(await left(muster)) == 4
    (spared,) = await told(muster, "PreemptionRefused", 1)
    assert spared in await left(muster)


async def test_an_eviction_that_nobody_needs_any_more_does_not_happen(muster, double):
    """Its preemptor is deleted while its budget says no; then the budget is relaxed."""
    double.fault(method="POST", path=EVICTION, code=429, times=99, message=REFUSED)
    for name in VICTIMS[1:]:
        await muster.kubectl.budget(f"of-{name}", {"victim": name}, allowed=0)
    await until(lambda: len(held(muster)) == 4, "it is known")
    await muster.kubectl.pod(wants())
    await until(lambda: held(muster).get("v0") == "barred", "the eviction is refused")
    await muster.kubectl.delete("wants", gracePeriodSeconds=0)
    await until(lambda: "high" not in held_asks(muster), "the core knows")
    double.faults.clear()
    await muster.kubectl.budget("of-v0", {"victim": "v0"}, allowed=1)
    await until(lambda: held(muster).get("v0") == "budgeted", "the budget is relaxed")
    await asyncio.sleep(1.5)  # an eviction that is asked again by itself comes within this time
    assert await left(muster) == set(VICTIMS)
    assert double.requests.get("POST pods/eviction", 0) == 0  # none was carried out


@pytest.mark.parametrize("code", [500, 503, 429])
async def test_an_eviction_that_had_no_answer_is_not_asked_again_for_nobody(muster, double, code):
    """Its preemptor is deleted while the API server fails; then the server works again."""
    double.fault(method="POST", path=EVICTION, code=code, times=1)
    double.fault(method="GET", path="/pods/v.$", code=500, times=1_000)
    await muster.kubectl.pod(wants())
    await until(lambda: double.faults[0].times == 0, "the eviction is asked for")
    await muster.kubectl.delete("wants", gracePeriodSeconds=0)
    await until(lambda: "high" not in held_asks(muster), "the core knows")
    double.faults.clear()
    await until(lambda: not released(muster), "it is taken back")
    assert await left(muster) == set(VICTIMS)
    assert double.requests.get("POST pods/eviction", 0) == 0


@pytest.mark.parametrize("is_done", [True, False])
async def test_an_eviction_that_had_no_answer_is_settled_by_reading_the_pod(
    muster, double, is_done
):
    """Carried out, it was it; else the same victim is chosen again, and no other one."""
    double.fault(method="POST", path=EVICTION, code=504, times=1, after=is_done)
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room")
    gone = set(VICTIMS) - await left(muster)
    assert len(gone) == 1
    assert double.requests["POST pods/eviction"] == 1
    tries = 1 if is_done else 2
    assert await told(muster, "Preempted", tries) == [*gone] * tries
    assert await told(muster, "PreemptionRefused", tries - 1) == [*gone] * (tries - 1)


async def test_an_eviction_that_is_forbidden_is_told_and_another_victim_is_chosen(muster, double):
    """As by an admission webhook: 403, and never another answer."""
    double.fault(method="POST", path=EVICTION, code=403, times=1, message="no")
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room of another")
    (spared,) = await told(muster, "PreemptionRefused", 1)
    there = await left(muster)
    assert spared in there
    assert len(there) == 4


async def told(muster, reason, times):
    """Return the pods that the events of a reason are about, once there are so many."""
    found = await until_told(muster.kubectl, reason, times)
    return [event["regarding"]["name"] for event in found]


def released(muster):
    applications = muster.cluster.core.partition.applications
    return [key for application in applications.values() for key in application.released]


def held_asks(muster):
    return {
        application.id
        for application in muster.cluster.core.partition.applications.values()
        if application.ask_priorities
    }


def left_of(muster, name):
    budgets = muster.cluster.core.partition.victims.budgets
    return {budgets.of(key) for key in budgets._of} == {name} and budgets.left(name)


async def test_two_victims_of_one_budget_that_allows_one_are_not_chosen_together(muster):
    """Nobody is evicted for a pod that needs two, until the budget allows two; none is refused."""
    await muster.kubectl.config(QUEUES.replace("{vcore: 1}", "{vcore: 3}"))
    await muster.kubectl.node("large", cpu="2", memory="8Gi", pods="20")
    for name in ("l0", "l1"):
        await muster.kubectl.pod(a_pod(name, labels={"applicationId": "low", "queue": "root.low"}))
        await until(lambda name=name: name in muster.kubelets.ran, "it runs")
    for allowed in (3, 1):
        await muster.kubectl.budget("all", {"app": "x"}, allowed=allowed)
        await until(lambda n=allowed: left_of(muster, "default/all") == n, "how many are left")
    large = wants()
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    await muster.kubectl.pod(large)
    await until(lambda: "high" in held_asks(muster), "the core knows it")
    small = a_pod("small", labels={"applicationId": "high", "queue": "root.high"})
    await muster.kubectl.pod(small)
    await until(lambda: "small" in muster.kubelets.ran, "the one that needs one, behind it")
    assert len(await told(muster, "Preempted", 1)) == 1
    assert await told(muster, "PreemptionRefused", 0) == []


async def test_a_pod_whose_labels_change_is_under_other_budgets(muster):
    """As when somebody takes a pod out of its service: what protected that does so no more."""
    for name in VICTIMS[1:]:
        await muster.kubectl.budget(f"of-{name}", {"victim": name}, allowed=0)
    await muster.kubectl.budget("spare", {"victim": "spare"}, allowed=1)
    await until(lambda: held(muster) == dict.fromkeys(VICTIMS[1:], "barred"), "it is known")
    for victim, label in (("v0", "v1"), ("v3", "spare"), ("v4", "out")):
        labels = {"metadata": {"labels": {"victim": label}}}
        await muster.kubectl.patch(f"/api/v1/namespaces/default/pods/{victim}", labels)
    expected = {"v0": "barred", "v1": "barred", "v2": "barred", "v3": "budgeted"}
    await until(lambda: held(muster) == expected, "each is under the budgets that are for it now")
    await muster.kill_core()
    await until(lambda: muster.is_ready() and held(muster) == expected, "a new core knows it")
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room of the free one")
    assert await left(muster) == set(VICTIMS[:4])


async def test_budgets_are_known_after_a_restart_of_either_side(muster):
    await muster.kubectl.budget("all", {"app": "x"}, allowed=0)
    await until(lambda: len(held(muster)) == 5, "it is known")
    await muster.kill_core()
    await until(lambda: muster.is_ready() and len(held(muster)) == 5, "a new core knows it")
    await muster.kill_shim()
    await until(muster.is_ready, "the next turn")
    await until(lambda: len(held(muster)) == 5, "a new shim adapter knows it")


# --- what a budget is for -------------------------------------------------------------------------


def a_budget(name, allowed=None, policy=None, generation=None, healthy=(0, 0), **selector):
    """Return a budget of the first generation; ``generation`` is what its status is of."""
    raw = {
        "metadata": {"name": name, "namespace": "ns", "generation": 1},
        "spec": {"selector": selector or None, "unhealthyPodEvictionPolicy": policy},
        "status": {
            "disruptionsAllowed": allowed,
            "observedGeneration": 1 if generation is None else generation,
            "currentHealthy": healthy[0],
            "desiredHealthy": healthy[1],
        },
    }
    return (("ns", name), budget_of(raw))


def placed(labels=None, uid="u", phase=PodPhase.RUNNING, *, is_ready=True):
    spec = PodSpec("p", "app", {}, namespace="ns", labels=labels or {"app": "x"})
    return PodRecord(uid, spec, 0, 0, phase=phase, node="n", is_ready=is_ready)


def state_of(known, pod):
    known.note(pod)
    return pod.disruption


FREE, BUDGETED, BARRED = DisruptionState


@each_row(
    ("budgets", "expected"),
    [
        ([a_budget("b", 1)], FREE),  # without a selector it is for nobody
        ([a_budget("b", 1, matchLabels={"app": "y"})], FREE),
        ([a_budget("b", 1, matchLabels={"app": "x"})], BUDGETED),
        ([a_budget("b", 0, matchLabels={"app": "x"})], BARRED),
        ([a_budget("b", None, matchLabels={"app": "x"})], BARRED),  # no status yet
        ([a_budget("b", 1, matchExpressions=[{"key": "app", "operator": "Exists"}])], BUDGETED),
        ([a_budget("b", 1, matchExpressions=[{"key": "app", "operator": "odd"}])], BARRED),
        ([a_budget(n, 1, matchLabels={"app": "x"}) for n in "bc"], BARRED),
    ],
)
def test_what_budgets_come_to_whatever_is_seen_first(budgets, expected):
    for is_pod_first in (True, False):
        known, pod = Budgets(), placed()
        if is_pod_first:
            known.placed(pod)
        for name, budget in budgets:
            known.see(name, budget)
        if not is_pod_first:
            known.placed(pod)
        assert state_of(known, pod) is expected
        for name, _ in budgets:
            known.see(name, None)
        assert state_of(known, pod) is FREE


OURS = {"matchLabels": {"app": "x"}}


@each_row(
    ("budgets", "expected"),
    [
        ([a_budget("b", 0, **OURS)], BARRED),  # of no pods that are healthy none is wanted
        ([a_budget("b", 1, **OURS)], BUDGETED),
        ([a_budget("b", 0, healthy=(1, 2), **OURS)], BARRED),
        ([a_budget("b", 0, healthy=(2, 2), **OURS)], FREE),
        ([a_budget("b", 0, "IfHealthyBudget", healthy=(1, 2), **OURS)], BARRED),
        ([a_budget("b", 0, "AlwaysAllow", healthy=(1, 2), **OURS)], FREE),
        ([a_budget(name, 9, "AlwaysAllow", **OURS) for name in "bc"], BARRED),
        ([a_budget("b", 9, generation=0, **OURS)], BARRED),
        ([a_budget("b", 9, "AlwaysAllow", generation=0, **OURS)], FREE),
    ],
)
def test_a_pod_that_is_not_ready_goes_past_a_budget_that_has_what_it_wants(budgets, expected):
    known, pod = Budgets(), placed(is_ready=False)
    known.placed(pod)
    for name, budget in budgets:
        known.see(name, budget)
    assert state_of(known, pod) is expected
    assert bool(pod.budget) is (expected is not FREE and len(budgets) == 1)
    pod.is_ready = True
    is_allowed = budgets == [a_budget("b", 1, **OURS)]
    assert state_of(known, pod) is (BUDGETED if is_allowed else BARRED)
    pod.phase = PodPhase.PENDING
    assert state_of(known, pod) is FREE  # it has not begun


async def test_a_victim_that_is_not_ready_goes_and_its_budget_is_not_asked(muster, server):
    """Budgets let none of the ready go; one victim has its application's health to spare."""
    await server.needs(27, "budgets that let pods go which are not ready")
    for name in VICTIMS:
        await muster.kubectl.budget(f"of-{name}", {"victim": name}, allowed=0)
    await until(lambda: held(muster) == dict.fromkeys(VICTIMS, "barred"), "it is known")
    sick = {"conditions": [{"type": "Ready", "status": "False"}]}
    path = "/api/v1/namespaces/default/pods/v2/status"
    await muster.kubectl.client.request(
        "PATCH", path, {"status": sick}, content_type=STRATEGIC_PATCH
    )
    spec = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await muster.kubectl.patch(f"{budgets}/of-v2", spec)
    await until(lambda: "v2" not in held(muster), "it may go")
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room of the sick one")
    assert await left(muster) == set(VICTIMS) - {"v2"}
    assert await told(muster, "PreemptionRefused", 0) == []


async def test_a_budget_whose_status_lags_behind_its_spec_lets_nobody_go(muster, double):
    """Its spec has changed, and its controller has not looked: the API server refuses evictions."""
    for name in VICTIMS:
        await muster.kubectl.budget(f"of-{name}", {"victim": name}, allowed=1)
    await until(lambda: held(muster) == dict.fromkeys(VICTIMS, "budgeted"), "it is known")
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/of-"
    for name in VICTIMS[1:]:
        await muster.kubectl.patch(path + name, {"spec": {"minAvailable": 1}})
    expected = {"v0": "budgeted", **dict.fromkeys(VICTIMS[1:], "barred")}
    await until(lambda: held(muster) == expected, "what may go is known")
    await muster.kubectl.pod(wants())
    await until(lambda: "wants" in muster.kubelets.ran, "it has the room of the only one")
    assert await left(muster) == set(VICTIMS[1:])
    assert double.requests["POST pods/eviction"] == 1


def test_a_refusal_lasts_until_the_budget_changes_or_the_pause_is_over():
    known, pod = Budgets(), placed()
    known.placed(pod)
    known.see(*a_budget("b", 1, matchLabels={"app": "x"}))
    known.refused("u")
    assert state_of(known, pod) is BARRED
    known.ask_again("u")
    assert state_of(known, pod) is BUDGETED
    known.refused("u")
    known.see(*a_budget("other", 1, matchLabels={"app": "y"}))
    assert state_of(known, pod) is BARRED
    assert known.see(*a_budget("b", 2, matchLabels={"app": "x"})) == [pod]
    assert state_of(known, pod) is BUDGETED
    known.gone(pod)
    assert known.see(*a_budget("b", 0, matchLabels={"app": "x"})) == []
