"""``kill -9`` of each service in the middle of a gang, each service in its own process."""

import uuid

import pytest

from tests.integration.processes import Deployment

pytestmark = pytest.mark.xdist_group("processes")

MEMBERS = 16
GANG = """
apiVersion: batch/v1
kind: Job
metadata: {name: GANG}
spec:
  completions: 16
  template:
    metadata:
      labels: {applicationId: GANG, queue: root.default}
      annotations:
        yunikorn.apache.org/task-group-name: tg
        yunikorn.apache.org/task-groups: |-
          [{"name": "tg", "minMember": 16, "minResource": {"cpu": "1", "memory": "1Gi"}}]
    spec:
      schedulerName: yunikorn
      containers: [{name: c, image: i, resources: {requests: {cpu: "1", memory: 1Gi}}}]
"""


def gang_of(name: str) -> str:
    """Return the manifest of a gang of MEMBERS."""
    return GANG.replace("GANG", name)


@pytest.mark.limit(300, "four gangs, one after the other, of processes that are killed")
def test_a_gang_finishes_though_a_service_is_killed_in_the_middle(broker_url, tmp_path):
    """All in one life: what one kill leaves behind the next gang meets."""
    deployment = Deployment(broker_url, tmp_path, f"kill-{uuid.uuid4().hex[:8]}")
    try:
        deployment.start_all()
        for victim in ("core", "shim_adapter", "timers", "api"):
            _kill_in_the_middle(deployment, victim, f"gang-{victim.partition('_')[0]}")
    finally:
        deployment.stop()


def _kill_in_the_middle(deployment: Deployment, victim: str, gang: str) -> None:
    deployment.submit(gang_of(gang))
    deployment.wait(lambda: deployment.has_held(gang, MEMBERS), f"{gang}: all placeholders held")
    deployment.wait(
        lambda: "SubmitManifests" in _uncaused(_trace(deployment, gang)),
        "the API has told of the submission: what a killed service has not told yet is lost",
    )
    deployment.kill(victim)
    deployment.start(victim)
    deployment.wait(lambda: all_ran(deployment, gang), f"{gang}: every real pod ran to its end")
    deployment.wait(
        lambda: deployment.application(gang)["state"] in ("Completing", "Completed"),
        f"{gang} completes",
    )
    for node in deployment.get("/ws/v1/partition/default/nodes"):
        assert node.get("allocated", {}).get("vcore", 0) <= node["capacity"]["vcore"]
        assert not node.get("allocations"), node
    deployment.wait(lambda: _is_one_tree(deployment, victim, gang), f"{gang}: one trace, whole")


def _trace(deployment: Deployment, gang: str) -> list[dict]:
    return deployment.get(f"/v1/trace/{gang}")


def _uncaused(entries: list[dict]) -> set[str]:
    """Return the messages that hang below the submission itself; the API's own step is one."""
    return {entry["message"] for entry in entries[1:] if not entry["causeID"]}


def _is_one_tree(deployment: Deployment, victim: str, gang: str) -> bool:
    """Return whether the trace goes from the submission to the end, whoever was killed.

    What a killed service had not told yet is lost, and what it led to then hangs below the
    submission; an API replica reads all that was told before it started.
    """
    entries = _trace(deployment, gang)
    spans = {entry["spanID"] for entry in entries}
    assert all(entry["parentSpanID"] in spans for entry in entries[1:])
    assert len({entry["traceID"] for entry in entries}) == 1
    told = " ".join(entry["decision"] for entry in entries)
    below = _uncaused(entries)
    is_whole = below == {"SubmitManifests"} or (victim != "api" and "SubmitManifests" in below)
    return is_whole and "PLACEHOLDER_REPLACED" in told and "Completing" in told


def all_ran(deployment: Deployment, gang: str) -> bool:
    """Return whether every member ended; while they run, no node may be over capacity."""
    world = deployment.world()
    used: dict[str, int] = {}
    own = [pod for pod in world.all_pods() if pod.spec.application_id == gang]
    real = [pod for pod in own if not pod.spec.placeholder]
    for pod in world.all_pods():
        if pod.node and not pod.has_ended:
            used[pod.node] = used.get(pod.node, 0) + pod.spec.resource["vcore"]
    assert len(real) == MEMBERS
    for node, amount in used.items():
        assert amount <= world.nodes[node].capacity["vcore"], f"{node} is over capacity: {used}"
    return all(pod.phase == "Succeeded" for pod in real)
