"""What a trace says: jobs, and the nodes that it comes with.

Times are whole nanoseconds from the first submission on; amounts are those of a pod.
"""

from dataclasses import dataclass, field, replace
from random import Random

from shared.model.resources import Resource
from shared.model.units import NANOS_PER_SECOND

MAX_JOBS = 1_000_000  # jobs of one trace; more are an error
FOREVER_NS = 2**62  # the run time of a job that never ends
WEEK_NS = 7 * 86_400 * NANOS_PER_SECOND
MIN_WEEKS = 2  # of a trace from which others are drawn
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

    def resampled(self, seed: int) -> "Trace":
        """Return another month, drawn from this one by seed: weeks and users; 0: as it is.

        A block bootstrap (Künsch 1989): for each week one of the trace's is drawn, the same for all
        users, and for each user one of the users; who is drawn twice is two users, whose jobs come
        at the same moments. Raises TraceError.
        """
        if not seed:
            return self
        length_ns = self.jobs[-1].submitted_ns + 1 if self.jobs else 0
        weeks = -(-length_ns // WEEK_NS)
        if weeks < MIN_WEEKS:
            raise TraceError(f"--resample: {self.name} has {weeks} week: {MIN_WEEKS} were expected")
        drawn = Random(seed)  # noqa: S311 - no secret
        blocks: dict[tuple[str, int], list[Job]] = {}
        for job in self.jobs:
            blocks.setdefault((job.user, job.submitted_ns // WEEK_NS), []).append(job)
        users = list(dict.fromkeys(job.user for job in self.jobs))
        week_of = [drawn.randrange(weeks) for _ in range(weeks)]
        times: dict[str, int] = {}
        made: list[Job] = []
        for user in drawn.choices(users, k=len(users)):
            times[user] = copy = times.get(user, 0) + 1
            for week, other in enumerate(week_of):
                later_ns = (week - other) * WEEK_NS
                made += [
                    _drawn(job, job.submitted_ns + later_ns, f"{week}.{copy}", copy)
                    for job in blocks.get((user, other), ())
                    if job.submitted_ns + later_ns < length_ns
                ]
            if len(made) > MAX_JOBS:
                raise TraceError(f"--resample: seed {seed} has more than {MAX_JOBS:,} jobs")
        return replace(self, jobs=in_order(made))

    def first(self, count: int) -> "Trace":
        """Return the first jobs alone."""
        return replace(self, jobs=self.jobs[:count])


def _moved(job: Job, submitted_ns: int) -> Job:
    return Job(job.name, submitted_ns, job.run_ns, job.queue, job.user, job.groups, job.stated_ns)


def _drawn(job: Job, submitted_ns: int, number: str, copy: int) -> Job:
    """Return a job as it is in another month; a user's second copy is another user."""
    user = job.user if copy == 1 else f"{job.user}~{copy}"
    return replace(job, name=f"{job.name}.{number}", submitted_ns=submitted_ns, user=user)


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
