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
from tests.builders import Core, config_of

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


def test_queues_that_another_text_has_too_are_the_same_objects():
    read = ReadOnce()
    text = "partitions: [{name: default, queues: [{name: root, queues: [%s]}]}]"
    one = read(text % "{name: a, queues: [{name: b}]}, {name: c}").root
    other = read(text % "{name: c}, {name: a, queues: [{name: b}, {name: d}]}, {name: e}").root
    (a, c), (c2, a2, _) = one.children, other.children
    assert c2 is c
    assert a2 is not a
    assert a2.children[0] is a.children[0]
    assert (
        read(text % "{name: c}, {name: a, queues: [{name: b}, {name: d}]}, {name: e} ").root
        is other
    )


def test_a_conflict_below_queues_that_are_as_before_is_found():
    core = Core(config_of("{name: a}", "{name: b}"))
    core.node("n", vcore=10)
    core.application("app", "root.b")
    core.send(UpdateConfiguration(config_of("{name: a}", "{name: b, queues: [{name: c}]}")))
    assert "root.b has 1 applications and cannot become a parent" in core.partition.config_error
    core.send(
        UpdateConfiguration(config_of("{name: a}", "{name: b, resources: {max: {vcore: 3}}}"))
    )
    assert not core.partition.config_error
    core.asks("app", ["one"], {"vcore": 4000})
    core.check()
    assert not core.partition.applications["app"].allocations


def test_a_max_that_comes_back_is_applied_again():
    texts = [
        config_of("{name: a, resources: {max: {vcore: %d}}}" % most, "{name: b}") for most in (1, 9)
    ]
    core = Core(texts[0])
    core.node("n", vcore=10_000)
    core.application("app", "root.a")
    core.asks("app", ["one"], {"vcore": 2_000})
    for at in (1, 0, 1, 0):
        core.send(UpdateConfiguration(texts[at]))
        assert core.partition.queues["root.a"].max_resource == {"vcore": 9_000 if at else 1_000}
        core.check()
    assert core.partition.applications["app"].allocations
