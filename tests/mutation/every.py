"""Every mutant of the pure parts (hours): ``python -m tests.mutation.every`` (ADR 51).

``--lines 600 --seed x`` tries so many of another order. It reads ``build/covering.json``.

Rule 1: a mutant is tried with the tests of its function (``covering``).
Rule 2: what came of it is kept in PLACE at once. Stopped and started again it goes on from there, as
        long as the tree and the seed are the same.
Rule 3: at the end, and when it is stopped, it lists what lives, and why where that is known
        (``sample.yaml``, ``survivors.yaml``), and prints the table by room. It fails if less than
        LEAST of those were noticed that could be.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import yaml

from tests.mutation.covering import covering, tests_of
from tests.mutation.forks import Change, Found, files_of, try_all
from tests.mutation.mutants import SEED, Line, Mutant, Mutants, is_enough, room_of, table
from tests.mutation.sample import STEP, Key, Row, change, key_of, sample
from tests.mutation.trials import PROJECT, ROOT, Verdict, fix_hashes

PLACE = ROOT / "build" / "mutants.jsonl"
SURVIVORS = Path(__file__).with_name("survivors.yaml")


class Progress:
    """What is known so far, in memory and in a file that grows by a line for each mutant."""

    def __init__(self, path: Path, head: dict[str, str]) -> None:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        if not lines or json.loads(lines[0]) != head:
            lines = [f"{json.dumps(head)}\n"]
        rows = [Row(**json.loads(line)) for line in lines[1:]]
        self._path = path
        self._rows = {row.key[:3]: row for row in rows}
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")

    def of(self, line: Line) -> Row | None:
        """Return what is known of the mutant of a line."""
        return self._rows.get((line.function, line.text, line.copy))

    def rows(self) -> list[Row]:
        """Return all that is known."""
        return list(self._rows.values())

    def note(self, row: Row) -> None:
        """Keep what came of a mutant."""
        self._rows[row.key[:3]] = row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(asdict(row))}\n")


def tree() -> str:
    """Return a hash of what a trial depends on."""
    found = sha256()
    for name in PROJECT:
        for path in sorted((ROOT / name).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def try_lines(lines: Sequence[Line], mutants: Mutants, progress: Progress) -> None:
    """Try the mutants of lines of which nothing is known yet."""
    known = covering()
    left = [line for line in lines if progress.of(line) is None]
    print(f"{len(lines)} lines, {len(lines) - len(left)} of them known", flush=True)
    tried: dict[str, Mutant] = {}
    since = time.monotonic()
    counts = Counter[bool]()

    def changes() -> Iterator[Change]:
        for line in left:
            mutant = mutants.of(line)
            if mutant is not None:
                tried[mutant.name] = mutant
                yield change(mutant, tests_of(line.function, known))

    def told(found: Found) -> None:
        is_noticed = found.verdict is not Verdict.UNNOTICED
        test = (found.test or found.verdict.value) if is_noticed else ""
        progress.note(Row(*key_of(tried.pop(found.change.name)), test=test))
        counts[is_noticed] += 1
        if not is_noticed:
            print(f"lives: {found.change.name}", flush=True)
        number = counts.total()
        if number % STEP == 0:
            minutes = (time.monotonic() - since) * (len(left) - number) / number / 60
            print(
                f"{number} of {len(left)} tried, {counts[True]} noticed, "
                f"{minutes:.0f} minutes to go", flush=True,
            )  # fmt: skip

    tests = files_of(test for line in left for test in tests_of(line.function, known))
    try_all(changes(), tests, told)


def reasons() -> dict[Key, Row]:
    """Return why mutants live, of those of which it is known."""
    more = yaml.safe_load(SURVIVORS.read_text(encoding="utf-8"))
    rows = [*sample(), *(Row(**row) for row in more)]
    return {row.key: row for row in rows if not row.test}


def report(rows: Sequence[Row]) -> int:
    """Print what lives and the table; return 1 if too many do."""
    why = reasons()
    rows = [row if row.test else why.get(row.key, row) for row in rows]
    for row in sorted(rows, key=lambda row: row.key):
        if not row.test:
            said = row.equal or row.lives or "nobody has looked at it"
            print(f"{row.function}: {row.line}  ->  {row.now}\n    {row.fate.value}: {said}")
    print(table((room_of(row.function.partition("::")[0]), row.fate) for row in rows))
    return 0 if is_enough(row.fate for row in rows) else 1


def main(words: Sequence[str]) -> int:
    """Try all, or what is asked for."""
    parser = argparse.ArgumentParser(prog="every")
    parser.add_argument("--lines", type=int, help="how many; all of them if it is not said")
    parser.add_argument("--seed", default=SEED)
    asked = parser.parse_args(words)
    mutants = Mutants(asked.seed)
    lines = mutants.lines[: asked.lines]
    progress = Progress(PLACE, {"tree": tree(), "seed": asked.seed})
    is_stopped = False
    try:
        try_lines(lines, mutants, progress)
    except KeyboardInterrupt:
        is_stopped = True
    wrong = report([row for line in lines if (row := progress.of(line)) is not None])
    if is_stopped:
        print("stopped; the same command goes on from here")
        return 130
    return wrong


if __name__ == "__main__":
    fix_hashes()
    sys.exit(main(sys.argv[1:]))
