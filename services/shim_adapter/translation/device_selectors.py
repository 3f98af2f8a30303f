"""Selectors of devices: the part of CEL that drivers' classes and claims are written in.

Rule 1: what is not of this part is refused by name when it is read, never guessed.
Rule 2: what fails while it is evaluated (a key that is missing, types that do not compare) is an
        error and not "false"; `||` and `&&` are decided by the other side where that decides.
Rule 3: nothing grows without bounds: the text, its tokens, its depth, and patterns, which may have
        no group that is repeated.
Source: CEL's language definition, and `device` as resource.k8s.io/v1 defines it. Pure.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from shared.messages.constraints import Taint
from shared.model.quantity import QuantityError, parse_pod_quantity

MAX_EXPRESSION = 10 * 1024  # characters of a device selector; the API server accepts no more
MAX_TOKENS = 2_000  # tokens of a device selector; one with more is refused
MAX_DEPTH = 32  # nesting depth of a device selector; a deeper one is refused
MAX_PATTERN = 256  # characters of a pattern of `matches`; a longer one is refused
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?![\w.]))|(?P<text>"(?:[^"\\\n]|\\["\\])*"|'(?:[^'\\\n]|\\['\\])*')"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<op>\|\||&&|==|!=|<=|>=|\.\?|[-<>!()\[\].,]))"""
)
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
_REPEATED = re.compile(r"\)[*+?{]|\(\?|\\[1-9]")
_QUANTIFIERS = re.compile(r"[*+{]")
_MAX_QUANTIFIERS = 4  # repetitions in a pattern of `matches`; one with more is refused
_MACROS = ("all", "exists", "exists_one", "filter", "map")


class SelectorUnsupportedError(ValueError):
    """An expression is not of the part of CEL that is understood; the message names what."""


class SelectorError(Exception):
    """An expression has no answer for a device; the message says why."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A semantic version; a pre-release comes before its release."""

    numbers: tuple[int, int, int]
    release: int = 1  # 0: a pre-release
    before: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity, in thousandths."""

    milli: int


@dataclass(frozen=True, slots=True)
class Device:
    """What a selector knows of a device. Names of attributes and capacities have their domain."""

    driver: str
    attributes: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    capacity: Mapping[tuple[str, str], Amount] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


Evaluate = Callable[[Device, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class _Names:
    """``device.attributes`` or ``device.capacity``; with a domain, what is in it."""

    values: Mapping[tuple[str, str], Any]
    domain: str | None = None


_ABSENT = object()  # what `.?` has not found


def version(text: str) -> Version | None:
    """Return a semantic version, None where a text is none."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    numbers = (int(found[1]), int(found[2]), int(found[3]))
    if not found[4]:
        return Version(numbers)
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in found[4].split(".")
    )
    return Version(numbers, 0, parts)


def amount(text: Any) -> Amount | None:
    """Return a quantity, None where a text is none."""
    try:
        return Amount(parse_pod_quantity("cpu", text))
    except QuantityError:
        return None


@lru_cache(1_000)
def selector(text: str) -> Evaluate:
    """Return an expression to be evaluated. Raises SelectorUnsupportedError."""
    if len(text) > MAX_EXPRESSION:
        raise SelectorUnsupportedError(f"{len(text)} characters, at most {MAX_EXPRESSION}")
    return _Parser(_tokens(text)).whole()


def selects(text: str, device: Device) -> bool:
    """Return whether a device is selected. Raises SelectorUnsupportedError and SelectorError."""
    found = selector(text)(device, {})
    if not isinstance(found, bool):
        raise SelectorError(f"it is no true or false: {found!r}")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise SelectorUnsupportedError(f"{text[at : at + 20].strip()!r} is not supported")
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        at = match.end()
        if len(found) > MAX_TOKENS:
            raise SelectorUnsupportedError(f"more than {MAX_TOKENS} tokens")
    return found


