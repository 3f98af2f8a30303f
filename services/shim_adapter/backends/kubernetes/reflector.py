"""A reflector: lists and then watches one kind of object, until cancelled.

Rule 1: list in pages, watch from the list's version, resume from the last event or bookmark.
Rule 2: on 410, as an answer or inside a watch, list again and report the differences: missing
        objects as DELETED, those with another uid as DELETED and ADDED.
Rule 3: a watch that ends, or an API server that is down, is retried after a growing, jittered
        pause, or once the server answers another request. Nothing is reported twice or lost,
        because versions are remembered.
Only name, uid and version of every object are stored here (``seen``), never the object.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from prometheus_client import Counter

from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError, jittered

PAGE = 500
_NOT_ALLOWED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
OLDEST_VERSION = "1.27"  # of Kubernetes, that serves everything that we cannot do without
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
_WATCH_SECONDS = (300, 600)
_PAUSE_SECONDS = (0.02, 5.0)
_IN_ONE_BREATH = 20
_LONG_ENOUGH_SECONDS = 0.5  # a watch that lasted so long was successful
_LISTS = Counter("muster_kubernetes_lists", "Times that objects were listed again", ["kind"])
_BREAKS = Counter("muster_kubernetes_watch_breaks", "Watches that broke off", ["kind"])
log = structlog.get_logger("muster.kubernetes")

Key = tuple[str, str]
Emit = Callable[[str, dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Source:
    """What to watch: its name for users, its API path, and a selector."""

    kind: str
    path: str
    field_selector: str = ""

    def query(self) -> dict[str, str]:
        """Return the query parameters of every request for it."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}


class Reflector:
    """Reports changes of a source's objects. ``emit`` may wait, and delays the reflector."""

    def __init__(self, client: ApiClient, source: Source, emit: Emit) -> None:
        self.source = source
        self.is_listed = asyncio.Event()
        self.seen: dict[Key, tuple[str, str]] = {}  # uid and version
        self._client = client
        self._emit = emit
        self._version = ""
        self._reported = 0

    async def run(self) -> None:
        """Run until cancelled."""
        pause = _PAUSE_SECONDS[0]
        while True:
            started = asyncio.get_running_loop().time()
            try:
                if not self._version:
                    await self._list()
                    self.is_listed.set()
                await self._watch()
            except ApiServerError as error:
                if error.code == HTTPStatus.GONE:
                    self._version = ""
                _BREAKS.labels(self.source.kind).inc()
                self._log_failure(error)
            lasted = asyncio.get_running_loop().time() - started
            if lasted > _LONG_ENOUGH_SECONDS:
                pause = _PAUSE_SECONDS[0]
            with suppress(TimeoutError):
                async with asyncio.timeout(jittered(pause)):
                    await self._client.until_back()
                    pause = _PAUSE_SECONDS[0]
            if lasted <= _LONG_ENOUGH_SECONDS:
                pause = min(2 * pause, _PAUSE_SECONDS[1])

    def _log_failure(self, error: ApiServerError) -> None:
        """Log a broken watch; as an error if only users can fix the cause."""
        if error.code in _NOT_ALLOWED:
            log.error(
                "the API server does not allow the watch: see deploy/kubernetes/rbac.yaml",
                kind=self.source.kind,
                path=self.source.path,
                error=str(error),
            )
        elif error.code == HTTPStatus.NOT_FOUND:
            log.error(
                "the API server does not serve what we cannot do without: it is too old, or has it "
                "switched off (--runtime-config)",
                needed=f"Kubernetes {OLDEST_VERSION}",
                kind=self.source.kind,
                path=self.source.path,
                error=str(error),
            )
        else:
            log.info("watching again", kind=self.source.kind, error=str(error))

    async def _breathe(self) -> None:
        """Yield to other tasks now and then, because reading buffered events never waits."""
        self._reported += 1
        if self._reported % _IN_ONE_BREATH == 0:
            await asyncio.sleep(0)

    async def _list(self) -> None:
        """List everything in pages, and report differences to what was seen before."""
        _LISTS.labels(self.source.kind).inc()
        found: dict[Key, None] = {}
        query = {**self.source.query(), "limit": str(PAGE)}
        while True:
            page = await self._client.request("GET", self.source.path, query=query)
            for item in page.get("items") or ():
                found[_key(item)] = None
                await self._report(item)
                await self._breathe()
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            query["continue"] = metadata["continue"]
        for key in [key for key in self.seen if key not in found]:
            await self._lost(key)
        self._version = str(metadata.get("resourceVersion") or "0")

    async def _report(self, item: dict[str, Any]) -> None:
        key = _key(item)
        metadata = item["metadata"]
        uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
        before = self.seen.get(key)
        if before is not None and before[0] != uid:
            await self._lost(key)
            before = None
        if before == (uid, version):
            return
        self.seen[key] = (uid, version)
        await self._emit(ADDED if before is None else MODIFIED, item)

    async def _lost(self, key: Key) -> None:
        uid, version = self.seen.pop(key)
        metadata = {"namespace": key[0], "name": key[1], "uid": uid, "resourceVersion": version}
        await self._emit(DELETED, {"metadata": metadata})

    async def forget(self) -> None:
        """Report all known objects as deleted, because their kind was removed. Stop it before."""
        for key in list(self.seen):
            await self._lost(key)

    async def _watch(self) -> None:
        query = {
            **self.source.query(),
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - jitter
        }
        async for event in self._client.watch(self.source.path, query):
            item = event["object"]
            if event["type"] == DELETED:
                self.seen.pop(_key(item), None)
                await self._emit(DELETED, item)
            elif event["type"] in (ADDED, MODIFIED):
                await self._report(item)
            await self._breathe()
            # A bookmark is nothing but its version.
            self._version = item["metadata"].get("resourceVersion") or self._version


def _key(item: dict[str, Any]) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
