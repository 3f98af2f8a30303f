"""The HTTP routes: YuniKorn's ``/ws/v1``, Muster's own ``/v1``, health and metrics."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from services.api import progress, ws_v1, ws_v1_usage
from services.api.answers import AnswerError, answer, error_answer
from services.api.documents import MAX_BODY_BYTES, DocumentsError, read_documents
from services.api.machine import ApiMachine, NoAnswerError, TooManyRequestsError
from services.api.projection.model import ApplicationView, Model
from shared.messages.commands import (
    CommandResult,
    DeleteApplication,
    SubmitManifests,
    SubmitResult,
)
from shared.model.names import GROUP, QUEUE, QUEUE_ERROR, USER
from shared.runtime.host import Host

DEFAULT_PORT = 9080
_STATES = ("active", "rejected", "completed")
_STATUSES = ("new", "accepted", "running", "completing", "failing", "resuming")


class Replica:
    """The API replica that answers: its machine and host, which may be renewed under it."""

    def __init__(self, host_of: Callable[[], Host], machine_of: Callable[[], ApiMachine]) -> None:
        self._host_of = host_of
        self._machine_of = machine_of

    @property
    def model(self) -> Model:
        """Return the read model. Raises AnswerError 503 while there is none."""
        projection = self._machine_of().projection
        if projection.model.partition is None:
            raise AnswerError(503, "no state yet: waiting for a snapshot from the core")
        return projection.model

    @property
    def machine(self) -> ApiMachine:
        """Return the machine."""
        return self._machine_of()

    async def ask(self, message: object, request: Request) -> object:
        """Send a command and return its answer. Raises AnswerError 503 or 504."""
        traceparent = request.headers.get("traceparent", "")
        try:
            return await self.machine.ask(self._host_of(), message, traceparent)
        except NoAnswerError as error:
            raise AnswerError(504, str(error)) from error
        except TooManyRequestsError as error:
            raise AnswerError(503, str(error)) from error


def make_app(replica: Replica) -> FastAPI:
    """Return the web application of a replica."""
    app = FastAPI(
        title="Muster",
        summary="A gang scheduler: YuniKorn's /ws/v1, and why, trace and submission under /v1",
        version="0.1.0",
        redirect_slashes=True,
    )
    app.state.replica = replica
    app.include_router(_health(replica))
    app.include_router(_yunikorn(replica))
    app.include_router(_muster(replica))

    @app.exception_handler(AnswerError)
    async def _refused(request: Request, error: AnswerError) -> Response:
        return error_answer(request, error.status, error.message)

    @app.exception_handler(HTTPException)
    async def _unrouted(_: Request, error: HTTPException) -> Response:
        if error.status_code == 404:  # noqa: PLR2004
            return PlainTextResponse("404 page not found\n", 404)
        headers = dict(error.headers or {})
        return PlainTextResponse(f"{error.detail}\n", error.status_code, headers)

    return app


def _health(replica: Replica) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/health/live", summary="The process runs")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @router.get("/health/ready", summary="The read model follows the core")
    async def ready(response: Response) -> dict[str, str]:
        if not replica.machine.projection.is_ready:
            response.status_code = 503
            return {"status": "waiting for a snapshot from the core"}
        return {"status": "ready"}

    @router.get("/metrics", summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return router


def _yunikorn(replica: Replica) -> APIRouter:
    router = APIRouter(prefix="/ws/v1", tags=["YuniKorn"])

    @router.get("/clusters", summary="ClusterDAOInfo")
    async def clusters(request: Request) -> Response:
        partition = replica.model.partition
        assert partition is not None
        info = {
            "startTime": partition.state_time_ns,
            "rmBuildInformation": [{"buildVersion": "muster-0.1.0", "rmId": partition.rm_id}],
            "partition": partition.name,
            "clusterName": "kubernetes",
        }
        return answer(request, [info])

    @router.get("/partitions", summary="PartitionInfo")
    async def partitions(request: Request) -> Response:
        return answer(request, ws_v1.partition_info(replica.machine.projection.model))

    @router.get("/partition/{partition}/queues", summary="The queue tree")
    async def queues(request: Request, partition: str) -> Response:
        model = _in(replica.model, partition)
        return answer(request, ws_v1.queue_info(model, "root", subtree=True, partition=partition))

    @router.get("/partition/{partition}/queue/{queue}", summary="One queue")
    async def queue(request: Request, partition: str, queue: str) -> Response:
        model = _in(replica.model, partition)
        path = _queue_path(model, queue)
        subtree = "subtree" in request.query_params
        return answer(request, ws_v1.queue_info(model, path, subtree=subtree))

    @router.get("/partition/{partition}/nodes", summary="All nodes")
    async def nodes(request: Request, partition: str) -> Response:
        model = _in(replica.model, partition)
        return answer(request, [ws_v1.node_info(node) for node in model.nodes.values()])

    @router.get("/partition/{partition}/node/{node}", summary="One node")
    async def node(request: Request, partition: str, node: str) -> Response:
        model = _in(replica.model, partition)
        if node not in model.nodes:
            raise AnswerError(404, "Node not found")
        return answer(request, ws_v1.node_info(model.nodes[node]))

    _applications_of_queues(router, replica)
    _applications_of_partition(router, replica)
    _usage(router, replica)
    _validation(router)
    return router


def _usage(router: APIRouter, replica: Replica) -> None:
    base = "/partition/{partition}"

    @router.get(f"{base}/placementrules", summary="The placement rules in order")
    async def placement_rules(request: Request, partition: str) -> Response:
        return answer(request, ws_v1_usage.rules_info(_in(replica.model, partition)))

    @router.get(f"{base}/usage/users", summary="What every user uses")
    async def users(request: Request) -> Response:
        infos = [ws_v1_usage.user_info(user) for user in replica.model.users.values()]
        return answer(request, infos)

    @router.get(f"{base}/usage/groups", summary="What every limited group uses")
    async def groups(request: Request) -> Response:
        infos = [ws_v1_usage.group_info(group) for group in replica.model.groups.values()]
        return answer(request, infos)

    _usage_of_one(router, replica)


def _usage_of_one(router: APIRouter, replica: Replica) -> None:
    base = "/partition/{partition}/usage"

    @router.get(f"{base}/user/{{user}}", summary="What one user uses")
    async def user(request: Request, user: str) -> Response:
        if not USER.match(user):
            raise AnswerError(400, "Invalid user name")
        if user not in replica.model.users:
            raise AnswerError(404, "User not found")
        return answer(request, ws_v1_usage.user_info(replica.model.users[user]))

    @router.get(f"{base}/group/{{group}}", summary="What one group uses")
    async def group(request: Request, group: str) -> Response:
        if not GROUP.match(group):
            raise AnswerError(400, "Invalid group name")
        if group not in replica.model.groups:
            raise AnswerError(404, "Group not found")
        return answer(request, ws_v1_usage.group_info(replica.model.groups[group]))


def _validation(router: APIRouter) -> None:
    @router.post(
        "/validate-conf",
        summary="Whether a queues.yaml would be accepted; always 200",
        openapi_extra={"requestBody": {"content": {"application/yaml": {}}, "required": True}},
    )
    async def validate_conf(request: Request) -> Response:
        body = await _body(request)
        return answer(request, await asyncio.to_thread(ws_v1.validation, body))


def _told(request: Request, model: Model, views: list[ApplicationView]) -> Response:
    return answer(request, [ws_v1.application_info(model, view) for view in views])


def _in_queue(model: Model, queue: str) -> list[ApplicationView]:
    path = _queue_path(model, queue)
    views = model.applications.values()
    return [view for view in views if view.summary.queue_name == path]


def _applications_of_queues(router: APIRouter, replica: Replica) -> None:
    @router.get("/partition/{partition}/queue/{queue}/applications", summary="A leaf's own")
    async def queue_applications(request: Request, partition: str, queue: str) -> Response:
        model = _in(replica.model, partition)
        return _told(request, model, _in_queue(model, queue))

    @router.get("/partition/{partition}/queue/{queue}/applications/{state}")
    async def queue_applications_in(
        request: Request, partition: str, queue: str, state: str, status: str = ""
    ) -> Response:
        model = _in(replica.model, partition)
        _check_state(state, status, ("active",))
        wanted = status.lower()
        views = _in_queue(model, queue)
        chosen = [v for v in views if not wanted or v.summary.state.lower() == wanted]
        return _told(request, model, chosen)

    @router.get("/partition/{partition}/queue/{queue}/application/{application}")
    async def queue_application(
        request: Request, partition: str, queue: str, application: str
    ) -> Response:
        model = _in(replica.model, partition)
        found = [v for v in _in_queue(model, queue) if v.summary.application_id == application]
        if not found:
            raise AnswerError(404, "Application not found")
        return answer(request, ws_v1.application_info(model, found[0]))


def _applications_of_partition(router: APIRouter, replica: Replica) -> None:
    @router.get("/partition/{partition}/application/{application}", summary="A live application")
    async def application(request: Request, partition: str, application: str) -> Response:
        model = _in(replica.model, partition)
        view = model.applications.get(application)
        if view is None:
            raise AnswerError(404, "Application not found")
        return answer(request, ws_v1.application_info(model, view))

    @router.get(
        "/partition/{partition}/applications/{state}", summary="active, rejected, completed"
    )
    async def applications(
        request: Request, partition: str, state: str, status: str = ""
    ) -> Response:
        model = _in(replica.model, partition)
        _check_state(state, status, _STATES)
        views = ws_v1.applications_in_state(model, state.lower(), status.lower())
        return _told(request, model, views)


def _muster(replica: Replica) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Muster"])

    @router.get("/applications", summary="Progress of every application")
    async def applications(request: Request) -> Response:
        return answer(request, progress.all_progress(replica.model))

    @router.get("/applications/{application}", summary="One application, live or ended")
    async def application(request: Request, application: str) -> Response:
        model = replica.model
        view = model.application(application)
        if view is None:
            raise AnswerError(404, f"Application {application} not found")
        return answer(request, progress.application_detail(model, view))

    @router.delete("/applications/{application}", summary="Delete an application and its pods")
    async def delete(request: Request, application: str) -> Response:
        result = await replica.ask(DeleteApplication(application), request)
        assert isinstance(result, CommandResult)
        if not result.done:
            raise AnswerError(404, result.message)
        return answer(request, {"deleted": application})

    _trace_and_submission(router, replica)
    return router


def _trace_and_submission(router: APIRouter, replica: Replica) -> None:
    @router.get("/trace/{application}", summary="Every message behind an application, in order")
    async def trace(request: Request, application: str) -> Response:
        story = replica.machine.projection.story(application)
        if not story:
            raise AnswerError(404, f"no trace of application {application}")
        return answer(request, [progress.trace_entry(record, application) for record in story])

    @router.post(
        "/manifests",
        summary="Submit manifests: YAML, several documents; Pod and batch/v1 Job",
        openapi_extra={"requestBody": {"content": {"application/yaml": {}}, "required": True}},
    )
    async def submit(
        request: Request, source: Annotated[str, Query(max_length=500)] = "request"
    ) -> Response:
        return await _submit(replica, request, source)


async def _submit(replica: Replica, request: Request, source: str) -> Response:
    body = await _body(request)
    try:
        documents = await asyncio.to_thread(read_documents, body, source)
    except DocumentsError as error:
        raise AnswerError(400, f"{source}: document {error.index}: {error}") from error
    result = await replica.ask(SubmitManifests(documents), request)
    assert isinstance(result, SubmitResult)
    value: dict[str, Any] = {
        "accepted": [
            {
                "source": item.source,
                "document": item.index,
                "kind": item.kind,
                "name": item.name,
                "applicationID": item.application_id,
                "pods": item.pods,
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


async def _body(request: Request) -> bytes:
    """Read a body, and stop as soon as it is too large."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise AnswerError(
                413, f"the body is larger than {MAX_BODY_BYTES} bytes: split the file"
            )
        parts.append(part)
    return b"".join(parts)


def _in(model: Model, partition: str) -> Model:
    if model.partition is None or partition.lower() != model.partition.name:
        raise AnswerError(404, "Partition not found")
    return model


def _queue_path(model: Model, name: str) -> str:
    if not all(QUEUE.match(part) for part in name.split(".")):
        raise AnswerError(400, QUEUE_ERROR)
    path = name.lower()
    if path not in model.queues:
        raise AnswerError(404, "Queue not found")
    return path


def _check_state(state: str, status: str, allowed: tuple[str, ...]) -> None:
    if state.lower() not in allowed:
        text = ", ".join(allowed)
        raise AnswerError(400, f"Only following application states are allowed: {text}")
    if status and state.lower() == "active" and status.lower() not in _STATUSES:
        text = ", ".join(_STATUSES)
        raise AnswerError(400, f"Only following active statuses are allowed: {text}")
