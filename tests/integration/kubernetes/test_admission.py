"""The admission webhook as deployed, asked by an API server over HTTPS; its rights and certificates."""

import asyncio
import base64
import io
import itertools
import json
import os
import socket
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import yaml
from cryptography import x509

from services.shim_adapter.admission.__main__ import AGENT, serve
from services.shim_adapter.admission.certificates import (
    LIFETIME,
    Certificates,
    is_due,
    names_of,
    renewed,
)
from services.shim_adapter.admission.decision import CHANGED
from services.shim_adapter.admission.keeper import Keeper, _stored
from services.shim_adapter.admission.server import MAX_REVIEW
from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import (
    STRATEGIC_PATCH,
    ApiClient,
    ApiServerError,
)
from shared.runtime.service import EXIT_CONFIGURATION
from shared.runtime.settings import Settings
from tests.broker import free_port
from tests.integration.kubernetes.test_backend import QUEUES, member
from tests.kubernetes.controller_manager import ControllerManager, path_of
from tests.kubernetes.double import Double, a_pod
from tests.kubernetes.harness import Kubectl, muster_over
from tests.kubernetes.rights import ADMISSION, granted
from tests.kubernetes.webhooks import Webhooks
from tests.patience import until

ROOT = Path(__file__).parents[3]
OURS = "muster"
USER_INFO = "yunikorn.apache.org/user.info"
BAD = (
    "partitions:\n  - name: default\n    queues:\n      - name: root\n        maxapplications: -1\n"
)
MADE = {"Secret", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
PATHS = {
    "Secret": f"/api/v1/namespaces/{OURS}/secrets",
    "MutatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    ),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    ),
}
SECRET = f"{PATHS['Secret']}/admission-certificates"
MUTATING = f"{PATHS['MutatingWebhookConfiguration']}/muster-admission"


class Person:
    """Somebody who asks the API server for things."""

    def __init__(self, access, name, *groups):
        self._access = access
        self._headers = [
            ("Authorization", access.authorization()),
            ("Impersonate-User", name),
            *(("Impersonate-Group", group) for group in groups),
        ]

    async def ask(self, method, path, body):
        url, tls = self._access.url + path, self._access.tls or True
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, json=body, headers=self._headers, ssl=tls) as answer,
        ):
            return answer.status, await answer.json()

    async def pod(self, name, namespace="team", **more):
        body = a_pod(name, scheduler="default-scheduler")
        body["metadata"].update(more)
        path = f"/api/v1/namespaces/{namespace}/pods"
        return await self.ask("POST", path, {"kind": "Pod", "apiVersion": "v1", **body})


class Deployed:
    """An API server with what deploy/kubernetes/admission makes."""

    def __init__(self, access, double=None):
        self.double = double
        self.access = replace(access, namespace=OURS)
        self.client = ApiClient(self.access, "tests")
        self.port = free_port()
        self.settings = Settings(admission_host="127.0.0.1", admission_port=self.port)
        if double is not None:
            double.webhooks = Webhooks(double.store, {"admission": self.port})
        self.ada = Person(access, "ada", "dev")

    async def make(self, client_config=None):
        for name in (OURS, "team", "kube-system"):
            with suppress(ApiServerError):
                labels = {"kubernetes.io/metadata.name": name}  # by itself since 1.21
                body = {"metadata": {"name": name, "labels": labels}}
                await self.client.request("POST", "/api/v1/namespaces", body)
        await self.remove()
        for item in yaml.safe_load_all(ADMISSION.read_text()):
            for webhook in item.get("webhooks", ()) if client_config else ():
                webhook["clientConfig"] = client_config(webhook["clientConfig"]["service"])
                webhook["failurePolicy"] = "Fail"
            if item["kind"] in MADE:
                await self.client.request("POST", PATHS[item["kind"]], item)

    async def remove(self):
        for item in yaml.safe_load_all(ADMISSION.read_text()):
            if item["kind"] in MADE:
                with suppress(ApiServerError):
                    path = f"{PATHS[item['kind']]}/{item['metadata']['name']}"
                    await self.client.request("DELETE", path)

    @asynccontextmanager
    async def running(self):
        stopping = asyncio.Event()
        task = asyncio.create_task(serve(self.access, self.settings, stopping))
        try:
            await until(lambda: task.done() or self.is_answering(), "the webhook answers")
            yield task
        finally:
            stopping.set()
            assert await task

    def is_answering(self):
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    async def get(self, path):
        return await self.client.request("GET", path)


