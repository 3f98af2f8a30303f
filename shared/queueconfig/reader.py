"""Decodes YAML into records, as strictly as Go's decoder with known fields.

Every unknown key and every value of the wrong type is an error with its line, and all of them are
reported at once. Limits: MAX_CHARACTERS, MAX_DEPTH, MAX_SCANNED, and MAX_VALUES with aliases
written out; the first MAX_ERRORS errors are reported.

Line numbers, also those inside messages, refer to the file, as YuniKorn's checker prints them.
"""

import dataclasses
from collections.abc import Callable
from itertools import combinations
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import yaml

from shared.model.bounded_yaml import YamlLimitError, compose_bounded
from shared.model.memo import once_per_class
from shared.model.texts import is_writable
from shared.queueconfig import scalars
from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.schema import GO_NAMES, SchedulerConfig

MAX_CHARACTERS = 1_048_576
MAX_DEPTH = 200
MAX_VALUES = 200_000
MAX_ERRORS = 1_000
MAX_SCANNED = 200_000  # characters scanned for the line of an error; then libyaml's
_LONGEST_VALUE = 10  # of a scalar in a message; a longer one is cut to 7 and "...", as Go does
_BAD_ESCAPE = "found invalid Unicode character escape code"
# PyYAML's words for what is wrong, and libyaml's, which YuniKorn's users see.
_PROBLEMS = (
    (
        "expected alphabetic or numeric character",
        "did not find expected alphabetic or numeric character",
    ),
    ("found unexpected end of stream", "found unexpected end of stream"),
    ("cannot start any token", "found character that cannot start any token"),
    ("expected the node content", "did not find expected node content"),
    ("expected ',' or ']'", "did not find expected ',' or ']'"),
    ("expected ',' or '}'", "did not find expected ',' or '}'"),
    ("mapping values are not allowed", "mapping values are not allowed in this context"),
    ("could not find expected ':'", "could not find expected ':'"),
)

_DASH = "'-' indicator"
_MERGE = "tag:yaml.org,2002:merge"
_NO_MERGE = "yaml: map merge requires map or sequence of maps as the value"


def read_configuration(text: str) -> SchedulerConfig:
    """Decode a text; an empty one has no partitions. Raises QueueConfigError."""
    if len(text) > MAX_CHARACTERS:
        raise QueueConfigError(f"{len(text)} characters, at most {MAX_CHARACTERS}")
    try:
        documents = compose_bounded(text, depth=MAX_DEPTH, values=MAX_VALUES)
        root = next(documents, None)
    except YamlLimitError as error:
        raise QueueConfigError(str(error), error.line) from error
    except yaml.YAMLError as error:
        raise _syntax_error(_as_pyyaml_sees(text, error)) from error
    except ValueError as error:  # \U with a number that is no character's
        raise QueueConfigError(f"yaml: {_BAD_ESCAPE}") from error
    if root is None:
        return SchedulerConfig()
    _check_texts(root)
    decoder = _Decoder()
    config = decoder.record(SchedulerConfig, root)
    if decoder.errors:
        text = "".join(f"\n  line {line}: {message}" for line, message in decoder.errors)
        raise QueueConfigError(f"yaml: unmarshal errors:{text}", decoder.errors[0][0])
    return cast(SchedulerConfig, config)


def _check_texts(root: yaml.Node) -> None:
    """Refuse lone surrogates, which an escape can produce: they could never be encoded again."""
    nodes, seen = [root], {id(root)}
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.ScalarNode) and not is_writable(node.value):
            line = node.start_mark.line + 1
            raise QueueConfigError(f"yaml: line {line}: {_BAD_ESCAPE}", line)
        below = node.value if isinstance(node, yaml.CollectionNode) else []
        for item in below:
            for child in item if isinstance(item, tuple) else (item,):
                if id(child) not in seen:
                    seen.add(id(child))
                    nodes.append(child)


def _as_pyyaml_sees(text: str, found: yaml.YAMLError) -> yaml.YAMLError:
    """Return the same error with line numbers of PyYAML's own scanner, which match the file.

    It is ten times slower: for errors after MAX_SCANNED characters libyaml's lines are used.
    """
    mark = getattr(found, "problem_mark", None)
    if mark is not None and mark.index > MAX_SCANNED:
        return found
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.YAMLError as error:
        return error
    except ValueError:  # \U with a number that is no character's
        pass
    return found


def _syntax_error(error: yaml.YAMLError) -> QueueConfigError:
    """Return a syntax error in libyaml's words, with its first line."""
    problem = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "context_mark", None) or getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 1
    return QueueConfigError(f"yaml: line {line}: {_words(problem, error)}", line)


def _words(problem: str, error: yaml.YAMLError) -> str:
    """Return the problem in libyaml's words."""
    if "expected <block end>" in problem:
        in_mapping = "mapping" in str(getattr(error, "context", ""))
        return f"did not find expected {'key' if in_mapping else _DASH}"
    return next((go for python, go in _PROBLEMS if python in problem), problem)


