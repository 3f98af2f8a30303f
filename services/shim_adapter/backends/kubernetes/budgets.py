"""PodDisruptionBudgets: which pods may be evicted now.

Rule 1: a pod under one budget may be evicted while that budget allows a disruption; under several
        it may not, because the eviction API refuses such pods. A budget that cannot be read allows
        none, nor does one whose status is older than its spec.
Rule 2: a pod whose eviction was refused may not be evicted until its budget changes, or its pause
        is over (``ask_again``).
Rule 3: a pod that has not started is under no budget. A running pod that is not ready may be
        evicted without its budget while the budget has its desired number of healthy pods, or
        always with unhealthyPodEvictionPolicy AlwaysAllow.
Pure. Source: the Kubernetes documentation of disruptions and of API-initiated eviction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.shim_adapter.records import PodPhase, PodRecord
from services.shim_adapter.translation.constraints import label_selector
from services.shim_adapter.translation.errors import ManifestError
from shared.messages.constraints import Requirement
from shared.messages.interface import DisruptionState
from shared.messages.selectors import all_hold

Name = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: its selector, and how many of its pods may be disrupted now."""

    namespace: str
    selector: tuple[Requirement, ...] | None  # None: it cannot be read, and is for all
    allowed: int
    lets_unready_go: bool = False

    def is_for(self, pod: PodRecord) -> bool:
        """Whether a pod is under it."""
        return self.selector is None or all_hold(self.selector, pod.spec.labels)


def budget_of(raw: Mapping[str, Any]) -> Budget:
    """Convert a PodDisruptionBudget; without a status it allows nothing, as in the API."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    namespace = str(metadata.get("namespace") or "default")
    allowed = _count(status, "disruptionsAllowed")
    if _count(status, "observedGeneration") < _count(metadata, "generation"):
        allowed = 0
    healthy, wanted = _count(status, "currentHealthy"), _count(status, "desiredHealthy")
    is_always = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    try:
        selector = label_selector(spec.get("selector"), "spec.selector")
    except ManifestError:
        return Budget(namespace, None, 0)
    return Budget(namespace, selector, allowed, is_always or healthy >= wanted > 0)


def _count(values: Mapping[str, Any], key: str) -> int:
    found = values.get(key)
    return found if type(found) is int else 0


class Budgets:
    """Every budget, and our pods on nodes, by namespace."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[Name, Budget]] = {}
        self._pods: dict[str, dict[str, PodRecord]] = {}
        self._over: dict[str, dict[Name, None]] = {}  # budgets by pod
        self._refused: dict[str, None] = {}

    def see(self, name: Name, budget: Budget | None) -> list[PodRecord]:
        """Add, update or remove (None) a budget; return the pods that it may affect."""
        namespace = name[0]
        there = self._budgets.setdefault(namespace, {})
        before = there.pop(name, None)
        if budget is not None:
            there[name] = budget
        if not there:
            del self._budgets[namespace]
        pods = self._pods.get(namespace, {}).values()
        if before is None or budget is None or before.selector != budget.selector:
            for pod in pods:
                self._match(pod, name, budget)
        concerned = [
            pod
            for pod in pods
            if (before is not None and before.is_for(pod))
            or (budget is not None and budget.is_for(pod))
        ]
        for pod in concerned:
            self._refused.pop(pod.uid, None)
        return concerned

    def _match(self, pod: PodRecord, name: Name, budget: Budget | None) -> None:
        over = self._over.setdefault(pod.uid, {})
        over.pop(name, None)
        if budget is not None and budget.is_for(pod):
            over[name] = None
        if not over:
            del self._over[pod.uid]

    def placed(self, pod: PodRecord) -> None:
        """Add a pod that is on a node."""
        self._pods.setdefault(pod.spec.namespace, {})[pod.uid] = pod
        self._match_all(pod)

    def relabelled(self, pod: PodRecord) -> None:
        """Match a pod again, because its labels have changed."""
        if pod.uid in self._pods.get(pod.spec.namespace, {}):
            self._match_all(pod)

    def _match_all(self, pod: PodRecord) -> None:
        for name, budget in self._budgets.get(pod.spec.namespace, {}).items():
            self._match(pod, name, budget)

    def gone(self, pod: PodRecord) -> None:
        """Forget a pod."""
        there = self._pods.get(pod.spec.namespace, {})
        if there.pop(pod.uid, None) is not None and not there:
            del self._pods[pod.spec.namespace]
        self._over.pop(pod.uid, None)
        self._refused.pop(pod.uid, None)

    def refused(self, uid: str) -> None:
        """Record that a pod's eviction was refused."""
        self._refused[uid] = None

    def ask_again(self, uid: str) -> None:
        """Record that the pause after a refusal is over."""
        self._refused.pop(uid, None)

    def note(self, pod: PodRecord) -> None:
        """Set on a pod's record whether it may be evicted now, and its budget."""
        over = self._protecting(pod)
        pod.disruption = self._state_of(pod, over)
        pod.budget, pod.allowed = "", 0
        if len(over) == 1:
            pod.budget = "/".join(over[0])
            pod.allowed = self._budgets[pod.spec.namespace][over[0]].allowed

    def protect(self, pod: PodRecord) -> bool:
        """Whether a pod is under a budget or was refused, so that its health matters."""
        return pod.uid in self._over or pod.uid in self._refused

    def _protecting(self, pod: PodRecord) -> list[Name]:
        """Return the budgets that apply to a pod's eviction."""
        over = [*self._over.get(pod.uid, ())]
        if pod.phase is PodPhase.PENDING:
            return []
        if len(over) == 1 and not pod.is_ready:
            budget = self._budgets[pod.spec.namespace][over[0]]
            return [] if budget.lets_unready_go else over
        return over

    def _state_of(self, pod: PodRecord, over: list[Name]) -> DisruptionState:
        allowed = [self._budgets[pod.spec.namespace][name].allowed for name in over]
        if pod.uid in self._refused or len(allowed) > 1 or any(count <= 0 for count in allowed):
            return DisruptionState.BARRED
        return DisruptionState.BUDGETED if allowed else DisruptionState.FREE
