"""Trials of guards: one file of the tree is changed, and some tests say whether they notice.

Rule 1: a trial is made in a copy of the tree; the tree itself is never changed, and may change.
Rule 2: each has a process of its own, forked from one that has loaded the libraries and nothing of
        the project: so it costs the import of the project and the tests, and no more.
Rule 3: what is random in a test is fixed (the hypothesis profile ``trial``): a verdict can be had
        again.
Rule 4: so are the hashes of strings (``fix_hashes``).
Limit: a trial has a limit in seconds of the processor, and PATIENCE times that by the clock; then it
is killed, and is Verdict.SLOW. What takes more than MEMORY fails.
"""

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from compileall import compile_dir
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROJECT = ("services", "shared", "tools", "tests", "scripts")
NOT_COPIED = (".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
LIBRARIES = ("aio_pika", "aiohttp", "fastapi", "httpx", "hypothesis.stateful", "msgpack", "numpy")
LIBRARIES += ("prometheus_client", "pydantic_settings", "structlog", "tenacity", "uvicorn", "yaml")
ALL_LIMIT_S = 600
PATIENCE = 30  # a machine may be busy with others
MEMORY = 4 << 30  # bytes
ASKED_S = 0.02  # how often it is asked whether a trial has ended
OF_A_TRIAL = {  # which has a limit of its own; what a test waits for in it seldom comes
    "HYPOTHESIS_PROFILE": "trial", "TEST_SECONDS": "0", "TEST_PATIENCE": "20",
}  # fmt: skip


class Verdict(Enum):
    """What the tests said of a change."""

    NOTICED = "noticed"  # one failed
    BROKEN = "broken"  # they could not be collected
    SLOW = "slow"
    UNNOTICED = "unnoticed"


@dataclass(frozen=True, slots=True)
class Trial:
    """A change: the new ``text`` of the file at ``path``; None changes nothing."""

    name: str
    path: str
    text: str | None
    tests: tuple[str, ...]
    limit_s: int = 120


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial: ``test`` is the first that failed, ``said`` what pytest wrote.

    ``seconds`` are those of the processor.
    """

    trial: Trial
    verdict: Verdict
    seconds: float
    test: str
    said: str


@dataclass(slots=True)
class _Running:
    trial: Trial
    tree: Path
    process: int
    before: str  # the text of the file, as it was copied
    since: float = field(default_factory=time.monotonic)


class _First:
    """A plugin of pytest that writes down the first test that fails."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._path.exists():
            self._path.write_text(report.nodeid, encoding="utf-8")


def fix_hashes() -> None:
    """Start this process again with hashes that are the same each time, where they are not."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def outcomes(trials: Iterable[Trial], at_once: int = 2) -> Iterator[Outcome]:
    """Make the trials, some at once, and yield what came of each as it ends."""
    for name in LIBRARIES:
        import_module(name)
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    with tempfile.TemporaryDirectory(prefix="muster-trials-") as folder:
        trees = [Path(folder) / str(number) / "tree" for number in range(at_once)]
        shutil.copytree(ROOT, trees[0], ignore=shutil.ignore_patterns(*NOT_COPIED))
        for name in PROJECT:
            compile_dir(trees[0] / name, quiet=2)
        for tree in trees[1:]:
            shutil.copytree(trees[0], tree)
        yield from _through(iter(trials), trees)


def _through(waiting: Iterator[Trial], trees: list[Path]) -> Iterator[Outcome]:
    running: list[_Running] = []
    try:
        while True:
            while trees and (trial := next(waiting, None)) is not None:
                tree = trees.pop()
                before = (tree / trial.path).read_text(encoding="utf-8")
                running.append(_Running(trial, tree, _start(trial, tree), before))
            if not running:
                return
            time.sleep(ASKED_S)
            for one in list(running):
                found = _ended(one)
                if found is not None:
                    running.remove(one)
                    trees.append(one.tree)
                    yield found
    finally:
        for one in running:
            _kill(one.process)


def _start(trial: Trial, tree: Path) -> int:
    """Change the tree and fork the process that runs the tests in it."""
    for name in ("first", "said"):
        (tree.parent / name).unlink(missing_ok=True)
    _write(tree, trial, trial.text)
    process = os.fork()
    if process == 0:
        code = 1
        try:
            code = _run_tests(trial, tree)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(process, process)  # as it does itself: whoever is first
    return process


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _write(tree: Path, trial: Trial, text: str | None) -> None:
    """Write a file, unless None is to be written; what was compiled of it goes with its text."""
    if text is not None:
        path = tree / trial.path
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def _run_tests(trial: Trial, tree: Path) -> int:
    """Run in the forked process: the tests of a trial, on the tree as it is now."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (trial.limit_s, trial.limit_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    said = os.open(tree.parent / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(tree)
    sys.path[:0] = [str(tree)]
    sys.dont_write_bytecode = True
    os.environ |= {**OF_A_TRIAL, "PYTHONPATH": str(tree)}
    for name in [name for name in sys.modules if name.partition(".")[0] in PROJECT]:
        del sys.modules[name]
    options = ["-q", "-x", "--tb=short", "--assert=plain", "-p", "no:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*options, *trial.tests], plugins=[_First(tree.parent / "first")])
    return int(code)


def _ended(one: _Running) -> Outcome | None:
    """Return what came of a trial, None while it goes on; the tree is as it was."""
    seconds = time.monotonic() - one.since
    process, status, used = os.wait4(one.process, os.WNOHANG)
    is_slow = not process and seconds > PATIENCE * one.trial.limit_s
    if is_slow:
        _kill(one.process)
        _, status, used = os.wait4(one.process, 0)
    elif not process:
        return None
    _write(one.tree, one.trial, one.before)
    first, said = one.tree.parent / "first", one.tree.parent / "said"
    test = first.read_text(encoding="utf-8") if first.exists() else ""
    code = os.waitstatus_to_exitcode(status)
    if is_slow or code in (-signal.SIGXCPU, -signal.SIGKILL):
        verdict = Verdict.SLOW
    elif code == 0:
        verdict = Verdict.UNNOTICED
    else:
        verdict = Verdict.NOTICED if test else Verdict.BROKEN
    text = said.read_text(encoding="utf-8", errors="replace") if said.exists() else ""
    return Outcome(one.trial, verdict, used.ru_utime + used.ru_stime, test, text)
