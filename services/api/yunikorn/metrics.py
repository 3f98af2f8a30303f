"""The metrics of the read models: YuniKorn's names and labels, and Muster's own.

Those of another partition than ``default`` have its name as a further label, ``partition``; those
of events are of the replica.

What a part of a cycle takes is measured in the core (``shared.runtime.latency``); what a Go runtime
measures of itself has no counterpart here. Counters count since this replica started.

Source: docs/rules/metrics.md.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from services.api.projection.events import EventRing
from services.api.projection.model import Model, changing_amounts
from services.api.yunikorn.nodes import BUCKETS, nodes_by_use
from shared.messages.state import QueueState
from shared.model.reasons import EvictionCause

_QUEUE_STATES = (
    "new", "accepted", "running", "resuming", "failing", "completing", "completed", "failed",
    "rejected",
)  # fmt: skip
_ENDED_STATES = ("completed", "failed", "rejected")
_SCHEDULER_STATES = ("running", "resuming", "failing", "completing", "completed", "failed")
_ATTEMPTS = ("allocated", "rejected", "error", "released")
_UNFIT = re.compile(r"[^a-zA-Z0-9_]")  # in the name of a metric
Family = CounterMetricFamily | GaugeMetricFamily


def yunikorn_metrics(models: Iterable[Model], events: EventRing) -> bytes:
    """Return the metrics of read models, and of their events, as text."""
    registry = CollectorRegistry()
    registry.register(_All(models, events))
    return generate_latest(registry)


class _All(Collector):
    def __init__(self, models: Iterable[Model], events: EventRing) -> None:
        self._models = models
        self._events = events

    def collect(self) -> Iterator[Family]:
        """Yield every family once, with the samples of all partitions."""
        families: dict[tuple[str, str], Family] = {}  # a counter leaves _total out of its name
        for at, model in enumerate(self._models):
            for family in _Metrics(model, None if at else self._events).collect():
                if model.mark:
                    family.samples = [_marked(sample, model.mark) for sample in family.samples]
                known = families.setdefault((family.name, family.type), family)
                if known is not family:
                    known.samples += family.samples
        yield from families.values()


def _marked(sample: Sample, mark: Mapping[str, str]) -> Sample:
    return sample._replace(labels={**mark, **sample.labels})


class _Metrics(Collector):
    """The families of one partition; those of events where their ring is given."""

    def __init__(self, model: Model, events: EventRing | None) -> None:
        self._model = model
        self._ring = events

    def collect(self) -> Iterator[Family]:
        """Yield every family."""
        states = self._states()
        yield self._submissions()
        yield _by_state(states)
        yield self._attempts()
        yield from self._queues(states)
        yield self._ended()
        yield from self._containers()
        yield self._nodes()
        yield from self._node_usage()
        if self._ring is not None:
            yield from _events(self._ring)
        yield from self._own()

    def _states(self) -> Counter[tuple[str, str]]:
        """Return how many applications are in a state, by queue."""
        live = self._model.applications.values()
        counts = Counter((view.summary.queue_name, view.summary.state.lower()) for view in live)
        for (queue, state), count in self._model.ended_counts.items():
            counts[queue, state.lower()] += count
        return counts

    def _submissions(self) -> CounterMetricFamily:
        counts = self._model.submissions
        return _counter(
            "yunikorn_scheduler_application_submission_total",
            "Applications by the result of their submission",
            "result",
            {result: counts.get(result, 0) for result in ("new", "accepted", "rejected")},
        )

    def _attempts(self) -> CounterMetricFamily:
        partition = self._model.partition
        rejected = partition.rejected_asks if partition is not None else 0
        counts = {**self._model.attempts, "rejected": rejected}
        return _counter(
            "yunikorn_scheduler_container_allocation_attempt_total",
            "Allocations by result; an error is one that could not be bound",
            "state",
            {state: counts.get(state, 0) for state in _ATTEMPTS},
        )

    def _queues(self, states: Counter[tuple[str, str]]) -> Iterator[GaugeMetricFamily]:
        applications = GaugeMetricFamily(
            "yunikorn_queue_app", "Applications of a queue by state", labels=["queue", "state"]
        )
        resources = GaugeMetricFamily(
            "yunikorn_queue_resource",
            "Resources of a queue by kind",
            labels=["queue", "state", "resource"],
        )
        for path, queue in self._model.queues.items():
            for state in _QUEUE_STATES if queue.is_leaf else ():
                applications.add_metric([path, state], states[path, state])
            amounts = {
                "guaranteed": queue.guaranteed_resource or {},
                "max": queue.max_resource or {},
                **self._changing(queue),
                "maxRunningApps": {"apps": queue.max_running_apps},
            }
            for what, resource in amounts.items():
                for name, value in resource.items():
                    resources.add_metric([path, what, name], value)
        yield applications
        yield resources

    def _changing(self, queue: QueueState) -> dict[str, dict[str, int]]:
        """Return amounts that change with pods; a type that once existed stays, as 0."""
        seen = self._model.types_seen.get(queue.path, {})
        return {
            what: {**dict.fromkeys(seen.get(what, ()), 0), **amount}
            for what, amount in changing_amounts(queue)
        }

    def _ended(self) -> CounterMetricFamily:
        """Return how many ended in every queue; a removed queue keeps its count."""
        family = CounterMetricFamily(
            "yunikorn_queue_app_total",
            "Applications of a queue that ended, by state, since this replica started",
            labels=["queue", "state"],
        )
        ended = self._model.ended_counts
        leaves = [queue.path for queue in self._model.queues.values() if queue.is_leaf]
        counts = {(path, state): 0 for path in leaves for state in _ENDED_STATES}
        counts.update({(path, state.lower()): count for (path, state), count in ended.items()})
        for (queue, state), count in counts.items():
            family.add_metric([queue, state], count)
        return family

    def _containers(self) -> Iterator[GaugeMetricFamily]:
        """Yield a family for every leaf, with its path in the name; it is removed with its queue.

        Two paths that come to one name are one family, as they are one metric in YuniKorn. They
        only grow; a counter's name would have to end in ``_total``, which YuniKorn's does not.
        """
        counts: dict[str, Counter[str]] = {}
        for path, queue in self._model.queues.items():
            if queue.is_leaf:
                own = counts.setdefault(_UNFIT.sub("_", path), Counter())
                for state in ("allocated", "released"):
                    own[state] += self._model.queue_attempts.get((path, state), 0)
        for name, own in counts.items():
            text = "Allocations of a queue by result"
            yield _gauge(f"yunikorn_{name}_queue_container", text, "state", own)

    def _nodes(self) -> GaugeMetricFamily:
        model, partition = self._model, self._model.partition
        active = sum(node.state.schedulable for node in model.nodes.values())
        counts = {
            "active": active,
            "draining": len(model.nodes) - active,
            "decommissioned": model.nodes_gone,
            "failed": partition.failed_nodes if partition is not None else 0,
        }
        return _gauge("yunikorn_scheduler_node", "Nodes by state", "state", counts)

    def _node_usage(self) -> Iterator[GaugeMetricFamily]:
        for resource, steps in nodes_by_use(self._model):
            name = f"yunikorn_scheduler_{_UNFIT.sub('_', resource)}_node_usage_total"
            counts = {_range(at): len(nodes) for at, nodes in enumerate(steps)}
            yield _gauge(name, f"Nodes by how much of {resource} is used", "range", counts)

    def _own(self) -> Iterator[Family]:
        """Yield Muster's own: what waits and why, how many pods were evicted for which cause."""
        model, partition = self._model, self._model.partition
        yield _gauge(
            "muster_asks_waiting", "Asks that wait, by the reason", "reason", _refusals(model)
        )
        evicted = {law.value: 0 for law in EvictionCause} | model.evicted
        yield _counter(
            "muster_evictions_total", "Pods that were evicted, by the law", "law", evicted
        )
        cycles = CounterMetricFamily(
            "muster_eviction_cycles_total", "Pairs of applications that evicted each other by turns"
        )
        cycles.add_metric([], partition.eviction_cycles if partition is not None else 0)
        yield cycles
        yield from self._over_time()

    def _over_time(self) -> Iterator[GaugeMetricFamily]:
        """Yield what queues have used over time, and under kai what they are entitled to."""
        used = GaugeMetricFamily(
            "muster_queue_used_over_time",
            "Share of the cluster that a queue has used over time, by half-life or window",
            labels=["queue", "resource"],
        )
        fair = GaugeMetricFamily(
            "muster_queue_fair_share",
            "Fair share of a queue, where usage over time is counted under the policy kai",
            labels=["queue", "resource"],
        )
        for path, queue in self._model.queues.items():
            for name, ppm in queue.used_ppm.items():
                used.add_metric([path, name], ppm / 1_000_000)
            for name, value in (queue.fair_share or {}).items():
                fair.add_metric([path, name], value)
        yield used
        yield fair


