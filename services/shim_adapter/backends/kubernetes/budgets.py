"""Disruption budgets: which of our pods may be evicted now.

Rule 1: a pod under one budget may go while that budget allows a disruption; under several it may
        not: the eviction API takes no such pod. A budget that cannot be read allows none.
Rule 2: a pod whose eviction was refused may not go until its budget changes, or its pause is over
        (``ask_again``).
Pure. Source: the Kubernetes documentation of disruptions and of API-initiated eviction. What it is
of a pod that is not ready (unhealthyPodEvictionPolicy) is left to the API server.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from services.shim_adapter.records import PodRecord
from services.shim_adapter.translation.constraints import label_selector
from services.shim_adapter.translation.errors import ManifestError
from shared.messages.constraints import Requirement
from shared.messages.interface import DisruptionState
from shared.messages.selectors import all_hold

Name = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: whose it is, and how many of them may be disrupted now."""

    namespace: str
    selector: tuple[Requirement, ...] | None  # None: it cannot be read, and is for all
    allowed: int

    def is_for(self, pod: PodRecord) -> bool:
        """Return whether a pod is under it."""
        return self.selector is None or all_hold(self.selector, pod.spec.labels)


def budget_of(raw: Mapping[str, Any]) -> Budget:
    """Return a PodDisruptionBudget; without a status it allows nothing, as the API has it."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    namespace = str(metadata.get("namespace") or "default")
    allowed = status.get("disruptionsAllowed")
    try:
        selector = label_selector(spec.get("selector"), "spec.selector")
    except ManifestError:
        return Budget(namespace, None, 0)
    return Budget(namespace, selector, allowed if type(allowed) is int else 0)


class Budgets:
    """Every budget, and the pods of ours that are on nodes, by namespace."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[Name, Budget]] = {}
        self._pods: dict[str, dict[str, PodRecord]] = {}
        self._over: dict[str, dict[Name, None]] = {}  # the budgets that a pod is under
        self._refused: dict[str, None] = {}

    def see(self, name: Name, budget: Budget | None) -> list[PodRecord]:
        """Take a budget in, or that it has gone; return the pods that it may concern."""
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
        """Take in a pod that is on a node."""
        self._pods.setdefault(pod.spec.namespace, {})[pod.uid] = pod
        self._match_all(pod)

    def relabelled(self, pod: PodRecord) -> None:
        """Take in that a pod's labels have changed."""
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
        """Take in that a pod's eviction was refused."""
        self._refused[uid] = None

    def ask_again(self, uid: str) -> None:
        """Take in that the pause after a refusal is over."""
        self._refused.pop(uid, None)

    def note(self, pod: PodRecord) -> None:
        """Write down at a pod whether it may be evicted now, and by which budget."""
        pod.disruption = self._state_of(pod)
        over = [*self._over.get(pod.uid, ())]
        pod.budget, pod.allowed = "", 0
        if len(over) == 1:
            pod.budget = "/".join(over[0])
            pod.allowed = self._budgets[pod.spec.namespace][over[0]].allowed

    def _state_of(self, pod: PodRecord) -> DisruptionState:
        over: Iterable[Name] = self._over.get(pod.uid, ())
        allowed = [self._budgets[pod.spec.namespace][name].allowed for name in over]
        if pod.uid in self._refused or len(allowed) > 1 or any(count <= 0 for count in allowed):
            return DisruptionState.BARRED
        return DisruptionState.BUDGETED if allowed else DisruptionState.FREE
