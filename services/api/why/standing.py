"""Why an application or a pod waits or runs, from what the core has recorded.

The core is not queried: its state events contain each refusal with its numbers, as soon as the
cycle that made it is published.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import merge
from operator import attrgetter

from services.api.projection.model import ApplicationView, Model
from services.api.projection.topology import pods_by_level
from services.api.why.answer import (
    Eviction,
    Gang,
    Group,
    Level,
    LogLine,
    Mismatch,
    Wait,
    WaitsFor,
    Why,
)
from services.api.why.evidence import (
    FOLLOWS,
    GANGS_WAIT,
    MOST_SHOWN,
    limit_rows,
    nodes,
    over_time,
    overtaken,
    queue_rows,
    waits_for,
    windows,
)
from services.api.why.held import (
    MOST_PODS,
    held_of,
    held_wait,
    waiting_for,
    why_found,
    why_held,
)
from shared.messages.find_pod import PodFound
from shared.messages.interface import HeldFor
from shared.messages.state import AllocationState, AskState, EvictionState, Waiting
from shared.model.gpus import text_of
from shared.model.names import POD_NAME_TAG
from shared.model.reasons import (
    ANNOTATION_IGNORED,
    MISMATCHES,
    TASK_GROUPS_ERROR,
    Fact,
    Kind,
    Reason,
)
from shared.model.resources import Resource, add_into
from shared.model.sentences import IT, fact_text, plain_text, state_text, why_text
from shared.model.states import ApplicationState

_OF_ANNOTATIONS = (TASK_GROUPS_ERROR, ANNOTATION_IGNORED)
_ENDING: dict[str, str] = {
    str(state): "ending" for state in (ApplicationState.COMPLETING, ApplicationState.FAILING)
}
_ENDS_SOON = Waiting("", Reason.REPLACING, "", 0, fact=Fact(Kind.UNCONFIRMED))


@dataclass(slots=True)
class _Asks:
    """Asks that wait for one reason; ``waiting`` None: they were not refused."""

    waiting: Waiting | None
    keys: list[str]
    first: AskState | None
    held: HeldFor | None = None  # pods that were not asked for yet


def why(model: Model, name: str) -> Why | None:
    """Return why an application or a pod is in its state; None for an unknown name."""
    answer = _why(model, name)
    if answer is not None:
        answer.partition = model.name
    return answer


def _why(model: Model, name: str) -> Why | None:
    view = model.application(name)
    if view is not None:
        return _of_application(model, view)
    found = _find_pod(model, name)
    if found is not None:
        return _of_pod(model, *found)
    return why_held(model, name) or _of_evicted(model, name)


def why_of_found(model: Model, found: PodFound) -> Why | None:
    """Return why a pod is held back that only the resource manager knows.

    None if its application is unknown, too.
    """
    if found.held is not None:
        return why_found(found, found.held, model.name)
    view = model.application(found.application_id)
    if view is None:
        return None
    answer = _of_application(model, view)
    answer.name, answer.kind, answer.partition = found.name, "pod", model.name
    if found.end:
        answer.verdict, answer.reason, answer.waits = "ended", "", []
        answer.sentence = f"pod {found.name} has ended: {found.end}."
    else:
        answer.sentence = f"pod {found.name} has not been requested yet: {answer.sentence}"
    return answer


def standing(model: Model, name: str) -> int:
    """Return how well a name is known: 4 a live application, 3 an ended one, 2 a pod, 1 a victim.

    0: unknown. ``why`` uses the same order within a partition.
    """
    application = model.standing(name)
    if application:
        return application + 2
    if name in model.pods_held:
        return 4
    if _find_pod(model, name) is not None or why_held(model, name) is not None:
        return 2
    return int(any(name in (item.allocation_key, item.pod_name) for item in model.evictions))


def evictions(models: Iterable[Model]) -> list[Eviction]:
    """Return the evictions, the latest last."""
    told = [[_eviction(item, "", model.name) for item in model.evictions] for model in models]
    return [*merge(*told, key=attrgetter("time"))]


# --- an application -------------------------------------------------------------------------------


def _of_application(model: Model, view: ApplicationView) -> Why:
    waits = _waits(model, view)
    refused = [item for item in waits if item.waiting is not None]
    summary = view.summary
    answer = Why(
        name=summary.application_id,
        kind="application",
        application_id=summary.application_id,
        queue_name=summary.queue_name,
        state=summary.state,
        verdict="running",
        reason="",
        sentence="",
        since=0,
        mismatches=_mismatches(view),
        waits=[_wait(item) for item in refused],
        gang=_gang(model, view),
        evictions=_evictions_of(model, summary.application_id),
        log=_log(view.asks.values()),
    )
    is_over = view.has_ended or bool(summary.rejected_message)
    if is_over and summary.application_id not in model.pods_held:
        answer = _ended(answer, view)
    elif refused and (summary.state != ApplicationState.FAILING or _restarts(refused[0])):
        answer = _explain(model, view, answer, refused[0])
        answer.sentence += overtaken(model, view) + over_time(model, view)
        answer.sentence += windows(model, view)
    else:
        answer.verdict, answer.sentence = _unrefused(view)
    return _with_annotations(answer)


def _with_annotations(answer: Why) -> Why:
    """Add ignored annotations to the sentence: they may be the cause."""
    for item in answer.mismatches:
        if item.reason in _OF_ANNOTATIONS:
            answer.sentence += f" Problem with its annotations: {item.message}."
    return answer


def _restarts(refused: _Asks) -> bool:
    """Whether waiting pods will start an ended application again."""
    return refused.waiting is not None and refused.waiting.reason == Reason.APPLICATION_ENDING


def _ended(answer: Why, view: ApplicationView) -> Why:
    summary = view.summary
    fact = summary.fact
    text = fact_text(fact) if fact is not None else summary.rejected_message or summary.message
    is_rejected = summary.state == ApplicationState.REJECTED
    answer.verdict = "rejected" if is_rejected else "ended"
    answer.sentence = f"application {answer.name} {state_text(summary.state, 0, 0, 0, text)}."
    answer.since = summary.finished_time_ns
    answer.waits = []
    return answer


def _unrefused(view: ApplicationView) -> tuple[str, str]:
    """Return verdict and sentence of an application without a refusal."""
    summary = view.summary
    held = sum(item.placeholder for item in view.allocations.values())
    running = len(view.allocations) - held
    text = state_text(summary.state, running, held, len(view.asks), summary.text)
    verdict = "running" if running and not view.asks else "starting"
    return _ENDING.get(summary.state, verdict), f"application {summary.application_id} {text}."


def _waits(model: Model, view: ApplicationView) -> list[_Asks]:
    """Group asks by reason: the dominant one first, those without a refusal last."""
    alike: dict[tuple[bool, str, str], list[AskState]] = {}
    for ask in view.asks.values():
        alike.setdefault((ask.placeholder, ask.task_group_name, ask.shape), []).append(ask)
    found: dict[tuple[str, str], _Asks] = {}
    for asks in alike.values():
        waiting = model.why(view, asks[0])
        key = (waiting.reason, waiting.text) if waiting is not None else ("", "")
        item = found.setdefault(key, _Asks(waiting, [], asks[0]))
        item.keys += [ask.allocation_key for ask in asks]
        if waiting is not None and item.waiting is not None and waiting.since_ns:
            since = min(waiting.since_ns, item.waiting.since_ns or waiting.since_ns)
            item.waiting = replace(item.waiting, since_ns=since)
    if view.swapping:
        found[_ENDS_SOON.reason, ""] = _Asks(_ENDS_SOON, list(view.swapping), None)
    for note in view.summary.noted:
        if note.reason == Reason.APPLICATION_ENDING:
            waiting = Waiting("", note.reason, note.message, 0)
            found[note.reason, note.message] = _Asks(waiting, [], None)
    held = [
        _Asks(waiting_for(item), [*item.keys], None, item)
        for item in held_of(model, view.summary.application_id)
    ]
    return sorted((*found.values(), *held), key=_dominance)


def _dominance(item: _Asks) -> tuple[bool, bool, int]:
    if item.waiting is None:
        return (True, True, 0)
    count = item.held.pods if item.held is not None else len(item.keys)
    return (False, item.waiting.reason in FOLLOWS, -count)


def _wait(item: _Asks) -> Wait:
    assert item.waiting is not None
    if item.held is not None:
        return held_wait(item.held)
    return Wait(
        reason=item.waiting.reason,
        message=item.waiting.text,
        since=item.waiting.since_ns,
        asks=len(item.keys),
        pods=item.keys[:MOST_PODS],
    )


def _explain(model: Model, view: ApplicationView, answer: Why, item: _Asks) -> Why:
    """Add the sentence and the evidence of a reason."""
    waiting = item.waiting
    assert waiting is not None
    answer.verdict, answer.reason = "waiting", waiting.reason
    answer.sentence, answer.since = _sentence(answer, waiting), waiting.since_ns
    answer.need = _need(view, item, waiting)
    answer.queues = queue_rows(model, view, waiting, answer.need)
    answer.limits = limit_rows(model, view, waiting, answer.need)
    answer.nodes = nodes(waiting.nodes, answer.need) if waiting.nodes is not None else None
    answer.waits_for = waits_for(model, view, waiting, item.first)
    for victim in _stuck_victims(model, view.summary.application_id):
        name, since_ns = _pod_name(victim), victim.stuck_since_ns
        text = f"victim {name} on {victim.node_id} is stuck: it was evicted and has not ended"
        answer.waits_for.append(WaitsFor(kind="victim", name=name, since=since_ns, text=text))
        answer.sentence += f" {text[0].upper()}{text[1:]}, so its resources are not free yet."
    return answer


def _sentence(answer: Why, waiting: Waiting) -> str:
    text = waiting.text_for(IT) if answer.kind == "pod" else waiting.text
    return why_text(answer.kind, answer.name, waiting.reason, text)


def _pod_name(pod: AllocationState) -> str:
    return pod.tags.get(POD_NAME_TAG) or pod.allocation_key


def _stuck_victims(model: Model, winner: str) -> list[AllocationState]:
    """Return the pods that were evicted for an application and have not ended."""
    found = []
    for eviction in model.evictions:
        view = model.application(eviction.application_id) if eviction.winner == winner else None
        victim = view.allocations.get(eviction.allocation_key) if view is not None else None
        if victim is not None and victim.stuck_since_ns:
            found.append(victim)
    return found[-MOST_SHOWN:]


def _need(view: ApplicationView, item: _Asks, waiting: Waiting) -> Resource:
    """Return the amount that a reason concerns: as recorded, the whole gang's, or one ask's."""
    if waiting.limit is not None:
        return dict(waiting.limit.amount)
    if waiting.reason in GANGS_WAIT:
        total: Resource = {}
        for ask in view.asks.values():
            if ask.placeholder:
                add_into(total, ask.resource)
        return total
    return dict(item.first.resource) if item.first is not None else {}


def _mismatches(view: ApplicationView) -> list[Mismatch]:
    """Return the problems of an application's gang."""
    return [
        Mismatch(reason=note.reason, message=plain_text(note.message))
        for note in view.summary.noted
        if note.reason in MISMATCHES
    ]


