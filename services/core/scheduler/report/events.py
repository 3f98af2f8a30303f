"""Events for users, in YuniKorn's words and numbers.

Only those that the API cannot derive from state events: it creates events of applications, asks,
allocations, nodes, queues and usage itself (ADR 23).

An ask without headroom has one event, and another when it fits again. Of asks that wait behind one
another only the first has one: there is never an event for every waiting pod.
Source: docs/rules/events.md#numbers and docs/rules/events.md#what-is-recorded; case U-07.
"""

from collections.abc import Callable
from typing import Any

from services.core.scheduler.statement import journal
from shared.messages.state import EventState
from shared.model.causes import causes_of
from shared.model.event_codes import ChangeDetail, ChangeType, EventType
from shared.model.names import ROOT
from shared.model.reasons import PREDICATES
from shared.model.resources import go_map
from shared.model.sentences import period_text

REQUEST, APP, NODE, QUEUE, USERGROUP = (
    EventType.REQUEST,
    EventType.APP,
    EventType.NODE,
    EventType.QUEUE,
    EventType.USERGROUP,
)
SET, REMOVE = ChangeType.SET, ChangeType.REMOVE
_D = ChangeDetail


def _headroom_lacking(entry: journal.HeadroomLacking, now_ns: int) -> list[EventState]:
    ask = entry.ask
    amounts = f"(requested {go_map(ask.shape.resource)}, available {go_map(entry.available)})"
    if entry.is_user:
        text = f"Request '{ask.key}' exceeds the available user quota {amounts}"
    else:
        queue = entry.application.queue.path
        text = f"Request '{ask.key}' does not fit in queue '{queue}' {amounts}"
    return [EventState(REQUEST, ask.key, text, now_ns, reference_id=entry.application.id)]


def _headroom_found(entry: journal.HeadroomFound, now_ns: int) -> list[EventState]:
    key, queue = entry.ask.key, entry.application.queue.path
    if entry.is_user:
        text = f"Request '{key}' fits in the available user quota"
    else:
        text = f"Request '{key}' has become schedulable in queue '{queue}'"
    return [EventState(REQUEST, key, text, now_ns, reference_id=entry.application.id)]


def _runnable_changed(entry: journal.RunnableChanged, now_ns: int) -> list[EventState]:
    by_queue = (_D.APP_CANNOTRUN_QUEUE, _D.APP_RUNNABLE_QUEUE)
    by_quota = (_D.APP_CANNOTRUN_QUOTA, _D.APP_RUNNABLE_QUOTA)
    detail = (by_quota if entry.is_user else by_queue)[entry.may_run]
    return [EventState(APP, entry.application.id, "", now_ns, change_detail=detail)]


def _limit_changed(entry: journal.LimitChanged, now_ns: int) -> list[EventState]:
    limit = entry.limit
    return [
        EventState(
            USERGROUP,
            entry.name,
            "",
            now_ns,
            change_type=REMOVE if limit is None else SET,
            change_detail=_D.UG_GROUP_LIMIT if entry.is_group else _D.UG_USER_LIMIT,
            reference_id=entry.queue.path,
            resource=(limit.max_resource if limit is not None else None) or {},
        )
    ]


def _preempted(entry: journal.Preempted, now_ns: int) -> list[EventState]:
    key = entry.allocation.allocation_key
    return [EventState(REQUEST, key, entry.text, now_ns, reference_id=entry.application.id)]


def _no_victim(entry: journal.NoVictim, now_ns: int) -> list[EventState]:
    key, node = entry.ask.key, entry.ask.shape.constraints.required_node
    text = f"Unschedulable request '{key}' with required node '{node}', no preemption victim found"
    return [EventState(REQUEST, key, text, now_ns, reference_id=entry.application.id)]


def _nodes_closed(entry: journal.NodesClosed, now_ns: int) -> list[EventState]:
    key, evidence = entry.ask.key, entry.refusal.nodes
    failed = causes_of(evidence, PREDICATES) if evidence is not None else {}
    why = "; ".join(f"{text} ({nodes}x)" for text, nodes in failed.items())
    text = f"Unschedulable request '{key}': {why}"
    return [EventState(REQUEST, key, text, now_ns, reference_id=entry.application.id)]


