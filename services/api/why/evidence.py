"""The evidence for a reason: what limits and nodes have left, and what is waited for."""

from operator import itemgetter

from services.api.projection.model import ApplicationView, Model
from services.api.why.answer import Failure, LimitRow, Nearest, NodeClass, Nodes, WaitsFor
from services.api.why.when import moment_text
from shared.messages.state import ApplicationSummary, AskState, Waiting
from shared.model.amounts import amount_text, amounts_text
from shared.model.duration import parse_go_duration
from shared.model.reasons import NodeEvidence, Reason
from shared.model.resources import Resource
from shared.model.sentences import cure_text, left_text, period_text

MOST_SHOWN = 50  # rows of a kind
FOLLOWS = (  # from another reason of the same application, where there is one
    Reason.GANG_PLACEHOLDERS_PENDING,
    Reason.AWAITING_REPLACEMENT,
    Reason.REPLACING,
)
GANGS_WAIT = (Reason.GANG_HEADROOM, Reason.GANG_PLACES)


def queue_rows(
    model: Model, view: ApplicationView, waiting: Waiting, need: Resource
) -> list[LimitRow]:
    """Return what each queue on the path has left; the recorded limit as recorded."""
    rows: list[LimitRow] = []
    queue = model.queues.get(view.summary.queue_name)
    while queue is not None:
        for name, most in (queue.max_resource or {}).items():
            if name in need:
                left = most - queue.allocated.get(name, 0)
                limit = waiting.limit
                if limit is not None and (limit.owner, limit.resource) == (
                    f"queue {queue.path}",
                    name,
                ):
                    left = limit.left
                owner = f"queue {queue.path}"
                rows.append(_row(owner, queue.path, name, (most, left, need[name])))
        queue = model.queues.get(queue.parent)
    return rows[:MOST_SHOWN]


def limit_rows(
    model: Model, view: ApplicationView, waiting: Waiting, need: Resource
) -> list[LimitRow]:
    """Return what the limits of the user and the group have left."""
    rows: list[LimitRow] = []
    summary, limit = view.summary, waiting.limit
    for owner, state in (
        (f"user {summary.user}", model.users.get(summary.user)),
        (f"group {summary.group}", model.groups.get(summary.group)),
    ):
        for usage in state.usage.values() if state is not None else ():
            if usage.path != summary.queue_name and not summary.queue_name.startswith(
                f"{usage.path}."
            ):
                continue
            for name, most in (usage.max_resource or {}).items():
                if name in need:
                    left = most - usage.usage.get(name, 0)
                    if limit is not None and (limit.owner, limit.queue, limit.resource) == (
                        owner,
                        usage.path,
                        name,
                    ):
                        left = limit.left
                    rows.append(_row(owner, usage.path, name, (most, left, need[name])))
    return rows[:MOST_SHOWN]


def _row(owner: str, path: str, name: str, numbers: tuple[int, int, int]) -> LimitRow:
    most, left, need = numbers
    return LimitRow(
        owner=owner,
        queue_name=path,
        resource=name,
        max=most,
        used=most - left,
        headroom=max(left, 0),
        need=need,
        lacks=max(need - max(left, 0), 0),
    )


def nodes(evidence: NodeEvidence, need: Resource) -> Nodes:
    """Return what the nodes lack by class, the largest class first, and what would help."""
    fails: dict[str, dict[str, int]] = {name: {} for name in evidence.classes}
    for failure in evidence.failures:
        of_class = fails.setdefault(failure.node_class, {})
        of_class[failure.on] = of_class.get(failure.on, 0) + failure.nodes
    return Nodes(
        total=evidence.total,
        classes=[
            NodeClass(
                name=name,
                nodes=evidence.classes.get(name, 0),
                fails=[Failure(what=on, nodes=number) for on, number in found.items()],
            )
            for name, found in fails.items()
        ],
        nearest=Nearest(
            node_id=evidence.nearest,
            lacks=dict(evidence.lacks),
            cure=cure_text(evidence, amounts_text(need)),
        ),
    )


def waits_for(
    model: Model, view: ApplicationView, waiting: Waiting, ask: AskState | None
) -> list[WaitsFor]:
    """Return what a reason makes asks wait for; ``ask`` is the first of them."""
    if waiting.limit is not None:
        kind, name = waiting.limit.kind, waiting.limit.name
        text = left_text(waiting.limit)
        return [WaitsFor(kind=kind, name=name, since=waiting.since_ns, text=text)]
    if waiting.reason == Reason.GANG_PATIENCE:
        return _gang_ahead(model, view)
    if waiting.reason == Reason.RESERVED:
        return _holders(model)
    kind, name = _what(view, Reason(waiting.reason), ask)
    if not kind:
        return []
    return [WaitsFor(kind=kind, name=name, since=waiting.since_ns, text=waiting.text)]


def _what(view: ApplicationView, reason: Reason, ask: AskState | None) -> tuple[str, str]:
    """Return the kind and name of the object of a reason."""
    match reason:
        case Reason.BACKOFF:
            return "time", str(view.summary.backoff_until_ns)
        case Reason.REQUIRED_NODE:
            return "node", ask.required_node if ask is not None else ""
        case Reason.MAX_APPLICATIONS | Reason.ANOTHER_STARTING:
            return "queue", view.summary.queue_name
        case _ if reason in FOLLOWS:
            return "placeholders", view.summary.application_id
        case _:
            return "", ""