@pytest.fixture
async def deployed():
    double = Double(bookmark_seconds=0.2)
    await double.start()
    made = Deployed(Access(double.url), double)
    await made.make()
    yield made
    await made.client.close()
    await double.stop()


@pytest.fixture
async def anywhere(server):
    """The same on the double and on a real API server, which reaches the webhook by its address."""
    if server.double is None and not os.environ.get("KUBEBUILDER_ASSETS"):
        pytest.skip(
            "an API server in a container or elsewhere cannot reach a webhook in this process"
        )
    made = Deployed(server.access, server.double)
    made.settings = made.settings.model_copy(update={"admission_names": "127.0.0.1"})
    made.ada = Person(server.access, "ada", "system:masters")
    try:
        await made.make(lambda at: {"url": f"https://127.0.0.1:{made.port}{at['path']}"})
        yield made
    finally:
        await made.remove()
        await made.client.close()


async def test_an_api_server_asks_it_and_does_what_it_says(anywhere):
    names = (f"p{at}" for at in itertools.count())
    async with anywhere.running():
        made = {}

        async def is_asked():
            status, found = await anywhere.ada.pod(next(names), "default")
            made.update(found)
            return status == 201 and found["spec"]["schedulerName"] == "yunikorn"

        await until(is_asked, "the API server knows whom to ask and to believe")
        assert made["metadata"]["labels"]["applicationId"] == "yunikorn-default-autogen"
        assert json.loads(made["metadata"]["annotations"][USER_INFO])["user"] == "ada"
        bobs = {USER_INFO: '{"user":"bob"}'}
        status, said = await anywhere.ada.pod(next(names), "default", annotations=bobs)
        assert (status, "not allowed to set user annotation" in said["message"]) == (403, True)
        path = f"/api/v1/namespaces/default/pods/{made['metadata']['name']}"
        pod = await anywhere.get(path)
        pod["metadata"]["annotations"].update(bobs)
        status, said = await anywhere.ada.ask("PUT", path, {**pod, "kind": "Pod"})
        assert (status, CHANGED in said["message"]) == (403, True)
        maps = f"/api/v1/namespaces/{OURS}/configmaps"
        body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "yunikorn-configs"}}
        status, said = await anywhere.ada.ask("POST", maps, {**body, "data": {"queues.yaml": BAD}})
        assert (status, "queues.yaml line" in said["message"]) == (403, True)


async def test_a_gang_that_names_no_scheduler_runs(deployed):
    """Its members become Muster's; the placeholders that its shim adapter makes are left as they are."""
    kubectl = Kubectl(deployed.client)
    await kubectl.config(QUEUES, OURS)
    await kubectl.node("n1", cpu="4", memory="8Gi", pods="20")
    double = deployed.double
    async with deployed.running(), muster_over(deployed.access, kubectl) as muster:
        for at in range(3):
            gang = member(f"m{at}", "gang")["metadata"]
            kept = {key: gang[key] for key in ("labels", "annotations")}
            status, _ = await deployed.ada.pod(f"m{at}", **kept)
            assert status == 201
        await until(
            lambda: all(f"m{at}" in muster.kubelets.ran for at in range(3)), "the gang runs"
        )
        made = {event.last["metadata"]["name"]: event.last for event in double.store.history
                if event.resource == "pods" and event.before is None}  # fmt: skip
        placeholders = [pod for name, pod in made.items() if name.startswith("tg-")]
        assert len(placeholders) == 3
        assert not any(USER_INFO in pod["metadata"]["annotations"] for pod in placeholders)
        assert muster.model.applications["gang"].summary.user == "ada"


