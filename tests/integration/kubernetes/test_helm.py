"""helm installs, upgrades, rolls back and removes the chart: helm 3 and 4, on the double and on a real one.

helm 3 works its patches out itself, helm 4 applies on the server; so the double is the oldest version for
the one and the newest for the other, with that version's schemas.
"""

import asyncio
import base64
import os
import subprocess
import tempfile
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import yaml

from services.cli.secrets_made import kubernetes_secrets
from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH, ApiServerError
from tests.integration.kubernetes.conftest import REAL
from tests.integration.kubernetes.test_backend import member
from tests.kubernetes.chart import CHART, helm, rendered, run_helm
from tests.kubernetes.double import Double
from tests.kubernetes.harness import Access, ApiClient, Kubectl, muster_over
from tests.kubernetes.real import cordon, empty
from tests.kubernetes.rights import granted
from tests.kubernetes.tools import NEW, OLD, program
from tests.kubernetes.versions import NEWEST, OLDEST, built_in, is_cluster_wide
from tests.patience import until

PATHS = {
    (version, kind): plural
    for version, kinds in built_in(OLDEST).items()
    for plural, kind in kinds.items()
}
# What a real cluster has and makes of its own; then what its controllers make of what is installed.
BY_ITSELF = {"Event", "Node", "CSINode", "APIService", "FlowSchema", "PriorityLevelConfiguration"}
OF_CONTROLLERS = BY_ITSELF | {
    "ControllerRevision", "Endpoints", "EndpointSlice", "Lease", "PersistentVolume",
    "PersistentVolumeClaim", "Pod", "ReplicaSet",
}  # fmt: skip
SINCE = ((27, "StatefulSet", "persistentVolumeClaimRetentionPolicy"),)
OF_A_NAMESPACE = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
BASE = CHART.parent / "kubernetes"
QUEUES = "partitions: [{name: default, queues: [{name: root, queues: [{name: mine}]}]}]"


@dataclass
class Cluster:
    """An API server, and helm's words for it; ``namespace`` is the release's, and new."""

    access: Access
    client: ApiClient
    kubectl: Kubectl
    version: str
    namespace: str
    double: Double | None = None

    async def helm(self, *words, values=None, namespace=None, version=None):
        """Return what helm says; its failure is the test's."""
        words = (*words, *self._where(namespace or self.namespace))
        return await asyncio.to_thread(helm, *words, values=values, version=version or self.version)

    async def refused(self, *words, values=None, namespace=None):
        """Return why helm fails."""
        words = (*words, *self._where(namespace or self.namespace))
        done = await asyncio.to_thread(run_helm, *words, values=values, version=self.version)
        assert done.returncode
        return done.stderr

    def _where(self, namespace):
        if os.environ.get("KUBECONFIG") and self.double is None:
            return ("--namespace", namespace, "--kubeconfig", os.environ["KUBECONFIG"])
        of_token = ("--kube-token", self.access.token, "--kube-insecure-skip-tls-verify")
        return (
            "--namespace", namespace, "--kube-apiserver", self.access.url,
            *(of_token if self.access.token else ()),
        )  # fmt: skip

    async def install(self, namespace=None, **values):
        words = ("install", "muster", str(CHART), "--create-namespace")
        return await self.helm(*words, values=values, namespace=namespace)

    async def upgrade(self, **values):
        words = ("upgrade", "muster", str(CHART), "--reset-then-reuse-values")
        return await self.helm(*words, values=values)

    def path(self, api_version, kind, namespace=None):
        """Return the path of a kind's list, and whether it is in the namespace."""
        plural = PATHS[api_version, kind]
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if is_cluster_wide(plural):
            return f"{root}/{plural}"
        return f"{root}/namespaces/{namespace or self.namespace}/{plural}"

    async def get(self, api_version, kind, name):
        return await self.client.request("GET", f"{self.path(api_version, kind)}/{name}")

    async def everything(self, besides=OF_CONTROLLERS):
        """Return every object of the namespace and of none, by kind and name, but helm's records.

        Of all kinds that the server says it has; ``besides`` are those that are not looked at.
        """
        found = {}
        for version, kind in await self._kinds():
            if kind["kind"] in besides:
                continue
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            within = f"namespaces/{self.namespace}/" if kind["namespaced"] else ""
            answer = await self.client.request("GET", f"{root}/{within}{kind['name']}")
            for item in answer["items"]:
                name = item["metadata"]["name"]
                if (
                    not name.startswith("sh.helm.release.")
                    and (kind["kind"], name) not in OF_A_NAMESPACE
                ):
                    # which a list's items do not say themselves
                    found[kind["kind"], name] = {
                        **item,
                        "apiVersion": version,
                        "kind": kind["kind"],
                    }
        found.pop(("Namespace", self.namespace), None)
        return found

    async def _kinds(self):
        """Return every kind that can be listed, with its version: the preferred one of its group."""
        groups = (await self.client.request("GET", "/apis"))["groups"]
        versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
        found = []
        for version in versions:
            path = f"/apis/{version}" if "/" in version else f"/api/{version}"
            resources = (await self.client.request("GET", path))["resources"]
            found += [(version, kind) for kind in resources if "list" in kind["verbs"]]
        return found

    async def drop_unknown(self, items):
        """Drop of what is rendered what the server does not know, or has off by default."""
        found = await self.client.request("GET", "/version")
        for minor, kind, field in SINCE:
            if int(found["minor"].rstrip("+")) < minor:
                for item in items:
                    if item["kind"] == kind:
                        item["spec"].pop(field, None)

    async def is_as_before(self, before):
        """Wait until there is nothing but what was there before, nor anything that controllers made."""

        async def is_gone():
            return set(await self.everything(besides=BY_ITSELF)) == before

        await until(is_gone, "nothing is left", pause=0.2)


