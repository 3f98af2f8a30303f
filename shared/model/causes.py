"""Why nodes cannot take a pod: one text per cause, in the words of Kubernetes' scheduler.

Used by the allocation log, the pod's condition, the events and ``muster why``.
"""

from functools import lru_cache

from shared.model.reasons import (
    DOMAIN,
    IN_USE,
    OTHER_PODS,
    PLUGIN,
    SELECTOR,
    TAINTS,
    TAKEN,
    TOO_SMALL,
    UNSCHEDULABLE,
    VOLUMES,
    NodeEvidence,
    PodCause,
)
from shared.model.resources import VCORE

_PODS = "pods"
_CPU = "cpu"
_TEXTS = {
    UNSCHEDULABLE: "node(s) were unschedulable",
    SELECTOR: "node(s) didn't match Pod's node affinity/selector",
    TAINTS: "node(s) had untolerated taint",
    OTHER_PODS: "node(s) didn't satisfy affinity, spread or host ports of pods",
    VOLUMES: "node(s) exceed max volume count",
    DOMAIN: "node(s) were outside the topology domain of the gang",
    TAKEN: "node(s) were reserved for pods that have waited longer",
    PLUGIN: "node(s) were refused by a plugin",
}
_DETAILS = {
    (OTHER_PODS, PodCause.PORTS): "node(s) didn't have free ports for the requested pod ports",
    (OTHER_PODS, PodCause.SPREAD): "node(s) didn't match pod topology spread constraints",
    (OTHER_PODS, PodCause.SPREAD_LABEL): (
        "node(s) didn't match pod topology spread constraints (missing required label)"
    ),
    (OTHER_PODS, PodCause.AFFINITY): "node(s) didn't match pod affinity rules",
    (OTHER_PODS, PodCause.ANTI_AFFINITY): "node(s) didn't match pod anti-affinity rules",
    (OTHER_PODS, PodCause.KEPT_AWAY): ("node(s) didn't satisfy existing pods anti-affinity rules"),
    (VOLUMES, IN_USE): (
        "node(s) were closed by a pod that uses a ReadWriteOncePod PersistentVolumeClaim of the pod"
    ),
}


@lru_cache(maxsize=1_000)
def sentences_of(on: str, detail: str) -> tuple[str, ...]:
    """Return the texts of a failure: one, or for insufficient amounts one per type."""
    if on == TOO_SMALL:
        return tuple(_insufficient(name) for name in detail.split(","))
    if on == TAINTS and detail:
        return (f"{_TEXTS[TAINTS]} {detail}",)
    text = _DETAILS.get((on, detail), _TEXTS.get(on, ""))
    return (text or _insufficient(on),)


def _insufficient(name: str) -> str:
    """Return the text for too little of a resource type; "" is an unknown type."""
    if name == _PODS:
        return "Too many pods"
    return f"Insufficient {_CPU if name == VCORE else name or 'resources'}"


def causes_of(evidence: NodeEvidence, among: tuple[str, ...] | None = None) -> dict[str, int]:
    """Return how many nodes each cause excludes, most first, then by text.

    ``among`` restricts the failures that count to these; None: all.
    """
    found: dict[str, int] = {}
    for failure in evidence.failures:
        if among is None or failure.on in among:
            for text in sentences_of(failure.on, failure.detail):
                found[text] = found.get(text, 0) + failure.nodes
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def causes_text(evidence: NodeEvidence) -> str:
    """Format all causes with counts: ``2 Insufficient cpu, 1 node(s) were unschedulable``."""
    return ", ".join(f"{nodes} {text}" for text, nodes in causes_of(evidence).items())


def unavailable_text(evidence: NodeEvidence) -> str:
    """Format the message of a pod's condition: ``0/3 nodes are available: …``."""
    return f"0/{evidence.total} nodes are available: {causes_text(evidence)}."
