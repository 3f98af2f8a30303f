"""From a pod's spec to where it may be placed: selectors, affinity, tolerations, spread, ports.

What an API server refuses is refused here with the field; what only a cluster knows, the labels of
namespaces, is refused with a sentence, except that every namespace has its name as a label.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from shared.messages.constraints import (
    ALL_NAMESPACES,
    Constraints,
    HostPort,
    NodeTerm,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Toleration,
)
from shared.messages.selectors import HARD_EFFECTS, SOFT_EFFECT
from shared.model.numbers import parse_int64

DAEMON_SET = "DaemonSet"
_NODE_NAME = "metadata.name"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_SET_OPERATORS = ("In", "NotIn")
_NODE_OPERATORS = (*_SET_OPERATORS, "Exists", "DoesNotExist", "Gt", "Lt")
_POD_OPERATORS = (*_SET_OPERATORS, "Exists", "DoesNotExist")
_MATCHES_NOTHING = (Requirement("", "In", ()),)
_EFFECTS = (*HARD_EFFECTS, SOFT_EFFECT)
_TOLERATION_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
_WEIGHTS = range(1, 101)
_PORTS = range(1, 65_536)
MAX_ITEMS = 1_000


def parse_constraints(
    spec: Mapping[str, Any],
    where: str,
    *,
    labels: Mapping[str, str],
    required_node: str = "",
    is_daemon: bool = False,
) -> Constraints:
    """Return where a pod may be placed. Raises ManifestError with the field.

    ``labels`` are the pod's own, for ``matchLabelKeys``. A DaemonSet's pod (``is_daemon``) must
    have the node that its affinity names by ``metadata.name``.
    """
    affinity = _map(spec.get("affinity"), f"{where}.affinity")
    nodes = _map(affinity.get("nodeAffinity"), f"{where}.affinity.nodeAffinity")
    here = f"{where}.affinity.nodeAffinity"
    terms = _node_requirements(nodes.get("requiredDuringSchedulingIgnoredDuringExecution"), here)
    attract = _pod_requirements(
        affinity.get("podAffinity"), f"{where}.affinity.podAffinity", labels
    )
    repel = _pod_requirements(
        affinity.get("podAntiAffinity"), f"{where}.affinity.podAntiAffinity", labels
    )
    return Constraints(
        node_selector=tuple(
            sorted(texts(spec.get("nodeSelector"), f"{where}.nodeSelector").items())
        ),
        tolerations=parse_tolerations(spec.get("tolerations"), f"{where}.tolerations"),
        required_node=required_node or (_node_of(terms) if is_daemon else ""),
        node_terms=terms,
        preferred_nodes=_preferred_nodes(nodes, here),
        pod_affinity=attract[0],
        preferred_pods=attract[1],
        pod_anti_affinity=repel[0],
        avoided_pods=repel[1],
        spread=_spread(spec.get("topologySpreadConstraints"), where, labels),
        host_ports=_host_ports(spec, where),
    )


def _map(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ManifestError(where, f"a map was expected, found {type(value).__name__}")
    return value


def _list(value: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if value is None:
        return
    if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
        raise ManifestError(where, f"a list of at most {MAX_ITEMS} was expected")
    for at, item in enumerate(value):
        yield f"{where}[{at}]", _map(item, f"{where}[{at}]")


def texts(value: Any, where: str) -> dict[str, str]:
    """Return a map of texts; absent is empty. Raises ManifestError."""
    items = _map(value, where)
    if not all(isinstance(item, str) for item in items.values()):
        raise ManifestError(where, "a map of texts was expected")
    return {str(key): item for key, item in items.items()}


def parse_tolerations(value: Any, where: str) -> tuple[Toleration, ...]:
    """Return Kubernetes tolerations; absent is none. Raises ManifestError."""
    tolerations: list[Toleration] = []
    for place, item in _list(value, where):
        operator = str(item.get("operator") or "Equal")
        if operator not in _TOLERATION_OPERATORS:
            known = ", ".join(_TOLERATION_OPERATORS)
            raise ManifestError(place, f"operator must be one of {known}, found {operator!r}")
        toleration = Toleration(
            key=str(item.get("key") or ""),
            operator=operator,
            value=str(item.get("value") or ""),
            effect=str(item.get("effect") or ""),
        )
        _check_toleration(toleration, place)
        tolerations.append(toleration)
    return tuple(tolerations)


def _check_toleration(toleration: Toleration, where: str) -> None:
    if toleration.operator == "Exists" and toleration.value:
        raise ManifestError(f"{where}.value", "Exists takes no value")
    if toleration.operator != "Exists" and not toleration.key:
        raise ManifestError(f"{where}.operator", "without a key it must be Exists")
    if toleration.operator in ("Gt", "Lt") and parse_int64(toleration.value) is None:
        raise ManifestError(f"{where}.value", f"{toleration.operator} needs a whole number")
    if toleration.effect and toleration.effect not in _EFFECTS:
        raise ManifestError(
            f"{where}.effect", f"one of {', '.join(_EFFECTS)}, found {toleration.effect!r}"
        )


# --- selectors ----------------------------------------------------------------------------------


def _requirements(value: Any, where: str, operators: tuple[str, ...]) -> tuple[Requirement, ...]:
    found: list[Requirement] = []
    for place, item in _list(value, where):
        key, operator = item.get("key"), item.get("operator")
        values = item.get("values") or []
        if not isinstance(key, str) or not key:
            raise ManifestError(f"{place}.key", "a key is needed")
        if operator not in operators:
            raise ManifestError(
                f"{place}.operator", f"one of {', '.join(operators)}, found {operator!r}"
            )
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise ManifestError(f"{place}.values", "a list of texts was expected")
        _check_values(operator, values, f"{place}.values")
        found.append(Requirement(key, operator, tuple(values)))
    return tuple(found)


def _check_values(operator: str, values: list[str], where: str) -> None:
    if operator in _SET_OPERATORS and not values:
        raise ManifestError(where, f"{operator} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and values:
        raise ManifestError(where, f"{operator} takes no values")
    if operator in ("Gt", "Lt") and (len(values) != 1 or parse_int64(values[0]) is None):
        raise ManifestError(where, f"{operator} needs one whole number")


def label_selector(value: Any, where: str) -> tuple[Requirement, ...]:
    """Return a label selector; none at all matches nothing, an empty one everything."""
    if value is None:
        return _MATCHES_NOTHING
    item = _map(value, where)
    equal = texts(item.get("matchLabels"), f"{where}.matchLabels")
    exact = tuple(Requirement(key, "In", (value,)) for key, value in sorted(equal.items()))
    more = _requirements(item.get("matchExpressions"), f"{where}.matchExpressions", _POD_OPERATORS)
    return exact + more


def _own_labels(
    item: Mapping[str, Any], key: str, operator: str, labels: Mapping[str, str], where: str
) -> tuple[Requirement, ...]:
    """Return what ``matchLabelKeys`` adds: the pod's own values of some labels."""
    names = item.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ManifestError(f"{where}.{key}", "a list of texts was expected")
    return tuple(Requirement(name, operator, (labels[name],)) for name in names if name in labels)