@asynccontextmanager
async def on_the_double(version, kubernetes):
    double = Double(bookmark_seconds=0.2, version=kubernetes, by_schemas=True)
    await double.start()
    access = Access(double.url)
    client = ApiClient(access, "tests")
    await client.request("POST", "/api/v1/namespaces", a_namespace("default"))
    yield Cluster(access, client, Kubectl(client), version, "muster", double)
    await client.close()
    await double.stop()


def a_namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


PAIRS = {"helm3": (OLD, OLDEST), "helm4": (NEW, NEWEST)}


@pytest.fixture(
    params=[*PAIRS, *(pytest.param(f"real-{name}", marks=REAL.marks) for name in PAIRS)]
)
async def cluster(request):
    version, kubernetes = PAIRS[request.param.removeprefix("real-")]
    program("helm", version)
    if not request.param.startswith("real"):
        async with on_the_double(version, kubernetes) as found:
            yield found
        return
    access = request.getfixturevalue("real")
    if not access.token and not os.environ.get("KUBECONFIG"):
        pytest.skip("helm reaches the API server of KUBECONFIG or KUBEBUILDER_ASSETS only")
    client = ApiClient(access, "tests")
    await cordon(client)
    await empty(client)
    found = Cluster(access, client, Kubectl(client), version, f"muster-{uuid.uuid4().hex[:8]}")
    yield found
    await asyncio.to_thread(run_helm, "uninstall", "muster", *found._where(found.namespace))
    await client.request("DELETE", f"/api/v1/namespaces/{found.namespace}")
    await empty(client)
    await client.close()


def covers(there, said):
    """Return whether what is there has everything that was said; lists item by item."""
    if isinstance(said, dict):
        return isinstance(there, dict) and all(
            covers(there.get(key), value) for key, value in said.items() if value is not None
        )
    if isinstance(said, list):
        return len(there or ()) == len(said) and all(map(covers, there or (), said))
    return there == said


async def check(cluster, before, values):
    """What is there is what the chart renders with these values, beside what was there before."""
    wanted = {
        (item["kind"], item["metadata"]["name"]): item
        for item in await asyncio.to_thread(rendered, values, cluster.namespace, cluster.version)
        if item["kind"] != "Lease"
    }
    await cluster.drop_unknown(wanted.values())
    there = await cluster.everything()
    assert set(there) - set(before) == set(wanted)
    for key, item in wanted.items():
        if key[0] != "Secret":  # new at every rendering
            assert covers(there[key], item), key
    return there


