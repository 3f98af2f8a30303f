"""Which pods may be evicted, by the disruption budgets as they are now (``budgets.py``)."""

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
    """Says of pods whether they may be evicted, when that has changed."""

    def __init__(self, world: World, groups: PodGroups, notes: Notes) -> None:
        self.budgets = Budgets()
        self._world, self._groups, self._notes = world, groups, notes

    def on_a_node(self, pod: PodRecord) -> list[News]:
        """Take in that a pod of ours is where it was to be, and may be evicted or not."""
        if pod.spec.foreign or pod.spec.placeholder:
            return []
        self._groups.placed(pod.uid)
        self.budgets.placed(pod)
        return self._disruption_of([pod])

    def health_of(self, pod: PodRecord, view: PodView) -> list[News]:
        """Take in whether a pod runs, and is ready: budgets protect no other as they do these."""
        phase = view.phase if not pod.has_ended else pod.phase
        if (pod.phase, pod.is_ready) == (phase, view.is_ready):
            return []
        pod.phase, pod.is_ready = phase, view.is_ready
        return self._disruption_of([pod]) if self.budgets.protect(pod) else []

    def labels_of(self, pod: PodRecord, view: PodView) -> list[News]:
        """Take in labels that have changed: other budgets may be for the pod now."""
        if pod.spec.foreign or view.labels is None or view.labels == pod.spec.labels:
            return []
        pod.spec = replace(pod.spec, labels=view.labels)
        self.budgets.relabelled(pod)
        return self._disruption_of([pod])

    def _disruption_of(self, pods: list[PodRecord]) -> list[News]:
        """Say what has changed; of what a budget allows, once in every partition."""
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
        """Take in a disruption budget."""
        return self._disruption_of(self.budgets.see(seen.name, seen.budget))

    def on_eviction_refused(self, seen: EvictionRefused, _: int) -> list[News]:
        """Take back that a pod is being evicted: the core chooses again, and knows better now."""
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
