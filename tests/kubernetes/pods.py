"""What an API server does to pods beyond keeping them: admission, binding, eviction, deletion."""

from typing import Any

from tests.kubernetes import budgets
from tests.kubernetes.store import ApiFailureError, Object, Store

PODS = "pods"
CLASSES = "priorityclasses.scheduling.k8s.io"
QUOTAS = "resourcequotas"
EVENTS = "events.events.k8s.io"
MAX_NOTE_BYTES = 1024
RANK = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


def admit(store: Store, namespace: str, body: Object) -> None:
    """Default and check a pod that is being created, as admission does."""
    spec = body.setdefault("spec", {})
    spec.setdefault("schedulerName", "default-scheduler")
    name = spec.get("priorityClassName")
    if name:
        found = store.all(CLASSES).get(("", name))
        if found is None:
            raise ApiFailureError(403, "Forbidden", f"no PriorityClass with name {name} was found")
        spec["priority"] = found["value"]
        spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))
    else:
        spec.setdefault("priority", 0)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        raise ApiFailureError(422, "Invalid", "nodeName and schedulingGates exclude each other")
    conditions = []
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        conditions.append({**gated, "lastTransitionTime": store.now()})
    body["status"] = {"phase": "Pending", "conditions": conditions, **body.get("status", {})}
    _take_quota(store, namespace, body.get("metadata", {}).get("name", ""))


def _take_quota(store: Store, namespace: str, name: str) -> None:
    """Count a pod that is being created in its namespace's quotas of pods, as admission does."""
    for (where, quota), found in list(store.all(QUOTAS).items()):
        status = found.get("status") or {}
        limit = (status.get("hard") or {}).get(PODS)
        if where != namespace or limit is None:
            continue
        used = int((status.get("used") or {}).get(PODS, "0"))
        if used >= int(limit):
            text = (
                f'pods "{name}" is forbidden: exceeded quota: {quota}, requested: pods=1, '
                f"used: pods={used}, limited: pods={limit}"
            )
            raise ApiFailureError(403, "Forbidden", text)

        def count(obj: Object, used: int = used) -> None:
            obj["status"].setdefault("used", {})[PODS] = str(used + 1)

        store.update(QUOTAS, found, count)


def check_event(store: Store, namespace: str, body: Object) -> None:
    """Check an event as the API of events.k8s.io/v1 does: its note has its length in bytes."""
    size = len(str(body.get("note", "")).encode())
    if size > MAX_NOTE_BYTES:
        text = (
            f'Event "" is invalid: note: Invalid value: "": can have at most {MAX_NOTE_BYTES} bytes'
        )
        raise ApiFailureError(422, "Invalid", text)


def bind(store: Store, namespace: str, name: str, body: Object) -> None:
    """The binding subresource: sets the node once."""
    pod = store.get(PODS, namespace, name)
    if body["metadata"].get("name") not in (None, name):
        raise ApiFailureError(400, "BadRequest", "the name of the binding is not the pod's")
    _check_preconditions(pod, body["metadata"], f'pods "{name}"')
    spec, metadata = pod["spec"], pod["metadata"]
    if metadata.get("deletionTimestamp"):
        raise _conflict(f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _conflict(f"pod {name} is already assigned to node {spec['nodeName']!r}")
    if spec.get("schedulingGates"):
        raise _conflict(f"pod {name} has non-empty .spec.schedulingGates")

    def change(obj: Object) -> None:
        obj["spec"]["nodeName"] = body["target"]["name"]
        obj["metadata"].setdefault("annotations", {}).update(
            body["metadata"].get("annotations", {})
        )
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": store.now()}
        set_condition(obj, scheduled)

    store.update(PODS, pod, change)


def _conflict(message: str) -> ApiFailureError:
    return ApiFailureError(
        409, "Conflict", f"Operation cannot be fulfilled on pods/binding: {message}"
    )


def _check_preconditions(obj: Object, wanted: Any, what: str) -> None:
    metadata = obj["metadata"]
    for key in ("uid", "resourceVersion"):
        if wanted and wanted.get(key) and wanted[key] != metadata[key]:
            text = f"{what}: Precondition failed: {key} {wanted[key]}, found {metadata[key]}"
            raise ApiFailureError(409, "Conflict", text)


def set_condition(obj: Object, condition: Object) -> None:
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    before = next((c for c in conditions if c["type"] == condition["type"]), {})
    conditions[:] = [c for c in conditions if c["type"] != condition["type"]]
    conditions.append({"lastTransitionTime": None, **before, **condition})


def evict(store: Store, namespace: str, name: str, body: Object) -> Object:
    """The eviction subresource: a deletion that disruption budgets may refuse."""
    pod = store.get(PODS, namespace, name)
    if (body.get("metadata") or {}).get("name") not in (None, name):
        text = "name in URL does not match name in Eviction object"
        raise ApiFailureError(400, "BadRequest", text)
    options = body.get("deleteOptions") or {}
    _check_preconditions(pod, options.get("preconditions"), f'pods "{name}"')
    budgets.take(store, namespace, pod)
    return delete(store, namespace, name, options)


def delete(store: Store, namespace: str, name: str, options: Object) -> Object:
    """Delete a pod: a bound one stays, marked, until its kubelet deletes it with grace 0."""
    pod = store.get(PODS, namespace, name)
    _check_preconditions(pod, options.get("preconditions"), f'pods "{name}"')
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
    is_bound = bool(pod["spec"].get("nodeName"))
    has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")

    def mark(obj: Object) -> None:
        obj["metadata"]["deletionTimestamp"] = store.now()
        obj["metadata"]["deletionGracePeriodSeconds"] = grace if is_bound else 0

    if is_bound and grace and not has_ended:
        return pod if pod["metadata"].get("deletionTimestamp") else store.update(PODS, pod, mark)
    if not pod["metadata"].get("deletionTimestamp"):
        pod = store.update(PODS, pod, mark)
    return store.delete(PODS, pod)


def patch_status(obj: Object, status: Object) -> None:
    """Merge a status; conditions by their type, as a strategic merge patch does."""
    merged = obj.setdefault("status", {})
    for key, value in status.items():
        if key == "conditions":
            for condition in value:
                set_condition(obj, condition)
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = value


ADMISSION = {PODS: admit, EVENTS: check_event, budgets.BUDGETS: budgets.check}
