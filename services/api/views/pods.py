"""The pods that wait or have a place, for `muster pods`: asks and allocations by name."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from services.api.projection.model import ApplicationView, Model
from shared.messages.state import AllocationState, AskState
from shared.model.gpus import text_of

MAX_PODS = 10_000  # of one answer; it says how many there are in all
_NAMESPACE, _NAME = "kubernetes.io/meta/namespace", "kubernetes.io/meta/podName"


def pods(
    models: Iterable[Model],
    *,
    application: str = "",
    queue: str = "",
    node: str = "",
    most: int = MAX_PODS,
) -> dict[str, Any]:
    """Return the first pods of some applications, a queue or a node, and their number."""
    views = [
        (model, view)
        for model in models
        for view in model.applications.values()
        if application in ("", view.summary.application_id)
        and queue in ("", view.summary.queue_name)
    ]
    found = [(model, view, item) for model, view in views for item in _of(view, node)]
    return {
        "pods": [_pod(*item) for item in islice(found, most)],
        "total": len(found),
    }


def pods_of(model: Model, view: ApplicationView) -> list[dict[str, Any]]:
    """Return one application's pods, those with a place first."""
    return [_pod(model, view, item) for item in islice(_of(view, ""), MAX_PODS)]


def _of(view: ApplicationView, node: str) -> Iterator[AllocationState | AskState]:
    placed: Iterable[AllocationState] = view.allocations.values()
    yield from (item for item in placed if node in ("", item.node_id))
    if not node:
        yield from view.asks.values()


def _devices(item: AllocationState | AskState) -> dict[str, str]:
    """Return the GPU devices of a pod, as in its annotation, if any."""
    given = item.devices if isinstance(item, AllocationState) else ()
    return {"devices": text_of(given)} if given else {}


def _pod(model: Model, view: ApplicationView, item: AllocationState | AskState) -> dict[str, Any]:
    if isinstance(item, AllocationState):
        waiting, node, since_ns = None, item.node_id, item.request_time_ns
        state = "Stuck" if item.stuck_since_ns else "Allocated"
    else:
        waiting, state = model.why(view, item), "Pending"
        node, since_ns = "", item.create_time_ns
    return {
        "name": item.tags.get(_NAME) or item.allocation_key,
        "namespace": item.tags.get(_NAMESPACE, ""),
        "applicationID": item.application_id,
        "queueName": view.summary.queue_name,
        "state": state,
        "nodeID": node,
        "taskGroupName": item.task_group_name,
        "placeholder": item.placeholder,
        "resource": dict(item.resource),
        "priority": item.priority,
        "requestTime": since_ns,
        "allocationKey": item.allocation_key,
        **_devices(item),
        "waiting": waiting and {"reason": waiting.reason, "message": waiting.text},
        **model.mark,
    }
