"""Finds the API server and our credentials: the pod's service account, or a kubeconfig file.

Tokens are read again every minute, because those of a service account are renewed. A kubeconfig
that runs a program for its credentials (``exec``) is refused: mount a token instead.
"""

import base64
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REREAD_SECONDS = 60.0


class AccessError(ValueError):
    """The API server cannot be reached as configured; the message says what is missing."""


@dataclass(slots=True)
class Access:
    """An API server and our credentials there. ``namespace`` is our own."""

    url: str
    namespace: str = "default"
    tls: ssl.SSLContext | None = None
    token: str = ""
    token_file: Path | None = None
    _read_at: float = 0.0

    def authorization(self) -> str:
        """Return the Authorization header's value, or "" if a client certificate is used."""
        if self.token_file is not None and time.monotonic() - self._read_at > _REREAD_SECONDS:
            self.token = self.token_file.read_text().strip()
            self._read_at = time.monotonic()
        return f"Bearer {self.token}" if self.token else ""


def find_access(kubeconfig: Path | None, url: str = "") -> Access:
    """Return the access from a kubeconfig, from the pod we run in, or to a plain URL.

    Raises AccessError with what is missing, and where it was expected.
    """
    if url:
        return Access(url.rstrip("/"))
    if kubeconfig is not None:
        return _from_kubeconfig(kubeconfig)
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not host or not (SERVICE_ACCOUNT / "token").exists():
        raise AccessError(
            "no API server: set MUSTER_KUBECONFIG to a kubeconfig file, or run in a pod with a "
            f"service account (KUBERNETES_SERVICE_HOST and {SERVICE_ACCOUNT}/token)"
        )
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return Access(
        f"https://{host}:{port}",
        (SERVICE_ACCOUNT / "namespace").read_text().strip() or "default",
        ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt")),
        token_file=SERVICE_ACCOUNT / "token",
    )


def _from_kubeconfig(path: Path) -> Access:
    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AccessError(f"{path}: {error}") from error
    try:
        current = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", current["cluster"])["cluster"]
        user = _named(config, "users", current["user"]).get("user") or {}
        url = str(cluster["server"])
    except (KeyError, TypeError, AttributeError) as error:
        raise AccessError(f"{path}: not a kubeconfig: {error} is missing") from error
    if "exec" in user or "auth-provider" in user:
        raise AccessError(f"{path}: credentials from a program are not supported: use a token")
    token_file = user.get("tokenFile")
    return Access(
        url.rstrip("/"),
        current.get("namespace") or "default",
        _tls(path, cluster, user) if url.startswith("https") else None,
        token=str(user.get("token") or ""),
        token_file=Path(token_file) if token_file else None,
    )


def _named(config: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    found = next((item for item in config[kind] if item["name"] == name), None)
    if found is None:
        raise KeyError(f"{kind} {name}")
    return dict(found)


def _tls(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=_text(cluster.get("certificate-authority-data")),
        )
        if cluster.get("insecure-skip-tls-verify") is True:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if user.get("client-certificate"):
            context.load_cert_chain(user["client-certificate"], user.get("client-key"))
        elif user.get("client-certificate-data"):
            _load_pair(context, user)
    except (OSError, ValueError, KeyError) as error:
        raise AccessError(f"{path}: certificates: {error}") from error
    return context


def _load_pair(context: ssl.SSLContext, user: dict[str, Any]) -> None:
    """Load a certificate and key contained in the kubeconfig: ssl only reads files."""
    import tempfile

    with tempfile.NamedTemporaryFile("wb") as pair:
        for key in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(user[key]) + b"\n")
        pair.flush()
        context.load_cert_chain(pair.name)


def _text(data: str | None) -> str | None:
    return base64.b64decode(data).decode() if data else None
