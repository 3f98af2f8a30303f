"""Plain YAML values as Go's yaml.v3 reads them: YAML 1.2, with some of 1.1.

A boolean is true or false; where one is expected, ``yes``, ``on`` and ``y`` are accepted too.
Numbers may be hexadecimal, octal (``0o17``, ``017``) or binary, with underscores. Quoted values are
text. Source: the package's own description; docs/rules/queues.md#where-it-comes-from.
"""

import re
from math import isfinite

import yaml

Scalar = bool | int | float | str
_STRING = "!!str"
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_TRUTHS = {"y": True, "Y": True, "yes": True, "on": True} | dict.fromkeys(
    ("n", "N", "no", "off"), False
)
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SPECIAL_ENDS = frozenset("fFnN")
_BASES = (  # no text is one of two; all but the first begin with a zero
    (re.compile(r"([-+]?)(0|[1-9][0-9]*)"), 10),
    (re.compile(r"([-+]?)0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"([-+]?)0[bB]([01]+)"), 2),
    (re.compile(r"([-+]?)0[oO]?([0-7]+)"), 8),
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FIRST = frozenset("+-.0123456789")
_LONGEST = 100  # of a number; a longer one is out of every range
_SHORT = 18  # digits, of which every number has 64 bits
_UINT64 = 2**64


def resolved(node: yaml.ScalarNode) -> tuple[str, Scalar]:
    """Return the type of a value, as Go's messages name it, and the value."""
    text = str(node.value)
    if node.style:
        return _STRING, text
    if text in _TRUTHS:
        return "!!bool", _TRUTHS[text]
    if node.tag == "tag:yaml.org,2002:timestamp":
        return "!!timestamp", text
    number = _number(text)
    if number is not None:
        return ("!!float" if isinstance(number, float) else "!!int"), number
    return _STRING, text


def truth_of(value: Scalar) -> bool | None:
    """Return a boolean; None for other values."""
    return value if isinstance(value, bool) else _OLD_TRUTHS.get(str(value))


def uint64_of(value: Scalar) -> int | None:
    """Return a whole number without a sign; None for other values."""
    if isinstance(value, bool | str) or not (isfinite(value) and value == int(value)):
        return None
    return int(value) if 0 <= value < _UINT64 else None


def float_of(value: Scalar) -> float | None:
    """Return a finite number; None for other values."""
    if isinstance(value, bool | str) or not isfinite(value):
        return None
    return float(value)


def _bases_of(text: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    """Return the bases in which a text may be a whole number."""
    if "." in text:
        return ()
    return _BASES if text.lstrip("+-").startswith("0") else _BASES[:1]


def _number(text: str) -> int | float | None:
    """Parse a number; a whole one beyond 64 bits is a float."""
    if text[:1] not in _FIRST:
        return None
    if len(text) <= _SHORT and text[0] != "0" and text.isascii() and text.isdigit():
        return int(text)
    if text[-1] in _SPECIAL_ENDS and _SPECIAL.fullmatch(text):
        return float(text.replace(".", "", 1))
    plain = text if text.startswith((".", "_")) else text.replace("_", "")
    if not plain or len(plain) > _LONGEST:
        return None
    for pattern, base in _bases_of(plain):
        match = pattern.fullmatch(plain)
        value = None if match is None else int("".join(match.groups()), base)
        if value is not None and -(2**63) <= value < _UINT64:
            return value
    return float(plain) if _FLOAT.fullmatch(plain) else None
