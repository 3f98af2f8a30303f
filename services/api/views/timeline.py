"""An application's timeline as an answer: its states, its steps, what happened when."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from services.api.projection.model import ApplicationView, Model
from services.api.projection.timeline import Step
from shared.messages.state import ApplicationSummary
from shared.model.states import ApplicationState

_AFTER_PLACEHOLDERS = set(ApplicationState) - {ApplicationState.NEW, ApplicationState.ACCEPTED}
_STEP = (
    "pending", "held", "replaced", "timedout", "running", "ended", "lost", "evicted",
)  # fmt: skip


def timeline(model: Model, view: ApplicationView) -> dict[str, Any]:
    """Return the timeline of an application; only gangs have steps.

    ``knownSince`` is 0, or the time from which the replica knows an older application; there are no
    steps for its placeholders before that.
    """
    summary = view.summary
    steps = [Step(*step) for step in view.steps]
    wanted = sum(group.count for group in summary.placeholders)
    return {
        **model.mark,
        "applicationID": summary.application_id,
        "submissionTime": summary.submission_time_ns,
        "finishedTime": summary.finished_time_ns,
        "knownSince": view.known_ns,
        "wanted": wanted,
        "states": [{"time": one.time_ns, "state": one.state} for one in summary.state_log],
        "steps": [
            {"time": step.time_ns, **dict(zip(_STEP, step[1:], strict=True))} for step in steps
        ],
        "milestones": [
            {"time": time_ns, "text": text}
            for time_ns, text in sorted(_milestones(view, steps, wanted), key=_time_ns)
        ],
    }


def _milestones(view: ApplicationView, steps: list[Step], wanted: int) -> Iterator[tuple[int, str]]:
    """Yield them in the order in which those of one moment are listed."""
    summary = view.summary
    yield summary.submission_time_ns, "submitted"
    yield from _states(summary, (ApplicationState.ACCEPTED,))
    yield from _of_placeholders(steps, wanted, is_late=view.known_ns > 0)
    yield from _states(summary, _AFTER_PLACEHOLDERS)


def _states(summary: ApplicationSummary, states: Collection[str]) -> Iterator[tuple[int, str]]:
    for change in summary.state_log:
        if change.state in states:
            yield change.time_ns, change.state.lower()


def _of_placeholders(steps: list[Step], wanted: int, *, is_late: bool) -> Iterator[tuple[int, str]]:
    """Yield when the first and last placeholders were reserved and replaced, and failures."""

    def reserved(step: Step) -> int:
        return step.held + step.replaced

    def replaced(step: Step) -> int:
        return step.replaced

    unknown = steps[0] if is_late and steps else None
    for count, word in ((reserved, "reserved"), (replaced, "replaced")):
        first, whole = _first(steps, count, 1), _first(steps, count, wanted)
        if first not in (None, unknown, whole):
            yield first.time_ns, f"first placeholder {word}"
        if whole not in (None, unknown):
            yield whole.time_ns, f"{_all(wanted)} {word}"
    for name, noun, text in _MISHAPS:
        found = next((step for step in steps if getattr(step, name)), None)
        if found is not None:
            most = max(getattr(step, name) for step in steps)
            yield found.time_ns, f"{most} {noun if most == 1 else f'{noun}s'} {text}"


_MISHAPS = (
    ("timedout", "placeholder", "timed out"),
    ("lost", "pod", "lost with a node"),
    ("evicted", "pod", "evicted"),
)


def _all(wanted: int) -> str:
    return "the placeholder" if wanted == 1 else f"all {wanted} placeholders"


def _first(steps: list[Step], count: Callable[[Step], int], least: int) -> Step | None:
    return next((step for step in steps if count(step) >= least), None)


def _time_ns(item: tuple[int, str]) -> int:
    return item[0]
