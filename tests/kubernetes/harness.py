"""All four services in this process over an API server, and the kubelets that a double lacks."""

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Self

from services.cli.launcher import LocalCluster
from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiClient,
    ApiServerError,
)
from services.shim_adapter.backends.kubernetes.reflector import DELETED, Reflector, Source
from services.shim_adapter.kubernetes_service import KubernetesService
from services.shim_adapter.mirror.calls import PodBound
from shared.bus.base import Bus
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.tracked import TrackedBus, Traffic
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.host import HostOptions
from tests.patience import until

AGAIN_SECONDS = 0.1
BEAT_SECONDS = 10.0  # as kubelets renew their leases
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
TEST_LABEL = "muster.io/test-node"
_MORE_THAN_THERE_ARE = 1_000  # pods that must be available: none may go


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Muster:
    """The services, with the Kubernetes backend, against an API server."""

    def __init__(
        self,
        access: Access,
        clock: Clock | None = None,
        traffic: Traffic | None = None,
        options: HostOptions | None = None,
    ) -> None:
        self.access = access
        self.broker = MemoryBroker()
        self.clock = clock or SystemClock()
        self._traffic = traffic
        self._options = options or HostOptions()
        self.cluster = self._make()
        self._running: asyncio.Task[None] | None = None
        self._counted: list[object] = []

    def _make(self) -> LocalCluster:
        self.kubernetes = self._make_kubernetes()
        return LocalCluster(
            self._make_bus, self.clock, host_options=self._options, kubernetes=self.kubernetes
        )

    def _make_kubernetes(self) -> KubernetesService:
        return KubernetesService(self.access, instance="shim-test", clock=self.clock)

    def _make_bus(self) -> Bus:
        bus = MemoryBus(self.broker)
        return bus if self._traffic is None else TrackedBus(bus, self._traffic)

    async def __aenter__(self) -> Self:
        await self.cluster.start()
        self._beside()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop_beside()
        await self.cluster.stop()

    def _beside(self) -> None:
        running = self.kubernetes.run(lambda: self.cluster.host_of("shim_adapter"))
        self._running = asyncio.create_task(running)

    async def _stop_beside(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    async def kill_shim(self) -> None:
        """Kill the shim adapter and all it knows, and start another."""
        await self.cluster.crash("shim_adapter")
        await self._stop_beside()
        self.kubernetes = self.cluster.kubernetes = self._make_kubernetes()
        await self.cluster.start_service("shim_adapter")
        self._beside()

    async def kill_core(self) -> None:
        """Kill the core, and start another."""
        await self.cluster.crash("core")
        await self.cluster.start_service("core")

    @property
    def world(self):
        return self.kubernetes.session.cluster.world

    @property
    def model(self):
        return self.cluster.api.partitions.default.model

    def count_binds(self) -> None:
        """Count from now on what is bound, as the resource manager confirms it."""
        self.bound = 0
        mirror = self.cluster.shim_machine.mirror
        if mirror in self._counted:
            return
        self._counted.append(mirror)
        hear = mirror._reports[PodBound]

        def counted(news) -> None:
            self.bound += 1
            hear(news)

        mirror._reports[PodBound] = counted

    def is_ready(self) -> bool:
        return self.kubernetes.session.cluster.is_ready and self.cluster.core.is_synced


class Kubectl:
    """What people and controllers do."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.nodes: dict[str, None] = {}  # that were made here: they have no kubelet but ours

    async def pod(self, body: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
        return await self.client.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)

    async def node(self, name: str, labels: dict | None = None, **allocatable: str) -> None:
        """Add a node, ready from the start."""
        self.nodes[name] = None
        body = {"metadata": {"name": name, "labels": {TEST_LABEL: "true", **(labels or {})}}}
        await self.client.request("POST", "/api/v1/nodes", body)
        path = f"/api/v1/nodes/{name}"
        now = _now()
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}
        await self.client.request(
            "PATCH", f"{path}/status", {"status": status}, content_type=STRATEGIC_PATCH
        )
        await self.patch(path, {"spec": {"taints": None}})

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.client.request("PATCH", path, body, content_type=MERGE_PATCH)

    async def get(self, path: str) -> dict[str, Any]:
        return await self.client.request("GET", path)

    async def pods(self, namespace: str = "default") -> dict[str, dict[str, Any]]:
        answer = await self.client.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        return {item["metadata"]["name"]: item for item in answer["items"]}

    async def delete(self, name: str, namespace: str = "default", **options: Any) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        await self.client.request("DELETE", path, options or None)

    async def quota(self, name: str, namespace: str = "default", *, pods: int) -> None:
        """Add a quota of pods to a namespace that has none, counted as a controller would."""
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        hard = {"pods": str(pods)}
        await self.client.request(
            "POST", path, {"metadata": {"name": name}, "spec": {"hard": hard}}
        )
        status = {"status": {"hard": hard, "used": {"pods": "0"}}}
        await self.client.request(
            "PATCH", f"{path}/{name}/status", status, content_type=MERGE_PATCH
        )

    async def budget(self, name: str, labels: dict[str, str], *, allowed: int) -> None:
        """Add a disruption budget, or let one allow so many disruptions from now on.

        The status says so, and the spec is such that a disruption controller finds the same.
        """
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        healthy = [
            pod
            for pod in (await self.pods()).values()
            if labels.items() <= pod["metadata"].get("labels", {}).items()
            and pod["status"]["phase"] == "Running"
        ]
        least = max(0, len(healthy) - allowed) if allowed else _MORE_THAN_THERE_ARE
        spec = {"selector": {"matchLabels": labels}, "minAvailable": least}
        try:
            await self.client.request("POST", path, {"metadata": {"name": name}, "spec": spec})
        except ApiServerError:
            await self.patch(f"{path}/{name}", {"spec": spec})
        generation = (await self.get(f"{path}/{name}"))["metadata"]["generation"]
        status = {
            "disruptionsAllowed": allowed, "currentHealthy": 9, "desiredHealthy": 1,
            "expectedPods": 9, "observedGeneration": generation,
        }  # fmt: skip
        await self.patch(f"{path}/{name}/status", {"status": status})

    async def events(self, namespace: str = "default") -> list[dict[str, Any]]:
        """Return every event."""
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        return list((await self.client.request("GET", path))["items"])

    async def config(self, queues: str, namespace: str = "default", **more: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        body = {"metadata": {"name": "yunikorn-configs"}, "data": {"queues.yaml": queues, **more}}
        try:
            await self.client.request("POST", path, body)
        except ApiServerError:
            await self.client.request("PUT", f"{path}/yunikorn-configs", body)


class Kubelets:
    """The kubelets of the nodes that were made here: start what is bound, remove what is deleted.

    They renew their nodes' leases: a node controller, where there is one, lets none go after 40 s.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        client = self._client = kubectl.client
        self._reflector = Reflector(client, Source("kubelet", "/api/v1/pods"), self._on_pod)
        self.nodes_of: dict[str, dict[str, None]] = {}  # by pod uid: every node that it ever had
        self.ran: dict[str, str] = {}  # by name, the node
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(job) for job in (self._reflector.run(), self._beat())]
        await self._reflector.is_listed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            for node in list(self._kubectl.nodes):
                with suppress(ApiServerError):  # away: the next time
                    await self._renew(node)
            await asyncio.sleep(BEAT_SECONDS)

    async def _renew(self, node: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            await self._kubectl.patch(f"{_NODE_LEASES}/{node}", {"spec": spec})
        except ApiServerError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            body = {"metadata": {"name": node}, "spec": spec}
            await self._client.request("POST", _NODE_LEASES, body)

    async def _on_pod(self, change: str, pod: dict[str, Any]) -> None:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        node = spec.get("nodeName")
        if change == DELETED or node not in self._kubectl.nodes:
            return None
        self.nodes_of.setdefault(metadata["uid"], {})[node] = None
        while True:
            try:
                return await self._attend(pod, node)
            except ApiServerError as error:
                if not error.is_transient:
                    return None  # it has gone meanwhile
                await asyncio.sleep(AGAIN_SECONDS)

    async def _attend(self, pod: dict[str, Any], node: str) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if metadata.get("deletionTimestamp"):
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            await self._client.request("DELETE", path, body)
        elif (pod.get("status") or {}).get("phase", "Pending") == "Pending":
            self.ran[metadata["name"]] = node
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": _now()}
            running = {"phase": "Running", "conditions": [ready]}  # ready: healthy for budgets
            status = {"metadata": {"uid": metadata["uid"]}, "status": running}
            await self._client.request(
                "PATCH", f"{path}/status", status, content_type=STRATEGIC_PATCH
            )


@asynccontextmanager
async def muster_over(access: Access, kubectl: Kubectl, **more: Any):
    """Give the running services, ready, with the kubelets and kubectl beside them."""
    async with Kubelets(kubectl) as kubelets, Muster(access, **more) as running:
        running.kubelets, running.kubectl = kubelets, kubectl
        await until(running.is_ready, "the first sync")
        yield running
