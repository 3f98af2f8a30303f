"""The traces of applications: the steps of each, as one tree.

Rule 1: a step that was reported twice, as after a redelivery, is one.
Rule 2: a step is placed below the first of its known causes, else below the submission.
Rule 3: steps are listed by time, causes first: the clocks of two hosts may differ.
Limits: MAX_STORY steps per application, MAX_STORIES applications, MAX_HELD steps in total; the
oldest are dropped first.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from shared.messages.trace import ROOT_CAUSE, TraceRecord, causes_of

MAX_STORIES = 2_000
MAX_STORY = 2_000
MAX_HELD = 100_000
_SCHEDULES = {"core", "timers"}  # the services that have a partition


@dataclass(frozen=True, slots=True)
class StoryStep:
    """A step in an application's trace, with its parent, depth and further causes."""

    record: TraceRecord
    at: int  # the application's place in the record
    parent: str
    links: tuple[str, ...]
    depth: int


class Stories:
    """The records of each application, by step identity."""

    def __init__(self) -> None:
        self._stories: dict[str, dict[str, TraceRecord]] = {}
        self._held = 0

    def remember(self, record: TraceRecord) -> None:
        """Add a record to the trace of every application that it concerns."""
        for name in record.applications:
            story = self._stories.pop(name, None)
            if story is None:
                story = {}
            self._stories[name] = story
            if record.message_id in story:
                continue
            story[record.message_id] = record
            self._held += 1
            if len(story) > MAX_STORY:
                del story[next(iter(story))]
                self._held -= 1
        while len(self._stories) > MAX_STORIES or self._held > MAX_HELD:
            self._held -= len(self._stories.pop(next(iter(self._stories))))

    def of(self, application_id: str, partition: str = "") -> list[StoryStep]:
        """Return the steps of an application in order; [] if it is unknown.

        With a partition, only those of its core and timers, and those of no partition.
        """
        story = self._stories.get(application_id, {})
        if partition:
            story = {name: record for name, record in story.items() if _is_of(record, partition)}
        return _in_order(story, application_id)


def _is_of(record: TraceRecord, partition: str) -> bool:
    return record.partition == partition or not _SCHEDULES & {record.source, record.destination}


def _in_order(story: dict[str, TraceRecord], application_id: str) -> list[StoryStep]:
    """Return the steps by time, each after its parent."""
    steps: dict[str, StoryStep] = {}
    for record in sorted(story.values(), key=_time_ns):
        way = list(_way_up(record.message_id, story, application_id, steps))
        for step_id in reversed(way):
            steps[step_id] = _placed(story[step_id], application_id, steps)
    return list(steps.values())


def _way_up(
    step_id: str, story: dict[str, TraceRecord], application_id: str, steps: Container[str]
) -> Iterator[str]:
    """Yield a step and its ancestors, up to one that is placed."""
    passed: set[str] = set()
    while step_id != ROOT_CAUSE and step_id not in steps and step_id not in passed:
        passed.add(step_id)
        yield step_id
        step_id = _parent(_causes(story[step_id], application_id), story)


def _placed(record: TraceRecord, application_id: str, steps: Mapping[str, StoryStep]) -> StoryStep:
    """Return a step placed below the first of its placed causes."""
    causes = _causes(record, application_id)
    parent = _parent(causes, steps)
    links = tuple(cause for cause in causes if cause not in (parent, ROOT_CAUSE))
    depth = steps[parent].depth + 1 if parent != ROOT_CAUSE else 1
    return StoryStep(record, record.applications.index(application_id), parent, links, depth)


def _causes(record: TraceRecord, application_id: str) -> tuple[str, ...]:
    return causes_of(record, record.applications.index(application_id))


def _parent(causes: Iterable[str], known: Container[str]) -> str:
    return next((one for one in causes if one == ROOT_CAUSE or one in known), ROOT_CAUSE)


def _time_ns(record: TraceRecord) -> int:
    return record.published_ns + record.queued_ns
