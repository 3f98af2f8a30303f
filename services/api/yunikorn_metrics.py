"""YuniKorn's own metrics, and Muster's of the same kind, from the read model (contract 7.3).

Those of queues, applications and nodes; what a Go runtime or a scheduling loop of YuniKorn's shape
would measure has no counterpart here.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.api.projection.model import Model

_QUEUE_STATES = (
    "new", "accepted", "running", "resuming", "failing", "completing", "completed", "failed",
    "rejected",
)  # fmt: skip
_SCHEDULER_STATES = ("running", "resuming", "failing", "completing", "completed", "failed")


def yunikorn_metrics(model: Model) -> bytes:
    """Return the metrics of a read model as text."""
    registry = CollectorRegistry()
    registry.register(_Metrics(model))
    return generate_latest(registry)


class _Metrics(Collector):
    def __init__(self, model: Model) -> None:
        self._model = model

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every family."""
        states = self._states()
        yield self._submissions()
        yield _by_state(states)
        yield from self._queues(states)
        yield self._ended()
        yield self._nodes()
        yield self._cycles()

    def _states(self) -> Counter[tuple[str, str]]:
        """Return how many applications are in a state, by queue."""
        live = self._model.applications.values()
        counts = Counter((view.summary.queue_name, view.summary.state.lower()) for view in live)
        for (queue, state), count in self._model.ended_counts.items():
            counts[queue, state.lower()] += count
        return counts

    def _submissions(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "yunikorn_scheduler_application_submission_total",
            "Applications by what became of their submission, since this replica started",
            labels=["result"],
        )
        for result in ("new", "accepted", "rejected"):
            family.add_metric([result], self._model.submissions.get(result, 0))
        return family

    def _queues(self, states: Counter[tuple[str, str]]) -> Iterator[GaugeMetricFamily]:
        applications = GaugeMetricFamily(
            "yunikorn_queue_app", "Applications of a queue by state", labels=["queue", "state"]
        )
        resources = GaugeMetricFamily(
            "yunikorn_queue_resource",
            "Resources of a queue by what they are",
            labels=["queue", "state", "resource"],
        )
        for path, queue in self._model.queues.items():
            for state in _QUEUE_STATES if queue.is_leaf else ():
                applications.add_metric([path, state], states[path, state])
            amounts = {
                "guaranteed": queue.guaranteed_resource or {},
                "max": queue.max_resource or {},
                "allocated": queue.allocated,
                "pending": queue.pending,
                "preempting": queue.preempting,
                "maxRunningApps": {"apps": queue.max_running_apps},
            }
            for what, resource in amounts.items():
                for name, value in resource.items():
                    resources.add_metric([path, what, name], value)
        yield applications
        yield resources

    def _ended(self) -> CounterMetricFamily:
        """Return how many ended in every queue; a queue that has gone keeps its count."""
        family = CounterMetricFamily(
            "yunikorn_queue_app_total",
            "Applications of a queue that ended, by state, since this replica started",
            labels=["queue", "state"],
        )
        for (queue, state), count in self._model.ended_counts.items():
            family.add_metric([queue, state.lower()], count)
        return family

    def _cycles(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "muster_eviction_cycles_total", "Pairs of applications that evicted each other by turns"
        )
        partition = self._model.partition
        family.add_metric([], partition.eviction_cycles if partition is not None else 0)
        return family

    def _nodes(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily("yunikorn_scheduler_node", "Nodes by state", labels=["state"])
        active = sum(node.state.schedulable for node in self._model.nodes.values())
        family.add_metric(["active"], active)
        family.add_metric(["draining"], len(self._model.nodes) - active)
        return family


def _by_state(states: Counter[tuple[str, str]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "yunikorn_scheduler_application_total", "Applications by state", labels=["state"]
    )
    for state in _SCHEDULER_STATES:
        family.add_metric([state], sum(n for (_, was), n in states.items() if was == state))
    return family
