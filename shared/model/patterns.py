"""Regular expressions of placement filters, in Go's RE2 syntax (docs/rules/placement.md#rules).

RE2 has no back references and no look-around, and its time is linear in the text: the matched names
come from other systems.
"""

from typing import Protocol, cast

import re2


class Pattern(Protocol):
    """A compiled expression; two with the same text are equal."""

    @property
    def pattern(self) -> str:
        """The text that it was compiled from."""

    def search(self, text: str) -> object | None:
        """Return a match anywhere in a text, or None."""


_QUIET = re2.Options()
_QUIET.log_errors = False  # on stderr; the caller reports it


def compile_pattern(text: str) -> Pattern | None:
    """Compile an expression; return None if it is invalid."""
    try:
        return cast(Pattern, re2.compile(text, _QUIET))
    except re2.error:
        return None
