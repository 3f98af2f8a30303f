"""The sentences of refusals: each is written here, from its values, and nowhere else.

`muster why`, `muster apps`, the live page, REST and the conditions of pods all show these words. A
sentence is never read again: a number of it is among the values.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from shared.model.amounts import amount_text, amounts_text
from shared.model.causes import causes_text, unavailable_text
from shared.model.duration import go_duration
from shared.model.names import ROOT
from shared.model.reasons import (
    DOMAIN,
    OTHER_PODS,
    PLUGIN,
    SELECTOR,
    TAINTS,
    TAKEN,
    TOO_SMALL,
    UNSCHEDULABLE,
    VOLUMES,
    Fact,
    HeldNodes,
    Kind,
    NodeEvidence,
    Reason,
    Refusal,
    Shortage,
)
from shared.model.states import ApplicationState
from shared.model.units import NANOS_PER_SECOND

ONE_OF_ITS, IT = "one of its asks", "it"  # what needs something: of an application, of a pod
_FOR: dict[str, str] = {
    Kind.WHOLE_GANG: "the whole gang",
    Kind.ANY_MEMBER: "a member of its gang",
}
_NO_NODES = NodeEvidence(0, {})
_NO_FACT = Fact("")
_NAMES_MORE = (Reason.VOLUMES, Reason.PLUGIN)  # whose sentence names a claim, driver or plugin
_OF_DOMAINS = (Kind.DOMAINS, Kind.SLICES, Kind.WORDS)  # what no node by itself says
_LEADS: dict[str, str] = {
    Reason.GANG_PLACES: "waits for places for its whole gang",
    Reason.GANG_PATIENCE: "waits its turn",
    Reason.GANG_PLACEHOLDERS_PENDING: "waits for its gang",
    Reason.AWAITING_REPLACEMENT: "waits to take its placeholders' places",
    Reason.REPLACING: "is about to start",
    Reason.MAX_APPLICATIONS: "waits for another application to end",
    Reason.ANOTHER_STARTING: "waits for another application to start",
    Reason.BACKOFF: "is left out for a while",
    Reason.REQUIRED_NODE: "waits for the one node that it must have",
    Reason.NO_NODE_FITS: "waits for room",
    Reason.NODE_TOO_SMALL: "cannot start",
    Reason.CONSTRAINTS: "cannot start",
    Reason.VOLUMES: "waits for its volumes",
    Reason.DEVICES: "waits for its devices",
    Reason.TOPOLOGY: "waits for room where its gang is",
    Reason.PLUGIN: "is held back by a plugin",
    Reason.APPLICATION_ENDING: "waits for the end of what was before it",
    Reason.POD_GROUP: "waits for its PodGroup",
    Reason.SCHEDULING_GATED: "waits for its scheduling gates",
    Reason.POD_REFUSED: "cannot be scheduled",
    Reason.MISSING_RIGHTS: "is held up by the API server",
}  # of the others: waits


class Refused(Protocol):
    """A refusal, where it is made or where it is shown."""

    @property
    def reason(self) -> str:
        """Return its reason."""

    @property
    def fact(self) -> Fact | None:
        """Return its numbers."""

    @property
    def nodes(self) -> NodeEvidence | None:
        """Return what the nodes lack."""

    @property
    def limit(self) -> Shortage | None:
        """Return what a limit lacks."""


def why_text(kind: str, name: str, reason: str, text: str) -> str:
    """Return a whole sentence about a pod or an application: ``pod a waits: ...``."""
    return f"{kind} {name} {_LEADS.get(reason, 'waits')}: {text}."


def state_text(state: str, running: int, held: int, waiting: int, message: str) -> str:
    """Return what is true of an application in a state that nothing refuses, after its name.

    ``running`` pods, ``held`` placeholders and ``waiting`` asks are its own; ``message`` is why it
    fails or has ended, "" where that is not said.
    """
    more = f": {_GO_WORDS.get(message, message)}" if message else ""
    if state in _IN_STATE:
        return _IN_STATE[state](running, held, more)
    if waiting:
        return f"is next in line: {_pods(waiting)} {_verb(waiting, 'wait')} and were not refused"
    if held and running:
        return f"runs {_pods(running)} and holds places for {_pods(held)} more of its gang"
    if held:
        return f"holds places for {_pods(held)} of its gang; its own pods are still to come"
    if running:
        return f"runs: {_pods(running)}, and nothing of it waits"
    return "has asked for nothing yet: its pods are still to come"


def _completing(_: int, held: int, more: str) -> str:
    if held:
        releases = f"{_pods(held)} of its gang {_verb(held, 'hold')} places that are released"
        return f"is completing{more}: {releases} unless new pods come within half a minute"
    return (
        f"is completing{more}: none of its pods runs or waits any more; after half a minute "
        "without new pods it is Completed"
    )


def _failing(running: int, held: int, more: str) -> str:
    left = running + held
    return f"is failing{more}; {_pods(left)} {_verb(left, 'have', 'has')} yet to end"


def _resuming(_running: int, held: int, _why: str) -> str:
    return (
        "did not get its gang in time and goes on without one: it starts its own pods when "
        f"{_pods(held)} that {_verb(held, 'hold')} places {_verb(held, 'have', 'has')} gone"
    )


_IN_STATE: dict[str, Callable[[int, int, str], str]] = {
    ApplicationState.COMPLETING: _completing,
    ApplicationState.FAILING: _failing,
    ApplicationState.RESUMING: _resuming,
    ApplicationState.REJECTED: lambda _running, _held, more: f"was rejected{more}",
    ApplicationState.COMPLETED: lambda _running, _held, more: f"has completed{more}",
    ApplicationState.FAILED: lambda _running, _held, more: f"has failed{more}",
    ApplicationState.EXPIRED: lambda _running, _held, more: f"has ended, and has expired{more}",
}


_GO_WORDS = {  # what YuniKorn's answers say in a word
    "ResourceReservationTimeout": "the gang did not get all its places within its placeholder "
    "timeout (ResourceReservationTimeout)",
}


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _verb(count: int, plural: str, singular: str = "") -> str:
    return (singular or f"{plural}s") if count == 1 else plural


def fact_text(fact: Fact) -> str:
    """Return what a fact says that stands for itself."""
    return text_of(Refusal(Reason.POD_REFUSED, fact))


def text_of(refused: Refused, subject: str = ONE_OF_ITS) -> str:
    """Return what a refusal says; of a kind that is not known, as far as its other values go.

    ``subject`` is what needs something where a limit is short, unless that is its gang.
    """
    fact = refused.fact or _NO_FACT
    text = _what(refused, fact, subject)
    return f"{text}{_held_text(fact.held)}" if fact.held is not None else text


def _what(refused: Refused, fact: Fact, subject: str) -> str:
    """Return what a refusal says by its kind, of limits, of places or of the nodes."""
    if fact.kind in _BY_KIND:
        return _BY_KIND[fact.kind](fact)
    limit = refused.limit
    if limit is not None and not (limit.is_nowhere and refused.nodes is not None):
        needing = _FOR.get(fact.kind, subject)
        needed = amount_text(limit.resource, limit.amount.get(limit.resource, 0))
        lead = "it may not be preempted, and the quota is less: " if fact.kind == Kind.FIXED else ""
        return f"{lead}{needing} needs {needed}, and {left_text(limit)}"
    evidence = refused.nodes or _NO_NODES
    if fact.kind in _PLACES:
        return _of_places(evidence, fact)
    return _of_nodes(refused.reason, evidence)


def condition_text(refused: Refused) -> str:
    """Return what the condition of a pod says: in the words of Kubernetes where nodes refuse it."""
    evidence = refused.nodes
    if evidence is None or not evidence.failures:
        return text_of(refused)
    kind = refused.fact.kind if refused.fact is not None else ""
    is_named = refused.reason in _NAMES_MORE or kind in _OF_DOMAINS
    named = f" {text_of(refused)}" if is_named else ""
    return unavailable_text(evidence) + named


# --- limits and nodes ---------------------------------------------------------------------------


def left_text(limit: Shortage) -> str:
    """Return what a limit leaves of how much."""
    name = limit.resource
    if limit.is_nowhere:
        return f"no node has {name}"
    left, most = amount_text(name, max(limit.left, 0)), amount_text(name, limit.most)
    if limit.owner == f"queue {ROOT}":
        return f"the nodes together have {left} left of {most}"
    where = "" if limit.is_of_queue else f" in queue {limit.queue}"
    return f"{limit.owner} has {left} left of its {most}{where}"


def _nearest_text(evidence: NodeEvidence) -> str:
    """Return which node lacks the least, as the end of a sentence; "" where there is none."""
    if not evidence.nearest or not evidence.lacks:
        return ""
    return f"; the nearest, {evidence.nearest}, lacks {amounts_text(evidence.lacks)}"


def _of_nodes(reason: str, evidence: NodeEvidence) -> str:
    if not evidence.total:
        return "there is no node with any capacity"
    what = _BY_NODES.get(reason, "none of {} nodes takes it").format(evidence.total)
    causes = causes_text(evidence)
    return f"{what}{f' ({causes})' if causes else ''}{_nearest_text(evidence)}"


_BY_NODES: dict[str, str] = {
    Reason.NO_NODES: "none of {} nodes is open",
    Reason.NO_NODE_FITS: "none of {} nodes has it now",
    Reason.NODE_TOO_SMALL: "none of {} nodes could hold it when empty",
    Reason.CONSTRAINTS: "none of {} nodes is one that it may use",
    Reason.OTHER_PODS: "other pods leave none of {} nodes open to it",
    Reason.RESERVED: "the nodes with the room are reserved for pods that have waited longer",
    Reason.TOPOLOGY: "none of {} nodes is in the domain of its gang with the room",
}


def _of_places(evidence: NodeEvidence, fact: Fact) -> str:
    most = "at most " if fact.kind == Kind.MOST_PLACES else ""
    requested = amounts_text(fact.amount)
    if evidence.nearest and evidence.lacks:
        lack = (
            f"requested {requested}, the nearest node for one more, {evidence.nearest}, lacks "
            f"{amounts_text(evidence.lacks)}"
        )
    else:
        lack = f"none takes one more of {requested} ({causes_text(evidence) or 'none is open'})"
    return (
        f"{most}{fact.count} of {fact.total} members have a place, on {fact.nodes} of "
        f"{evidence.total} nodes; {lack}{f'; {fact.text}' if fact.text else ''}"
    )


_PLACES = (Kind.PLACES, Kind.MOST_PLACES)


def _held_text(held: HeldNodes) -> str:
    """Return for how long nodes are held, as the end of a sentence."""
    more = f" and {held.more} more" if held.more else ""
    start = (
        f"it is expected to start by {_moment(held.start_ns)}"
        if held.start_ns
        else "when it starts is not known"
    )
    if not held.names:
        return (
            f"; it has been the head gang since {_moment(held.since_ns)}, but no nodes are "
            "reserved for it now: they would stand idle for longer than maxReservedNodes allows"
        )
    return (
        f"; it has been the head gang since {_moment(held.since_ns)}, and these nodes are reserved "
        f"for it: {', '.join(held.names)}{more}; {start}"
    )


def _moment(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // NANOS_PER_SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- by kind ------------------------------------------------------------------------------------


def _starved_gang(fact: Fact) -> str:
    return (
        f"a gang ahead of it in queue {fact.name} has waited for longer than starvationGuard "
        f"{go_duration(fact.period_ns)}: no application behind that gang starts before it"
    )


def _partly_requested(fact: Fact) -> str:
    return (
        f"placeholders for {amounts_text(fact.room)} of {amounts_text(fact.amount)} have been "
        "requested"
    )


def _lacks_members(fact: Fact) -> str:
    return (
        f"the gang starts again only as a whole: {fact.count} of the {fact.total} members that it "
        "lacks have been requested"
    )


def _making_way(fact: Fact) -> str:
    return (
        f"task group {fact.name}: placeholders make way for larger pods, {fact.count} of the "
        "application have yet to go"
    )


def _running(fact: Fact) -> str:
    where = f" in queue {fact.queue}" if fact.queue else ""
    return f"{fact.name} runs {fact.count} of at most {fact.total} applications{where}"


def _node_small(fact: Fact) -> str:
    return (
        f"the required node {fact.name} has {amounts_text(fact.room)} when empty: "
        f"{amounts_text(fact.amount)} requested"
    )


def _node_full(fact: Fact) -> str:
    return (
        f"the required node {fact.name} is reserved and has {amounts_text(fact.room)} left: "
        f"{amounts_text(fact.amount)} requested"
    )


def _with_room(fact: Fact) -> str:
    return f"{fact.with_room} nodes have the room, and " if fact.with_room else ""


def _claim_in_use(fact: Fact) -> str:
    return _with_room(fact) + (
        f"claim {fact.name} is ReadWriteOncePod and used by {fact.count} other pod(s), on "
        f"{', '.join(fact.names)}"
    )


def _volume_count(fact: Fact) -> str:
    return _with_room(fact) + (
        f"{fact.count} more volume(s) of {fact.name} are too many for {fact.nodes} of {fact.total} "
        f"nodes, which take at most {fact.most} each"
    )


def _domains(fact: Fact) -> str:
    best = (
        f"{fact.name}: best of {fact.nodes} is {fact.text} with {fact.count} of {fact.total} places"
    )
    if not fact.names:
        return best
    return f"{best}; {fact.with_room} full nodes there are taken by {', '.join(fact.names)}"


def _others_first(fact: Fact) -> str:
    wanted = ", ".join(f"{count} of {part}" for part, count in fact.amount.items())
    return f"other pods of the gang come first: {wanted}"


def _larger_than_max(fact: Fact) -> str:
    return (
        f"the gang needs {amounts_text(fact.amount)}, and the max of queue {fact.queue} is "
        f"{amounts_text(fact.room)}"
    )


def _larger_than_placeholder(fact: Fact) -> str:
    return (
        f"a pod of task group {fact.name} needs {amounts_text(fact.amount)}, and its placeholders "
        f"hold {amounts_text(fact.room)}"
    )


_BY_KIND: dict[str, Callable[[Fact], str]] = {
    Kind.OVERDUE_GANG: _starved_gang,
    Kind.NOT_ALLOCATED: lambda fact: f"{fact.count} placeholders of the gang are not allocated yet",
    Kind.NOT_REQUESTED: lambda _: "none of the placeholders of the gang has been requested yet",
    Kind.PARTLY_REQUESTED: _partly_requested,
    Kind.LACKS_MEMBERS: _lacks_members,
    Kind.MAKING_WAY: _making_way,
    Kind.TO_REPLACE: lambda fact: (
        f"task group {fact.name} has {fact.count} placeholders left to replace"
    ),
    Kind.UNCONFIRMED: lambda _: "the release of its placeholder is not confirmed yet",
    Kind.RUNNING: _running,
    Kind.STARTING: lambda fact: (
        f"application {fact.name} of queue {fact.queue} is starting: one at a time"
    ),
    Kind.BACKED_OFF: lambda fact: (
        f"no node took {fact.count} of its asks: left out for {go_duration(fact.period_ns)}"
    ),
    Kind.DEVICE_RELEASING: lambda fact: (
        f"its part of a shared GPU of node {fact.name} is being released"
    ),
    Kind.NODE_MISSING: lambda fact: f"the required node {fact.name} does not exist",
    Kind.NODE_CLOSED: lambda fact: (
        f"the required node {fact.name} does not match the pod, or has a taint"
    ),
    Kind.NODE_SMALL: _node_small,
    Kind.NODE_FULL: _node_full,
    Kind.NODE_TAKEN: lambda fact: (
        f"the required node {fact.name} is missing, full or kept for others"
    ),
    Kind.CLAIM_IN_USE: _claim_in_use,
    Kind.VOLUME_COUNT: _volume_count,
    Kind.PLUGIN: lambda fact: f"plugin {fact.name}: {fact.text}" if fact.name else fact.text,
    Kind.LARGER_THAN_MAX: _larger_than_max,
    Kind.LARGER_THAN_PLACEHOLDER: _larger_than_placeholder,
    Kind.OTHERS_FIRST: _others_first,
    Kind.FILTER: lambda fact: f"{fact.count} nodes are left, and fail on: {fact.name}",
    Kind.TOO_FEW: lambda fact: f"fewer pods of task group {fact.name} wait than start together",
    Kind.DOMAINS: _domains,
    Kind.SLICES: lambda fact: (
        f"in slices of {fact.most} by {fact.name} the nodes have places for {fact.count} of "
        f"{fact.total}"
    ),
    Kind.WORDS: lambda fact: fact.text,
    Kind.NOT_TRIED: lambda fact: f"not tried: a forecast takes {fact.count} steps at most",
}


# --- what would help ----------------------------------------------------------------------------


def cure_text(evidence: NodeEvidence, need: str) -> str:
    """Return what would let one more start, by what most nodes fail on."""
    if evidence.nearest and evidence.lacks:
        return f"{amounts_text(evidence.lacks)} more free on {evidence.nearest}"
    worst = evidence.failures[0] if evidence.failures else None
    if worst is None:
        return "a node"
    on, number = worst.on, sum(f.nodes for f in evidence.failures if f.on == worst.on)
    cures = {
        UNSCHEDULABLE: f"one of {number} closed nodes open again",
        SELECTOR: "a node with the labels that it asks for, or a selector that one has",
        TAINTS: f"a toleration of a taint of one of {number} nodes",
        TOO_SMALL: f"a node that can hold {need}, or a smaller request",
        OTHER_PODS: "fewer pods that keep it away, or a node in another domain",
        DOMAIN: "room in the domain where its gang is",
        VOLUMES: "fewer volumes on a node, or the end of the pod that has one of its own",
        TAKEN: f"the start of those for whom {number} nodes are reserved, or another node",
        PLUGIN: "the plugin's consent",
    }
    return cures.get(on, f"a node with {need} free")
