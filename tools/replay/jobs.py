"""What a trace says: jobs, and the nodes that it comes with.

Times are whole nanoseconds from the first submission on; amounts are those of a pod.
"""

from dataclasses import dataclass, field, replace
from random import Random

from shared.model.resources import Resource
from shared.model.units import NANOS_PER_SECOND

MAX_JOBS = 1_000_000  # of one trace; more are an error, and none is left out
FOREVER_NS = 2**62  # the run time of a job that never ends
MAX_PODS = 10_000  # pods of one job of a trace; more are an error


class TraceError(ValueError):
    """A trace that cannot be read; the message has file, line, column and what was expected."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its pods in groups of alike ones, and for how long they run once all have started.

    ``stated_ns`` is the run time that its owner states (0: none), which may be longer.
    """

    name: str
    submitted_ns: int
    run_ns: int
    queue: str
    user: str
    groups: tuple[tuple[int, Resource], ...]
    stated_ns: int = 0

    @property
    def pods(self) -> int:
        """Return how many pods it has."""
        return sum(count for count, _ in self.groups)

    def amount(self, name: str) -> int:
        """Return how much of a resource all its pods ask for."""
        return sum(count * pod.get(name, 0) for count, pod in self.groups)


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a trace in the order of their submission, and what it says of its cluster.

    ``size_of`` is the resource by which a job's size is told; ``nodes`` how many nodes of which
    ``capacity`` there are where nothing else is said (0: the trace does not say). ``left_out`` says
    how many lines of it are no jobs, by reason.
    """

    name: str
    jobs: tuple[Job, ...]
    size_of: str
    nodes: int = 0
    capacity: Resource = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    def seeded(self, seed: int, spread_seconds: int) -> "Trace":
        """Return it with every submission moved by chance, up to so far either way; 0: as it is."""
        if not seed:
            return self
        drawn = Random(seed)  # noqa: S311 - no secret
        spread_ns = spread_seconds * NANOS_PER_SECOND
        moved = [
            _moved(job, max(0, job.submitted_ns + drawn.randint(-spread_ns, spread_ns)))
            for job in self.jobs
        ]
        return replace(self, jobs=in_order(moved))

    def first(self, count: int) -> "Trace":
        """Return the first jobs alone."""
        return replace(self, jobs=self.jobs[:count])


def _moved(job: Job, submitted_ns: int) -> Job:
    return Job(job.name, submitted_ns, job.run_ns, job.queue, job.user, job.groups, job.stated_ns)


def in_order(jobs: list[Job]) -> tuple[Job, ...]:
    """Return jobs by submission, those of one moment as they stand; the first is at 0."""
    jobs = sorted(jobs, key=lambda job: job.submitted_ns)
    first_ns = jobs[0].submitted_ns if jobs else 0
    return tuple(_moved(job, job.submitted_ns - first_ns) for job in jobs)


def pods_of(amount: int, most: int, name: str) -> tuple[tuple[int, Resource], ...]:
    """Return a job's pods: as many of ``most`` as it fills, and one of what is left."""
    whole, rest = divmod(amount, most)
    groups: list[tuple[int, Resource]] = []
    if whole:
        groups.append((whole, {name: most, "pods": 1}))
    if rest:
        groups.append((1, {name: rest, "pods": 1}))
    return tuple(groups)
