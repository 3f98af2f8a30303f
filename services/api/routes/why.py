"""Why, when, and what if: ``/v1/why``, ``/v1/when``, ``/v1/evictions``, ``/v1/what-if``."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, Request, Response

from services.api.projection.model import Model
from services.api.replica import BROKER, PartitionQuery, Replica, read_body
from services.api.web.answers import AnswerError, answer
from services.api.web.segments import NamedRoute
from services.api.why import what_if
from services.api.why.answer import Eviction, Why
from services.api.why.held import is_one_of_many
from services.api.why.standing import evictions, standing, why, why_of_found
from services.api.why.when import When, when_ended, when_of
from shared.messages.commands import CommandResult
from shared.messages.find_pod import FindPod, PodFound
from shared.messages.what_if import Forecast, WhatIf
from shared.model.names import DEFAULT_PARTITION

MAX_WAITING = 8  # what-ifs of one replica that wait for their turn
TURN_SECONDS = 10.0  # and for how long; with the time for an answer less than a client waits


class _Turns:
    """Serialises the what-if requests of a replica, because the core answers one at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def next(self) -> AsyncIterator[None]:
        """Wait for the turn. Raises AnswerError 503 if too many wait, or after a timeout."""
        if self._waiting >= MAX_WAITING:
            raise AnswerError(503, f"{MAX_WAITING} what-ifs wait already; try again in a moment")
        self._waiting += 1
        try:
            await asyncio.wait_for(self._lock.acquire(), TURN_SECONDS)
        except TimeoutError:
            said = f"no what-if ahead of this one was answered within {TURN_SECONDS:g} s"
            raise AnswerError(503, f"{said}: ask again in a moment") from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()


def why_routes(replica: Replica) -> APIRouter:
    """Return the routes of a replica."""
    router = APIRouter(route_class=NamedRoute, tags=["Muster"])

    @router.get(
        "/why/{name}",
        summary="Why an application or pod waits or runs: one sentence, then the evidence",
        responses={200: {"model": Why}},
    )
    async def why_of(request: Request, name: str, partition: PartitionQuery = "") -> Response:
        model = replica.the_one(partition, name, lambda model: standing(model, name))
        found = why(model, name) if model is not None else None
        if found is None or is_one_of_many(found):
            found = await _asked_for(replica, request, name, partition, found)
        if found is None:
            raise AnswerError(404, f"no application and no pod is called {name}")
        found.sentence += _at_the_broker(replica)
        return answer(request, found.model_dump(by_alias=True))

    @router.get(
        "/evictions",
        summary="Evictions: victim, preemptor and policy, the latest last",
        responses={200: {"model": list[Eviction]}},
    )
    async def all_evictions(request: Request, partition: PartitionQuery = "") -> Response:
        found = evictions(replica.chosen(partition))
        return answer(request, [item.model_dump(by_alias=True) for item in found])

    _add_forecasts(router, replica)
    return router


def _add_forecasts(router: APIRouter, replica: Replica) -> None:
    """Add the routes that the core answers."""
    turns = _Turns()

    @router.get(
        "/when/{name}",
        summary="When an application that waits will have started: the median, and nine of ten",
        responses={200: {"model": When}},
    )
    async def when(request: Request, name: str, partition: PartitionQuery = "") -> Response:
        model = replica.of_application(name, partition)
        view = model.application(name) if model is not None else None
        if view is not None and view.has_ended:
            return answer(request, when_ended(view.summary).model_dump(by_alias=True))
        where = model.name if model is not None else partition or DEFAULT_PARTITION
        async with turns.next():
            forecast = await replica.ask(WhatIf(when=(name,)), request, where)
        assert isinstance(forecast, Forecast)
        return answer(request, when_of(name, forecast).model_dump(by_alias=True))

    @router.post(
        "/what-if",
        summary="What would start, wait or be evicted; nothing is changed",
        responses={200: {"model": what_if.Answer}},
        openapi_extra={
            "requestBody": {
                "content": {"application/json": {"schema": what_if.Question.model_json_schema()}},
                "required": True,
            }
        },
    )
    async def what_if_of(request: Request, partition: PartitionQuery = "") -> Response:
        question = await asyncio.to_thread(what_if.read_question, await read_body(request))
        where = _asked_of(replica, question, partition)
        async with turns.next():
            forecast = await replica.ask(question, request, where)
        assert isinstance(forecast, Forecast)
        return answer(request, what_if.dump(what_if.answer_of(question, forecast)))


def _at_the_broker(replica: Replica) -> str:
    """Return that the broker blocks all decisions, in brackets; "" if it does not."""
    return "".join(f" ({item.sentence})" for item in replica.away() if item.part == BROKER)


async def _asked_for(
    replica: Replica, request: Request, name: str, partition: str, known: Why | None
) -> Why | None:
    """Return the resource manager's answer about a held-back pod; else what is known.

    Raises AnswerError 503 or 504 if nothing is known, and it does not answer.
    """
    models = replica.chosen(partition)
    if not any(model.partition is not None and model.partition.finds_pods for model in models):
        return known
    try:
        found = await replica.ask(FindPod(name), request)
    except AnswerError:
        if known is None:
            raise
        return known
    if isinstance(found, CommandResult) and known is None:
        raise AnswerError(503, found.message)
    if not isinstance(found, PodFound):
        return known
    model = next((model for model in models if model.name == found.partition), None)
    if model is None or not found.application_id:
        return known
    return why_of_found(model, found) or known


def _asked_of(replica: Replica, question: WhatIf, partition: str) -> str:
    """Return the partition of a request: the given one, else that of its node or application.

    Manifests name their partition, as when they are submitted.
    """
    if partition:
        return replica.model(partition).name
    node = question.drain or question.like
    for model in replica.partitions.models:
        if node in model.nodes or (not node and _has_any(model, question.delete)):
            return model.name
    return DEFAULT_PARTITION


def _has_any(model: Model, applications: Sequence[str]) -> bool:
    return any(model.application(name) is not None for name in applications)
