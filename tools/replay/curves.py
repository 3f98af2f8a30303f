"""What the pictures of a replay are drawn from: its course, thinned, and how slow its jobs were.

Rule: however many jobs there are, a course has at most POINTS parts. A part is as long as the
others, a power of two of seconds, so that the courses of several replays can be laid side by side:
two parts beside one another are one of twice the length. What is shown of a part is the mean over
it, or what holds at its end; sums are whole numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import pairwise

from shared.model.units import NANOS_PER_SECOND
from tools.replay.figures import slowdown
from tools.replay.run import Outcome, Run, Series

POINTS = 240  # parts of a replay's time that are drawn; longer ones are taken together
MAX_GANGS = 20  # widest gangs of a replay that are drawn one by one; the others are not drawn
PERCENTS = 100  # quantiles of the slowdown that are drawn


@dataclass(frozen=True, slots=True)
class Course:
    """What was so over time: of each part the integral (value times ns), and the value at its end.

    All parts are ``step_ns`` long but the last, which ends at ``end_ns``.
    """

    step_ns: int
    end_ns: int
    integrals: tuple[int, ...]
    finals: tuple[int, ...]

    def means(self) -> list[float]:
        """Return the mean of each part."""
        return [
            total / (min(self.end_ns, (at + 1) * self.step_ns) - at * self.step_ns)
            for at, total in enumerate(self.integrals)
        ]

    def widened(self, step_ns: int) -> "Course":
        """Return it in parts of that length, which is its own doubled so many times."""
        course = self
        while course.step_ns < step_ns:
            sums, finals = course.integrals, course.finals
            pairs = range(0, len(sums), 2)
            course = Course(
                course.step_ns * 2,
                course.end_ns,
                tuple(sum(sums[at : at + 2]) for at in pairs),
                tuple(finals[at : at + 2][-1] for at in pairs),
            )
        return course


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang as it is drawn; -1: it did not come to it, or has not ended."""

    name: str
    size: int
    submitted_ns: int
    started_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Curves:
    """A replay as it is drawn; used, broken and waiting as in its Series.

    ``submitted_ns`` is the last submission; ``slowdowns`` are those of 0, 1, … 100 percent of the
    jobs that started, none where nobody did. ``widest`` are the widest gangs by submission.
    """

    capacity: int
    submitted_ns: int
    used: Course
    broken: Course
    waiting: Course
    evictions: Course
    slowdowns: tuple[float, ...]
    widest: tuple[Gang, ...] = ()

    def widened(self, step_ns: int) -> "Curves":
        """Return it with its courses in parts of that length."""
        courses = (self.used, self.broken, self.waiting, self.evictions)
        used, broken, waiting, evictions = (course.widened(step_ns) for course in courses)
        return replace(self, used=used, broken=broken, waiting=waiting, evictions=evictions)


def curves_of(outcome: Outcome) -> Curves:
    """Return a replay as it is drawn: until the last job has come, and nobody waits any more."""
    submitted_ns = outcome.runs[-1].job.submitted_ns
    series = outcome.series
    end_ns = max(submitted_ns, _settled_ns(series)) or series.at_ns[-1] or NANOS_PER_SECOND
    slow = sorted(slowdown(run) for run in outcome.runs if run.started_ns >= 0)
    last = len(slow) - 1
    used, broken, waiting, evictions = (
        course_of(series.at_ns, values, end_ns)
        for values in (series.used, series.broken, series.waiting, series.evictions)
    )
    return Curves(
        outcome.capacity,
        submitted_ns,
        used,
        broken,
        waiting,
        evictions,
        tuple(slow[last * at // PERCENTS] for at in range(PERCENTS + 1)) if slow else (),
        _widest(outcome.runs, outcome.trace.size_of),
    )


def _widest(runs: Sequence[Run], size_of: str) -> tuple[Gang, ...]:
    """Return the widest gangs, of those alike the first that came, in the order they came."""
    gangs = (run for run in runs if run.job.pods > 1)
    chosen = nsmallest(MAX_GANGS, gangs, key=lambda run: -run.job.amount(size_of))
    return tuple(
        Gang(
            run.job.name,
            run.job.amount(size_of),
            run.job.submitted_ns,
            run.started_ns,
            run.ended_ns,
        )
        for run in sorted(chosen, key=lambda run: run.job.submitted_ns)
    )


def _settled_ns(series: Series) -> int:
    """Return from when on nobody waits and nobody is evicted; the end where somebody always waits.

    Who never starts waits to the end.
    """
    at = len(series.at_ns)
    while at and not series.waiting[at - 1] and series.evictions[at - 1] == series.evictions[-1]:
        at -= 1
    return series.at_ns[min(at, len(series.at_ns) - 1)]


def course_of(at_ns: Sequence[int], values: Sequence[int], end_ns: int) -> Course:
    """Return the course of values, each of which holds from its moment to the next.

    What holds at the end is the last part's final value; before the first moment it is 0.
    """
    step_ns = NANOS_PER_SECOND
    while step_ns * POINTS < end_ns:
        step_ns *= 2
    parts = -(-end_ns // step_ns)
    integrals, finals = [0] * parts, [0] * parts
    for (start_ns, stop_ns), value in zip(pairwise((*at_ns, end_ns)), values, strict=True):
        if start_ns > end_ns:
            break
        here_ns = start_ns
        finals[min(here_ns // step_ns, parts - 1)] = value
        while here_ns < min(stop_ns, end_ns):
            part = here_ns // step_ns
            next_ns = min(stop_ns, end_ns, (part + 1) * step_ns)
            integrals[part] += value * (next_ns - here_ns)
            finals[part] = value
            here_ns = next_ns
    return Course(step_ns, end_ns, tuple(integrals), tuple(finals))
