"""What an API server does to pods beyond keeping them: admission, binding, eviction, deletion."""

from typing import Any

from tests.kubernetes.store import ApiFailureError, Object, Store, now

PODS = "pods"
CLASSES = "priorityclasses.scheduling.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
RANK = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


def admit(store: Store, body: Object) -> None:
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
        conditions.append({**gated, "lastTransitionTime": now()})
    body["status"] = {"phase": "Pending", "conditions": conditions, **body.get("status", {})}


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
        set_condition(obj, {"type": "PodScheduled", "status": "True"})

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
    conditions[:] = [c for c in conditions if c["type"] != condition["type"]]
    conditions.append({"lastTransitionTime": now(), **condition})


def evict(store: Store, namespace: str, name: str, body: Object) -> Object:
    """The eviction subresource: refused with 429 while a budget allows no disruption."""
    pod = store.get(PODS, namespace, name)
    labels = pod["metadata"].get("labels") or {}
    for (where, _), budget in store.all(BUDGETS).items():
        wanted = budget["spec"]["selector"].get("matchLabels", {})
        matches = where == namespace and all(labels.get(k) == v for k, v in wanted.items())
        if matches and budget.get("status", {}).get("disruptionsAllowed", 0) <= 0:
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise ApiFailureError(429, "TooManyRequests", text, retry_after=1)
    return delete(store, namespace, name, body.get("deleteOptions") or {})


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
        obj["metadata"]["deletionTimestamp"] = now()
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
