"""The timeline of a gang: the number of its members in each state, at each change.

Steps are stored and dropped with the application. A gang has at most MAX_STEPS: beyond that every
second one is dropped, except the first and the last.
"""

from typing import NamedTuple

from services.api.projection.model import ApplicationView
from shared.messages.interface import TerminationType

MAX_STEPS = 32


class Step(NamedTuple):
    """The number of members in each state from a time on: placeholders by outcome, then pods.

    ``held`` placeholders have a place; ``ended`` pods include neither lost nor evicted ones.
    """

    time_ns: int
    pending: int
    held: int
    replaced: int
    timedout: int
    running: int
    ended: int
    lost: int
    evicted: int


def note_step(view: ApplicationView, time_ns: int) -> None:
    """Add a step to a gang if its numbers have changed."""
    if not view.summary.placeholders:
        return
    step, steps = _step(view, time_ns), view.steps
    if steps and steps[-1][1:] == step[1:]:
        return
    if steps and steps[-1][0] == time_ns:
        steps[-1] = step
    else:
        steps.append(step)
    if len(steps) > MAX_STEPS:
        del steps[1:-1:2]


def _step(view: ApplicationView, time_ns: int) -> Step:
    groups, gone = view.summary.placeholders, view.gone
    held = sum(group.allocated for group in groups)
    lost = gone.get(TerminationType.UNKNOWN_TERMINATION_TYPE, 0)
    evicted = gone.get(TerminationType.PREEMPTED_BY_SCHEDULER, 0)
    return Step(
        time_ns,
        len(view.asks),
        held,
        sum(group.replaced for group in groups),
        sum(group.timedout for group in groups),
        max(0, len(view.allocations) - held),
        sum(gone.values()) - lost - evicted,
        lost,
        evicted,
    )
