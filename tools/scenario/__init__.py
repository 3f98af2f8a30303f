"""Scenario files: a cluster, a queue configuration, what happens, and what must then be true."""