class _Parser:
    """A reader of tokens, from the loosest operator to the tightest."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bound: list[str] = []  # names of `cel.bind`

    def whole(self) -> Evaluate:
        found = self._or()
        if self._at < len(self._tokens):
            raise SelectorUnsupportedError(f"{self._tokens[self._at][1]!r} is not supported here")
        return found

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _take(self, *wanted: str) -> str:
        """Take an operator if it is the next, "" if not."""
        kind, text = self._peek()
        if kind != "op" or text not in wanted:
            return ""
        self._at += 1
        return text

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise SelectorUnsupportedError(f"{wanted!r} was expected, found {self._peek()[1]!r}")

    def _or(self) -> Evaluate:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SelectorUnsupportedError(f"more than {MAX_DEPTH} brackets in one another")
        sides = [self._and()]
        while self._take("||"):
            sides.append(self._and())
        self._depth -= 1
        return sides[0] if len(sides) == 1 else _any_of(sides, decides=True)

    def _and(self) -> Evaluate:
        sides = [self._relation()]
        while self._take("&&"):
            sides.append(self._relation())
        return sides[0] if len(sides) == 1 else _any_of(sides, decides=False)

    def _relation(self) -> Evaluate:
        left = self._unary()
        if self._peek() == ("name", "in"):
            self._at += 1
            return _within(left, self._unary())
        operator = self._take("==", "!=", "<=", ">=", "<", ">")
        return _compared(operator, left, self._unary()) if operator else left

    def _unary(self) -> Evaluate:
        nots = 0
        while self._take("!"):
            nots += 1
        if nots:
            inner = self._unary()
            is_odd = bool(nots % 2)
            return lambda device, names: _truth(inner(device, names)) is not is_odd
        if self._take("-"):
            kind, text = self._peek()
            if kind != "number":
                raise SelectorUnsupportedError("'-' is only supported before a number")
            self._at += 1
            negative = -int(text)
            return lambda _device, _names: negative
        return self._postfix()

    def _postfix(self) -> Evaluate:
        found = self._primary()
        while True:
            if operator := self._take(".", ".?"):
                found = self._member(found, is_optional=operator == ".?")
            elif self._take("["):
                key = self._or()
                self._need("]")
                found = _indexed(found, key)
            else:
                return found

    def _name(self) -> str:
        kind, text = self._peek()
        if kind != "name":
            raise SelectorUnsupportedError(f"a name was expected, found {text!r}")
        self._at += 1
        return text

    def _member(self, value: Evaluate, *, is_optional: bool) -> Evaluate:
        name = self._name()
        if self._take("("):
            if name in _MACROS:
                raise SelectorUnsupportedError(f"macro {name!r} is not supported")
            arguments = [self._pattern()] if name == "matches" else self._arguments()
            method = _METHODS.get(name)
            if method is None or is_optional:
                raise SelectorUnsupportedError(f"the function {name!r} is not supported")
            return _called(name, method, [value, *arguments])
        return _field(value, name, is_optional=is_optional)

    def _pattern(self) -> Evaluate:
        """Return the pattern of `matches`: a text as it stands, of the part that is safe."""
        kind, text = self._peek()
        if kind != "text":
            raise SelectorUnsupportedError(f"matches: a text as it stands, found {text!r}")
        self._at += 1
        self._need(")")
        return _constant(_checked(_unquoted(text)))

    def _arguments(self) -> list[Evaluate]:
        found: list[Evaluate] = []
        if self._take(")"):
            return found
        found.append(self._or())
        while self._take(","):
            found.append(self._or())
        self._need(")")
        return found

    def _primary(self) -> Evaluate:
        kind, text = self._peek()
        self._at += 1
        if kind == "number":
            value = int(text)
            if value >= 2**63:
                raise SelectorUnsupportedError(f"{text} is too large")
            return lambda _device, _names: value
        if kind == "text":
            return _constant(_unquoted(text))
        if kind == "name":
            return self._named(text)
        if text == "(":
            found = self._or()
            self._need(")")
            return found
        if text == "[":
            return self._list()
        raise SelectorUnsupportedError(f"{text!r} is not supported here")

    def _list(self) -> Evaluate:
        items: list[Evaluate] = []
        while not self._take("]"):
            items.append(self._or())
            if not self._take(","):
                self._need("]")
                break
        return lambda device, names: [item(device, names) for item in items]

    def _named(self, name: str) -> Evaluate:
        if name in ("true", "false"):
            return _constant(name == "true")
        if name == "device":
            return lambda device, _: device
        if name in self._bound:
            return lambda _, names: names[name]
        if name == "cel":
            return self._bind()
        if not self._take("("):
            raise SelectorUnsupportedError(f"the name {name!r} is not supported")
        arguments = self._arguments()
        if name == "has" and len(arguments) == 1:
            return _has(arguments[0])
        function = _FUNCTIONS.get(name)
        if function is None or len(arguments) != 1:
            raise SelectorUnsupportedError(f"the function {name!r} is not supported")
        return _called(name, function, arguments)

    def _bind(self) -> Evaluate:
        self._need(".")
        if self._name() != "bind":
            raise SelectorUnsupportedError("of `cel` only `cel.bind` is supported")
        self._need("(")
        name = self._name()
        self._need(",")
        value = self._or()
        self._need(",")
        self._bound.append(name)
        body = self._or()
        self._bound.pop()
        self._need(")")
        return lambda device, names: body(device, {**names, name: value(device, names)})


def _constant(value: Any) -> Evaluate:
    return lambda _device, _names: value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SelectorError(f"true or false was expected, found {value!r}")
    return value


def _any_of(sides: list[Evaluate], *, decides: bool) -> Evaluate:
    """Return `||` or `&&`: a side that decides does so whatever fails beside it."""

    def evaluate(device: Device, names: Mapping[str, Any]) -> bool:
        failed: SelectorError | None = None
        for side in sides:
            try:
                if _truth(side(device, names)) is decides:
                    return decides
            except SelectorError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return not decides

    return evaluate


def _is_same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _within(item: Evaluate, many: Evaluate) -> Evaluate:
    def evaluate(device: Device, names: Mapping[str, Any]) -> bool:
        wanted, among = item(device, names), many(device, names)
        if isinstance(among, _Names):
            if among.domain is None:
                return any(domain == wanted for domain, _ in among.values)
            return (among.domain, wanted) in among.values
        if not isinstance(among, list):
            raise SelectorError(f"'in' needs a list, found {among!r}")
        return any(_is_same(wanted, each) for each in among)

    return evaluate


def _compared(operator: str, left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(device: Device, names: Mapping[str, Any]) -> bool:
        one, other = left(device, names), right(device, names)
        if operator in ("==", "!="):
            return _is_same(one, other) is (operator == "==")
        if type(one) is not type(other) or not isinstance(one, int | str):
            raise SelectorError(f"{one!r} {operator} {other!r}: they do not compare")
        if operator in ("<", ">="):
            return bool(one < other) is (operator == "<")
        return bool(one > other) is (operator == ">")

    return evaluate


def _indexed(value: Evaluate, key: Evaluate) -> Evaluate:
    return lambda device, names: _at(value(device, names), key(device, names))


def _at(value: Any, key: Any, *, is_optional: bool = False) -> Any:
    """Return what is under a key: a domain that is not there is empty, a name is an error."""
    if not isinstance(value, _Names) or not isinstance(key, str):
        raise SelectorError(f"{value!r} has no {key!r}")
    if value.domain is None:
        return _Names(value.values, key)
    found = value.values.get((value.domain, key), _ABSENT)
    if found is _ABSENT and not is_optional:
        raise SelectorError(f"no such key: {value.domain}/{key}")
    return found


def _field(value: Evaluate, name: str, *, is_optional: bool) -> Evaluate:
    def evaluate(device: Device, names: Mapping[str, Any]) -> Any:
        of = value(device, names)
        if not isinstance(of, Device):
            return _at(of, name, is_optional=is_optional)
        if name == "driver":
            return of.driver
        if name in ("attributes", "capacity"):
            return _Names(of.attributes if name == "attributes" else of.capacity)
        raise SelectorError(f"a device has no {name!r}")

    return evaluate


def _has(value: Evaluate) -> Evaluate:
    def evaluate(device: Device, names: Mapping[str, Any]) -> bool:
        try:
            found = value(device, names)
        except SelectorError as error:
            if str(error).startswith("no such key"):
                return False
            raise
        return found is not _ABSENT

    return evaluate


def _called(name: str, function: Callable[..., Any], arguments: list[Evaluate]) -> Evaluate:
    def evaluate(device: Device, names: Mapping[str, Any]) -> Any:
        values = [argument(device, names) for argument in arguments]
        try:
            return function(*values)
        except (TypeError, AttributeError, ValueError, IndexError) as error:
            raise SelectorError(f"{name}: {error}") from error

    return evaluate


def _unquoted(token: str) -> str:
    """Return what a text in quotes says."""
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _checked(pattern: str) -> str:
    """Return a pattern. Raises SelectorUnsupportedError for one that may hold up everybody."""
    if len(pattern) > MAX_PATTERN:
        raise SelectorUnsupportedError(f"matches: {len(pattern)} characters, at most {MAX_PATTERN}")
    if _REPEATED.search(pattern) or len(_QUANTIFIERS.findall(pattern)) > _MAX_QUANTIFIERS:
        raise SelectorUnsupportedError(f"matches: the pattern {pattern[:60]!r} is not supported")
    try:
        re.compile(pattern)
    except re.error as error:
        raise SelectorUnsupportedError(f"matches: {error}") from error
    return pattern


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, found {value!r}")
    return value


def _compare(one: Any, other: Any) -> int:
    if type(one) is not type(other) or not isinstance(one, Version | Amount):
        raise TypeError(f"{one!r} and {other!r} do not compare")
    if isinstance(one, Amount):
        return int(one.milli > other.milli) - int(one.milli < other.milli)
    return int(one > other) - int(one < other)


def _needed(found: Any, text: Any, what: str) -> Any:
    if found is None:
        raise ValueError(f"{text!r} is no {what}")
    return found


def _substring(value: Any, start: Any, end: Any = None) -> str:
    text = _text(value)
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"{start} to {end} of {text!r}")
    return text[start:end]


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is no whole number")
    if isinstance(value, str) and not re.fullmatch(r"-?\d{1,18}", value):
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def _lower(value: Any) -> str:
    return "".join(each.lower() if each.isascii() else each for each in _text(value))


_METHODS: dict[str, Callable[..., Any]] = {
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "lowerAscii": _lower,
    "matches": lambda value, pattern: re.search(pattern, _text(value)) is not None,
    "startsWith": lambda value, start: _text(value).startswith(_text(start)),
    "endsWith": lambda value, end: _text(value).endswith(_text(end)),
    "contains": lambda value, part: _text(part) in _text(value),
    "substring": _substring,
    "orValue": lambda value, other: other if value is _ABSENT else value,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": lambda text: _needed(amount(_text(text)), text, "quantity"),
    "semver": lambda text: _needed(version(_text(text)), text, "version"),
    "int": _whole,
}
