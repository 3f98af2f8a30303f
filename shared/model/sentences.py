"""The texts of refusals: each is written here, from its values, and nowhere else.

`muster why`, `muster apps`, the live page, REST and the conditions of pods show these texts. Texts
are never parsed: every number in one is also among the values.
"""

import re
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

ONE_OF_ITS, IT = "one of its pods", "it"  # what needs something: of an application, of a pod
_FOR: dict[str, str] = {
    Kind.WHOLE_GANG: "the whole gang",
    Kind.ANY_MEMBER: "a member of its gang",
}
_NO_NODES = NodeEvidence(0, {})
_NO_FACT = Fact("")
_NAMES_MORE = (Reason.VOLUMES, Reason.PLUGIN)  # whose sentence names a claim, driver or plugin
_OF_DOMAINS = (Kind.DOMAINS, Kind.SLICES, Kind.WORDS)  # what no node by itself says
_LEADS: dict[str, str] = {
    Reason.GANG_PLACES: "waits until its whole gang fits",
    Reason.GANG_PATIENCE: "waits its turn",
    Reason.GANG_PLACEHOLDERS_PENDING: "waits for the rest of its gang",
    Reason.AWAITING_REPLACEMENT: "waits to replace its placeholders",
    Reason.REPLACING: "is about to start",
    Reason.MAX_APPLICATIONS: "waits for another application to end",
    Reason.ANOTHER_STARTING: "waits for another application to start",
    Reason.BACKOFF: "is retried later",
    Reason.REQUIRED_NODE: "waits for the one node it must run on",
    Reason.NO_NODE_FITS: "waits for room",
    Reason.NODE_TOO_SMALL: "cannot start",
    Reason.CONSTRAINTS: "cannot start",
    Reason.VOLUMES: "waits for its volumes",
    Reason.DEVICES: "waits for its devices",
    Reason.TOPOLOGY: "waits for room where its gang is",
    Reason.PLUGIN: "is held back by a plugin",
    Reason.APPLICATION_ENDING: "waits for its previous run to end",
    Reason.POD_GROUP: "waits for its PodGroup",
    Reason.SCHEDULING_GATED: "waits for its scheduling gates",
    Reason.POD_REFUSED: "cannot be scheduled",
    Reason.MISSING_RIGHTS: "is held up by the API server",
}  # of the others: waits


class Refused(Protocol):
    """A refusal, where it is decided or where it is shown."""

    @property
    def reason(self) -> str:
        """Its reason."""

    @property
    def fact(self) -> Fact | None:
        """Its numbers."""

    @property
    def nodes(self) -> NodeEvidence | None:
        """What the nodes lack."""

    @property
    def limit(self) -> Shortage | None:
        """The exceeded limit."""


def why_text(kind: str, name: str, reason: str, text: str) -> str:
    """Return a whole sentence about a pod or an application: ``pod a waits: ...``."""
    return f"{kind} {name} {_LEADS.get(reason, 'waits')}: {text}."


def state_text(state: str, running: int, held: int, waiting: int, message: str) -> str:
    """Describe an application without a refusal, as the rest of a sentence after its name.

    ``running`` pods, ``held`` placeholders and ``waiting`` asks are its own; ``message`` is why it
    fails or has ended, "" if unknown.
    """
    more = f": {plain_text(message)}" if message else ""
    if state in _IN_STATE:
        return _IN_STATE[state](running, held, more)
    if waiting:
        verbs = "waits and has" if waiting == 1 else "wait and have"
        return f"is next in line: {_pods(waiting)} {verbs} not been refused"
    if held and running:
        return f"runs {_pods(running)} and holds places for {_pods(held)} more of its gang"
    if held:
        return f"holds places for {_pods(held)} of its gang; the pods have not been created yet"
    if running:
        return f"runs {_pods(running)}, and no pod of it waits"
    return "has no pods yet"


def _completing(_: int, held: int, more: str) -> str:
    if held:
        places = f"it still holds places for {_pods(held)} of its gang"
        return f"is completing{more}: {places}, and releases them after half a minute without pods"
    return (
        f"is completing{more}: all its pods have ended, and after half a minute without new pods "
        "it is Completed"
    )