def _gang_ahead(model: Model, view: ApplicationView) -> list[WaitsFor]:
    """Return the gang of the same queue that has waited the longest as a whole."""
    found = [
        (waiting.since_ns, other.summary.application_id, waiting)
        for other in model.applications.values()
        if other is not view and other.summary.queue_name == view.summary.queue_name
        for waiting in other.summary.waiting[:1]
        if waiting.reason in GANGS_WAIT
    ]
    if not found:
        return []
    since, name, waiting = min(found, key=lambda item: item[:2])
    return [WaitsFor(kind="application", name=name, since=since, text=waiting.text)]


def overtaken(model: Model, view: ApplicationView) -> str:
    """Name a later application that has started before a gang, and the rule that allows it.

    "" if there is none, or no application can overtake the gang any more.
    """
    own = view.summary
    patience_ns = own.may_be_passed_until_ns - own.submission_time_ns
    if own.may_be_passed_until_ns <= 0 or view.allocations:
        return ""
    later = [
        (other.summary.submission_time_ns, other.summary.application_id)
        for other in model.applications.values()
        if other.summary.queue_name == own.queue_name
        and other.summary.submission_time_ns > own.submission_time_ns
        and any(held.priority <= own.max_request_priority for held in other.allocations.values())
    ]
    if not later:
        return ""
    return (
        f" Application {min(later)[1]} was submitted later and has started before it; queue "
        f"{own.queue_name} allows that until it has waited for {period_text(patience_ns)} "
        "(starvationGuard)."
    )


def over_time(model: Model, view: ApplicationView) -> str:
    """Compare the past usage of an application's queue with that of a sibling that used less.

    At the level nearest to the root with such a sibling that uses or wants something. "" if there
    is none, or usage is not counted.
    """
    path, found = view.summary.queue_name, ""
    while path in model.queues and path.rpartition(".")[0]:
        own = model.queues[path]
        name, used = max(own.used_ppm.items(), key=itemgetter(1), default=("", 0))
        others = [
            (other.used_ppm.get(name, 0), other.path)
            for other in model.children(own.parent)
            if other is not own and (other.allocated or other.pending)
        ]
        if others and min(others)[0] < used:
            least, sibling = min(others)
            found = (
                f" Over time queue {path} has used {used / 10_000:.1f} % of the cluster's {name}, "
                f"and queue {sibling} {least / 10_000:.1f} %"
            )
            fair = (own.fair_share or {}).get(name)
            found += "." if fair is None else f"; its fair share is {amount_text(name, fair)}."
        path = own.parent
    return found


def windows(model: Model, view: ApplicationView) -> str:
    """Name the pods that may be evicted for an application once their minimum runtime is over.

    "" if there are none, or under another policy than kai.
    """
    extra = model.configuration.extra if model.configuration is not None else {}
    own = view.summary
    if extra.get("policy") != "kai" or own.queue_name not in model.queues:
        return ""
    ends = []
    for other in model.applications.values():
        theirs = other.summary
        if not other.allocations or not theirs.began_ns or theirs.queue_name not in model.queues:
            continue
        name, path = _window_of(model, own, other)
        window_ns = parse_go_duration(model.queues[path].properties.get(name, "")) if name else None
        end_ns = theirs.began_ns + (window_ns or 0)
        if window_ns and end_ns > model.time_ns:
            ends.append((end_ns, theirs.application_id, theirs.queue_name, name, window_ns))
    if not ends:
        return ""
    end_ns, name, queue, setting, window_ns = min(ends)
    return (
        f" Application {name} in queue {queue} may be evicted for it from {moment_text(end_ns)} on "
        f"({setting} {period_text(window_ns)})."
    )


def _window_of(model: Model, own: ApplicationSummary, other: ApplicationView) -> tuple[str, str]:
    """Return the property that protects another application from one, and the queue it is read of.

    ("", ""): it is none that would make way.
    """
    theirs = other.summary.queue_name
    if theirs == own.queue_name:
        highest = max(held.priority for held in other.allocations.values())
        return ("preempt.min.runtime", theirs) if highest < own.max_request_priority else ("", "")
    if model.queues[theirs].properties.get("reclaim.min.runtime.of", "").lower() == "queue":
        return "reclaim.min.runtime", theirs
    parts, mine = theirs.split("."), own.queue_name.split(".")
    same = next(
        (at for at, pair in enumerate(zip(parts, mine, strict=False)) if pair[0] != pair[1]), 1
    )
    return "reclaim.min.runtime", ".".join(parts[: same + 1])


def _holders(model: Model) -> list[WaitsFor]:
    """Return the holders of a node's reservations."""
    held = [
        (view.summary.application_id, text.partition("/")[0])
        for view in model.applications.values()
        for text in view.summary.reservations
    ]
    return [
        WaitsFor(kind="application", name=name, since=0, text=f"node {node} is reserved for it")
        for name, node in held[:MOST_SHOWN]
    ]
