"""What-if: converts a request to a message to the core, and its forecast to an answer."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from services.api.web.answers import AnswerError
from services.api.web.documents import DocumentsError, read_documents
from shared.messages.what_if import Forecast, ForecastApplication, QueueChange, WhatIf

MAX_ADDED = 1_000
MAX_DELETED = 1_000  # applications that a what-if deletes; refused
_VERBS = {
    QueueChange.CHANGED: "change",
    QueueChange.COMES: "come",
    QueueChange.DRAINS: "drain",
    QueueChange.STAYS: "stay",
}
_NAME = 500
_NAMED = 5  # suppositions, or applications that are deleted


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Question(_Part):
    """The changes to assume, in any combination.

    A manifest's text is submitted, a node drained, nodes added (``like`` one; without it, like the
    largest), a queues.yaml applied, applications deleted.
    """

    manifest: str | None = None
    drain: str | None = Field(default=None, min_length=1, max_length=_NAME)
    add_nodes: int | None = Field(default=None, ge=1, le=MAX_ADDED)
    like: str | None = Field(default=None, min_length=1, max_length=_NAME)
    queues: str | None = Field(default=None, min_length=1)
    delete: list[Annotated[str, Field(min_length=1, max_length=_NAME)]] = Field(
        default=[], max_length=MAX_DELETED
    )


class Place(_Part):
    """Where a pod would go."""

    pod: str
    node_id: str = Field(alias="nodeID")


class Outcome(_Part):
    """The outcome for an application: of ``wanted`` pods ``placed`` would start at once.

    ``afterEvictions`` more would once the victims have gone. ``expectedStart`` is when all of it
    would have started, in nanoseconds, at the median of what may come, ``latestStart`` in nine of
    ten cases; 0: ``noStart`` says why there is none, or it is not one that would wait.
    Up to ``noStartBefore`` it was looked at, and had not started.
    """

    application_id: str = Field(alias="applicationID")
    queue_name: str
    wanted: int
    placed: int
    after_evictions: int
    is_gang: bool
    is_new: bool
    reason: str
    message: str
    expected_start: int
    no_start: str
    latest_start: int = 0
    no_start_before: int = 0
    places: list[Place]


class Evicted(_Part):
    """A pod that would be evicted, its preemptor ("": its queue is over its max), the policy."""

    victim: str
    victim_name: str
    application_id: str = Field(alias="applicationID")
    node_id: str = Field(alias="nodeID")
    winner: str
    law: str


class QueueOutcome(_Part):
    """What would become of a queue with so many applications; "" is the partition.

    ``change`` is ``comes``, ``drains`` (it takes no new application, and goes when it is empty),
    ``stays`` or ``changed``; ``changed`` names what would be other than now.
    """

    queue_name: str
    change: str
    applications: int
    changed: list[str]


class Refused(_Part):
    """A document that contains nothing to schedule."""

    document: int
    field: str
    message: str


class Answer(_Part):
    """A forecast; without ``done`` there is none, and the sentence has the reason.

    ``like`` is the node that added ones copy.
    """

    done: bool
    sentence: str
    like: str = ""
    starts: list[Outcome] = []
    waits: list[Outcome] = []
    rejected: list[Outcome] = []
    evicted: list[Evicted] = []
    queues: list[QueueOutcome] = []
    refused: list[Refused] = []


def read_question(body: bytes) -> WhatIf:
    """Parse the request's body. Raises AnswerError 400."""
    try:
        asked = Question.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise AnswerError(400, f"{where}: {first['msg']}") from error
    manifest = asked.manifest
    if manifest is None and not (asked.drain or asked.add_nodes or asked.queues or asked.delete):
        raise AnswerError(400, "one of manifest, drain, addNodes, queues and delete is needed")
    if asked.like is not None and asked.add_nodes is None:
        raise AnswerError(400, "like needs addNodes: how many nodes, like which one")
    try:
        documents = () if manifest is None else read_documents(manifest.encode(), "manifest")
    except DocumentsError as error:
        raise AnswerError(400, f"manifest: {error.where}{error}") from error
    return WhatIf(
        documents=documents,
        drain=asked.drain or "",
        add_nodes=asked.add_nodes or 0,
        like=asked.like or "",
        queues=asked.queues or "",
        delete=tuple(dict.fromkeys(asked.delete)),
    )


