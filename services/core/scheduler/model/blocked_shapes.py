"""The shapes that no node fits, indexed by their amounts and their run times."""

from services.core.scheduler.model.needs import NeedTable
from services.core.scheduler.model.shapes import Shape
from shared.model.resources import ResourceView

_RUN, _EXPECTED = "run", "expected"  # how long, in ns


class BlockedShapes(NeedTable[Shape]):
    """A table of blocked shapes that also indexes their run times."""

    def __init__(self) -> None:
        super().__init__()
        self._stated: NeedTable[Shape] = NeedTable()
        self._predicted: NeedTable[Shape] = NeedTable()

    def add(self, key: Shape, need: ResourceView) -> None:
        """Add a shape at the end; a known one is unchanged."""
        super().add(key, need)
        if key.run_ns > 0:
            self._stated.add(key, {_RUN: key.run_ns})
        if key.expected_ns > 0:
            self._predicted.add(key, {_EXPECTED: key.expected_ns})

    def discard(self, key: Shape) -> None:
        """Remove a shape, if it is there."""
        super().discard(key)
        self._stated.discard(key)
        self._predicted.discard(key)

    def in_time(self, run_ns: int, expected_ns: int) -> list[Shape]:
        """Return the shapes whose stated or predicted run time is within a limit, in ns."""
        stated = self._stated.fitting({_RUN: run_ns})
        return [*stated, *self._predicted.fitting({_EXPECTED: expected_ns})]