def _events(ring: EventRing) -> Iterator[GaugeMetricFamily]:
    """Yield what became of the events: none is lost between the core and the ring."""
    told = ring.next_id
    counts = {
        "created": told,
        "channeled": told,
        "not_channeled": 0,
        "processed": told,
        "stored": told - ring.lowest,
        "not_stored": 0,
        "collected": ring.read_total,
    }
    for name, count in counts.items():
        family = GaugeMetricFamily(f"yunikorn_event_total_{name}", f"Events {name}")
        family.add_metric([], count)
        yield family


def _refusals(model: Model) -> Counter[str]:
    """Return how many asks wait for what; none was tried yet of those without a reason."""
    counts: Counter[str] = Counter({"": 0})
    for view in model.applications.values():
        for ask in view.asks.values():
            waiting = model.why(view, ask)
            counts[waiting.reason if waiting is not None else ""] += 1
    return counts


def _range(at: int) -> str:
    low, high = at * 100 // BUCKETS, (at + 1) * 100 // BUCKETS
    return f"{'[' if at == 0 else '('}{low}{'%' if low else ''},{high}%]"


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _gauge(name: str, text: str, label: str, counts: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _by_state(states: Counter[tuple[str, str]]) -> GaugeMetricFamily:
    counts = {
        state: sum(count for (_, was), count in states.items() if was == state)
        for state in _SCHEDULER_STATES
    }
    name = "yunikorn_scheduler_application_total"
    return _gauge(name, "Applications by state", "state", counts)