async def test_a_pod_is_changed_before_it_is_stored(deployed):
    async with deployed.running():
        status, pod = await deployed.ada.pod("p")
        assert status == 201
        assert pod["spec"]["schedulerName"] == "yunikorn"
        assert pod["metadata"]["labels"]["applicationId"] == "yunikorn-team-autogen"
        assert pod["metadata"]["annotations"][USER_INFO] == '{"user":"ada","groups":["dev"]}'
        for namespace in ("kube-system", OURS):
            _, pod = await deployed.ada.pod("p", namespace)
            assert pod["spec"]["schedulerName"] == "default-scheduler"
        status, said = await deployed.ada.pod("q", annotations={USER_INFO: '{"user":"bob"}'})
        assert (status, said["reason"]) == (403, "Forbidden")
        assert "user ada with groups [dev] is not allowed to set user annotation" in said["message"]
        path = "/api/v1/namespaces/team/pods/p"
        pod = await deployed.get(path)
        pod["metadata"]["annotations"][USER_INFO] = '{"user":"bob"}'
        status, said = await deployed.ada.ask("PUT", path, {"kind": "Pod", **pod})
        assert "user info annotation change is not allowed" in said["message"]


async def test_a_workload_and_the_configuration_are_judged(deployed):
    async with deployed.running():
        job = {
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"schedulerName": "default-scheduler"}}},
        }
        _, job = await deployed.ada.ask("POST", "/apis/batch/v1/namespaces/team/jobs", job)
        assert USER_INFO in job["spec"]["template"]["metadata"]["annotations"]
        maps = f"/api/v1/namespaces/{OURS}/configmaps"
        body = {"kind": "ConfigMap", "metadata": {"name": "yunikorn-configs"}}
        status, said = await deployed.ada.ask("POST", maps, {**body, "data": {"queues.yaml": BAD}})
        assert status == 403
        assert "queues.yaml line" in said["message"]
        keys = {"admissionController.filtering.bypassNamespaces": "^team$"}
        status, _ = await deployed.ada.ask("POST", maps, {**body, "data": keys})
        assert status == 201
        made = iter(range(1_000))

        async def is_left_alone():
            _, pod = await deployed.ada.pod(f"after-{next(made)}")
            return pod["spec"]["schedulerName"] == "default-scheduler"

        await until(is_left_alone, "the new filter holds")


async def test_a_namespaces_word_holds_for_the_pod_that_comes_right_behind_it(deployed):
    async with deployed.running():
        deployed.double.cut()
        deployed.double.fault(method="GET", path="/api/v1/namespaces.*watch", code=500, times=1_000)
        note = {"yunikorn.apache.org/namespace.enableYuniKorn": "false"}
        metadata = {"name": "new", "annotations": note}
        await deployed.client.request("POST", "/api/v1/namespaces", {"metadata": metadata})
        _, pod = await deployed.ada.pod("p", "new")
        assert pod["spec"]["schedulerName"] == "default-scheduler"


async def test_its_rights_are_those_that_it_uses_no_more_and_no_fewer(deployed):
    async with deployed.running():
        await deployed.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})
        await deployed.ada.pod("p", "other")  # a namespace that nobody has told of
    used = {
        (verb, group, resource, "" if resource == "namespaces" else name)
        for verb, group, resource, name in deployed.double.uses[AGENT]
    }
    assert used == granted(ADMISSION)


# --- what controllers make --------------------------------------------------------------------------

OF_NAMESPACES = """
partitions:
  - name: default
    placementrules: [{name: tag, value: namespace, create: true}]
    queues: [{name: root, submitacl: '*'}]
"""
WORKLOADS = {
    "Deployment": ("replicas", 2), "StatefulSet": ("replicas", 2), "DaemonSet": (None, 1),
    "Job": ("parallelism", 2), "CronJob": ("parallelism", 2),
}  # fmt: skip


