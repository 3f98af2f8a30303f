"""The patches of an API server, for the double: merge (RFC 7386), JSON (RFC 6902), strategic merge.

A strategic merge patch is what helm 3 and `kubectl patch` send: a list with a merge key is merged item by
item, `$patch: delete` takes one out, `$setElementOrder` orders, `$retainKeys` clears the rest.
"""

from copy import deepcopy
from typing import Any

from tests.kubernetes.schemas import Schema, Schemas
from tests.kubernetes.store import ApiFailureError, Object

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json-patch+json"
MEDIA_TYPES = (MERGE, STRATEGIC, APPLY, JSON)
_ORDER, _REMOVED = "$setElementOrder/", "$deleteFromPrimitiveList/"


def merge(into: Object, patch: Object) -> None:
    """Merge maps; anything else is replaced, null removes."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            inner = into.get(key)
            into[key] = inner if isinstance(inner, dict) else {}
            merge(into[key], value)
        else:
            into[key] = value


def by_steps(obj: Object, steps: list[Object]) -> Object:
    """Carry a JSON patch of the operations add, replace and remove out.

    A parent that is not there, or what is to be replaced or removed and is not, is a LookupError.
    """
    obj = deepcopy(obj)
    for step in steps:
        *way, last = [
            part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]
        ]
        inner: Any = obj
        for name in way:
            inner = inner[_key(inner, name)]
        key = _key(inner, last)
        if step["op"] != "add":
            del inner[key]
        if step["op"] == "remove":
            continue
        if isinstance(inner, list):
            inner.insert(key, step["value"])
        else:
            inner[key] = step["value"]
    return obj


def _key(inner: Any, name: str) -> Any:
    return int(name) if isinstance(inner, list) else name


def strategic(schemas: Schemas, schema: Schema, into: Object, patch: Object) -> None:
    """Merge by the schema. Raises ApiFailureError 400 for a directive that is not known here."""
    if patch.get("$patch") == "replace":
        into.clear()
    for key in set(into) - set(patch.get("$retainKeys", into)):
        del into[key]
    for key, value in patch.items():
        if key.startswith("$"):
            _known(key)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = _value(schemas, schemas.child(schema, key), into.get(key), value)
    for key, value in patch.items():
        if key.startswith((_ORDER, _REMOVED)):
            name = key.partition("/")[2]
            merge_key = (schemas.child(schema, name) or {}).get("x-kubernetes-patch-merge-key")
            into[name] = _directed(key, into.get(name) or [], value, merge_key)


def _value(schemas: Schemas, schema: Schema, into: Any, value: Any) -> Any:
    how = (schema or {}).get("x-kubernetes-patch-strategy", "")
    if isinstance(value, dict) and "replace" not in how:
        merged = into if isinstance(into, dict) else {}
        strategic(schemas, schema, merged, value)
        return merged
    if isinstance(value, list) and "merge" in how:
        return _merged(schemas, schema, into or [], value)
    return value


def _known(key: str) -> None:
    if key not in ("$patch", "$retainKeys") and not key.startswith((_ORDER, _REMOVED)):
        raise ApiFailureError(400, "BadRequest", f"unknown directive {key}")


def _merged(schemas: Schemas, schema: Schema, into: list[Any], patch: list[Any]) -> list[Any]:
    assert schema is not None
    merge_key = schema.get("x-kubernetes-patch-merge-key")
    if merge_key is None:
        return into + [item for item in patch if item not in into]
    if {"$patch": "replace"} in patch:
        return [item for item in patch if "$patch" not in item]
    for item in patch:
        if merge_key not in item:
            text = f"map: {item} does not contain declared merge key: {merge_key}"
            raise ApiFailureError(400, "BadRequest", text)
        found = next((old for old in into if old.get(merge_key) == item[merge_key]), None)
        if item.get("$patch") == "delete":
            into = [old for old in into if old is not found]
        elif found is None:
            into = [*into, item]
        else:
            strategic(schemas, schemas.item(schema), found, item)
    return into


def _directed(key: str, into: list[Any], words: list[Any], merge_key: str | None) -> list[Any]:
    if key.startswith(_REMOVED):
        return [item for item in into if item not in words]
    order = [word[merge_key] if merge_key else word for word in words]

    def place(item: Any) -> int:
        name = item[merge_key] if merge_key else item
        return order.index(name) if name in order else len(order)

    return sorted(into, key=place)