def answer_of(question: WhatIf, forecast: Forecast) -> Answer:
    """Convert a forecast to an answer."""
    if not forecast.done:
        return Answer(done=False, sentence=forecast.message)
    outcomes = [(item, _outcome(item)) for item in forecast.applications]
    answer = Answer(
        done=True,
        sentence="",
        starts=[told for item, told in outcomes if item.placed + item.after_evictions],
        waits=[told for item, told in outcomes if _waits(item)],
        rejected=[told for item, told in outcomes if item.rejected],
        evicted=[
            Evicted(
                victim=victim.allocation_key,
                victim_name=victim.name,
                application_id=victim.application_id,
                node_id=victim.node_id,
                winner=victim.winner,
                law=victim.law,
            )
            for victim in forecast.victims
        ],
        like=forecast.like,
        queues=[
            QueueOutcome(
                queue_name=queue.queue_name,
                change=queue.change,
                applications=queue.applications,
                changed=list(queue.changed),
            )
            for queue in forecast.queues
        ],
        refused=[
            Refused(document=item.index, field=item.field_path, message=item.message)
            for item in forecast.refused
        ],
    )
    answer.sentence = _sentence(question, answer, forecast)
    if forecast.message:
        answer.sentence += f" ({forecast.message})"
    return answer


def _waits(item: ForecastApplication) -> bool:
    return not item.rejected and item.placed + item.after_evictions < item.wanted


def _outcome(item: ForecastApplication) -> Outcome:
    return Outcome(
        application_id=item.application_id,
        queue_name=item.queue_name,
        wanted=item.wanted,
        placed=item.placed,
        after_evictions=item.after_evictions,
        is_gang=item.is_gang,
        is_new=item.is_new,
        reason=item.reason,
        message=item.rejected or item.message,
        expected_start=item.expected_start_ns,
        no_start=item.no_start,
        latest_start=item.latest_start_ns,
        no_start_before=item.no_start_before_ns,
        places=[
            Place(pod=place.name or place.allocation_key, node_id=place.node_id)
            for place in item.places
        ],
    )


def _sentence(question: WhatIf, answer: Answer, forecast: Forecast) -> str:
    """Return the outcome in one sentence; first the assumptions, if there are several."""
    drained = forecast.drained
    left = drained - forecast.moved
    moves = f"{forecast.moved} would find a place elsewhere and {left} would wait"
    supposed = _hypotheses(question, forecast)
    if question.drain and len(supposed) == 1:
        return f"if {supposed[0]} and its {drained} pods evicted, {moves}."
    lead = f"if {_listed(supposed)}" if len(supposed) > 1 or _is_like_unsaid(question) else ""
    parts = [f"of the {drained} pods on {question.drain}, {moves}"] * bool(drained)
    parts += _outcomes(answer, forecast.moved)
    text = "; ".join(parts) or "nothing would change"
    return f"{lead}: {text}." if lead else f"{text}."


def _is_like_unsaid(question: WhatIf) -> bool:
    return bool(question.add_nodes) and not question.like


def _hypotheses(question: WhatIf, forecast: Forecast) -> list[str]:
    """Return a request's assumptions as parts of a sentence, in order of application."""
    supposed = ["these queues were applied"] * bool(question.queues)
    if question.add_nodes:
        nodes = "1 node" if question.add_nodes == 1 else f"{question.add_nodes} nodes"
        supposed.append(f"{nodes} like {forecast.like or question.like} were added")
    if question.delete:
        more = "s" * (len(question.delete) > 1)
        supposed.append(f"application{more} {_listed(question.delete)} were deleted")
    supposed += [f"node {question.drain} were drained"] * bool(question.drain)
    return supposed + ["the manifest were submitted"] * bool(question.documents)


def _listed(names: Sequence[str]) -> str:
    """Format names for a sentence, at most _NAMED of them."""
    shown = [*names[:_NAMED], *[f"{len(names) - _NAMED} more"] * (len(names) > _NAMED)]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _outcomes(answer: Answer, moved: int) -> list[str]:
    placed = sum(item.placed for item in answer.starts) - moved
    starting = [item for item in answer.starts if item.placed]
    parts = [f"{_count(starting)} would start pods now: {placed}"] * bool(placed)
    later = sum(item.after_evictions for item in answer.starts)
    if later:
        gone = sum(bool(victim.winner) for victim in answer.evicted)
        parts.append(f"{later} pods more would start once {gone} others were evicted for them")
    given_back = sum(not victim.winner for victim in answer.evicted)
    if given_back:
        parts.append(f"{given_back} pods would be evicted for maxima of their queues")
    if answer.waits:
        parts.append(f"{_count(answer.waits)} would wait")
    if answer.rejected:
        parts.append(f"{_count(answer.rejected)} would be rejected")
    return parts + _of_queues(answer)


def _of_queues(answer: Answer) -> list[str]:
    """Return how many queues would be added, removed and changed."""
    named = Counter(queue.change for queue in answer.queues if queue.queue_name)
    return [
        f"{named[kind]} {'queue' if named[kind] == 1 else 'queues'} would {verb}"
        for kind, verb in _VERBS.items()
        if named[kind]
    ]


def _count(outcomes: list[Outcome]) -> str:
    return "1 application" if len(outcomes) == 1 else f"{len(outcomes)} applications"


def dump(answer: Answer) -> dict[str, Any]:
    """Return an answer as sent over HTTP."""
    return answer.model_dump(by_alias=True)