def secrets_of(there):
    """Return what the Secrets of the chart hold."""
    return {name: item.get("data") for (kind, name), item in there.items() if kind == "Secret"}


async def test_it_is_installed_changed_taken_back_and_removed_and_nothing_is_left(cluster):
    before = await cluster.everything()
    at_first = set(await cluster.everything(besides=BY_ITSELF))
    said = await cluster.install()
    assert "deployment/shim-adapter" in said
    installed = await check(cluster, before, {})
    secrets = secrets_of(installed)
    assert len({secrets[f"bus-{name}"]["password"] for name in ("core", "api", "timers")}) == 3

    bears = [{"key": "infra", "operator": "Exists"}]
    core = {"replicas": 3, "tolerations": bears, "nodeSelector": {"disk": "ssd"}}
    env = [{"name": "MUSTER_LOG_LEVEL", "value": "debug"}]
    values = {
        "core": core,
        "api": {"env": env, "tag": "0.0.9"},
        "queues": QUEUES,
        "config": {"log.level": "DEBUG"},
        "admission": {"enabled": True},
        "networkPolicy": {"enabled": False},
    }
    await cluster.upgrade(**values)
    there = await check(cluster, before, values)
    assert secrets_of(there).items() >= secrets.items()  # and the webhook's, which is empty
    values = {**values, "core": {"replicas": 2, "tolerations": []}, "config": {"x.y": "z"}}
    await cluster.helm("upgrade", "muster", str(CHART), values=values)
    there = await check(cluster, before, values)
    pod = there["Deployment", "core"]["spec"]["template"]["spec"]
    assert not {"tolerations", "nodeSelector"} & set(pod)
    assert "log.level" not in there["ConfigMap", "yunikorn-configs"]["data"]

    await cluster.helm("rollback", "muster", "1")
    there = await check(cluster, before, {})
    assert secrets_of(there) == secrets
    await cluster.helm("uninstall", "muster")
    await cluster.is_as_before(at_first)


@pytest.mark.long
async def test_an_upgrade_leaves_what_the_services_and_the_people_wrote(cluster):
    """The webhook's certificates and authority, the Lease's turn, queues and tokens edited in place."""
    await cluster.install(admission={"enabled": True})
    edits = {
        ("v1", "ConfigMap", "yunikorn-configs"): {"data": {"queues.yaml": QUEUES, "a.b": "c"}},
        ("v1", "Secret", "api-tokens"): {"data": {"tokens": b64("ada operate 0\n")}},
        ("v1", "Secret", "admission-certificates"): {"data": {"tls.key": b64("a key")}},
        ("coordination.k8s.io/v1", "Lease", "muster-shim-adapter"): {
            "metadata": {"annotations": {"muster.io/queues": "x"}},
            "spec": {"holderIdentity": "shim", "leaseTransitions": 7},
        },
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            f"{cluster.namespace}-admission",
        ): {
            "webhooks": [
                {
                    "name": "pods.admission.muster.io",
                    "clientConfig": {"caBundle": b64("an authority")},
                }
            ]
        },
    }
    for (api_version, kind, name), edit in edits.items():
        path = f"{cluster.path(api_version, kind)}/{name}"
        await cluster.client.request("PATCH", path, edit, content_type=STRATEGIC_PATCH)
    for values in ({"core": {"replicas": 3}}, {"api": {"replicas": 3}}):
        await cluster.upgrade(**values)
        for (api_version, kind, name), edit in edits.items():
            found = await cluster.get(api_version, kind, name)
            if kind == "MutatingWebhookConfiguration":
                found = {
                    "webhooks": [w for w in found["webhooks"] if w["name"].startswith("pods.")]
                }
                assert len(found["webhooks"][0]["rules"]) == 1
            assert covers(found, edit), name
    assert (await cluster.get("apps/v1", "Deployment", "core"))["spec"]["replicas"] == 3


def b64(text):
    return base64.b64encode(text.encode()).decode()


