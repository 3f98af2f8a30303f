"""The shim adapter: between a resource manager and the core.

``translation`` (manifests to pods) and ``mirror`` (pods to asks, decisions to calls) are pure;
``backends`` do what the mirror asks of a resource manager.
"""
