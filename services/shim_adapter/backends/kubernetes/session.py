"""A session: one machine's connection to the API server, from the first list to its end.

The first session of a process lists and watches at once, so that a standby is warm; a later one
(after an outage of the bus) once its machine is active. It then takes the turn: a growing number in
a Lease, from which its epochs are derived, so that the previous instance is refused. Source:
architecture section 4.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from services.shim_adapter.backends.kubernetes.budgets import budget_of
from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError
from services.shim_adapter.backends.kubernetes.cluster import KubernetesCluster
from services.shim_adapter.backends.kubernetes.configuration import MAPS
from services.shim_adapter.backends.kubernetes.discovery import Discovery
from services.shim_adapter.backends.kubernetes.objects import (
    config_data,
    node_record,
    pod_view,
)
from services.shim_adapter.backends.kubernetes.observed import (
    BudgetSeen,
    ClaimSeen,
    CsiNodeSeen,
    NamespaceSeen,
    NodeSeen,
    PodDeleted,
    PodGroupSeen,
    PodSeen,
    StorageClassSeen,
    TopologySeen,
    VolumeSeen,
)
from services.shim_adapter.backends.kubernetes.operations import Operation, Operations
from services.shim_adapter.backends.kubernetes.reflector import (
    DELETED,
    Reflector,
    Source,
)
from services.shim_adapter.backends.kubernetes.sources import (
    DEVICE_KINDS,
    GROUP_KINDS,
    NAMESPACES,
    PRIORITY_CLASSES,
    TOPOLOGY_KINDS,
    config_map,
    device_seen,
    gangs_of,
    note_class,
)
from services.shim_adapter.backends.kubernetes.turn import Turn, now_text
from services.shim_adapter.backends.kubernetes.volumes import (
    claim_of,
    storage_class,
    volume_limits,
    volume_of,
)
from services.shim_adapter.mirror.world import World
from services.shim_adapter.translation.namespaces import namespace_tags
from services.shim_adapter.translation.pods import SCHEDULER_NAMES, PriorityClass, Reading
from shared.bus.errors import BusClosedError, BusUnavailableError
from shared.messages.interface import UpdateConfiguration
from shared.messages.protocol import SyncRequest, Tick
from shared.model.service_keys import is_handed_on
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.host import Host

_RETRY_SECONDS = 1.0
log = structlog.get_logger("muster.kubernetes")


class Session:
    """One session over a client. ``instance`` is the holder of the turn."""

    def __init__(
        self, client: ApiClient, *, instance: str, is_warm: bool, clock: Clock | None = None
    ) -> None:
        self.instance = instance
        self._clock = clock or SystemClock()
        self.is_warm = is_warm
        self.classes: dict[str, PriorityClass] = {}
        trees = Discovery(client, TOPOLOGY_KINDS, self._on_topology)
        kinds = Discovery(client, GROUP_KINDS, self._on_pod_group)
        self.cluster = KubernetesCluster(
            World(),
            operate=self._operate,
            now_text=now_text,
            cancel_creates=self._cancel_creates,
            instance=instance,
            classes=self.classes,
            path_of=kinds.path_of,
        )
        self.operations = Operations(client, self.cluster.report)
        self.turn = Turn(client, instance)
        self._has_good = asyncio.Event()
        self._has_usage = asyncio.Event()
        self._client = client
        self._reading = Reading(SCHEDULER_NAMES, 0, self.classes)
        namespace = client.access.namespace
        self.reflectors: list[Reflector | Discovery] = [
            *(self._config_map(namespace, name) for name in MAPS),
            Reflector(client, NAMESPACES, self._on_namespace),
            Reflector(client, PRIORITY_CLASSES, self._on_class),
            Reflector(
                client,
                Source("storageclasses", "/apis/storage.k8s.io/v1/storageclasses"),
                self._on_storage_class,
            ),
            Reflector(client, Source("volumes", "/api/v1/persistentvolumes"), self._on_volume),
            Reflector(client, Source("claims", "/api/v1/persistentvolumeclaims"), self._on_claim),
            Reflector(
                client, Source("budgets", "/apis/policy/v1/poddisruptionbudgets"), self._on_budget
            ),
            trees,
            Discovery(client, DEVICE_KINDS, self._on_device),
            kinds,
            Reflector(
                client, Source("csinodes", "/apis/storage.k8s.io/v1/csinodes"), self._on_csi_node
            ),
            Reflector(client, Source("nodes", "/api/v1/nodes"), self._on_node),
            Reflector(client, Source("pods", "/api/v1/pods"), self._on_pod),
        ]

    def _operate(self, operation: Operation) -> None:
        self.operations.add(operation)

    def _cancel_creates(self, application: str, name: str) -> None:
        self.operations.cancel_creates(application, name)

    async def run(self, host_of: Callable[[], Host | None]) -> None:
        """Run until cancelled. ``host_of`` returns the host whose machine this session serves."""
        if not self.is_warm:
            await self.cluster.activated.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.operations.run())
            group.create_task(self._serve(host_of))
            group.create_task(self._save_last_good())
            group.create_task(self._save_usage())
            for reflector in self.reflectors:
                group.create_task(reflector.run())
                # What a pod means hangs on the objects that are listed before it.
                await reflector.is_listed.wait()

    async def _serve(self, host_of: Callable[[], Host | None]) -> None:
        cluster = self.cluster
        while not all(reflector.is_listed.is_set() for reflector in self.reflectors):
            await self._absorb()
        while not (cluster.is_quiet and cluster.activated.is_set()):
            await self._absorb()
        world = cluster.world
        log.info("the cluster is listed", nodes=len(world.nodes), pods=len(world.pods))
        await self._take_turn()
        while not cluster.is_quiet:
            await self._absorb()
        cluster.configuration.begin()
        for kept in self.turn.usage:
            cluster.world.usage.record(kept.partition, kept.record)
        cluster.begin(self.turn.number, self._clock.now_ns(), self.turn.last_good)
        log.info("the turn is ours", turn=self.turn.number, instance=self.instance)
        while True:
            host = host_of()
            if host is None:
                await asyncio.sleep(_RETRY_SECONDS / 10)
                continue
            await host.inject(Tick())
            await cluster.has_news.wait()
            cluster.has_news.clear()
            await self._propose(host)

    async def _absorb(self) -> None:
        """Apply observations while nothing may be reported yet."""
        self.cluster.advance(self._clock.now_ns())
        if self.cluster.is_quiet:
            await asyncio.sleep(0.01)
        else:
            await asyncio.sleep(0)

    async def _propose(self, host: Host) -> None:
        """Propose changed queues; changed scheduler settings start a recovery."""
        configuration, world = self.cluster.configuration, self.cluster.world
        ignored = configuration.take_ignored()
        if ignored:
            log.warning("changes of these keys wait for a restart", keys=ignored)
        reasons = configuration.take_new_reasons()
        if reasons:
            log.error("the ConfigMaps' changes are ignored, nothing has changed", why=reasons)
        if not configuration.take_changed():
            return
        before, settings = world.scheduler_settings, configuration.scheduler_settings
        world.scheduler_settings = settings
        try:
            if _own(settings) != _own(before):
                log.info(
                    "the scheduler settings changed: the core starts a recovery", settings=settings
                )
                await host.send_to_inbox(SyncRequest(self.instance))
            await host.send_to_inbox(UpdateConfiguration(configuration.queues, settings))
        except (BusUnavailableError, BusClosedError):
            world.scheduler_settings = before
            configuration.put_back()

    # --- the turn -------------------------------------------------------------------------------

    async def _take_turn(self) -> None:
        """Take the next turn, retrying until it succeeds."""
        while True:
            try:
                return await self.turn.take()
            except ApiServerError as error:
                log.warning("the Lease could not be acquired yet", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _save_last_good(self) -> None:
        """Store the last good queue configuration whenever it changes, with retries."""
        while True:
            await self._has_good.wait()
            self._has_good.clear()
            try:
                await self.turn.save(self.cluster.world.good_config)
            except ApiServerError as error:
                log.warning("the last good configuration could not be stored yet", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                self._has_good.set()

    async def _save_usage(self) -> None:
        """Store usage over time whenever a core has reported it, with retries."""
        while True:
            await self._has_usage.wait()
            self._has_usage.clear()
            try:
                await self.turn.save_usage(tuple(self.cluster.world.usage.by_key.values()))
            except ApiServerError as error:
                log.warning("usage over time could not be stored yet", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                self._has_usage.set()

    def note_saved(self, world: World) -> None:
        """Record that a batch was handled: a configuration may have been accepted."""
        if world.is_meta_changed and world.good_config:
            self._has_good.set()
        if world.usage.changed:
            self._has_usage.set()
        world.forget_changes()

    # --- what reflectors report -----------------------------------------------------------------

    def _config_map(self, namespace: str, name: str) -> Reflector:
        async def emit(change: str, item: dict[str, Any]) -> None:
            data = None if change == DELETED else config_data(item)
            self.cluster.configuration.take(name, data)
            self.cluster.has_news.set()

        return Reflector(self._client, config_map(namespace, name), emit)

    async def _on_namespace(self, change: str, item: dict[str, Any]) -> None:
        metadata = item["metadata"]
        tags = {} if change == DELETED else namespace_tags(metadata.get("annotations") or {})
        await self.cluster.see(NamespaceSeen(metadata["name"], tags))

    async def _on_class(self, change: str, item: dict[str, Any]) -> None:
        note_class(self.classes, change, item)

    async def _on_storage_class(self, change: str, item: dict[str, Any]) -> None:
        made_by = None if change == DELETED else storage_class(item)
        await self.cluster.see(StorageClassSeen(item["metadata"]["name"], made_by))

    async def _on_volume(self, change: str, item: dict[str, Any]) -> None:
        volume = None if change == DELETED else volume_of(item)
        await self.cluster.see(VolumeSeen(item["metadata"]["name"], volume))

    async def _on_claim(self, change: str, item: dict[str, Any]) -> None:
        metadata = item["metadata"]
        claim = None if change == DELETED else claim_of(item)
        name = (metadata.get("namespace") or "default", metadata["name"])
        await self.cluster.see(ClaimSeen(name, claim))

    async def _on_budget(self, change: str, item: dict[str, Any]) -> None:
        metadata = item["metadata"]
        budget = None if change == DELETED else budget_of(item)
        name = (metadata.get("namespace") or "default", metadata["name"])
        await self.cluster.see(BudgetSeen(name, budget))

    async def _on_pod_group(self, kind: str, change: str, item: dict[str, Any]) -> None:
        metadata = item["metadata"]
        gangs = None if change == DELETED else gangs_of(kind, item)
        name = (kind, metadata.get("namespace") or "default", metadata["name"])
        uid, status = str(metadata.get("uid") or ""), item.get("status")
        status = status if isinstance(status, dict) else {}
        await self.cluster.see(PodGroupSeen(name, gangs, uid, status))

    async def _on_device(self, kind: str, change: str, item: dict[str, Any]) -> None:
        await self.cluster.see(device_seen(kind, item, is_gone=change == DELETED))

    async def _on_topology(self, kind: str, change: str, item: dict[str, Any]) -> None:
        body = None if change == DELETED else item
        await self.cluster.see(TopologySeen(kind, item["metadata"]["name"], body))

    async def _on_csi_node(self, change: str, item: dict[str, Any]) -> None:
        limits = {} if change == DELETED else volume_limits(item)
        await self.cluster.see(CsiNodeSeen(item["metadata"]["name"], limits))

    async def _on_node(self, change: str, item: dict[str, Any]) -> None:
        await self.cluster.see(NodeSeen(node_record(item), is_gone=change == DELETED))

    async def _on_pod(self, change: str, item: dict[str, Any]) -> None:
        if change == DELETED:
            await self.cluster.see(PodDeleted(item["metadata"].get("uid") or ""))
            return
        is_unique = self.cluster.configuration.has_unique_applications
        if is_unique != self._reading.is_unique:
            self._reading = replace(self._reading, is_unique=is_unique)
        await self.cluster.see(PodSeen(pod_view(item, self._reading, self.cluster.knows)))


def _own(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the core uses; a change of one starts a recovery."""
    return {name: text for name, text in settings.items() if not is_handed_on(name)}
