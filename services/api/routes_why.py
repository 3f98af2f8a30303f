"""Why, and what if: ``/v1/why``, ``/v1/evictions``."""

from fastapi import APIRouter, Request, Response

from services.api.answers import AnswerError, answer
from services.api.replica import Replica
from services.api.why import evictions, why
from services.api.why_answer import Eviction, Why


def why_routes(replica: Replica) -> APIRouter:
    """Return the routes of a replica."""
    router = APIRouter(tags=["Muster"])

    @router.get(
        "/why/{name}",
        summary="Why an application or a pod is where it is: one sentence, then the evidence",
        responses={200: {"model": Why}},
    )
    async def why_of(request: Request, name: str) -> Response:
        found = why(replica.model, name)
        if found is None:
            raise AnswerError(404, f"no application and no pod is called {name}")
        return answer(request, found.model_dump(by_alias=True))

    @router.get(
        "/evictions",
        summary="Who was evicted for whom, and under which law, the latest last",
        responses={200: {"model": list[Eviction]}},
    )
    async def all_evictions(request: Request) -> Response:
        found = evictions(replica.model)
        return answer(request, [item.model_dump(by_alias=True) for item in found])

    return router
