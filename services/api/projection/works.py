"""Which instances are at work, according to what active instances send with each heartbeat.

Rule 1: an instance is at work if it has handled one of its own heartbeats, or decided something,
        within the last ``silence_ns``: three heartbeats and their transport.
Rule 2: messages of a lower epoch than the latest are ignored: another core has taken over.
Rule 3: no service is reported silent before the replica itself has listened for that long.
Used by readiness, the healthcheck, metrics, the page's header and commands.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shared.messages.envelope import PARTITIONED, Envelope
from shared.messages.protocol import AtWork
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND

# In the order in which they are named.
_NAMES = {"core": "core", "shim_adapter": "shim adapter", "timers": "timer service"}


@dataclass(slots=True)
class Worker:
    """The last instance of a service, its last message and epoch; ``unready_ns``: recovering."""

    instance: str
    heard_ns: int
    epoch: int
    unready_ns: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """A service of a partition that is not at work: since when, and its last process ("": none).

    ``is_recovering``: it is at work, and still recovering.
    """

    service: str
    partition: str
    since_ns: int
    instance: str = ""
    is_recovering: bool = False

    def sentence(self, now_ns: int) -> str:
        """Return it as a sentence: "no core has been at work for 12 s"."""
        seconds = max(0, now_ns - self.since_ns) // NANOS_PER_SECOND
        name = _NAMES[self.service]
        if self.partition != DEFAULT_PARTITION:
            name += f" of partition {self.partition}"
        if self.is_recovering:
            return f"the {name} has been recovering for {seconds} s"
        return f"no {name} has been at work for {seconds} s"


class Works:
    """The last reports of the services, by service and partition."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Worker] = {}

    def hear(self, envelope: Envelope, now_ns: int) -> None:
        """Record an instance at work, by an AtWork message or a core's decision."""
        key = envelope.source, envelope.partition.lower()
        before = self._of.get(key)
        if before is not None and envelope.epoch < before.epoch:
            return
        message = envelope.message
        if isinstance(message, AtWork):
            unready_ns = (before.unready_ns if before else 0) or now_ns
            ready = 0 if message.is_ready else unready_ns
            self._of[key] = Worker(message.instance, now_ns, envelope.epoch, ready)
        elif before is not None:
            before.heard_ns = now_ns

    def at_work(
        self, partitions: Iterable[str], now_ns: int, silence_ns: int
    ) -> dict[tuple[str, str], bool]:
        """Return whether each service of each partition is at work and has recovered."""
        return {
            (service, partition): worker is not None and not is_silent and not worker.unready_ns
            for service, partition, worker, is_silent in self._heard(partitions, now_ns, silence_ns)
        }

    def silent(
        self, partitions: Iterable[str], started_ns: int, now_ns: int, silence_ns: int
    ) -> list[Silence]:
        """Return the services not at work, the core first; ``started_ns``: when listening began."""
        found: list[Silence] = []
        listened = now_ns - started_ns > silence_ns
        for service, partition, worker, is_silent in self._heard(partitions, now_ns, silence_ns):
            name = worker.instance if worker else ""
            if is_silent and listened:
                since_ns = max(started_ns, worker.heard_ns if worker else 0)
                found.append(Silence(service, partition, since_ns, name))
            elif worker is not None and worker.unready_ns:
                found.append(
                    Silence(service, partition, worker.unready_ns, name, is_recovering=True)
                )
        return found

    def _heard(
        self, partitions: Iterable[str], now_ns: int, silence_ns: int
    ) -> Iterator[tuple[str, str, Worker | None, bool]]:
        """Yield each service of each partition with its last instance, and whether it is silent."""
        names = list(partitions)
        for service in _NAMES:
            for partition in names if service in PARTITIONED else [DEFAULT_PARTITION]:
                worker = self._of.get((service, partition.lower()))
                yield (
                    service,
                    partition,
                    worker,
                    (worker is None or now_ns - worker.heard_ns > silence_ns),
                )
