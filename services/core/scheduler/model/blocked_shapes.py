"""The shapes that no node takes, by what they need: of amounts, and of time where that is known."""

from services.core.scheduler.model.needs import NeedTable
from services.core.scheduler.model.shapes import Shape
from shared.model.resources import ResourceView

_RUN, _EXPECTED = "run", "expected"  # how long, in ns


class BlockedShapes(NeedTable[Shape]):
    """A table of needs that knows beside them for how long asks of a shape run."""

    def __init__(self) -> None:
        super().__init__()
        self._stated: NeedTable[Shape] = NeedTable()
        self._predicted: NeedTable[Shape] = NeedTable()

    def add(self, key: Shape, need: ResourceView) -> None:
        """Enter a shape at the end; one that is there stays as it is."""
        super().add(key, need)
        if key.run_ns > 0:
            self._stated.add(key, {_RUN: key.run_ns})
        if key.expected_ns > 0:
            self._predicted.add(key, {_EXPECTED: key.expected_ns})

    def discard(self, key: Shape) -> None:
        """Take a shape out, if it is there."""
        super().discard(key)
        self._stated.discard(key)
        self._predicted.discard(key)

    def in_time(self, run_ns: int, expected_ns: int) -> list[Shape]:
        """Return the shapes that state at most so many ns, or are predicted to run for at most."""
        stated = self._stated.fitting({_RUN: run_ns})
        return [*stated, *self._predicted.fitting({_EXPECTED: expected_ns})]
