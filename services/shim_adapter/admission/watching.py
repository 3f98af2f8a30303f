"""Watches the inputs of decisions: namespaces, priority classes, the two ConfigMaps."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from services.shim_adapter.admission.decision import Context
from services.shim_adapter.admission.filters import Filters, filters_of
from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError
from services.shim_adapter.backends.kubernetes.configuration import MAPS
from services.shim_adapter.backends.kubernetes.objects import config_data
from services.shim_adapter.backends.kubernetes.reflector import DELETED, Reflector
from services.shim_adapter.backends.kubernetes.sources import (
    NAMESPACES,
    PRIORITY_CLASSES,
    config_map,
    note_class,
)
from services.shim_adapter.translation.pods import PriorityClass

SHIM_ADAPTER = "shim-adapter"  # its service account, in our own namespace
ASK_SECONDS = 2.0  # for a namespace that was made just now; the request fails


class Watching:
    """The present namespaces, priority classes and ConfigMaps."""

    def __init__(self, client: ApiClient) -> None:
        self.maps: dict[str, Mapping[str, str]] = {}
        self._client = client
        self._namespaces: dict[str, dict[str, str]] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._filters = Filters()
        self.namespace = client.access.namespace
        self.reflectors = [
            *(self._of_map(name) for name in MAPS),
            Reflector(client, NAMESPACES, self._on_namespace),
            Reflector(client, PRIORITY_CLASSES, self._on_class),
        ]

    @property
    def is_ready(self) -> bool:
        """Return whether everything has been listed."""
        return all(reflector.is_listed.is_set() for reflector in self.reflectors)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())

    async def context(self, namespace: str) -> Context:
        """Return the inputs of a decision in a namespace. Raises ApiServerError, TimeoutError."""
        if namespace not in self._namespaces:
            await self._ask_for(namespace)
        return Context(
            self._filters,
            self._namespaces.get(namespace, {}),
            self._classes,
            self.namespace,
            f"system:serviceaccount:{self.namespace}:{SHIM_ADAPTER}",
        )

    async def _ask_for(self, namespace: str) -> None:
        """Read a namespace that no watch has reported yet: its first pods may follow at once."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await self._client.request("GET", f"/api/v1/namespaces/{namespace}")
        except ApiServerError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
        else:
            self._namespaces.setdefault(namespace, _annotations(found))

    async def _on_namespace(self, event: str, item: dict[str, Any]) -> None:
        name = item["metadata"]["name"]
        if event == DELETED:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = _annotations(item)

    async def _on_class(self, event: str, item: dict[str, Any]) -> None:
        note_class(self._classes, event, item)

    def _of_map(self, name: str) -> Reflector:
        async def on_map(event: str, item: dict[str, Any]) -> None:
            self.maps[name] = {} if event == DELETED else config_data(item)
            self._filters = filters_of([self.maps.get(name, {}) for name in MAPS])

        return Reflector(self._client, config_map(self.namespace, name), on_map)


def _annotations(item: dict[str, Any]) -> dict[str, str]:
    return dict(item["metadata"].get("annotations") or {})
