"""What topology costs, and whether a placement is ever missed: ``make bench-topology``.

CPU milliseconds of placing and of refusing a gang of 512 in slices, at growing sizes; what a tree
costs pods that ask for none of it, in pairs; gangs of like pods on random trees against every
placement that there is; and months of jobs in racks (``racks.py``).
"""

import argparse
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from services.core.scheduler.actions import domain_places
from shared.messages.interface import NodeAction, NodeInfo
from tests.benchmarks import racks
from tests.builders import Core
from tests.domains import HOST, LEVELS, cluster, counts, gang, near
from tests.property.test_topology import domains, holds

SIZES = ((1_000, 64, 4), (10_000, 640, 40))  # nodes, racks, blocks
SLICES = (("block", 128), ("rack", 16))
PLACES = 2  # of a node
MEMBERS = 512
ROUNDS = 5
CASES = 10_000
JOBS, DAYS = 5_000, 10  # of the replays in racks
ROWS = ("cost", "plain", "missed", "several", "required", "elastic", "failures")


def large(nodes: int, racks: int, blocks: int, *, levels: Any = LEVELS) -> Core:
    """Return a core with nodes in racks of blocks."""
    core = Core(settings=levels)
    for at in range(0, nodes, 500):
        rows = [(row, row * racks // nodes) for row in range(at, min(nodes, at + 500))]
        news = (
            NodeInfo(
                f"n{row:05d}",
                NodeAction.CREATE,
                {"vcore": PLACES},
                labels={"block": f"b{rack * blocks // racks}", "rack": f"r{rack}", HOST: f"n{row}"},
            )
            for row, rack in rows
        )
        core.update(nodes=tuple(news))
    return core


def cost_of_finding(core: Core, wish: Any, what: str = "find", name: str = "gang") -> float:
    """Return the CPU milliseconds of looking for the places of a gang."""
    taken: list[float] = []
    find = getattr(domain_places, what)

    def timed(*args: Any, **more: Any) -> Any:
        began = time.process_time()
        found = find(*args, **more)
        taken.append(1_000 * (time.process_time() - began))
        return found

    setattr(domain_places, what, timed)
    try:
        gang(core, name, ("w", MEMBERS, wish))
    finally:
        setattr(domain_places, what, find)
    return sum(taken[:1])


def rows_of_cost(sizes: Any) -> None:
    """Print what placing and refusing cost at each size, and how they grow.

    What is refused: all slices in one block, which holds half of them.
    """
    print("| nodes | racks | blocks | place | refuse | refuse, full |")
    print("|---|---|---|---|---|---|")
    wishes = (near(slices=SLICES), near(required="block", slices=SLICES[1:]))
    rows = []
    for size in sizes:
        costs = [
            median(cost_of_finding(seen(*size), wish) for _ in range(ROUNDS)) for wish in wishes
        ]
        costs.append(cost_of_refusing_at_a_full_cluster(*size))
        rows.append(costs)
        printed = " | ".join(f"{cost:.1f}" for cost in costs)
        print(f"| {' | '.join(f'{part:,}' for part in size)} | {printed} |")
    if len(rows) > 1:
        grown = " | ".join(f"{last / first:.2f}" for first, last in zip(*rows, strict=True))
        print(f"| times | | | {grown} |")


def seen(nodes: int, racks: int, blocks: int) -> Core:
    """Return a core that has seen a pod like those of the gang: it knows the nodes' order."""
    core = large(nodes, racks, blocks)
    gang(core, "before", ("w", 1, near(required="rack")))
    return core


def cost_of_refusing_at_a_full_cluster(nodes: int, racks: int, blocks: int) -> float:
    """Return the CPU milliseconds of what a gang lacks for which all nodes have no room."""
    core = large(nodes, racks, blocks)
    core.application("full")
    core.asks("full", ["taken"], {"vcore": PLACES})
    for at in range(0, nodes, 500):
        taken = [f"full-{row}" for row in range(at, min(nodes, at + 500) - (not at))]
        core.asks("full", taken, {"vcore": PLACES})
    return median(
        cost_of_finding(core, near(required="rack", slices=(("host", 2),)), "lack", f"gang-{at}")
        for at in range(ROUNDS)
    )


def cost_of_plain(levels: Any) -> float:
    """Return the CPU milliseconds of a thousand plain asks."""
    core = large(2_000, 64, 4, levels=levels)
    core.application("plain")
    began = time.process_time()
    for at in range(1_000):
        core.asks("plain", [f"p{at}"], {"vcore": 1})
    return 1_000 * (time.process_time() - began)


def row_of_plain() -> None:
    """Print what plain asks cost with a tree, of what they cost without."""
    pairs = [(cost_of_plain(LEVELS), cost_of_plain(())) for _ in range(2 * ROUNDS)]
    with_tree, without = (min(column) for column in zip(*pairs, strict=True))
    print(f"plain asks with a tree: {with_tree / without:.3f} of without ({without:.0f} ms)")


def row_of_missed(cases: int) -> None:
    """Print how many gangs of like pods were missed that have a placement, or placed without."""
    rng = random.Random(1)
    missed = wrong = fitting = 0
    for _ in range(cases):
        blocks = [
            [
                [rng.randint(0, 4) for _ in range(rng.randint(1, 3))]
                for _ in range(rng.randint(1, 3))
            ]
            for _ in range(rng.randint(1, 3))
        ]
        level = rng.choice(("block", "rack"))
        slices = rng.choice(((), (("host", 2),), (("rack", 2),)))
        count = 2 * rng.randint(1, 6)
        fits = any(holds(places, slices) >= count for places in domains(blocks, level))
        core = cluster(blocks)
        gang(core, "gang", ("w", count, near(required=level, slices=slices)))
        placed = sum(counts(core)) == count
        fitting += fits
        missed += fits and not placed
        wrong += placed and not fits
    print(f"of {cases:,} random trees {fitting:,} hold the gang: missed {missed}, wrong {wrong}")


def main() -> None:
    """Print every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--small", action="store_true", help="few jobs: figures of nothing")
    parser.add_argument("--only", choices=ROWS, action="append", help="may be repeated")
    options = parser.parse_args()
    jobs, days = (300, 2) if options.small else (JOBS, DAYS)
    sizes = SIZES[:1] if options.small else SIZES
    rows: dict[str, Callable[[], None]] = {
        "cost": lambda: rows_of_cost(sizes),
        "plain": row_of_plain,
        "missed": lambda: row_of_missed(options.cases),
        "several": lambda: racks.row_of_several_racks(jobs),
        "required": lambda: racks.row_of_required_racks(jobs),
        "elastic": lambda: racks.row_of_elastic(jobs),
        "failures": lambda: racks.row_of_failures(days),
    }
    for name in options.only or ROWS:
        rows[name]()


if __name__ == "__main__":
    main()