def _gang(model: Model, view: ApplicationView) -> Gang | None:
    """Return the progress of the task groups, and why members are missing."""
    placeholders = view.summary.placeholders
    if not placeholders:
        return None
    groups = [
        Group(
            name=group.task_group_name,
            wanted=group.count,
            held=group.allocated,
            replaced=group.replaced,
            timedout=group.timedout,
            missing=max(group.count - group.allocated - group.replaced - group.timedout, 0),
            why=_why_missing(model, view, group.task_group_name),
        )
        for group in placeholders
    ]
    return Gang(
        wanted=sum(group.wanted for group in groups),
        held=sum(group.held for group in groups),
        replaced=sum(group.replaced for group in groups),
        groups=groups,
        domains=[Level(level=name, pods=pods) for name, pods in pods_by_level(model, view)],
    )


def _why_missing(model: Model, view: ApplicationView, group: str) -> str:
    """Return why the first waiting placeholder of a group waits, "" without one."""
    asks = (a for a in view.asks.values() if a.placeholder and a.task_group_name == group)
    ask = next(asks, None)
    waiting = model.why(view, ask) if ask is not None else None
    return f"{waiting.reason}: {waiting.text}" if waiting is not None else ""


def _log(asks: Iterable[AskState]) -> list[LogLine]:
    """Return the summarised allocation logs of asks, the latest entry last."""
    lines: dict[str, LogLine] = {}
    for ask in asks:
        for entry in ask.log:
            line = lines.setdefault(entry.message, LogLine(message=entry.message, count=0, last=0))
            line.count += entry.count
            line.last = max(line.last, entry.last_occurrence_ns)
    return sorted(lines.values(), key=lambda line: line.last)[-MOST_SHOWN:]


