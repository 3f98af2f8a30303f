"""amqps: the broker's certificate is checked, and the authority's file is read at each connection."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import trustme

from shared.bus import links
from shared.bus.errors import BusUnavailableError
from shared.bus.rabbitmq import RabbitBus
from shared.messages.envelope import TIMERS, Envelope
from shared.messages.protocol import Heartbeat

AUTHORITY, OTHER = trustme.CA(), trustme.CA()


@asynccontextmanager
async def tls_in_front(url, issued):
    """Yield the address of what speaks TLS and passes all on to a broker."""
    parts = urlsplit(url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued.configure_cert(context)

    async def copy(reader, writer):
        with suppress(OSError):
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def pass_on(reader, writer):
        behind, to_behind = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(copy(reader, to_behind), copy(behind, writer))

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    yield f"amqps://{parts.username}:{parts.password}@127.0.0.1:{port}/"
    server.close()


@pytest.fixture(autouse=True)
def _in_vain_for_a_moment(monkeypatch):
    from tenacity import stop_after_attempt

    monkeypatch.setattr(links, "_CONNECTING_ENDS", stop_after_attempt(1))
    monkeypatch.setattr(links, "CONNECT_SECONDS", 10.0)


async def works(url):
    bus = RabbitBus(url, prefix=f"tls-{uuid4().hex[:8]}")
    try:
        await bus.publish([Envelope("m", "Heartbeat", Heartbeat("x"), TIMERS, "timers")])
        await bus.delete_topology()
    finally:
        await bus.close()
    return True


async def test_a_broker_is_believed_whose_certificate_the_authority_has_signed(
    broker_url, tmp_path
):
    file = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(file)
    async with tls_in_front(broker_url, AUTHORITY.issue_cert("127.0.0.1")) as url:
        assert await works(f"{url}?cafile={file}")
        with pytest.raises(BusUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await works(url)
        OTHER.cert_pem.write_to_path(file)
        with pytest.raises(BusUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await works(f"{url}?cafile={file}")
        AUTHORITY.cert_pem.write_to_path(file)  # it is read anew at each connection
        assert await works(f"{url}?cafile={file}")


async def test_a_certificate_of_another_name_is_not_believed(broker_url, tmp_path):
    file = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(file)
    async with tls_in_front(broker_url, AUTHORITY.issue_cert("elsewhere.example")) as url:
        with pytest.raises(BusUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await works(f"{url}?cafile={file}")
