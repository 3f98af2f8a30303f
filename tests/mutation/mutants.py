"""Mutants of the pure parts: Cosmic Ray's operators, one mutant a line, and who notices (ADR 51).

``python -m tests.mutation.mutants`` makes all of them (hours), ``--sample`` those of LINES lines
(minutes), ``--sample 600 --seed x`` others. A mutant whose tests pass lives. Those that may are in
``survivors.yaml``, with the reason; another one that lives, and less than LEAST of all killed,
fail.

Rule 1: a line is known by its function, its text, and which of that text it is there: so what is
        chosen does not change with what is written elsewhere. Of what an operator could do in a
        line one thing is chosen, by the seed.
Rule 2: left out is what says nothing about tests: annotations, assertions, what is logged by
        nobody; operators that make another type of a value, which any test would notice.
Rule 3: a mutant is tried with the tests of its function (``covering``).
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation.covering import Functions, covering, functions_of, pure_files
from tests.mutation.trials import ROOT, Outcome, Trial, Verdict, outcomes

LINES = 150
SEED = "muster"
LEAST = 0.9
LIMIT_S = 180.0
SURVIVORS = Path(__file__).with_name("survivors.yaml")
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


def survivors() -> list[dict[str, Any]]:
    """Return the list of those that may live."""
    return yaml.safe_load(SURVIVORS.read_text(encoding="utf-8")) or []


def _may_live(mutant: Mutant) -> bool:
    row = (mutant.line.function, mutant.line.text, mutant.now)
    return any((one["function"], one["line"], one["now"]) == row for one in survivors())


def main(words: Sequence[str]) -> int:
    """Make the mutants; return 1 if one lives that is not listed, or too many do."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--sample", type=int, nargs="?", const=LINES, metavar="LINES")
    parser.add_argument("--seed", default=SEED)
    asked = parser.parse_args(words)
    known = covering()
    chosen = {one.name: one for one in mutants(asked.sample, asked.seed)}
    trials = [
        Trial(one.name, one.path, one.text, _tests_of(one, known), LIMIT_S)
        for one in chosen.values()
    ]
    found = [(chosen[outcome.trial.name], outcome) for outcome in outcomes(trials)]
    lives = [one for one, outcome in found if _told(outcome)]
    _tell_rooms(list(chosen.values()), lives)
    unlisted = [one for one in lives if not _may_live(one)]
    for one in unlisted:
        print(f"lives and is not listed: {one.name}")
    killed = len(found) - len(lives)
    print(f"{killed} of {len(found)} mutants killed ({killed / max(len(found), 1):.1%})")
    return 1 if unlisted or killed < LEAST * len(found) else 0


def _told(outcome: Outcome) -> bool:
    """Print what came of a mutant; return whether it lives."""
    lives = outcome.verdict is Verdict.UNNOTICED
    said = "lives" if lives else outcome.verdict.value
    print(f"{said:9} {outcome.seconds:5.1f} s  {outcome.trial.name}", flush=True)
    return lives


def _tell_rooms(made: Sequence[Mutant], lives: Sequence[Mutant]) -> None:
    """Print how many of each room were made and killed."""
    of_room, alive = Counter(map(room_of, made)), Counter(map(room_of, lives))
    for room in sorted(of_room):
        print(f"{room:24} {of_room[room] - alive[room]:4} of {of_room[room]:4} killed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
