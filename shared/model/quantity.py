"""Parses quantities: YuniKorn's of queues.yaml, Kubernetes' of pods and nodes.

The results are integers. YuniKorn's grammar is docs/rules/queues.md#amounts; Kubernetes' is that of
``resource.Quantity`` (decimal, binary and exponent suffixes), of which a scheduler uses
``MilliValue`` for cpu and ``Value`` (rounded up) for everything else.
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from shared.model.numbers import INT64_MAX, INT64_MIN
from shared.model.resources import VCORE, Resource

_CONFIG_PATTERN = re.compile(r"^([0-9]+)[\t\n\f\r ]*([mkKMGTPE]i?)?\Z")
_CONFIG_MULTIPLIERS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
} | {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}

_POD_PATTERN = re.compile(
    r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(n|u|m|k|Ki|[MGTPE]i?|[eE][+-]?[0-9]+)?$"
)
_POD_MULTIPLIERS: dict[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
} | {suffix: Decimal(value) for suffix, value in _CONFIG_MULTIPLIERS.items()}
_LONGEST_QUANTITY = 64
_LARGEST_EXPONENT = 30


class QuantityError(ValueError):
    """A text is not a quantity; the message says which rule it breaks."""


def parse_config_quantity(name: str, text: str) -> int:
    """Parse an amount of queues.yaml into its base unit.

    ``vcore`` is in cores and may end in ``m``; the result is in milli. Raises QuantityError with
    YuniKorn's texts: ``invalid quantity``, ``invalid suffix``, ``invalid quantity: overflow``.
    """
    match = _CONFIG_PATTERN.match(text.strip())
    if match is None:
        raise QuantityError("invalid quantity")
    digits, suffix = match.group(1).lstrip("0") or "0", match.group(2) or ""
    if len(digits) > _LONGEST_QUANTITY:
        raise QuantityError("invalid quantity: overflow")
    if name == VCORE and suffix == "m":
        value = int(digits)
    elif suffix in _CONFIG_MULTIPLIERS:
        value = int(digits) * _CONFIG_MULTIPLIERS[suffix] * (1000 if name == VCORE else 1)
    else:
        raise QuantityError("invalid suffix")
    if value > INT64_MAX:
        raise QuantityError("invalid quantity: overflow")
    return value


def parse_pod_quantity(name: str, value: object) -> int:
    """Parse a Kubernetes quantity: milli for cpu and vcore, otherwise rounded up.

    JSON numbers are accepted as well as texts. The sign is kept: a caller that needs a positive
    amount must check it. Raises QuantityError.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise QuantityError(f"{value!r} is not a quantity")
    text = str(value)
    amount = _pod_amount(text) * (1000 if name in ("cpu", VCORE) else 1)
    whole = int(amount.to_integral_value(rounding="ROUND_UP"))
    if not INT64_MIN <= whole <= INT64_MAX:
        raise QuantityError(f"{text!r} does not fit a signed 64-bit integer")
    return whole


def check_whole(name: str, value: object) -> None:
    """Raise QuantityError for a fraction of an extended resource, such as a GPU.

    Kubernetes' API server does the same. The value must be a valid quantity.
    """
    if type(value) is int or not is_extended(name):
        return
    amount = _pod_amount(str(value))
    if amount != amount.to_integral_value():
        raise QuantityError(f"{name}: a whole number was expected, found {value!r}")


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one: its name has a domain other than Kubernetes' own."""
    domain, slash, _ = name.rpartition("/")
    return bool(slash) and not f".{domain}".endswith(".kubernetes.io")


def _pod_amount(text: str) -> Decimal:
    match = _POD_PATTERN.fullmatch(text) if len(text) <= _LONGEST_QUANTITY else None
    if match is None:
        raise QuantityError(f"{text[:_LONGEST_QUANTITY]!r} is not a quantity")
    return _decimal(match.group(1), match.group(2) or "")


def _decimal(digits: str, suffix: str) -> Decimal:
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1] != "i":
        exponent = int(suffix[1:])
        if abs(exponent) > _LARGEST_EXPONENT:
            raise QuantityError(f"the exponent {exponent} is out of range")
        return Decimal(f"{digits}E{exponent}")
    try:
        return Decimal(digits) * (_POD_MULTIPLIERS[suffix])
    except InvalidOperation as error:
        raise QuantityError(f"{digits!r} is not a number") from error


def pod_resources(amounts: Mapping[str, object]) -> Resource:
    """Convert a map of Kubernetes quantities to a resource; ``cpu`` becomes ``vcore``.

    Raises QuantityError that names the key, also if both cpu and vcore are present.
    """
    result: Resource = {}
    for key, value in amounts.items():
        name = VCORE if key == "cpu" else key
        if name in result:
            raise QuantityError(
                f"{key!r} collides with another resource under canonical key {name!r}"
            )
        try:
            result[name] = parse_pod_quantity(name, value)
        except QuantityError as error:
            raise QuantityError(f"{key}: {error}") from error
    return result
