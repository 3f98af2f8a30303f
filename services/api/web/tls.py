"""The API's certificate: from files, which are checked every LOOK_SECONDS and read again.

Rule 1: a new certificate and key are tested together before use; if they are invalid, for example
        because only one file has been replaced yet, nothing changes.
Rule 2: open connections stay as they are; the next handshake uses the new certificate.
"""

import asyncio
import ssl
from pathlib import Path

import structlog

from shared.runtime.watched import LOOK_SECONDS, signature

log = structlog.get_logger("muster.api")


class CertificateError(OSError):
    """A certificate is invalid at the start; the message has the file and the cause."""


class Certificate:
    """A certificate with its key, which may be in the same file. Raises CertificateError."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        self._certificate, self._key = certificate, key or certificate
        self._seen = self._signatures()
        self.context = _new_context()
        error = self._load()
        if error:
            raise CertificateError(error)

    def reload_if_changed(self) -> None:
        """Use changed files, if they are valid."""
        seen = self._signatures()
        if seen == self._seen:
            return
        self._seen = seen
        error = self._load()
        if error:
            log.warning(
                "a certificate has changed and is invalid; the previous one stays in use",
                error=error,
            )
        else:
            log.info("a certificate has changed and is in use now", file=str(self._certificate))

    def _load(self) -> str:
        """Load the files; return the error, or ""."""
        try:
            for context in (_new_context(), self.context):
                context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            said = getattr(error, "reason", "") or error.args[-1]
            return f"{self._certificate} with {self._key}: {said}"
        return ""

    def _signatures(self) -> list[tuple[int, int, int] | None]:
        return [signature(path) for path in (self._certificate, self._key)]


def _new_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _no_password() -> str:
    """Refuse a key with a password: a service cannot ask for one."""
    raise ValueError("the key needs a password: one without is expected")


async def watch_certificates(certificate: Certificate) -> None:
    """Check regularly whether a certificate has changed."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        certificate.reload_if_changed()
