"""The admission webhook: assigns new pods to Muster.

A separate program next to the shim adapter: ``python -m services.shim_adapter.admission``. It does
not use the bus; it reads pods by the rules of ``translation``, and the same ConfigMaps.

decision, configmaps, filters and patch are pure: from an AdmissionRequest to a verdict.
certificates creates certificates and checks when they are due; keeper, watching and server do I/O.

Source: docs/rules/configuration.md#admission.
"""
