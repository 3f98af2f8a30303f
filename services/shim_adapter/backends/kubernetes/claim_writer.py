"""Writes the chosen devices and their consumer to claims before a pod is bound, or reverts that.

Rule 1: a claim is written with the resourceVersion that was read: a concurrent change is not
        overwritten, and the pod waits again.
Rule 2: all claims of a pod are written, or none: written ones are reverted if a later one or the
        bind is refused. Otherwise two pods with two claims each could deadlock.
Rule 3: writing again changes nothing.
Source: resource.k8s.io/v1, and what kube-scheduler writes.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog

from services.shim_adapter.backends.kubernetes.claim_objects import MAX_RESERVED, ClaimToWrite
from services.shim_adapter.backends.kubernetes.client import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiClient,
    ApiServerError,
)
from services.shim_adapter.records import PodRecord

FINALIZER = "resource.kubernetes.io/delete-protection"
log = structlog.get_logger("muster.kubernetes")


class ClaimWriter:
    """Writes claims through a client."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def write(self, pod: PodRecord, claims: tuple[ClaimToWrite, ...]) -> str:
        """Write a pod's claims; return why one is refused ("": all are written).

        Raises ApiServerError if it is to be retried.
        """
        for at, claim in enumerate(claims):
            try:
                refused = await self._write(claim)
                if not refused and claim.body is not None:
                    await self._write_pod_status(pod, claim)
            except ApiServerError as error:
                if error.code not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                    raise
                refused = f"ResourceClaim {claim.name}: {error.message}"
            if refused:
                await self.give_back(claims[: at + 1])
                return refused
        return ""

    async def give_back(self, claims: tuple[ClaimToWrite, ...]) -> None:
        """Remove the pod from claims, and their devices if it was the only consumer."""
        for claim in claims:
            try:
                await self._give_back(claim)
            except ApiServerError as error:
                log.warning("a claim was not given back", claim=claim.name, error=str(error))

    async def _write(self, claim: ClaimToWrite) -> str:
        if claim.body is not None:
            await self._make(claim)
        path = _path(claim)
        found = await self._client.request("GET", path)
        metadata, status = found["metadata"], found.get("status") or {}
        reserved = list(status.get("reservedFor") or ())
        allocation = status.get("allocation")
        refused = _why_not(claim, metadata, allocation, reserved)
        if refused or (allocation and _is_for(reserved, claim)):
            return refused
        if not _is_for(reserved, claim):
            reserved.append(dict(claim.consumer))
        wanted: dict[str, Any] = {"reservedFor": reserved}
        if not allocation:
            wanted["allocation"] = claim.allocation()
            if FINALIZER not in (metadata.get("finalizers") or ()):
                found = await self._protect(path, metadata)
        version = found["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": wanted}
        await self._client.request("PATCH", f"{path}/status", body, content_type=MERGE_PATCH)
        return ""

    async def _make(self, claim: ClaimToWrite) -> None:
        path = _path(claim).rpartition("/")[0]
        try:
            await self._client.request("POST", path, claim.body)
        except ApiServerError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _protect(self, path: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        finalizers = [*(metadata.get("finalizers") or ()), FINALIZER]
        changed = {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}
        found: dict[str, Any] = await self._client.request(
            "PATCH", path, {"metadata": changed}, content_type=MERGE_PATCH
        )
        return found

    async def _write_pod_status(self, pod: PodRecord, claim: ClaimToWrite) -> None:
        said = {"resourceClaimName": claim.name, "requestMappings": list(claim.containers)}
        body = {
            "metadata": {"uid": pod.uid},
            "status": {"extendedResourceClaimStatus": said},
        }
        path = f"/api/v1/namespaces/{claim.namespace}/pods/{pod.spec.name}/status"
        await self._client.request("PATCH", path, body, content_type=STRATEGIC_PATCH)

    async def _give_back(self, claim: ClaimToWrite) -> None:
        path = _path(claim)
        try:
            found = await self._client.request("GET", path)
        except ApiServerError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return
            raise
        metadata, status = found["metadata"], found.get("status") or {}
        reserved = list(status.get("reservedFor") or ())
        allocation = status.get("allocation")
        is_ours = bool(allocation and claim.results and _is_same(allocation, claim))
        if not (is_ours or _is_for(reserved, claim)):
            return
        left = [each for each in reserved if each.get("uid") != claim.consumer["uid"]]
        wanted: dict[str, Any] = {"reservedFor": left or None}
        if is_ours and not left:
            wanted["allocation"] = None
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": wanted}
        await self._client.request("PATCH", f"{path}/status", body, content_type=MERGE_PATCH)
        if is_ours and not left:
            await self._release(path, claim)

    async def _release(self, path: str, claim: ClaimToWrite) -> None:
        """Remove the finalizer of a deallocated claim; delete a claim that we created."""
        found = await self._client.request("GET", path)
        metadata = found["metadata"]
        others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        changed = {"resourceVersion": metadata["resourceVersion"], "finalizers": others or None}
        await self._client.request("PATCH", path, {"metadata": changed}, content_type=MERGE_PATCH)
        if claim.body is not None:
            await self._client.request("DELETE", path)


def _path(claim: ClaimToWrite) -> str:
    where = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}"
    return f"{where}/resourceclaims/{claim.name}"


def _why_not(
    claim: ClaimToWrite,
    metadata: Mapping[str, Any],
    allocation: Mapping[str, Any] | None,
    reserved: list[Mapping[str, Any]],
) -> str:
    """Return why a claim cannot be used as it is now ("": it can)."""
    name = f"ResourceClaim {claim.name}"
    if claim.uid and metadata.get("uid") != claim.uid:
        return f"{name} is another one of its name"
    if allocation and claim.results and not _is_same(allocation, claim):
        return f"{name} was allocated by another"
    if not (allocation or claim.results):
        return f"{name} is not allocated any more"
    if len(reserved) >= MAX_RESERVED and not _is_for(reserved, claim):
        return f"{name} is reserved for {MAX_RESERVED} pods, no more"
    return ""


def _is_for(reserved: list[Mapping[str, Any]], claim: ClaimToWrite) -> bool:
    return any(each.get("uid") == claim.consumer["uid"] for each in reserved)


def _is_same(allocation: Mapping[str, Any], claim: ClaimToWrite) -> bool:
    results = (allocation.get("devices") or {}).get("results") or ()
    found = [(each["request"], (each["driver"], each["pool"], each["device"])) for each in results]
    return sorted(found) == sorted((each.request, each.device) for each in claim.results)
