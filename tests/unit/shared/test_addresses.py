"""One URL for several brokers: what it means, in which order they are tried, what is refused."""

import asyncio
from contextlib import suppress

import pytest
from tenacity import stop_after_attempt

from shared.bus import links
from shared.bus.addresses import MAX_ADDRESSES, addresses_of, order_of
from shared.bus.errors import BusUnavailableError, UnknownBusError
from shared.bus.factory import bus_factory
from shared.bus.rabbitmq import RabbitBus
from shared.runtime.settings import Settings, bus_url
from tests.broker import free_port
from tests.table import each_row

MEANINGS = {
    "amqp://guest@h1/": ["amqp://guest@h1/"],
    "amqp://h1": ["amqp://h1"],
    "amqp://u:p%40@h1:5672,h2:5673,h3/v?heartbeat=9": [
        "amqp://u:p%40@h1:5672/v?heartbeat=9",
        "amqp://u:p%40@h2:5673/v?heartbeat=9",
        "amqp://u:p%40@h3/v?heartbeat=9",
    ],
    "amqps://u@[::1]:5671,[fe80::2]/?cafile=/a,b": [
        "amqps://u@[::1]:5671/?cafile=/a,b",
        "amqps://u@[fe80::2]/?cafile=/a,b",
    ],
}


def test_every_host_of_a_url_is_an_address_with_the_rest_of_it():
    assert {url: list(addresses_of(url)) for url in MEANINGS} == MEANINGS


@each_row(
    ("url", "says"),
    [
        ("amqp://u:geheim@h1/,amqp://u:geheim@h2/", "several URLs in one"),
        ("amqp://u:geheim@h1,/", "expected HOST or HOST:PORT"),
        ("amqp:///", "expected HOST or HOST:PORT"),
        ("amqp://u:geheim@h1:no,h2/", "h1:no"),
        ("amqp://u:geheim@h1:70000/", "70000"),
        ("amqp://" + ",".join(["h"] * (MAX_ADDRESSES + 1)), "at most 16"),
        ("http://u:geheim@h1/", "expected memory, amqp"),
    ],
)
def test_what_names_no_broker_is_refused_before_a_service_starts(url, says):
    with pytest.raises(UnknownBusError, match=says) as refused:
        bus_factory(url)
    assert "geheim" not in str(refused.value)


def test_services_try_the_brokers_in_orders_of_their_own():
    addresses = addresses_of("amqp://u:p@h1,h2,h3/")
    orders = {order_of(addresses, f"core-{number}") for number in range(50)}
    assert len(orders) == 6
    assert all(sorted(order) == sorted(addresses) for order in orders)
    assert order_of(addresses, "core-1") == order_of(addresses[::-1], "core-1")


def test_the_password_of_a_file_is_for_every_broker(tmp_path):
    password = tmp_path / "password"
    password.write_text("ge,h@im\n")
    settings = Settings(bus_url="amqp://core@h1:1,h2:2/v", bus_password_file=password)
    assert addresses_of(bus_url(settings)) == (
        "amqp://core:ge%2Ch%40im@h1:1/v",
        "amqp://core:ge%2Ch%40im@h2:2/v",
    )


async def test_a_broker_that_accepts_and_is_silent_is_followed_by_the_next(monkeypatch):
    monkeypatch.setattr(links, "ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr(links, "_CONNECTING_ENDS", stop_after_attempt(4))
    asked: list[str] = []
    silent = {name: await _silent(name, asked) for name in ("one", "two", "three")}
    ports = [server.sockets[0].getsockname()[1] for server in silent.values()]
    hosts = ",".join(f"127.0.0.1:{port}" for port in [*ports, free_port()])
    bus = RabbitBus(f"amqp://{hosts}/")
    with pytest.raises(BusUnavailableError):
        await bus.connect()
    assert set(asked[:3]) == set(silent)  # each once before any a second time
    await bus.close()
    for server in silent.values():
        server.close()


async def _silent(name: str, asked: list[str]) -> asyncio.Server:
    """Return a server that takes connections and never says a word, as a stopped process does."""

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(name)
        with suppress(OSError):
            while await reader.read(1000):
                pass
        writer.close()

    return await asyncio.start_server(on_client, "127.0.0.1", 0)
