"""The HTTP routes: YuniKorn's ``/ws/v1``, Muster's own ``/v1``, health and metrics."""

import asyncio
from collections.abc import Iterable
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from services.api.access.audit import Audit, note
from services.api.access.guard import Access, Guard
from services.api.projection.model import ApplicationView, Model
from services.api.replica import (
    YAML_BODY,
    OnePartition,
    PartitionQuery,
    Replica,
    read_body,
    whose_core,
)
from services.api.routes.ages import Ages
from services.api.routes.cluster import cluster_routes
from services.api.routes.dead_letters import dead_letter_routes
from services.api.routes.metrics import all_metrics
from services.api.routes.openapi import documented
from services.api.routes.page import page_routes
from services.api.routes.why import why_routes
from services.api.routes.yunikorn import debug_routes, yunikorn_routes
from services.api.views import progress
from services.api.views.timeline import timeline
from services.api.views.trace import trace_entries
from services.api.web.answers import AnswerError, answer, error_answer
from services.api.web.browsers import OnlyOurPages
from services.api.web.documents import DocumentsError, read_documents
from services.api.web.segments import NamedRoute, Segments
from services.api.web.unrouted import Paths, Unrouted
from shared.messages.commands import (
    CommandResult,
    DeleteApplication,
    DeleteManifests,
    SubmitManifests,
    SubmitResult,
)
from shared.messages.interface import UpdateConfiguration
from shared.model.names import DEFAULT_PARTITION
from shared.model.sentences import plain_text

DEFAULT_PORT = 9080
_SOURCE = Annotated[str, Query(max_length=500)]
_KEY = Annotated[
    str,
    Header(
        max_length=255,
        description="A name of this request, new for each: one that is repeated with the same key "
        "and body, for its answer was not heard, is answered as at first and done once",
    ),
]


def make_app(replica: Replica, names: Iterable[str] = (), access: Access | None = None) -> FastAPI:
    """Return the web application of a replica; ``names`` are further host names that reach it.

    Without ``access`` there is no authentication, and nothing is audited.
    """
    app = FastAPI(
        title="Muster",
        summary="A gang scheduler: YuniKorn's /ws/v1, and why, trace and submission under /v1",
        version="0.1.0",
        redirect_slashes=False,
    )
    app.state.replica = replica
    is_audited, access = access is not None, access or Access()
    app.add_middleware(Guard, access=access)
    app.add_middleware(OnlyOurPages, names=names)
    if is_audited:
        app.add_middleware(Audit)
    app.add_middleware(Segments)
    app.add_middleware(Ages, replica=replica)
    app.openapi = lambda: _document(app, access)  # type: ignore[method-assign]
    app.include_router(_health(replica))
    app.include_router(yunikorn_routes(replica))
    app.include_router(debug_routes(replica))
    app.include_router(_muster(replica))
    app.include_router(cluster_routes(replica))
    app.include_router(dead_letter_routes(replica))
    app.include_router(page_routes(replica))

    @app.exception_handler(AnswerError)
    async def _refused(request: Request, error: AnswerError) -> Response:
        return error_answer(request, error.status, error.message)

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, error: RequestValidationError) -> Response:
        said = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in error.errors())
        return error_answer(request, HTTPStatus.UNPROCESSABLE_ENTITY, said)

    unrouted = Unrouted(lambda: _paths(app))

    @app.exception_handler(HTTPException)
    async def _unrouted(request: Request, error: HTTPException) -> Response:
        if error.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            return unrouted.answer(request)
        headers = dict(error.headers or {})
        return PlainTextResponse(f"{error.detail}\n", error.status_code, headers)

    return app


def _document(app: FastAPI, access: Access) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = documented(app, access)
    return app.openapi_schema


def _paths(app: FastAPI) -> Paths:
    paths = app.openapi()["paths"]
    return {path: [method.upper() for method in methods] for path, methods in paths.items()}


