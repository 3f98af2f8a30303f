"""`scripts/check_words.py`: citations lead to a heading, no document names an issue, hints on words."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import check_words  # noqa: E402

WRONG = {
    "a.py": {
        "# docs/rules/queues.md#no-such-heading": "docs/rules/queues.md has no heading",
        "# docs/rules/nowhere.md": "there is no docs/rules/nowhere.md",
        "# Source: contract section 6.9; cases X-01": "cites what is not in the repository",
        "# Contract 6.3: the oldest counts": "cites what is not in the repository",
        "# contract kai.md, 1.9": "cites what is not in the repository",
        "# the budget is heeded": "'heeded': say respect",
    },
    "a.md": {
        "see [queues](../rules/queues.md#nothing)": "docs/rules/queues.md has no heading",
        "as issue 11 wanted": "names an issue",
    },
}
RIGHT = {
    "a.py": [
        "# docs/rules/queues.md#amounts",
        "# docs/rules/kai.md",
        "# a contract of import-linter",
    ],
    "a.md": ["[amounts](../rules/queues.md#amounts)", "an issue that was found"],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_hold_is_said_with_its_line(tmp_path, name):
    path = tmp_path / name
    path.write_text("\n".join(WRONG[name]) + "\n")
    found = list(check_words.check(path))
    assert [line for line, _ in found] == list(range(1, len(WRONG[name]) + 1))
    for (_, what), expected in zip(found, WRONG[name].values(), strict=True):
        assert what.startswith(expected)


@pytest.mark.parametrize("name", RIGHT)
def test_what_holds_is_passed_over(tmp_path, name):
    path = tmp_path / name
    path.write_text("\n".join(RIGHT[name]) + "\n")
    assert list(check_words.check(path)) == []


def test_where_a_word_is_gone_it_does_not_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    for place, expected in (("shared/bus/a.py", 1), ("services/core/b.py", 0), ("shared/c.md", 0)):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# read anew\n")
        assert len(list(check_words.check(path))) == expected
