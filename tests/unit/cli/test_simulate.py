"""`muster simulate`: what it prints of a seed that holds, and of one that does not."""

import re

from tools.simulate.run import run
from tools.simulate.shrink import shrunk


def test_a_seed_that_holds_is_a_line_and_its_sums(muster):
    result = muster("simulate", "--seed", "3", "--faults", "")
    assert result.status == 0
    first, second = result.out.splitlines()
    assert re.fullmatch(r"seed 3 holds, digest [0-9a-f]{32}", first)
    assert re.fullmatch(r"1 runs, \d+ messages, 0 faults, [\d.]+ runs a second of CPU", second)


def test_a_seed_that_fails_is_made_small_and_said_with_the_command_that_replays_it(muster):
    """Seed 0 needs a fault to fail without its guard, and not all of those that it has."""
    guard = ("--without", "handled-once")
    result = muster("simulate", "--seed", "0", *guard)
    assert result.status == 1
    (said,) = re.findall(
        r"^replay: muster simulate --seed 0 --faults '([\d,]+)'", result.out, re.MULTILINE
    )
    assert 1 <= len(said.split(",")) <= 6
    assert result.out.count("--without handled-once") == 1
    assert muster("simulate", "--seed", "0", "--faults", said, *guard).status == 1
    assert muster("simulate", "--seed", "0", "--faults", said).status == 0


def test_what_is_typed_wrong_is_one_sentence(muster):
    for faults in ("a,b", "-1", "1.5", "9" * 5_000):
        assert "numbers with commas" in muster("simulate", "--faults", faults).err
    result = muster("simulate", "--without", "luck")
    assert (result.status, "there are handled-once" in result.err) == (2, True)


def test_a_run_that_holds_without_any_fault_is_shrunk_to_none(monkeypatch):
    """Where every run fails, no fault is needed."""
    outcome = run(8)
    always = lambda seed, only=None, partitions=None, racks=None: type(outcome)(  # noqa: E731
        seed, ["fails"], faults=[f for f in outcome.faults if only is None or f.index in only]
    )
    monkeypatch.setattr("tools.simulate.shrink.run", always)
    assert shrunk(always(8)).faults == []


def test_two_faults_that_only_fail_together_are_what_is_left(monkeypatch):
    outcome = run(8)
    wanted = {outcome.faults[0].index, outcome.faults[-1].index}

    def together(seed, only=None, partitions=None, racks=None):
        left = [f for f in outcome.faults if only is None or f.index in only]
        fails = wanted <= {f.index for f in left}
        return type(outcome)(seed, ["fails"] if fails else [], faults=left)

    monkeypatch.setattr("tools.simulate.shrink.run", together)
    assert {fault.index for fault in shrunk(together(8)).faults} == wanted
