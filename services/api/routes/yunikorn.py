"""YuniKorn's routes, ``/ws/v1`` (docs/rules/rest.md#routes)."""

import asyncio
import re
import time
from functools import partial
from urllib.parse import unquote_plus

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from services.api.projection.event_settings import EventSettings
from services.api.projection.events import EventRing
from services.api.projection.model import ApplicationView, Model
from services.api.replica import YAML_BODY, Replica, read_body
from services.api.routes.metrics import all_metrics
from services.api.routes.state_dump import cluster_info, state_dump
from services.api.web.answers import AnswerError, answer, written
from services.api.web.segments import NamedRoute
from services.api.web.unrouted import moved_permanently
from services.api.yunikorn import answers
from services.api.yunikorn.config import config_info, config_yaml
from services.api.yunikorn.event_stream import EventStreamResponse
from services.api.yunikorn.events import CountError, number_of
from services.api.yunikorn.events import batch as event_batch
from services.api.yunikorn.health import health
from services.api.yunikorn.history import application_history, container_history
from services.api.yunikorn.nodes import node_utilizations
from services.api.yunikorn.rows import application_row, listed, node_row
from services.api.yunikorn.stacks import stacks
from services.api.yunikorn.usage import groups_info, rules_info, users_info
from shared.model.names import DEFAULT_PARTITION, GROUP, QUEUE, QUEUE_ERROR, USER

_STATES = ("active", "rejected", "completed")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_STATUSES = ("new", "accepted", "running", "completing", "failing", "resuming")


def yunikorn_routes(replica: Replica) -> APIRouter:
    """Return the routes of a replica."""
    router = APIRouter(route_class=NamedRoute, prefix="/ws/v1", tags=["YuniKorn"])

    @router.get("/clusters", summary="ClusterDAOInfo")
    async def clusters(request: Request) -> Response:
        return answer(request, [info for model in replica.models for info in cluster_info(model)])

    @router.get("/partitions", summary="PartitionInfo")
    async def partitions(request: Request) -> Response:
        models = replica.partitions.models
        return answer(request, [info for model in models for info in answers.partition_info(model)])

    @router.get("/partition/{partition}/queues", summary="The queue tree")
    async def queues(request: Request, partition: str) -> Response:
        model = replica.model(partition)
        return answer(request, answers.queue_tree_info(model))

    @router.get("/partition/{partition}/queue/{queue}", summary="One queue")
    async def queue(request: Request, partition: str, queue: str) -> Response:
        model = replica.model(partition)
        path = _queue_path(model, queue)
        subtree = "subtree" in request.query_params
        return answer(request, answers.queue_info(model, path, subtree=subtree))

    _nodes(router, replica)
    _metrics(router, replica)
    _applications_of_queues(router, replica)
    _applications_of_partition(router, replica)
    _usage(router, replica)
    _events(router, replica)
    _configuration(router, replica)
    _scheduler(router, replica)
    _validation(router)
    return router


def debug_routes(replica: Replica) -> APIRouter:
    """Return the routes under /debug, and redirects from their old paths."""
    router = APIRouter(route_class=NamedRoute, tags=["YuniKorn"])

    @router.get("/debug/fullstatedump", summary="AggregatedStateInfo: everything")
    async def dump(request: Request) -> Response:
        return answer(request, state_dump(replica.machine, replica.models), indent=2)

    @router.get("/ws/v1/fullstatedump", summary="Moved to /debug/fullstatedump", status_code=301)
    async def moved() -> Response:
        return moved_permanently("/debug/fullstatedump")

    @router.get("/debug/stack", summary="The stacks of all threads and tasks of the API")
    async def stack(request: Request) -> Response:
        return written(request, stacks().encode(), media_type="text/plain; charset=UTF-8")

    @router.get("/ws/v1/stack", summary="Moved to /debug/stack", status_code=301)
    async def stack_moved() -> Response:
        return moved_permanently("/debug/stack")

    return router


