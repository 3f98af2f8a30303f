"""Run a service whose wall clock is off, as on a machine where nobody set it."""

import runpy
import time


def run(service: str, offset_seconds: float) -> None:
    """Run it as ``python -m`` does; every wall clock reading of the process is off by so much."""
    time_ns, time_s = time.time_ns, time.time
    time.time_ns = lambda: time_ns() + int(offset_seconds * 1e9)
    time.time = lambda: time_s() + offset_seconds
    runpy.run_module(f"services.{service}", run_name="__main__")
