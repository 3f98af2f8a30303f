"""The turn: a growing number in a Lease, with the last good queues and usage in annotations.

The ConfigMap contains the users' last version, valid or not. The last accepted one is stored in an
annotation of the Lease, compressed, so that a restart with an invalid ConfigMap can fall back to
it; this needs no further rights. The same holds for usage over time, as reported by cores.
Limit: MAX_KEPT characters; a larger configuration is not stored, which is logged. MAX_KEPT_USAGE of
usage; beyond it users are dropped first, then the queues with the oldest usage.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import structlog

from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError
from services.shim_adapter.backends.kubernetes.packed import packed, unpacked
from services.shim_adapter.records import ReportedUsage
from shared.bus.codec import record_from_plain, record_to_plain
from shared.bus.errors import PoisonError

LEASE = "muster-shim-adapter"
LAST_GOOD = "muster.io/last-good-queues"
USAGE = "muster.io/usage"
MAX_KEPT_USAGE = 50_000  # characters of stored usage; users go first, then the oldest
MAX_KEPT = 200_000  # of the 256 KiB that an object's annotations may have
log = structlog.get_logger("muster.kubernetes")


class Turn:
    """The turn of one session. ``instance`` is its holder."""

    def __init__(self, client: ApiClient, instance: str) -> None:
        self.number = 0
        self.last_good = ""
        self.usage: tuple[ReportedUsage, ...] = ()
        self._client = client
        self._instance = instance
        namespace = client.access.namespace
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def take(self) -> None:
        """Take the next turn with a compare-and-swap. Raises ApiServerError to retry."""
        now = now_text()
        spec = {"holderIdentity": self._instance, "acquireTime": now, "renewTime": now}
        try:
            lease = await self._client.request("GET", f"{self._leases}/{LEASE}")
        except ApiServerError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASE, "namespace": self._client.access.namespace},
                "spec": {**spec, "leaseTransitions": 1},
            }
            await self._client.request("POST", self._leases, body)
            self.number = 1
            return
        turn = int(lease.get("spec", {}).get("leaseTransitions") or 0) + 1
        lease["spec"] = {**lease.get("spec", {}), **spec, "leaseTransitions": turn}
        await self._client.request("PUT", f"{self._leases}/{LEASE}", lease)
        self.number = turn
        self.last_good = _saved(_annotations(lease).get(LAST_GOOD, ""))
        self.usage = _saved_usage(_annotations(lease).get(USAGE, ""))

    async def save_usage(self, usage: Sequence[ReportedUsage]) -> None:
        """Store usage over time, the newest last. Raises ApiServerError to retry."""
        await self._store(USAGE, _packed_usage(usage))

    async def save(self, text: str) -> None:
        """Store a queue configuration as the last good one. Raises ApiServerError to retry."""
        if text == self.last_good:
            return
        kept = packed(text)
        if len(kept) > MAX_KEPT:
            log.error(
                "the queue configuration is too large to be stored as the last good one",
                characters=len(kept),
                most=MAX_KEPT,
            )
            self.last_good = text
            return
        await self._store(LAST_GOOD, kept)
        self.last_good = text

    async def _store(self, name: str, value: str) -> None:
        """Store a text in the Lease, unless this turn is over."""
        lease = await self._client.request("GET", f"{self._leases}/{LEASE}")
        if int(lease.get("spec", {}).get("leaseTransitions") or 0) == self.number:
            lease["metadata"]["annotations"] = {**_annotations(lease), name: value}
            await self._client.request("PUT", f"{self._leases}/{LEASE}", lease)


def now_text() -> str:
    """Return the current time in Kubernetes' format, in microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _annotations(lease: dict[str, Any]) -> dict[str, str]:
    return lease.get("metadata", {}).get("annotations") or {}


def _packed_usage(usage: Sequence[ReportedUsage]) -> str:
    """Pack usage into an annotation, as much as fits."""
    newest = tuple(reversed(usage))
    kept = [each for each in newest if not each.record.user]
    kept += [each for each in newest if each.record.user]
    while True:
        text = packed(json.dumps([record_to_plain(each) for each in kept], separators=(",", ":")))
        if len(text) <= MAX_KEPT_USAGE:
            return text
        log.warning("usage over time is too large to be stored completely", records=len(kept))
        kept = kept[: len(kept) * MAX_KEPT_USAGE // len(text)]


def _saved_usage(value: str) -> tuple[ReportedUsage, ...]:
    """Unpack stored usage, the newest last; () if it is invalid."""
    text = unpacked(value) if value else "[]"
    try:
        return tuple(
            record_from_plain(ReportedUsage, item) for item in reversed(json.loads(text or ""))
        )
    except (ValueError, TypeError, PoisonError):
        log.warning("the usage over time cannot be read", characters=len(value))
        return ()


def _saved(value: str) -> str:
    """Unpack a stored configuration; "" if it is invalid."""
    text = unpacked(value) if value else ""
    if text is None:
        log.warning("the last good queue configuration cannot be read", characters=len(value))
        return ""
    return text
