"""The table of guards says what is in the source, and names tests that exist."""

import ast

import pytest

from tests.mutation.guards import Guard, guards
from tests.mutation.trials import ROOT

TABLE = guards()


def _tests_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


@pytest.mark.parametrize("guard", TABLE, ids=lambda guard: guard.guard)
def test_a_guard_stands_where_the_table_says(guard: Guard):
    assert guard.occurrences() == 1
    assert guard.without != guard.text
    assert guard.tests
    for test in guard.tests:
        path, _, name = test.partition("::")
        assert not name or name.partition("[")[0] in _tests_in(path)


def test_a_guard_has_a_sentence_of_its_own():
    sentences = [guard.guard for guard in TABLE]
    assert len(set(sentences)) == len(sentences)
