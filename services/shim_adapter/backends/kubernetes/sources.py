"""What several programs watch of an API server, and how it is kept: each said once."""

from typing import Any

from services.shim_adapter.backends.kubernetes.reflector import DELETED, Source
from services.shim_adapter.translation.manifests import priority_class
from services.shim_adapter.translation.pods import PriorityClass

NAMESPACES = Source("namespaces", "/api/v1/namespaces")
PRIORITY_CLASSES = Source("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses")


def config_map(namespace: str, name: str) -> Source:
    """Return the source of one ConfigMap."""
    return Source(name, f"/api/v1/namespaces/{namespace}/configmaps", f"metadata.name={name}")


def note_class(classes: dict[str, PriorityClass], change: str, item: dict[str, Any]) -> None:
    """Take a priority class in, or out; one without a whole number is left as it was."""
    name = item["metadata"]["name"]
    if change == DELETED:
        classes.pop(name, None)
    elif type(item.get("value")) is int:
        classes[name] = priority_class(item)
