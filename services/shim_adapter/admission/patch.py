"""JSON patches (RFC 6902) that set texts in maps of an object, and a text beside them."""

from collections.abc import Mapping
from typing import Any

Operation = dict[str, Any]


def pointer(*names: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)


def put(path: str, value: str) -> Operation:
    """Return what sets a field, whether or not it is there."""
    return {"op": "add", "path": path, "value": value}


def put_into(
    path: str, there: Mapping[str, str] | None, wanted: Mapping[str, str]
) -> list[Operation]:
    """Return what sets keys of a map that may not be there; what is right already is left alone."""
    if there is None:
        return [{"op": "add", "path": path, "value": dict(wanted)}] if wanted else []
    return [
        put(path + pointer(key), value) for key, value in wanted.items() if there.get(key) != value
    ]
