"""Evaluates selectors and taints, by Kubernetes' rules."""

from collections.abc import Mapping

from shared.messages.constraints import Constraints, NodeTerm, Requirement, Taint, Toleration
from shared.model.numbers import parse_int64

HARD_EFFECTS = ("NoSchedule", "NoExecute")
SOFT_EFFECT = "PreferNoSchedule"
NODE_NAME = "metadata.name"


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy one expression; Gt and Lt fail for texts that are not numbers."""
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
            bound = next(iter(requirement.values), "")
            return _compares(requirement.operator, value or "", bound)
        case _:
            return False


def _compares(operator: str, found_text: str, bound_text: str) -> bool:
    """Whether a whole number is above (Gt) or below (Lt) a bound; False if one is not a number."""
    found, bound = parse_int64(found_text), parse_int64(bound_text)
    if found is None or bound is None:
        return False
    return found > bound if operator == "Gt" else found < bound


def all_hold(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy every expression; no expressions match everything."""
    return all(holds(requirement, labels) for requirement in requirements)


def term_matches(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node matches a term; an empty term matches nothing."""
    if not term.expressions and not term.fields:
        return False
    return all_hold(term.expressions, labels) and all_hold(term.fields, {NODE_NAME: name})


def other_nodes(names: tuple[str, ...], weight: int) -> NodeTerm:
    """Return a preferred term that all nodes match but these."""
    return NodeTerm(fields=(Requirement(NODE_NAME, "NotIn", names),), weight=weight)


def avoided_names(term: NodeTerm) -> tuple[str, ...]:
    """Nodes that a preferred term excludes by name alone; () for any other term."""
    if term.expressions or len(term.fields) != 1 or term.fields[0].operator != "NotIn":
        return ()
    return term.fields[0].values


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Whether one of the tolerations matches the taint.

    Gt and Lt compare the taint's value with the toleration's: Gt tolerates larger values.
    """
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.key and toleration.key != taint.key:
            continue
        if toleration.operator in ("Gt", "Lt"):
            is_so = _compares(toleration.operator, taint.value, toleration.value)
        else:
            is_equal = toleration.key and toleration.value == taint.value
            is_so = toleration.operator == "Exists" or bool(is_equal)
        if is_so:
            return True
    return False


def selects(constraints: Constraints, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node matches the node selector and the required node affinity."""
    selector = constraints.node_selector
    if selector and any(labels.get(key) != value for key, value in selector):
        return False
    if constraints.required_node and constraints.required_node != name:
        return False
    terms = constraints.node_terms
    return not terms or any(term_matches(term, name, labels) for term in terms)


def first_untolerated(constraints: Constraints, taints: tuple[Taint, ...]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that is not tolerated, or None."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerates(constraints.tolerations, taint):
            return taint
    return None


def is_tolerated(constraints: Constraints, taints: tuple[Taint, ...]) -> bool:
    """Whether every NoSchedule and NoExecute taint is tolerated."""
    return not taints or first_untolerated(constraints, taints) is None
