"""What an API server does with objects of built-in kinds as helm and kubectl write them, for the double.

Fields that a version does not know are refused, or dropped with a warning, as ``fieldValidation`` says;
what is of a wrong type is refused; labels, immutable fields, generations and owners of fields are as on
a real one. Not done: defaults, what controllers do, and every other rule of validation.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.ownership import Ownership
from tests.kubernetes.patches import APPLY, JSON, STRATEGIC, by_steps, merge, strategic
from tests.kubernetes.schemas import Schemas
from tests.kubernetes.store import ApiFailureError, Object, Store

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_OF_STATEFUL_SETS = {
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
}  # fmt: skip
_IMMUTABLE: dict[str, Callable[[Object], Any]] = {
    "statefulsets.apps": lambda obj: {
        key: value for key, value in obj["spec"].items() if key not in _OF_STATEFUL_SETS
    },
    "deployments.apps": lambda obj: obj["spec"]["selector"],
    "rolebindings.rbac.authorization.k8s.io": lambda obj: obj["roleRef"],
    "clusterrolebindings.rbac.authorization.k8s.io": lambda obj: obj["roleRef"],
    "secrets": lambda obj: obj.get("type", "Opaque"),
}
_UNCHANGING = ("uid", "creationTimestamp", "name", "namespace")


@dataclass
class Asked:
    """How a write is asked for; ``warnings`` is what the answer says beside it."""

    manager: str
    content_type: str = "application/json"
    validation: str = "Warn"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


class BuiltIn:
    """Writes to a store by the schemas of a version."""

    def __init__(self, store: Store, schemas: Schemas) -> None:
        self._store = store
        self._schemas = schemas
        self._ownership = Ownership(schemas)

    def create(self, resource: str, namespace: str, body: Object, asked: Asked) -> Object:
        """Return what is stored of a new object. Raises ApiFailureError."""
        obj = self._decoded(body, asked)
        self._check(resource, obj, None)
        if asked.content_type == APPLY:
            obj = self._ownership.applied(None, obj, asked.manager, asked.force)
        else:
            obj = self._ownership.written(None, obj, asked.manager)
        obj["metadata"]["generation"] = 1
        return self._store.create(resource, namespace, obj)

    def put(self, resource: str, live: Object, body: Object, asked: Asked) -> Object:
        """Return what is stored of an object that is replaced. Raises ApiFailureError."""
        obj = self._decoded(body, asked)
        return self._changed(resource, live, obj, asked)

    def patch(self, resource: str, live: Object, patch: Object, asked: Asked) -> Object:
        """Return what is stored of an object that is patched. Raises ApiFailureError."""
        if asked.content_type == APPLY:
            config = self._decoded(patch, asked)
            obj = self._ownership.applied(live, config, asked.manager, asked.force)
            return self._stored(resource, live, obj)
        if asked.content_type == JSON:
            return self._by_steps(resource, live, patch, asked)
        obj = deepcopy(live)
        if asked.content_type == STRATEGIC:
            strategic(self._schemas, self._schemas.of(live), obj, patch)
        else:
            merge(obj, patch)
        return self._changed(resource, live, self._decoded(obj, asked), asked)

    def _by_steps(self, resource: str, live: Object, steps: Any, asked: Asked) -> Object:
        """Carry a JSON patch out, which may say the owners of fields itself."""
        obj = self._decoded(by_steps(live, steps), asked)
        metadata, before = obj["metadata"], live["metadata"]
        if metadata["resourceVersion"] != before["resourceVersion"]:
            raise ApiFailureError(409, "Conflict", "the object has been modified")
        if metadata.get("managedFields") != before.get("managedFields"):
            return self._stored(resource, live, obj)
        return self._changed(resource, live, obj, asked)

    def _changed(self, resource: str, live: Object, obj: Object, asked: Asked) -> Object:
        return self._stored(resource, live, self._ownership.written(live, obj, asked.manager))

    def _stored(self, resource: str, live: Object, obj: Object) -> Object:
        """Store a changed object; one that is as it was is not written."""
        metadata, before = obj["metadata"], live["metadata"]
        for key in _UNCHANGING:
            if key in before:
                metadata[key] = before[key]
        metadata["resourceVersion"] = before["resourceVersion"]
        generation = before.get("generation", 1)
        metadata["generation"] = generation + (_meant(obj) != _meant(live))
        obj.pop("status", None)  # which has a subresource of its own
        if "status" in live:
            obj["status"] = live["status"]
        self._check(resource, obj, live)
        if _without_times(obj) == _without_times(live):
            return live

        def change(copy: Object) -> None:
            copy.clear()
            copy.update(obj)

        return self._store.update(resource, live, change)

    def _decoded(self, body: Object, asked: Asked) -> Object:
        """Return a body as it is decoded. Raises ApiFailureError 400: what is no such object."""
        obj = deepcopy(body)
        if not obj.get("kind") or not obj.get("apiVersion"):
            raise ApiFailureError(400, "BadRequest", "Object 'Kind' is missing")
        unknown = list(self._schemas.drop_unknown(self._schemas.of(obj), obj))
        if unknown and asked.validation == "Strict":
            each = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise ApiFailureError(400, "BadRequest", f"strict decoding error: {each}")
        if asked.validation == "Warn":
            asked.warnings += [f'unknown field "{path}"' for path in unknown]
        return obj

    def _check(self, resource: str, obj: Object, live: Object | None) -> None:
        wrong = self._schemas.wrong({key: value for key, value in obj.items() if key != "status"})
        labels = (obj.get("metadata") or {}).get("labels") or {}
        for value in labels.values():
            if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
                wrong = wrong or f"metadata.labels: Invalid value: {value!r}"
        immutable = _IMMUTABLE.get(resource)
        if immutable is not None and live is not None and immutable(obj) != immutable(live):
            wrong = wrong or "spec: Forbidden: a field that is immutable would change"
        if wrong:
            name = obj.get("metadata", {}).get("name", "")
            kind = f"{obj['kind']}.{obj['apiVersion'].rpartition('/')[0]}".rstrip(".")
            raise ApiFailureError(422, "Invalid", f'{kind} "{name}" is invalid: {wrong}')


def _meant(obj: Object) -> Object:
    """Return what an object asks for, whose changes are counted."""
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _without_times(obj: Object) -> Object:
    entries = obj["metadata"].get("managedFields", ())
    said = [{key: value for key, value in entry.items() if key != "time"} for entry in entries]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": said}}
