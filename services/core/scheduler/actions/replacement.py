"""Replacement: real pods take the places of their gang's placeholders.

Rule 1: a placeholder is released once, for one real ask; node, queue and application change in one
        step when the resource manager has confirmed the release.
Rule 2: for a real ask larger than every placeholder of its group several are released
        (``placeholder_sets.py``); it starts when the last has ended.
Rule 3: the node is checked again when the placeholder has ended. If the real ask does not fit
        there, another node is used; if none fits, the ask waits again at its position, and the
        resource manager is told at once that no node fits.
Source: docs/rules/gangs.md#replacement; cases G-01 to G-08, N-10.
"""

from dataclasses import replace
from itertools import chain

from services.core.scheduler.actions import placeholder_sets, unschedulable
from services.core.scheduler.lifecycle.endings import after_placeholders_changed
from services.core.scheduler.model.rows import Application, AskGroup, Node
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.model.task_groups import Replacement, TaskGroupCount
from services.core.scheduler.nodes.filters.base import After
from services.core.scheduler.ordering import queueing
from services.core.scheduler.place.one import node_for
from services.core.scheduler.statement import application_ledger, replacing
from services.core.scheduler.statement.journal import (
    ApplicationChanged,
    PlaceholderTooSmall,
)
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.replacing import REPLACED
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation, TerminationType
from shared.model.reasons import LARGER_THAN_PLACEHOLDER, NODES_WOULD_HELP, Fact, Kind, Refusal
from shared.model.resources import fits_room, go_map, is_zero
from shared.model.sentences import fact_text
from shared.model.states import ApplicationEvent, ApplicationState


def replace_placeholders(partition: Partition, limit: int) -> int:
    """Start at most ``limit`` replacements; return how many were started."""
    started = 0
    while partition.replaceable and started < limit:
        application = partition.next_to_replace()
        started += _replace_in(partition, application, limit - started)
    return started


def _replace_in(partition: Partition, application: Application, limit: int) -> int:
    if not application.task_groups or application.holds_real_back or not application.may_schedule:
        return 0
    started = 0
    groups = [g for g in application.groups.values() if not (g.placeholder or g.is_covered)]
    for group in sorted(groups, key=_head_order):
        counts = application.task_groups.get(group.task_group_name)
        places = _Places(partition, application, group)
        while counts is not None and (counts.held or counts.unclaimed):
            ask = group.head()
            if ask is None:
                break
            if started >= limit:
                partition.check_replacements(application)
                return started
            if not places.find(ask):
                break
            started += 1
    return started


def _head_order(group: AskGroup) -> tuple[int, int, int]:
    head = group.head()
    return head.order if head is not None else (0, 0, 0)


class _Places:
    """Finds placeholders for a group's asks, one after another: all have one shape."""

    def __init__(self, partition: Partition, application: Application, group: AskGroup) -> None:
        self._partition = partition
        self._application = application
        self._group = group
        self._search: placeholder_sets.SetSearch | None = None

    def find(self, ask: Ask) -> bool:
        """Start an ask's replacement; return False if it finds none.

        Without a node the ask is marked unschedulable, so that the cluster scales up.
        """
        partition, application, group = self._partition, self._application, self._group
        partition.set(group, unplaced=None)
        counts = application.task_groups[group.task_group_name]
        fitting: Allocation | None = None
        node: Node | None = None
        if self._search is None:
            fitting, node = _fitting(partition, application, counts, ask)
        if fitting is None:
            return self._release_several(counts, ask)
        node = node or node_for(partition.nodes, ask.shape)
        if node is None:
            refusal = partition.nodes.room.refusal(ask.shape)
            _leave_unplaced(partition, application, group, ask, refusal)
            return False
        replacing.begin(partition, application, ask, fitting, node)
        return True

    def _release_several(self, counts: TaskGroupCount, ask: Ask) -> bool:
        """Release several placeholders for one ask, because none is large enough."""
        partition, application = self._partition, self._application
        first = next(placeholder_sets.candidates(application, counts), None)
        if first is None:
            return False
        if application.starts_in_part:
            self._release_all(counts, ask)
            return False
        if self._search is None:
            if any(
                _is_enough(item, ask) for item in placeholder_sets.candidates(application, counts)
            ):
                return False  # a large enough one is being released already: the gang is ending
            self._search = placeholder_sets.SetSearch(partition, application, counts, ask)
        found = self._search.next()
        if isinstance(found, Refusal):
            _note_too_small(partition, application, ask, first)
            _leave_unplaced(partition, application, self._group, ask, found)
            return False
        node, placeholders = found
        _note_too_small(partition, application, ask, placeholders[0])
        for placeholder in placeholders:
            if placeholder.allocation_key not in application.released:
                _cancel_incompatible(partition, application, placeholder)
        partition.claim_of_placeholders(application, ask, node, placeholders)
        self._search.renew(node, placeholders)
        partition.journal.record(ApplicationChanged(application))
        return True

    def _release_all(self, counts: TaskGroupCount, ask: Ask) -> None:
        """Release every placeholder of the group, as YuniKorn does: each is too small.

        After they have ended the ask is placed as any other.
        """
        for key in list(counts.held):
            placeholder = self._application.allocations[key]
            _note_too_small(self._partition, self._application, ask, placeholder)
            _cancel_incompatible(self._partition, self._application, placeholder)


