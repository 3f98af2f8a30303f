"""Volcano's ``subGroupPolicy``: pods of one PodGroup that go by their labels, each set near itself.

Rule 1: a pod is of the first policy whose ``labelSelector`` it matches and whose ``matchLabelKeys``
        it has; pods with equal values of these are one subgroup. Others are of none.
Rule 2: a subgroup starts with ``subGroupSize`` pods, in one domain if its policy says so; of each
        policy ``minSubGroups`` start at once, further ones as they come.
Rule 3: what ``minMember`` asks for beyond these are pods of no subgroup, or where there are none
        further subgroups of the only policy.
Source: Volcano's PodGroup (scheduling.volcano.sh/v1beta1).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from services.shim_adapter.translation.constraints import label_selector
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import (
    Gang,
    Network,
    SubGroupPolicy,
    items,
    text,
    whole,
)
from shared.messages.interface import NO_TOPOLOGY, GangSettings, SubGroup, TopologyConstraint
from shared.messages.selectors import all_hold

MAX_POLICIES = 16  # policies of one PodGroup; one with more is refused
MAX_LABELS = 8  # labels that tell subgroups of one policy apart; more are refused
MAX_SUBGROUPS = 100  # subgroups of one PodGroup; with more its pods wait
OfNetwork = Callable[[Mapping[str, Any], str], tuple[TopologyConstraint, Network | None]]
_WHERE = "spec.subGroupPolicy"
_BETWEEN = "/"  # policy and labels in the name of a subgroup: no value of a label has one


def policies_of(spec: Mapping[str, Any], of_network: OfNetwork) -> tuple[SubGroupPolicy, ...]:
    """Return the policies of a PodGroup. Raises ManifestError with the field."""
    listed = items(spec, "subGroupPolicy")
    if len(listed) > MAX_POLICIES:
        raise ManifestError(_WHERE, f"{len(listed)} of them, at most {MAX_POLICIES}")
    found = tuple(_policy(item, f"{_WHERE}[{at}]", of_network) for at, item in enumerate(listed))
    names = [policy.name for policy in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ManifestError(_WHERE, f"two are called {twice}")
    unstated = next((at for at, policy in enumerate(found) if policy.least is None), None)
    if unstated is not None and len(found) > 1:
        where = f"{_WHERE}[{unstated}].minSubGroups"
        raise ManifestError(where, "needed where there are several policies")
    return found


def _policy(value: Any, where: str, of_network: OfNetwork) -> SubGroupPolicy:
    item = mapping(value, where)
    name, size = text(item, "name", where), whole(item, "subGroupSize", 0, where)
    if not name or _BETWEEN in name:
        raise ManifestError(f"{where}.name", f"a name of its own is needed, found {name!r}")
    if not size:
        raise ManifestError(f"{where}.subGroupSize", "a whole number of 1 or more is needed")
    keys = items(item, "matchLabelKeys", where)
    if not all(isinstance(key, str) and key for key in keys) or len(keys) > MAX_LABELS:
        raise ManifestError(f"{where}.matchLabelKeys", f"at most {MAX_LABELS} labels were expected")
    selector = item.get("labelSelector")
    wish, network = of_network(item, f"{where}.networkTopology")
    return SubGroupPolicy(
        name,
        () if selector is None else label_selector(selector, f"{where}.labelSelector"),
        tuple(keys),
        size,
        whole(item, "minSubGroups", 0, where) if "minSubGroups" in item else None,
        wish,
        network,
    )


def subgroup_of(gang: Gang, labels: Mapping[str, str]) -> str:
    """Return the subgroup of a pod with some labels, "" for none."""
    for policy in gang.policies:
        if all_hold(policy.selector, labels) and all(key in labels for key in policy.keys):
            return _name(policy, [labels[key] for key in policy.keys])
    return ""


def _name(policy: SubGroupPolicy, values: Iterable[str]) -> str:
    return _BETWEEN.join((policy.name, *values))


def with_subgroups(gang: Gang, names: Iterable[str]) -> Gang | str:
    """Return a gang with the subgroups of which there are pods, or what does not hold.

    ``names`` are those that ``subgroup_of`` has given.
    """
    known = sorted(dict.fromkeys(names))
    if len(known) > MAX_SUBGROUPS:
        return f"{_WHERE}: {len(known)} subgroups, at most {MAX_SUBGROUPS}"
    sizes = {policy.name: policy for policy in gang.policies}
    least = {name: _least(gang, policy) for name, policy in sizes.items()}
    beyond = gang.minimum - sum(least[name] * sizes[name].size for name in sizes)
    if beyond > 0 and "" not in known:
        if len(sizes) > 1:
            return f"spec.minMember: {beyond} more than the subgroups of {_WHERE} need"
        only = next(iter(sizes))
        least[only] = -(-gang.minimum // sizes[only].size)
        beyond = 0
    parts = [SubGroup(gang.name, "", max(0, beyond))]
    parts += [SubGroup(_group(name), "", least[name], is_group=True) for name in sizes]
    for name in filter(None, known):
        policy = sizes[name.partition(_BETWEEN)[0]]
        parts.append(SubGroup(name, _group(policy.name), policy.size, topology=policy.topology))
    terms = GangSettings(tuple(parts), -1, gang.topology)
    return replace(gang, terms=terms, topology=NO_TOPOLOGY)


def _group(policy: str) -> str:
    return f"policy {policy}"


def _least(gang: Gang, policy: SubGroupPolicy) -> int:
    """Return how many subgroups start at once; where that is not stated ``minMember`` says it."""
    least = policy.least
    return max(1, gang.minimum // policy.size) if least is None else least
