"""Run every bench to its end, as small as it can be: one that nobody runs is broken unseen.

    make bench-smallest
    make bench-smallest ARGS="partitions bus"       these alone

Its figures mean nothing. Exits with 1, and what was printed, when one fails. ``make endure`` is left out:
it judges memory over minutes.
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
MAX_SECONDS = 240  # of one bench; it hangs then
SMALLEST: dict[str, tuple[str, ...]] = {
    "actions": ("--sizes", "250"),
    "api": (
        "--nodes", "10", "--applications", "10", "--allocations", "100", "--rate", "50",
        "--seconds", "2",
    ),
    "burst": ("--pods", "200"),
    "bus": (
        "--bursts", "1,10", "--pods", "200", "--nodes", "20", "--seconds", "1", "--rate", "100",
    ),
    "core": ("--small", "--only", "plain 10,000", "--only", "one ask"),
    "gang": ("--members", "10", "--nodes", "5"),
    "growth": (
        "--small", "--steps", "--check", "--only", "leaves, one of them", "--only", "users",
        "--only", "shapes", "--only", "reserved nodes", "--only", "devices", "--only", "that end",
        "--only", "dynamic", "--only", "head gang", "--only", "anti-affinity",
    ),
    "kubernetes": ("--nodes", "10", "--pods", "50", "--binds", "20", "--rate", "50"),
    "page": ("--nodes", "10", "--pods", "50", "--applications", "5", "--rate", "20"),
    "partitions": ("--asks", "200", "--nodes", "20", "--seconds", "1"),
    "schedule": (
        "--small", "--only", "philly model, one lane", "--only", "GPU month", "--only", "gangs that",
    ),
    "topology": ("--small", "--cases", "20"),
    "what_if": ("--sizes", "500"),
}  # fmt: skip


def run(name: str) -> bool:
    """Run one; return whether it came to its end."""
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", *SMALLEST[name]]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=MAX_SECONDS, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        status, said = str(done.returncode), done.stdout
    except subprocess.TimeoutExpired as error:
        status, said = f"no end in {MAX_SECONDS} s", str(error.stdout)
    failed = "" if status == "0" else f"\n{said}"
    print(f"{name:<12} {status:>4} {time.monotonic() - began:>6.1f} s{failed}", flush=True)
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SMALLEST))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = [*pool.map(run, parser.parse_args().names)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
