"""Parses the queue properties of the policy kai, and finds invalid ones.

``overquota.weight`` and ``deserved`` are families: a resource's name follows after a dot.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from shared.model.duration import parse_go_duration
from shared.model.numbers import parse_int32
from shared.model.quantity import QuantityError, parse_config_quantity

UNLIMITED = -1
OVERQUOTA_WEIGHT, OVERQUOTA_PRIORITY = "overquota.weight", "overquota.priority"
DESERVED = "deserved"
RECLAIM_OF, RECLAIM_OF_QUEUE = "reclaim.min.runtime.of", "queue"
_RECLAIM_OF = ("lca", RECLAIM_OF_QUEUE)
SERVICE_LEVELS = "attained.service.levels"
MAX_SERVICE_LEVELS = 8  # levels of attained service of a queue; a property with more is ignored
SPARES = "spares"
_SPARES = re.compile(r"([^=,\s]{1,100})=([0-9]{1,4})")
_WEIGHT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_SHOWN = 40  # characters of an invalid value


def is_among_siblings(name: str) -> bool:
    """Whether a property applies to the queue itself only, and is not inherited."""
    return name in (OVERQUOTA_PRIORITY, OVERQUOTA_WEIGHT) or name.startswith(
        (f"{OVERQUOTA_WEIGHT}.", f"{DESERVED}.")
    )


def parse_weight(text: str) -> Fraction | None:
    """Parse a weight exactly: digits, optionally a point and more digits; None if invalid."""
    return Fraction(text) if _WEIGHT.fullmatch(text) else None


def parse_deserved(name: str, text: str) -> int | None:
    """Parse an amount of a type as in queues.yaml, or ``unlimited``; None if invalid."""
    if text == "unlimited":
        return UNLIMITED
    try:
        return parse_config_quantity(name, text)
    except QuantityError:
        return None


def parse_levels(text: str) -> tuple[int, ...] | None:
    """Parse increasing durations such as ``1h,10h`` into ns; None if invalid."""
    found = tuple(parse_go_duration(part.strip()) or 0 for part in text.split(","))
    grows = all(one < other for one, other in zip((0, *found), found, strict=False))
    return found if grows and len(found) <= MAX_SERVICE_LEVELS else None


def parse_spares(text: str) -> tuple[str, int] | None:
    """Return a level and how many nodes of its domains are spare; None: it is no such text."""
    found = _SPARES.fullmatch(text)
    return (found[1], int(found[2])) if found is not None else None


def of_types(properties: Mapping[str, str], family: str) -> Iterator[tuple[str, str]]:
    """Yield type and text of each property of a family, written ``name.TYPE``."""
    start = family.removesuffix("TYPE")
    for name, text in properties.items():
        if name.startswith(start) and len(name) > len(start):
            yield name.removeprefix(start), text


def refused(properties: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the invalid properties: name, value, and a text with the consequence."""
    for name, text in properties.items():
        rule = _rule_of(name)
        if text and rule is not None and not rule[0](text):
            yield name, text[:_SHOWN], rule[1]


def _rule_of(name: str) -> tuple[Callable[[str], bool], str] | None:
    kind = name.removeprefix(f"{DESERVED}.")
    if kind != name:
        return (
            lambda text: parse_deserved(kind, text) is not None,
            "neither an amount nor unlimited: the guarantee is used",
        )
    return _RULES.get(OVERQUOTA_WEIGHT if name.startswith(f"{OVERQUOTA_WEIGHT}.") else name)


def _is_duration(text: str) -> bool:
    return parse_go_duration(text) is not None


_NO_DURATION = "not a duration like 10m: the value of the parent queue is used"
_RULES: dict[str, tuple[Callable[[str], bool], str]] = {
    OVERQUOTA_WEIGHT: (
        lambda text: parse_weight(text) is not None,
        "not a number of 0 or more: the default is used",
    ),
    OVERQUOTA_PRIORITY: (
        lambda text: parse_int32(text) is not None,
        "not a whole number: the default is used",
    ),
    "reclaim.min.runtime": (_is_duration, _NO_DURATION),
    "preempt.min.runtime": (_is_duration, _NO_DURATION),
    SERVICE_LEVELS: (
        lambda text: parse_levels(text) is not None,
        f"not increasing durations, like 1h,10h, {MAX_SERVICE_LEVELS} at most: there are no levels",
    ),
    SPARES: (
        lambda text: parse_spares(text) is not None,
        "not a level and a number of nodes, like rack=2: no node is kept",
    ),
    RECLAIM_OF: (
        lambda text: text.lower() in _RECLAIM_OF,
        f"none of {', '.join(_RECLAIM_OF)}: the first holds",
    ),
}
