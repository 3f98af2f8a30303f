"""The core as a service: the machine of each partition."""

from functools import partial

import structlog

from services.core.configuration import ReadOnce
from services.core.plugins import find_plugin
from services.core.scheduler.model.timings import Timings
from services.core.scheduler.scheduler import Scheduler
from shared.model.names import DEFAULT_PARTITION
from shared.runtime.latency import STOPWATCHES

_read = ReadOnce()  # of all machines of this process: one that starts over reads nothing again
log = structlog.get_logger("muster.core")


def make_machine(instance: str, partition: str = DEFAULT_PARTITION) -> Scheduler:
    """Return a partition's scheduler that knows nothing yet: it recovers at the first message."""
    parse = partial(_read, partition=partition)
    return Scheduler(
        instance, parse, find_plugin, log.error, Timings(**STOPWATCHES), name=partition
    )
