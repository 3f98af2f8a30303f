"""``make test`` draws the same examples everywhere; ``make soak`` draws others each time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[2]
DRAW = """
import sys
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

sys.path[:0] = [sys.argv[1], sys.argv[2]]
import tests.conftest
import own_constants
import shared.model.units

drawn = []

@given(st.lists(st.integers() | st.text() | st.floats() | st.sampled_from("abc")))
def test(values):
    drawn.append(repr(values))

class Machine(RuleBasedStateMachine):
    @rule(number=st.integers())
    def one(self, number):
        drawn.append(repr(number))

    @rule(data=st.data())
    def other(self, data):
        drawn.append(data.draw(st.text()))

test()
run_state_machine_as_test(Machine)
print(ascii(drawn))
"""


@pytest.fixture
def drawn(tmp_path):
    """Draw in a process of its own, which knows other constants, hashes and names of folders."""

    def draw(number):
        folder = tmp_path / f"clone-{number}"
        folder.mkdir()
        own = [f"FOUND_{at} = {at * number}_777, 'word {at}'" for at in range(1, 1 + 400 * number)]
        (folder / "own_constants.py").write_text("\n".join(own))
        environment = dict(os.environ, PYTHONHASHSEED=str(number), HYPOTHESIS_PROFILE="default")
        command = [sys.executable, "-c", DRAW, str(ROOT), str(folder)]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env=environment
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return draw


def test_the_examples_are_the_same_in_every_clone_of_this_commit(drawn):
    one, other = drawn(1), drawn(2)
    assert one == other
    assert len(one) > 10_000


@pytest.mark.parametrize(
    ("name", "is_fixed"), [("default", True), ("soak", False), ("hunt", False)]
)
def test_a_soak_draws_others_and_keeps_what_it_finds(name, is_fixed):
    profile = settings.get_profile(name)
    assert profile.derandomize is is_fixed
    assert (profile.database is None) is (name != "soak")
