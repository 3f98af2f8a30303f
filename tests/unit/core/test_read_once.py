"""A configuration is read off the core's loop: ahead, in a thread, and no second time."""

import threading

import pytest

from services.core import configuration
from services.core.configuration import MAX_REMEMBERED, ReadOnce
from services.core.scheduler.scheduler import ConfigurationError, Scheduler
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import UpdateConfiguration
from shared.messages.protocol import SyncBegin
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host

GOOD = "partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]"


@pytest.fixture
def reads(monkeypatch):
    seen = []
    real = configuration.parse_partitions

    def read(text):
        seen.append((text, threading.current_thread() is threading.main_thread()))
        return real(text)

    monkeypatch.setattr(configuration, "parse_partitions", read)
    return seen


def test_a_text_is_read_once_good_or_bad(reads):
    read = ReadOnce()
    assert read(GOOD) is read(GOOD)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="nosuch"):
            read("nosuch: 1")
    assert [text for text, _ in reads] == [GOOD, "nosuch: 1"]


def test_only_the_last_few_are_remembered(reads):
    read = ReadOnce()
    texts = [GOOD + "\n" * at for at in range(MAX_REMEMBERED + 1)]
    for text in texts:
        read(text)
    read(texts[-1])
    assert len(reads) == len(texts)
    read(texts[0])
    assert len(reads) == len(texts) + 1


@pytest.mark.parametrize(
    "message", [SyncBegin(config=GOOD, last_good="nosuch: 1"), UpdateConfiguration(GOOD)]
)
async def test_no_configuration_is_read_on_the_core_s_loop(reads, message):
    host = Host(
        CORE,
        lambda: Scheduler("core-1", ReadOnce()),
        MemoryBus(MemoryBroker()),
        SystemClock(),
        instance="core-1",
    )
    envelope = Envelope("id-1", type(message).__name__, message, CORE, "test", epoch=1)
    host.machine.is_synced, host.machine._epoch = isinstance(message, UpdateConfiguration), 1
    await host._batches._handle_batch(_Subscription(), [], [envelope])
    assert host.machine.partition.config_text == GOOD
    assert reads
    assert not any(on_loop for _, on_loop in reads)


class _Subscription:
    """A place at an inbox where nothing is acknowledged."""
