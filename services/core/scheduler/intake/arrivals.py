"""Adds the asks of one message; equal asks after the first cost little.

Rule 1: asks are added, or rejected, one by one and in order. The checks, shape and group of the
        first ask of a kind are used for the others.
Rule 2: the sums of application and queues are updated once for each kind, at the end, or earlier if
        an ask changes an existing one.
An ask that is known, that would change its application's state, or whose shape the nodes or a queue
refuse, is added by itself.
"""

from collections.abc import Callable, Iterable

from services.core.scheduler.model.rows import Application, AskGroup
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.model.task_groups import with_group
from services.core.scheduler.statement import application_ledger
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import AllocationAsk
from shared.model.gpus import GPU_SHARE
from shared.model.names import FOREIGN_TAG

TakeOne = Callable[[Partition, AllocationAsk], None]
_KindKey = tuple[str, tuple[tuple[str, int], ...], int, str, bool]


class _Kind:
    """Equal asks of one application; ``uncounted`` of them are not in the sums yet."""

    __slots__ = ("application", "group", "request", "uncounted")

    def __init__(self, application: Application, group: AskGroup, request: AllocationAsk) -> None:
        self.application = application
        self.group = group
        self.request = request
        self.uncounted = 0


def take_all(partition: Partition, requests: Iterable[AllocationAsk], take_one: TakeOne) -> None:
    """Add asks in order; ``take_one`` adds an ask that equals no earlier one."""
    kinds: dict[_KindKey, _Kind] = {}
    pods = partition.nodes.pods
    for request in map(with_group, requests):
        key = (
            request.application_id,
            tuple(request.resource_per_alloc.items()),
            request.priority,
            request.task_group_name,
            request.placeholder,
        )
        kind = kinds.get(key)
        if kind is not None and _is_like(partition, kind, request):
            _join(partition, kind, request)
            continue
        is_first = GPU_SHARE in request.resource_per_alloc
        is_first &= not partition.nodes.devices.are_shared
        if is_first or pods.would_learn(request.constraints) or _is_known(partition, request):
            _count_all(partition, kinds)
        take_one(partition, request)
        application = partition.applications.get(request.application_id)
        group = application.group_of.get(request.allocation_key) if application else None
        if application is not None and group is not None:
            if kind is not None:
                _count(partition, kind)
            kinds[key] = _Kind(application, group, request)
    _count_all(partition, kinds)


def _is_known(partition: Partition, request: AllocationAsk) -> bool:
    application = partition.applications.get(request.application_id)
    return application is not None and request.allocation_key in application.group_of


def _is_like(partition: Partition, kind: _Kind, request: AllocationAsk) -> bool:
    """Whether an ask may join a kind's group without any other change."""
    application, group, key = kind.application, kind.group, request.allocation_key
    constraints, tags = request.constraints, request.allocation_tags
    shape = group.bucket.shape
    return (
        bool(group.asks)  # otherwise the group was removed
        and not partition.moved  # it may be a moved pod with a reserved place
        and request.allow_preempt_self == kind.request.allow_preempt_self
        and group.bucket.refusal is None
        and key not in application.group_of
        and key not in application.allocations
        and key not in application.replacing_ask
        and (constraints is kind.request.constraints or constraints == kind.request.constraints)
        and not 0 < request.create_time_ns < application.submission_time_ns
        and (not tags or FOREIGN_TAG not in tags)
        and partition.nodes.pods.labels_of(tags) == shape.labels
        and shape not in partition.blocked_shapes
    )


def _join(partition: Partition, kind: _Kind, request: AllocationAsk) -> None:
    application, group = kind.application, kind.group
    if request.placeholder:
        application.count_placeholder(request.task_group_name, request.resource_per_alloc)
    created_ns = request.create_time_ns or partition.now_ns
    ask = Ask(request, group.bucket.shape, partition.next_sequence(), created_ns)
    application.join(group, ask)
    partition.ask_joined(application, ask)
    kind.uncounted += 1


def _count_all(partition: Partition, kinds: dict[_KindKey, _Kind]) -> None:
    for kind in kinds.values():
        _count(partition, kind)


def _count(partition: Partition, kind: _Kind) -> None:
    """Add a kind's uncounted asks to the sums."""
    if kind.uncounted:
        shape = kind.group.bucket.shape
        application_ledger.count_waiting(
            kind.application, shape.resource, kind.request.priority, kind.uncounted
        )
        partition.shapes.use(shape, kind.uncounted)
        kind.uncounted = 0
