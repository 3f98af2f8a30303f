"""What a service's process is set to."""

import gc
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from shared.runtime.service import spare_the_collector

MOST_AT_ONCE = 30_000  # objects that a look takes, at a microsecond each: 30 ms


def test_the_collector_looks_at_few_objects_at_a_time_and_not_at_all_of_them():
    before, looks, kept = gc.get_threshold(), [], []

    def note(phase, info):
        if phase == "start":
            looks.append((info["generation"], len(kept)))

    spare_the_collector()
    gc.callbacks.append(note)
    try:
        for at in range(200_000):
            kept.append([at])
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        gc.unfreeze()
    older = [look for look in looks if look[0]]
    for rows in (looks, older):
        ends = [0, *(there for _, there in rows), len(kept)]
        assert max(after - at for at, after in pairwise(ends)) <= MOST_AT_ONCE
    assert 2 not in [generation for generation, _ in looks]


# A service beside whose host something runs that does not hear so many requests to stop.
DEAF = """
import asyncio, sys
from shared.messages.envelope import CORE
from shared.runtime import service

class Nothing:
    def handle(self, envelope, now_ns):
        return []

async def beside(host, settings):
    print("runs", flush=True)
    for _ in range(int(sys.argv[1])):
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            pass
    await asyncio.sleep(1_000)

service.STOP_TURNS, service._STOP_TURN_SECONDS = 4, 0.1
service.run_service("core", lambda settings, instance: (CORE, Nothing), beside)
"""


@pytest.mark.parametrize(("unheard", "status"), [(0, 0), (1, 0), (99, 1)])
def test_a_service_ends_when_told_to_though_somebody_does_not_hear_it(unheard, status):
    """Python 3.11 loses a request to stop in ``wait_for``: a service stood for ever after it."""
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF, str(unheard)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"MUSTER_BUS_URL": "amqp://guest@127.0.0.1:1/", "MUSTER_HEALTH_PORT": "0"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines = iter(process.stdout.readline, "")
    assert any("runs" in line for line in lines)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == status
    assert ("left running" in said) == (status == 1)
    assert ("beside at " in said and "<string>:" in said) == (status == 1)
