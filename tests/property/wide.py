"""Wide gangs among jobs of a whole node: the micro test of docs/schedule.md."""

from random import Random

from shared.model.gpus import GPU
from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import Job, Trace, in_order
from tools.replay.run import Replay
from tools.replay.setup import setup_of

S = NANOS_PER_SECOND
NODES, HOUR = 75, 3600
QUEUES = ("a", "b", "c")
WARM_HOURS, HOURS = 6, 12
GANGS = (16, 32)


def micro(seed: int, *, with_gangs: bool) -> Trace:
    """Return jobs of 8 GPUs in three queues at 110 % of 75 nodes, and two gangs in a fourth."""
    random = Random(seed)
    jobs, at = [], 0.0
    while at < HOURS * HOUR:
        run = random.expovariate(1 / HOUR)
        jobs.append(_job(f"job-{len(jobs)}", at, run, random.choice(QUEUES), 1))
        at += random.expovariate(1.1 * NODES / HOUR)
    for gpus in GANGS if with_gangs else ():
        jobs.append(_job(f"gang-{gpus}", WARM_HOURS * HOUR, HOUR, "wide", gpus // 8))
    return Trace("micro", in_order(jobs), GPU, NODES, {GPU: 8, "pods": 110})


def _job(name: str, at: float, run: float, queue: str, pods: int) -> Job:
    return Job(name, int(at * S), int(run * S) + S, queue, "user", ((pods, {GPU: 8, "pods": 1}),))


def ended(outcome) -> dict[str, int]:
    """Return how many jobs of each queue ended while jobs came."""
    return {
        queue: sum(
            0 <= run.ended_ns <= HOURS * HOUR * S for run in outcome.runs if run.job.queue == queue
        )
        for queue in QUEUES
    }


def micro_row(seed: int, settings: dict[str, str]) -> tuple[list[float], float]:
    """Return the waits of both gangs in seconds, and the most that a queue loses, in per cent."""
    queues = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [%s]}]}]"
    text = queues % ", ".join(f"{{name: {name}}}" for name in (*QUEUES, "wide"))
    found = {}
    for with_gangs in (False, True):
        trace = micro(seed, with_gangs=with_gangs)
        setup = setup_of(trace, "micro", queues=text, scheduler=settings)
        found[with_gangs] = Replay(trace, setup).run()
    before, after = ended(found[False]), ended(found[True])
    waits = [
        (run.started_ns - run.job.submitted_ns) / S
        for run in found[True].runs
        if run.job.queue == "wide"
    ]
    return waits, max(100 - 100 * after[queue] / before[queue] for queue in QUEUES)
