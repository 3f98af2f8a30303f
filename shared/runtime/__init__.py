"""The host that runs a pure machine on a bus: one implementation, used by every service."""
