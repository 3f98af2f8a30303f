"""How fast pods are bound on an API server, beside a raw client on the same server in the same minute.

``make bench-kubernetes`` with KUBECONFIG or KUBEBUILDER_ASSETS set (``tests/kubernetes/real.py``). Pods
are made while their queue has no room. Then it has, and the time runs from the first bind to the last, as
the pods' watch says it; the raw client binds as many by a list, with as many requests in flight. They take
turns. Numbers, never assertions: the machine decides them.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import IN_FLIGHT, ApiClient
from services.shim_adapter.backends.kubernetes.reflector import DELETED, Reflector, Source
from tests.kubernetes.controllers import PODS
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import Kubectl, Muster
from tests.kubernetes.real import cordon, empty
from tests.patience import until

QUEUES = """
partitions:
  - name: default
    queues:
      - {name: root, submitacl: '*', queues: [{name: a, resources: {max: {vcore: "%s"}}}]}
"""
CLOSED, OPEN = QUEUES % "1m", QUEUES % "1000000"
PODS_A_NODE = 100
PATIENCE_SECONDS = 600
_LABELS = {"applicationId": "bench", "queue": "root.a"}


class Bound:
    """When pods were bound, as whoever watches them sees it."""

    def __init__(self, client: ApiClient) -> None:
        self.times: dict[str, float] = {}  # by name
        self._reflector = Reflector(client, Source("bench", PODS), self._on_pod)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._reflector.run())
        await self._reflector.is_listed.wait()
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _on_pod(self, change: str, pod: dict) -> None:
        if change != DELETED and pod["spec"].get("nodeName"):
            self.times.setdefault(pod["metadata"]["name"], time.perf_counter())

    async def rate(self, names: list[str]) -> float:
        """Wait until so many are bound, and return how many a second were."""
        await until(lambda: self.times.keys() >= set(names), "every bind", PATIENCE_SECONDS, 0.1)
        times = sorted(self.times[name] for name in names)
        return (len(times) - 1) / (times[-1] - times[0])


async def beside(access: Access, pods: int, rounds: int) -> None:
    """Have both bind so many pods in turn, and print what each did and how one is to the other."""
    client, ratios = ApiClient(access, "tests"), []
    kubectl = Kubectl(client)
    await cordon(client)
    await empty(client)
    nodes = [f"bench-{at}" for at in range(-(-pods // PODS_A_NODE))]
    try:
        for name in nodes:
            await kubectl.node(name, cpu="64", memory="256Gi", pods=str(PODS_A_NODE))
        for at in range(rounds):
            raw = await _turn(access, kubectl, [f"raw-{at}-{n}" for n in range(pods)], _raw)
            ours = await _turn(access, kubectl, [f"ours-{at}-{n}" for n in range(pods)], _muster)
            ratios.append(ours / raw)
            print(f"{pods} pods: raw client {raw:.0f} binds a second, Muster {ours:.0f}:", end=" ")
            print(f"{ours / raw:.0%}", flush=True)
    finally:
        await empty(client)
        await client.close()
    print(f"median of {rounds}: {statistics.median(ratios):.0%} of the raw client")


async def _turn(access: Access, kubectl: Kubectl, names: list[str], bind) -> float:
    """Make pods, have them bound, delete them; return how many binds a second there were."""
    bound = Bound(kubectl.client)
    async with bound.watched():
        rate = await bind(access, kubectl, names, bound)
    deletions = [(f"{PODS}/{name}", {"gracePeriodSeconds": 0}) for name in names]
    await _all(kubectl.client, "DELETE", deletions)
    return rate


async def _make(kubectl: Kubectl, names: list[str], scheduler: str) -> None:
    bodies = (a_pod(name, scheduler=scheduler, cpu="10m", labels=_LABELS) for name in names)
    await _all(kubectl.client, "POST", ((PODS, body) for body in bodies))


async def _raw(access: Access, kubectl: Kubectl, names: list[str], bound: Bound) -> float:
    await _make(kubectl, names, "bench")
    bindings = (
        (
            f"{PODS}/{name}/binding",
            {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}},
        )
        for name, node in zip(names, itertools.cycle(kubectl.nodes), strict=False)
    )
    await _all(kubectl.client, "POST", bindings)
    return await bound.rate(names)


async def _muster(access: Access, kubectl: Kubectl, names: list[str], bound: Bound) -> float:
    await kubectl.config(CLOSED)
    async with Muster(access) as muster:
        await until(muster.is_ready, "the first sync", PATIENCE_SECONDS)
        await _make(kubectl, names, "yunikorn")
        await until(lambda: _waiting(muster) == len(names), "every ask", PATIENCE_SECONDS)
        await kubectl.config(OPEN)
        return await bound.rate(names)


def _waiting(muster: Muster) -> int:
    application = muster.model.applications.get(_LABELS["applicationId"])
    return 0 if application is None else len(application.asks)


async def _all(client: ApiClient, method: str, requests) -> None:
    """Send every request, as many in flight as the shim adapter has."""
    left = iter(requests)

    async def send() -> None:
        for path, body in left:
            await client.request(method, path, body)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(send())
