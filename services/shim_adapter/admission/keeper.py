"""Keeps the certificates: in one Secret, in the webhook configurations, and in the server.

Rule 1: the Secret has the current certificates. It is written with its version, so that of several
replicas one makes new certificates and the others use them.
Rule 2: the webhook configurations get the authorities of the Secret before any replica uses its
certificate. A replica that is already serving uses the previous one for SETTLE_SECONDS more, until
every API server has the new configuration.
Rule 3: a failure is retried at the next check. The certificate in use stays in use.

The Secret and both configurations are created by deploy/, so no right to create them is needed, and
removing them removes everything.
"""

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import structlog

from services.shim_adapter.admission import certificates
from services.shim_adapter.admission.certificates import Certificates, is_due, renewed
from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError, jittered

SECRET = "admission-certificates"  # noqa: S105 - its name
SERVICE = "admission"
LOOK_SECONDS = 60.0
RETRY_SECONDS = 2.0
SETTLE_SECONDS = 10.0
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_KEYS = ("ca.crt", "tls.crt", "tls.key")
log = structlog.get_logger("muster.admission")


class Keeper:
    """Keeps the certificates; a server uses ``context`` once ``is_ready`` is set.

    ``names`` are further names or addresses of the server, besides the Service's.
    """

    def __init__(
        self,
        client: ApiClient,
        names: Sequence[str] = (),
        *,
        now: Callable[[], datetime] = certificates.now,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.is_ready = asyncio.Event()
        self.in_use: Certificates | None = None
        self._client = client
        self._now = now
        self._settle_seconds = settle_seconds
        namespace = client.access.namespace
        self.names = [*certificates.names_of(namespace, SERVICE), *names]
        self._secret = f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"
        self._configurations = [
            f"{_CONFIGURATIONS}/{kind}/{namespace}-{SERVICE}" for kind in _KINDS
        ]

    async def run(self) -> None:
        """Check the certificates periodically, until cancelled."""
        while True:
            pause = LOOK_SECONDS
            try:
                await self.renew_if_due()
            except ApiServerError as error:
                pause = RETRY_SECONDS
                if error.code != HTTPStatus.CONFLICT:  # another replica was first
                    log.warning(
                        "checking the certificates failed; trying again later", error=str(error)
                    )
            await asyncio.sleep(jittered(pause))

    async def renew_if_due(self) -> None:
        """Make new certificates if they are due, publish their authorities, and use them.

        Raises ApiServerError if that was not possible now.
        """
        secret = await self._client.request("GET", self._secret)
        kept = _stored(secret)
        if is_due(kept, self.names, self._now()):
            kept = renewed(kept, self.names, self._now())
            secret["data"] = {**(secret.get("data") or {}), **_as_data(kept)}
            await self._client.request("PUT", self._secret, secret)
            log.info("new certificates were created", names=self.names)
        assert kept is not None
        for path in self._configurations:
            await self._have_believed(path, kept)
        if kept != self.in_use:
            if self.in_use is not None:
                await asyncio.sleep(self._settle_seconds)
            _load(self.context, kept)
            self.in_use = kept
            self.is_ready.set()

    async def _have_believed(self, path: str, kept: Certificates) -> None:
        configuration = await self._client.request("GET", path)
        wanted = base64.b64encode(kept.authorities).decode()
        webhooks = configuration.get("webhooks") or []
        if all(item["clientConfig"].get("caBundle") == wanted for item in webhooks):
            return
        for item in webhooks:
            item["clientConfig"]["caBundle"] = wanted
        await self._client.request("PUT", path, configuration)


def _stored(secret: dict[str, Any]) -> Certificates | None:
    data = secret.get("data") or {}
    try:
        return Certificates(*(base64.b64decode(data[key], validate=True) for key in _KEYS))
    except (LookupError, ValueError, TypeError):
        return None


def _as_data(kept: Certificates) -> dict[str, str]:
    values = (kept.authorities, kept.certificate, kept.key)
    return {key: base64.b64encode(value).decode() for key, value in zip(_KEYS, values, strict=True)}


def _load(context: ssl.SSLContext, kept: Certificates) -> None:
    """Load a certificate and its key from a private temporary file: ssl reads files only."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(kept.certificate + kept.key)
        context.load_cert_chain(pair)
