"""Mutants of the pure parts, the host and the buses, one a line, by Cosmic Ray (ADR 51).

``sample`` tries a fixed few of them, ``every`` all.

Rule 1: a line is known by its function, its text, and which of that text it is there: so what is
        chosen does not change with what is written elsewhere. Of what the operators could do in a
        line one thing is chosen, by the seed.
Rule 2: left out is what says nothing about tests: annotations, assertions; operators that make
        another type of a value, which any test would notice.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation.covering import functions_of, mutated_files
from tests.mutation.trials import ROOT

SEED = "muster"
LEAST = 0.9
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


class Fate(Enum):
    """What came of a mutant: of what is EQUAL, whatever is decided and told is the same."""

    NOTICED = "noticed"
    EQUAL = "equal"
    LIVES = "live"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a function; ``copy`` counts those of the same text."""

    function: str
    text: str
    copy: int
    number: int

    @property
    def path(self) -> str:
        """Return the file."""
        return self.function.partition("::")[0]

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
        return self.line.path

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
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
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

    def can_change(self, line: Line) -> bool:
        """Tell whether an operator changes anything there."""
        return line.number in self._positions

    def mutant(self, line: Line, seed: str) -> Mutant | None:
        """Return what becomes of a line by a seed, None where its file has other lines then."""
        could = self._positions[line.number]
        at = int(line.order(f"{seed}/which"), 16) % len(could)
        name, occurrence = could[at]
        try:
            text = mutate_code(self._source, plugins.get_operator(name)(), occurrence)
        except AttributeError:  # of a tuple of exceptions of which one has a dotted name
            return None
        before, after = self._source.splitlines(), text.splitlines() if text else []
        if len(before) != len(after):
            return None
        return Mutant(line, name, after[line.number - 1].strip(), text)


class Mutants:
    """The lines of some files on which something can be changed, in the order of a seed."""

    def __init__(self, seed: str = SEED, paths: Iterable[Path] | None = None) -> None:
        self._seed = seed
        self._files: dict[str, _File] = {}
        self.lines: list[Line] = []
        for path in mutated_files() if paths is None else paths:
            file = self._files[path.relative_to(ROOT).as_posix()] = _File(path)
            self.lines += [line for line in lines_of(path) if file.can_change(line)]
        self.lines.sort(key=lambda line: line.order(seed))

    def of(self, line: Line) -> Mutant | None:
        """Return what becomes of a line, None where it reads the same."""
        mutant = self._files[line.path].mutant(line, self._seed)
        return mutant if mutant is not None and mutant.now != line.text else None


def room_of(path: str) -> str:
    """Return the room of a file: a folder of the scheduler, the buses, the hosts, or another part."""
    parts = path.split("/")
    if parts[:3] == ["services", "core", "scheduler"]:
        return parts[3].removesuffix(".py")
    if parts[:2] == ["shared", "bus"]:
        return "bus"
    if parts[:2] == ["shared", "runtime"]:
        return "runtime"
    return "/".join(parts[1:3]).removesuffix(".py")


def table(fates: Iterable[tuple[str, Fate]]) -> str:
    """Return a table by room of what came of mutants; all of them are the last line.

    What is equal counts for neither side: ``rate`` is what was noticed of what could be.
    """
    by_room: dict[str, Counter[Fate]] = {}
    whole = by_room.setdefault("all", Counter())
    for room, fate in fates:
        by_room.setdefault(room, Counter())[fate] += 1
        whole[fate] += 1
    lines = [f"{'room':20} {'mutants':>7} " + " ".join(f"{fate.value:>7}" for fate in Fate)]
    lines[0] += f" {'rate':>6}"
    for room in [*sorted(by_room.keys() - {"all"}), "all"]:
        counts = by_room[room]
        could = counts.total() - counts[Fate.EQUAL]
        rate = f"{100 * counts[Fate.NOTICED] // could} %" if could else "-"
        numbers = " ".join(f"{counts[fate]:7}" for fate in Fate)
        lines.append(f"{room:20} {counts.total():7} {numbers} {rate:>6}")
    return "\n".join(lines)


def is_enough(fates: Iterable[Fate]) -> bool:
    """Tell whether at least LEAST of what could be noticed was."""
    counts = Counter(fates)
    return counts[Fate.NOTICED] >= LEAST * (counts[Fate.NOTICED] + counts[Fate.LIVES])
