"""A cluster in memory: nodes, pods and a kubelet that keeps time; its state may live in a file."""

from services.shim_adapter.backends.simulated.cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
