"""No name, however long, ends a service: what cannot be put on the wire is a PoisonError."""

from dataclasses import replace

import pytest

from shared.bus import codec
from shared.bus.amqp_message import message_of
from shared.bus.errors import PoisonError
from shared.bus.fitting import fitting
from shared.bus.memory import MemoryBus
from shared.messages.envelope import CORE, Address, Envelope
from shared.messages.protocol import Heartbeat, TimerSyncRequest
from shared.messages.state import SnapshotRequest
from shared.runtime.settings import SettingsError, load_settings
from tests.table import each_row

SOUND = Envelope("m1", "Heartbeat", Heartbeat("h"), CORE, "test")
LONG = "x" * 300
WRONG = {
    "message_id": {"message_id": LONG},
    "reply_to": {"reply_to": f"api.{LONG}#1"},
    "reply_to of two bytes a character": {"reply_to": "é" * 128},
    "half a character": {"reply_to": "api.\ud800#1"},
    "source": {"source": LONG},
    "address": {"to": Address("api", LONG)},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
async def test_an_envelope_that_no_broker_takes_is_refused_by_every_bus(changes):
    envelope = replace(SOUND, **changes)
    with pytest.raises(PoisonError):
        message_of(envelope)
    with pytest.raises(PoisonError):
        await MemoryBus().publish([envelope])
    parts, (aside,) = fitting(envelope)
    assert (parts, aside.item) == ([], None)
    assert aside.reason.startswith("Heartbeat: its ")


async def test_the_longest_that_fits_goes_and_a_story_is_cut_short():
    envelope = replace(SOUND, reply_to="a" * 255, correlation_id="é" * 300)
    message = message_of(envelope)
    assert message.reply_to == "a" * 255
    assert message.correlation_id == "é" * 127
    await MemoryBus().publish([envelope])


@each_row("kind", [Heartbeat, SnapshotRequest, TimerSyncRequest])
@each_row("name", ["", LONG])
def test_an_instance_whose_name_is_no_address_is_neither_written_nor_read(kind, name):
    with pytest.raises(PoisonError, match="instance"):
        codec.encode(kind(name))
    sound = codec.encode(kind("name"))
    written = b"\xa0" if not name else b"\xda\x01\x2c" + name.encode()
    with pytest.raises(PoisonError, match="instance"):
        codec.decode(kind.__name__, sound.replace(b"\xa4name", written))


@pytest.mark.parametrize("name", [LONG, "a#b", "a b", "é"])
def test_a_service_is_not_started_under_a_name_that_is_no_address(name, monkeypatch):
    monkeypatch.setenv("MUSTER_INSTANCE", name)
    with pytest.raises(SettingsError, match="MUSTER_INSTANCE"):
        load_settings()
