"""A broker that is short of memory accepts nothing for as long as it says so; then what waited goes."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from structlog.testing import CapturingLogger

from shared.bus import blocked as blocked_by_broker
from shared.bus import publisher
from shared.bus.blocked import blocked_seconds
from shared.bus.rabbitmq import RabbitBus
from shared.messages.envelope import CORE, Envelope
from shared.messages.protocol import ContinueCycle
from tests.patience import PATIENCE_SECONDS, until

LIMIT_SECONDS = 1.0  # of each try: longer than until the client sees that it is blocked


def message(number):
    """Return one that does not expire while rabbitmqctl starts on a busy machine."""
    return Envelope(
        f"id-{number}", "ContinueCycle", ContinueCycle(number), CORE, "test", published_ns=1
    )


def blocked():
    return REGISTRY.get_sample_value("muster_broker_blocks")


@pytest.mark.long
@pytest.mark.limit(240, "a broker of its own starts")
async def test_publishing_waits_for_an_alarm_to_end_however_long_and_readers_go_on(
    monkeypatch, broker_to_break
):
    """The limits of a confirm are much shorter here than the alarm: the connection must stand."""
    monkeypatch.setattr(publisher, "TRY_SECONDS", (LIMIT_SECONDS,) * 4)
    said = CapturingLogger()
    monkeypatch.setattr(blocked_by_broker, "log", said)
    broker = broker_to_break
    bus = RabbitBus(broker.url, prefix="alarm", name="alarm")
    await bus.publish([message(1)])
    low = ("set_vm_memory_high_watermark", "absolute")
    await asyncio.to_thread(broker.control, *low, "1MB")
    waiting = asyncio.create_task(bus.publish([message(2)]))
    await until(blocked, "the broker says that it is blocked")
    await asyncio.sleep(5 * LIMIT_SECONDS)
    assert not waiting.done()
    assert (await bus.fill(CORE)).waiting == 1  # whoever asks is answered
    assert blocked_seconds() >= LIMIT_SECONDS
    await asyncio.to_thread(broker.control, *low, "2GB")
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    await until(lambda: not blocked(), "the broker says that it is over")
    assert (await bus.fill(CORE)).waiting == 2  # neither lost nor there twice
    assert blocked_seconds() is None
    assert ["accepts no messages" in call.args[0] for call in said.calls] == [True, False]
    await bus.close()
