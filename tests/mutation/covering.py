"""Which tests run which line of what is mutated: ``python -m tests.mutation.covering``.

Kept in ``build/covering.json``, by function, and made by one run of TESTS under coverage: of those
that enter it MOST, or as many as take MOST_S; those that enter little else before others, and of
every file of tests some. It goes stale without harm: a test that is no more is left out, a function
that is new has the tests of its file.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, chain, islice, zip_longest
from pathlib import Path

import coverage
import pytest

from tests.mutation.trials import NOT_COPIED, ROOT

MUTATED = (
    "services/core/scheduler",
    "services/timers/wheel.py",
    "services/shim_adapter/mirror",
    "services/api/projection",
    "shared/runtime/host.py",
    "shared/runtime/batches.py",
    "shared/runtime/beats.py",
    "shared/runtime/machine.py",
    "shared/runtime/outbox.py",
    "shared/runtime/own_messages.py",
    "shared/bus",
)
TESTS = ("tests/unit/core", "tests/unit/timers", "tests/unit/shim_adapter", "tests/unit/api")
TESTS += ("tests/unit/shared", "tests/integration/test_bus.py")
TESTS += ("tests/simulation/test_in_flight_together.py", "tests/simulation/test_amqp_peer.py")
TESTS += (
    "tests/conformance",
    "-k",
    "not rabbit and not schemathesis",
    "-m",
    "not broker and not long",
)
MOST = 200
MOST_S = 10  # of the processor, under coverage
OWN = 20
PLACE = ROOT / "build" / "covering.json"
Functions = dict[str, list[str]]  # the tests of each, by "file::Class.function"


def mutated_files() -> list[Path]:
    """Return the files whose lines are mutated."""
    found: list[Path] = []
    for name in MUTATED:
        path = ROOT / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def functions_of(path: Path) -> Iterator[tuple[str, range]]:
    """Yield the functions of a file, the outermost ones, with the lines of their bodies."""
    name = path.relative_to(ROOT).as_posix()
    owners: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text(encoding="utf-8")))]
    while owners:
        prefix, owner = owners.pop(0)
        for node in ast.iter_child_nodes(owner):
            if isinstance(node, ast.ClassDef):
                owners.append((f"{prefix}{node.name}.", node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
                yield f"{name}::{prefix}{node.name}", lines


class _Watch:
    """A plugin of pytest: each test is a context of the coverage, and its time is noted."""

    def __init__(self) -> None:
        places = [str(ROOT / name) for name in MUTATED]
        places += [f"{place}/*" for place in places]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=places)
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        since = time.process_time()
        found = yield
        self.seconds[item.nodeid] = time.process_time() - since
        return found


def _measure() -> int:
    """Run the tests under coverage and write what they run."""
    watch = _Watch()
    watch.coverage.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *TESTS], plugins=[watch])
    watch.coverage.stop()
    data = watch.coverage.get_data()
    found: Functions = {}
    for path in mutated_files():
        contexts = data.contexts_by_lineno(str(path))
        for name, lines in functions_of(path):
            found[name] = sorted(
                {test for line in lines for test in contexts.get(line, ()) if test}
            )
    write(chosen(found, watch.seconds))
    return int(code)


def chosen(found: Functions, seconds: dict[str, float]) -> Functions:
    """Return the tests that are kept of each function, in the order in which they are run.

    The first OWN are those that enter the fewest functions in all: they are about this one. The
    others come from all files of tests in turn, the quickest first.
    """
    entered = Counter(test for tests in found.values() for test in tests)
    found_of: Functions = {}
    for name, tests in found.items():
        own = sorted(tests, key=lambda test: (entered[test], seconds[test], test))[:OWN]
        of_file: dict[str, list[str]] = {}
        for test in sorted(tests, key=lambda test: (seconds[test], test)):
            of_file.setdefault(test.partition("::")[0], []).append(test)
        in_turn = (test for turn in zip_longest(*of_file.values()) for test in turn if test)
        some = list(islice(dict.fromkeys(chain(own, in_turn)), MOST))
        taken = accumulate(seconds[test] for test in some)
        found_of[name] = [test for test, sum_s in zip(some, taken, strict=True) if sum_s <= MOST_S]
    return found_of


def write(found: Functions) -> None:
    """Keep what is known, in an order that does not depend on how it was found."""
    tests = sorted({test for some in found.values() for test in some})
    number = {test: at for at, test in enumerate(tests)}
    lines = [
        f"{json.dumps(name)}: {[number[test] for test in some]}"
        for name, some in sorted(found.items())
    ]
    text = '{"tests": [\n' + ",\n".join(map(json.dumps, tests))
    text += '\n],\n"functions": {\n' + ",\n".join(lines) + "\n}}\n"
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(text, encoding="utf-8")


def kept() -> Functions:
    """Return what is kept."""
    known = json.loads(PLACE.read_text(encoding="utf-8"))
    return {name: [known["tests"][at] for at in some] for name, some in known["functions"].items()}


def covering() -> Functions:
    """Return what is kept, of the tests that are still there; nothing if nothing is kept."""
    if not PLACE.exists():
        return {}
    there = _collected()
    return {name: [test for test in tests if test in there] for name, tests in kept().items()}


def tests_of(function: str, known: Functions) -> tuple[str, ...]:
    """Return the tests of a function, of its file where it has none."""
    if known.get(function):
        return tuple(known[function])
    path = function.partition("::")[0]
    of_file = [test for name in known if name.startswith(path) for test in known[name]]
    return tuple(dict.fromkeys(of_file))[:MOST] or ("tests/unit/core",)


def _collected() -> set[str]:
    """Return the tests that there are."""
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    said = subprocess.run([*collect, *TESTS], cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in said.stdout.splitlines() if "::" in line}


def main() -> int:
    """Measure in a copy of the tree, where nothing stands beside it, and keep what was found."""
    with tempfile.TemporaryDirectory(prefix="muster-covering-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
        here = [sys.executable, "-m", "tests.mutation.covering", "here"]
        found = subprocess.run(
            here, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, check=False
        )
        PLACE.parent.mkdir(exist_ok=True)
        shutil.copy(tree / PLACE.relative_to(ROOT), PLACE)
    return found.returncode


if __name__ == "__main__":
    sys.exit(_measure() if sys.argv[1:] == ["here"] else main())
