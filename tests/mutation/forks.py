"""Trials of mutants: the code of a function is replaced, and some tests say whether they notice.

Rule 1: one process imports the project and collects the tests; each trial is a fork of it, in which
        one function has other code. So it costs the tests that it runs, and no import.
Rule 2: what a module does while it is loaded is not tried: functions that only that calls are
        noticed by nobody.
Rule 3: what is random in a test is fixed (the hypothesis profile ``trial``), and so are the hashes
        of strings (``fix_hashes``): a verdict can be had again.
Limit: a trial has a limit in seconds of the processor, and PATIENCE times that by the clock, and may
sleep for ASLEEP_S, at every look; then it is killed, and is Verdict.SLOW. What takes more than
MEMORY fails.
"""

import gc
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutation.trials import ALL_LIMIT_S, ASKED_S, MEMORY, OF_A_TRIAL, ROOT, Verdict

AT_ONCE = 2
PATIENCE = 10  # a machine may be busy with others, and a test may sleep
ASLEEP_S = 30
OPTIONS = ("-qq", "-s", "--assert=plain", "-p", "no:cacheprovider", "-n", "0")


@dataclass(frozen=True, slots=True)
class Change:
    """What is tried: the ``text`` of the file at ``path`` with a change on a ``line``.

    None changes nothing.
    """

    name: str
    path: str
    line: int
    text: str | None
    tests: tuple[str, ...]
    limit_s: int


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it; ``test`` is the last that ran; ``seconds`` are those of the processor."""

    change: Change
    verdict: Verdict
    test: str
    seconds: float


def as_it_is(tests: Sequence[str]) -> Change:
    """Return the trial that changes nothing: these tests have to pass."""
    return Change("nothing", "", 0, None, tuple(tests), ALL_LIMIT_S)


def files_of(tests: Iterable[str]) -> list[str]:
    """Return the files of some tests."""
    return sorted({test.partition("::")[0] for test in tests})


def try_all(changes: Iterable[Change], tests: Sequence[str], told: Callable[[Found], None]) -> None:
    """Try changes, AT_ONCE at a time, and tell what came of each as it ends.

    ``tests`` are to be collected: files, or single ones. Raises RuntimeError where that fails.
    """
    if not tests:
        return
    os.environ |= OF_A_TRIAL
    loop = _Loop(changes, told)
    code = pytest.main([*OPTIONS, *tests], plugins=[loop])
    if loop.error is not None:
        raise loop.error
    if not loop.has_run:
        raise RuntimeError(f"the tests cannot be collected: pytest ended with {code}")


class _Loop:
    """A plugin of pytest that runs trials instead of the tests."""

    def __init__(self, changes: Iterable[Change], told: Callable[[Found], None]) -> None:
        self._changes = iter(changes)
        self._told = told
        self.has_run = False
        self.error: BaseException | None = None
        self.has_failed = False  # in a trial: a test has

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.has_run = True
        try:
            with tempfile.TemporaryDirectory(prefix="muster-trials-") as folder:
                for found in self._outcomes(session, Path(folder)):
                    self._told(found)
        except BaseException as error:
            self.error = error
        return True

    def _outcomes(self, session: pytest.Session, folder: Path) -> Iterator[Found]:
        functions = _functions()
        items = {item.nodeid: item for item in session.items}
        gc.freeze()  # what a fork shares with the others is not walked
        running: list[_Running] = []
        free = [folder / str(number) for number in range(AT_ONCE)]
        try:
            while True:
                while free and (change := next(self._changes, None)) is not None:
                    place = free.pop()
                    place.write_text("", encoding="utf-8")
                    process = os.fork()
                    if process == 0:
                        self._try(change, functions, items, place)
                    running.append(_Running(change, place, process))
                if not running:
                    return
                time.sleep(ASKED_S)
                for one in list(running):
                    found = one.ended()
                    if found is not None:
                        running.remove(one)
                        free.append(one.place)
                        yield found
        finally:
            for one in running:
                one.kill()

    def _try(
        self, change: Change, functions: "_Functions", items: dict[str, pytest.Item], place: Path
    ) -> None:
        """Run in the fork: change the code, run tests until one fails, and end the process.

        Its status: 0 where no test failed, 1 where one did, 2 where it could not be tried.
        """
        status = 2
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_CPU, (change.limit_s, change.limit_s + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            if change.text is not None:
                _replace(change, functions)
            chosen = [items[test] for test in change.tests]
            for item, after in zip(chosen, [*chosen[1:], None], strict=True):
                place.write_text(item.nodeid, encoding="utf-8")
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if self.has_failed:
                    status = 1
                    break
            else:
                status = 0
        finally:
            os._exit(status)


@dataclass(slots=True)
class _Running:
    """A trial that goes on."""

    change: Change
    place: Path
    process: int
    since: float = field(default_factory=time.monotonic)
    awake: float = field(default_factory=time.monotonic)  # when it was last seen at work

    def ended(self) -> Found | None:
        """Return what came of it, None while it goes on."""
        process, status, used = os.wait4(self.process, os.WNOHANG)
        now = time.monotonic()
        if not process and _state(self.process) != "S":
            self.awake = now
        is_late = now - self.since > PATIENCE * self.change.limit_s or now - self.awake > ASLEEP_S
        if not process and is_late:
            self.kill()
            process, status, used = os.wait4(self.process, 0)
        if not process:
            return None
        code = os.waitstatus_to_exitcode(status)
        verdict = {0: Verdict.UNNOTICED, 1: Verdict.NOTICED, 2: Verdict.BROKEN}.get(code)
        test = self.place.read_text(encoding="utf-8")
        return Found(self.change, verdict or Verdict.SLOW, test, used.ru_utime + used.ru_stime)

    def kill(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)


def _state(process: int) -> str:
    """Return the state of a process, as the kernel says it: S for one that waits."""
    try:
        said = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:  # another system: the limits by the clock are left
        return ""
    return said.rpartition(")")[2].split()[0]


# --- code -----------------------------------------------------------------------------------------

_Place = tuple[str, str, int]  # file, name, first line
_Functions = dict[_Place, list[FunctionType]]


def _place_of(code: CodeType) -> _Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions() -> _Functions:
    """Return all functions of the project that are loaded; some have several copies."""
    found: _Functions = {}
    gc.unfreeze()  # what the collection left (tests/conftest.py) would not be listed
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(f"{ROOT}/"):
            found.setdefault(_place_of(one.__code__), []).append(one)
    return found


def _replace(change: Change, functions: _Functions) -> None:
    """Give the function around the changed line its new code. Raises LookupError if none is."""
    assert change.text is not None
    path = str(ROOT / change.path)
    code = _around(compile(change.text, path, "exec"), change.line)
    loaded = functions.get(_place_of(code), [])
    if not loaded:
        raise LookupError(f"{change.path} has no function {code.co_qualname} that is loaded")
    for function in loaded:
        function.__code__ = code


def _around(code: CodeType, line: int) -> CodeType:
    """Return the outermost function around a line, among those of a module and its classes."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            lines = [number for _, _, number in inner.co_lines() if number is not None]
            lines += [number for deep in _all(inner) for _, _, number in deep.co_lines() if number]
            if min(lines) <= line <= max(lines):
                is_class = not inner.co_flags & 0x2  # CO_NEWLOCALS
                return _around(inner, line) if is_class else inner
    raise LookupError(f"no function around line {line}")


def _all(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _all(inner)
