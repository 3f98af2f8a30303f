"""A cluster with Muster on it whose time moves when a test says so: manifests in, what is seen out.

Muster's services, the double and the kubelets share a clock that stands still. ``passes`` moves it
from one moment for which something is due to the next, each when nothing is left to do at the one
before; so a timeout of fifteen minutes costs as little as one of a second, and what is not to happen
is looked for at every moment. A real API server has its own clock, which goes on by itself: there
what is made after time was moved looks older by as much.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import quote_plus

import httpx

from services.api.replica import Replica
from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH, ApiServerError
from shared.bus.tracked import Traffic
from shared.model.units import NANOS_PER_SECOND
from shared.runtime.clock import VirtualClock
from shared.runtime.host import HostOptions
from tests.apps import app_of
from tests.kubernetes.harness import Kubectl, Muster, muster_over
from tests.kubernetes.real import empty
from tests.patience import PATIENCE_SECONDS, until

Object = dict[str, Any]
YUNIKORN = "yunikorn.apache.org/"
_QUIET_ROUNDS, _PAUSED = 12, 6  # rounds of the loop; each of which one is a millisecond long
_ROUND_SECONDS = 0.001
_REAL_QUIET_SECONDS = 0.2  # without anything new from an API server elsewhere
_STEP_NS = NANOS_PER_SECOND
_WITHIN_SECONDS = 60.0
BY_TAG = "placementrules: [{name: tag, value: namespace, create: true}]"
OPEN = f"partitions: [{{name: default, {BY_TAG}, queues: [{{name: root, submitacl: '*'}}]}}]"


def pod_body(name: str, app: str, *, cpu: str = "10m", memory: str = "20M", **more: Any) -> Object:
    """Return a pod of an application; ``more`` is what else its spec, or its metadata, says."""
    requests = {"cpu": cpu, "memory": memory, **more.pop("resources", {})}
    limits = {kind: requests[kind] for kind in requests if kind.startswith("hugepages-")}
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    labels = {"app": "sleep", "applicationId": app, **more.pop("labels", {})}
    queue = more.pop("queue", "")
    labels |= {"queue": queue} if queue else {}
    metadata = {"name": name, "labels": labels, "annotations": more.pop("annotations", {})}
    metadata |= {key: more.pop(key) for key in ("ownerReferences",) if key in more}
    container = {"name": "sleep", "image": "alpine", "resources": resources}
    spec = {"schedulerName": "yunikorn", "containers": [container], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def task_group(name: str, members: int, **more: Any) -> Object:
    """Return a task group of pods of 10m and 20M."""
    least = {"cpu": "10m", "memory": "20M"}
    return {"name": name, "minMember": members, "minResource": least, **more}


def gang(groups: Iterable[Object], own: str = "", policy: str = "", **more: Any) -> dict[str, str]:
    """Return the annotations that announce groups, of a pod in one of them or (``""``) in none."""
    found = {f"{YUNIKORN}task-groups": json.dumps(list(groups)), **more}
    found |= {f"{YUNIKORN}task-group-name": own} if own else {}
    return found | ({f"{YUNIKORN}schedulingPolicyParameters": policy} if policy else {})


def user_info(user: str, *groups: str) -> dict[str, str]:
    """Return the annotation that says whose a pod is."""
    return {f"{YUNIKORN}user.info": json.dumps({"user": user, "groups": list(groups)})}


class Stack:
    """A cluster under test. ``begin`` starts Muster on it."""

    def __init__(self, server: Any, preset: str) -> None:
        self.server = server
        self.kubectl: Kubectl = server.kubectl
        self.preset = preset
        self.clock = VirtualClock(time.time_ns())
        self.traffic = Traffic()
        self.muster: Muster
        self.http: httpx.AsyncClient
        self._exits = AsyncExitStack()
        self._namespaces: list[str] = []
        if server.double is not None:
            server.double.store.now = self._now_text

    def _now_text(self) -> str:
        moment = datetime.fromtimestamp(self.clock.now_ns() / NANOS_PER_SECOND, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()
        if self.server.double is None:
            for name in self._namespaces:
                await empty(self.server.client, name)
                with suppress(ApiServerError):
                    await self.server.client.request("DELETE", f"/api/v1/namespaces/{name}")

    async def begin(self, queues: str = OPEN, nodes: dict[str, Object] | None = None) -> None:
        """Start Muster with a configuration and nodes (``None``: w1 to w3, large)."""
        await self.configure(queues)
        for name, more in (nodes or {"w1": {}, "w2": {}, "w3": {}}).items():
            await self.node(name, **more)
        options = HostOptions(heartbeat_ns=0)
        running = muster_over(
            self.server.access, self.kubectl,
            clock=self.clock, traffic=self.traffic, options=options,
        )  # fmt: skip
        self.muster = await self._exits.enter_async_context(running)
        cluster = self.muster.cluster
        replica = Replica(lambda: cluster.running["api"].host, lambda: cluster.api)
        app = self._exits.enter_context(app_of(replica))
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://muster")
        self.http = await self._exits.enter_async_context(client)
        await self.settle()

    async def restart(self) -> None:
        """Kill every service at once, and start all of them again."""
        await self.muster.cluster.crash("core")
        await self.muster.kill_shim()
        await self.muster.cluster.start_service("core")
        await until(self.muster.is_ready, "Muster is back")
        await self.settle()

    # --- time ------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until nothing is left to do at this moment."""
        quiet, seen = 0, None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        is_real = self.server.double is None
        while quiet < _QUIET_ROUNDS:
            found = self._what_is_done()
            quiet = quiet + 1 if found == seen else 0
            seen = found
            assert loop.time() < deadline, f"it is never quiet: {found}"
            if is_real:
                await asyncio.sleep(_REAL_QUIET_SECONDS / _QUIET_ROUNDS)
            else:
                await asyncio.sleep(0 if (quiet + 1) % _PAUSED else _ROUND_SECONDS)

    def _what_is_done(self) -> object:
        """Return what differs as long as anything goes on; None is never equal to it."""
        running = self.muster.cluster.running.values()
        if not self.traffic.is_quiet() or not all(one.is_waiting for one in running):
            return object()
        session = self.muster.kubernetes.session
        if session is None or not session.cluster.is_quiet:
            return object()
        store = self.server.double and self.server.double.store.version
        return store, sum(self.traffic.published.values())

    async def passes(self, seconds: float) -> None:
        """Let so much time pass."""
        target_ns = self.clock.now_ns() + round(seconds * NANOS_PER_SECOND)
        await self.settle()
        while self.clock.now_ns() < target_ns:
            await self._step(target_ns)

    async def _step(self, target_ns: int) -> None:
        due_ns = self.clock.next_due_ns()
        self.clock.move_to(target_ns if due_ns is None else min(due_ns, target_ns))
        await self.settle()

    async def until(
        self, holds: Callable[[], Any], what: str, within: float = _WITHIN_SECONDS
    ) -> Any:
        """Let time pass until ``holds()`` does, and return that. It looks each second, at least."""
        target_ns = self.clock.now_ns() + round(within * NANOS_PER_SECOND)
        await self.settle()
        while not (found := await holds()):
            assert self.clock.now_ns() < target_ns, (
                f"{what} did not come to hold within {within:g} s; {await self.told()}"
            )
            await self._step(min(target_ns, self.clock.now_ns() + _STEP_NS))
        return found

    async def stays(self, holds: Callable[[], Any], what: str, seconds: float = 5.0) -> None:
        """Let time pass, for all of which ``holds()`` must."""
        target_ns = self.clock.now_ns() + round(seconds * NANOS_PER_SECOND)
        await self.settle()
        while True:
            assert await holds(), f"{what} held no longer; {await self.told()}"
            if self.clock.now_ns() >= target_ns:
                return
            await self._step(min(target_ns, self.clock.now_ns() + _STEP_NS))

    async def told(self) -> str:
        """Return what a failure shows: pods, applications and what their asks' logs say."""
        pods = {
            f"{namespace}/{name}": f"{pod['status'].get('phase')} {pod['spec'].get('nodeName', '')}"
            for namespace in ("default", *self._namespaces)
            for name, pod in (await self.kubectl.pods(namespace)).items()
        }
        found = []
        for state in ("active", "completed", "rejected"):
            for app in await self.ws(f"partition/default/applications/{state}"):
                logs = [
                    [line["message"] for line in ask.get("allocationLog", ())]
                    for ask in app.get("requests") or ()
                ]
                groups = [tuple(g.values()) for g in app.get("placeholderData") or ()]
                found.append((app["applicationID"], app["queueName"], app["applicationState"],
                              len(app.get("allocations") or ()), groups, logs,
                              app.get("rejectedMessage", "")))  # fmt: skip
        return f"pods {pods}; applications {found}"

    # --- what people do --------------------------------------------------------------------------

    async def configure(self, queues: str, **more: str) -> None:
        """Write the configuration, with the preset that is under test."""
        settings = {"muster.scheduler.preset": self.preset} if self.preset else {}
        settings |= {key.replace("_", "."): text for key, text in more.items()}
        await self.kubectl.config(queues, **settings)

    async def node(self, name: str, **more: Any) -> None:
        """Add a node: 16 cores and 64G, unless it is said otherwise; taints come with it."""
        labels, taints = more.pop("labels", {}), more.pop("taints", None)
        labels = {"kubernetes.io/hostname": name, **labels}
        amounts = {"cpu": "16", "memory": "64G", "pods": "110", **more}
        await self.kubectl.node(name, labels, **amounts)
        if taints:
            await self.kubectl.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})

    async def namespace(self, name: str, **annotations: str) -> str:
        """Make a namespace with YuniKorn's annotations about it, ``_`` for a dot; return its name."""
        keys = {f"{YUNIKORN}namespace.{key.replace('_', '.')}": v for key, v in annotations.items()}
        body = {"metadata": {"name": name, "annotations": keys}}
        self._namespaces.append(name)
        await self.server.client.request("POST", "/api/v1/namespaces", body)
        return name

    async def priority_class(self, name: str, value: int, **annotations: str) -> None:
        """Make a priority class; it goes with the test."""
        keys = {f"{YUNIKORN}{key.replace('_', '-')}": text for key, text in annotations.items()}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        body = {"metadata": {"name": name, "annotations": keys}, "value": value}
        await self.server.client.request("POST", path, body)
        self._exits.push_async_callback(self.server.client.request, "DELETE", f"{path}/{name}")

    async def apply(self, *bodies: Object, namespace: str = "default") -> list[Object]:
        """Make pods; a second passes behind them, so that what comes later is younger."""
        made = [await self.kubectl.pod(body, namespace) for body in bodies]
        await self.passes(1)
        return made

    async def job(self, name: str, count: int, app: str, **more: Any) -> list[str]:
        """Make the pods of a job at once, as its controller does; return their names."""
        namespace = more.pop("namespace", "default")
        names = [f"{name}-{at}" for at in range(count)]
        await self.apply(*(pod_body(each, app, **_copied(more)) for each in names),
                         namespace=namespace)  # fmt: skip
        return names

    async def delete(self, *names: str, namespace: str = "default") -> None:
        """Delete pods, and let what follows from it come to its end."""
        for name in names:
            await self.kubectl.delete(name, namespace)
        await self.settle()

    async def finish(
        self, *names: str, namespace: str = "default", phase: str = "Succeeded"
    ) -> None:
        """Let pods run to their end."""
        for name in names:
            await self.server.client.request(
                "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status",
                {"status": {"phase": phase}}, content_type=STRATEGIC_PATCH,
            )  # fmt: skip
        await self.settle()

    # --- what people see -------------------------------------------------------------------------

    async def ws(self, path: str, **query: str) -> Any:
        """Return YuniKorn's answer to a path below /ws/v1."""
        answer = await self.http.get(f"/ws/v1/{path}", params=query)
        return answer.json()

    async def app(self, name: str) -> Object:
        """Return an application as the API shows it, be it over or not; ``{}``: there is none."""
        for state in ("active", "completed", "rejected"):
            for app in await self.ws(f"partition/default/applications/{state}"):
                if app["applicationID"] == name:
                    return dict(app)
        return {}

    async def state(self, name: str) -> str:
        """Return an application's state."""
        return str((await self.app(name)).get("applicationState", ""))

    async def groups(self, name: str) -> dict[str, tuple[int, int, int]]:
        """Return count, replaced and timed out of an application's task groups."""
        found = (await self.app(name)).get("placeholderData") or ()
        return {
            group["taskGroupName"]: (
                group["count"], group.get("replaced", 0), group.get("timedout", 0)
            )
            for group in found
        }  # fmt: skip

    async def logs(self, name: str) -> dict[str, list[str]]:
        """Return what an application's waiting asks have in their logs, by pod."""
        return {
            ask["allocationTags"]["kubernetes.io/meta/podName"]: [
                line["message"] for line in ask.get("allocationLog") or ()
            ]
            for ask in (await self.app(name)).get("requests") or ()
        }

    async def queue(self, path: str) -> Object:
        """Return a queue."""
        return dict(await self.ws(f"partition/default/queue/{quote_plus(path)}"))

    async def until_told(self, pod: str, *texts: str) -> None:
        """Wait until an event at a pod has all of these texts; they are written after all else."""

        async def is_told() -> bool:
            return any(
                event["regarding"]["name"] == pod
                and all(text in f"{event['reason']}: {event['note']}" for text in texts)
                for event in await self.kubectl.events()
            )

        await until(is_told, f"an event at {pod} with {texts}")

    async def pods(self, namespace: str = "default") -> dict[str, Object]:
        """Return the pods of a namespace."""
        return await self.kubectl.pods(namespace)

    async def running(self, *, namespace: str = "default", placeholders: bool = False) -> set[str]:
        """Return the pods that run, either those that people made or the placeholders."""
        return {
            name
            for name, pod in (await self.pods(namespace)).items()
            if pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            and is_placeholder(pod) == placeholders
        }

    async def until_running(self, *names: str, namespace: str = "default", **more: Any) -> None:
        """Wait until these pods run."""

        async def run() -> bool:
            return set(names) <= await self.running(namespace=namespace)

        await self.until(run, f"{', '.join(names)} run", **more)

    async def until_state(self, name: str, *states: str, **more: Any) -> None:
        """Wait until an application is in one of these states."""

        async def is_so() -> bool:
            return await self.state(name) in states

        await self.until(is_so, f"{name} is {' or '.join(states)}", **more)


def is_placeholder(pod: Object) -> bool:
    """Return whether a pod is a placeholder."""
    return "internal.yunikorn.apache.org/placeholder" in (pod["metadata"].get("annotations") or {})


def _copied(more: Object) -> Object:
    return dict(json.loads(json.dumps(more)))
