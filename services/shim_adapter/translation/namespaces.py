"""What a namespace's annotations say of the queues of its applications.

A quota that does not hold as a whole is dropped as a whole. Source: cases K-10 and Q-23.

Source: docs/rules/pods.md#labels-and-annotations.
"""

import json
from collections.abc import Mapping
from typing import Any

from shared.model.numbers import parse_int64
from shared.model.quantity import QuantityError, pod_resources
from shared.model.resources import Resource, is_negative
from shared.model.texts import load_json

_PREFIX = "yunikorn.apache.org/"
PARENT_QUEUE = f"{_PREFIX}parentqueue"
QUOTA = f"{_PREFIX}namespace.quota"
GUARANTEED = f"{_PREFIX}namespace.guaranteed"
MAX_APPS = f"{_PREFIX}namespace.maxApps"
_OLD_QUOTA = {
    f"{_PREFIX}namespace.max.cpu": "cpu",
    f"{_PREFIX}namespace.max.memory": "memory",
}
# They go with every application of the namespace. The core refuses a queue long before that.
_LONGEST_QUOTA = 8 * 1024
_LONGEST_QUEUE = 1024


def namespace_tags(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return the application tags that a namespace's annotations come to."""
    tags: dict[str, str] = {}
    quota = namespace_quota(annotations)
    guaranteed = _amounts(annotations.get(GUARANTEED))
    for name, resource in (
        ("namespace.resourcequota", quota),
        ("namespace.resourceguaranteed", guaranteed),
    ):
        if resource:
            tags[name] = _as_tag(resource)
    parent = annotations.get(PARENT_QUEUE)
    if parent:
        tags["namespace.parentqueue"] = str(parent)[:_LONGEST_QUEUE]
    most = parse_int64(str(annotations.get(MAX_APPS, "")))
    if most is not None and most >= 0:
        tags["namespace.resourcemaxapps"] = str(most)
    return tags


def namespace_quota(annotations: Mapping[str, Any]) -> Resource | None:
    """Return a namespace's quota; None where there is none, or one that cannot be read."""
    if annotations.get(QUOTA):
        return _amounts(annotations[QUOTA])
    old = {name: annotations[key] for key, name in _OLD_QUOTA.items() if annotations.get(key)}
    return _resource(old) if old else None


def _amounts(text: Any) -> Resource | None:
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_QUOTA:
        return None
    try:
        value = load_json(text)
    except ValueError:
        return None
    return _resource(value) if isinstance(value, dict) else None


def _resource(amounts: Mapping[str, Any]) -> Resource | None:
    try:
        resource = pod_resources(amounts)
    except QuantityError:
        return None
    return None if is_negative(resource) else resource


def _as_tag(resource: Resource) -> str:
    """Return a resource as the scheduler interface's own JSON."""
    quantities = {name: {"value": value} for name, value in resource.items()}
    return json.dumps({"resources": quantities})
