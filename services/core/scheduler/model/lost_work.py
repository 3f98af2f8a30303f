"""What an eviction loses, and what service applications have had: device-time of their pods.

Rule 1: a pod that states ``muster.io/checkpoint-seconds`` has one every so often since it was
        placed; one that states none has its start. What it has done since is lost, but no more than
        AT_MOST is counted: who says nothing is as dear as an hour, and not dearer.
Rule 2: ``muster.io/restart-seconds`` is added: for how long it starts before it works again.
Rule 3: seconds count by device, in thousandths of a GPU; of a pod without one by its vcores.
Rule 4: attained service is the device-time of all pods of an application, those that ended with
        those that run; of one without devices its vcore-time. What ended before a recovery is not
        in it. Its level is how many of its leaf's ``attained.service.levels`` that comes to.
Rule 5: the service of an evicted application outlives it: the next one of the same job begins with
        it, until one has ended of which a pod ended well. Of one job are those of one leaf and user
        that state the same ``muster.io/job``, or else have the same ID.
Limit: MAX_JOBS jobs that may come again are remembered; of more, the first is forgotten.
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

AT_MOST_S = 3_600  # of lost work that counts, of each pod
WHOLE_DEVICE = 1_000
MAX_JOBS = 10_000  # evicted jobs whose service is remembered; the first is forgotten
MAX_READ = 10_000  # parsed texts of annotations; the oldest is forgotten
_read = lru_cache(MAX_READ)(parse_uint64)


def lost_s(allocation: Allocation, placed_ns: int, now_ns: int) -> int:
    """Return how many seconds of a pod are lost if it is evicted now."""
    ran_s = max(0, now_ns - placed_ns) // NANOS_PER_SECOND
    tags = allocation.allocation_tags
    interval_s = _read(tags.get(CHECKPOINT_SECONDS, ""))
    restart_s = _read(tags.get(RESTART_SECONDS, "")) or 0
    since_s = ran_s % interval_s if interval_s else ran_s
    return min(since_s, AT_MOST_S) + min(restart_s, AT_MOST_S)


def weight_of(allocation: Allocation) -> tuple[int, int]:
    """Return the thousandths of GPUs of a pod, or, without any, its milli-vcores."""
    resource = allocation.resource_per_alloc
    devices = resource.get(GPU, 0) * WHOLE_DEVICE + resource.get(GPU_SHARE, 0)
    return (devices, 0) if devices else (0, resource.get("vcore", 0))


def lost_with(application: Application, allocation: Allocation, now_ns: int) -> tuple[int, int]:
    """Return the device-seconds and vcore-seconds that a pod would lose, in thousandths.

    Of one of the two it has none.
    """
    placed_ns = application.placed_ns.get(allocation.allocation_key, now_ns)
    seconds = lost_s(allocation, placed_ns, now_ns)
    devices, vcore = weight_of(allocation)
    return devices * seconds, vcore * seconds


def lost_of(application: Application, now_ns: int) -> Iterator[tuple[int, int]]:
    """Yield that of each pod of an application that is not being released."""
    for key, allocation in application.allocations.items():
        if key not in application.released:
            yield lost_with(application, allocation, now_ns)


def served(application: Application, now_ns: int) -> tuple[int, int]:
    """Return the device-ns and vcore-ns that an application has had, in thousandths."""
    devices_ns, vcore_ns = application.served
    for key, allocation in application.allocations.items():
        ran_ns = now_ns - application.placed_ns.get(key, now_ns)
        devices, vcore = weight_of(allocation)
        devices_ns, vcore_ns = devices_ns + devices * ran_ns, vcore_ns + vcore * ran_ns
    return devices_ns, vcore_ns


def service_level(application: Application, now_ns: int) -> int:
    """Return the level of an application in its leaf; 0 where there are none."""
    levels = application.queue.settings.service_levels_ns
    if not levels:
        return 0
    devices_ns, vcore_ns = served(application, now_ns)
    had_ns = (devices_ns or vcore_ns) // WHOLE_DEVICE
    return sum(had_ns >= level_ns for level_ns in levels)


class JobsEvicted:
    """What service jobs have had that were evicted and may come again."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], tuple[int, int]] = {}

    def had(self, application: Application) -> tuple[int, int]:
        """Return the device-ns and vcore-ns with which an application begins, in thousandths."""
        return self._served.get(_job_of(application), (0, 0))

    def evicted(self, application: Application) -> None:
        """Remember what an application has had of which a pod was evicted, and has ended."""
        job = _job_of(application)
        self._served.pop(job, None)
        if len(self._served) >= MAX_JOBS:
            del self._served[next(iter(self._served))]
        self._served[job] = application.served

    def ended(self, application: Application) -> None:
        """Forget a job of which a pod has ended well: the next application begins at nothing."""
        if application.succeeded:
            self._served.pop(_job_of(application), None)


def _job_of(application: Application) -> tuple[str, str, str]:
    request = application.request
    name = request.tags.get(JOB) or application.id
    return application.queue.path, request.ugi.user, name