def _evictions_of(model: Model, application_id: str) -> list[Eviction]:
    found = [
        _eviction(item, "victim" if item.application_id == application_id else "winner", model.name)
        for item in model.evictions
        if application_id in (item.application_id, item.winner)
    ]
    return found[-MOST_SHOWN:]


def _eviction(item: EvictionState, role: str, partition: str) -> Eviction:
    return Eviction(
        time=item.time_ns,
        role=role,
        victim=item.allocation_key,
        victim_name=item.pod_name,
        victim_application=item.application_id,
        queue_name=item.queue_name,
        winner=item.winner,
        ask=item.winning_ask,
        node_id=item.node_id,
        resource=dict(item.resource),
        law=item.law,
        message=item.message,
        partition=partition,
    )


# --- a pod ----------------------------------------------------------------------------------------

_Pod = tuple[ApplicationView, AskState | AllocationState]


def _find_pod(model: Model, name: str) -> _Pod | None:
    """Return a pod by its allocation key, else by its own name."""
    for view in model.applications.values():
        known = view.asks.get(name) or view.allocations.get(name)
        if known is not None:
            return view, known
    for view in model.applications.values():
        pods: list[AskState | AllocationState] = [*view.asks.values(), *view.allocations.values()]
        for pod in pods:
            if pod.tags.get(POD_NAME_TAG) == name:
                return view, pod
    return None


