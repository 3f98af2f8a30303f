"""Lost work of an eviction, and attained service of applications: device-time of their pods.

Rule 1: a pod with ``muster.io/checkpoint-seconds`` has a checkpoint at that interval since its
        allocation, a pod without it only its start. Its work since then is lost, counted up to
        AT_MOST_S.
Rule 2: ``muster.io/restart-seconds``, the time until a restarted pod works again, is added.
Rule 3: seconds are multiplied by the pod's devices, in thousandths of a GPU; without devices by its
        vcores.
Rule 4: attained service is the device-time of all pods of an application, ended and running;
        without devices its vcore-time. What ended before a recovery is not included. Its level is
        the number of its leaf's ``attained.service.levels`` that it has reached.
Rule 5: the service of an evicted application is kept: the next application of the same job starts
        with it, until one has ended with a succeeded pod. A job is identified by leaf, user, and
        ``muster.io/job``, else the application ID.
Limit: MAX_JOBS evicted jobs; the oldest is dropped.
Source: Gu et al. 2019, Tiresias (two-dimensional least attained service, discretized).
"""

from collections.abc import Iterator
from functools import lru_cache

from services.core.scheduler.model.rows import Application
from shared.messages.interface import Allocation
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.names import CHECKPOINT_SECONDS, JOB, RESTART_SECONDS
from shared.model.numbers import parse_uint64
from shared.model.units import NANOS_PER_SECOND

AT_MOST_S = 3_600  # largest lost work counted for a pod
WHOLE_DEVICE = 1_000
MAX_JOBS = 10_000  # evicted jobs whose service is remembered; the first is forgotten
MAX_READ = 10_000  # parsed texts of annotations; the oldest is forgotten
_read = lru_cache(MAX_READ)(parse_uint64)


def lost_s(allocation: Allocation, placed_ns: int, now_ns: int) -> int:
    """Return how many seconds of a pod's work are lost if it is evicted now."""
    ran_s = max(0, now_ns - placed_ns) // NANOS_PER_SECOND
    tags = allocation.allocation_tags
    interval_s = _read(tags.get(CHECKPOINT_SECONDS, ""))
    restart_s = _read(tags.get(RESTART_SECONDS, "")) or 0
    since_s = ran_s % interval_s if interval_s else ran_s
    return min(since_s, AT_MOST_S) + min(restart_s, AT_MOST_S)


def weight_of(allocation: Allocation) -> tuple[int, int]:
    """Return a pod's thousandths of GPUs, or, without GPUs, its milli-vcores, as a pair."""
    resource = allocation.resource_per_alloc
    devices = resource.get(GPU, 0) * WHOLE_DEVICE + resource.get(GPU_SHARE, 0)
    return (devices, 0) if devices else (0, resource.get("vcore", 0))


def lost_with(application: Application, allocation: Allocation, now_ns: int) -> tuple[int, int]:
    """Return the device-seconds and vcore-seconds that a pod would lose, in thousandths.

    One of the two is 0.
    """
    placed_ns = application.placed_ns.get(allocation.allocation_key, now_ns)
    seconds = lost_s(allocation, placed_ns, now_ns)
    devices, vcore = weight_of(allocation)
    return devices * seconds, vcore * seconds


def lost_of(application: Application, now_ns: int) -> Iterator[tuple[int, int]]:
    """Yield the same for each pod of an application that is not being released."""
    for key, allocation in application.allocations.items():
        if key not in application.released:
            yield lost_with(application, allocation, now_ns)


def served(application: Application, now_ns: int) -> tuple[int, int]:
    """Return the device-ns and vcore-ns of an application's service, in thousandths."""
    devices_ns, vcore_ns = application.served
    for key, allocation in application.allocations.items():
        ran_ns = now_ns - application.placed_ns.get(key, now_ns)
        devices, vcore = weight_of(allocation)
        devices_ns, vcore_ns = devices_ns + devices * ran_ns, vcore_ns + vcore * ran_ns
    return devices_ns, vcore_ns


def service_level(application: Application, now_ns: int) -> int:
    """Return an application's service level, 0 if its leaf has none."""
    levels = application.queue.settings.service_levels_ns
    if not levels:
        return 0
    devices_ns, vcore_ns = served(application, now_ns)
    had_ns = (devices_ns or vcore_ns) // WHOLE_DEVICE
    return sum(had_ns >= level_ns for level_ns in levels)


class JobsEvicted:
    """The service of evicted jobs that may be submitted again."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], tuple[int, int]] = {}

    def had(self, application: Application) -> tuple[int, int]:
        """Return the device-ns and vcore-ns that a new application starts with, in thousandths."""
        return self._served.get(_job_of(application), (0, 0))

    def evicted(self, application: Application) -> None:
        """Record the service of an application after an evicted pod ended."""
        job = _job_of(application)
        self._served.pop(job, None)
        if len(self._served) >= MAX_JOBS:
            del self._served[next(iter(self._served))]
        self._served[job] = application.served

    def ended(self, application: Application) -> None:
        """Drop a job of which a pod succeeded: its next application starts at 0."""
        if application.succeeded:
            self._served.pop(_job_of(application), None)


def _job_of(application: Application) -> tuple[str, str, str]:
    request = application.request
    name = request.tags.get(JOB) or application.id
    return application.queue.path, request.ugi.user, name
