"""What an operation costs does not grow with what there is of something: in steps, not in time.

The axes are those of ``make bench-growth``. What is counted is one operation each, on a core that
has little of it and on one that has sixteen times as much.
"""

import math
import statistics
from dataclasses import replace

import pytest

from tests.benchmarks.axes import AXES, Axis
from tests.benchmarks.growth import rows
from tests.work import steps

MOST = 0.3  # the exponent: sixteen times as much of something costs at most 2.3 times
FEW, MANY = 20, 320
SIZES = {
    "node terms": (50, 1_600),  # more than are remembered
    "gangs that wait for nodes": (50, 400),
    "shapes that would fit": (1, 500),
}
HELD = (
    "users over their limit",
    "own anti-affinity",
    "gangs that wait",
    "queues of one user",
    "leaves, one of them",
    "node terms",
    "shapes on a full cluster",
    "shapes that would fit",
    "behind the head gang",
    "gangs that wait for nodes",
    "limits",
    "foreign pods",
    "reserved nodes",
    "devices",
    "applications that end",
    "dynamic queues",
    "one max among queues",
    "nodes that come",
)
QUICK = 3  # of these are in make test


def cost(name: str, size: int) -> float:
    _, turn = AXES[name].make(size)
    turn(0)  # what is made at the first time only
    return statistics.median(steps(lambda at=at: turn(at)) for at in range(1, 6))


@pytest.mark.parametrize(
    "name", [*HELD[:QUICK], *[pytest.param(name, marks=pytest.mark.long) for name in HELD[QUICK:]]]
)
def test_one_operation_costs_the_same_on_a_larger_cluster(name):
    small, large = SIZES.get(name, (FEW, MANY))
    few, many = cost(name, small), cost(name, large)
    assert math.log(many / few) / math.log(large / small) <= MOST, (few, many)


def test_an_axis_that_grows_is_over_its_bound():
    def grows(size: int):
        driver, turn = AXES["nodes"].make(20)
        return driver, lambda _: [turn(at) for at in range(size)]

    def stays(_: int):
        return AXES["nodes"].make(20)

    axes = {"grows": Axis(grows, sizes=(2, 20)), "stays": Axis(stays, sizes=(2, 20))}
    (_, grown), (_, stayed) = rows(axes, small=True, steps=True)
    assert grown > 0 > stayed


@pytest.mark.long
@pytest.mark.parametrize("name", AXES)
def test_every_axis_has_its_line_at_its_smallest_sizes(name):
    axis = replace(AXES[name], turns=1)
    ((line, _),) = rows({name: axis}, small=True)
    assert line.startswith(name)
    assert all(f"{size:,}:" in line for size in axis.sizes[:2])
