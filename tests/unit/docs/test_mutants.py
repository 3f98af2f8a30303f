"""What mutants are made of, and the list of those that may live: it is of lines that are there."""

import pytest

from tests.mutation.covering import pure_files
from tests.mutation.mutants import LEAST, ROWS_LEAST, SEED, lines_of, mutants, sample
from tests.mutation.trials import ROOT


def test_who_may_live_has_a_reason_and_all_others_a_test():
    rows = sample()
    for row in rows:
        said = [text for text in (row.test, row.equal, row.lives) if text]
        assert len(said) == 1, row
        assert len(said[0]) > 20, row
    noticed, live = sum(bool(row.test) for row in rows), sum(bool(row.lives) for row in rows)
    assert noticed >= LEAST * (noticed + live)


def test_most_of_the_sample_is_of_lines_that_are_there():
    there = {
        (line.function, line.text, line.copy) for path in pure_files() for line in lines_of(path)
    }
    assert sum((row.function, row.line, row.copy) in there for row in sample()) >= ROWS_LEAST


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
