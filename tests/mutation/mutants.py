"""Mutants of the pure parts: Cosmic Ray's operators, one mutant a line, and who notices (ADR 51).

``python -m tests.mutation.mutants`` tries the fixed sample (a minute or two). It is a table,
``sample.yaml``: of each mutant the test that notices it, why no test could, or why it may live. With ``--all`` every
line of the pure parts is tried (hours), with ``--lines 600 --seed x`` so many; ``--renew`` chooses
the sample anew, and asks for reasons. All but the first read ``build/covering.json``.

Rule 1: a line is known by its function, its text, and which of that text it is there: so what is
        chosen does not change with what is written elsewhere. Of what the operators could do in a
        line one thing is chosen, by the seed.
Rule 2: left out is what says nothing about tests: annotations, assertions; operators that make
        another type of a value, which any test would notice.
Rule 3: a mutant is tried with the tests of its function (``covering``), in the sample with its own.
Rule 4: it fails if a mutant lives that has no reason to, or less than LEAST of those are noticed
        that could be: of what is ``equal``, whatever is decided and told is the same.
        A row of a line that is written otherwise by now is left out; ROWS_LEAST of them must be
        there.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import yaml
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation.covering import Functions, covering, functions_of, pure_files
from tests.mutation.trials import ROOT, Outcome, Trial, Verdict, outcomes

LINES = 100
ROWS_LEAST = 40
SEED = "muster"
LEAST = 0.9
LIMIT_S = 20
SAMPLE = Path(__file__).with_name("sample.yaml")
OPERATORS = [
    f"core/{name}"
    for name in (
        "AddNot",
        "ExceptionReplacer",
        "NumberReplacer",
        "ReplaceAndWithOr",
        "ReplaceBinaryOperator_Add_Sub",
        "ReplaceBinaryOperator_BitAnd_BitOr",
        "ReplaceBinaryOperator_BitOr_BitAnd",
        "ReplaceBinaryOperator_FloorDiv_Mul",
        "ReplaceBinaryOperator_Mod_FloorDiv",
        "ReplaceBinaryOperator_Mul_FloorDiv",
        "ReplaceBinaryOperator_Sub_Add",
        "ReplaceBreakWithContinue",
        "ReplaceComparisonOperator_Eq_NotEq",
        "ReplaceComparisonOperator_Gt_GtE",
        "ReplaceComparisonOperator_Gt_LtE",
        "ReplaceComparisonOperator_GtE_Gt",
        "ReplaceComparisonOperator_GtE_Lt",
        "ReplaceComparisonOperator_IsNot_Is",
        "ReplaceComparisonOperator_Is_IsNot",
        "ReplaceComparisonOperator_LtE_Gt",
        "ReplaceComparisonOperator_LtE_Lt",
        "ReplaceComparisonOperator_Lt_GtE",
        "ReplaceComparisonOperator_Lt_LtE",
        "ReplaceComparisonOperator_NotEq_Eq",
        "ReplaceContinueWithBreak",
        "ReplaceFalseWithTrue",
        "ReplaceOrWithAnd",
        "ReplaceTrueWithFalse",
        "ReplaceUnaryOperator_Delete_Not",
        "ReplaceUnaryOperator_Delete_USub",
        "ZeroIterationForLoop",
    )
]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a function; ``copy`` counts those of the same text."""

    function: str
    text: str
    copy: int
    number: int

    def order(self, seed: str) -> str:
        """Return where the line comes in the order of a seed."""
        return sha256(f"{seed}/{self.function}/{self.text}/{self.copy}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Mutant:
    """What became of a line: ``text`` is its file with it, ``now`` what is written there."""

    line: Line
    operator: str
    now: str
    text: str

    @property
    def path(self) -> str:
        """Return the file."""
        return self.line.function.partition("::")[0]

    @property
    def name(self) -> str:
        """Return it for people."""
        return f"{self.line.function}: {self.line.text}  ->  {self.now}"


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a file's functions on which something may be changed."""
    source = path.read_text(encoding="utf-8")
    left_out = _left_out(ast.parse(source))
    texts = source.splitlines()
    for name, numbers in functions_of(path):
        seen: Counter[str] = Counter()
        for number in numbers:
            text = texts[number - 1].strip()
            if text and number not in left_out:
                seen[text] += 1
                yield Line(name, text, seen[text], number)


def _left_out(tree: ast.Module) -> set[int]:
    """Return the lines of which mutants say nothing (Rule 2)."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert | ast.AnnAssign | ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.FunctionDef):
            found += [node.args, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.append(node)  # a docstring
    return {
        number
        for node in found
        if hasattr(node, "lineno")
        for number in range(node.lineno, (node.end_lineno or 0) + 1)
    }


class _File:
    """The mutants of one file, by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._source = path.read_text(encoding="utf-8")
        self._positions: dict[int, list[tuple[str, int]]] = {}
        nodes = list(ast_nodes(get_ast(self._source)))
        for name in OPERATORS:
            operator = plugins.get_operator(name)()
            positions = (place for node in nodes for place in operator.mutation_positions(node))
            for occurrence, ((number, _), _) in enumerate(positions):
                self._positions.setdefault(number, []).append((name, occurrence))

    def mutant(self, line: Line, seed: str) -> Mutant | None:
        """Return what becomes of a line by a seed, None where nothing can."""
        could = self._positions.get(line.number, [])
        if not could:
            return None
        at = int(line.order(f"{seed}/which"), 16) % len(could)
        name, occurrence = could[at]
        text = mutate_code(self._source, plugins.get_operator(name)(), occurrence)
        before, after = self._source.splitlines(), text.splitlines() if text else []
        if len(before) != len(after):
            return None
        return Mutant(line, name, after[line.number - 1].strip(), text)


def mutants(count: int | None, seed: str) -> Iterator[Mutant]:
    """Yield the mutants of so many lines, None for all, in the order of a seed."""
    lines = sorted(
        (line for path in pure_files() for line in lines_of(path)), key=lambda one: one.order(seed)
    )
    files: dict[str, _File] = {}
    found = 0
    for line in lines:
        if found == count:
            return
        path = line.function.partition("::")[0]
        if path not in files:
            files[path] = _File(ROOT / path)
        mutant = files[path].mutant(line, seed)
        if mutant is not None and mutant.now != line.text:
            found += 1
            yield mutant


def _tests_of(mutant: Mutant, known: Functions) -> tuple[str, ...]:
    """Return the tests of a mutant's function, of its file where it has none."""
    own = known.get(mutant.line.function)
    if own:
        return tuple(own)
    of_file = [test for name in known if name.startswith(mutant.path) for test in known[name]]
    return tuple(dict.fromkeys(of_file)) or ("tests/unit/core",)


def room_of(mutant: Mutant) -> str:
    """Return the room of a mutant: a folder of the scheduler, or another pure part."""
    parts = mutant.path.split("/")
    if parts[:3] == ["services", "core", "scheduler"]:
        return parts[3].removesuffix(".py")
    return "/".join(parts[1:3]).removesuffix(".py")


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


def sample() -> list[Row]:
    """Return the fixed sample."""
    return [Row(**row) for row in yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))]


