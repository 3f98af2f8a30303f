"""Disruption budgets as an API server keeps them, and what its eviction subresource makes of them.

Source: the documentation of API-initiated eviction and of unhealthyPodEvictionPolicy (policy/v1): a pod
that has not begun, has ended or is going needs no budget; one under several is refused; one that is not
ready goes while its application is not disrupted, or always where the budget says so; any other takes
one of the disruptions that are allowed, if the status is of the spec as it stands. There is no disruption
controller: what a status says, and ``disruptedPods``, stays as a test or an eviction left it.
"""

from typing import Any

from tests.kubernetes.store import ApiFailureError, Object, Store, now

BUDGETS = "poddisruptionbudgets.policy"
NEEDS_NONE = ("Pending", "Succeeded", "Failed")
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
MAX_DISRUPTED = 2_000
STILL_PROCESSED_SECONDS = 10
POLICIES = (None, "IfHealthyBudget", "AlwaysAllow")


def check(_store: Store, _namespace: str, body: Object) -> None:
    """Check a budget that is being created; its status is the controller's."""
    body.pop("status", None)
    spec = body.setdefault("spec", {})
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in POLICIES:
        text = f'spec.unhealthyPodEvictionPolicy: Unsupported value: "{policy}"'
        raise ApiFailureError(422, "Invalid", text)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = "spec: Invalid value: minAvailable and maxUnavailable cannot be both set"
        raise ApiFailureError(422, "Invalid", text)


def take(store: Store, namespace: str, pod: Object) -> None:
    """Take a disruption for a pod that is to be evicted. Raises ApiFailureError where there is none."""
    metadata = pod["metadata"]
    if pod["status"].get("phase") in NEEDS_NONE or metadata.get("deletionTimestamp"):
        return
    over = [
        budget
        for (where, _), budget in store.all(BUDGETS).items()
        if where == namespace and _selects(budget["spec"].get("selector"), metadata.get("labels"))
    ]
    if len(over) > 1:
        raise ApiFailureError(500, "InternalError", SEVERAL)
    for budget in over:
        if _is_ready(pod) or not _lets_unready_go(budget):
            store.update(BUDGETS, budget, _taken(budget, metadata["name"]))


def _taken(budget: Object, name: str) -> Any:
    metadata, status = budget["metadata"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < metadata["generation"]:
        raise ApiFailureError(429, "TooManyRequests", REFUSED, retry_after=STILL_PROCESSED_SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    if len(status.get("disruptedPods") or {}) > MAX_DISRUPTED:
        text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        what = f'poddisruptionbudgets.policy "{metadata["name"]}" is forbidden'
        raise ApiFailureError(403, "Forbidden", f"{what}: {text}")
    if allowed == 0:
        raise ApiFailureError(429, "TooManyRequests", REFUSED)

    def change(obj: Object) -> None:
        obj["status"]["disruptionsAllowed"] = allowed - 1
        obj["status"].setdefault("disruptedPods", {})[name] = now()

    return change


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _lets_unready_go(budget: Object) -> bool:
    status = budget.get("status") or {}
    wanted = status.get("desiredHealthy", 0)
    is_always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return is_always or (status.get("currentHealthy", 0) >= wanted > 0)


def _selects(selector: Object | None, labels: Object | None) -> bool:
    """Return whether a selector selects labels: without one none, an empty one all."""
    if selector is None:
        return False
    has = labels or {}
    exact = (selector.get("matchLabels") or {}).items()
    return all(has.get(key) == value for key, value in exact) and all(
        _holds(term, has) for term in selector.get("matchExpressions") or ()
    )


def _holds(term: Object, has: Object) -> bool:
    key, values = term["key"], term.get("values") or ()
    match term["operator"]:
        case "In":
            return key in has and has[key] in values
        case "NotIn":
            return has.get(key) not in values
        case "Exists":
            return key in has
        case _:
            return key not in has