def _failing(running: int, held: int, more: str) -> str:
    left = running + held
    return f"is failing{more}; {_pods(left)} {_verb(left, 'have', 'has')} not ended yet"


def _resuming(_running: int, held: int, _why: str) -> str:
    return (
        "did not get its whole gang in time and continues without gang scheduling: its pods start "
        f"once {_placeholders(held)} {_verb(held, 'have', 'has')} been released"
    )


_IN_STATE: dict[str, Callable[[int, int, str], str]] = {
    ApplicationState.COMPLETING: _completing,
    ApplicationState.FAILING: _failing,
    ApplicationState.RESUMING: _resuming,
    ApplicationState.REJECTED: lambda _running, _held, more: f"was rejected{more}",
    ApplicationState.COMPLETED: lambda _running, _held, more: f"has completed{more}",
    ApplicationState.FAILED: lambda _running, _held, more: f"has failed{more}",
    ApplicationState.EXPIRED: lambda _running, _held, more: f"ended long ago{more}",
}


_GO_WORDS = {  # what YuniKorn's answers say in a word
    "ResourceReservationTimeout": "the gang did not get all its places within its placeholder "
    "timeout (ResourceReservationTimeout)",
}


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


_GO_MAP = re.compile(r"map\[((?:[\w./-]+:-?\d+ ?)*)\]")


def plain_text(text: str) -> str:
    """Rewrite a text of YuniKorn for display: known codes as sentences, amounts with units.

    Clients of YuniKorn's API (``/ws/v1``) get the original text.
    """
    text = _GO_WORDS.get(text, text)
    return _GO_MAP.sub(_with_units, text) if "map[" in text else text


def _with_units(found: re.Match[str]) -> str:
    pairs = (pair.rpartition(":") for pair in found[1].split())
    return amounts_text({name: int(value) for name, _, value in pairs})


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _placeholders(count: int) -> str:
    return "1 placeholder" if count == 1 else f"{count} placeholders"


def _verb(count: int, plural: str, singular: str = "") -> str:
    return (singular or f"{plural}s") if count == 1 else plural


def fact_text(fact: Fact) -> str:
    """Return the text of a fact that needs no other values."""
    return text_of(Refusal(Reason.POD_REFUSED, fact))


def text_of(refused: Refused, subject: str = ONE_OF_ITS) -> str:
    """Return the text of a refusal; of an unknown kind, the text of its other values.

    ``subject`` is what needs the resource if a limit is exceeded, unless its gang is.
    """
    fact = refused.fact or _NO_FACT
    text = _what(refused, fact, subject)
    return f"{text}{_held_text(fact.held)}" if fact.held is not None else text


def _what(refused: Refused, fact: Fact, subject: str) -> str:
    """Return the text of a refusal by its kind, its limit, its places or its nodes."""
    if fact.kind in _BY_KIND:
        return _BY_KIND[fact.kind](fact)
    limit = refused.limit
    if limit is not None and not (limit.is_nowhere and refused.nodes is not None):
        needing = _FOR.get(fact.kind, subject)
        needed = amount_text(limit.resource, limit.amount.get(limit.resource, 0))
        lead = (
            "it may not be preempted, so it must fit the guaranteed quota: "
            if fact.kind == Kind.FIXED
            else ""
        )
        return f"{lead}{needing} needs {needed}, and {left_text(limit)}"
    evidence = refused.nodes or _NO_NODES
    if fact.kind in _PLACES:
        return _of_places(evidence, fact)
    return _of_nodes(refused.reason, evidence)


def condition_text(refused: Refused) -> str:
    """Return the text of a pod's condition; in Kubernetes' words if nodes refused it."""
    evidence = refused.nodes
    if evidence is None or not evidence.failures:
        return text_of(refused)
    kind = refused.fact.kind if refused.fact is not None else ""
    is_named = refused.reason in _NAMES_MORE or kind in _OF_DOMAINS
    named = f" {text_of(refused)}" if is_named else ""
    return unavailable_text(evidence) + named


# --- limits and nodes ---------------------------------------------------------------------------