# --- nodes --------------------------------------------------------------------------------------


def _node_requirements(value: Any, where: str) -> tuple[NodeTerm, ...]:
    here = f"{where}.requiredDuringSchedulingIgnoredDuringExecution"
    required = _map(value, here)
    if value is None:
        return ()
    terms = parse_node_selector(required, here)
    if not terms:
        raise ManifestError(f"{here}.nodeSelectorTerms", "at least one term is needed")
    return terms


def parse_node_selector(value: Any, where: str) -> tuple[NodeTerm, ...]:
    """Return the terms of a node selector, of which one is enough. Raises ManifestError."""
    listed = _list(_map(value, where).get("nodeSelectorTerms"), f"{where}.nodeSelectorTerms")
    return tuple(_node_term(item, place, 0) for place, item in listed)


def _node_term(item: Mapping[str, Any], where: str, weight: int) -> NodeTerm:
    fields = _requirements(item.get("matchFields"), f"{where}.matchFields", _SET_OPERATORS)
    if any(field.key != _NODE_NAME or len(field.values) != 1 for field in fields):
        raise ManifestError(
            f"{where}.matchFields", f"only {_NODE_NAME} can be asked for, with one value"
        )
    expressions = _requirements(
        item.get("matchExpressions"), f"{where}.matchExpressions", _NODE_OPERATORS
    )
    return NodeTerm(expressions, fields, weight)


def _preferred_nodes(nodes: Mapping[str, Any], where: str) -> tuple[NodeTerm, ...]:
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        _node_term(
            _map(item.get("preference"), f"{place}.preference"),
            f"{place}.preference",
            _weight(item, place),
        )
        for place, item in _list(nodes.get(key), f"{where}.{key}")
    )


def _weight(item: Mapping[str, Any], where: str) -> int:
    weight = item.get("weight")
    if type(weight) is not int or weight not in _WEIGHTS:
        raise ManifestError(f"{where}.weight", f"a whole number from 1 to 100, found {weight!r}")
    return weight


def _node_of(terms: tuple[NodeTerm, ...]) -> str:
    """Return the node that the last term names: that of a DaemonSet's pod.

    Source: docs/rules/pods.md#what-a-pod-asks-for.
    """
    for term in reversed(terms):
        for field in term.fields:
            if field.operator == "In" and field.values:
                return field.values[0]
    return ""