def _note_too_small(
    partition: Partition, application: Application, ask: Ask, placeholder: Allocation
) -> None:
    """Record once that an ask is larger than its group's placeholders."""
    if ask.is_mismatch_reported:
        return
    message = (
        f"Task group '{placeholder.task_group_name}' in application '{application.id}': "
        f"allocation resources '{go_map(ask.shape.resource)}' are not matching "
        f"placeholder '{go_map(placeholder.resource_per_alloc)}' allocation with ID "
        f"'{placeholder.allocation_key}'"
    )
    partition.set(ask, is_mismatch_reported=True)
    fact = Fact(
        Kind.LARGER_THAN_PLACEHOLDER,
        placeholder.task_group_name,
        amount=ask.shape.resource,
        room=placeholder.resource_per_alloc,
    )
    partition.set(application, message=message, fact=fact)
    application.note(LARGER_THAN_PLACEHOLDER, fact_text(fact))
    partition.journal.record(PlaceholderTooSmall(application, ask, message))


def _fitting(
    partition: Partition, application: Application, counts: TaskGroupCount, ask: Ask
) -> tuple[Allocation | None, Node | None]:
    """Return a large enough placeholder for an ask, and its node if the ask fits there.

    It is the first whose node fits, else the first; those already released for no ask come first.
    """
    first: Allocation | None = None
    for key in chain(counts.unclaimed, counts.held):
        placeholder = application.allocations[key]
        if application.released.get(key, REPLACED) != REPLACED or not _is_enough(placeholder, ask):
            continue
        node = partition.nodes.nodes.get(placeholder.node_id)
        takes = partition.nodes.filters.takes
        if node is not None and takes.holds(node, ask.shape, After((placeholder,))):
            return placeholder, node
        first = first or placeholder
    return first, None


def _is_enough(placeholder: Allocation, ask: Ask) -> bool:
    return fits_room(placeholder.resource_per_alloc, ask.shape.resource)


def _leave_unplaced(
    partition: Partition, application: Application, group: AskGroup, ask: Ask, refusal: Refusal
) -> None:
    """Let a group wait; if more nodes would help, mark as many asks as it has placeholders."""
    partition.set(group, unplaced=refusal)
    partition.wait_to_replace(application)
    held = len(application.task_groups[group.task_group_name].held)
    if refusal.reason in NODES_WOULD_HELP:
        unschedulable.mark_group(partition, group, ask, refusal, held)
    partition.journal.record(ApplicationChanged(application))


def _cancel_incompatible(
    partition: Partition, application: Application, placeholder: Allocation
) -> None:
    partition.release(
        application,
        placeholder.allocation_key,
        TerminationType.TIMEOUT,
        "cancel placeholder: resource incompatible",
    )


# --- the end of a placeholder ---------------------------------------------------------------------


def placeholder_gone(
    partition: Partition, application: Application, key: str, why: TerminationType
) -> None:
    """Remove an ended placeholder; a real pod takes its place, or it is lost.

    It counts as replaced if a real pod has its place, or was to have it; else as timed out
    (docs/rules/gangs.md#replacement).
    """
    had_real = not is_zero(application.allocated)
    placeholder = application.allocations[key]
    swap = replacing.end(application, key)
    ready = partition.placeholder_changed(application, key, None)
    partition.remove_allocation(application, key, why)
    real: Allocation | None = None
    if swap is not None:
        real = _at_its_node(partition, swap)
    elif why is REPLACED:
        real = _adopted(partition, application, placeholder)
    is_replaced = real is not None or why is REPLACED
    replacing.count_end(application, placeholder, is_replaced=is_replaced)
    if real is not None:
        _swap_in(partition, application, real, placeholder, had_real=had_real)
    else:
        partition.change_usage(application, placeholder.resource_per_alloc, {})
        partition.claim_for_gang(application)
        partition.check_replacements(application)
    if swap is not None and real is None:
        replacing.fail(partition, application, key)
        _wait_again(partition, application, swap.ask)
    if ready is not None:
        _start_after_several(partition, application, ready)
    if application.counts_of(placeholder).is_used_up:
        if application.enforces_minimum:
            partition.note_minimum(application)
        queueing.enter(application)
    after_placeholders_changed(partition, application)


