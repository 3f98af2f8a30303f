"""JSON patches (RFC 6902) that set a text field, or texts in a map of an object."""

from collections.abc import Mapping
from typing import Any

Operation = dict[str, Any]


def pointer(*names: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)


def put(path: str, value: str) -> Operation:
    """Return the operation that sets a field, whether or not it exists."""
    return {"op": "add", "path": path, "value": value}


def put_into(
    path: str, there: Mapping[str, str] | None, wanted: Mapping[str, str]
) -> list[Operation]:
    """Return the operations that set keys of a map (None: there is no map yet).

    A key that already has its value needs no operation.
    """
    if there is None:
        return [{"op": "add", "path": path, "value": dict(wanted)}] if wanted else []
    return [
        put(path + pointer(key), value) for key, value in wanted.items() if there.get(key) != value
    ]