def _nodes(router: APIRouter, replica: Replica) -> None:
    @router.get("/partition/{partition}/nodes", summary="All nodes")
    async def nodes(request: Request, partition: str) -> Response:
        model = replica.model(partition)
        return await listed(request, model.nodes.values(), node_row)

    @router.get("/partition/{partition}/node/{node}", summary="One node")
    async def node(request: Request, partition: str, node: str) -> Response:
        model = replica.model(partition)
        if node not in model.nodes:
            raise AnswerError(404, "Node not found")
        return answer(request, answers.node_info(model.nodes[node]))


def _metrics(router: APIRouter, replica: Replica) -> None:
    @router.get("/metrics", summary="YuniKorn's own metrics")
    async def metrics() -> Response:
        return Response(await all_metrics(replica), media_type=CONTENT_TYPE_LATEST)


def _usage(router: APIRouter, replica: Replica) -> None:
    base = "/partition/{partition}"

    @router.get(f"{base}/placementrules", summary="The placement rules in order")
    async def placement_rules(request: Request, partition: str) -> Response:
        return answer(request, rules_info(replica.model(partition)))

    @router.get(f"{base}/usage/users", summary="The usage of every user")
    async def users(request: Request, partition: str) -> Response:
        model = _known(replica, partition)
        return answer(request, users_info(model, model.users.values()))

    @router.get(f"{base}/usage/groups", summary="The usage of every group with a limit")
    async def groups(request: Request, partition: str) -> Response:
        model = _known(replica, partition)
        return answer(request, groups_info(model, model.groups.values()))

    _usage_of_one(router, replica)


def _usage_of_one(router: APIRouter, replica: Replica) -> None:
    base = "/partition/{partition}/usage"

    @router.get(f"{base}/user/{{user}}", summary="The usage of one user")
    async def user(request: Request, partition: str, user: str) -> Response:
        name = _unescaped(user)
        if not USER.match(name):
            raise AnswerError(400, "Invalid user name")
        model = _known(replica, partition)
        if name not in model.users:
            raise AnswerError(404, "User not found")
        return answer(request, users_info(model, (model.users[name],))[0])

    @router.get(f"{base}/group/{{group}}", summary="The usage of one group")
    async def group(request: Request, partition: str, group: str) -> Response:
        name = _unescaped(group)
        if not GROUP.match(name):
            raise AnswerError(400, "Invalid group name")
        model = _known(replica, partition)
        if name not in model.groups:
            raise AnswerError(404, "Group not found")
        return answer(request, groups_info(model, (model.groups[name],))[0])


def _known(replica: Replica, partition: str) -> Model:
    """Return a partition's model; for an unknown name the default partition's."""
    return replica.model(partition if replica.partitions.get(partition) else DEFAULT_PARTITION)


def _events(router: APIRouter, replica: Replica) -> None:
    @router.get("/events/batch", summary="Events from a number on")
    async def batch(request: Request, count: str = "", start: str = "") -> Response:
        settings = _tracking(replica)
        try:
            most = number_of("count", count, settings.answer)
            first = number_of("start", start, 0) if start else None
        except CountError as error:
            raise AnswerError(400, str(error)) from error
        told = (replica.partitions.events, replica.machine.uuid, first, most, settings.answer)
        return answer(request, event_batch(*told))

    @router.get("/events/stream", summary="Events as they happen, one per line")
    async def stream(request: Request, count: str = "") -> Response:
        settings = _tracking(replica)
        try:
            past = number_of("", count, 0)
        except CountError as error:
            raise AnswerError(400, str(error)) from error
        machine = replica.machine
        host = request.headers.get("host", "")
        streams = machine.streams
        joined = streams.join(host, machine.partitions.events, past, time.time_ns(), settings)

        def events() -> EventRing | None:
            return machine.partitions.events if replica.machine is machine else None

        return EventStreamResponse(streams, joined, machine.uuid, events)


def _tracking(replica: Replica) -> EventSettings:
    """Return the settings of events. Raises AnswerError 500 if events are disabled."""
    settings = replica.partitions.event_settings
    if not settings.is_tracking:
        raise AnswerError(500, "Event tracking is disabled")
    return settings


