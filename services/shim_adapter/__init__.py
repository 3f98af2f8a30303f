"""The shim adapter: translates between a resource manager and the core.

``translation`` (manifests to pods) and ``mirror`` (pods to asks, decisions to calls) are pure;
``backends`` carry out the mirror's calls on a resource manager.
"""
