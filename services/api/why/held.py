"""Why pods have no asks yet: the reasons for which the resource manager holds them back.

The core may not know their application, or only an earlier submission that has ended.
"""

from collections.abc import Sequence

from services.api.projection.model import Model
from services.api.why.answer import Wait, Why
from shared.messages.find_pod import PodFound
from shared.messages.interface import HeldFor, PodsHeld
from shared.messages.state import Waiting
from shared.model.sentences import why_text

MOST_PODS = 5  # named for one reason
_NOBODY = PodsHeld("")


def held_of(model: Model, application: str) -> Sequence[HeldFor]:
    """Return why pods of an application are held back, the most frequent reason first."""
    return model.pods_held.get(application, _NOBODY).held


def waiting_for(held: HeldFor) -> Waiting:
    """Return a reason in the form of the core's waiting asks."""
    return Waiting("", held.reason, held.message, held.since_ns)


def held_wait(held: HeldFor) -> Wait:
    """Return a reason as a row of an answer."""
    return Wait(
        reason=held.reason,
        message=held.message,
        since=held.since_ns,
        asks=held.pods,
        pods=[*held.names[:MOST_PODS]],
        held_back=True,
    )


def why_held(model: Model, name: str) -> Why | None:
    """Return why a pod, or an unknown application's pods, are held back.

    A pod is found by its allocation key or name only if the report names it. The resource manager
    answers for other pods (``why_found``).
    """
    held = held_of(model, name)
    if held:
        return _answer("application", name, name, held)
    for application, told in model.pods_held.items():
        for item in told.held:
            for key, own in zip(item.keys, item.names, strict=False):
                if name in (key, own):
                    return _answer("pod", own, application, [item])
    return None


def is_one_of_many(answer: Why) -> bool:
    """Whether an answer about a pod may be that of another pod with the same reason."""
    return answer.kind == "pod" and any(wait.held_back and wait.asks > 1 for wait in answer.waits)


def why_found(found: PodFound, held: HeldFor, partition: str) -> Why:
    """Return why a pod is held back, from the resource manager's answer."""
    answer = _answer("pod", found.name, found.application_id, [held])
    answer.partition = partition
    if held.pods > 1:
        others = f"{held.pods} pods of application {found.application_id} are held back"
        answer.sentence += f" It is one of {others} for {held.reason}."
    return answer


def _answer(kind: str, name: str, application: str, held: Sequence[HeldFor]) -> Why:
    first = held[0]
    return Why(
        name=name,
        kind=kind,
        application_id=application,
        queue_name="",
        state="",
        verdict="waiting",
        reason=first.reason,
        sentence=why_text(kind, name, first.reason, first.message),
        since=first.since_ns,
        waits=[held_wait(item) for item in held],
    )
