"""The shim adapter of a Kubernetes cluster: its machines and their sessions."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import ApiClient
from services.shim_adapter.backends.kubernetes.session import Session
from services.shim_adapter.machine import ShimMachine
from shared.runtime.clock import Clock
from shared.runtime.host import Host


class KubernetesService:
    """The cluster, which outlives its machines; each machine has its own session."""

    def __init__(
        self,
        access: Access,
        *,
        instance: str,
        rm_id: str = "mycluster",
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Manage a cluster. ``environment`` are ConfigMap keys that any ConfigMap may override."""
        self._access = access
        self._instance = instance
        self._rm_id = rm_id
        self._clock = clock
        self._environment = environment or {}
        self._client: ApiClient | None = None
        self._made = 0
        self._is_new = asyncio.Event()
        self.session: Session | None = None

    def make_machine(self) -> ShimMachine:
        """Return a machine with a new session; the previous session ends."""
        self._client = self._client or ApiClient(self._access)
        self._made += 1
        self.session = Session(
            self._client, instance=self._instance, is_warm=self._made == 1, clock=self._clock
        )
        self._is_new.set()
        cluster = self.session.cluster
        cluster.configuration.take_environment(self._environment)
        save = self.session.note_saved
        return ShimMachine(cluster.world, cluster, rm_id=self._rm_id, save=save)

    async def run(self, host_of: Callable[[], Host | None]) -> None:
        """Run the current session, and each later one, until cancelled."""
        task: asyncio.Task[None] | None = None
        waiting: asyncio.Task[bool] | None = None
        try:
            while True:
                await self._is_new.wait()
                self._is_new.clear()
                await _end(task)
                if self.session is not None:
                    task = asyncio.create_task(self.session.run(host_of))
                waiting = asyncio.create_task(self._is_new.wait())
                tasks = {waiting} | ({task} if task is not None else set())
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if task is not None and task.done():
                    task.result()  # a bug: it stops the service, which starts over
        finally:
            if waiting is not None:
                waiting.cancel()
            await _end(task)
            if self._client is not None:
                await self._client.close()
                self._client = None


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
