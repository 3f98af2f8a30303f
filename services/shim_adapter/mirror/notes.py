"""Notes for the users of an application: problems of its pods, and why they wait.

Notes are derived from the world alone, so that all of them can be sent to a recovering core.
"""

from collections.abc import Iterable, Iterator

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationPhase, ApplicationRecord, PodRecord
from shared.messages.interface import ApplicationNote
from shared.model.reasons import (
    ANNOTATION_IGNORED,
    PLACEHOLDER_CREATE_FAILED,
    TASK_GROUPS_ERROR,
    Reason,
)

_MOST_NAMED = 10
_MAX_REFUSED = 1_000  # characters of the reason why a placeholder was refused; cut
_ON_ITS_WAY_OUT = {
    ApplicationPhase.FAILING: "is failing; its new pods start it again once it has failed",
    ApplicationPhase.ENDING: "was deleted; its new pods start it again once its placeholders "
    "have ended",
    ApplicationPhase.RESUMING: "continues without gang scheduling; its pods start once its last "
    "placeholders have ended",
}


def notes_of(application: ApplicationRecord, pod: PodRecord) -> Iterator[ApplicationNote]:
    """Yield the notes of a pod: its task group, ignored annotations, an ending application."""
    if pod.spec.placeholder or pod.has_ended:
        return
    name = application.application_id
    wrong = pod.spec.task_groups_error or _unknown_group(application, pod)
    if wrong:
        yield ApplicationNote(name, TASK_GROUPS_ERROR, wrong, pod.uid)
    if pod.spec.annotations_ignored:
        yield ApplicationNote(name, ANNOTATION_IGNORED, pod.spec.annotations_ignored, pod.uid)
    waits = _ON_ITS_WAY_OUT.get(application.phase)
    if waits is not None and not pod.node:
        yield ApplicationNote(
            name, Reason.APPLICATION_ENDING, f"application {name} {waits}", pod.uid
        )


def notes_of_gang(world: World, application: ApplicationRecord) -> Iterator[ApplicationNote]:
    """Yield a note if an application's gang was given up because placeholders were refused."""
    first = world.originator(application.application_id)
    if application.placeholders_refused and first is not None:
        refused = application.placeholders_refused[:_MAX_REFUSED]
        yield ApplicationNote(
            application.application_id,
            PLACEHOLDER_CREATE_FAILED,
            "its placeholders were refused, so it continues without gang scheduling, and its "
            f"pods are scheduled one by one: {refused}",
            first.uid,
        )


def all_notes(world: World, applications: Iterable[ApplicationRecord]) -> Iterator[ApplicationNote]:
    """Yield the notes of applications and their pods, each text once per application."""
    for application in applications:
        yield from notes_of_gang(world, application)
        said: dict[tuple[str, str], None] = {}
        for pod in world.pods_of(application.application_id):
            for note in notes_of(application, pod):
                if (note.reason, note.message) not in said:
                    said[note.reason, note.message] = None
                    yield note


def _unknown_group(application: ApplicationRecord, pod: PodRecord) -> str:
    """Return a text if a pod's task group is not one of its application's, else ""."""
    wanted = pod.spec.task_group_name
    groups = [group.name for group in application.task_groups]
    groups += [part.name for part in application.gang.subgroups if not part.is_group]
    if not wanted or wanted in groups or (application.message and not groups):
        return ""
    name = application.application_id
    if not groups:
        known = "it has none"
    else:
        more = len(groups) - _MOST_NAMED
        named = ", ".join(groups[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        known = f"it has {named}"
    return (
        f"task group {wanted!r} is not in application {name} ({known}): the pod replaces no "
        "placeholder and is scheduled by itself"
    )