def _configuration(router: APIRouter, replica: Replica) -> None:
    @router.get("/config", summary="ConfigDAOInfo: the configuration in use, YAML or JSON")
    async def config(request: Request) -> Response:
        model = replica.models[0]  # the file is one for all partitions
        if request.headers.get("accept") == "application/json":
            return answer(request, config_info(model))
        body = config_yaml(model)
        return written(request, body, media_type="application/x-yaml; charset=UTF-8")

    @router.get("/history/apps", summary="How many applications ran, a sample a minute")
    async def applications(request: Request) -> Response:
        return answer(request, application_history(replica.partitions.history))

    @router.get("/history/containers", summary="How many allocations were held, a sample a minute")
    async def containers(request: Request) -> Response:
        return answer(request, container_history(replica.partitions.history))


def _scheduler(router: APIRouter, replica: Replica) -> None:
    @router.get(
        "/scheduler/healthcheck",
        summary="SchedulerHealthDAOInfo: nine checks, and unavailable services",
    )
    async def healthcheck(request: Request) -> Response:
        models = replica.partitions.models
        if not models:
            raise AnswerError(404, "Health check is not available")
        return answer(request, health(models, [item.sentence for item in replica.away()]))

    @router.get("/scheduler/node-utilizations", summary="How full the nodes are, in ten steps")
    async def utilizations(request: Request) -> Response:
        return answer(request, node_utilizations(replica.partitions.models))


def _validation(router: APIRouter) -> None:
    @router.post(
        "/validate-conf",
        summary="Whether a queues.yaml would be accepted; always 200",
        openapi_extra=YAML_BODY,
    )
    async def validate_conf(request: Request) -> Response:
        body = await read_body(request)
        judged = await asyncio.to_thread(answers.validation, body)
        return answer(request, judged, methods=("OPTIONS", "POST"))


async def _reported(request: Request, model: Model, views: list[ApplicationView]) -> Response:
    return await listed(request, views, partial(application_row, model))


def _in_queue(model: Model, queue: str) -> list[ApplicationView]:
    path = _queue_path(model, queue)
    views = model.applications.values()
    return [view for view in views if view.summary.queue_name == path]


def _applications_of_queues(router: APIRouter, replica: Replica) -> None:
    @router.get("/partition/{partition}/queue/{queue}/applications", summary="A leaf's own")
    async def queue_applications(request: Request, partition: str, queue: str) -> Response:
        model = replica.model(partition)
        return await _reported(request, model, _in_queue(model, queue))

    @router.get("/partition/{partition}/queue/{queue}/applications/{state}")
    async def queue_applications_in(
        request: Request, partition: str, queue: str, state: str, status: str = ""
    ) -> Response:
        model = replica.model(partition)
        views = _in_queue(model, queue)
        _check_state(state, status, ("active",))
        wanted = status.lower()
        chosen = [v for v in views if not wanted or v.summary.state.lower() == wanted]
        return await _reported(request, model, chosen)

    @router.get("/partition/{partition}/queue/{queue}/application/{application}")
    async def queue_application(
        request: Request, partition: str, queue: str, application: str
    ) -> Response:
        model = replica.model(partition)
        found = [v for v in _in_queue(model, queue) if v.summary.application_id == application]
        if not found:
            raise AnswerError(404, "Application not found")
        return answer(request, answers.application_info(model, found[0]))


def _applications_of_partition(router: APIRouter, replica: Replica) -> None:
    @router.get("/partition/{partition}/application/{application}", summary="A live application")
    async def application(request: Request, partition: str, application: str) -> Response:
        model = replica.model(partition)
        view = model.applications.get(application)
        if view is None:
            raise AnswerError(404, "Application not found")
        return answer(request, answers.application_info(model, view))

    @router.get(
        "/partition/{partition}/applications/{state}", summary="active, rejected, completed"
    )
    async def applications(
        request: Request, partition: str, state: str, status: str = ""
    ) -> Response:
        model = replica.model(partition)
        _check_state(state, status, _STATES)
        views = answers.applications_in_state(model, state.lower(), status.lower())
        return await _reported(request, model, views)


def _unescaped(name: str) -> str:
    """Unescape a name the second time, as YuniKorn does: a ``/`` is written ``%252F``."""
    bad = _BAD_ESCAPE.search(name)
    if bad is not None:
        raise AnswerError(400, f'invalid URL escape "{bad.group()}"')
    return unquote_plus(name)


def _queue_path(model: Model, escaped: str) -> str:
    name = _unescaped(escaped)
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
