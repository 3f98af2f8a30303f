"""What is done to the services, the links, the broker and the disk: a fault ends when it returns.

Each takes what may be broken and a random source, and returns what it broke, in words.
"""

import random
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shared.bus.links import HEARTBEAT_SECONDS
from tests.broker import ContainerBroker, PrivateBroker
from tests.chaos.cluster import INSTANCES, Cluster

STATE_BYTES = 64 * 1024 * 1024
CLOCK_SECONDS = 300
KILL_BOUND_SECONDS = 2.0
STOP_BOUND_SECONDS = 3.0 * HEARTBEAT_SECONDS + KILL_BOUND_SECONDS  # noticed, then taken over
NOT_KEPT = "the state could not be saved"  # in the log
_WATCHED_SECONDS = 300.0
_SPUN_SECONDS = 0.02  # of CPU


def slowness() -> float:
    """Return how many times longer a piece of work takes here now than with a CPU of its own."""
    cpu, clock = time.thread_time(), time.monotonic()
    while (worked := time.thread_time() - cpu) < _SPUN_SECONDS:
        pass
    return max(1.0, (time.monotonic() - clock) / worked)


@dataclass
class Failover:
    """How long it took until the standby worked; ``bound`` is what is promised on a quiet machine.

    ``slower`` is what the machine was by the most meanwhile: what it was is no fault of ours.
    """

    bound: float
    seconds: list[float] = field(default_factory=list)
    slower: list[float] = field(default_factory=list)

    def note(self, took: float, slower: float) -> None:
        self.seconds.append(took)
        self.slower.append(slower)

    @property
    def late(self) -> list[float]:
        """Return what took longer than it may, on this machine as slow as it was."""
        both = zip(self.seconds, self.slower, strict=True)
        return [took for took, slower in both if took > self.bound * slower]


@dataclass
class Broken:
    """What faults may be done to, and the failovers that were seen."""

    cluster: Cluster
    broker: PrivateBroker | ContainerBroker
    disk: "Disk"
    failovers: dict[str, Failover] = field(
        default_factory=lambda: {
            "kill": Failover(KILL_BOUND_SECONDS),
            "stop": Failover(STOP_BOUND_SECONDS),
        }
    )

    def replaced(self, name: str, after: str) -> str:
        """Wait until the standby of an instance works; return what there is to say."""
        service = INSTANCES[name]
        others = [other for other in INSTANCES if INSTANCES[other] == service and other != name]
        paces: list[float] = []

        def works() -> bool:
            paces.append(slowness())
            return any(map(self.cluster.is_active, others))

        took = self.cluster.until(works, _WATCHED_SECONDS)
        if took is None:
            return f"{name}: no standby works after {_WATCHED_SECONDS:g} s"
        slower = statistics.fmean(paces)
        self.failovers[after].note(took, slower)
        return (
            f"{name}: its standby works after {took:.1f} s on a machine {slower:.1f} times as slow"
        )


class Disk:
    """The file system below the shim adapter's state, which can be filled up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Mount a small file system there. Raises OSError where that may not be."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES}", "tmpfs", str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise OSError(f"no file system of {STATE_BYTES} bytes at {folder}: {said.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        kept = folder.parent / "state-at-the-end"
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("filler"))
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _any(chance: random.Random, cluster: Cluster) -> str:
    """Return an instance: an active one in half of all cases."""
    service = chance.choice(["core", "timers"])
    active = cluster.active(service) if chance.random() < 0.5 else None
    return active or chance.choice(list(INSTANCES))


def _with_a_standby(chance: random.Random, cluster: Cluster) -> str | None:
    """Return the active core or timers, once its standby stands by, too."""
    cluster.until(lambda: all(map(cluster.is_ready, INSTANCES)), _WATCHED_SECONDS)
    return cluster.active(chance.choice(["core", "timers"]))


def _for_long(chance: random.Random, most: float) -> float:
    """Return 5 s or more, up to so many; short ones come more often."""
    return chance.triangular(5, most, 5)


def kill_active(chance: random.Random, broken: Broken) -> str:
    """kill -9 of the active core or timers; it is started again once the standby works."""
    cluster = broken.cluster
    name = _with_a_standby(chance, cluster)
    if name is None:
        return "nobody was active"
    cluster.kill(name)
    said = broken.replaced(name, "kill")
    cluster.raise_up(name)
    return said


def stop_active(chance: random.Random, broken: Broken) -> str:
    """SIGSTOP of the active core or timers until its standby works, and 5 s at least."""
    cluster = broken.cluster
    name = _with_a_standby(chance, cluster)
    if name is None:
        return "nobody was active"
    start = time.monotonic()
    process = cluster.processes[name]
    process.send_signal(signal.SIGSTOP)
    said = broken.replaced(name, "stop")
    time.sleep(max(0.0, 5.0 - (time.monotonic() - start)))
    process.send_signal(signal.SIGCONT)
    return said


def kill_one(chance: random.Random, broken: Broken) -> str:
    """kill -9 of any instance, started again at once."""
    name = _any(chance, broken.cluster)
    broken.cluster.kill(name)
    broken.cluster.raise_up(name)
    return name


def kill_shim(chance: random.Random, broken: Broken) -> str:
    """kill -9 of the shim adapter in the middle of what it writes."""
    broken.cluster.kill("shim-1")
    broken.cluster.raise_up("shim-1")
    return "shim-1"


def kill_all(chance: random.Random, broken: Broken) -> str:
    """kill -9 of every service at once."""
    for name in INSTANCES:
        broken.cluster.kill(name)
    for name in INSTANCES:
        broken.cluster.raise_up(name)
    return "all"


def stop_one(chance: random.Random, broken: Broken) -> str:
    """SIGSTOP of any instance for 5 to 30 s."""
    name, seconds = _any(chance, broken.cluster), _for_long(chance, 30)
    process = broken.cluster.processes[name]
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)
    return f"{name} for {seconds:.0f} s"


def broker_killed(chance: random.Random, broken: Broken) -> str:
    """kill -9 of the broker, as when the power goes; it is back after 0 to 8 s."""
    broken.broker.kill()
    return _broker_back(chance, broken)


def broker_stopped(chance: random.Random, broken: Broken) -> str:
    """The broker ends in order; it is back after 0 to 8 s."""
    broken.broker.stop()
    return _broker_back(chance, broken)


def _broker_back(chance: random.Random, broken: Broken) -> str:
    seconds = chance.uniform(0, 8)
    time.sleep(seconds)
    broken.broker.start()
    return f"for {seconds:.0f} s"


def broker_memory(chance: random.Random, broken: Broken) -> str:
    """The broker's memory alarm: it takes nothing from publishers for 5 to 25 s."""
    return _alarm(
        chance,
        broken,
        ("set_vm_memory_high_watermark", "absolute", "1MB"),
        ("set_vm_memory_high_watermark", "absolute", "2GB"),
    )


