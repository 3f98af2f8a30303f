"""Texts sent by users: booleans, JSON, and characters that cannot be encoded."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_HALF = "\ud800", "\udfff"  # a surrogate: half a character, in no encoding by itself


_TRUTHS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)


class JsonError(ValueError):
    """A text is not usable JSON; the message says why."""


def parse_truth(text: str) -> bool | None:
    """Parse a boolean like Go's strconv.ParseBool; None if invalid."""
    return _TRUTHS.get(text)


def load_json(text: str) -> Any:
    """Parse a JSON text. Raises JsonError for any error.

    Lone surrogates (as escapes) are refused: Python could read them, but never encode them again.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonError(str(error) or type(error).__name__) from error
    if "\\u" in text or not text.isascii():
        where = unwritable_text(value)
        if where is not None:
            raise JsonError(f"{where}: the text contains half a character (a lone surrogate)")
    return value


def is_writable(text: str) -> bool:
    """Whether a text can be encoded."""
    return text.isascii() or not any(_HALF[0] <= character <= _HALF[1] for character in text)


def unwritable_text(value: Any) -> str | None:
    """Return the path of the first text, or key, that cannot be encoded, or None."""
    return next(_unwritable(value, ""), None)


def _unwritable(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, str):
        if not is_writable(value):
            yield where or "value"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str) and not is_writable(key):
                yield f"{where}[{key!a}]"
            else:
                yield from _unwritable(item, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _unwritable(item, f"{where}[{at}]")
