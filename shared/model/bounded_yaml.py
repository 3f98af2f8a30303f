"""Parses YAML of untrusted senders into nodes, within limits of depth and count.

libyaml's events arrive one by one and need no stack, but its composer recurses: a text of a few
kilobytes that nests deeply enough ends the process. So nodes are built here from events, without
recursion, and within the limits. Plain scalars have the meaning of YAML 1.2, as in Go's yaml.v3
(``shared/queueconfig/scalars.py``): ``1:30`` is text and not a number of base 60.
"""

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import ComposerError

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
STRING, LIST, MAP, NULL, MERGE, TIMESTAMP = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map", "null", "merge", "timestamp")
)
# Possible tags of a plain scalar, by first character; numbers and booleans are resolved elsewhere.
_RESOLVERS: dict[str, list[tuple[str, Any]]] = {
    first: [(tag, pattern) for tag, pattern in found if tag in (NULL, MERGE, TIMESTAMP)]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_QUOTED = "'"
_CHARACTERS_A_VALUE = 32  # a long text counts as several values
_LEVELS_A_VALUE = 20  # a value so deep counts twice: libyaml walks the levels at each token


class YamlLimitError(ValueError):
    """A text nests too deeply or has too many values. ``line`` and ``document`` count from 1."""

    def __init__(self, message: str, line: int, document: int) -> None:
        super().__init__(message)
        self.line = line
        self.document = document


def compose_bounded(text: str, *, depth: int, values: int) -> Iterator[yaml.Node | None]:
    """Yield the root nodes of the documents, in order. Aliases count as if written out.

    A plain scalar's tag is null, merge, timestamp or text; ``shared/queueconfig/scalars.py``
    resolves numbers and booleans. ``values`` limits keys, values, maps and lists of all documents
    together; a text of N characters counts as 1 + N / 32, and each value once more for every 20
    levels above it. Raises YamlLimitError at the first value beyond a limit, and yaml.YAMLError for
    invalid YAML. An empty document is None.
    """
    composer = _Composer(depth, values)
    for event in yaml.parse(text, Loader=Loader):
        if composer.take(event):
            yield composer.root


class _Composer:
    """Builds nodes from events. ``root`` is that of the last finished document."""

    def __init__(self, depth: int, values: int) -> None:
        self.root: yaml.Node | None = None
        self._depth, self._values = depth, values
        self._found = self._document = 0
        self._open: list[yaml.CollectionNode] = []
        self._keys: list[yaml.Node | None] = []  # of each open map, the key without a value
        self._begun: list[int] = []  # of each open node, the count before it
        self._heights: list[int] = []  # of each open node, its depth below
        self._anchors: dict[str, yaml.Node] = {}
        self._sizes: dict[int, tuple[int, int]] = {}  # of closed nodes: values and depth

    def take(self, event: Any) -> bool:
        """Process an event; return whether a document has ended."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._count(1 + len(event.value) // _CHARACTERS_A_VALUE, event)
            self._add(_scalar(event), event)
        elif kind is yaml.MappingStartEvent:
            self._start(yaml.MappingNode(event.tag or MAP, [], event.start_mark), event)
        elif kind is yaml.SequenceStartEvent:
            self._start(yaml.SequenceNode(event.tag or LIST, [], event.start_mark), event)
        elif kind is yaml.AliasEvent:
            self._repeat(event)
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            self._end(event)
        elif kind is yaml.DocumentStartEvent:
            self._document += 1
            self._anchors, self._sizes, self.root = {}, {}, None
        return kind is yaml.DocumentEndEvent

    def _start(self, node: yaml.CollectionNode, event: Any) -> None:
        node.flow_style = event.flow_style
        self._begun.append(self._found)
        self._count(1, event)
        self._add(node, event)
        self._open.append(node)
        self._keys.append(None)
        self._heights.append(1)
        self._check_depth(0, event)

    def _end(self, event: Any) -> None:
        node, begun, height = self._open.pop(), self._begun.pop(), self._heights.pop()
        node.end_mark = event.end_mark
        self._keys.pop()
        if self._anchors:  # an alias may refer to it, or to its parents
            self._sizes[id(node)] = self._found - begun, height
        if self._heights and self._heights[-1] <= height:
            self._heights[-1] = height + 1

    def _repeat(self, event: Any) -> None:
        """Add the node of an alias. An alias to a node that contains it exceeds the depth limit."""
        if event.anchor not in self._anchors:
            said = f"found undefined alias {event.anchor!r}"
            raise ComposerError(None, None, said, event.start_mark)
        node = self._anchors[event.anchor]
        size, height = 1, 0
        if isinstance(node, yaml.ScalarNode):
            size += len(node.value) // _CHARACTERS_A_VALUE
        else:
            size, height = self._sizes.get(id(node), (1, self._depth + 1))
        self._check_depth(height, event)
        self._count(size, event, " once its aliases are written out")
        if self._heights and self._heights[-1] <= height:
            self._heights[-1] = height + 1
        self._add(node, event)

    def _count(self, values: int, event: Any, how: str = "") -> None:
        self._found += values + len(self._open) // _LEVELS_A_VALUE
        if self._found > self._values:
            raise self._limit(f"more than {self._values} values{how}", event)

    def _check_depth(self, more: int, event: Any) -> None:
        if len(self._open) + more > self._depth:
            raise self._limit(f"nested deeper than {self._depth}", event)

    def _add(self, node: yaml.Node, event: Any) -> None:
        """Add a node to the innermost open list or map, or make it the root."""
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        if not self._open:
            self.root = node
            return
        within = self._open[-1]
        if type(within) is yaml.SequenceNode:
            within.value.append(node)
        elif (key := self._keys[-1]) is None:
            self._keys[-1] = node
        else:
            within.value.append((key, node))
            self._keys[-1] = None

    def _limit(self, message: str, event: Any) -> YamlLimitError:
        return YamlLimitError(message, event.start_mark.line + 1, self._document)


def _scalar(event: Any) -> yaml.ScalarNode:
    """Return a scalar's node; one tagged as text is treated like a quoted one."""
    tag, text, style = event.tag, event.value, event.style
    if tag is None or tag == "!":
        tag = STRING
        for found, pattern in _RESOLVERS.get(text[:1], ()) if event.implicit[0] else ():
            if pattern.match(text):
                tag = found
                break
    elif tag == STRING:
        style = style or _QUOTED
    return yaml.ScalarNode(tag, text, event.start_mark, event.end_mark, style)
