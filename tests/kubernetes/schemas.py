"""Kubernetes' own schemas of a version, for the double: unknown fields, types, how lists are merged.

A schema is a node of the definitions; None where there is none (custom resources). As a server has it
(api conventions, "Patch" and "Merge strategy"): maps are granular unless said atomic, lists are atomic
unless said a set or a map by keys.
"""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

import jsonschema_rs

from tests.kubernetes.tools import schemas as definitions_of
from tests.kubernetes.versions import Served

Schema = dict[str, Any] | None
OPENAPI_2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_2 = b"\n\x032.0"  # a document without definitions: kubectl has its own for built-in kinds
_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"


@cache
def of_version(version: str) -> "Schemas":
    """Return the definitions of a version, which all servers of it share."""
    return Schemas(version)


class Schemas:
    """The definitions of one version."""

    def __init__(self, version: str) -> None:
        self._definitions = definitions_of(version)
        self._validators: dict[str, Any] = {}

    @cached_property
    def _names(self) -> dict[tuple[str, str], str]:
        return {
            (f"{item['group']}/{item['version']}".lstrip("/"), item["kind"]): name
            for name, schema in self._definitions.items()
            for item in schema.get(_GROUP_VERSION_KIND, ())
        }

    def of(self, obj: dict[str, Any]) -> Schema:
        """Return the schema of an object by its apiVersion and kind."""
        name = self._names.get((obj.get("apiVersion", ""), obj.get("kind", "")))
        return self._definitions[name] if name else None

    def resolved(self, schema: Schema) -> Schema:
        """Return a schema with what it refers to."""
        while schema is not None and "$ref" in schema:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self._definitions[schema["$ref"].rpartition("/")[2]], **rest}
        return schema

    def child(self, schema: Schema, key: str) -> Schema:
        """Return the schema of a field, or of a key of a map."""
        if schema is None:
            return None
        found = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        return self.resolved(found) if isinstance(found, dict) else None

    def item(self, schema: Schema) -> Schema:
        """Return the schema of a list's items."""
        return None if schema is None else self.resolved(schema.get("items"))

    def drop_unknown(self, schema: Schema, value: Any, path: str = "") -> Iterator[str]:
        """Drop the fields that the schema does not have; yield each, as strict decoding names it."""
        if schema is None:
            return
        if isinstance(value, list):
            for at, inner in enumerate(value):
                yield from self.drop_unknown(self.item(schema), inner, f"{path}[{at}]")
        elif isinstance(value, dict):
            for key in list(value):
                where = f"{path}.{key}".lstrip(".")
                known = schema.get("properties", {})
                if known and key not in known and not schema.get("additionalProperties"):
                    yield where
                    del value[key]
                else:
                    yield from self.drop_unknown(self.child(schema, key), value[key], where)

    def wrong(self, obj: dict[str, Any]) -> str:
        """Return the first thing of an object that its schema refuses, or an empty text."""
        name = self._names.get((obj.get("apiVersion", ""), obj.get("kind", "")))
        if name is None:
            return ""
        if name not in self._validators:
            root = {"$ref": f"#/$defs/{name}", "$defs": self._definitions}
            self._validators[name] = jsonschema_rs.validator_for(root)
        for error in self._validators[name].iter_errors(obj):
            return f"{'.'.join(map(str, error.instance_path))}: {error.message}"
        return ""


def keys_of(schema: Schema) -> list[str] | None:
    """Return the keys by which the items of a list are told apart; None: the list is no such map.

    A list that says only how a strategic merge patch merges it is taken at that word.
    """
    if schema is None:
        return None
    kind = schema.get("x-kubernetes-list-type")
    merge_key = schema.get("x-kubernetes-patch-merge-key") if _is_merged(schema) else None
    keys = [merge_key] if kind is None and merge_key else schema.get("x-kubernetes-list-map-keys")
    return keys if kind in ("map", None) else None


def is_set(schema: Schema) -> bool:
    """Return whether a list is a set."""
    if schema is None:
        return False
    kind = schema.get("x-kubernetes-list-type")
    is_merged = _is_merged(schema) and "x-kubernetes-patch-merge-key" not in schema
    return kind == "set" or (kind is None and is_merged)


def _is_merged(schema: dict[str, Any]) -> bool:
    return "merge" in schema.get("x-kubernetes-patch-strategy", "")


def is_atomic(schema: Schema) -> bool:
    """Return whether a map is replaced as a whole."""
    return schema is not None and schema.get("x-kubernetes-map-type") == "atomic"


def openapi(served: Served, path: str) -> dict[str, Any] | None:
    """Return the documents of OpenAPI v3 as far as helm and kubectl read them; None: there is none.

    That is, whether a patch of a kind takes ``fieldValidation``: then the server validates, not they.
    """
    where = {"/".join(["apis" if "/" in name else "api", name]): name for name in served}
    if not path:
        found = {key: {"serverRelativeURL": f"/openapi/v3/{key}"} for key in where}
        return {"paths": found}
    if path not in where:
        return None
    group, _, version = f"/{where[path]}".rpartition("/")
    patch = {"in": "query", "name": "fieldValidation", "schema": {"type": "string"}}
    paths = {
        f"/{path}/{plural}/{{name}}": {
            "patch": {
                "parameters": [patch],
                "responses": {},
                _GROUP_VERSION_KIND: {"group": group[1:], "version": version, "kind": kind},
            }
        }
        for plural, kind in served[where[path]].items()
    }
    return {"openapi": "3.0.0", "info": {"title": "double", "version": ""}, "paths": paths}
