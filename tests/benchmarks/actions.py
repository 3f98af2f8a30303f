"""How long actions take to decide on large clusters: ``make bench-actions``.

A cluster of nodes with 8 accelerators, full: reclaim one of them; reclaim for a gang of 250; move
41 jobs together; find out that a gang can never start. Each at growing sizes, with the growth.
"""

import argparse
import time

import numpy as np

from services.core.scheduler.kai import engine
from services.core.scheduler.kai.fair_share import set_fair_shares
from services.core.scheduler.kai.session import (
    UNLIMITED,
    Job,
    Queue,
    Session,
    SessionSettings,
    Status,
    Task,
)

NAMES = ("vcore", "memory", "nvidia.com/gpu")
SIZES = (125, 500, 2000)
GPUS = 8


def session_of(nodes: int) -> tuple[Session, Queue, Queue]:
    """Return a session with two queues that share a cluster by halves."""
    capacity = np.tile(np.array([128_000, 10**12, GPUS], np.int64), (nodes, 1))
    names = [f"node-{at}" for at in range(nodes)]
    session = Session(NAMES, names, capacity, SessionSettings(max_consolidation_victims=-1))
    top = session.add_queue(Queue("default", 0, quota=[UNLIMITED] * 3, weight=[1, 1, 1]))
    half = nodes * GPUS // 2
    queues = [
        session.add_queue(
            Queue(name, at, top, quota=[UNLIMITED, UNLIMITED, half], weight=[1, 1, 1])
        )
        for at, name in enumerate(("one", "two"), start=1)
    ]
    return session, queues[0], queues[1]


def add_job(session, queue, name, number, gpus, *, members=1, nodes=None, priority=50) -> Job:
    job = Job(name, queue, priority, number, min_available=members)
    for at in range(members):
        node = nodes[at] if nodes else -1
        status = Status.RUNNING if nodes else Status.PENDING
        job.tasks.append(Task(f"{name}-{at}", job, (1000, 10**9, gpus), at, 0, status, node))
    session.add_job(job)
    return job


def full(nodes: int) -> tuple[Session, Queue]:
    """Return a cluster that queue one has filled with jobs of one accelerator."""
    session, one, two = session_of(nodes)
    for number in range(nodes * GPUS):
        add_job(session, one, f"job-{number}", number, 1, nodes=[number // GPUS])
    return session, two


def reclaim_one(nodes: int):
    session, two = full(nodes)
    add_job(session, two, "wants", 10**6, 1)
    return session, ["reclaim"], lambda found: sum(d.evicts for d in found) == 1


def reclaim_gang(nodes: int):
    session, two = full(nodes)
    add_job(session, two, "gang", 10**6, 1, members=250)
    return session, ["reclaim"], lambda found: sum(d.evicts for d in found) == 250


def consolidate(nodes: int):
    """41 jobs wait for a whole node each; half of every node is taken by jobs that may move."""
    session, one, two = session_of(nodes)
    for number in range(nodes):
        add_job(session, one, f"half-{number}", number, GPUS // 2, nodes=[number])
    for number in range(41):
        add_job(session, two, f"whole-{number}", 10**6 + number, GPUS)
    return session, ["consolidation"], lambda found: sum(d.evicts for d in found) >= 41


def unschedulable(nodes: int):
    session, two = full(nodes)
    add_job(session, two, "never", 10**6, GPUS, members=nodes + 1)
    return session, ["allocate", "consolidation", "reclaim", "preempt"], lambda found: not found


CASES = {
    "reclaim one accelerator": reclaim_one,
    "reclaim for a gang of 250": reclaim_gang,
    "consolidate 41 jobs": consolidate,
    "declare a gang unschedulable": unschedulable,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    sizes = parser.parse_args().sizes
    print(f"{'seconds to decide':<30}" + "".join(f"{size:>10}" for size in sizes) + "    growth")
    for name, make in CASES.items():
        times = []
        for size in sizes:
            session, actions, holds = make(size)
            set_fair_shares(session)
            start = time.perf_counter()
            found = engine.run(session, actions)
            times.append(time.perf_counter() - start)
            assert holds(found), f"{name} at {size} nodes: {len(found)} decisions"
        growth = times[-1] / times[0] if times[0] else 0.0
        print(f"{name:<30}" + "".join(f"{t:>10.3f}" for t in times) + f"    {growth:.1f}x")


if __name__ == "__main__":
    main()