def _swap_in(
    partition: Partition,
    application: Application,
    real: Allocation,
    placeholder: Allocation,
    *,
    had_real: bool,
) -> None:
    """Add a real allocation whose placeholder's end was confirmed."""
    replacing.finish(partition, application, real, placeholder)
    partition.arm_execution(application, real)
    if application.state is ApplicationState.COMPLETING or (
        application.state is ApplicationState.ACCEPTED and had_real
    ):
        partition.fire(application, ApplicationEvent.RUN)


def _start_after_several(partition: Partition, application: Application, ask_key: str) -> None:
    """Allocate a real ask after all of its placeholders ended; its node is checked again."""
    ask = application.group_of[ask_key].asks[ask_key]
    claim = partition.end_placeholder_claim(application, ask_key)
    own = partition.nodes.nodes.get(claim.node.node_id)
    node = node_for(partition.nodes, ask.shape, own=own if own is claim.node else None)
    if node is None:
        application_ledger.set_in_replacement(application, ask, is_covered=False)
        queueing.enter(application)
        partition.check_replacements(application)
        _fail(partition, application, ask)
        return
    allocation = partition.allocate(application, ask, node)
    if application.state is not ApplicationState.RUNNING:
        partition.fire(application, ApplicationEvent.RUN)
    partition.arm_execution(application, allocation)


def _at_its_node(partition: Partition, swap: Replacement) -> Allocation | None:
    """Return the real allocation with a node that fits now, None if none does.

    The node chosen at the release may have been drained, resized, changed or removed since.
    """
    if swap.is_placed:
        partition.free_node(swap.allocation)  # it must not block itself
    shape = partition.present_shape(swap.ask)
    own = partition.nodes.nodes.get(swap.allocation.node_id)
    node = node_for(partition.nodes, shape, own=own)
    if node is None:
        return None
    return swap.allocation if node is own else replace(swap.allocation, node_id=node.node_id)


def _adopted(
    partition: Partition, application: Application, placeholder: Allocation
) -> Allocation | None:
    """Return a real allocation for a placeholder released before a recovery, or None."""
    for group in sorted(application.groups.values(), key=_head_order):
        ask = group.head()
        if (
            ask is None
            or group.placeholder
            or group.is_covered
            or group.task_group_name != placeholder.task_group_name
            or not _is_enough(placeholder, ask)
        ):
            continue
        own = partition.nodes.nodes.get(placeholder.node_id)
        node = node_for(partition.nodes, ask.shape, own=own)
        if node is None:
            _fail(partition, application, ask)
            continue
        partition.dequeue(application, ask)
        released = (placeholder.allocation_key,)
        return allocation_of(ask.request, node.node_id, released, placeholder.devices)
    return None


def real_node_gone(partition: Partition, application: Application, ask_key: str) -> None:
    """Find another node for a replacement whose node was removed."""
    swap = application.replacing[application.replacing_ask[ask_key]]
    node = node_for(partition.nodes, partition.present_shape(swap.ask))
    if node is not None:
        replacing.move(partition, application, ask_key, node)
        return
    replacing.cancel(partition, application, ask_key)
    _wait_again(partition, application, swap.ask)


def _wait_again(partition: Partition, application: Application, ask: Ask) -> None:
    """Return a real ask to its position, and report at once that no node fits."""
    partition.add_ask(application, ask.request, ask.sequence)
    if application.state is ApplicationState.COMPLETING:
        partition.fire(application, ApplicationEvent.RUN)
    queueing.enter(application)
    partition.check_replacements(application)
    group = application.group_of[ask.key]
    _fail(partition, application, group.asks[ask.key])


def _fail(partition: Partition, application: Application, ask: Ask) -> None:
    """Report that no node fits an ask, unless its application has other placeholders to try."""
    group = application.group_of[ask.key]
    counts = application.task_groups[group.task_group_name]
    if counts.held and application.may_schedule and not application.holds_real_back:
        return
    unschedulable.mark_group(partition, group, ask, partition.nodes.room.refusal(ask.shape), most=1)
