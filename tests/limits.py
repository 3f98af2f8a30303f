"""How long a test may run: what hangs says where it waits, fails by its name, and the rest goes on.

Each of a test's setup, call and teardown may take LIMIT_SECONDS; a test that says why takes longer,
``@pytest.mark.limit(seconds, "why")``. One of Hypothesis may shrink what it found for SHRINK_SECONDS
more. Past its limit an async test is cancelled, so that it cleans up; whatever else runs in the main
thread is interrupted, and again every GRACE_SECONDS. What is waited for then stands in the failure:
the stacks of all asyncio tasks and of all threads, and the queues and consumers of the brokers that
this process has started. ``TEST_SECONDS`` is another limit for all, 0 none (make soak, trials).

Time in which work waited for a processor does not count, up to STRETCH times the limit: a test is
no more to be judged by how busy a machine is than what it tests.

The limit of pyproject.toml (``faulthandler_timeout``) stays for what no signal interrupts.
"""

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests import broker

LIMIT_SECONDS = 120.0
SHRINK_SECONDS = 360.0  # Hypothesis shrinks for 300 s, and replays
GRACE_SECONDS = 30.0
STRETCH = 2
MAX_LINES = 400  # of the stacks of tasks; of what a broker says
_STARTED = ("setup", "async_finalizer")  # the coroutines of async fixtures (pytest-asyncio)


class HungError(BaseException):
    """A test has passed its limit. Nothing that a test runs catches it, nor does Hypothesis."""


class Limit:
    """The limit of one phase of one test."""

    def __init__(self, item: pytest.Item, phase: str, seconds: float) -> None:
        self.said = ""  # where it waited, once it has passed its limit
        self._item = item
        self._phase = phase
        self._seconds = seconds
        self._starved = 0.0  # seconds of this machine when it was armed
        self._more = STRETCH * seconds

    def arm(self) -> None:
        """Start the time that it has."""
        self._starved = _starved_seconds()
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, GRACE_SECONDS)

    def disarm(self) -> None:
        """End it."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _on_alarm(self, _: int, frame: FrameType | None) -> None:
        is_first = not self.said
        if is_first and self._has_more():
            return
        if is_first:
            self.said = "\n".join(self._what_it_does(frame))
        task = self._task()
        if is_first and task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)
        elif self._phase == "call":
            raise HungError
        else:  # pytest goes on with the other fixtures after a failure, and after nothing else
            raise pytest.fail.Exception(self.said, pytrace=False)

    def _has_more(self) -> bool:
        """Set the alarm again for the time in which work waited for a processor, if there was."""
        now = _starved_seconds()
        more = min(now - self._starved, self._more)
        if more < GRACE_SECONDS:
            return False
        self._starved = now
        self._more -= more
        signal.setitimer(signal.ITIMER_REAL, more, GRACE_SECONDS)
        return True

    def _task(self) -> "asyncio.Task[Any] | None":
        """Return the task of the test, or of its fixture, if the loop of this thread runs it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        function = getattr(self._item, "function", None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        for task in asyncio.all_tasks(loop):
            at = getattr(task.get_coro(), "cr_code", None)
            is_fixture = at is not None and at.co_name in _STARTED
            if at is code or (is_fixture and "pytest_asyncio" in at.co_filename):
                return task
        return None

    def _what_it_does(self, frame: FrameType | None) -> Iterator[str]:
        yield f"{self._item.nodeid}: its {self._phase} did not end within {self._seconds:g} s"
        yield "The interrupted thread:"
        yield from _stack(frame)
        yield from _threads()
        yield from _tasks()
        for one in list(broker.running):
            yield f"The broker at {one.url}:"
            yield from broker.state_of(one)[:MAX_LINES]


def _starved_seconds() -> float:
    """Return how long work has waited for a processor since this machine started, as Linux counts."""
    with contextlib.suppress(OSError, ValueError):
        some = Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1_000_000
    return 0.0


def _threads() -> Iterator[str]:
    """Yield the stack of every other thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            yield f"Thread {names.get(ident, ident)}:"
            yield from _stack(frame)


def _stack(frame: FrameType | None) -> Iterator[str]:
    """Yield a stack from outside inwards, without what the runner of tests does."""
    for at in traceback.extract_stack(frame):
        if not any(f"/{name}/" in at.filename for name in ("_pytest", "pluggy", "xdist")):
            yield f"  {at.filename}:{at.lineno} in {at.name}"


def _tasks() -> Iterator[str]:
    """Yield the stack of every task of every loop of this process, from outside inwards."""
    loops = [item for item in gc.get_objects() if isinstance(item, asyncio.AbstractEventLoop)]
    for loop in loops:
        if loop.is_closed():
            continue
        lines = [
            line
            for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
            for line in (f"Task {task.get_name()}: {_waits_for(task)}", *_awaited(task.get_coro()))
        ]
        yield from lines[:MAX_LINES]
        if len(lines) > MAX_LINES:
            yield f"... {len(lines) - MAX_LINES} lines more"


def _awaited(coroutine: Any) -> Iterator[str]:
    """Yield where a coroutine stands, and all that it awaits."""
    inner = coroutine
    while inner is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(inner, f"{kind}_frame", None)
            if frame is not None:
                code = frame.f_code
                yield f"  {code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
                inner = getattr(inner, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
                break
        else:
            return


def _waits_for(task: "asyncio.Task[Any]") -> str:
    """Return the future that a task waits for, if it waits."""
    return repr(getattr(task, "_fut_waiter", None) or "may go on")


def limit_of(item: pytest.Item) -> float:
    """Return how many seconds each phase of a test may take, 0 without end."""
    given = os.environ.get("TEST_SECONDS")
    marker = item.get_closest_marker("limit")
    if given is not None:
        return float(given)
    if marker is not None:
        seconds, _why = marker.args
        return float(seconds)
    test = getattr(item, "obj", None)
    return LIMIT_SECONDS + SHRINK_SECONDS * bool(getattr(test, "is_hypothesis_test", False))


@contextlib.contextmanager
def _limited(item: pytest.Item, phase: str) -> Iterator[None]:
    seconds = limit_of(item)
    if not seconds or item.config.getoption("usepdb"):
        yield
        return
    limit = Limit(item, phase, seconds)
    limit.arm()
    try:
        yield
    except BaseException as error:
        if not limit.said or isinstance(error, KeyboardInterrupt):
            raise
    finally:
        limit.disarm()
    if limit.said:
        raise pytest.fail.Exception(limit.said, pytrace=False) from None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item, "setup"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item, "call"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item, "teardown"):
        return (yield)
