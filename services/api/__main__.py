"""Run an API replica alone: ``python -m services.api``, configured by the environment."""

import socket
from collections.abc import Callable

from services.api.access.guard import Access
from services.api.access.settings import access_of
from services.api.machine import ApiMachine
from services.api.replica import Replica
from services.api.routes.app import make_app
from services.api.web.server import listen, serve
from services.api.web.tls import Certificate
from shared.messages.envelope import Address
from shared.runtime.host import Host
from shared.runtime.machine import Machine
from shared.runtime.service import run_service
from shared.runtime.settings import Settings, SettingsError


class _Http:
    """The socket, access rules and certificate that ``prepare`` makes before the process starts."""

    listening: socket.socket | None = None
    access = Access()
    certificate: Certificate | None = None
    replica: Replica | None = None


def certificate_of(settings: Settings) -> Certificate | None:
    """Return the API's certificate, if it has one. Raises SettingsError, CertificateError."""
    if settings.http_certificate is None:
        if settings.http_key is not None:
            raise SettingsError("MUSTER_HTTP_KEY: MUSTER_HTTP_CERTIFICATE is missing")
        return None
    return Certificate(settings.http_certificate, settings.http_key)


def prepare(settings: Settings, instance: str) -> tuple[Address, Callable[[], Machine]]:
    """Return the replica's own inbox and a function that makes its machine.

    Raises SettingsError, and OSError for a port in use or a missing file.
    """
    _Http.certificate = certificate_of(settings)
    _Http.access = access_of(settings)
    _Http.listening = listen(settings.http_host, settings.http_port)
    name = instance.replace(".", "-")
    return Address("api", name), lambda: ApiMachine(name)


async def serve_http(host: Host, settings: Settings) -> None:
    """Serve the routes beside the host."""

    def machine() -> ApiMachine:
        assert isinstance(host.machine, ApiMachine)
        return host.machine

    names = [name.strip() for name in settings.http_names.split(",") if name.strip()]
    _Http.replica = Replica(lambda: host, machine, beats=True)
    app = make_app(_Http.replica, names, _Http.access)
    assert _Http.listening is not None
    await serve(app, _Http.listening, _Http.certificate)


def is_serving(_: Host) -> bool:
    """Whether there is a state to show, however old: clients are then sent to this replica."""
    return _Http.replica is not None and _Http.replica.is_serving


if __name__ == "__main__":
    run_service("api", prepare, serve_http, is_serving)
