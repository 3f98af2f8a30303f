"""Who may write to the model: its own room, the tables of nodes, and the moves of the statement."""

import ast
from pathlib import Path

import pytest

import services.core.scheduler as core

ROOT = Path(core.__file__).parent
WRITERS = {"model", "nodes", "ordering", "statement"}
ROWS = {
    "queue_ledger.py": {"QueueLedger"},
    "rows.py": {
        "Application",
        "AskGroup",
        "Bucket",
        "Claim",
        "EquivalenceClass",
        "WaitList",
        "Node",
        "PluginWaitList",
        "Queue",
        "Tracker",
    },
    "shapes.py": {"Ask", "Shape"},
    "task_groups.py": {"TaskGroupCount", "Replacement"},
    "user_ledger.py": {"UserLedger"},
}
# What the cycle has yet to look at, and what is only remembered of an order: no part of the model.
AGENDA = {
    "is_capacity_new", "starvation_times", "preemption_due_ns", "replaceable", "reserved_to_try",
    "shapes_to_reserve", "too_large", "unplaced", "unreplaceable", "waiting_gangs",
    "starved_admitted", "short_of_nodes", "to_watch",
}  # fmt: skip
REMEMBERED = {"preemptors", "promised_by_type", "turn", "turns", "version"}
MUTATORS = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip


def fields_of(path: Path, classes: set[str]) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        item.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in classes
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def fields() -> set[str]:
    found = fields_of(ROOT / "statement" / "partition.py", {"Partition"})
    for name, classes in ROWS.items():
        found |= fields_of(ROOT / "model" / name, classes)
    return found - AGENDA - REMEMBERED


def row_field(node: ast.expr, known: set[str]) -> str | None:
    """Return what is written to, where it is a field, or part of one, of something not ``self``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Attribute) or node.attr not in known:
        return None
    is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
    return None if is_own else ast.unparse(node)


def writes(source: str, known: set[str]) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                targets += target.elts if isinstance(target, ast.Tuple) else [target]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in MUTATORS
        ):
            targets = [node.func.value]
        found += [text for target in targets if (text := row_field(target, known)) is not None]
    return found


def modules() -> list[Path]:
    return [
        path
        for path in sorted(ROOT.rglob("*.py"))
        if path.parent == ROOT or path.relative_to(ROOT).parts[0] not in WRITERS
    ]


def test_no_room_above_the_statement_writes_to_the_model():
    known = fields()
    found = {str(path.relative_to(ROOT)): writes(path.read_text(), known) for path in modules()}
    assert {path: said for path, said in found.items() if said} == {}


@pytest.mark.parametrize(
    "source",
    [
        "application.message = 'x'",
        "queue.max_resource, other = 1, 2",
        "group.asks[key] = ask",
        "del application.timers[name]",
        "node.allocations.pop(key)",
        "ask.lacks_headroom_by += 'x'",
        "self._partition.queues.update(more)",
    ],
)
def test_a_write_is_seen(source):
    assert writes(source, fields())


def test_what_is_ones_own_may_be_written():
    assert not writes("self.asks = {}\nfound.places = 1\nqueue.path\nasks[key] = 1", fields())


GIVES_BACK = {"release_claim", "release", "set_max"}
LEDGERS = {"leaf", "level", "queue", "root", "tracker"}


def given_back(source: str) -> list[str]:
    """Return where a ledger is told that it has more room, and nobody who waits for it."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in GIVES_BACK
        and ast.unparse(node.func.value).rpartition(".")[2] in LEDGERS
    ]


def test_room_is_given_back_where_those_who_wait_are_requeued():
    paths = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "queueing.py"]
    found = {str(path.relative_to(ROOT)): given_back(path.read_text()) for path in paths}
    assert {path: said for path, said in found.items() if said} == {}


def test_room_that_is_given_back_is_seen():
    assert given_back("application.queue.release(amount)\nlevel.release_claim(amount)")
    assert not given_back("self.release(application, key)\nqueueing.release(queue, amount)")
