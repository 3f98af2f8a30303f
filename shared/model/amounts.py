"""Amounts as users read them: cores for vcore, binary units for memory, numbers for the rest."""

import re
from collections.abc import Mapping

_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
_FIRST = ("vcore", "memory")
_LAST = "pods"
_GO_MAP = re.compile(r"map\[((?:[^\[\]:\s]+:-?[0-9]+ ?)*)\]")


def number_text(name: str, value: int) -> str:
    """Return how much of a type it is, without the type."""
    if name == "vcore":
        return f"{value / 1000:g}"
    if name == "memory":
        for unit, suffix in _UNITS:
            if abs(value) >= unit:
                return f"{value / unit:.4g}{suffix}"
    return str(value)


def amount_text(name: str, value: int) -> str:
    """Return an amount with its type: ``1.5 vcore``, ``4Gi memory``, ``8 nvidia.com/gpu``."""
    return f"{number_text(name, value)} {name}"


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Return amounts in one line: cores and memory first, how many pods last, zeros left out."""
    names = [name for name in _FIRST if amounts.get(name)]
    names += sorted(name for name in amounts if amounts[name] and name not in (*_FIRST, _LAST))
    if amounts.get(_LAST) and not names:
        names = [_LAST]
    return ", ".join(amount_text(name, amounts[name]) for name in names) or "nothing"


def readable(message: str) -> str:
    """Return a message with every resource in it as users read them."""

    def read(found: re.Match[str]) -> str:
        pairs = (pair.rpartition(":") for pair in found[1].split())
        return amounts_text({name: int(value) for name, _, value in pairs})

    return _GO_MAP.sub(read, message)
