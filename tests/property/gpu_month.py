"""A month of a GPU cluster in which gangs dominate, drawn by seed from published figures.

The figures are those of Helios (Hu et al., SC'21; its cluster Venus) in round numbers: of the jobs
that use GPUs the median runs 206 s and the mean 6,652 s; most ask for one GPU, but the few
wide ones have half of the GPU time; people submit what they have submitted before, and a third of
all jobs ends early; at night half as much is submitted as by day.
Nobody states a run time. Sizes and times are scaled after they are drawn, so that each seed has
the same load and the same share of wide gangs.
"""

from dataclasses import dataclass
from math import exp, log
from random import Random

from shared.model.gpus import GPU
from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import Job, Trace, in_order

NODES, A_NODE = 36, 8
LOAD, DAYS, JOBS = 0.85, 30, 19_000
WIDE_JOBS, WIDE_TIME = 0.076, 0.53  # shares of the jobs, and of the GPU time
USERS, QUEUES = 120, 12
HABITS = 3  # kinds of jobs that a user goes back to
NEW_HABIT = 0.03  # how often one of them is given up for another
MEDIAN_S, MEAN_S = 206, 6_652
SPREAD = (2 * log(MEAN_S / MEDIAN_S)) ** 0.5  # of a lognormal with this median and this mean
SPREAD_OF_ONE = 1.0  # of the same kind of one user; the rest is between the kinds
FAILED = 0.33  # of the jobs end before their time
LONGEST_S = {True: 21_600, False: 86_400}  # of a wide gang, and of others
NARROW = {1: 60, 2: 12, 4: 13, 8: 15}  # GPUs, and how often
WIDE = {2: 52, 3: 5, 4: 28, 6: 3, 8: 10, 16: 2}  # nodes, and how often
NIGHT, NIGHT_HOURS = 0.5, range(8)
DAY_S = 86_400


@dataclass(frozen=True)
class Habit:
    """A kind of job of one user: how many GPUs, and for how long half of them run at least."""

    gpus: int
    median_s: float


def gpu_month(seed: int, *, load: float = LOAD, jobs: int = JOBS, days: int = DAYS) -> Trace:
    """Return a month: 36 nodes of 8 GPUs, 12 queues; the shorter the month, the fewer its jobs."""
    random = Random(seed)
    weights = [1 / (rank + 1) for rank in range(USERS)]
    queue_of = [random.randrange(QUEUES) for _ in range(USERS)]
    habits = [[_habit(random) for _ in range(HABITS)] for _ in range(USERS)]
    users = random.choices(range(USERS), weights, k=jobs)
    wide = set(random.sample(range(jobs), round(WIDE_JOBS * jobs)))
    made: list[tuple[int, int, float]] = []
    for at, user in enumerate(users):
        habit = _next(random, habits[user], is_wide=at in wide)
        run_s = habit.median_s * exp(random.gauss(0, SPREAD_OF_ONE))
        if random.random() < FAILED:
            run_s *= random.random() ** 2
        made.append((user, habit.gpus, run_s))
    made = _scaled(made, load * NODES * A_NODE * days * DAY_S)
    moments = sorted(_moment(random, days) for _ in made)
    drawn = [
        Job(
            f"job-{at}",
            int(moment * NANOS_PER_SECOND),
            int(run_s * NANOS_PER_SECOND),
            f"vc-{queue_of[user]}",
            f"user-{user}",
            _pods(gpus),
        )
        for at, (moment, (user, gpus, run_s)) in enumerate(zip(moments, made, strict=True))
    ]
    return Trace(f"gpu-month-{seed}", in_order(drawn), GPU, NODES, {GPU: A_NODE, "pods": 110})


def _habit(random: Random, *, is_wide: bool | None = None) -> Habit:
    if is_wide is None:
        is_wide = random.random() < WIDE_JOBS
    sizes = WIDE if is_wide else NARROW
    size = random.choices(list(sizes), list(sizes.values()))[0] * (A_NODE if is_wide else 1)
    between = (SPREAD**2 - SPREAD_OF_ONE**2) ** 0.5
    return Habit(size, MEDIAN_S * exp(random.gauss(0, between)))


def _next(random: Random, habits: list[Habit], *, is_wide: bool) -> Habit:
    """Return one of a user's kinds that is wide or is not; it is a new one now and then."""
    own = [habit for habit in habits if (habit.gpus > A_NODE) == is_wide]
    if own and random.random() >= NEW_HABIT:
        return random.choice(own)
    new = _habit(random, is_wide=is_wide)
    if own:
        habits[habits.index(random.choice(own))] = new
    else:
        habits.append(new)
    return new


def _scaled(made: list[tuple[int, int, float]], gpu_s: float) -> list[tuple[int, int, float]]:
    """Return jobs with run times scaled so that wide ones have their share of so many GPU s.

    None runs for longer than is let.
    """
    scaled = {}
    for is_wide, share in ((True, WIDE_TIME), (False, 1 - WIDE_TIME)):
        own = [(gpus, run_s) for _, gpus, run_s in made if (gpus > A_NODE) == is_wide]
        scaled[is_wide] = _factor(own, LONGEST_S[is_wide], share * gpu_s)
    return [
        (user, gpus, _run_s(run_s, scaled[gpus > A_NODE], LONGEST_S[gpus > A_NODE]))
        for user, gpus, run_s in made
    ]


def _factor(jobs: list[tuple[int, float]], longest_s: int, gpu_s: float) -> float:
    """Return by what run times are to be multiplied to come to so many GPU s; 1/1000 is near."""
    least, most = 0.0, 1000.0
    for _ in range(40):
        factor = (least + most) / 2
        total = sum(gpus * _run_s(run_s, factor, longest_s) for gpus, run_s in jobs)
        least, most = (factor, most) if total < gpu_s else (least, factor)
    return factor


def _run_s(run_s: float, factor: float, longest_s: int) -> float:
    return min(longest_s, max(1.0, factor * run_s))


def _moment(random: Random, days: int) -> float:
    while True:
        moment = random.uniform(0, days * DAY_S)
        if moment % DAY_S // 3_600 not in NIGHT_HOURS or random.random() < NIGHT:
            return moment


def _pods(gpus: int) -> tuple[tuple[int, dict[str, int]], ...]:
    if gpus <= A_NODE:
        return ((1, {GPU: gpus, "pods": 1}),)
    return ((gpus // A_NODE, {GPU: A_NODE, "pods": 1}),)
