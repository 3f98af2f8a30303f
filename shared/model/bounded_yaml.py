"""YAML of unknown senders: nodes made of its events, within limits of depth and count.

libyaml's events come one by one and cost no stack. Its composer recurses, and a text of a few
kilobytes that nests deeply enough ends the process; so nodes are made here, without recursion, and
no more of them than the limits allow. Plain scalars mean what YAML 1.2 says they mean, as Go's
yaml.v3 reads them (``shared/queueconfig/scalars.py``): ``1:30`` is text and no number of base 60.
"""

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import ComposerError

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
STRING, LIST, MAP, NULL, MERGE, TIMESTAMP = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map", "null", "merge", "timestamp")
)
# What a plain scalar may be by its first character; numbers and truths are not told apart here.
_RESOLVERS: dict[str, list[tuple[str, Any]]] = {
    first: [(tag, pattern) for tag, pattern in found if tag in (NULL, MERGE, TIMESTAMP)]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_QUOTED = "'"


class YamlLimitError(ValueError):
    """A text nests too deeply or holds too many values. ``line`` and ``document`` count from 1."""

    def __init__(self, message: str, line: int, document: int) -> None:
        super().__init__(message)
        self.line = line
        self.document = document


def compose_bounded(text: str, *, depth: int, values: int) -> Iterator[yaml.Node | None]:
    """Yield the documents' nodes, in order. Aliases are not counted by what they stand for.

    A plain scalar's tag is that of a null, a merge, a timestamp or a text: what a text is besides,
    ``shared/queueconfig/scalars.py`` knows. ``values`` bounds keys, values, maps and lists of all
    documents together. Raises YamlLimitError at the first value beyond a limit, and yaml.YAMLError
    where the text is no YAML. A document without anything in it is None.
    """
    composer = _Composer(depth, values)
    for event in yaml.parse(text, Loader=Loader):
        if composer.take(event):
            yield composer.root


class _Composer:
    """Makes nodes of events. ``root`` is the document's that ended last."""

    def __init__(self, depth: int, values: int) -> None:
        self.root: yaml.Node | None = None
        self._depth, self._values = depth, values
        self._found = self._document = 0
        self._open: list[yaml.CollectionNode] = []
        self._keys: list[yaml.Node | None] = []  # of each open map the key that waits for its value
        self._anchors: dict[str, yaml.Node] = {}

    def take(self, event: Any) -> bool:
        """Take the next event; return whether a document has ended."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._add(_scalar(event), event)
        elif kind is yaml.MappingStartEvent:
            self._start(yaml.MappingNode(event.tag or MAP, [], event.start_mark), event)
        elif kind is yaml.SequenceStartEvent:
            self._start(yaml.SequenceNode(event.tag or LIST, [], event.start_mark), event)
        elif kind is yaml.AliasEvent:
            self._add(self._meant(event), event)
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            self._open.pop().end_mark = event.end_mark
            self._keys.pop()
        elif kind is yaml.DocumentStartEvent:
            self._document += 1
            self._anchors, self.root = {}, None
        return kind is yaml.DocumentEndEvent

    def _start(self, node: yaml.CollectionNode, event: Any) -> None:
        node.flow_style = event.flow_style
        self._add(node, event)
        self._open.append(node)
        self._keys.append(None)
        if len(self._open) > self._depth:
            raise self._limit(f"nested deeper than {self._depth}", event)

    def _add(self, node: yaml.Node, event: Any) -> None:
        """Put a node where it belongs: in the innermost open list or map, or at the root."""
        self._found += 1
        if self._found > self._values:
            raise self._limit(f"more than {self._values} values", event)
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

    def _meant(self, event: Any) -> yaml.Node:
        if event.anchor not in self._anchors:
            said = f"found undefined alias {event.anchor!r}"
            raise ComposerError(None, None, said, event.start_mark)
        return self._anchors[event.anchor]

    def _limit(self, message: str, event: Any) -> YamlLimitError:
        return YamlLimitError(message, event.start_mark.line + 1, self._document)


def _scalar(event: Any) -> yaml.ScalarNode:
    """Return a scalar's node; one that is tagged as text is as if it stood in quotes."""
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
