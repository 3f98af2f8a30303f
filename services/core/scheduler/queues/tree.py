"""The queue tree, built from the configuration and changed in place on a reload.

A queue that a reload removes drains: it accepts no applications and is removed when it is empty;
one that returns is active again, and a dynamic one that is configured becomes managed
(docs/rules/queues.md#reload). A parent that is configured as a leaf becomes one when the queues
below it have been removed. The root's max is the cluster and is not configured; its
maxapplications is set when the tree is first built and stays.

A reload that changes only maxima requeues what is in those queues; any other requeues everything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import is_not

from services.core.scheduler.model.placement_rules import PlacementRules
from services.core.scheduler.model.queue_ledger import ACTIVE, DRAINING
from services.core.scheduler.model.queue_settings import (
    USAGE,
    Limit,
    QueueConfig,
    inheritable,
    settings_as_stated,
    settings_of_root,
)
from services.core.scheduler.model.rows import Application, Queue, depth_first
from services.core.scheduler.model.settings import KAI
from services.core.scheduler.ordering import queueing
from services.core.scheduler.queues.dynamic_queues import clean_later
from services.core.scheduler.statement import application_ledger, application_moves, queue_moves
from services.core.scheduler.statement.journal import (
    ApplicationChanged,
    QueueChanged,
    UsageChanged,
    limit_changes,
)
from services.core.scheduler.statement.partition import Partition
from shared.model.names import AS_KAI, DEFAULT_PARTITION, FAIR, ROOT
from shared.model.queue_properties import SPARES, parse_spares


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """A parsed queues.yaml, for one partition. ``text`` is its source.

    ``partitions`` are all that it names. A partition that it does not name ``is_removed``.
    """

    root: QueueConfig
    node_sort_policy: str = ""  # "": the policy's default
    resource_weights: dict[str, float] = field(default_factory=dict)
    preemption_enabled: bool = True
    quota_preemption_enabled: bool = False
    rules: PlacementRules = field(default_factory=PlacementRules)
    warnings: tuple[str, ...] = ()
    checksum: str = ""
    text: str = ""
    partitions: tuple[str, ...] = (DEFAULT_PARTITION,)
    is_removed: bool = False


def configure(partition: Partition, config: PartitionConfig) -> None:
    """Apply a validated configuration to the partition."""
    if not partition.config_checksum:
        partition.set(partition.root, max_applications=config.root.max_applications)
    before = partition.configured
    changed = _maxima_changed(before, config) if isinstance(before, PartitionConfig) else None
    partition.configure(
        configured=config,
        config_checksum=config.checksum,
        config_text=config.text,
        config_warnings=config.warnings,
        config_error="",
        config_time_ns=partition.now_ns,
        config_partitions=config.partitions,
    )
    if changed is None:
        _configure_all(partition, config)
        queues = partition.queues.values()
        by_usage = [queue.path for queue in queues if queue.settings.sort_policy == USAGE]
        partition.configure(goes_by_usage=by_usage[0] if by_usage else "")
        partition.nodes.keep_spares_of_queues(_levels_of_spares(config.root))
    else:
        _set_maxima(partition, changed)


def _maxima_changed(
    before: PartitionConfig, config: PartitionConfig
) -> list[tuple[str, QueueConfig]] | None:
    """Return the queues with changed maxima, None if anything else changed."""
    if _beside_queues(before) != _beside_queues(config):
        return None
    found: list[tuple[str, QueueConfig]] = []
    stack = [(ROOT, before.root, config.root)]
    while stack:
        path, old, new = stack.pop()
        if len(old.children) != len(new.children) or _beside_maxima(old) != _beside_maxima(new):
            return None
        if (old.max_resource, old.max_applications) != (new.max_resource, new.max_applications):
            found.append((path, new))
        for was, child in _unlike(old.children, new.children):
            if was != child:
                stack.append((f"{path}.{child.name}", was, child))
    return found


def _unlike(
    old: Sequence[QueueConfig], new: Sequence[QueueConfig]
) -> Iterator[tuple[QueueConfig, QueueConfig]]:
    """Return the pairs of two lists that are not the same object."""
    return compress(zip(old, new, strict=True), map(is_not, old, new))


def _beside_queues(config: PartitionConfig) -> object:
    """Return a configuration without its queues and without fields for reports only."""
    empty = QueueConfig(ROOT)
    return replace(config, root=empty, warnings=(), checksum="", text="", partitions=())


def _beside_maxima(config: QueueConfig) -> QueueConfig:
    return replace(config, children=(), max_resource=None, max_applications=0)


def _set_maxima(partition: Partition, changed: list[tuple[str, QueueConfig]]) -> None:
    """Set changed maxima, and requeue what is in those queues."""
    concerned: dict[Queue, None] = {}
    for path, config in changed:
        queue = partition.queues[path]
        if queue.parent is None:
            continue  # the root's limits are not configured
        most, running = config.max_resource, config.max_applications
        partition.set(queue, max_resource=most, max_applications=running)
        concerned.update(dict.fromkeys(depth_first(queue)))
    if concerned:
        partition.root.forget_turns()
        _requeue_in(partition, list(concerned))


def _configure_all(partition: Partition, config: PartitionConfig) -> None:
    """Apply a whole configuration, and requeue everything that waits."""
    partition.nodes.order.recent.remember(partition.settings.node_score_window)
    order = config.node_sort_policy or (AS_KAI if partition.settings.policy == KAI else FAIR)
    partition.nodes.set_policy(order, config.resource_weights)
    partition.configure(
        preemption_enabled=config.preemption_enabled,
        quota_preemption_enabled=config.quota_preemption_enabled,
        rules=config.rules,
        is_removed=config.is_removed,
    )
    limits = _limits(partition)
    _apply(partition, partition.root, config.root, {})
    partition.root.forget_turns()
    partition.configure(queues={queue.path: queue for queue in depth_first(partition.root)})
    _requeue_all(partition)
    for queue in partition.queues.values():
        for entry in limit_changes(queue, *limits.get(queue.path, ({}, {}))):
            partition.journal.record(entry)
    if any(queue.status == DRAINING for queue in partition.queues.values()):
        clean_later(partition)


def _levels_of_spares(root: QueueConfig) -> tuple[str, ...]:
    """Levels on which queues, or their templates, state spare nodes, in file order."""
    levels: dict[str, None] = {}
    stack = [root]
    while stack:
        queue = stack.pop()
        stack += reversed(queue.children)
        stated = (queue.properties, queue.template.properties if queue.template else {})
        found = (parse_spares(properties.get(SPARES, "")) for properties in stated)
        levels.update((level, None) for level, number in filter(None, found) if number)
    return tuple(levels)


def _limits(partition: Partition) -> dict[str, tuple[dict[str, Limit], dict[str, Limit]]]:
    """Return every queue's limits for users and groups."""
    return {path: (q.user_limits, q.group_limits) for path, q in partition.queues.items()}


