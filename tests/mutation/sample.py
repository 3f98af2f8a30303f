"""The fixed sample of mutants, each with its test: ``python -m tests.mutation.sample`` (ADR 51).

It is a table, ``sample.yaml``: of each mutant the test that notices it, why no test could, or why it
may live. ``--renew`` chooses it anew: of each room its share of LINES, or what OF_ROOM says where that
is more, by a hash. What is known of a mutant stays; those that are new, or lived, are tried with the tests of their functions (it reads
``build/covering.json``); who then lives has an empty reason, which is to be written.

Rule 1: it fails if the tests do not pass on the tree as it is, if a mutant lives that has no reason
        to, or if less than LEAST of those are noticed that could be, of all and of each in OF_ROOM.
Rule 2: a row of a line that is written otherwise by now is left out; ROWS_LEAST must be there.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import yaml

from tests.mutation.covering import covering, tests_of
from tests.mutation.forks import Change, Found, as_it_is, files_of, try_all
from tests.mutation.mutants import Fate, Line, Mutant, Mutants, is_enough, room_of, table
from tests.mutation.trials import ROOT, Verdict, fix_hashes

LINES = 150
OF_ROOM = {"bus": 24, "runtime": 16, "shim_adapter/mirror": 16, "timers/wheel": 12}
ROWS_LEAST = 100
STEP = 25  # how many are tried between two lines that say how far it is
LIMIT_S = 5  # of one test
MANY_LIMIT_S = 20  # of all that are tried where the test is not known
SAMPLE = Path(__file__).with_name("sample.yaml")
Key = tuple[str, str, int, str]  # the function, its line, which of them, what it becomes


@dataclass(frozen=True, slots=True)
class Row:
    """A mutant of the sample: the ``test`` that notices it, why it is ``equal``, or ``lives``."""

    function: str
    line: str
    copy: int
    now: str
    test: str = ""
    equal: str = ""
    lives: str = ""

    @property
    def key(self) -> Key:
        """Return what it is known by."""
        return (self.function, self.line, self.copy, self.now)

    @property
    def fate(self) -> Fate:
        """Return what came of it."""
        return Fate.EQUAL if self.equal else Fate.NOTICED if self.test else Fate.LIVES


def key_of(mutant: Mutant) -> Key:
    """Return what a mutant is known by."""
    line = mutant.line
    return (line.function, line.text, line.copy, mutant.now)


def sample() -> list[Row]:
    """Return the fixed sample."""
    return [Row(**row) for row in yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))]


def still_there(rows: Sequence[Row]) -> Iterator[tuple[Row, Mutant]]:
    """Yield the rows whose lines are there still, with their mutants."""
    of_line = {row.key[:3]: row for row in rows}
    paths = {ROOT / row.function.partition("::")[0] for row in rows}
    mutants = Mutants(paths=sorted(path for path in paths if path.exists()))
    for line in mutants.lines:
        row = of_line.get((line.function, line.text, line.copy))
        mutant = mutants.of(line) if row is not None else None
        if row is not None and mutant is not None and mutant.now == row.now:
            yield row, mutant


def change(mutant: Mutant, tests: tuple[str, ...]) -> Change:
    """Return the trial of a mutant."""
    limit_s = LIMIT_S if len(tests) == 1 else MANY_LIMIT_S
    return Change(mutant.name, mutant.path, mutant.line.number, mutant.text, tests, limit_s)


def try_sample() -> int:
    """Try the sample; return 1 where it fails."""
    there = list(still_there(sample()))
    tests = tuple(dict.fromkeys(row.test for row, _ in there if row.test))
    changes = [change(mutant, (row.test,)) for row, mutant in there if row.test]
    wrong = []
    ended = count(1)

    def told(found: Found) -> None:
        if (number := next(ended)) % STEP == 0:
            print(f"{number} of {len(changes) + 1} tried", flush=True)
        if found.change.text is None and found.verdict is not Verdict.UNNOTICED:
            wrong.append(f"{found.test} does not pass on the tree as it is: {found.verdict.value}")
        elif found.change.text is not None and found.verdict is Verdict.UNNOTICED:
            wrong.append(f"{found.change.tests[0]} does not notice\n  {found.change.name}")

    try_all([as_it_is(tests), *changes], tests, told)
    fates = [(room_of(mutant.path), row.fate) for row, mutant in there]
    print(table(fates))
    if len(there) < ROWS_LEAST:
        wrong.append(f"{len(there)} rows are there still, of {ROWS_LEAST}: choose it anew, --renew")
    wrong += [
        f"less than nine of ten of what could be noticed are: {room}"
        for room in rooms_of_too_few(fates)
    ]
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


def rooms_of_too_few(fates: Sequence[tuple[str, Fate]]) -> list[str]:
    """Return in which of OF_ROOM, or in "all", less than LEAST was noticed of what could be."""
    of_room = {name: [fate for room, fate in fates if room == name] for name in OF_ROOM}
    found = {"all": [fate for _, fate in fates], **of_room}
    return [name for name, some in found.items() if not is_enough(some)]


def shares(sizes: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Divide a count by size: at least one each, what is left by the largest remainders."""
    total = sum(sizes.values())
    found = {name: max(1, wanted * size // total) for name, size in sizes.items()}
    rest = sorted(sizes, key=lambda name: (-(wanted * sizes[name] % total), name))
    for name in rest[: max(0, wanted - sum(found.values()))]:
        found[name] += 1
    return found


def chosen(lines: Sequence[Line], wanted: int) -> list[Line]:
    """Return so many lines and what OF_ROOM adds, the first ones of each room."""
    rooms = sorted({room_of(line.path) for line in lines})
    left = shares(Counter(room_of(line.path) for line in lines), wanted)
    found = []
    for room in rooms:
        most = max(left[room], OF_ROOM.get(room, 0))
        found += [line for line in lines if room_of(line.path) == room][:most]
    return found


def renew() -> None:
    """Choose the sample anew, and try what is new in it or lived."""
    known = {row.key: row for row in sample()}
    mutants = Mutants()
    made = [one for line in chosen(mutants.lines, LINES) if (one := mutants.of(line)) is not None]
    tests = covering()
    changes = []
    for mutant in made:
        row = known.get(key_of(mutant))
        if row is None or row.fate is Fate.LIVES:
            changes.append(change(mutant, tests_of(mutant.line.function, tests)))
    noticed_by: dict[str, str] = {}

    def told(found: Found) -> None:
        print(f"{found.verdict.value:9} {found.seconds:5.1f} s  {found.change.name}", flush=True)
        if found.verdict is not Verdict.UNNOTICED:
            noticed_by[found.change.name] = found.test

    try_all(changes, files_of(test for one in changes for test in one.tests), told)
    rows = []
    for mutant in made:
        row = known.get(key_of(mutant))
        if row is None or mutant.name in noticed_by:
            row = Row(*key_of(mutant), test=noticed_by.get(mutant.name, ""))
        rows.append(row)
    SAMPLE.write_text(_written(rows), encoding="utf-8")


def _written(rows: Sequence[Row]) -> str:
    """Return the table as it is kept."""
    kept: list[dict[str, object]] = []
    for row in rows:
        fields = {name: value for name, value in asdict(row).items() if value}
        if row.fate is Fate.LIVES:
            fields.setdefault("lives", "")
        kept.append(fields)
    head = (
        "# The fixed sample of mutants: `make mutants-sample`; chosen anew by --renew (ADR 51).\n"
    )
    return head + yaml.safe_dump(kept, sort_keys=False, width=100)


if __name__ == "__main__":
    fix_hashes()
    if sys.argv[1:] == ["--renew"]:
        renew()
    else:
        sys.exit(try_sample())
