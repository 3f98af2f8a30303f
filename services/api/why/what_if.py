"""What if: from a request to a question, and from a forecast to the answer that users read."""

from collections import Counter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from services.api.web.answers import AnswerError
from services.api.web.documents import DocumentsError, read_documents
from shared.messages.what_if import Forecast, ForecastApplication, QueueChange, WhatIf

MAX_ADDED = 1_000
_VERBS = {
    QueueChange.CHANGED: "change",
    QueueChange.COMES: "come",
    QueueChange.DRAINS: "drain",
    QueueChange.STAYS: "stay",
}
_NAME = 500


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Question(_Part):
    """One of: a manifest's text, a node to drain, nodes to add (``like`` one), a queues.yaml."""

    manifest: str | None = None
    drain: str | None = Field(default=None, min_length=1, max_length=_NAME)
    add_nodes: int | None = Field(default=None, ge=1, le=MAX_ADDED)
    like: str | None = Field(default=None, min_length=1, max_length=_NAME)
    queues: str | None = Field(default=None, min_length=1)


class Place(_Part):
    """Where a pod would go."""

    pod: str
    node_id: str = Field(alias="nodeID")


class Outcome(_Part):
    """What would become of an application: of ``wanted`` pods ``placed`` would start at once.

    ``afterEvictions`` more would once the victims have gone. ``expectedStart`` is when all of it
    would have started by what running pods say of how long they run, in nanoseconds; 0: ``noStart``
    says why there is none, or it is not one that would wait.
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
    """A document that says nothing that could be scheduled."""

    document: int
    field: str
    message: str


class Answer(_Part):
    """A forecast; without ``done`` there is none, and the sentence says why."""

    done: bool
    sentence: str
    starts: list[Outcome] = []
    waits: list[Outcome] = []
    rejected: list[Outcome] = []
    evicted: list[Evicted] = []
    queues: list[QueueOutcome] = []
    refused: list[Refused] = []


def read_question(body: bytes) -> WhatIf:
    """Return the question of a request's body. Raises AnswerError 400."""
    try:
        asked = Question.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise AnswerError(400, f"{where}: {first['msg']}") from error
    given = [asked.manifest, asked.drain, asked.add_nodes, asked.queues]
    if sum(item is not None for item in given) != 1:
        raise AnswerError(400, "exactly one of manifest, drain, addNodes and queues is needed")
    if (asked.like is None) != (asked.add_nodes is None):
        raise AnswerError(400, "addNodes and like go together: how many nodes, like which one")
    if asked.manifest is None:
        return WhatIf(
            drain=asked.drain or "",
            add_nodes=asked.add_nodes or 0,
            like=asked.like or "",
            queues=asked.queues or "",
        )
    try:
        return WhatIf(documents=read_documents(asked.manifest.encode(), "manifest"))
    except DocumentsError as error:
        raise AnswerError(400, f"manifest: {error.where}{error}") from error


def answer_of(question: WhatIf, forecast: Forecast) -> Answer:
    """Return what users read of a forecast."""
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
    answer.sentence = _sentence(question, answer)
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
        places=[
            Place(pod=place.name or place.allocation_key, node_id=place.node_id)
            for place in item.places
        ],
    )


def _sentence(question: WhatIf, answer: Answer) -> str:
    """Say in one sentence what would be."""
    placed = sum(item.placed for item in answer.starts)
    if question.drain:
        both = {item.application_id: item for item in [*answer.starts, *answer.waits]}
        pods = sum(item.wanted for item in both.values())
        left = sum(item.wanted - item.placed for item in answer.waits)
        return (
            f"if node {question.drain} were drained and its {pods} pods evicted, {placed} would "
            f"find a place elsewhere and {left} would wait."
        )
    parts = [f"{_count(answer.starts)} would start pods now: {placed}"] * bool(placed)
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
    parts += _of_queues(answer)
    return ("; ".join(parts) or "nothing would change") + "."


def _of_queues(answer: Answer) -> list[str]:
    """Say how many queues would come, go and change."""
    named = Counter(queue.change for queue in answer.queues if queue.queue_name)
    return [
        f"{named[kind]} {'queue' if named[kind] == 1 else 'queues'} would {verb}"
        for kind, verb in _VERBS.items()
        if named[kind]
    ]


def _count(outcomes: list[Outcome]) -> str:
    return "1 application" if len(outcomes) == 1 else f"{len(outcomes)} applications"


def dump(answer: Answer) -> dict[str, Any]:
    """Return an answer as it goes over HTTP."""
    return answer.model_dump(by_alias=True)
