"""The admission webhook: assigns new pods to Muster.

A program of its own beside the shim adapter: ``python -m services.shim_adapter.admission``. It
knows no bus; it reads pods by the rules of the translation, and the same ConfigMaps.

decision, configmaps, filters, patch are pure: an AdmissionRequest in, a verdict out.
certificates defines certificates and when they are due; keeper, watching and server do I/O.

Source: docs/rules/configuration.md#admission.
"""
