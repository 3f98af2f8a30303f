"""Failover with several partitions: how long until each that a core had is decided for again.

Two cores share PARTITIONS. One is killed, and later stopped: of each partition that it was active
for it is measured when the other one has recovered it, as the metrics say. The bounds are those of
one partition (ADR 55), for partitions are taken over side by side.
"""

import json
import signal
import statistics
import time
import uuid
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.faults import (
    KILL_BOUND_SECONDS,
    STOP_BOUND_SECONDS,
    Failover,
    slowness,
)
from tests.patience import PATIENCE_SECONDS

PARTITIONS = ("default", "p1", "p2", "p3")
CORES = ("core-1", "core-2")


class Shared(Cluster):
    """A cluster whose cores share several partitions."""

    def __init__(self, broker_url: str, folder: Path) -> None:
        super().__init__(None, broker_url, folder, f"partitions-{uuid.uuid4().hex[:8]}")
        root = {"name": "root", "submitacl": "*"}
        parts = [{"name": name, "queues": [root]} for name in PARTITIONS]
        file = folder / "queues.yaml"
        file.write_text(json.dumps({"partitions": parts}), encoding="utf-8")
        self.environment["MUSTER_QUEUES_FILE"] = str(file)

    def held(self, core: str) -> set[str]:
        """Return the partitions that a core is active for, and has recovered."""
        text = self._asked(f"{self.health[core]}/metrics") or ""
        return {name for name in PARTITIONS if f"{_figure(name)} 1.0\n" in text}

    def is_shared(self) -> bool:
        """Return whether each core has half of the partitions."""
        held = [self.held(core) for core in CORES]
        return [len(names) for names in held] == [2, 2] and set.union(*held) == {*PARTITIONS}

    def taken_over(self, missing: set[str], by: str, failover: Failover) -> None:
        """Note of each partition that is without a core when another one has it."""
        start, paces = time.monotonic(), [slowness()]
        while missing:
            waited = time.monotonic() - start
            assert waited < PATIENCE_SECONDS, f"nobody decides for {sorted(missing)}"
            found = missing & self.held(by)
            paces.append(slowness())
            for _ in sorted(found):
                failover.note(time.monotonic() - start, statistics.fmean(paces))
            missing -= found
            time.sleep(0.03)


def _figure(partition: str) -> str:
    where = "" if partition == PARTITIONS[0] else f'partition="{partition}",'
    return f'muster_is_synced{{{where}service="core"}}'


def failovers(broker_url: str, folder: Path) -> dict[str, Failover]:
    """Kill a core, and stop one; return how long each partition of theirs was without one."""
    found = {"kill": Failover(KILL_BOUND_SECONDS), "stop": Failover(STOP_BOUND_SECONDS)}
    cluster = Shared(broker_url, folder)
    try:
        cluster.start_all()
        cluster.wait(cluster.is_shared, "each core has two partitions")
        missing = cluster.held(CORES[0])
        cluster.kill(CORES[0])
        cluster.taken_over(missing, CORES[1], found["kill"])
        cluster.raise_up(CORES[0])
        cluster.wait(cluster.is_shared, "each core has two partitions again")
        process, missing = cluster.processes[CORES[1]], cluster.held(CORES[1])
        process.send_signal(signal.SIGSTOP)
        try:
            cluster.taken_over(missing, CORES[0], found["stop"])
        finally:
            process.send_signal(signal.SIGCONT)
        cluster.wait(cluster.is_shared, "each core has two partitions after the stop")
    finally:
        cluster.stop()
    return found
