"""A test that runs once with every row of a table: a test for each costs more than what it asks."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest


def each_row(
    names: str | Sequence[str], rows: Sequence[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a test run with one row after another; those that fail do so together, each with its row.

    As ``pytest.mark.parametrize``, also one above another, for what does not wait and leaves nothing
    behind: rows share the fixtures. Raises AssertionError for a table without a row.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = list(rows)
    assert rows, keys

    def with_rows(test: Callable[..., None]) -> Callable[..., None]:
        def run(**others: Any) -> None:
            failed: list[BaseException] = []
            for at, row in enumerate(rows):
                values = row if len(keys) > 1 else (row,)
                try:
                    test(**others, **dict(zip(keys, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"row {at}: {values!r}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(rows)} rows", failed)

        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        asked = inspect.signature(test).parameters
        others = [one for name, one in asked.items() if name not in keys]
        run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return run

    return with_rows
