"""Muster's own routes on what runs where: pods, nodes to drain, the version."""

from importlib import metadata

from fastapi import APIRouter, Request, Response

from services.api.replica import OnePartition, PartitionQuery, Replica
from services.api.views.hour import hour_of, hour_of_group, hour_of_user
from services.api.views.over_time import queue_usage, user_usage
from services.api.views.pods import pods
from services.api.views.topology import topology
from services.api.web.answers import AnswerError, answer
from services.api.web.segments import NamedRoute
from shared.messages.commands import ChangeNodes, CommandResult, NodeSpec
from shared.model.names import DEFAULT_PARTITION, ROOT


def cluster_routes(replica: Replica) -> APIRouter:
    """Return the routes of a replica."""
    router = APIRouter(route_class=NamedRoute, prefix="/v1", tags=["Muster"])

    @router.get("/pods", summary="The pods that wait or have a place")
    async def all_pods(
        request: Request,
        application: str = "",
        queue: str = "",
        node: str = "",
        partition: PartitionQuery = "",
    ) -> Response:
        models = replica.chosen(partition)
        value = pods(models, application=application, queue=queue, node=node)
        return answer(request, value)

    @router.get(
        "/topology", summary="The domains of the topology, with what is used and free in each"
    )
    async def domains(request: Request, partition: OnePartition = DEFAULT_PARTITION) -> Response:
        return answer(request, topology(replica.model(partition)))

    @router.get("/version", summary="The version of the API that answers")
    async def version(request: Request) -> Response:
        return answer(request, {"version": metadata.version("muster")})

    @router.get("/whoami", summary="The user of the request, and which role the user has")
    async def whoami(request: Request) -> Response:
        user = request.scope["user"]
        return answer(request, {"user": user.name, "role": user.role.label})

    _history(router, replica)
    _usage(router, replica)
    _nodes(router, replica)
    return router


def _usage(router: APIRouter, replica: Replica) -> None:
    @router.get(
        "/usage",
        summary="Usage over time of a queue, or of a user by queue, and current usage",
    )
    async def usage(
        request: Request,
        queue: str = ROOT,
        user: str = "",
        partition: OnePartition = DEFAULT_PARTITION,
    ) -> Response:
        model = replica.model(partition)
        value = user_usage(model, user) if user else queue_usage(model, queue)
        return answer(request, value)


def _history(router: APIRouter, replica: Replica) -> None:
    @router.get(
        "/history",
        summary="The last hour of a queue, user or group: usage, waiting, evictions",
    )
    async def history(
        request: Request,
        queue: str = ROOT,
        user: str = "",
        group: str = "",
        partition: OnePartition = DEFAULT_PARTITION,
    ) -> Response:
        model = replica.model(partition)
        projection = replica.partitions.get(partition)
        assert projection is not None
        if user:
            return answer(request, hour_of_user(projection.hour, model, user))
        if group:
            return answer(request, hour_of_group(projection.hour, model, group))
        value = hour_of(projection.hour, model, queue)
        if not value["points"] and queue not in model.queues:
            raise AnswerError(404, f"Queue {queue} not found")
        return answer(request, value)


def _nodes(router: APIRouter, replica: Replica) -> None:
    @router.post("/nodes/{node}/drain", summary="Drain a node: no new pods")
    async def drain(request: Request, node: str) -> Response:
        return await _change(replica, request, node, "drain")

    @router.post("/nodes/{node}/undrain", summary="Undrain a node: new pods again")
    async def undrain(request: Request, node: str) -> Response:
        return await _change(replica, request, node, "undrain")


async def _change(replica: Replica, request: Request, node: str, action: str) -> Response:
    """Let the resource manager change its node; the core is then informed."""
    if all(node not in model.nodes for model in replica.models):
        raise AnswerError(404, f"Node {node} not found")
    result = await replica.ask(ChangeNodes((NodeSpec(node, action),)), request)
    assert isinstance(result, CommandResult)
    if not result.done:
        raise AnswerError(409, result.message)
    return answer(request, {"nodeID": node, "schedulable": action == "undrain"})
