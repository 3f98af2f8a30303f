"""A disk that is full for a while loses nothing that was promised, and blames no message."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from services.shim_adapter.backends.simulated.store import ClusterStore
from services.shim_adapter.machine import LONG_SAVE
from services.shim_adapter.service import STATE_FILE, ShimOptions, ShimService
from shared.bus.errors import NotNowError
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.commands import CommandResult, PodSpec, SubmitPods
from shared.messages.envelope import SHIM_ADAPTER, Address, Envelope
from shared.runtime import machine as machines
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host, HostOptions
from tests.patience import patience, until

LABELS = {f"label-{at}": "x" * 1000 for at in range(20)}


def fill(service, *, is_full):
    """Let SQLite itself find that there is no room for another page, or that there is again."""
    database = service._store._db
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages if is_full else 1_000_000}")


def command(number):
    pod = PodSpec(f"pod-{number}", "app", {"vcore": 1}, labels=LABELS)
    return Envelope(
        f"c{number}", "SubmitPods", SubmitPods((pod,)), SHIM_ADAPTER, "api", reply_to="api.x#1"
    )


async def test_commands_wait_for_room_and_all_are_carried_out(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(machines, "PAUSE", lambda attempt: pauses.append(attempt) or 0.001)
    service, broker = ShimService(ShimOptions(state_dir=tmp_path)), MemoryBroker()
    options = HostOptions(heartbeat_ns=0, is_tapped=False)
    host = Host(
        SHIM_ADAPTER, service.make_machine, MemoryBus(broker), SystemClock(),
        instance="s", options=options,
    )  # fmt: skip
    task = asyncio.create_task(host.run())
    replies = await MemoryBus(broker).subscribe(Address("api", "x"))
    await until(lambda: host.machine.world.epoch, "the first turn")
    fill(service, is_full=True)
    await MemoryBus(broker).publish([command(number) for number in range(5)])
    await until(lambda: len(pauses) > 20, "it is tried again and again")
    assert not task.done()
    assert not any(inbox.waiting for name, inbox in broker.inboxes.items() if "api.x" in name)
    fill(service, is_full=False)
    got = []
    async with patience():
        while len(got) < 5:
            got += await replies.receive(10)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert [delivery.envelope.message for delivery in got] == [CommandResult(done=True)] * 5
    assert not broker.dead_letters
    service.close()
    store = ClusterStore(tmp_path / STATE_FILE)
    assert len(store.load().pods) == 5
    store.close()


def test_what_could_not_be_saved_is_saved_whole_when_it_can_be(tmp_path):
    service = ShimService(ShimOptions(state_dir=tmp_path))
    machine = service.make_machine()
    fill(service, is_full=True)
    machine.handle(command(1), 1)
    for _ in range(2):
        with pytest.raises(NotNowError, match=r"the state cannot be saved: .*full"):
            machine.flush(1)
    fill(service, is_full=False)
    machine.flush(1)
    service.close()
    store = ClusterStore(tmp_path / STATE_FILE)
    world = store.load()
    assert (len(world.pods), world.epoch) == (1, machine.world.epoch)
    store.close()


def test_what_was_answered_is_on_the_disk_when_the_power_goes(tmp_path):
    store = ClusterStore(tmp_path / STATE_FILE)
    full = 2
    assert store._db.execute("PRAGMA synchronous").fetchone() == (full,)
    store.close()
    assert sqlite3.connect(tmp_path / STATE_FILE).execute("PRAGMA journal_mode").fetchone()


def test_what_takes_long_to_save_is_said_to_and_may_be_saved_by_another_thread(tmp_path):
    service = ShimService(ShimOptions(state_dir=tmp_path, nodes=1))
    machine = service.make_machine()
    many = tuple(PodSpec(f"p-{at}", "app", {"vcore": 1}) for at in range(LONG_SAVE))
    machine.handle(Envelope("few", "SubmitPods", SubmitPods(many[:1]), SHIM_ADAPTER, "api"), 1)
    assert not machine.is_flush_long()
    machine.handle(Envelope("many", "SubmitPods", SubmitPods(many[1:]), SHIM_ADAPTER, "api"), 1)
    assert machine.is_flush_long()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(machine.flush, 2).result()
    assert not machine.is_flush_long()
    service.close()
    store = ClusterStore(tmp_path / STATE_FILE)
    assert len(store.load().pods) == LONG_SAVE
    store.close()


def test_what_is_kept_in_memory_only_is_never_long_to_save():
    machine = ShimService(ShimOptions(nodes=LONG_SAVE + 1)).make_machine()
    assert machine.world.changes() > LONG_SAVE
    assert not machine.is_flush_long()