@pytest.mark.long
async def test_what_cannot_be_changed_is_refused_with_its_name_and_the_next_upgrade_goes(cluster):
    await cluster.install()
    words = ("upgrade", "muster", str(CHART))
    said = await cluster.refused(*words, values={"rabbitmq": {"storage": "9Gi"}})
    assert 'StatefulSet.apps "rabbitmq" is invalid' in said
    assert "Forbidden" in said
    broker = await cluster.get("apps/v1", "StatefulSet", "rabbitmq")
    (claim,) = broker["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "4Gi"
    assert broker["metadata"]["generation"] == 1
    await cluster.upgrade(rabbitmq={"storage": "4Gi"}, core={"replicas": 3})
    assert (await cluster.get("apps/v1", "Deployment", "core"))["spec"]["replicas"] == 3


STEPS = (  # of docs/kubernetes.md, which says what is new after each
    ({"timers.tag": "OLD", "core.tag": "OLD", "shimAdapter.tag": "OLD"}, ["api"]),
    ({"timers.tag": ""}, ["timers"]),
    ({"core.tag": ""}, ["core"]),
    ({"shimAdapter.tag": ""}, ["shim-adapter"]),
)


@pytest.mark.long
async def test_an_upgrade_goes_one_service_after_another_as_the_page_says(cluster):
    page = (CHART.parents[1] / "docs/kubernetes.md").read_text()
    await cluster.install(image={"tag": "OLD"})
    new = []
    for at, (values, then) in enumerate(STEPS):
        words = ",".join(f"{key}={value}" for key, value in values.items())
        assert f"$UPGRADE --set {words} " in page
        image = ("--set", "image.tag=NEW") if at == 0 else ()
        upgrade = ("upgrade", "muster", str(CHART), "--reset-then-reuse-values")
        await cluster.helm(*upgrade, "--set", words, *image)
        new += then
        there = await cluster.everything()
        images = {
            name: item["spec"]["template"]["spec"]["containers"][0]["image"]
            for (kind, name), item in there.items()
            if kind == "Deployment"
        }
        assert {name for name, image in images.items() if image == "muster:NEW"} == set(new)
        assert {name for name, image in images.items() if image == "muster:OLD"} == set(
            images
        ) - set(new)


@pytest.mark.long
async def test_two_releases_are_in_two_namespaces_and_never_in_one(cluster):
    await cluster.install(admission={"enabled": True})
    other = f"{cluster.namespace}-2"
    await cluster.install(namespace=other, admission={"enabled": True})
    words = ("install", "second", str(CHART))
    said = await cluster.refused(*words)
    assert 'must equal "second": current value is "muster"' in said
    await cluster.helm("uninstall", "muster", namespace=other)
    for name in ("shim-adapter", "admission"):
        await cluster.get(
            "rbac.authorization.k8s.io/v1", "ClusterRole", f"{cluster.namespace}-{name}"
        )
        with pytest.raises(ApiServerError) as gone:
            await cluster.get("rbac.authorization.k8s.io/v1", "ClusterRole", f"{other}-{name}")
        assert gone.value.code == 404
    await cluster.client.request("DELETE", f"/api/v1/namespaces/{other}")


@pytest.mark.long
async def test_a_rollback_takes_nothing_back_unseen_that_was_edited_since(cluster):
    """As docs/kubernetes.md says it: helm 3 has the tokens of then, helm 4 refuses until it is forced."""
    await cluster.install()
    path = f"{cluster.path('v1', 'Secret')}/api-tokens"
    of_then = (await cluster.client.request("GET", path))["data"]["tokens"]
    await cluster.upgrade(core={"replicas": 3})
    edit = {"data": {"tokens": b64("ada operate 0\n")}}
    await cluster.client.request("PATCH", path, edit, content_type=STRATEGIC_PATCH)
    if cluster.version == NEW:
        said = await cluster.refused("rollback", "muster", "1")
        assert 'conflict with "' in said
        assert ".data.tokens" in said
        assert (await cluster.client.request("GET", path))["data"]["tokens"] != of_then
        await cluster.helm("rollback", "muster", "1", "--force-conflicts")
    else:
        await cluster.helm("rollback", "muster", "1")
    assert (await cluster.client.request("GET", path))["data"]["tokens"] == of_then
    assert (await cluster.get("apps/v1", "Deployment", "core"))["spec"]["replicas"] == 2


async def test_a_gang_runs_with_the_rights_of_the_chart_alone(cluster):
    await cluster.install()
    path = f"{cluster.path('v1', 'ServiceAccount')}/shim-adapter/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await cluster.client.request("POST", path, body))["status"]["token"]
    mine = Access(cluster.access.url, cluster.namespace, cluster.access.tls, token)
    await cluster.kubectl.node("n1", cpu="8", memory="8Gi", pods="20")
    async with muster_over(mine, cluster.kubectl) as muster:
        for at in range(3):
            await cluster.kubectl.pod(member(f"m{at}", "gang"))
        await until(lambda: all(f"m{at}" in muster.kubelets.ran for at in range(3)), "the gang")
    lease = await cluster.get("coordination.k8s.io/v1", "Lease", "muster-shim-adapter")
    assert lease["spec"]
    if cluster.double is not None:
        used = cluster.double.uses["muster"]
        assert used <= granted()
        assert {("create", "", "pods/binding", ""), ("watch", "", "nodes", "")} <= used
        for role in ("clusterroles", "roles"):  # without them nothing is granted
            for item in list(
                cluster.double.store.all(f"{role}.rbac.authorization.k8s.io").values()
            ):
                cluster.double.store.delete(f"{role}.rbac.authorization.k8s.io", item)
        stranger = ApiClient(mine, "muster")
        with pytest.raises(ApiServerError):
            await stranger.request("GET", "/api/v1/nodes")
        await stranger.close()


async def kubectl(cluster, *words, given=None):
    """Return what kubectl says. Its failure is the test's."""
    command = [program("kubectl", cluster.version), "--server", cluster.access.url, *words]

    def run():
        with tempfile.TemporaryDirectory() as home:
            return subprocess.run(
                command, input=given, capture_output=True, text=True, check=False, timeout=120,
                env={"HOME": home, "KUBECONFIG": f"{home}/none"},
            )  # fmt: skip

    done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stderr
    assert "unknown field" not in done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["by-itself", "server-side"])