def left_text(limit: Shortage) -> str:
    """Describe how much of a limit is left."""
    name = limit.resource
    if limit.is_nowhere:
        return f"no node has {name}"
    left, most = amount_text(name, max(limit.left, 0)), amount_text(name, limit.most)
    if limit.owner == f"queue {ROOT}":
        return f"the nodes together have {left} left of {most}"
    where = "" if limit.is_of_queue else f" in queue {limit.queue}"
    return f"{limit.owner} has {left} left of its {most}{where}"


def _nearest_text(evidence: NodeEvidence) -> str:
    """Name the node that lacks the least, as the end of a sentence; "" without one."""
    if not evidence.nearest or not evidence.lacks:
        return ""
    return f"; the nearest, {evidence.nearest}, lacks {amounts_text(evidence.lacks)}"


def _of_nodes(reason: str, evidence: NodeEvidence) -> str:
    if not evidence.total:
        return "there is no node with any capacity"
    one, many = _BY_NODES.get(reason, _OTHERWISE)
    what = one if evidence.total == 1 else many.format(evidence.total)
    causes = causes_text(evidence)
    return f"{what}{f' ({causes})' if causes else ''}{_nearest_text(evidence)}"


_OTHERWISE = "the only node does not take it", "none of the {} nodes takes it"
_BY_NODES: dict[str, tuple[str, str]] = {  # of one node, of several
    Reason.NO_NODES: (
        "the only node is closed to new pods",
        "none of the {} nodes is open to new pods",
    ),
    Reason.NO_NODE_FITS: (
        "the only node does not have enough free now",
        "none of the {} nodes has enough free now",
    ),
    Reason.NODE_TOO_SMALL: (
        "the only node is too small for it, even when empty",
        "none of the {} nodes is large enough for it, even when empty",
    ),
    Reason.CONSTRAINTS: (
        "the only node does not meet its constraints",
        "none of the {} nodes meets its constraints",
    ),
    Reason.OTHER_PODS: (
        "other pods keep it off the only node",
        "other pods keep it off all {} nodes",
    ),
    Reason.RESERVED: (
        "the only node is reserved for pods that have waited longer",
        "the nodes with enough free are reserved for pods that have waited longer",
    ),
    Reason.TOPOLOGY: (
        "the only node is not in the domain of its gang, or does not have enough free",
        "none of the {} nodes is in the domain of its gang and has enough free",
    ),
}


def _of_places(evidence: NodeEvidence, fact: Fact) -> str:
    """Describe for how many members there is room, and what the next one lacks."""
    nodes = "the only node" if evidence.total == 1 else f"the {evidence.total} nodes"
    most = "at most " if fact.kind == Kind.MOST_PLACES else ""
    if not fact.count:
        room = f"there is no room for any of its {fact.total} members on {nodes}"
    elif evidence.total == 1:
        room = f"there is room for {most}{fact.count} of its {fact.total} members on {nodes}"
    else:
        on = f"on {fact.nodes} of {nodes}"
        room = f"there is room for {most}{fact.count} of its {fact.total} members, {on}"
    another = f"{'another' if fact.count else 'each'} needs {amounts_text(fact.amount)}"
    if evidence.nearest and evidence.lacks:
        lack = f"the nearest node, {evidence.nearest}, lacks {amounts_text(evidence.lacks)}"
    else:
        lack = f"no node has that ({causes_text(evidence) or 'none is open'})"
    return f"{room}; {another}, and {lack}{f'; {fact.text}' if fact.text else ''}"


_PLACES = (Kind.PLACES, Kind.MOST_PLACES)


def _held_text(held: HeldNodes) -> str:
    """Name the nodes reserved for a gang, and since when, as the end of a sentence."""
    since = f"; it has been first in line (the head gang) since {_moment(held.since_ns)}"
    if not held.names:
        return (
            f"{since}, but no nodes are reserved for it now: they would stand idle for longer than "
            "maxReservedNodes allows"
        )
    if held.more:
        nodes = f"nodes {', '.join(held.names)} and {held.more} more are"
    elif len(held.names) == 1:
        nodes = f"node {held.names[0]} is"
    else:
        nodes = f"nodes {', '.join(held.names[:-1])} and {held.names[-1]} are"
    start = (
        f"it is expected to start by {_moment(held.start_ns)}"
        if held.start_ns
        else "when it will start is not known"
    )
    return f"{since}; {nodes} reserved for it; {start}"