def workload(kind):
    """Return a workload as somebody writes it, which knows of no scheduler."""
    size, count = WORKLOADS[kind]
    labels = {"app": "w"}
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"template": template} | ({size: count} if size else {})
    if kind in ("Deployment", "StatefulSet", "DaemonSet"):
        spec["selector"] = {"matchLabels": labels}
    if kind == "Job":
        spec["completions"] = count
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    version = "batch/v1" if kind.endswith("Job") else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def template_of(obj, kind):
    spec = obj["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else obj["spec"]
    return spec["template"]


async def made_of(deployed, kind):
    """Return what there is of a kind of `team`, without what is going."""
    items = (await deployed.get(path_of(kind, "team")))["items"]
    return [item for item in items if not item["metadata"].get("deletionTimestamp")]


async def bind_what_is_not_ours(deployed):
    """Be kube-scheduler: put every pod that is its own on the one node."""
    while True:
        for pod in await made_of(deployed, "Pod"):
            if pod["spec"]["schedulerName"] != "yunikorn" and not pod["spec"].get("nodeName"):
                path = path_of("Pod", "team", pod["metadata"]["name"])
                body = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"name": "n1"}}
                with suppress(ApiServerError):  # it is gone meanwhile
                    await deployed.client.request("POST", f"{path}/binding", body)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def controlled(deployed):
    """Give a cluster in which controllers, kubelets and kube-scheduler are at work."""
    kubectl = Kubectl(deployed.client)
    await kubectl.config(OF_NAMESPACES, OURS)
    await kubectl.node("n1", cpu="8", memory="8Gi", pods="50")
    async with (
        ControllerManager(deployed.access) as manager,
        muster_over(deployed.access, kubectl) as muster,
    ):
        muster.manager = manager
        task = asyncio.create_task(bind_what_is_not_ours(deployed))
        yield muster
        task.cancel()


async def until_pods(deployed, count, is_new=lambda _: True):
    async def are_there():
        assert len(await made_of(deployed, "ReplicaSet")) <= 2, "a storm"
        pods = await made_of(deployed, "Pod")
        return len(pods) == count and all(
            is_new(pod) and pod["status"]["phase"] == "Running" for pod in pods
        )

    await until(are_there, f"{count} pods run")
    return await made_of(deployed, "Pod")


async def restarted(deployed, kind):
    """Restart the pods of a workload as `kubectl rollout restart` does."""
    noted = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
    headers = {"content_type": STRATEGIC_PATCH}
    await deployed.client.request(
        "PATCH", path_of(kind, "team", "w"), {"spec": {"template": noted}}, **headers
    )


def is_restarted(pod):
    return "kubectl.kubernetes.io/restartedAt" in pod["metadata"].get("annotations", {})


async def test_a_deployment_from_before_the_webhook_is_restarted_without_a_storm(deployed):
    """The ReplicaSet that its controller makes keeps the template that it was made with."""
    async with controlled(deployed):
        await deployed.ada.ask("POST", path_of("Deployment", "team"), workload("Deployment"))
        await until_pods(deployed, 2)
        async with deployed.running():
            await restarted(deployed, "Deployment")
            await until_pods(deployed, 2, is_restarted)
            sets = await made_of(deployed, "ReplicaSet")
            assert len(sets) == 2
            for made in sets:
                assert USER_INFO not in made["spec"]["template"]["metadata"].get("annotations", {})
            owner = await deployed.get(path_of("Deployment", "team", "w"))
            assert "collisionCount" not in owner["status"]
            for pod in await made_of(deployed, "Pod"):
                assert pod["spec"]["schedulerName"] == "yunikorn"


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_what_somebody_submits_is_noted_and_what_controllers_make_of_it_says_the_same(
    deployed, kind
):
    async with controlled(deployed) as muster, deployed.running():
        await deployed.ada.ask("POST", path_of(kind, "team"), workload(kind))
        if kind == "CronJob":
            await muster.manager.fire("team", "w")
        pods = await until_pods(deployed, WORKLOADS[kind][1])
        made = [await deployed.get(path_of(kind, "team", "w")), *pods]
        templates = [template_of(made[0], kind), *pods]
        for middle in {"Deployment": ["ReplicaSet"], "CronJob": ["Job"]}.get(kind, ()):
            (between,) = await made_of(deployed, middle)
            templates.append(template_of(between, middle))
        for each in templates:
            assert json.loads(each["metadata"]["annotations"][USER_INFO])["user"] == "ada"
        assert not muster.manager.failures