@once_per_class
def _fields(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.name != "line"}


class _Decoder:
    """Decodes nodes into records, and collects errors."""

    def __init__(self) -> None:
        self.errors: list[tuple[int, str]] = []

    def record(self, cls: type[Any], node: yaml.Node) -> Any:
        """Decode a record; a null is an empty one."""
        line = node.start_mark.line + 1
        if _is_null(node):
            return cls()
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, GO_NAMES[cls])
            return cls()
        if self._has_repeated_keys(node):
            return cls()
        known = _fields(cls)
        values: dict[str, Any] = {}
        for key, value in self._pairs(node):
            name = str(key.value)
            if name not in known:
                line_of_key = key.start_mark.line + 1
                self._error(line_of_key, f"field {name} not found in type {GO_NAMES[cls]}")
            else:
                values[name] = self._value(known[name], value)
        present = {name: value for name, value in values.items() if value is not None}
        return cls(**present, line=line)

    def _has_repeated_keys(self, node: yaml.MappingNode) -> bool:
        """Report every pair of equal keys; such a mapping is not checked further."""
        lines: dict[str, list[int]] = {}
        for key, _ in node.value:
            lines.setdefault(str(key.value), []).append(key.start_mark.line + 1)
        repeated = {name: found for name, found in lines.items() if len(found) > 1}
        for name, found in repeated.items():
            for first, second in combinations(found, 2):
                if not self._error(second, f'mapping key "{name}" already defined at line {first}'):
                    break
        return bool(repeated)

    def _pairs(self, node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return a mapping's keys and values, including those merged by ``<<``.

        Its own keys have precedence over merged ones, and earlier merges over later ones.
        """
        own = [pair for pair in node.value if pair[0].tag != _MERGE]
        found = {str(key.value): (key, value) for key, value in own}
        for _, value in (pair for pair in node.value if pair[0].tag == _MERGE):
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise QueueConfigError(_NO_MERGE, value.start_mark.line + 1)
                for key, item in self._pairs(source):
                    found.setdefault(str(key.value), (key, item))
        return list(found.values())

    def _value(self, hint: Any, node: yaml.Node) -> Any:
        """Decode a value of a type; None for a null (the default applies) or an error."""
        if _is_null(node):
            return None
        if get_origin(hint) in (Union, UnionType):
            hint = next(item for item in get_args(hint) if item is not type(None))
        if dataclasses.is_dataclass(hint):
            return self.record(cast(type[Any], hint), node)
        origin = get_origin(hint)
        if origin is list:
            return self._list(get_args(hint)[0], node)
        if origin is dict:
            return self._map(get_args(hint)[1], node)
        return self._scalar(hint, node)

    def _list(self, inner: Any, node: yaml.Node) -> list[Any] | None:
        if not isinstance(node, yaml.SequenceNode):
            name = GO_NAMES.get(inner, "string")
            self._wrong(node, f"[]{name}")
            return None
        if dataclasses.is_dataclass(inner):
            return [self.record(cast(type[Any], inner), item) for item in node.value]
        return [self._scalar(inner, item) or "" for item in node.value]

    def _map(self, inner: Any, node: yaml.Node) -> dict[str, Any] | None:
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"map[string]{'float64' if inner is float else 'string'}")
            return None
        if self._has_repeated_keys(node):
            return None
        values: dict[str, Any] = {}
        for key, item in self._pairs(node):
            empty: Any = 0.0 if inner is float else ""
            value = None if _is_null(item) else self._scalar(inner, item)
            values[str(key.value)] = empty if value is None else value
        return values

    def _scalar(self, hint: Any, node: yaml.Node) -> Any:
        reader, go_name = _SCALARS.get(hint, (None, "string"))
        if not isinstance(node, yaml.ScalarNode):
            self._wrong(node, go_name)
            return None
        if reader is None:
            return str(node.value)
        value = reader(scalars.resolved(node)[1])
        if value is None:
            self._wrong(node, go_name)
        return value

    def _wrong(self, node: yaml.Node, go_name: str) -> None:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        text = ""
        if isinstance(node, yaml.ScalarNode):
            tag, value = scalars.resolved(node)[0], str(node.value)
            text = f" `{value}`" if len(value) <= _LONGEST_VALUE else f" `{value[:7]}...`"
        self._error(node.start_mark.line + 1, f"cannot unmarshal {tag}{text} into {go_name}")

    def _error(self, line: int, message: str) -> bool:
        """Record an error; return whether there is room for more."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append((line, message))
        return len(self.errors) < MAX_ERRORS


def _is_null(node: yaml.Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


_SCALARS: dict[Any, tuple[Callable[[scalars.Scalar], Any], str]] = {
    int: (scalars.uint64_of, "uint64"),
    bool: (scalars.truth_of, "bool"),
    float: (scalars.float_of, "float64"),
}
