"""Logs of rigid gangs with wall times, drawn by seed, and what a replay makes of them."""

from dataclasses import dataclass
from random import Random

from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import Job, Trace, in_order
from tools.replay.run import Replay
from tools.replay.setup import setup_of

S = NANOS_PER_SECOND
WALLS = (300, 900, 1800, 3600, 7200, 14400)
SIZES = (1, 1, 2, 2, 3, 4, 4, 5, 8, 8, 16, 32)


@dataclass(frozen=True)
class Line:
    """A line of a log, in seconds and processors."""

    submit: int
    run: int
    size: int
    wall: int
    user: str = "user"


def drawn(seed: int, jobs: int, processors: int, load: float) -> list[Line]:
    """Return a log that asks for a share of the processors, with wall times that are not exact."""
    random = Random(seed)
    made = []
    for _ in range(jobs):
        wall = random.choice(WALLS)
        run = max(1, int(wall * random.choice([1.0, random.random(), random.random() ** 2])))
        made.append((run, min(processors, random.choice(SIZES)), wall))
    gap = sum(run * size for run, size, _ in made) / jobs / processors / load
    at, log = 0.0, []
    for run, size, wall in made:
        log.append(Line(int(at), run, size, wall))
        at += random.expovariate(1 / gap)
    return log


USERS, SESSION = 12, 10  # people, and how many jobs alike each submits before they change


def repeated(seed: int, jobs: int, processors: int, load: float) -> list[Line]:
    """Return a log of people who submit jobs alike, with wall times of two to twenty times."""
    random = Random(seed)
    kinds: dict[int, tuple[int, int, int]] = {}
    made = []
    for _ in range(jobs):
        user = random.randrange(USERS)
        if user not in kinds or not random.randrange(SESSION):
            run = int(10 ** random.uniform(1.5, 4))
            wall = next((w for w in WALLS if w >= run * random.uniform(2, 20)), WALLS[-1])
            kinds[user] = (run, min(processors, random.choice(SIZES)), max(wall, 2 * run))
        run, size, wall = kinds[user]
        made.append((max(1, int(run * random.uniform(0.8, 1.1))), size, wall, f"user-{user}"))
    gap = sum(run * size for run, size, _, _ in made) / jobs / processors / load
    start, log = 0.0, []
    for run, size, wall, user in made:
        log.append(Line(int(start), run, size, wall, user))
        start += random.expovariate(1 / gap)
    return log


def starts_of(
    log: list[Line], nodes: int, *, is_stated: bool, backfill: str = "enabled"
) -> list[int]:
    """Return when the jobs of a log start with a ``backfill``, in seconds."""
    trace = trace_of(log, nodes, is_stated=is_stated)
    outcome = replay_of(trace, backfill=backfill).run()
    starts = {run.job.name: run.started_ns // S for run in outcome.runs}
    return [starts[f"job-{at}"] for at in range(len(log))]


def trace_of(log: list[Line], nodes: int, a_node: int = 1, *, is_stated: bool = True) -> Trace:
    jobs = [
        Job(
            f"job-{at}",
            line.submit * S,
            line.run * S,
            "all",
            line.user,
            _pods(line.size, a_node),
            line.wall * S if is_stated else 0,
        )
        for at, line in enumerate(log)
    ]
    return Trace("drawn", in_order(jobs), "vcore", nodes, {"vcore": 1000 * a_node, "pods": 110})


def _pods(size: int, a_node: int):
    whole, rest = divmod(size, a_node)
    groups = ((whole, a_node),) * bool(whole) + ((1, rest),) * bool(rest)
    return tuple((count, {"vcore": 1000 * cpus, "pods": 1}) for count, cpus in groups)


def replay_of(trace: Trace, **settings: str) -> Replay:
    return Replay(trace, setup_of(trace, "easy", scheduler={"preset": "muster", **settings}))


def bounded_slowdown(log: list[Line], starts: list[int]) -> float:
    each = [
        max(1.0, (start - line.submit + line.run) / max(line.run, 10))
        for line, start in zip(log, starts, strict=True)
    ]
    return sum(each) / len(each)
