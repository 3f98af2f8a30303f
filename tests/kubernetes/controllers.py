"""What a cluster has beside its scheduler, for one gang: a Job's controller, pod GC, and a witness.

The Job's controller makes every member again that is deleted. Pod GC removes the pods of nodes that are
gone. The witness sees every pod: how many places the gang's placeholders held at the most, and whether a
member was bound before they held as many as the gang needs.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, Self

from services.shim_adapter.backends.kubernetes.client import ApiServerError
from services.shim_adapter.backends.kubernetes.reflector import DELETED, Reflector, Source
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import Kubectl
from tests.patience import until

PODS = "/api/v1/namespaces/default/pods"
_PAUSE_SECONDS = 0.1


class Controllers:
    """One gang's; ``members`` are its real pods as they are made, by name."""

    def __init__(self, kubectl: Kubectl, members: dict[str, dict[str, Any]]) -> None:
        self.members = members
        self.wrong: list[str] = []
        self.most_held = 0
        self.made_again: Counter[str] = Counter()
        self.is_over = False
        self.placeholders = 0  # that were ever bound
        self._marks = 0
        self._kubectl = kubectl
        self._pods: dict[str, dict[str, Any]] = {}  # by uid
        self._held: dict[str, None] = {}  # uids of placeholders on nodes that there are
        self._reflector = Reflector(kubectl.client, Source("controllers", PODS), self._on_pod)
        self._work: asyncio.Queue[tuple[str, str, Any]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(job) for job in (self._reflector.run(), self._do())]
        await self._reflector.is_listed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def submit(self) -> None:
        """Make every member, as fast as the API server takes them."""
        for body in self.members.values():
            await self._kubectl.pod(body)

    async def until_caught_up(self) -> None:
        """Wait until the witness has seen all that there is, and sees what is to come.

        A mark is made: who has seen it has listed since, or watches still.
        """
        self._marks += 1
        mark = a_pod(f"mark-{self._marks}", scheduler="nobody")
        await insist(self._kubectl, "POST", PODS, mark)

        async def is_caught_up() -> bool:
            with suppress(ApiServerError):
                there = (await self._kubectl.get(PODS))["items"]
                versions = {p["metadata"]["uid"]: p["metadata"]["resourceVersion"] for p in there}
                return versions == dict(self._reflector.seen.values())
            return False

        await until(is_caught_up, "the witness has seen every pod")
        await insist(self._kubectl, "DELETE", f"{PODS}/mark-{self._marks}")

    def node_is_gone(self, node: str) -> None:
        """Remove what is on a node that was deleted."""
        for pod in self._pods.values():
            if pod["spec"].get("nodeName") == node:
                self._collect(pod)

    async def _on_pod(self, change: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        if change == DELETED:
            self._pods.pop(uid, None)
            self._held.pop(uid, None)
            if name in self.members and not self.is_over:
                self.made_again[name] += 1
                self._work.put_nowait(("POST", PODS, self.members[name]))
            return
        node = pod["spec"].get("nodeName", "")
        was_bound = self._pods.get(uid, {"spec": {}})["spec"].get("nodeName")
        self._pods[uid] = pod
        if not node:
            return
        if node not in self._kubectl.nodes:
            self._collect(pod)
        if name in self.members:
            if self.most_held < len(self.members) and not was_bound:
                self.wrong.append(
                    f"{name} was bound when no more than {self.most_held} places were held"
                )
        else:
            self.placeholders += uid not in self._held
            self._held[uid] = None
            self.most_held = max(self.most_held, len(self._held))

    def _collect(self, pod: dict[str, Any]) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._work.put_nowait(("DELETE", f"{PODS}/{pod['metadata']['name']}", body))

    async def _do(self) -> None:
        while True:
            method, path, body = await self._work.get()
            await insist(self._kubectl, method, path, body)


async def insist(kubectl: Kubectl, method: str, path: str, body: Any = None) -> None:
    """Ask until the API server has done it, or says that it is done."""
    while True:
        try:
            await kubectl.client.request(method, path, body)
        except ApiServerError as error:
            if error.code == 404 or error.reason == "AlreadyExists":
                return
            if error.code == 409 and "Precondition" in error.message:
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
