"""A file that holds one YAML document: judged as a manifest is, before anything is built of it."""

from dataclasses import dataclass
from typing import Any

import yaml

from services.api.web.documents import MAX_DEPTH, MAX_NODES, DocumentsError, value_of
from shared.model.bounded_yaml import YamlLimitError, compose_bounded


class YamlFileError(ValueError):
    """A text that is not one YAML document; ``line`` counts from 1."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Inline:
    """A map of a file as text of its own: with the file's words, on the file's lines."""

    text: str


def write_inline(text: str, key: str, node: yaml.Node, value: Any) -> None:
    """Put a map below a key of a map as it stands in the text in place of what it holds.

    It is written again where it does not stand alone: with aliases of what comes before it.
    """
    if not (isinstance(node, yaml.MappingNode) and isinstance(value, dict)):
        return
    for found in (below for name, below in node.value if name.value == key):
        if not isinstance(value.get(key), dict):
            continue
        start, end = found.start_mark, found.end_mark
        own = "\n" * start.line + " " * start.column + text[start.index : end.index]
        try:
            stands_alone = one_document(own)[1] == value[key]
        except YamlFileError:
            stands_alone = False
        value[key] = Inline(own if stands_alone else yaml.safe_dump(value[key], sort_keys=False))


def one_document(text: str) -> tuple[yaml.Node | None, Any]:
    """Return a text's only document and what it holds, None where there is nothing in it.

    Raises YamlFileError.
    """
    try:
        roots = list(compose_bounded(text, depth=MAX_DEPTH, values=MAX_NODES))
        if len(roots) > 1:
            raise YamlFileError(f"one document was expected, found {len(roots)}")
        root = roots[0] if roots else None
        return root, None if root is None else value_of(root)
    except YamlLimitError as error:
        raise YamlFileError(str(error), error.line) from error
    except DocumentsError as error:
        raise YamlFileError(str(error), error.line or 1) from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, YamlFileError):
            raise
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        line = mark.line + 1 if mark is not None else 1
        raise YamlFileError(f"not YAML: {problem}", line) from error
