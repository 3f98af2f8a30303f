"""What mutants are made of, and the list of those that may live: it is of lines that are there."""

import pytest

from tests.mutation.covering import covering, pure_files
from tests.mutation.mutants import SEED, lines_of, mutants, survivors
from tests.mutation.trials import ROOT


def test_a_survivor_is_listed_with_a_reason_and_its_line_is_there():
    there = {(line.function, line.text) for path in pure_files() for line in lines_of(path)}
    for row in survivors():
        assert set(row) == {"function", "line", "now", "reason"}
        assert len(row["reason"]) > 20, row
        assert (row["function"], row["line"]) in there, row


def test_most_functions_have_tests_that_are_known_to_run_them():
    known = covering()
    functions = {line.function for path in pure_files() for line in lines_of(path)}
    assert sum(bool(known.get(name)) for name in functions) > 0.8 * len(functions)


def test_the_lines_of_a_sample_do_not_change_with_what_stands_above_them(tmp_path, monkeypatch):
    path = tmp_path / "pure.py"
    monkeypatch.setattr("tests.mutation.covering.ROOT", tmp_path)
    text = "def one(a: int) -> bool:\n    assert a > 0\n    return a > 3\n"
    path.write_text(text)
    before = list(lines_of(path))
    path.write_text("def other() -> int:\n    return 1\n\n\n" + text)
    after = [line for line in lines_of(path) if line.function.endswith("one")]
    assert [line.text for line in before] == ["return a > 3"]
    assert [line.order(SEED) for line in after] == [line.order(SEED) for line in before]
    assert [line.number for line in after] == [before[0].number + 4]


@pytest.mark.parametrize("seed", [SEED, "another"])
def test_a_mutant_is_one_line_of_a_file_that_reads_otherwise(seed):
    for mutant in mutants(3, seed):
        before = (ROOT / mutant.path).read_text().splitlines()
        after = mutant.text.splitlines()
        (changed,) = [at for at, line in enumerate(before) if line != after[at]]
        assert changed + 1 == mutant.line.number
        assert after[changed].strip() == mutant.now
