"""Regular expressions of placement filters, as Go's RE2 reads them (docs/rules/placement.md#rules).

RE2 has no references back and no looking around, and takes time in proportion to the text: the
names that it is held against are sent by others.
"""

from typing import Protocol, cast

import re2


class Pattern(Protocol):
    """A compiled expression; two of one text are the same."""

    @property
    def pattern(self) -> str:
        """Return the text that it was made from."""

    def search(self, text: str) -> object | None:
        """Return a match anywhere in a text, or None."""


_QUIET = re2.Options()
_QUIET.log_errors = False  # on stderr; the caller reports it


def compile_pattern(text: str) -> Pattern | None:
    """Return an expression, or None where the text is none."""
    try:
        return cast(Pattern, re2.compile(text, _QUIET))
    except re2.error:
        return None
