"""What is said to a person at a terminal, where names and files of others are shown, not obeyed."""

import sys

_LAYOUT = "\n\t"


def printable(text: str) -> str:
    """Return a text on one line, with what a terminal would obey written out."""
    if text.isprintable():
        return text
    return "".join(" " if char in _LAYOUT else _seen(char) for char in text)


def complain(sentence: object) -> None:
    """Say what went wrong, on stderr and at once; it may have several lines."""
    text = str(sentence)
    shown = "".join(char if char in _LAYOUT else _seen(char) for char in text)
    print(shown, file=sys.stderr, flush=True)


def _seen(char: str) -> str:
    return char if char.isprintable() else repr(char)[1:-1]
