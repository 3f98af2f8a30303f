"""The watched queues.yaml: what changes takes effect, what is refused is said everywhere."""

import asyncio
from contextlib import suppress

import structlog
from prometheus_client import REGISTRY

from services.cli.launcher import LocalCluster
from services.shim_adapter import config_watch
from services.shim_adapter.service import ShimOptions
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.runtime.clock import SystemClock
from tests.builders import config_of
from tests.patience import until


async def test_a_change_of_the_file_takes_effect_and_a_bad_one_changes_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(config_watch, "LOOK_SECONDS", 0.01)
    read, read_file = [], config_watch._read
    monkeypatch.setattr(
        config_watch, "_read", lambda path: read.append(read_file(path)) or read[-1]
    )
    file = tmp_path / "queues.yaml"
    file.write_text(config_of("{name: a}"))
    broker = MemoryBroker()
    cluster = LocalCluster(
        lambda: MemoryBus(broker), SystemClock(), ShimOptions(config=file.read_text())
    )
    await cluster.start()
    watching = asyncio.create_task(
        config_watch.watch(lambda: cluster.host_of("shim_adapter"), file)
    )

    def queues():
        return list(cluster.api.partitions.default.model.queues)

    def error():
        partition = cluster.api.partitions.default.model.partition
        return partition.config_error if partition else ""

    try:
        await until(lambda: "root.a" in queues())
        file.write_text(config_of("{name: a}", "{name: b}"))
        await until(lambda: "root.b" in queues())
        with structlog.testing.capture_logs() as logs:
            file.write_text(config_of("{name: a}", "{name: 'no name'}"))
            await until(lambda: "invalid queue name" in error())
            await until(lambda: any("refused" in entry["event"] for entry in logs))
        assert queues() == ["root", "root.a", "root.b"]
        assert REGISTRY.get_sample_value("muster_queue_configuration_refused") == 1
        events = cluster.api.partitions.default.model.events.read(0, 100)
        assert any("invalid queue name" in event.message for event in events)
        file.unlink()  # as in the middle of a change
        await until(lambda: read[-1] is None, "it is looked at meanwhile")
        file.write_text(config_of("{name: a}", "{name: c}"))
        await until(lambda: "root.c" in queues())
        assert error() == ""
        await until(lambda: REGISTRY.get_sample_value("muster_queue_configuration_refused") == 0)
        await cluster.crash("shim_adapter")
        await cluster.start_service("shim_adapter")
        assert cluster.shim_service._world.config == file.read_text()
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await cluster.stop()
