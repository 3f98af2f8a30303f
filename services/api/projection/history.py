"""How much ran, a sample a minute (docs/rules/rest.md#history: a ring of 1,440 one-minute samples).

A sample is the state at its minute. The model changes only with messages, so the samples of past
minutes are taken before the next message is applied.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.api.projection.model import Model
from shared.model.states import ApplicationState
from shared.model.units import seconds

MAX_SAMPLES = 1_440
EVERY_NS = seconds(60)


@dataclass(frozen=True, slots=True)
class Sample:
    """The number of running applications and of allocations at one moment."""

    time_ns: int
    applications: int
    containers: int


@dataclass(slots=True)
class History:
    """The newest samples, the oldest first."""

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))

    def is_due(self, now_ns: int) -> bool:
        """Whether a sample may be due."""
        return not self.samples or self.samples[-1].time_ns + EVERY_NS <= now_ns

    def pass_time(self, models: Sequence[Model], now_ns: int) -> None:
        """Take the samples due at a moment, over all partitions.

        The first one is taken as soon as one partition has a model.
        """
        if not self.is_due(now_ns) or all(model.partition is None for model in models):
            return
        due_ns = self.samples[-1].time_ns + EVERY_NS if self.samples else now_ns
        due_ns = max(due_ns, now_ns - (now_ns - due_ns) % EVERY_NS - (MAX_SAMPLES - 1) * EVERY_NS)
        running, held = sum(map(_running, models)), sum(map(_held, models))
        while due_ns <= now_ns:
            self.samples.append(Sample(due_ns, running, held))
            due_ns += EVERY_NS


def _running(model: Model) -> int:
    states = (view.summary.state for view in model.applications.values())
    return sum(state == ApplicationState.RUNNING for state in states)


def _held(model: Model) -> int:
    return sum(len(view.allocations) for view in model.applications.values())
