"""Why in one sentence: of each reason of the closed vocabulary, in plain words with the numbers."""

from collections.abc import Callable

from shared.messages.state import Waiting
from shared.model.amounts import amount_text, amounts_text, readable
from shared.model.causes import causes_text
from shared.model.names import ROOT
from shared.model.reasons import (
    OTHER_PODS,
    PLUGIN,
    SELECTOR,
    TAINTS,
    TAKEN,
    TOO_SMALL,
    UNSCHEDULABLE,
    VOLUMES,
    NodeEvidence,
    Reason,
    Shortage,
)

Sentence = Callable[[Waiting], str]
_ONE_OF_ITS = "one of its asks"  # of an application; a pod is one
_NO_EVIDENCE = NodeEvidence(0, {})


def sentence(kind: str, name: str, waiting: Waiting) -> str:
    """Return the sentence of a reason; one that this version does not know keeps its message."""
    text = SENTENCES.get(waiting.reason)
    said = text(waiting) if text is not None else f"waits: {readable(waiting.message)}"
    if kind == "pod":
        said = said.replace(_ONE_OF_ITS, "it")
    return f"{kind} {name} {said}."


def _limit(waiting: Waiting, whole: str) -> str:
    """Say which limit lacks what for an amount; ``whole`` names what it is for."""
    limit = waiting.limit
    if limit is None:
        return f"waits: {readable(waiting.message)}"
    name, needed = limit.resource, limit.amount.get(limit.resource, 0)
    return f"waits: {whole} needs {amount_text(name, needed)}, and {left_text(limit)}"


def left_text(limit: Shortage) -> str:
    """Say what a limit leaves."""
    name, left = limit.resource, max(limit.left, 0)
    most = amount_text(name, limit.most)
    if limit.is_nowhere:
        return f"no node has {name}"
    if limit.owner == f"queue {ROOT}":
        return f"the nodes together have {amount_text(name, left)} left of {most}"
    where = "" if limit.owner.startswith("queue ") else f" in queue {limit.queue}"
    return f"{limit.owner} has {amount_text(name, left)} left of its {most}{where}"


def _evidence(waiting: Waiting) -> NodeEvidence:
    return waiting.nodes or _NO_EVIDENCE


def nearest_text(evidence: NodeEvidence) -> str:
    """Say which node lacks the least, as the end of a sentence; "" where there is none."""
    if not evidence.nearest or not evidence.lacks:
        return ""
    return f"; the nearest, {evidence.nearest}, lacks {amounts_text(evidence.lacks)}"


def _of_nodes(what: str) -> Sentence:
    """Return what says it of the nodes; ``what`` has a place for how many there are."""

    def said(waiting: Waiting) -> str:
        evidence = _evidence(waiting)
        failures = causes_text(evidence)
        found = f" ({failures})" if failures else f" ({readable(waiting.message)})"
        return f"{what.format(evidence.total)}{found}{nearest_text(evidence)}"

    return said


def _no_nodes(waiting: Waiting) -> str:
    closed = _of_nodes("waits: none of {} nodes is open")
    return closed(waiting) if _evidence(waiting).total else f"waits: {readable(waiting.message)}"


def _places(waiting: Waiting) -> str:
    if waiting.limit is not None:
        return _limit(waiting, "the whole gang")
    return f"waits for places for its whole gang: {_after_colon(waiting)}"


def _after_colon(waiting: Waiting) -> str:
    """Return what a message says after its lead."""
    lead, _, rest = readable(waiting.message).partition(": ")
    return rest or lead


def _said(lead: str) -> Sentence:
    return lambda waiting: f"{lead}: {readable(waiting.message)}"


SENTENCES: dict[str, Sentence] = {
    Reason.QUEUE_QUOTA: lambda waiting: _limit(waiting, _ONE_OF_ITS),
    Reason.USER_QUOTA: lambda waiting: _limit(waiting, _ONE_OF_ITS),
    Reason.GANG_HEADROOM: lambda waiting: _limit(
        waiting,
        "a member of its gang" if waiting.message.startswith("no member") else "the whole gang",
    ),
    Reason.GANG_PLACES: _places,
    Reason.GANG_PATIENCE: _said("waits its turn"),
    Reason.GANG_PLACEHOLDERS_PENDING: _said("waits for its gang"),
    Reason.AWAITING_REPLACEMENT: _said("waits to take its placeholders' places"),
    Reason.REPLACING: _said("is about to start"),
    Reason.MAX_APPLICATIONS: _said("waits for another application to end"),
    Reason.ANOTHER_STARTING: _said("waits for another application to start"),
    Reason.BACKOFF: _said("is left out for a while"),
    Reason.RESERVED: _of_nodes("waits: the nodes with the room are reserved for who waited longer"),
    Reason.REQUIRED_NODE: _said("waits for the one node that it must have"),
    Reason.NO_NODE_FITS: _of_nodes("waits for room: none of {} nodes has it now"),
    Reason.NODE_TOO_SMALL: _of_nodes("cannot start: none of {} nodes could hold it when empty"),
    Reason.CONSTRAINTS: _of_nodes("cannot start: none of {} nodes is one that it may use"),
    Reason.OTHER_PODS: _of_nodes("waits: other pods leave none of {} nodes open to it"),
    Reason.VOLUMES: _said("waits for its volumes"),
    Reason.NO_NODES: _no_nodes,
    Reason.PLUGIN: _said("is held back by a plugin"),
    Reason.APPLICATION_ENDING: _said("waits for the end of what was before it"),
    Reason.POD_GROUP: _said("waits for its PodGroup"),
    Reason.SCHEDULING_GATED: _said("waits for its scheduling gates"),
    Reason.POD_REFUSED: _said("cannot be scheduled"),
    Reason.MISSING_RIGHTS: _said("is held up by the API server"),
}


def cure(evidence: NodeEvidence, need: str) -> str:
    """Say what would let one more start, by what most nodes fail on."""
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
        VOLUMES: "fewer volumes on a node, or the end of the pod that has one of its own",
        TAKEN: f"the start of those for whom {number} nodes are reserved, or another node",
        PLUGIN: "the plugin's consent",
    }
    return cures.get(on, f"a node with {need} free")
