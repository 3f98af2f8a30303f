"""Server-side apply, for the double: who owns which field, conflicts, and what an apply removes.

As Kubernetes' "Server-Side Apply" has it: an apply owns what it says; a field that somebody else owns with
another value is a conflict, 409, unless forced; what the manager said before and no longer says goes,
unless somebody else owns it as well. Any other write owns what it changes. Fields are those of
``managedFields``: `f:name`, `k:{keys}` of an item, `v:value` of a set.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.schemas import Schema, Schemas, is_atomic, is_set, keys_of
from tests.kubernetes.store import ApiFailureError, Object, now

Path = tuple[str, ...]
Fields = dict[Path, Any]  # every leaf that is owned, with its value
_ABSENT = object()
_OURS = ("apiVersion", "kind", "status")
_OURS_OF_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip


class Ownership:
    """Of one version's schemas."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def applied(self, live: Object | None, config: Object, manager: str, force: bool) -> Object:
        """Return the object after an apply. Raises ApiFailureError 409 with every conflict."""
        schema = self._schemas.of(config)
        said = self._fields(schema, config)
        owners = _owners(live or {})
        before = owners.pop((manager, "Apply"), set())
        there = self._fields(schema, live or {})
        conflicts = [
            (who, path)
            for who, paths in owners.items()
            for path in sorted(paths & set(said))
            if there.get(path, _ABSENT) != said[path]
        ]
        if conflicts and not force:
            raise _conflict(conflicts)
        for who, path in conflicts:
            owners[who].discard(path)
        kept = {path for paths in owners.values() for path in paths}
        gone = {path for path in before - set(said) - kept if path in there}
        merged = self._merged(schema, live or {}, config)
        result = self._without(schema, merged, gone)
        owners[manager, "Apply"] = set(said)
        return _owned(result, owners)

    def written(self, live: Object | None, after: Object, manager: str) -> Object:
        """Return the object after another write, with its owners: the manager owns what changed."""
        schema = self._schemas.of(after)
        there, is_now = self._fields(schema, live or {}), self._fields(schema, after)
        changed = {path for path in is_now if there.get(path, _ABSENT) != is_now[path]}
        owners = {
            who: (paths & set(is_now)) - changed for who, paths in _owners(live or {}).items()
        }
        mine = owners.setdefault((manager, "Update"), set())
        mine |= changed
        return _owned(after, owners)

    def _fields(self, schema: Schema, obj: Object) -> Fields:
        stripped = {key: value for key, value in obj.items() if key not in _OURS}
        metadata = stripped.get("metadata", {})
        kept = {key: value for key, value in metadata.items() if key not in _OURS_OF_METADATA}
        stripped["metadata"] = kept
        return dict(self._leaves(schema, stripped, ()))

    def _leaves(self, schema: Schema, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        inner = list(self._parts(schema, value))
        if not inner:
            if path and value is not None and path != ("f:metadata",):
                yield path, value
            return
        for name, child, part in inner:
            if name.startswith("k:"):
                yield (*path, name, "."), True
            yield from self._leaves(child, part, (*path, name))

    def _parts(self, schema: Schema, value: Any) -> Iterator[tuple[str, Schema, Any]]:
        """Yield what a value has that is owned by itself: nothing of what is atomic."""
        if isinstance(value, dict) and not is_atomic(schema):
            for key, part in value.items():
                yield f"f:{key}", self._schemas.child(schema, key), part
        elif isinstance(value, list):
            item, keys = self._schemas.item(schema), keys_of(schema)
            for part in value if keys or is_set(schema) else ():
                yield _name_of(keys, item, part), item, part

    def _merged(self, schema: Schema, live: Any, config: Any) -> Any:
        if isinstance(live, dict) and isinstance(config, dict) and not is_atomic(schema):
            merged = dict(live)
            for key, part in config.items():
                child = self._schemas.child(schema, key)
                merged[key] = self._merged(child, live[key], part) if key in live else part
            return merged
        if isinstance(live, list) and isinstance(config, list):
            keys, item = keys_of(schema), self._schemas.item(schema)
            if keys or is_set(schema):
                said = {_name_of(keys, item, part): part for part in config}
                there = {_name_of(keys, item, part): part for part in live}
                merged_items = {
                    name: self._merged(item, there[name], part) if name in there else part
                    for name, part in said.items()
                }
                return [*({**there, **merged_items}).values()]
        return config

    def _without(self, schema: Schema, obj: Any, gone: set[Path], path: Path = ()) -> Any:
        """Return a value without the fields that go; an item goes with the owner of its key."""
        if not any(found[: len(path)] == path for found in gone):
            return obj
        keys, item = keys_of(schema), self._schemas.item(schema)
        if isinstance(obj, dict):
            kept = {}
            for key, part in obj.items():
                where = (*path, f"f:{key}")
                if where in gone:
                    continue
                left = self._without(self._schemas.child(schema, key), part, gone, where)
                if left not in ({}, []) or part in ({}, []):
                    kept[key] = left
            return kept
        if isinstance(obj, list):
            named = [((*path, _name_of(keys, item, part)), part) for part in obj]
            return [
                self._without(item, part, gone, where)
                for where, part in named
                if where not in gone and (*where, ".") not in gone
            ]
        return obj


def _name_of(keys: list[str] | None, item: Schema, part: Any) -> str:
    if keys is None:
        return f"v:{json.dumps(part)}"
    properties = (item or {}).get("properties", {})
    found = {key: part.get(key, properties.get(key, {}).get("default")) for key in keys}
    return f"k:{json.dumps(found, separators=(',', ':'))}"


def _owners(obj: Object) -> dict[tuple[str, str], set[Path]]:
    return {
        (entry["manager"], entry["operation"]): set(_paths(entry["fieldsV1"]))
        for entry in obj.get("metadata", {}).get("managedFields", ())
    }


def _paths(tree: Object, path: Path = ()) -> Iterator[Path]:
    if not tree and path:
        yield path
    for name, inner in tree.items():
        yield from _paths(inner, (*path, name))


def _owned(obj: Object, owners: dict[tuple[str, str], set[Path]]) -> Object:
    """Return the object with managedFields as the API has them."""
    entries = []
    for (manager, operation), paths in sorted(owners.items()):
        tree: Object = {}
        for path in sorted(paths):
            inner = tree
            for name in path:
                inner = inner.setdefault(name, {})
        if paths:
            entries.append({
                "manager": manager, "operation": operation, "apiVersion": obj["apiVersion"],
                "time": now(), "fieldsType": "FieldsV1", "fieldsV1": tree,
            })  # fmt: skip
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


def _conflict(conflicts: list[tuple[tuple[str, str], Path]]) -> ApiFailureError:
    each = [
        f'conflict with "{manager}": {"".join(f".{name[2:]}" for name in path)}'
        for (manager, _), path in conflicts
    ]
    text = f"Apply failed with {len(each)} conflict{'s' * (len(each) > 1)}: {'; '.join(each)}"
    return ApiFailureError(409, "Conflict", text)
