"""What a pod of a cluster may say: nothing of it stops another, also after a restart; its people are told."""

import json

import pytest

from tests.integration.kubernetes.test_backend import GROUP, POLICY, QUEUES, TASK_GROUPS, member
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

USER = "yunikorn.apache.org/user.info"
LABELS = {"queue": "root.a"}


@pytest.fixture
async def muster(server):
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="64", memory="8Gi", pods="110")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


def pod(name, annotations, **more):
    labels = {"applicationId": name, **LABELS}
    return a_pod(name, labels=labels, annotations=annotations, **more)


async def events_of(muster, name):
    answer = await muster.kubectl.get("/apis/events.k8s.io/v1/namespaces/default/events")
    return [item["note"] for item in answer["items"] if item["regarding"]["name"] == name]


async def until_event(muster, name, text):
    async def told():
        return any(text in note for note in await events_of(muster, name))

    await until(told, f"an event of {name} with {text!r}")


async def until_it_runs(muster, name):
    await until(lambda: name in muster.kubelets.ran, f"{name} runs")


@pytest.mark.parametrize(
    "timeout", ["9000000000", "10000000000", "1" + "0" * 16, "1" + "0" * 20, str(2**63 - 1)]
)
async def test_no_placeholder_timeout_stops_the_cluster(muster, timeout):
    policy = f"placeholderTimeoutInSeconds={timeout}"
    wants = {"nodeSelector": {"zone": "nowhere"}}
    for name, own in (("fits", {}), ("waits", wants)):
        await muster.kubectl.pod(member(name, name, members=2, policy=policy, own=own))
    await until(lambda: "fits" in muster.kubelets.ran, "a gang with it runs")
    for kill in (muster.kill_core, muster.kill_shim):
        await kill()
        await until(muster.is_ready, "everything is known again")
        await until(lambda: len(muster.model.nodes) == 1, "the node is there")
    await muster.kubectl.pod(member("after", "after", members=1, policy=policy))
    await until_it_runs(muster, "after")
    if len(timeout) < 20:
        said = "is longer than 100 years" if timeout == "9000000000" else "overflows a duration"
        await until_event(muster, "waits", f"{timeout} {said}")


async def test_half_a_character_in_an_annotation_stops_nobody(muster):
    half = {
        "user": {USER: '{"user": "\\ud800", "groups": ["\\udfff"]}'},
        "group": {TASK_GROUPS: '[{"name": "\\ud800", "minMember": 1, "minResource": {}}]'},
        "label": {
            TASK_GROUPS: '[{"name": "g", "minMember": 1, "minResource": {}, "labels": {"a": "\\ud800"}}]'
        },
    }
    for name, annotations in half.items():
        await muster.kubectl.pod(pod(name, annotations))
        await until_it_runs(muster, name)
    assert muster.model.application("user").summary.user == "nobody"
    for name in ("group", "label"):
        await until_event(muster, name, "half a character")
    await muster.kill_shim()
    await until(muster.is_ready, "everything is known again")
    await until(lambda: len(muster.model.applications) == 3, "all of it")
    await muster.kubectl.pod(pod("after", {}))
    await until_it_runs(muster, "after")


async def test_a_placeholder_that_cannot_be_written_is_no_gang(muster):
    tolerations = [{"key": "a", "operator": "Exists", "tolerationSeconds": 10**30}]
    await muster.kubectl.pod(member("m", "gang", members=1, own={"tolerations": tolerations}))
    await until_it_runs(muster, "m")
    await until_event(muster, "m", "cannot be sent")
    await muster.kubectl.pod(pod("after", {}))
    await until_it_runs(muster, "after")


async def test_sums_beyond_int64_are_told_and_what_fits_runs(muster):
    for at in range(6):
        large = [{"name": "c", "image": "i", "resources": {"requests": {"memory": "4Ei"}}}]
        body = pod(f"large-{at}", {})
        body["spec"]["containers"] = large
        await muster.kubectl.pod(body)
    await until(
        lambda: muster.model.queues["root"].pending.get("pods") == 6, "all of them are told of"
    )
    assert muster.model.queues["root"].pending["memory"] == 2**63 - 1
    await muster.kill_core()
    await until(muster.is_ready, "everything is known again")
    await muster.kubectl.pod(pod("after", {}))
    await until_it_runs(muster, "after")


async def test_what_is_told_of_a_pod_is_bounded_and_its_people_are_told(muster):
    values = ["v" * 60] * 1000
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    await muster.kubectl.pod(pod("large", {}, affinity={"nodeAffinity": required}))
    await until_event(muster, "large", "most of it are its affinity, selectors and tolerations")
    groups = [
        {
            "name": "g",
            "minMember": 1,
            "minResource": {"cpu": "1"},
            "affinity": {"nodeAffinity": required},
        }
    ]
    await muster.kubectl.pod(pod("gang", {TASK_GROUPS: json.dumps(groups), GROUP: "g", POLICY: ""}))
    await until_it_runs(muster, "gang")
    await until_event(muster, "gang", "its data for the scheduler takes")
