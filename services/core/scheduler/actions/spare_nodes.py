"""Chooses spare nodes again after nodes changed, before a cycle (``nodes/spares.py``)."""

from collections.abc import Callable

from services.core.scheduler.model.run_times import stated_ns
from services.core.scheduler.nodes.spares import SHORT_NS
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation


def choose_again(partition: Partition) -> None:
    """Choose the spare nodes of changed domains; nodes that are no longer spare are reopened."""
    nodes = partition.nodes
    if not nodes.spares.is_on:
        return
    seen, facts = nodes.spares.seen
    changed = nodes.order.changed_since(seen) if facts == nodes.columns.facts else None
    if changed is not None and not changed:
        return
    for node, was_spare in nodes.spares.choose(changed, _is_short(partition)).items():
        nodes.touch(node)
        if was_spare:
            partition.node_improved(node)
    nodes.spares.were_chosen(nodes.order.changes, nodes.columns.facts)


def _is_short(partition: Partition) -> Callable[[Allocation], bool]:
    """Return a predicate: whether a pod ends within SHORT_NS of its start."""

    def is_short(pod: Allocation) -> bool:
        application = partition.applications.get(pod.application_id)
        if application is None:
            return False
        tags, timeout_ms = pod.allocation_tags, pod.exec_timeout_milli_seconds
        since_ns = application.placed_ns.get(pod.allocation_key, partition.now_ns)
        return 0 < stated_ns(application, tags, timeout_ms, since_ns) <= SHORT_NS

    return is_short
