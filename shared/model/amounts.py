"""Amounts as shown to users: cores for vcore, binary units for memory, numbers for the rest."""

from collections.abc import Mapping
from functools import lru_cache

from shared.model.gpus import GPU, GPU_SHARE

_UNITS = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_BYTES = ("memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_FIRST = ("vcore", "memory")
_LAST = "pods"
_NAMES = {GPU: "GPUs", GPU_SHARE: "GPU shares"}


def number_text(name: str, value: int) -> str:
    """Format an amount without its type: ``1.5``, ``64 GiB``, ``2``."""
    if name in ("vcore", GPU_SHARE):
        return _thousandths(value)
    if name in _BYTES or name.startswith(_HUGE_PAGES):
        for unit, suffix in _UNITS:
            if abs(value) >= unit:
                return f"{value / unit:.4g} {suffix}"
    return str(value)


def _thousandths(value: int) -> str:
    return f"{value / 1000:.3f}".rstrip("0").rstrip(".")


def type_text(name: str) -> str:
    """Return the display name of a resource type."""
    return _NAMES.get(name, name)


def amount_text(name: str, value: int) -> str:
    """Format an amount with its type: ``1.5 vcore``, ``64 GiB memory``, ``2 GPUs``."""
    called = "GPU" if name == GPU and value == 1 else type_text(name)
    return f"{number_text(name, value)} {called}"


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Format amounts in one line: vcore and memory first, no zeros, pods only if nothing else."""
    return _line(tuple(amounts.items()))


@lru_cache(maxsize=1024)
def _line(items: tuple[tuple[str, int], ...]) -> str:
    amounts = dict(items)
    names = [name for name in _FIRST if amounts.get(name)]
    names += sorted(name for name in amounts if amounts[name] and name not in (*_FIRST, _LAST))
    if amounts.get(_LAST) and not names:
        names = [_LAST]
    return ", ".join(amount_text(name, amounts[name]) for name in names) or "nothing"
