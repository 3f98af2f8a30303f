"""Reports which pods may be evicted, by the current disruption budgets (``budgets.py``)."""

from dataclasses import replace

from services.shim_adapter.backends.kubernetes.budgets import Budgets
from services.shim_adapter.backends.kubernetes.notes import Notes
from services.shim_adapter.backends.kubernetes.objects import PodView
from services.shim_adapter.backends.kubernetes.observed import BudgetSeen, EvictionRefused
from services.shim_adapter.backends.kubernetes.pod_groups import PodGroups
from services.shim_adapter.mirror.calls import Disruptable, News
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodRecord


class Evictability:
    """Reports changes of whether pods may be evicted."""

    def __init__(self, world: World, groups: PodGroups, notes: Notes) -> None:
        self.budgets = Budgets()
        self._world, self._groups, self._notes = world, groups, notes

    def on_a_node(self, pod: PodRecord) -> list[News]:
        """Add a pod of ours that is bound; report whether it may be evicted."""
        if pod.spec.foreign or pod.spec.placeholder:
            return []
        self._groups.placed(pod.uid)
        self.budgets.placed(pod)
        return self._disruption_of([pod])

    def health_of(self, pod: PodRecord, view: PodView) -> list[News]:
        """Update whether a pod runs and is ready, which decides if budgets apply to it."""
        phase = view.phase if not pod.has_ended else pod.phase
        if (pod.phase, pod.is_ready) == (phase, view.is_ready):
            return []
        pod.phase, pod.is_ready = phase, view.is_ready
        return self._disruption_of([pod]) if self.budgets.protect(pod) else []

    def labels_of(self, pod: PodRecord, view: PodView) -> list[News]:
        """Update a pod's labels, which decide which budgets apply to it."""
        if pod.spec.foreign or view.labels is None or view.labels == pod.spec.labels:
            return []
        pod.spec = replace(pod.spec, labels=view.labels)
        self.budgets.relabelled(pod)
        return self._disruption_of([pod])

    def _disruption_of(self, pods: list[PodRecord]) -> list[News]:
        """Report changes; a change of a budget's allowed number once per partition."""
        changed: list[PodRecord] = []
        allowed: dict[tuple[str, str], PodRecord] = {}  # one pod, by partition and budget
        for pod in pods:
            before = (pod.disruption, pod.budget, pod.allowed)
            self.budgets.note(pod)
            if before[:2] != (pod.disruption, pod.budget):
                changed.append(pod)
            elif before[2] != pod.allowed:
                partition = self._world.partition_of(pod.spec.application_id)
                allowed.setdefault((partition, pod.budget), pod)
        return [Disruptable(pod) for pod in (*changed, *allowed.values())]

    def on_budget(self, seen: BudgetSeen, _: int) -> list[News]:
        """Apply a change of a disruption budget."""
        return self._disruption_of(self.budgets.see(seen.name, seen.budget))

    def on_eviction_refused(self, seen: EvictionRefused, _: int) -> list[News]:
        """Undo the eviction of a pod: the core will choose again."""
        pod = self._world.pods.get(seen.uid)
        if pod is None or not pod.node:
            return []
        if seen.is_over:
            self.budgets.ask_again(pod.uid)
            return self._disruption_of([pod])
        if seen.is_barred:
            self.budgets.refused(pod.uid)
        pod.deletion_ns, pod.release, pod.reason = 0, "", ""
        self.budgets.note(pod)
        self._notes.spared(pod, seen.reason)
        self._groups.spared(pod.uid)
        return [Disruptable(pod, is_refused=True)]
