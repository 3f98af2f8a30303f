"""What a lost connection throws at those who wait for it, and how a process ends that ends itself."""

import asyncio
import gc
import warnings
from types import SimpleNamespace

import pytest
from aiormq.base import FutureStore
from aiormq.exceptions import ConnectionClosed

from shared.bus.errors import BusUnavailableError
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.rabbitmq import RabbitBus
from shared.messages.envelope import CORE, Envelope
from shared.messages.protocol import Heartbeat
from shared.runtime import service
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host
from tests.broker import free_port
from tests.patience import until

BEAT = Envelope("id-1", "Heartbeat", Heartbeat("h"), CORE, "test", published_ns=1)


class _PendingPublisher:
    """A publisher whose confirms are pending until its connection is closed, which cancels them."""

    def __init__(self):
        self.pending = []

    async def publish(self, *_args, **_options):
        self.pending.append(asyncio.get_running_loop().create_future())
        await self.pending[-1]


class _OpenConnection:
    is_closed = False

    async def close(self):
        self.is_closed = True


def pending_bus():
    bus = RabbitBus("amqp://nowhere")
    bus._links.connections, bus._publisher = [_OpenConnection()], _PendingPublisher()
    return bus, bus._publisher


async def published(publisher):
    await until(lambda: publisher.pending, "a confirm that is pending", pause=0)


async def test_a_confirm_cancelled_by_a_closing_connection_is_a_bus_that_is_away():
    bus, publisher = pending_bus()
    publishing = asyncio.create_task(bus.publish([BEAT]))
    await published(publisher)
    publisher.pending[0].cancel()
    with pytest.raises(BusUnavailableError, match="closed meanwhile"):
        await publishing
    assert bus._links.connections == []  # the next call connects anew


async def test_what_a_connection_that_ends_without_a_reason_throws_is_a_bus_that_is_away():
    """Chaos seed 2: a timer service ended for an acknowledgement that waited for its link."""
    bus, publisher = pending_bus()
    publishing = asyncio.create_task(bus.publish([BEAT]))
    await published(publisher)
    waiting = FutureStore(asyncio.get_running_loop())
    waiting.add(publisher.pending[0])
    await waiting.reject_all(None)
    with pytest.raises(BusUnavailableError, match="closed meanwhile"):
        await publishing


async def test_what_is_wrong_with_us_is_no_bus_that_is_away():
    bus, publisher = pending_bus()
    publishing = asyncio.create_task(bus.publish([BEAT]))
    await published(publisher)
    publisher.pending[0].set_exception(KeyError("a mistake of ours"))
    with pytest.raises(KeyError):
        await publishing


async def test_a_publisher_that_is_told_to_stop_as_the_connection_ends_stops():
    """The client's own tasks then throw the reason of the end in place of the stop."""
    bus, publisher = pending_bus()
    wait = publisher.publish

    async def publish(*args, **options):
        try:
            await wait(*args, **options)
        except asyncio.CancelledError as error:
            raise ConnectionClosed(320, "closed") from error

    publisher.publish = publish
    publishing = asyncio.create_task(bus.publish([BEAT]))
    await published(publisher)
    publishing.cancel()
    await asyncio.wait([publishing])
    assert publishing.cancelled()


async def test_a_publisher_that_is_told_to_stop_stops():
    bus, publisher = pending_bus()
    publishing = asyncio.create_task(bus.publish([BEAT]))
    await published(publisher)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing


@pytest.mark.parametrize("end", ["returns", "is cancelled"])
def test_a_service_that_ends_by_itself_is_to_be_restarted(monkeypatch, end):
    async def beside(_host, _settings):
        if end == "is cancelled":
            raise asyncio.CancelledError

    async def run():
        host = Host(CORE, _Deaf, MemoryBus(MemoryBroker()), SystemClock(), instance="core")
        return await service._run(host, SimpleNamespace(health_port=0), beside, lambda _: True)

    assert asyncio.run(run()) is False
    monkeypatch.setenv("MUSTER_BUS_URL", "amqp://127.0.0.1/")
    monkeypatch.setattr(service, "_run", lambda *_: _result(told=False))
    monkeypatch.setattr(service, "spare_the_collector", lambda: None)
    monkeypatch.setattr(service, "set_up_logs", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        service.run_service("core", lambda *_: (CORE, _Deaf))
    assert ended.value.code == service.EXIT_ENDED


class _Deaf:
    """A machine that says nothing."""

    def handle(self, _envelope, _now_ns):
        return []


async def _result(*, told):
    return told


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_connection_that_never_came_about_leaves_nothing_to_whoever_collects_it():
    """The collector may run in a thread without a loop, where nothing of a connection can be closed."""
    bus = RabbitBus(f"amqp://127.0.0.1:{free_port()}/")
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(OSError):
            await bus._links._open_once("publish")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            await asyncio.to_thread(gc.collect)
    finally:
        gc.enable()
    assert [str(warning.message) for warning in said] == []