def _of_pod(model: Model, view: ApplicationView, pod: AskState | AllocationState) -> Why:
    key = pod.allocation_key
    name = pod.tags.get(POD_NAME_TAG, key)
    who = f"pod {name}"
    answer = Why(
        name=name,
        kind="pod",
        application_id=view.summary.application_id,
        queue_name=view.summary.queue_name,
        state=view.summary.state,
        verdict="running",
        reason="",
        sentence="",
        since=0,
        mismatches=_mismatches(view),
        gang=_gang(model, view) if pod.task_group_name else None,
        evictions=[e for e in _evictions_of(model, pod.application_id) if key in (e.victim, e.ask)],
    )
    held = next((row for row in held_of(model, pod.application_id) if key in row.keys), None)
    if held is not None:
        item = _Asks(waiting_for(held), [key], None, held)
        answer.waits = [_wait(item)]
        return _explain(model, view, answer, item)
    if isinstance(pod, AllocationState):
        what = "holds a place for its gang" if pod.placeholder else "runs"
        answer.since = pod.allocation_time_ns
        devices = f", GPU {text_of(pod.devices)}" if pod.devices else ""
        answer.sentence = f"{who} {what} on {pod.node_id}{devices}."
        if pod.stuck_since_ns:
            answer.verdict = "evicted" if answer.evictions else "ended"
            answer.since = pod.stuck_since_ns
            answer.sentence = (
                f"{who} on {pod.node_id} was released and has not ended: it is stuck, its "
                "resources are not free yet, and other pods may be evicted instead."
            )
        elif pod.released:
            answer.verdict = "evicted" if answer.evictions else "ended"
            text = f": {answer.evictions[-1].message}" if answer.evictions else ""
            answer.sentence = f"{who} on {pod.node_id} is being released{text}."
        return _with_annotations(answer)
    answer.log = _log([pod])
    waiting = model.why(view, pod)
    if waiting is None:
        answer.verdict = "starting"
        answer.sentence = f"{who} is next in line: it has not been refused."
        return _with_annotations(answer)
    item = _Asks(waiting, [key], pod)
    answer.waits = [_wait(item)]
    return _with_annotations(_explain(model, view, answer, item))


def _of_evicted(model: Model, name: str) -> Why | None:
    """Return why a deleted pod was evicted; None if it was not, or long ago."""
    found = [e for e in model.evictions if name in (e.allocation_key, e.pod_name)]
    if not found:
        return None
    last = found[-1]
    winner = f" for application {last.winner}" if last.winner else ""
    text = f"pod {last.pod_name or name} was evicted from {last.node_id}{winner} by the policy "
    view = model.application(last.application_id)
    return Why(
        name=last.pod_name or name,
        kind="pod",
        application_id=last.application_id,
        queue_name=last.queue_name,
        state=view.summary.state if view is not None else "",
        verdict="evicted",
        reason="",
        sentence=f"{text}{last.law}: {last.message}.",
        since=last.time_ns,
        evictions=[_eviction(item, "victim", model.name) for item in found],
    )
