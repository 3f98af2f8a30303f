"""docs/asyncapi.yaml: every inbox and every kind of message, from the registry."""

import collections.abc
import dataclasses
import inspect
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from shared.bus.codec import nested_class, wire_name
from shared.messages.envelope import SCHEMA_VERSION
from shared.messages.registry import KINDS
from shared.messages.routes import SENDERS
from shared.messages.sections import sections_of

_JSON_TYPES: dict[Any, str] = {int: "integer", str: "string", bool: "boolean", float: "number"}


def asyncapi_document() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Muster's messages",
            "version": str(SCHEMA_VERSION),
            "description": "Generated from shared/messages by scripts/make_docs.py. The body is a "
            "msgpack map; a section is a map of columns (see shared/bus/codec.py).",
        },
        "channels": {
            inbox: {
                "address": inbox,
                "messages": {kind: {"$ref": f"#/components/messages/{kind}"} for kind in kinds},
            }
            for inbox, kinds in SENDERS.items()
        },
        "components": {
            "messages": {
                kind: {"summary": _summary(cls), "payload": _schema(cls)}
                for kind, cls in KINDS.items()
            }
        },
    }


def _summary(cls: type[Any]) -> str:
    return (inspect.getdoc(cls) or "").split("\n", 1)[0]


def _schema(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    sections = dict(sections_of(cls))
    properties: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        if item.name in sections:
            inner = _schema(sections[item.name])
            properties[wire_name(item.name)] = {"type": "array", "items": inner}
        else:
            properties[wire_name(item.name)] = _type_of(hints[item.name])
    return {"type": "object", "description": _summary(cls), "properties": properties}


def _type_of(hint: Any) -> dict[str, Any]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": [item.value for item in hint]}
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    nested = nested_class(hint)
    if nested is not None:
        inner = _schema(nested)
        return {"type": "array", "items": inner} if get_origin(hint) is tuple else inner
    origin = get_origin(hint)
    if origin is tuple:
        return {"type": "array", "items": _type_of(get_args(hint)[0])}
    if origin in (dict, collections.abc.Mapping):
        return {"type": "object", "additionalProperties": _type_of(get_args(hint)[1])}
    mapping = next((a for a in get_args(hint) if get_origin(a) is collections.abc.Mapping), None)
    return {"type": "object"} if mapping is None else _type_of(mapping)
