"""The table of guards says what is in the source, and names tests that exist."""

import ast
from functools import cache

from tests.mutation.guards import Guard, guards
from tests.mutation.trials import ROOT

TABLE = guards()


@cache
def _tests_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def _stands(guard: Guard) -> bool:
    """Return whether its text is there once, and the tests that fail without it are there."""
    tests = [test.partition("::") for test in guard.tests]
    return (
        guard.occurrences() == 1
        and guard.without != guard.text
        and bool(tests)
        and all(not name or name.partition("[")[0] in _tests_in(path) for path, _, name in tests)
    )


def test_every_guard_stands_where_the_table_says():
    assert [guard.guard for guard in TABLE if not _stands(guard)] == []


def test_a_guard_has_a_sentence_of_its_own():
    sentences = [guard.guard for guard in TABLE]
    assert len(set(sentences)) == len(sentences)
