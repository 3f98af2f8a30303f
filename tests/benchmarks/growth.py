"""What one operation costs as the cluster grows, axis by axis: ``make bench-growth``.

    make bench-growth                               # every axis, some minutes
    make bench-growth ARGS="--only users"           # the axes whose name contains a word
    make bench-growth ARGS="--small"                # two decades: does it run at all
    make bench-growth ARGS="--steps"                # steps of the interpreter: no quiet is needed
    make bench-growth ARGS="--steps --check"        # exits with 1 where an exponent is over its bound

An axis is a core that has so much of something, and an operation on it: one pod that comes or ends,
a look for victims, a configuration. Printed are the CPU milliseconds of the operation at each size,
its median; the exponent between the last two sizes and over all of them (0: it costs the same
however much there is, 1: ten times as much costs ten times); and the longest hold of the loop in
all of it, the making of the core left out.

With ``--steps`` it is the steps of the interpreter that are printed, in thousands, which no other work
on the machine changes; what C does in one step, as a sort or numpy, is one. The bound of the
exponent over all sizes is MOST; ``tests/benchmarks/test_growth.py`` counts some axes at other sizes.
"""

import argparse
import gc
import math
import statistics
import sys
from collections.abc import Iterator

from shared.runtime.service import spare_the_collector
from tests.benchmarks.axes import AXES, Axis
from tests.work import counting

MAX_COUNTED = 4  # operations whose steps are counted
MOST = 0.3  # of an exponent over all sizes


# --- measuring ----------------------------------------------------------------------------------


def exponent(small: tuple[int, float], large: tuple[int, float]) -> float:
    """Return by which power of the size a cost has grown."""
    return math.log(large[1] / small[1]) / math.log(large[0] / small[0])


def measured(axis: Axis, size: int, turns: int) -> tuple[float, float]:
    """Return the CPU ms of an operation, and the longest hold of the loop in ms."""
    driver, turn = axis.make(size)
    gc.collect()
    driver.longest = 0.0
    took = []
    for at in range(turns):
        driver.cpu = 0.0
        turn(at)
        took.append(driver.cpu * 1_000 / (size if axis.by_size else 1))
    return statistics.median(took), driver.longest * 1_000


def counted(axis: Axis, size: int, turns: int) -> tuple[float, float]:
    """Return the thousand steps of the interpreter of an operation, and those of the longest hold.

    The first operation, in which is made what is made once, is left out where there are others.
    """
    driver, turn = axis.make(size)
    took = []
    for at in range(turns):
        if at <= 1:
            driver.longest = 0.0
        driver.cpu = 0.0
        with counting() as driver.clock:
            turn(at)
        took.append(driver.cpu / 1_000 / (size if axis.by_size else 1))
    return statistics.median(took[1:] or took), driver.longest / 1_000


def rows(
    chosen: dict[str, Axis], *, small: bool, steps: bool = False
) -> Iterator[tuple[str, float]]:
    """Yield a line for each axis, and by how much its exponent is over its bound."""
    for name, axis in chosen.items():
        sizes = axis.sizes[:2] if small else axis.sizes
        turns = min(axis.turns, MAX_COUNTED) if steps else axis.turns
        measure = counted if steps else measured
        costs = {size: measure(axis, size, turns) for size in sizes}
        points = [(size, cost) for size, (cost, _) in costs.items()]
        last, whole = exponent(*points[-2:]), exponent(points[0], points[-1])
        shown = " ".join(f"{size:>7,}:{cost:>9.3f}" for size, cost in points)
        hold = max(longest for _, longest in costs.values())
        yield f"{name:<32} {shown:<72} {last:>6.2f} {whole:>6.2f} {hold:>9.1f}", whole - MOST


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="axes with this in their name")
    parser.add_argument("--steps", action="store_true", help="count steps, which need no quiet")
    parser.add_argument("--check", action="store_true", help="fail where one grows too fast")
    parser.add_argument("--small", action="store_true", help="the two smallest sizes")
    arguments = parser.parse_args()
    spare_the_collector()
    words = arguments.only
    chosen = {n: a for n, a in AXES.items() if not words or any(word in n for word in words)}
    unit = "steps/1,000" if arguments.steps else "CPU ms"
    title = f"size: {unit} of one operation"
    print(f"{'axis':<32} {title:<72} {'last':>6} {'all':>6} {'hold':>9}")
    over = []
    for line, above in rows(chosen, small=arguments.small, steps=arguments.steps):
        print(line, flush=True)
        over += [line] if above > 0 else []
    if arguments.check and over:
        sys.exit("\n".join(["an exponent is over its bound:", *over]))


if __name__ == "__main__":
    main()