def mutants_of(rows: Sequence[Row], seed: str = SEED) -> dict[str, tuple[Mutant, Row]]:
    """Return the mutants of the rows whose lines are there still, by name."""
    of_line = {(row.function, row.line, row.copy): row for row in rows}
    found: dict[str, tuple[Mutant, Row]] = {}
    for path in sorted({row.function.partition("::")[0] for row in rows}):
        if not (ROOT / path).exists():
            continue
        file = _File(ROOT / path)
        for line in lines_of(ROOT / path):
            row = of_line.get((line.function, line.text, line.copy))
            mutant = file.mutant(line, seed) if row is not None else None
            if row is not None and mutant is not None and mutant.now == row.now:
                found[mutant.name] = (mutant, row)
    return found


# --- the ways to run ------------------------------------------------------------------------------


def try_sample() -> int:
    """Try the sample, each with its test; return 1 where Rule 4 does not hold."""
    there = mutants_of(sample())
    trials = [
        Trial(name, mutant.path, mutant.text, (row.test,), LIMIT_S)
        for name, (mutant, row) in there.items()
        if row.test
    ]
    missed = [found.trial for found in outcomes(trials) if _lives(found)]
    for trial in missed:
        print(f"lives, and its test should notice it: {trial.name} ({trial.tests[0]})")
    killed = len(trials) - len(missed)
    could = len(trials) + sum(bool(row.lives) for _, row in there.values())
    print(
        f"{killed} of {could} mutants noticed; {len(there) - could} are equal to what they were of"
    )
    is_stale = len(there) < ROWS_LEAST
    if is_stale:
        print(f"{len(there)} rows of the sample are there still: choose it anew with --renew")
    return 1 if missed or is_stale or killed < LEAST * could else 0


