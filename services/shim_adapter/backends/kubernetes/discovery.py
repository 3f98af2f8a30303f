"""Optional kinds, which not every API server serves: watched while they are served.

Rule 1: the served kinds are requested at the start, and then every DISCOVERY_SECONDS. A kind that
        is not served is no error, and has no objects.
Rule 2: the first served version of a kind is watched.
Rule 3: when a kind is no longer served, all its objects count as deleted.
Rule 4: the start does not wait for kinds that cannot be listed, such as for missing rights: they
        have no objects yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError
from services.shim_adapter.backends.kubernetes.reflector import Reflector, Source

DISCOVERY_SECONDS = 10.0
LIST_SECONDS = 10.0  # a kind that is not listed by then is not waited for
_RETRY_SECONDS = 1.0
_ATTEMPTS = 5  # that the API server has answered otherwise: then nothing is waited for
log = structlog.get_logger("muster.kubernetes")


@dataclass(frozen=True, slots=True)
class OptionalKind:
    """A kind that may be served: its name, API group, versions (best first) and plural.

    A version that also serves the kind ``beside`` is preferred ("": none), because only it has all
    fields.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    beside: str = ""


Emit = Callable[[str, str, dict[str, Any]], Awaitable[None]]
"""Hears of a kind, a change and an object."""


class Discovery:
    """Watches the served kinds. ``is_listed`` is set once their objects were listed."""

    def __init__(self, client: ApiClient, kinds: Sequence[OptionalKind], emit: Emit) -> None:
        self.is_listed = asyncio.Event()
        self._client = client
        self._kinds = kinds
        self._emit = emit
        self._group = asyncio.TaskGroup()
        self._watched: dict[OptionalKind, tuple[str, Reflector, asyncio.Task[None]]] = {}

    def path_of(self, kind: str) -> str:
        """Return the API path of a watched kind, or ""."""
        found = (item for item in self._watched.items() if item[0].kind == kind)
        return next((f"/apis/{path}/{of.plural}" for of, (path, *_) in found), "")

    async def run(self) -> None:
        """Run until cancelled."""
        refused = 0
        async with asyncio.TaskGroup() as self._group:
            while True:
                try:
                    await self._refresh()
                except ApiServerError as error:
                    log.info("asking again which kinds the API server has", error=str(error))
                    refused += bool(error.code)
                    if refused >= _ATTEMPTS:
                        self.is_listed.set()
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    self.is_listed.set()
                    await asyncio.sleep(DISCOVERY_SECONDS)

    async def _refresh(self) -> None:
        """Start to watch the kinds served now, and stop the others. Raises ApiServerError."""
        groups = (await self._client.request("GET", "/apis")).get("groups") or ()
        served = {
            version["groupVersion"] for group in groups for version in group.get("versions") or ()
        }
        for kind in self._kinds:
            paths = [f"{kind.group}/{version}" for version in kind.versions]
            found = [
                path for path in paths if path in served and await self._has(path, kind.plural)
            ]
            for path in found if kind.beside else ():
                if await self._has(path, kind.beside):
                    found = [path]
                    break
            await self._watch(kind, found[0] if found else "")

    async def _has(self, path: str, plural: str) -> bool:
        resources = (await self._client.request("GET", f"/apis/{path}")).get("resources") or ()
        return any(resource.get("name") == plural for resource in resources)

    async def _watch(self, kind: OptionalKind, path: str) -> None:
        """Watch a kind at a path; "" stops the watch."""
        before = self._watched.get(kind)
        if (before[0] if before is not None else "") == path:
            return
        if before is not None:
            await self._stop(kind)
        if not path:
            log.info("a kind is no longer served", kind=kind.kind)
            return

        async def emit(change: str, item: dict[str, Any]) -> None:
            await self._emit(kind.kind, change, item)

        source = Source(kind.kind, f"/apis/{path}/{kind.plural}")
        reflector = Reflector(self._client, source, emit)
        self._watched[kind] = (path, reflector, self._group.create_task(reflector.run()))
        log.info("a kind is served", kind=kind.kind, version=path)
        with suppress(TimeoutError):
            await asyncio.wait_for(reflector.is_listed.wait(), LIST_SECONDS)

    async def _stop(self, kind: OptionalKind) -> None:
        _, reflector, task = self._watched.pop(kind)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await reflector.forget()
