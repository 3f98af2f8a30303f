"""What mutants are made of, which are in the sample, what is kept of a long run, and what is told."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutation import forks
from tests.mutation.covering import mutated_files
from tests.mutation.every import Progress, reasons, report
from tests.mutation.mutants import SEED, Fate, Mutants, lines_of, room_of, table
from tests.mutation.sample import (
    LINES,
    OF_ROOM,
    ROWS_LEAST,
    Row,
    chosen,
    rooms_of_too_few,
    sample,
    shares,
)
from tests.mutation.trials import ROOT


def test_who_may_live_has_a_reason_and_all_others_a_test():
    for row in [*sample(), *reasons().values()]:
        said = [text for text in (row.test, row.equal, row.lives) if text]
        assert len(said) == 1, row
        assert len(said[0]) > 20, row
    rooms = [(room_of(row.function.partition("::")[0]), row.fate) for row in sample()]
    assert rooms_of_too_few(rooms) == []
    counts = Counter(room for room, _ in rooms)
    assert all(counts[room] >= least // 2 for room, least in OF_ROOM.items()), counts


def test_of_each_of_some_rooms_nine_of_ten_are_to_be_noticed():
    enough = [("bus", Fate.NOTICED)] * 90
    assert rooms_of_too_few([*enough, *[("bus", Fate.LIVES)] * 10]) == []
    assert rooms_of_too_few([*enough, *[("bus", Fate.LIVES)] * 11]) == ["all", "bus"]
    assert rooms_of_too_few([*enough, ("timers/wheel", Fate.LIVES)]) == ["timers/wheel"]


def test_most_of_the_sample_is_of_lines_that_are_there_and_every_room_has_its_share():
    lines = [line for path in mutated_files() for line in lines_of(path)]
    there = {(line.function, line.text, line.copy) for line in lines}
    assert sum(row.key[:3] in there for row in sample()) >= ROWS_LEAST
    due = shares(Counter(room_of(line.path) for line in lines), LINES)
    rows = Counter(room_of(row.function.partition("::")[0]) for row in sample())
    assert all(rows[room] >= due[room] // 2 for room in due), rows  # what is new is not in it yet


@pytest.mark.parametrize(
    ("sizes", "count", "shared"),
    [
        ({"a": 1, "b": 1}, 4, {"a": 2, "b": 2}),
        ({"a": 5, "b": 3, "c": 2}, 4, {"a": 2, "b": 1, "c": 1}),
        ({"a": 97, "b": 2, "c": 1}, 10, {"a": 9, "b": 1, "c": 1}),  # at least one each
    ],
)
def test_a_count_is_shared_by_size(sizes, count, shared):
    assert shares(sizes, count) == shared


def test_of_each_room_those_are_chosen_that_come_first():
    rooms = ("queues", "ordering", "intake")
    paths = [
        path for path in mutated_files() if room_of(path.relative_to(ROOT).as_posix()) in rooms
    ]
    lines = Mutants(paths=paths).lines
    found = chosen(lines, 40)
    for room in {room_of(line.path) for line in lines}:
        of_room = [line for line in lines if room_of(line.path) == room]
        some = [line for line in found if room_of(line.path) == room]
        assert some == of_room[: len(some)] != []


def test_the_lines_of_a_sample_do_not_change_with_what_stands_above_them(tmp_path, monkeypatch):
    path = tmp_path / "pure.py"
    monkeypatch.setattr("tests.mutation.covering.ROOT", tmp_path)
    text = "def one(a: int) -> bool:\n    assert a > 0\n    return a > 3\n"
    path.write_text(text)
    before = list(lines_of(path))
    path.write_text("def other() -> int:\n    return 1\n\n\n" + text)
    after = [line for line in lines_of(path) if line.function.endswith("one")]
    assert [line.text for line in before] == ["return a > 3"]
    assert [line.order(SEED) for line in after] == [line.order(SEED) for line in before]
    assert [line.number for line in after] == [before[0].number + 4]


def test_of_some_rooms_more_is_chosen_than_their_share():
    lines = Mutants(paths=[ROOT / "services/timers/wheel.py"]).lines
    assert chosen(lines, 1) == lines[: OF_ROOM["timers/wheel"]]


def test_what_is_asynchronous_is_mutated_as_well(tmp_path, monkeypatch):
    path = tmp_path / "shell.py"
    monkeypatch.setattr("tests.mutation.covering.ROOT", tmp_path)
    path.write_text("class A:\n    async def one(self, b):\n        return b > 3\n")
    assert [(line.function, line.text) for line in lines_of(path)] == [
        ("shell.py::A.one", "return b > 3")
    ]


def test_a_line_that_an_operator_cannot_change_after_all_has_no_mutant():
    """The operator of exceptions counts dotted names in a tuple, and cannot replace them."""
    mutants = Mutants(paths=[ROOT / "shared/bus/connection.py"])
    (line,) = [line for line in mutants.lines if "asyncio.CancelledError) as" in line.text]
    assert mutants.of(line) is None


@pytest.mark.parametrize("seed", [SEED, "another"])
def test_a_mutant_is_one_line_of_a_file_that_reads_otherwise(seed):
    mutants = Mutants(seed, sorted(ROOT.glob("services/core/scheduler/queues/*.py")))
    for line in mutants.lines[:5]:
        mutant = mutants.of(line)
        before = (ROOT / mutant.path).read_text().splitlines()
        after = mutant.text.splitlines()
        (changed,) = [at for at, text in enumerate(before) if text != after[at]]
        assert changed + 1 == mutant.line.number
        assert after[changed].strip() == mutant.now


NOTICED, EQUAL, LIVES = Fate.NOTICED, Fate.EQUAL, Fate.LIVES


def test_the_table_has_a_line_for_each_room_and_one_for_all():
    fates = [("nodes", NOTICED), ("nodes", EQUAL), ("nodes", LIVES), ("actions", EQUAL)]
    assert [line.split() for line in table(fates).splitlines()] == [
        ["room", "mutants", "noticed", "equal", "live", "rate"],
        ["actions", "1", "0", "1", "0", "-"],
        ["nodes", "3", "1", "1", "1", "50", "%"],
        ["all", "4", "1", "2", "1", "50", "%"],
    ]


ONE = Row("services/timers/wheel.py::one", "return a > 3", 1, "return a >= 3", test="tests::one")
OTHER = Row("services/timers/wheel.py::one", "return 1", 1, "return 2")


def test_what_was_tried_is_known_when_it_goes_on_even_if_it_was_killed_while_it_wrote(tmp_path):
    path, head = tmp_path / "build" / "mutants.jsonl", {"tree": "1", "seed": "x"}
    before = Progress(path, head)
    before.note(ONE)
    before.note(OTHER)
    path.write_text(path.read_text()[:-3])
    after = Progress(path, head)
    assert after.rows() == [ONE]
    after.note(OTHER)
    assert Progress(path, head).rows() == [ONE, OTHER]


@pytest.mark.parametrize("head", [{"tree": "2", "seed": "x"}, {"tree": "1", "seed": "y"}])
def test_of_another_tree_or_another_seed_nothing_is_known(head, tmp_path):
    path = tmp_path / "mutants.jsonl"
    Progress(path, {"tree": "1", "seed": "x"}).note(ONE)
    assert Progress(path, head).rows() == []


def test_what_lives_is_listed_and_more_than_one_in_ten_is_too_many(capsys):
    assert report([ONE] * 9 + [OTHER]) == 0
    assert report([ONE] * 8 + [OTHER]) == 1
    said = capsys.readouterr().out
    assert "return 1  ->  return 2\n    live: nobody has looked at it\n" in said
    assert "timers/wheel               9       8       0       1   88 %" in said


# --- trials -----------------------------------------------------------------------------------------

NESTED = """\
class A:
    def one(self):
        def inner():
            return 1
        return inner()

