"""How a test that hangs ends (tests/limits.py): by its name, with what it waits for; others go on."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import broker
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
HEAD = """
import asyncio
import threading

import pytest
from hypothesis import given, strategies as st

import tests.limits
from tests.patience import longer

tests.limits.GRACE_SECONDS = 0.5
tests.limits.STRETCH = 0
hangs = pytest.mark.limit(0.5, "it hangs")

async def forever():
    await asyncio.get_running_loop().create_future()

def in_threads():
    threading.Event().wait()
"""
# What hangs, and what is said of it.
HANGS = {
    "sync": ("@hangs\ndef test_sync():\n    in_threads()\n", "in in_threads"),
    "async": (
        "@hangs\nasync def test_async():\n    await forever()\n",
        "<Future pending cb=[Task.task_wakeup()]>\n",
    ),
    "deaf": (  # one that goes on when it is cancelled
        (
            "@hangs\nasync def test_deaf():\n    while True:\n        try:\n            await forever()\n"
            "        except asyncio.CancelledError:\n            pass\n"
        ),
        "<Future pending cb=[Task.task_wakeup()]>\n",
    ),
    "aside": (
        (
            "@hangs\nasync def test_aside():\n"
            "    await asyncio.wait([asyncio.create_task(forever(), name='other')])\n"
        ),
        "Task other: <Future pending",
    ),
    "thread": (
        (
            "@hangs\ndef test_thread():\n"
            "    thread = threading.Thread(target=in_threads, name='helper', daemon=True)\n"
            "    thread.start()\n    thread.join()\n"
        ),
        "Thread helper:\n  ",
    ),
    "hypothesis": (
        "@hangs\n@given(st.integers())\ndef test_hypothesis(number):\n    in_threads()\n",
        "in in_threads",
    ),
    "swallows": (
        (
            "@hangs\ndef test_swallows():\n    try:\n        in_threads()\n"
            "    except Exception:\n        pass\n"
        ),
        "in in_threads",
    ),
    "setup": (
        (
            "@pytest.fixture\nasync def slow():\n    await forever()\n\n"
            "@hangs\ndef test_setup(slow):\n    pass\n"
        ),
        "<Future pending cb=[Task.task_wakeup()]>\n",
    ),
    "teardown": (
        (
            "@pytest.fixture\ndef after():\n    yield\n    in_threads()\n\n"
            "@hangs\ndef test_teardown(after):\n    pass\n"
        ),
        "in in_threads",
    ),
}
AFTER = """
cleaned = []

@hangs
async def test_cleans():
    try:
        await forever()
    finally:
        await asyncio.sleep(0)
        cleaned.append(True)

async def test_after():
    await asyncio.sleep(0)
    assert cleaned

@hangs
def test_waits():
    with longer(60):
        threading.Event().wait(1)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what pytest says of them all, with the plugin alone."""
    folder = tmp_path_factory.mktemp("hanging")
    tests = "\n".join((HEAD, *(text for text, _ in HANGS.values()), AFTER))
    (folder / "test_one.py").write_text(tests)
    environment = {name: value for name, value in os.environ.items() if name != "TEST_SECONDS"}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder),
            *("-p", "tests.limits", "-p", "no:cacheprovider", "-n", "0", "-v", folder),
        ],
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        env=environment | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("how", HANGS)
def test_what_hangs_fails_by_its_name_with_what_it_waits_for(how, said):
    phase = how if how in ("setup", "teardown") else "call"
    start = f"test_one.py::test_{how}: its {phase} did not end within 0.5 s"
    assert said.count(f"\n{start}\n") == 1, said
    own = re.split(r"\n_+ ", said.partition(f"\n{start}\n")[2])[0]
    assert HANGS[how][1] in own, own
    status = "FAILED" if phase == "call" else "ERROR"
    assert re.search(rf"^{status} \S*test_one.py::test_{how}\b", said, re.MULTILINE), said


def test_the_rest_goes_on_and_a_cancelled_test_has_cleaned_up(said):
    assert "test_one.py::test_after PASSED" in said
    assert "test_one.py::test_cleans FAILED" in said


def test_what_is_only_waited_for_stops_the_time(said):
    assert "test_one.py::test_waits PASSED" in said


@pytest.mark.long
def test_the_broker_says_its_queues_and_consumers(broker_url):
    for one in broker.running:
        lines = broker.state_of(one)
        heads = [line.split()[0] for line in lines if line.startswith("list_")]
        assert heads == [command[0] for command in broker.STATE]
        assert not any("no answer" in line for line in lines)
    assert broker.running or os.environ.get("RABBITMQ_URL")
