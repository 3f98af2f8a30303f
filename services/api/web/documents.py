"""From a request's body to manifest documents: YAML with limits; errors have their position.

Limits: MAX_BODY_BYTES, MAX_DOCUMENTS, MAX_DEPTH and MAX_NODES values, aliases as what they stand
for, before anything is built of them, so that a small file cannot grow into a large one; and
MAX_WRITTEN_BYTES. A map with the same key twice is refused, as an API server does it.
"""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from shared.messages.commands import ManifestDocument
from shared.model.bounded_yaml import (
    LIST,
    MAP,
    MERGE,
    NULL,
    STRING,
    TIMESTAMP,
    YamlLimitError,
    compose_bounded,
)
from shared.queueconfig import scalars

MAX_BODY_BYTES = 3 * 1024 * 1024
MAX_DOCUMENTS = 2_000
MAX_NODES = 250_000
MAX_WRITTEN_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 60
_SHOWN = 60  # characters of a key
_TAG = "tag:yaml.org,2002:"
_TIMESTAMP = yaml.SafeLoader.timestamp_regexp


class DocumentsError(ValueError):
    """A body is not a list of manifests; the message has line (from 1) and cause."""

    def __init__(self, message: str, index: int = 0, line: int = 0) -> None:
        super().__init__(message)
        self.index = index
        self.line = line

    @property
    def where(self) -> str:
        """Return which document and line are meant, to be put before the message, as far as known.

        "" is the whole body.
        """
        document = f"document {self.index}: " if self.index else ""
        return document + (f"line {self.line}: " if self.line else "")


def read_documents(body: bytes, source: str) -> tuple[ManifestDocument, ...]:
    """Return the documents of a YAML (or JSON) body; empty ones are skipped."""
    if len(body) > MAX_BODY_BYTES:
        raise DocumentsError(f"{len(body)} bytes, at most {MAX_BODY_BYTES}: split the file")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise DocumentsError(f"not UTF-8: {error}") from error
    with _no_collection():
        documents = _documents(text, source)
    written = sum(len(document.body) for document in documents)
    if written > MAX_WRITTEN_BYTES:
        raise DocumentsError(f"{written} bytes once written out, at most {MAX_WRITTEN_BYTES}")
    if not documents:
        raise DocumentsError("no document in it")
    return tuple(documents)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause garbage collection while many objects are made: it took half of the time.

    As many as there may be are bounded by the limits; of several at once, the first to end ends it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _documents(text: str, source: str) -> list[ManifestDocument]:
    documents: list[ManifestDocument] = []
    index = 0
    try:
        nodes = compose_bounded(text, depth=MAX_DEPTH, values=MAX_NODES)
        for index, node in enumerate(nodes, start=1):
            if index > MAX_DOCUMENTS:
                raise DocumentsError(f"more than {MAX_DOCUMENTS} documents", index)
            if node is not None:
                documents += _document(node, source, index)
    except YamlLimitError as error:
        raise DocumentsError(str(error), error.document, error.line) from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, DocumentsError):
            raise
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise DocumentsError(f"not YAML: {line}{problem}", index + 1) from error
    return documents


def value_of(node: yaml.Node, index: int = 1) -> Any:
    """Convert a document to a value. Raises DocumentsError."""
    try:
        return _built(node, _Made(index))
    except DocumentsError:
        raise
    except ValueError as error:
        raise DocumentsError(f"a value cannot be read: {error}", index) from error


def _document(node: yaml.Node, source: str, index: int) -> list[ManifestDocument]:
    value = value_of(node, index)
    if value is None:
        return []
    if not isinstance(value, dict):
        found = type(value).__name__
        raise DocumentsError(f"a map was expected, found {found}", index)
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        values = value["items"]
    else:
        values = [value]
    try:
        return [
            ManifestDocument(source, index, json.dumps(item, default=str, allow_nan=False))
            for item in values
        ]
    except (TypeError, ValueError) as error:
        raise DocumentsError(f"cannot be written as JSON: {error}", index) from error


@dataclass(slots=True)
class _Made:
    """The values built so far, by node: aliases share their value."""

    index: int
    of: dict[int, Any] = field(default_factory=dict)


def _built(node: yaml.Node, made: _Made) -> Any:
    """Convert a node to a value, plain scalars as in Go's yaml.v3. Raises ValueError."""
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if id(node) not in made.of:
        if node.tag == LIST and isinstance(node, yaml.SequenceNode):
            made.of[id(node)] = [_built(item, made) for item in node.value]
        elif node.tag == MAP and isinstance(node, yaml.MappingNode):
            made.of[id(node)] = _map(node, made)
        else:
            raise ValueError(f"nothing is known of the tag {node.tag[:_SHOWN]}")
    return made.of[id(node)]


def _map(node: yaml.MappingNode, made: _Made) -> dict[Any, Any]:
    """Return a map; its own keys override merged ones, and earlier merges override later ones.

    A repeated key is refused: otherwise one of the two values would be lost silently.
    """
    own: dict[Any, Any] = {}
    merged: dict[Any, Any] = {}
    known: dict[str, yaml.Node] = {}
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ValueError("a key that is a map or a list")  # noqa: TRY004 - the text is wrong
        first = known.setdefault(key.value, key)
        if first is not key:
            said = f'mapping key "{key.value[:_SHOWN]}" already defined'
            at = first.start_mark.line + 1
            raise DocumentsError(f"{said} at line {at}", made.index, key.start_mark.line + 1)
        if key.tag == MERGE:
            merged = _merged(item, made)
        else:
            own[_scalar(key)] = _built(item, made)
    return {**merged, **own} if merged else own


def _merged(node: yaml.Node, made: _Made) -> dict[Any, Any]:
    """Return the values that ``<<`` merges into a map."""
    value: dict[Any, Any] = {}
    for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        merged = _built(source, made)
        if not isinstance(merged, dict):
            raise ValueError(  # noqa: TRY004 - the text is wrong
                "map merge requires map or sequence of maps as the value"
            )
        value = {**merged, **value}
    return value


def _scalar(node: yaml.ScalarNode) -> Any:
    if node.tag == NULL and not node.style:
        return None
    if node.tag == TIMESTAMP:
        if not _TIMESTAMP.match(node.value):
            raise ValueError(f"{node.value[:_SHOWN]!r} is no timestamp")
        return node.value
    kind, value = scalars.resolved(node)
    if node.tag != STRING and node.tag != f"{_TAG}{kind.removeprefix('!!')}":
        if node.tag != f"{_TAG}float" or kind != "!!int":
            shown = node.tag[:_SHOWN].removeprefix(_TAG)
            raise ValueError(f"{node.value[:_SHOWN]!r} is no value of the tag {shown}")
        return float(value)
    return value