@pytest.mark.parametrize("kind", [kind for kind in WORKLOADS if kind != "Job"])  # it never changes
async def test_a_workload_from_before_the_webhook_is_changed_and_made_of_no_more_than_before(
    deployed, kind
):
    """Nothing that a controller makes is written into, and its pods are Muster's all the same."""
    count = WORKLOADS[kind][1]
    async with controlled(deployed) as muster:
        await deployed.ada.ask("POST", path_of(kind, "team"), workload(kind))
        if kind != "CronJob":
            await until_pods(deployed, count)
        async with deployed.running():
            if kind == "CronJob":
                made = await muster.manager.fire("team", "w")
                assert "annotations" not in made["spec"]["template"]["metadata"]
            else:
                await restarted(deployed, kind)
            are_new = (lambda _: True) if kind == "CronJob" else is_restarted
            for pod in await until_pods(deployed, count, are_new):
                assert pod["spec"]["schedulerName"] == "yunikorn"


async def test_without_an_answer_pods_pass_or_wait_as_failure_policy_says(deployed):
    async with deployed.running():
        pass  # whom to believe is known
    status, pod = await deployed.ada.pod("p")
    assert (status, pod["spec"]["schedulerName"]) == (201, "default-scheduler")
    configuration = await deployed.get(MUTATING)
    for webhook in configuration["webhooks"]:
        webhook["failurePolicy"] = "Fail"
    await deployed.client.request("PUT", MUTATING, configuration)
    status, said = await deployed.ada.pod("q")
    assert status == 500
    assert "failed calling webhook" in said["message"]


async def test_what_is_no_review_is_told_apart_from_a_verdict(deployed):
    async with deployed.running(), aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{deployed.port}"
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        for body in (b"", b"{", b"[]", b"{}", b"[" * 100_000, b'{"request":{}}'):
            async with session.post(f"{url}/mutate", data=body, ssl=False) as answer:
                assert answer.status == 400
        wrong = [{**review, "request": {"uid": 1}}, {**review, "apiVersion": "v1beta1"},
                 {**review, "request": {"uid": "1", "kind": {"kind": "Pod"}, "operation": "CREATE"}}]  # fmt: skip
        for body in wrong:
            async with session.post(f"{url}/mutate", json=body, ssl=False) as answer:
                assert answer.status == 400
        large = io.BytesIO(b"x" * (MAX_REVIEW + 1))
        async with session.post(f"{url}/mutate", data=large, ssl=False) as answer:
            assert answer.status == 413
        async with session.get(f"{url}/mutate", ssl=False) as answer:
            assert answer.status == 405
        deployed.double.fault(method="GET", path="/namespaces/unheard$", code=500, times=9)
        asked = {"uid": "1", "namespace": "unheard"}
        async with session.post(
            f"{url}/mutate", json={**review, "request": asked}, ssl=False
        ) as answer:
            assert answer.status == 503


async def test_it_is_a_program_that_ends_when_it_is_told(deployed, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key[:7] != "MUSTER_"}
    environment |= {
        "MUSTER_KUBERNETES_URL": deployed.double.url, "MUSTER_KUBERNETES_NAMESPACE": OURS,
        "MUSTER_ADMISSION_HOST": "127.0.0.1", "MUSTER_ADMISSION_PORT": str(deployed.port),
        "MUSTER_HEALTH_PORT": str(free_port()),
    }  # fmt: skip
    command = (sys.executable, "-m", "services.shim_adapter.admission")
    process = await asyncio.create_subprocess_exec(*command, env=environment, cwd=ROOT)
    try:
        health = f"http://127.0.0.1:{environment['MUSTER_HEALTH_PORT']}/health/ready"

        async def is_ready():
            try:
                async with aiohttp.ClientSession() as session, session.get(health) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await until(is_ready, "it is ready")
        await until(deployed.is_answering, "it answers")
        _, pod = await deployed.ada.pod("p")
        assert pod["spec"]["schedulerName"] == "yunikorn"
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    wrong = environment | {"MUSTER_ADMISSION_PORT": "many"}
    process = await asyncio.create_subprocess_exec(*command, env=wrong, cwd=ROOT)
    assert await process.wait() == EXIT_CONFIGURATION


# --- certificates -----------------------------------------------------------------------------------

NAMES = names_of(OURS, "admission")
START = datetime(2026, 1, 1, tzinfo=UTC)


