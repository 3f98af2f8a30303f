"""How often the core does one thing, and how large its classes are: a row a measure.

A row has the number, what is wanted of it, and its bound once that is reached. With --check only
what is over its bound is printed, with --which what is counted as well.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Self

ROOT = Path(__file__).parent.parent
CORE = "services/core/scheduler/"
NODES = CORE + "nodes/"
ROOMS = ("model/", "nodes/", "statement/", "place/", "policies/", "evict/", "actions/")

SMALL = 25  # methods, or fields, of a class with one idea
MANY_FIELDS = ("shared/messages/", "shared/runtime/settings.py", CORE + "model/settings.py")
# What a filter reads of a node. A function with a shape that reads two of them combines filters.
FACTS = ("schedulab", "reserv|held", "room", "device", "hook", "pods", "view")
COMBINED = NODES + "filters/combined.py"  # any other file of the folder is about one fact
KEPT_ROOM = {  # a kind is there as long as a line of the core begins so
    "a reservation": r"class Reservation\b",
    "a preemptor's": r"    has_kept_room: bool",
    "a moved pod's": r"class Successor\b",
    "for placeholders that go": r"class Cover\b",
    "the head gang's": r"    is_held: bool",
    "an admitted gang's": r"class PromiseChanged\b",
    "a claim": r"class Claim\b",
}
UNDO = {
    "a log of moves": r"class Tentative\b",
    "a checkpoint of everything": r"class Checkpoint\b",
    "a statement of its own": r"class Statement:",
    "a hypothesis": r"class Hypothesis\b",
    "a trial of queues": r"class QueueTrial\b",
    "places of a gang": r"def take_back\(",
    "what is supposed of victims": r"class Supposed\b",
}
VICTIM_SEARCH = {  # where what does the least harm is found among places
    "place after place": r"def search_places\(",
    "nodes for one ask": r"        if self\._found is None or harm < ",
    "domains for a gang": r"    return min\(\(way for way in found",
    "domains for a job": r"        if best is None or harm < best\[0\]",
}
NOTHING = "nothing is found: this measure has to follow the code"
AMOUNTS = {"by name": r"Resource: TypeAlias = dict", "by position": r"Amount(: TypeAlias)? = tuple"}


@dataclass(frozen=True, slots=True)
class Row:
    """A measure: what it counts, how many are wanted; ``is_reached``: more fail the check."""

    name: str
    count: Callable[[], Iterable[str] | int]
    wanted: int
    is_reached: bool = False


def main(arguments: list[str]) -> int:
    """Print the table, or what is over its bound; return whether anything is."""
    over = 0
    width = max(len(row.name) for row in ROWS)
    checks = "--check" in arguments
    if not checks:
        print(f"{'measure':{width}}      now   wanted  bound")
    for row in ROWS:
        if checks and not row.is_reached:
            continue
        counted = row.count()
        which = [] if isinstance(counted, int) else sorted(counted)
        now = counted if isinstance(counted, int) else len(which)
        is_blind = now == 0 < row.wanted  # what is counted is called otherwise by now
        if row.is_reached and (now > row.wanted or is_blind):
            over += 1
            print(f"{row.name}: {now}, wanted {row.wanted}: {', '.join(which) or NOTHING}")
        elif not checks:
            state = "reached" if now <= row.wanted else ""
            bound = NOTHING if is_blind else "holds" if row.is_reached else state
            print(f"{row.name:{width}}  {now:7,}  {row.wanted:7,}  {bound}".rstrip())
            print("".join(f"    {item}\n" for item in which if "--which" in arguments), end="")
    return min(over, 1)


# --- what is read of the code ---------------------------------------------------------------------


@cache
def _texts() -> dict[str, str]:
    """Return every module of the product by its path."""
    paths = [path for folder in ("services", "shared") for path in (ROOT / folder).rglob("*.py")]
    named = {path.relative_to(ROOT).as_posix(): path for path in sorted(paths)}
    return {name: path.read_text() for name, path in named.items()}


@cache
def _trees(prefix: str = "") -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in _texts().items() if name.startswith(prefix)}


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    return (found for found in ast.walk(node) if isinstance(found, ast.FunctionDef))


def _takes_shape(function: ast.FunctionDef) -> bool:
    given = (*function.args.args, *function.args.kwonlyargs)
    return any(arg.annotation and "Shape" in ast.unparse(arg.annotation) for arg in given)


# --- what is counted ------------------------------------------------------------------------------


def choosing_modules() -> set[str]:
    """Return the modules that ask the room of nodes for a node: outside of it, for a shape."""
    choosers = {
        function.name
        for tree in _trees(NODES).values()
        for owner in _classes(tree)
        for function in _functions(owner)
        if not function.name.startswith("_")
        and _takes_shape(function)
        and function.returns
        and re.search(r"\bNode\b", ast.unparse(function.returns))
    }
    return {
        name
        for name, tree in _trees(CORE).items()
        if not name.startswith(NODES) and any(_calls(tree, choosers))
    }


def _calls(tree: ast.Module, names: set[str]) -> Iterator[bool]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            yield node.func.attr in names and re.search(r"(\b|_)nodes(\.\w+)?$", owner) is not None


def _facts_in(function: ast.FunctionDef) -> int:
    body = function.body[ast.get_docstring(function) is not None :]  # a docstring asks nothing
    text = ast.unparse(ast.Module(body, []))
    text = re.sub(r"filters\.[\w.]+|_views\b", "", text)  # to ask a list of filters is no fact
    return sum(re.search(fact, text) is not None for fact in FACTS)


def combining_functions() -> list[str]:
    """Return the functions about nodes that combine facts of which each is a filter."""
    return [
        f"{name}: {function.name}"
        for name, tree in _trees(NODES).items()
        for function in _functions(tree)
        if (name == COMBINED or not name.startswith(NODES + "filters/"))
        and _takes_shape(function)
        and (name == COMBINED or _facts_in(function) > 1)
    ]


def kinds(marks: dict[str, str]) -> list[str]:
    """Return the kinds of which a mark stands at the beginning of a line of the core."""
    where = tuple(CORE + room for room in ROOMS)
    texts = [text for name, text in _texts().items() if name.startswith((*where, "shared/model/"))]
    return [
        kind
        for kind, mark in marks.items()
        if any(re.search(f"^{mark}", text, re.MULTILINE) for text in texts)
    ]


def large_classes(most: int) -> list[str]:
    """Return the classes with more methods or fields than so many, and how many these are."""
    found: list[str] = []
    for name, tree in _trees().items():
        if name.startswith(MANY_FIELDS):
            continue
        for owner in _classes(tree):
            methods, fields = _size(owner)
            if max(methods, fields) > most:
                found.append(f"{name}: {owner.name}: {methods} methods, {fields} fields")
    return found


def _size(owner: ast.ClassDef) -> tuple[int, int]:
    stated = {item.target.id for item in owner.body if isinstance(item, ast.AnnAssign)
              and isinstance(item.target, ast.Name)}  # fmt: skip
    methods = [
        item for item in owner.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    set_there = {
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return len(methods), max(len(stated), len(set_there))


def lines() -> int:
    """Return how many lines the product has."""
    return sum(text.count("\n") for text in _texts().values())


class _Route:
    """What one call enters: which functions, and how often the next one is in another file."""

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.changes = 0
        self._last = ""

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith((f"{ROOT}/services/", f"{ROOT}/shared/")):
            return
        self.functions.add(f"{file}:{frame.f_code.co_qualname}")
        self.changes += file != self._last
        self._last = file


@cache
def _one_ask() -> _Route:
    """Return the way of one ask to its allocation, the second time that there is one."""
    from tests.builders import Core  # only here: a check may need no core

    core = Core()
    for node in ("n0", "n1", "n2"):
        core.node(node, vcore=10_000, memory=10_000, pods=20)
    core.application("app")
    core.asks("app", ["first"], {"vcore": 1000, "pods": 1})
    with _Route() as route:
        core.asks("app", ["second"], {"vcore": 1000, "pods": 1})
    return route


ROWS = (
    Row("modules that choose a node for an ask", choosing_modules, 1, is_reached=True),
    Row("functions that combine filters", combining_functions, 3, is_reached=True),
    Row("kinds of kept room", lambda: kinds(KEPT_ROOM), 1, is_reached=True),
    Row("kinds of undo", lambda: kinds(UNDO), 1),
    Row("kinds of search for victims", lambda: kinds(VICTIM_SEARCH), 1, is_reached=True),
    Row("kinds of amounts", lambda: kinds(AMOUNTS), 1),
    Row(f"classes of over {SMALL} methods or fields", lambda: large_classes(SMALL), 3),
    Row("classes of over 40 methods or fields", lambda: large_classes(40), 0),
    Row("one ask, warm: changes of file", lambda: _one_ask().changes, 90),
    Row("one ask, warm: functions", lambda: len(_one_ask().functions), 120),
    Row("lines of services and shared", lines, 56_000),
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