async def test_kubectl_applies_the_base_and_the_webhook_again_and_again_and_deletes_them(pair, how):
    program("kubectl", pair[0])
    folders = [str(BASE), str(BASE / "admission")]
    async with on_the_double(*pair) as cluster:
        before = await cluster.everything()
        said = [await kubectl(cluster, "apply", "--dry-run=client", "-k", each) for each in folders]
        assert "deployment.apps/core created (dry run)" in said[0]
        assert set(await cluster.everything()) == set(before)
        for each in folders:
            await kubectl(cluster, "apply", *how, "-k", each)
        secrets = yaml.safe_dump_all(kubernetes_secrets("muster"))
        await kubectl(cluster, "--namespace=muster", "create", "-f", "-", given=secrets)
        there = await cluster.everything()
        for each in folders:
            await kubectl(cluster, "apply", *how, "-k", each)
        again = await cluster.everything()
        versions = [
            {key: item["metadata"].get("generation") for key, item in found.items()}
            for found in (there, again)
        ]
        assert versions[0] == versions[1]
        for each in folders[::-1]:
            await kubectl(cluster, "delete", "--wait=false", "-k", each)
        left = set(await cluster.everything()) - set(before)
        assert left == {
            ("Secret", item["metadata"]["name"]) for item in kubernetes_secrets("muster")
        }


@pytest.mark.long
async def test_a_release_of_helm_3_goes_on_with_helm_4():
    for version in (OLD, NEW):
        program("helm", version)
    async with on_the_double(OLD, NEWEST) as cluster:
        before = await cluster.everything()
        await cluster.install()
        core = {"replicas": 3, "nodeSelector": {"disk": "ssd"}}
        words = ("upgrade", "muster", str(CHART))
        await cluster.helm(*words, values={"core": core}, version=NEW)
        await check(cluster, before, {"core": core})
        await cluster.helm(
            *words, "--server-side=true", values={"core": {"replicas": 1}}, version=NEW
        )
        there = await check(cluster, before, {"core": {"replicas": 1}})
        assert "nodeSelector" not in there["Deployment", "core"]["spec"]["template"]["spec"]
        await cluster.helm("uninstall", "muster", version=NEW)
        assert set(await cluster.everything()) == set(before)