def test_certificates_are_due_when_a_third_is_left_or_they_do_not_fit():
    made = renewed(None, NAMES, START)
    assert not is_due(made, NAMES, START)
    assert not is_due(made, NAMES, START + LIFETIME * 0.6)
    assert is_due(made, NAMES, START + LIFETIME * 0.7)
    assert is_due(made, NAMES, START - timedelta(days=1))  # not yet: a clock was wrong
    assert is_due(made, [*NAMES, "another.svc"], START)
    more = [*NAMES, "10.0.0.7", "webhook.example"]
    assert not is_due(renewed(None, more, START), more, START)
    other = renewed(None, NAMES, START)
    assert is_due(None, NAMES, START)
    for broken in (
        Certificates(other.authorities, made.certificate, made.key),
        Certificates(made.authorities, made.certificate, other.key),
        Certificates(b"", made.certificate, made.key),
        Certificates(made.authorities, b"x", made.key),
    ):
        assert is_due(broken, NAMES, START)


def test_the_authority_before_is_believed_until_it_has_run_out_and_none_before_that():
    first = renewed(None, NAMES, START)
    second = renewed(first, NAMES, START + LIFETIME * 0.7)
    third = renewed(second, NAMES, START + LIFETIME * 0.8)
    late = renewed(first, NAMES, START + LIFETIME * 2)
    counts = [
        len(x509.load_pem_x509_certificates(item.authorities))
        for item in (first, second, third, late)
    ]
    assert counts == [1, 2, 2, 1]
    assert second.authorities.endswith(first.authorities)
    assert third.authorities.endswith(second.authorities[: -len(first.authorities)])
    assert b"PRIVATE" not in first.authorities + first.certificate  # the authority's key is gone


class Clock:
    def __init__(self):
        self.now = datetime.now(UTC)

    def __call__(self):
        return self.now


async def test_a_new_certificate_is_believed_before_anybody_answers_with_it(deployed):
    """Two replicas: one makes new ones, both go over to them, and each is believed at every moment."""
    clock = Clock()
    clients = [ApiClient(deployed.access, AGENT) for _ in range(2)]
    one, two = (Keeper(client, now=clock, settle_seconds=0) for client in clients)

    async def bundles():
        found = [await deployed.get(MUTATING), await deployed.get(MUTATING.replace("mut", "valid"))]
        return {
            base64.b64decode(item["clientConfig"]["caBundle"])
            for configuration in found
            for item in configuration["webhooks"]
        }

    try:
        await one.renew_if_due()
        await two.renew_if_due()
        assert one.in_use == two.in_use == _stored(await deployed.get(SECRET))
        first = one.in_use
        assert await bundles() == {first.authorities}
        writes = deployed.double.requests.get("PUT secrets", 0)
        await one.renew_if_due()
        assert (writes, deployed.double.requests["PUT secrets"]) == (1, 1)
        clock.now += LIFETIME * 0.7
        await one.renew_if_due()
        assert one.in_use != first
        (believed,) = await bundles()
        assert believed == one.in_use.authorities
        assert believed.endswith(two.in_use.authorities)  # who answers as before is believed still
        await two.renew_if_due()
        assert two.in_use == one.in_use
        assert deployed.double.requests["PUT secrets"] == 2
    finally:
        for client in clients:
            await client.close()


async def test_a_certificate_is_not_used_while_it_could_not_be_had_believed(deployed):
    client = ApiClient(deployed.access, AGENT)
    keeper = Keeper(client, settle_seconds=0)
    try:
        deployed.double.fault(method="PUT", path="validatingwebhook", code=500, times=1)
        with pytest.raises(ApiServerError):
            await keeper.renew_if_due()
        assert keeper.in_use is None
        assert not keeper.is_ready.is_set()
        await keeper.renew_if_due()
        assert keeper.is_ready.is_set()
        deployed.double.store.compact()
        path = "/api/v1/namespaces/muster/secrets/admission-certificates"
        secret = await deployed.get(path)
        secret["data"]["tls.key"] = "bm9uc2Vuc2U="  # somebody has laid hands on it
        await deployed.client.request("PUT", path, secret)
        before = keeper.in_use
        await keeper.renew_if_due()
        assert keeper.in_use != before
    finally:
        await client.close()