def _moment(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // NANOS_PER_SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- by kind ------------------------------------------------------------------------------------


def period_text(period_ns: int) -> str:
    """Format a duration without zero units: ``5m`` where Go writes ``5m0s``."""
    text = go_duration(period_ns)
    text = text.removesuffix("0s") if text.endswith("m0s") else text
    return text.removesuffix("0m") if text.endswith("h0m") else text


def _starved_gang(fact: Fact) -> str:
    return (
        f"a gang ahead of it in queue {fact.name} has waited longer than the starvationGuard of "
        f"{period_text(fact.period_ns)}, so no application behind that gang starts before it"
    )


def _not_allocated(fact: Fact) -> str:
    number = _placeholders(fact.count)
    return f"{number} of the gang {_verb(fact.count, 'are', 'is')} not allocated yet"


def _partly_requested(fact: Fact) -> str:
    return (
        f"of the gang's {amounts_text(fact.amount)} only {amounts_text(fact.room)} has been "
        "requested so far, as placeholders"
    )


def _lacks_members(fact: Fact) -> str:
    return (
        f"the gang restarts only as a whole: {fact.count} of its {fact.total} missing members "
        f"{_verb(fact.count, 'have', 'has')} been requested so far"
    )


def _making_way(fact: Fact) -> str:
    return (
        f"placeholders of task group {fact.name} are released to make room for larger pods, and "
        f"{fact.count} of the application {_verb(fact.count, 'are', 'is')} still there"
    )


def _running(fact: Fact) -> str:
    where = f" in queue {fact.queue}" if fact.queue else ""
    number = "1 application" if fact.count == 1 else f"{fact.count} applications"
    return f"{fact.name} runs {number}{where}, and the limit is {fact.total}"


def _node_small(fact: Fact) -> str:
    return (
        f"{amounts_text(fact.amount)} requested, and the required node {fact.name} has "
        f"{amounts_text(fact.room)} even when empty"
    )


def _node_full(fact: Fact) -> str:
    return (
        f"{amounts_text(fact.amount)} requested, and the required node {fact.name}, which is "
        f"reserved for it, has {amounts_text(fact.room)} free now"
    )


def _with_room(fact: Fact) -> str:
    if not fact.with_room:
        return ""
    verb = _verb(fact.with_room, "have", "has")
    return f"{_nodes(fact.with_room)} {verb} enough free, but "


def _claim_in_use(fact: Fact) -> str:
    users = "1 other pod uses it" if fact.count == 1 else f"{fact.count} other pods use it"
    return _with_room(fact) + (
        f"PersistentVolumeClaim {fact.name} is ReadWriteOncePod and {users}, on "
        f"{', '.join(fact.names)}"
    )


def _volume_count(fact: Fact) -> str:
    volumes = "1 more volume" if fact.count == 1 else f"{fact.count} more volumes"
    would = "would be too many"
    if fact.nodes == fact.total == 1:
        return _with_room(fact) + (
            f"{volumes} of {fact.name} {would} on the only node, whose limit is {fact.most}"
        )
    where = f"{fact.nodes} of the {fact.total} nodes, whose limit is {fact.most} each"
    return f"{_with_room(fact)}{volumes} of {fact.name} {would} on {where}"


def _domains(fact: Fact) -> str:
    best = (
        f"of {fact.nodes} domains of level {fact.name} the best, {fact.text}, has places for "
        f"{fact.count} of {fact.total} members"
    )
    if not fact.names:
        return best
    full = (
        "1 full node there is" if fact.with_room == 1 else f"{fact.with_room} full nodes there are"
    )
    return f"{best}; {full} used by {', '.join(fact.names)}"


def _others_first(fact: Fact) -> str:
    wanted = ", ".join(f"{count} of {part}" for part, count in fact.amount.items())
    return f"other pods of the gang start first: {wanted}"


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
    Kind.NOT_ALLOCATED: _not_allocated,
    Kind.NOT_REQUESTED: lambda _: "no placeholder of the gang has been requested yet",
    Kind.PARTLY_REQUESTED: _partly_requested,
    Kind.LACKS_MEMBERS: _lacks_members,
    Kind.MAKING_WAY: _making_way,
    Kind.TO_REPLACE: lambda fact: (
        f"task group {fact.name} has {_placeholders(fact.count)} that must be replaced first"
    ),
    Kind.UNCONFIRMED: lambda _: "the release of its placeholder is not confirmed yet",
    Kind.RUNNING: _running,
    Kind.STARTING: lambda fact: (
        f"application {fact.name} of queue {fact.queue} is starting, and the queue starts one "
        "application at a time"
    ),
    Kind.BACKED_OFF: lambda fact: (
        f"{_pods(fact.count)} of it found no node, so it is not tried for "
        f"{period_text(fact.period_ns)}"
    ),
    Kind.MADE_WAY: lambda fact: (
        "its gang has its minimum and made way for others, so it does not grow for "
        f"{period_text(fact.period_ns)}"
    ),
    Kind.DEVICE_RELEASING: lambda fact: (
        f"its part of a shared GPU of node {fact.name} is being released"
    ),
    Kind.NODE_MISSING: lambda fact: f"the required node {fact.name} does not exist",
    Kind.NODE_CLOSED: lambda fact: (
        f"it does not match the required node {fact.name}, or does not tolerate its taints"
    ),
    Kind.NODE_SMALL: _node_small,
    Kind.NODE_FULL: _node_full,
    Kind.NODE_TAKEN: lambda fact: (
        f"the required node {fact.name} is missing, full or reserved for other pods"
    ),
    Kind.CLAIM_IN_USE: _claim_in_use,
    Kind.VOLUME_COUNT: _volume_count,
    Kind.PLUGIN: lambda fact: f"plugin {fact.name}: {fact.text}" if fact.name else fact.text,
    Kind.LARGER_THAN_MAX: _larger_than_max,
    Kind.LARGER_THAN_PLACEHOLDER: _larger_than_placeholder,
    Kind.OTHERS_FIRST: _others_first,
    Kind.FILTER: lambda fact: (
        f"{_nodes(fact.count)} passed the other checks and failed on: {fact.name}"
    ),
    Kind.TOO_FEW: lambda fact: (
        f"too few pods of task group {fact.name} wait for them to start together"
    ),
    Kind.DOMAINS: _domains,
    Kind.SLICES: lambda fact: (
        f"in slices of {fact.most} pods, each in one domain of level {fact.name}, the nodes have "
        f"places for {fact.count} of {fact.total}"
    ),
    Kind.WORDS: lambda fact: fact.text,
    Kind.NOT_TRIED: lambda fact: f"not tried: a forecast makes at most {fact.count} steps",
}


# --- what would help ----------------------------------------------------------------------------


def cure_text(evidence: NodeEvidence, need: str) -> str:
    """Describe what would let one more pod start, by what most nodes fail on."""
    if evidence.nearest and evidence.lacks:
        return f"{amounts_text(evidence.lacks)} more free on {evidence.nearest}"
    worst = evidence.failures[0] if evidence.failures else None
    if worst is None:
        return "a node"
    on, number = worst.on, sum(f.nodes for f in evidence.failures if f.on == worst.on)
    cures = {
        UNSCHEDULABLE: f"one of {_nodes(number)} opened to new pods again",
        SELECTOR: "a node with the labels that it requires, or a selector that matches a node",
        TAINTS: f"a toleration for the taints of one of {_nodes(number)}",
        TOO_SMALL: f"a node that can hold {need}, or a smaller request",
        OTHER_PODS: "fewer pods that keep it away, or a node in another domain",
        DOMAIN: "free capacity in the domain where its gang is",
        VOLUMES: "fewer volumes on a node, or the end of the pod that uses its volume",
        TAKEN: f"the start of the pods with {_nodes(number)} reserved, or another node",
        PLUGIN: "the consent of the plugin",
    }
    return cures.get(on, f"a node with {need} free")