def _bind_failed(entry: journal.BindFailed, now_ns: int) -> list[EventState]:
    text = f"Request '{entry.key}' could not be bound and waits again: {entry.reason}"
    return [EventState(REQUEST, entry.key, text, now_ns, reference_id=entry.application.id)]


def _placeholder_too_small(entry: journal.PlaceholderTooSmall, now_ns: int) -> list[EventState]:
    reference = entry.application.id
    return [EventState(REQUEST, entry.ask.key, entry.text, now_ns, reference_id=reference)]


def _noted(entry: journal.Noted, now_ns: int) -> list[EventState]:
    note = entry.note
    key = note.allocation_key or note.application_id
    text = f"{note.reason}: {note.message}"
    return [EventState(REQUEST, key, text, now_ns, reference_id=note.application_id)]


def _stuck(entry: journal.Stuck, now_ns: int) -> list[EventState]:
    key, since_ns = entry.allocation.allocation_key, entry.application.stuck
    for_ns = now_ns - since_ns.get(key, now_ns)
    text = (
        f"it was released {period_text(for_ns)} ago and has not ended: it is stuck, its resources "
        f"on node {entry.allocation.node_id} are not free yet, and other pods may be evicted "
        "instead"
    )
    return [EventState(REQUEST, key, text, now_ns, reference_id=entry.application.id)]


def _pair_held(entry: journal.PairHeld, now_ns: int) -> list[EventState]:
    text = (
        f"applications {entry.one} and {entry.other} evicted each other in turn: neither may "
        "evict the other for 10 minutes"
    )
    return [
        EventState(APP, name, text, now_ns, reference_id=reference)
        for name, reference in ((entry.one, entry.other), (entry.other, entry.one))
    ]


def _quota_enforced(entry: journal.QuotaEnforced, now_ns: int) -> list[EventState]:
    victims = entry.victims
    text = (
        f"Quota Preemption results summary: preemptable resources: {go_map(entry.wanted)}, claimed "
        f"resources: {go_map(entry.claimed)}, selected victims: {victims}, "
        f"preempted victims: {victims}"
    )
    path, detail = entry.queue.path, _D.QUEUE_PREEMPTION
    return [EventState(QUEUE, path, text, now_ns, change_type=SET, change_detail=detail)]


def _not_sent(entry: journal.NotSent, now_ns: int) -> list[EventState]:
    text = f"it could not be sent, and was set aside: {entry.reason}"
    return [EventState(APP, entry.name, text, now_ns)]


def _configuration_refused(entry: journal.ConfigurationRefused, now_ns: int) -> list[EventState]:
    text = f"the queue configuration was refused, nothing has changed: {entry.error}"
    return [EventState(QUEUE, ROOT, text, now_ns, change_type=SET)]


def _node_rejected(entry: journal.NodeRejected, now_ns: int) -> list[EventState]:
    return [EventState(NODE, entry.info.node_id, entry.reason, now_ns)]


WRITERS: dict[type, Callable[[Any, int], list[EventState]]] = {
    journal.HeadroomLacking: _headroom_lacking,
    journal.HeadroomFound: _headroom_found,
    journal.RunnableChanged: _runnable_changed,
    journal.LimitChanged: _limit_changed,
    journal.Preempted: _preempted,
    journal.NoVictim: _no_victim,
    journal.NodesClosed: _nodes_closed,
    journal.BindFailed: _bind_failed,
    journal.PlaceholderTooSmall: _placeholder_too_small,
    journal.Noted: _noted,
    journal.PairHeld: _pair_held,
    journal.Stuck: _stuck,
    journal.QuotaEnforced: _quota_enforced,
    journal.NotSent: _not_sent,
    journal.ConfigurationRefused: _configuration_refused,
    journal.NodeRejected: _node_rejected,
}
