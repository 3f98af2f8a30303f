"""Selectors and taints: whether labels satisfy an expression (Kubernetes' own rules)."""

from collections.abc import Mapping

from shared.messages.constraints import Constraints, NodeTerm, Requirement, Taint, Toleration
from shared.model.numbers import parse_int64

HARD_EFFECTS = ("NoSchedule", "NoExecute")
SOFT_EFFECT = "PreferNoSchedule"
NODE_NAME = "metadata.name"


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy one expression; a number that is none fails Gt and Lt."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    found, bound = parse_int64(value or ""), parse_int64(next(iter(requirement.values), ""))
    if found is None or bound is None:
        return False
    return found > bound if requirement.operator == "Gt" else found < bound


def all_hold(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy every expression; none at all matches everything."""
    return all(holds(requirement, labels) for requirement in requirements)


def term_matches(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node matches a term; an empty term matches nothing."""
    if not term.expressions and not term.fields:
        return False
    return all_hold(term.expressions, labels) and all_hold(term.fields, {NODE_NAME: name})


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Return whether one of the tolerations matches the taint."""
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.key and toleration.key != taint.key:
            continue
        if toleration.operator == "Exists" or (toleration.key and toleration.value == taint.value):
            return True
    return False


def selects(constraints: Constraints, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node has what the selector and the required affinity ask of it."""
    selector = constraints.node_selector
    if selector and any(labels.get(key) != value for key, value in selector):
        return False
    if constraints.required_node and constraints.required_node != name:
        return False
    terms = constraints.node_terms
    return not terms or any(term_matches(term, name, labels) for term in terms)


def is_tolerated(constraints: Constraints, taints: tuple[Taint, ...]) -> bool:
    """Return whether every taint that keeps pods away is tolerated."""
    return not taints or all(
        taint.effect not in HARD_EFFECTS or tolerates(constraints.tolerations, taint)
        for taint in taints
    )
