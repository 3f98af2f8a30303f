"""The mirror: a pure state machine that turns pods into asks, and decisions into calls."""

from services.shim_adapter.mirror.mirror import ClusterMirror

__all__ = ["ClusterMirror"]