def conflict(partition: Partition, config: PartitionConfig) -> str:
    """Return why a configuration cannot be applied to the present tree, "" if it can.

    A leaf cannot become a parent while it has applications.
    """
    held = partition.configured
    applied = held.root if isinstance(held, PartitionConfig) else None
    stack = [(partition.root, config.root, applied)]
    while stack:
        queue, wanted, before = stack.pop()
        becomes_parent = wanted.parent or bool(wanted.children)
        if queue.is_leaf and becomes_parent and queue.applications:
            return (
                f"queue {queue.path} has {len(queue.applications)} applications and cannot become "
                "a parent: let it drain first"
            )
        stack += _to_judge(queue, wanted, before)
    return ""


def _to_judge(
    queue: Queue, wanted: QueueConfig, before: QueueConfig | None
) -> list[tuple[Queue, QueueConfig, QueueConfig | None]]:
    """Return the children of a queue with a changed configuration."""
    held = before.children if before is not None else ()
    pairs: list[tuple[QueueConfig, QueueConfig | None]]
    if len(held) == len(wanted.children):
        pairs = [(new, old) for old, new in _unlike(held, wanted.children)]
    else:
        pairs = [(new, None) for new in wanted.children]
    found = ((queue.children.get(new.name), new, old) for new, old in pairs)
    return [(child, new, old) for child, new, old in found if child is not None]