def broker_disk(chance: random.Random, broken: Broken) -> str:
    """The broker's disk alarm: it takes nothing from publishers for 5 to 25 s."""
    low = ("set_disk_free_limit", "50MB")
    return _alarm(chance, broken, ("set_disk_free_limit", "mem_relative", "1000.0"), low)


def _alarm(chance: random.Random, broken: Broken, on: tuple[str, ...], off: tuple[str, ...]) -> str:
    seconds = _for_long(chance, 25)
    broken.broker.control(*on)
    try:
        time.sleep(seconds)
    finally:
        broken.broker.control(*off)
    return f"for {seconds:.0f} s"


def link_stalled(chance: random.Random, broken: Broken) -> str:
    """Nothing gets through on an instance's link for 5 to 30 s."""
    return _stalled(chance, broken, up=True, down=True)


def link_deaf(chance: random.Random, broken: Broken) -> str:
    """An instance hears nothing of the broker for 5 to 30 s, and is heard."""
    return _stalled(chance, broken, up=False, down=True)


def link_mute(chance: random.Random, broken: Broken) -> str:
    """An instance is not heard for 5 to 30 s, and hears."""
    return _stalled(chance, broken, up=True, down=False)


def _stalled(chance: random.Random, broken: Broken, *, up: bool, down: bool) -> str:
    name, seconds = _any(chance, broken.cluster), _for_long(chance, 30)
    broken.cluster.links.stall(name, up=up, down=down)
    time.sleep(seconds)
    broken.cluster.links.mend(name)
    return f"{name} for {seconds:.0f} s"


def link_cut(chance: random.Random, broken: Broken) -> str:
    """An instance's connections are reset, and refused for up to 8 s."""
    name, seconds = _any(chance, broken.cluster), chance.uniform(0, 8)
    broken.cluster.links.cut(name)
    time.sleep(seconds)
    broken.cluster.links.mend(name)
    return f"{name} for {seconds:.0f} s"


def disk_full(chance: random.Random, broken: Broken) -> str:
    """The disk below the shim adapter is full for 5 to 25 s.

    It starts anew before: a journal that was long before is written over, and needs no room.
    """
    cluster, seconds = broken.cluster, _for_long(chance, 25)
    cluster.end("shim-1")
    cluster.raise_up("shim-1")
    cluster.until(lambda: cluster.is_active("shim-1"), _WATCHED_SECONDS)
    log = cluster.folder / "shim-1.log"
    before = log.read_text().count(NOT_KEPT)
    broken.disk.fill()
    try:
        time.sleep(seconds)
    finally:
        broken.disk.empty()
    return f"for {seconds:.0f} s, {log.read_text().count(NOT_KEPT) - before} attempts failed"


def clock_off(chance: random.Random, broken: Broken) -> str:
    """An instance comes back with a wall clock that is off by up to five minutes."""
    name = _any(chance, broken.cluster)
    offset = chance.randint(-CLOCK_SECONDS, CLOCK_SECONDS)
    broken.cluster.end(name)
    broken.cluster.offsets[name] = offset
    broken.cluster.raise_up(name)
    return f"{name} by {offset} s"


Fault = Callable[[random.Random, Broken], str]
FAULTS: dict[str, Fault] = {
    "kill -9 of the active one": kill_active,
    "SIGSTOP of the active one": stop_active,
    "kill -9 of any one": kill_one,
    "kill -9 of the shim adapter": kill_shim,
    "kill -9 of all": kill_all,
    "SIGSTOP of any one": stop_one,
    "broker killed": broker_killed,
    "broker stopped": broker_stopped,
    "broker out of memory": broker_memory,
    "broker out of disk": broker_disk,
    "link stalled": link_stalled,
    "link deaf": link_deaf,
    "link mute": link_mute,
    "link cut": link_cut,
    "disk full": disk_full,
    "clock off": clock_off,
}
