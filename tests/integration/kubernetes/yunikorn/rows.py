"""The rows of YuniKorn's end-to-end specs, by name: what is given and what is to be seen.

Each is a coroutine of a ``Stack``; the name of the function is the row's. Rows that are alike are a
table, and one function makes them all.
"""

from collections.abc import Awaitable, Callable

from tests.kubernetes.stack import Stack

Spec = Callable[[Stack], Awaitable[None]]
SPECS: dict[str, Spec] = {}


def spec(given: Spec) -> Spec:
    """Keep a spec under the name of its function."""
    SPECS[given.__name__] = given
    return given