# --- pods ---------------------------------------------------------------------------------------


def _pod_requirements(
    value: Any, where: str, labels: Mapping[str, str]
) -> tuple[tuple[PodTerm, ...], tuple[PodTerm, ...]]:
    """Return the required and the preferred terms."""
    group = _map(value, where)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    return (
        tuple(
            _pod_term(item, place, labels, 0)
            for place, item in _list(group.get(required), f"{where}.{required}")
        ),
        tuple(
            _pod_term(
                _map(item.get("podAffinityTerm"), f"{place}.podAffinityTerm"),
                f"{place}.podAffinityTerm",
                labels,
                _weight(item, place),
            )
            for place, item in _list(group.get(preferred), f"{where}.{preferred}")
        ),
    )


def _pod_term(
    item: Mapping[str, Any], where: str, labels: Mapping[str, str], weight: int
) -> PodTerm:
    selector = label_selector(item.get("labelSelector"), f"{where}.labelSelector")
    selector += _own_labels(item, "matchLabelKeys", "In", labels, where)
    selector += _own_labels(item, "mismatchLabelKeys", "NotIn", labels, where)
    return PodTerm(
        topology_key=_topology_key(item, where),
        selector=selector,
        namespaces=_namespaces(item, where),
        weight=weight,
    )


def _topology_key(item: Mapping[str, Any], where: str) -> str:
    key = item.get("topologyKey")
    if not isinstance(key, str) or not key:
        raise ManifestError(f"{where}.topologyKey", "a topologyKey is needed")
    return key


def _namespaces(item: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the namespaces that a term checks; none is the pod's own."""
    names = item.get("namespaces") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ManifestError(f"{where}.namespaces", "a list of texts was expected")
    if item.get("namespaceSelector") is None:
        return tuple(sorted(names))
    requirements = label_selector(item["namespaceSelector"], f"{where}.namespaceSelector")
    if not requirements:
        return (ALL_NAMESPACES,)
    only = requirements[0]
    if len(requirements) == 1 and only.key == _NAMESPACE_NAME and only.operator == "In":
        return tuple(sorted({*names, *only.values}))
    raise ManifestError(
        f"{where}.namespaceSelector",
        f"not supported yet: labels of namespaces other than {_NAMESPACE_NAME}",
    )


def _spread(value: Any, where: str, labels: Mapping[str, str]) -> tuple[SpreadConstraint, ...]:
    found: list[SpreadConstraint] = []
    for place, item in _list(value, f"{where}.topologySpreadConstraints"):
        when = item.get("whenUnsatisfiable")
        if when not in ("DoNotSchedule", "ScheduleAnyway"):
            raise ManifestError(
                f"{place}.whenUnsatisfiable", f"DoNotSchedule or ScheduleAnyway, found {when!r}"
            )
        selector = label_selector(item.get("labelSelector"), f"{place}.labelSelector")
        constraint = SpreadConstraint(
            topology_key=_topology_key(item, place),
            max_skew=_positive(item, "maxSkew", place),
            hard=when == "DoNotSchedule",
            selector=selector + _own_labels(item, "matchLabelKeys", "In", labels, place),
            min_domains=_positive(item, "minDomains", place, default=1),
            honor_affinity=item.get("nodeAffinityPolicy", "Honor") != "Ignore",
            honor_taints=item.get("nodeTaintsPolicy", "Ignore") == "Honor",
        )
        found.append(constraint)
    return tuple(found)


def _positive(item: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = item.get(key)
    value = default if value is None else value
    if type(value) is not int or not 0 < value < 2**31:
        raise ManifestError(f"{where}.{key}", f"a whole number above 0, found {value!r}")
    return value


def _host_ports(spec: Mapping[str, Any], where: str) -> tuple[HostPort, ...]:
    """Return the ports of the node that a pod's containers take, and its sidecars."""
    is_host = spec.get("hostNetwork") is True
    found: dict[HostPort, None] = {}
    starters = _list(spec.get("initContainers"), f"{where}.initContainers")
    sidecars = (item for item in starters if item[1].get("restartPolicy") == "Always")
    containers = _list(spec.get("containers"), f"{where}.containers")
    for container, body in chain(containers, sidecars):
        for place, port in _list(body.get("ports"), f"{container}.ports"):
            number = port.get("hostPort") or (port.get("containerPort") if is_host else None)
            if number is None:
                continue
            if type(number) is not int or number not in _PORTS:
                raise ManifestError(f"{place}.hostPort", f"a port number, found {number!r}")
            protocol, ip = str(port.get("protocol") or "TCP"), str(port.get("hostIP") or "0.0.0.0")  # noqa: S104
            found[HostPort(number, protocol, ip)] = None
    return tuple(sorted(found, key=lambda port: (port.port, port.protocol, port.ip)))
