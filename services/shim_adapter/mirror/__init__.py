"""The mirror: the pure machine between a resource manager's pods and the core's asks."""

from services.shim_adapter.mirror.mirror import ClusterMirror

__all__ = ["ClusterMirror"]
