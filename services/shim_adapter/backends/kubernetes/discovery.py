"""Kinds that not every API server serves: watched where they are, and as soon as they are.

Rule 1: which there are is asked at the start, and every DISCOVERY_SECONDS from then on. A kind that
        is not served is no error, and has no objects.
Rule 2: of several versions of a kind the first that is served is watched.
Rule 3: when a kind is no longer served, all its objects have gone.
Rule 4: nothing waits for what is not to be had, rights that are missing for one: it has no objects
        yet. What is to be known of them is waited for elsewhere.
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
    """A kind that may be served: its name here, its API group, versions (best first) and plural.

    A version that serves the kind ``beside`` as well comes before them ("": none does): its fields
    are of no other.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    beside: str = ""


Emit = Callable[[str, str, dict[str, Any]], Awaitable[None]]
"""Hears of a kind, a change and an object."""


class Discovery:
    """Watches the kinds that are served. ``is_listed`` is set when what there is was listed."""

    def __init__(self, client: ApiClient, kinds: Sequence[OptionalKind], emit: Emit) -> None:
        self.is_listed = asyncio.Event()
        self._client = client
        self._kinds = kinds
        self._emit = emit
        self._group = asyncio.TaskGroup()
        self._watched: dict[OptionalKind, tuple[str, Reflector, asyncio.Task[None]]] = {}

    def path_of(self, kind: str) -> str:
        """Return where a kind is watched, "" where it is not."""
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
        """Begin to watch what is served now, and stop with what is not. Raises ApiServerError."""
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
        """Watch a kind where it is served; "": nowhere."""
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
