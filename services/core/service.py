"""The core as a service: creates the scheduler of each partition."""

from functools import partial

import structlog
from prometheus_client import Histogram

from services.core.configuration import ReadOnce
from services.core.forecast_process import CAN_COPY, ForecastProcess
from services.core.plugins import find_plugin
from services.core.scheduler.model.forecasts import P50, P90
from services.core.scheduler.model.timings import Timings
from services.core.scheduler.policies.questions import Questions
from services.core.scheduler.scheduler import Scheduler
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND
from shared.runtime.latency import STOPWATCHES

_read = ReadOnce()  # shared by all schedulers of this process: a restarted one parses nothing again
_ERROR = Histogram(
    "muster_forecast_error_seconds",
    "Distance of the actual start from the forecast: the median, or the one for nine in ten",
    ["of"],
    buckets=(60, 300, 900, 3_600, 4 * 3_600, 24 * 3_600),
)
for _of in (P50, P90):
    _ERROR.labels(_of)  # exported from the start
log = structlog.get_logger("muster.core")


def make_machine(
    instance: str, partition: str = DEFAULT_PARTITION, *, copies: bool = CAN_COPY
) -> Scheduler:
    """Return a partition's scheduler without state: it recovers at its first message.

    With ``copies`` a copy of the process answers what-ifs, otherwise they run between two batches.
    """
    return Scheduler(
        instance,
        partial(_read, partition=partition),
        find_plugin,
        log.error,
        Timings(**STOPWATCHES),
        name=partition,
        questions=Questions(ForecastProcess() if copies else None, _observe),
    )


def _observe(which: str, error_ns: int) -> None:
    _ERROR.labels(which).observe(error_ns / NANOS_PER_SECOND)
