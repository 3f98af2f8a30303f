"""A simulated cluster in memory, optionally with its state in a file."""

from services.shim_adapter.backends.simulated.cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
