"""YAML that strangers send: depth and counts are judged by its events, before a tree is built.

libyaml's events come one by one and cost no stack; its composer recurses, and a text of a few
kilobytes that nests deeply enough ends the process. So nothing is composed that was not counted.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import yaml

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSES = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_VALUES = (*_OPENS, yaml.ScalarEvent, yaml.AliasEvent)


class YamlLimitError(ValueError):
    """A text nests too deeply or holds too many values. ``line`` and ``document`` count from 1."""

    def __init__(self, message: str, line: int, document: int) -> None:
        super().__init__(message)
        self.line = line
        self.document = document


def compose_bounded(text: str, *, depth: int, values: int) -> Iterator[yaml.Node | None]:
    """Yield the documents' nodes, in order. Aliases are not counted by what they stand for.

    ``values`` bounds keys, values, maps and lists of all documents together. Raises YamlLimitError
    before anything is composed, and yaml.YAMLError where the text is no YAML.
    """
    _count(text, depth, values)
    yield from yaml.compose_all(text, Loader=Loader)


def _count(text: str, depth: int, values: int) -> None:
    """Walk the events up to the first limit; what is no YAML ends the walk, composing says why."""
    opened = found = document = 0
    with suppress(yaml.YAMLError, UnicodeError):
        for event in yaml.parse(text, Loader=Loader):
            opened += isinstance(event, _OPENS) - isinstance(event, _CLOSES)
            found += isinstance(event, _VALUES)
            document += isinstance(event, yaml.DocumentStartEvent)
            if opened > depth or found > values:
                too_many = f"more than {values} values"
                message = f"nested deeper than {depth}" if opened > depth else too_many
                assert event.start_mark is not None
                raise YamlLimitError(message, event.start_mark.line + 1, document)