def try_lines(count: int | None, seed: str) -> tuple[list[Mutant], list[Outcome]]:
    """Try so many lines, None for all, and print what came of them by room."""
    known = covering()
    made = {one.name: one for one in mutants(count, seed)}
    trials = [
        Trial(one.name, one.path, one.text, _tests_of(one, known), LIMIT_S) for one in made.values()
    ]
    found = []
    for outcome in outcomes(trials):
        _lives(outcome)
        found.append(outcome)
    all_of = Counter(room_of(one) for one in made.values())
    killed = Counter(
        room_of(made[one.trial.name]) for one in found if one.verdict is not Verdict.UNNOTICED
    )
    for room in sorted(all_of):
        print(f"{room:24} {killed[room]:4} of {all_of[room]:4} noticed")
    print(f"{killed.total()} of {len(made)} mutants noticed")
    return list(made.values()), found


def renew(count: int, seed: str) -> None:
    """Choose the sample anew; the reasons that are known are kept."""
    known = {(row.function, row.line, row.now): row for row in sample()}
    made, found = try_lines(count, seed)
    by_name = {one.trial.name: one for one in found}
    rows: list[dict[str, object]] = []
    for mutant in made:
        line, outcome = mutant.line, by_name[mutant.name]
        row: dict[str, object] = {
            "function": line.function, "line": line.text, "copy": line.copy, "now": mutant.now,
        }  # fmt: skip
        if outcome.verdict is Verdict.UNNOTICED:
            before = known.get((line.function, line.text, mutant.now))
            is_equal = before is not None and bool(before.equal)
            why = (before.equal or before.lives) if before is not None else ""
            row["equal" if is_equal else "lives"] = why
        else:
            row["test"] = outcome.test or outcome.trial.tests[0]
        rows.append(row)
    SAMPLE.write_text(yaml.safe_dump(rows, sort_keys=False, width=100), encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Try the sample, or what is asked for."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--lines", type=int)
    parser.add_argument("--seed", default=SEED)
    asked = parser.parse_args(words)
    if asked.renew:
        renew(asked.lines or LINES, asked.seed)
        return 0
    if not asked.all and asked.lines is None:
        return try_sample()
    made, found = try_lines(None if asked.all else asked.lines, asked.seed)
    lives = sum(one.verdict is Verdict.UNNOTICED for one in found)
    return 1 if lives > (1 - LEAST) * len(made) else 0


def _lives(outcome: Outcome) -> bool:
    """Print what came of a mutant; return whether it lives."""
    lives = outcome.verdict is Verdict.UNNOTICED
    said = "lives" if lives else outcome.verdict.value
    print(f"{said:9} {outcome.seconds:5.1f} s  {outcome.trial.name}", flush=True)
    return lives


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
