"""All metrics of a replica: those of its process, and of the read model."""

import asyncio
from contextlib import suppress

from prometheus_client import Gauge, generate_latest

import shared.runtime.latency  # noqa: F401 - its histograms are there, be it without a value
from services.api.replica import Replica
from services.api.yunikorn.metrics import yunikorn_metrics
from shared.bus.dead_letters import note_dead_letters
from shared.bus.errors import BusClosedError, BusUnavailableError

_LOOK_SECONDS = 2.0


_AT_WORK = Gauge(
    "muster_at_work", "1 while an instance of a service works, else 0", ["service", "partition"]
)
_AGE = Gauge("muster_state_age_seconds", "How old the state is that this replica shows")


def note_works(replica: Replica) -> None:
    """Set the metrics of working instances: at most one per service and partition."""
    _AT_WORK.clear()
    for (service, partition), works in replica.works().items():
        _AT_WORK.labels(service, partition).set(works)
    _AGE.set(replica.age_seconds(replica.away()))


async def all_metrics(replica: Replica) -> bytes:
    """Return the metrics as text; only those of the process until there is a read model."""
    with suppress(BusUnavailableError, BusClosedError, TimeoutError):
        async with asyncio.timeout(_LOOK_SECONDS):
            note_dead_letters((await replica.host.dead_letters(0)).total)
    partitions = replica.partitions
    note_works(replica)
    models = partitions.models
    return generate_latest() + (yunikorn_metrics(models, partitions.events) if models else b"")
