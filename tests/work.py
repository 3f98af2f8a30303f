"""How much work something is, whatever else the machine does: steps of the interpreter."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def counting() -> Iterator[Callable[[], int]]:
    """Yield what says how many instructions of Python were run so far; one of C is one."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        elif event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


def steps(action: Callable[[], object]) -> int:
    """Return how many instructions of Python an action takes; what C does in one is one."""
    with counting() as counted:
        action()
        return counted()