def _health(replica: Replica) -> APIRouter:
    router = APIRouter(route_class=NamedRoute, tags=["health"])

    @router.get("/health/live", summary="The process runs")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @router.get("/health/ready", summary="All services work, and the read models follow them")
    async def ready(response: Response) -> dict[str, str]:
        waiting = replica.machine.partitions.waiting
        status = "; ".join(item.sentence for item in replica.away())
        if waiting and not status:
            cores = ", ".join(map(whose_core, waiting))
            status = f"waiting for a snapshot from {cores}"
        response.status_code = 503 if status else 200
        return {"status": status or "ready"}

    @router.get("/health/serving", summary="This replica has a state to show, however old it is")
    async def serving(response: Response) -> dict[str, str]:
        response.status_code = 200 if replica.is_serving else 503
        return {"status": "serving" if replica.is_serving else "no state yet"}

    @router.get("/metrics", summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(await all_metrics(replica), media_type=CONTENT_TYPE_LATEST)

    return router


def _found(replica: Replica, application: str, partition: str) -> tuple[Model, ApplicationView]:
    """Return an application with the model that has it. Raises AnswerError 404."""
    model = replica.of_application(application, partition)
    view = model.application(application) if model is not None else None
    if model is None or view is None:
        raise AnswerError(404, f"Application {application} not found")
    return model, view


def _muster(replica: Replica) -> APIRouter:
    router = APIRouter(route_class=NamedRoute, prefix="/v1", tags=["Muster"])

    @router.get("/applications", summary="Progress of every application")
    async def applications(request: Request, partition: PartitionQuery = "") -> Response:
        return answer(request, progress.all_progress(replica.chosen(partition)))

    @router.get("/applications/{application}", summary="One application, live or ended")
    async def application(
        request: Request, application: str, partition: PartitionQuery = ""
    ) -> Response:
        model, view = _found(replica, application, partition)
        return answer(request, progress.application_detail(model, view))

    @router.get(
        "/applications/{application}/timeline",
        summary="The history of an application: its states, and the members of its gang",
    )
    async def timeline_of(
        request: Request, application: str, partition: PartitionQuery = ""
    ) -> Response:
        model, view = _found(replica, application, partition)
        return answer(request, timeline(model, view))

    @router.delete("/applications/{application}", summary="Delete an application and its pods")
    async def delete(
        request: Request, application: str, partition: PartitionQuery = ""
    ) -> Response:
        model = replica.of_application(application, partition)
        view = model.application(application) if model is not None else None
        where = model.name if model is not None else DEFAULT_PARTITION
        result = await replica.ask(DeleteApplication(application), request, where)
        assert isinstance(result, CommandResult)
        if not result.done:
            raise AnswerError(404, result.message)
        had_ended = view is not None and view.has_ended
        return answer(request, {"deleted": application, "hadEnded": had_ended})

    _trace_and_submission(router, replica)
    _queues_and_configuration(router, replica)
    router.include_router(why_routes(replica))
    return router


def _queues_and_configuration(router: APIRouter, replica: Replica) -> None:
    @router.get("/queues", summary="The queue tree, with what blocks each leaf")
    async def queues(request: Request, partition: OnePartition = DEFAULT_PARTITION) -> Response:
        return answer(request, progress.queue_tree(replica.model(partition)))

    @router.get("/outstanding", summary="Asks that more nodes would help, for autoscalers")
    async def outstanding(request: Request, partition: PartitionQuery = "") -> Response:
        return answer(request, progress.outstanding(replica.chosen(partition)))

    @router.get("/config", summary="The queue configuration: its checksum, warnings, last error")
    async def config(request: Request, partition: OnePartition = DEFAULT_PARTITION) -> Response:
        return answer(request, progress.configuration(replica.model(partition)))

    @router.post(
        "/config",
        summary="Reload the queue configuration: 200 in use now, 422 refused, nothing changed",
        openapi_extra=YAML_BODY,
    )
    async def reload(request: Request) -> Response:
        body = await read_body(request)
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise AnswerError(400, f"not UTF-8: {error}") from error
        note(request, "configuration", [sha256(body).hexdigest()])
        result = await replica.ask(UpdateConfiguration(text), request)
        assert isinstance(result, CommandResult)
        if not result.done:
            raise AnswerError(422, plain_text(result.message))
        return answer(request, {"accepted": True})


def _trace_and_submission(router: APIRouter, replica: Replica) -> None:
    @router.get(
        "/trace/{application}", summary="One trace: every step of an application below its cause"
    )
    async def trace(request: Request, application: str, partition: PartitionQuery = "") -> Response:
        model = replica.of_application(application, partition) if partition else None
        story = replica.partitions.stories.of(application, model.name if model else partition)
        if not story:
            raise AnswerError(404, f"no trace of application {application}")
        return answer(request, trace_entries(story, application))

    @router.post(
        "/manifests",
        summary="Submit manifests: YAML, several documents",
        openapi_extra=YAML_BODY,
    )
    async def submit(
        request: Request, source: _SOURCE = "request", idempotency_key: _KEY = ""
    ) -> Response:
        return await _judged(replica, request, source, SubmitManifests, idempotency_key)

    @router.post(
        "/manifests/delete",
        summary="Delete the pods that manifests describe, as created by /v1/manifests",
        openapi_extra=YAML_BODY,
    )
    async def delete_manifests(
        request: Request, source: _SOURCE = "request", idempotency_key: _KEY = ""
    ) -> Response:
        return await _judged(replica, request, source, DeleteManifests, idempotency_key)


async def _judged(
    replica: Replica,
    request: Request,
    source: str,
    command: type[SubmitManifests | DeleteManifests],
    key: str,
) -> Response:
    body = await read_body(request)
    try:
        documents = await asyncio.to_thread(read_documents, body, source)
    except DocumentsError as error:
        raise AnswerError(400, f"{source}: {error.where}{error}") from error
    result = await replica.ask(command(documents, idempotency_key=key), request)
    assert isinstance(result, SubmitResult)
    note(request, "manifests of", [item.application_id or item.name for item in result.accepted])
    value: dict[str, Any] = {
        "accepted": [
            {
                "source": item.source,
                "document": item.index,
                "kind": item.kind,
                "name": item.name,
                "applicationID": item.application_id,
                "pods": item.pods,
                **({"warnings": list(item.warnings)} if item.warnings else {}),
            }
            for item in result.accepted
        ],
        "refused": [
            {
                "source": item.source,
                "document": item.index,
                "field": item.field_path,
                "message": item.message,
            }
            for item in result.refused
        ],
    }
    return answer(request, value, 200 if result.accepted else 422)
