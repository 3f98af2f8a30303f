"""The measures of `make shape`: each counts something, and one that is reached is a bound."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("shape", ROOT / "scripts/shape.py")
shape = importlib.util.module_from_spec(SPEC)
sys.modules["shape"] = shape  # dataclasses look their module up
SPEC.loader.exec_module(shape)
IDEAS = {
    "model/rows.py": "class Claim:\n    pass\n",
    "nodes/node_table.py": (
        "class NodeTable:\n"
        "    def best(self, shape: Shape) -> Node | None:\n"
        "        return self.rooms.mask(shape) & self.devices.mask(shape)\n"
        "    def total(self) -> int:\n"
        "        return self.room + self.devices\n"
    ),
    "place/place.py": "def place(tree):\n    return partition.nodes.best(tree.shape)\n",
    "cycle/cycle.py": "def cycle(tree):\n    best = place(tree)\n    return queue.best(best)\n",
}


def texts(**more: str) -> dict[str, str]:
    found = {**IDEAS, **{name.replace("__", "/") + ".py": text for name, text in more.items()}}
    return {shape.CORE + name: text for name, text in found.items()}


@pytest.fixture
def code(monkeypatch):
    def use(found: dict[str, str]) -> None:
        monkeypatch.setattr(shape, "_texts", lambda: found)
        shape._trees.cache_clear()

    yield use
    shape._trees.cache_clear()


def test_an_idea_that_is_written_once_counts_as_one_and_a_copy_as_one_more(code):
    code(texts())
    assert list(shape.choosing_modules()) == [shape.CORE + "place/place.py"]
    assert shape.combining_functions() == [shape.CORE + "nodes/node_table.py: best"]
    assert shape.kinds(shape.KEPT_ROOM) == ["a claim"]
    assert shape.large_classes(2) == []
    code(
        texts(
            evict__search="def search(ask):\n    return self._nodes.best(ask.shape)\n",
            nodes__index="def fits(shape: Shape) -> bool:\n    return room and not reserved\n",
            model__covers="class Reservation:\n    a: int\n    b: int\n    c: int\n",
        )
    )
    assert len(shape.choosing_modules()) == 2
    assert len(shape.combining_functions()) == 2
    assert len(shape.kinds(shape.KEPT_ROOM)) == 2
    (large,) = shape.large_classes(2)
    assert large.endswith("Reservation: 0 methods, 3 fields")


def test_one_ask_goes_through_functions_of_several_files():
    route = shape._one_ask()
    assert 20 < len(route.functions) < 1_000
    assert 10 < route.changes < 1_000


@pytest.mark.parametrize(("now", "status"), [(3, 0), (4, 1)])
def test_what_is_reached_is_a_bound_and_what_is_not_fails_nothing(now, status, monkeypatch, capsys):
    rows = (
        shape.Row("reached", lambda: [str(at) for at in range(now)], 3, is_reached=True),
        shape.Row("far off", lambda: 99, 1),
    )
    monkeypatch.setattr(shape, "ROWS", rows)
    assert shape.main(["--check"]) == status
    assert capsys.readouterr().out == ("" if not status else "reached: 4, wanted 3: 0, 1, 2, 3\n")
    assert shape.main([]) == status


def test_a_measure_that_finds_nothing_of_what_is_wanted_does_not_hold(monkeypatch, capsys):
    monkeypatch.setattr(shape, "ROWS", (shape.Row("blind", list, 1, is_reached=True),))
    assert shape.main(["--check"]) == 1
    assert shape.NOTHING in capsys.readouterr().out
    monkeypatch.setattr(shape, "ROWS", (shape.Row("none wanted", list, 0, is_reached=True),))
    assert shape.main(["--check"]) == 0
