"""`muster simulate`: what it says of many seeds, run one after the other or several at a time."""

import pytest

from services.cli.exits import Exit
from tools.simulate.command import Seeds, simulate_seeds


def said_of(capsys, seeds, only=None, guard=None):
    status = simulate_seeds(seeds, None, only, guard)
    lines = capsys.readouterr().out.splitlines()
    return status, [line.split(" runs a second")[0].rpartition(",")[0] or line for line in lines]


@pytest.mark.long
def test_with_two_jobs_the_same_is_said_and_the_sums_are_those_of_all_runs(capsys):
    status, alone = said_of(capsys, Seeds(0, 3))
    assert (status, said_of(capsys, Seeds(0, 3, jobs=2))) == (Exit.DONE, (Exit.DONE, alone))
    runs, messages, faults = (int(part.split()[0]) for part in alone[0].split(", "))
    assert (runs, faults) == (3, sum(int(line.split()[1]) for line in alone[1:]))
    assert messages > 3 * 300


@pytest.mark.long
def test_with_two_jobs_a_guard_is_out_in_each_and_the_first_seed_that_fails_ends_it(capsys):
    alone = said_of(capsys, Seeds(0, 50), set(), "gang-is-whole")
    assert alone[0] == Exit.REFUSED
    assert alone == said_of(capsys, Seeds(0, 50, jobs=2), set(), "gang-is-whole")


def test_the_time_that_there_is_ends_seeds_without_an_end(capsys):
    assert simulate_seeds(Seeds(3, None), 0.0, set(), None) == Exit.DONE
    assert capsys.readouterr().out.startswith("seed 3 holds")