def _apply(
    partition: Partition, queue: Queue, config: QueueConfig, inherited: dict[str, str]
) -> None:
    above = queue.parent
    is_root = above is None  # the root's limits are not configured
    is_leaf = not (config.parent or config.children or is_root)
    becomes_leaf = is_leaf and bool(queue.children)
    partition.set(
        queue,
        is_leaf=is_leaf and not becomes_leaf,
        becomes_leaf=becomes_leaf,
        is_managed=True,
        status=ACTIVE,
        properties={**inheritable(inherited), **config.properties},
        max_applications=queue.max_applications if is_root else config.max_applications,
        max_resource=queue.max_resource if is_root else config.max_resource,
        guaranteed_resource=config.guaranteed_resource,
        submit_access=config.submit_access,
        admin_access=config.admin_access,
        user_limits=config.user_limits,
        group_limits=config.group_limits,
        template=config.template or (above.template if above is not None else None),
    )
    if above is None:
        queue.configure(settings_of_root(queue.properties))
    else:
        queue.configure(settings_as_stated(tuple(queue.properties.items())))
    wanted = {child.name for child in config.children}
    for child in queue.children.values():
        if child.name not in wanted and (child.is_managed or becomes_leaf):
            _drain(partition, child)
        elif child.name not in wanted and child.status == DRAINING:
            _let_live(partition, child)
    for child_config in config.children:
        if child_config.name not in queue.children:
            queue_moves.add(partition, Queue(child_config.name, queue))
        _apply(partition, queue.children[child_config.name], child_config, queue.properties)


def _drain(partition: Partition, queue: Queue) -> None:
    for below in depth_first(queue):
        if below.is_managed or not queue.is_managed:
            partition.set(below, status=DRAINING)


def _let_live(partition: Partition, queue: Queue) -> None:
    """Reactivate a dynamic queue and those below it: the queue above is a parent again."""
    for below in depth_first(queue):
        partition.set(below, status=ACTIVE)


def _find_owner(partition: Partition, application: Application) -> None:
    """Find the users and groups whose limits apply, and record changes."""
    before = application.trackers
    if application_moves.find_group(partition, application):
        partition.journal.record(ApplicationChanged(application))
        for tracker in dict.fromkeys((*before, *application.trackers)):
            partition.journal.record(UsageChanged(tracker))
            queueing.requeue(tracker.wait_list)
    if application_ledger.rejoin_buckets(application):
        partition.record_asks(application)


def _requeue_all(partition: Partition) -> None:
    """Requeue everything: limits, order and users may have changed."""
    _requeue_in(partition, list(partition.queues.values()))
    for tracker in partition.users.all():
        queueing.requeue(tracker.wait_list)
        partition.journal.record(UsageChanged(tracker))
    for shape in list(partition.blocked_shapes):
        partition.requeue_shape(shape)


def _requeue_in(partition: Partition, queues: list[Queue]) -> None:
    """Requeue everything in some queues: their limits or order changed."""
    found = (application for queue in queues for application in queue.applications.values())
    inside = sorted(found, key=lambda application: application.sequence)
    _consider_all(inside)
    for queue in queues:
        partition.journal.record(QueueChanged(queue))
        queue.forget_order()
    for application in inside:
        _find_owner(partition, application)
        queueing.reorder(application)
        if application.waiting_among is not None:
            queueing.activate(application)  # the starvation guard checks it again
        else:
            queueing.enter(application)
    for queue in queues:
        queueing.requeue_all(queue.wait_list)
        queueing.requeue(queue.quota_wait_list)
        for bucket in [each for each in queue.buckets.values() if each.is_blocked_by_nodes]:
            partition.requeue_shape(bucket.shape)
    partition.retry_replacements()


def _consider_all(applications: list[Application]) -> None:
    """Dissolve all equivalence classes of some applications."""
    for application in applications:
        if application.waits_in is not None:
            queueing.activate(application)
        queueing.was_tried(application)
