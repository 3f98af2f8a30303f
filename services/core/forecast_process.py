"""A forked copy of the process that computes one what-if while the core goes on deciding.

Rule 1: the copy is made by ``fork``: it has the whole state of that moment. It costs the page
        tables, and a page each time that one of the two processes writes to it.
Rule 2: it closes every inherited file and connection except its pipe: otherwise the broker would
        consider a dead core alive as long as its copy lives. It ignores signals, starts no
        thread, has a lower priority (``NICE``), and is killed first if memory runs out. No copy
        is made if the container lacks memory for all pages that may be copied: a container that
        runs out of memory may be killed as a whole.
Rule 3: it ends with its answer, after MOST_SECONDS, or when it is stopped; its changes are lost.
"""

import gc
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from shared.messages.what_if import Forecast

NICE = 5  # added to the process's own: the process has priority on a shared CPU
MOST_SECONDS = 15  # lifetime in seconds of a copy of the core; then it ends without an answer
CAN_COPY = hasattr(os, "fork")
ENDED = "the process that computed it ended without an answer; see the core's log"
_CGROUP = Path("/sys/fs/cgroup")  # of the container, if there is one
_MIB = 2**20
_PIECE = 1 << 16
_FIRST_FILE = 3  # after standard input, output and error


class ForecastProcess:
    """At most one copy at a time (implements ``ForecastWorker`` of ``policies/questions.py``)."""

    def __init__(self) -> None:
        self._pid = 0
        self._pipe = -1
        self._read = bytearray()

    def start(self, work: Callable[[], Forecast]) -> str:
        """Start a copy that computes ``work``; return why it cannot start, or ""."""
        self.stop()
        if why := _lacks_memory():
            return why
        reads, writes = os.pipe()
        try:
            with (
                warnings.catch_warnings()
            ):  # of other threads: those of a core hold no lock of ours
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            os.close(reads)
            os.close(writes)
            return (
                f"no process could be started to compute it ({error.strerror}): ask "
                f"again in a moment"
            )
        if not pid:
            _work(writes, work)
        os.close(writes)
        os.set_blocking(reads, False)
        self._pid, self._pipe = pid, reads
        return ""

    def poll(self) -> Forecast | None:
        """Return the answer, None while it is being computed."""
        while True:
            try:
                piece = os.read(self._pipe, _PIECE)
            except BlockingIOError:
                return None
            if not piece:
                break
            self._read += piece
        found = bytes(self._read)
        self.stop()
        try:
            answer = pickle.loads(found)  # noqa: S301 - of a copy of this very process
        except (EOFError, pickle.UnpicklingError):
            return Forecast(done=False, message=ENDED)
        assert isinstance(answer, Forecast)
        return answer

    def stop(self) -> None:
        """Stop the current copy and drop its answer."""
        if not self._pid:
            return
        pid, self._pid = self._pid, 0
        os.close(self._pipe)
        self._read.clear()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def __del__(self) -> None:
        self.stop()


def _lacks_memory() -> str:
    """Return an error if the container lacks memory for a copy of the process, else ""."""
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        used = (_CGROUP / "memory.stat").read_text().split()
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return ""
    if not most.isdigit() or "anon" not in used:
        return ""
    anon, own = int(used[used.index("anon") + 1]), int(pages) * os.sysconf("SC_PAGE_SIZE")
    if anon + own <= int(most):
        return ""
    used_of = f"{anon // _MIB} of {int(most) // _MIB} MiB in use"
    more = f"a copy of it may need {own // _MIB} more"
    return f"not enough memory to answer: the core has {used_of}, and {more}"


def _work(pipe: int, work: Callable[[], Forecast]) -> NoReturn:
    """Compute the answer in the copy, write it to the pipe, and exit."""
    status = 1
    try:
        _set_apart(pipe)
        answer = memoryview(pickle.dumps(work()))
        while answer:
            answer = answer[os.write(pipe, answer) :]
        status = 0
    except BaseException:  # noqa: BLE001 - any error ends this process
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(status)


def _set_apart(pipe: int) -> None:
    """Close inherited files, restore signals, and lower the copy's priority (rule 2)."""
    os.closerange(_FIRST_FILE, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(MOST_SECONDS)
    gc.disable()
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
