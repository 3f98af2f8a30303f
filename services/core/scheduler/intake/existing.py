"""Adds allocations that exist, of one message or of a whole recovery, with few updates of sums.

Rule 1: they are checked one by one and in order. A plain one is put on its node at once, and added
        to the sums together with others.
Rule 2: an allocation is plain if it is new, real, and changes only sums: no state, ask, timer,
        order or limit. Before any other is added, all plain ones are counted.
Rule 3: the plain allocations of a recovery are counted once, before any other message is handled:
        no sum is read earlier.
"""

from collections.abc import Callable, Sequence

from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.statement.existing import Existing
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.gpus import GPU_SHARE
from shared.model.names import FOREIGN_TAG
from shared.model.numbers import INT32
from shared.model.resources import is_negative, is_zero
from shared.model.states import ApplicationState

TakeOne = Callable[[Partition, Allocation], None]


def take_all(
    partition: Partition,
    found: Sequence[Allocation],
    take_one: TakeOne,
    held: Existing | None = None,
) -> None:
    """Add allocations in order; ``take_one`` adds those that are not plain.

    With ``held``, plain ones are added to it and counted when the caller decides.
    """
    if not found:
        return
    is_last, held = held is None, held or Existing(partition)
    running: dict[str, Application] = {}
    nodes = partition.nodes.nodes
    for allocation in found:
        application = running.get(allocation.application_id)
        if application is None:
            application = _running(partition, allocation.application_id)
            if application is not None:
                running[application.id] = application
        node = nodes.get(allocation.node_id)
        if application and node and _is_plain(application, allocation, node):
            held.hold(application, allocation, node)
        else:
            held.count()
            take_one(partition, allocation)
    if is_last:
        held.count()


def _running(partition: Partition, name: str) -> Application | None:
    """Return an application unless one more allocation may change its state or a quota's delay."""
    application = partition.applications.get(name)
    if application is None or application.state is not ApplicationState.RUNNING:
        return None
    levels = application.queue.lineage() if partition.quota_preemption_enabled else ()
    has_delay = any(level.settings.quota_preemption_delay_ns for level in levels)
    return None if has_delay else application


def _is_plain(application: Application, allocation: Allocation, node: Node) -> bool:
    key, tags = allocation.allocation_key, allocation.allocation_tags
    return not (
        allocation.placeholder
        or allocation.released
        or allocation.exec_timeout_milli_seconds > 0
        or (tags and FOREIGN_TAG in tags)
        or allocation.constraints.asks_about_pods
        or key in application.allocations
        or key in application.group_of
        or key in application.replacing_ask
        or key in node.allocations
        or 0 < allocation.create_time_ns < application.submission_time_ns
        or allocation.priority not in INT32
        or is_zero(allocation.resource_per_alloc)
        or is_negative(allocation.resource_per_alloc)
        or GPU_SHARE in allocation.resource_per_alloc
        or (
            application.is_kai
            and not (application.is_non_preemptible or allocation.allow_preempt_self)
        )
    )