def two():
    return 2
"""


def test_the_function_around_a_line_is_the_outermost_one():
    code = compile(NESTED, "nested.py", "exec")
    names = [forks._around(code, line).co_qualname for line in (3, 4, 5, 8)]
    assert names == ["A.one", "A.one", "A.one", "two"]
    with pytest.raises(LookupError, match="line 1"):
        forks._around(code, 1)


def answer():
    return 40 + 1


def test_a_function_that_is_loaded_has_the_code_of_the_changed_file():
    path, before = Path(__file__), answer.__code__
    text = path.read_text()
    change = forks.Change(
        "one", path.relative_to(ROOT).as_posix(), before.co_firstlineno + 1,
        text.replace("return 40 + 1", "return 40 + 2", 1), (), 1,
    )  # fmt: skip
    try:
        forks._replace(change, forks._functions())
        assert answer() == 42
    finally:
        answer.__code__ = before
    with pytest.raises(LookupError, match="answer"):
        forks._replace(change, {})


def test_a_trial_says_what_came_of_it():
    """In a process of its own: it runs pytest."""
    said = subprocess.run(
        [sys.executable, "-c", TRIALS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = [line.split()[1:] for line in said.stdout.splitlines() if line.startswith("found")]
    assert sorted(found) == [
        ["as-it-is", "unnoticed", IN_ORDER],
        ["late", "noticed", IN_ORDER],
        ["no-function", "broken"],
        ["round-for-ever", "slow", IN_ORDER],
    ], said.stdout + said.stderr


IN_ORDER = (
    "tests/unit/timers/test_wheel.py::test_timers_fire_in_order_when_they_are_due_and_never_earlier"
)
TRIALS = f"""
from pathlib import Path
from tests.mutation.forks import Change, as_it_is, try_all

PATH = "services/timers/wheel.py"
TEXT = Path(PATH).read_text()
ORDER = ("{IN_ORDER}",)

def change(name, before, after):
    at = TEXT.index(before)
    line = TEXT[:at].count(chr(10)) + 1
    return Change(name, PATH, line, TEXT[:at] + after + TEXT[at + len(before):], ORDER, 1)

CHANGES = [
    Change("as-it-is", PATH, 0, None, ORDER, 60),
    change("late", "due_ns <= now_ns:", "due_ns < now_ns:"),
    change("no-function", "MAX_TIMERS =", "MAX_TIMERS = 0 +"),
    change("round-for-ever", "            heappop(self._due)", "            pass"),
]
try_all(CHANGES, ORDER, lambda found: print("found", found.change.name, found.verdict.value, found.test))
"""
