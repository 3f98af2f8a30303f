"""Topologies defined by other projects: Kueue's and KAI's Topology, Volcano's HyperNodes.

Rule 1: a Topology is a list of node labels, the widest first. A gang that names one, or a level of
        one, is placed by its labels.
Rule 2: HyperNodes are no labels. A node gets a label, which only Muster sees, for each tier:
        `topology.volcano.sh/tier-N` with the name of its HyperNode.
Rule 3: if the setting `topologyLevels` is not set, the cluster's levels are those of the first
        Topology of Kueue by name, else the first of KAI, else the tiers.
Rule 4: a gang that names a missing Topology or tier waits until it exists, with that reason.
Sources: kueue.x-k8s.io/v1beta2, kai.scheduler/v1alpha1, topology.volcano.sh/v1alpha1. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.shim_adapter.translation.constraints import label_selector
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import (
    Gang,
    Network,
    items,
    text,
)
from shared.messages.constraints import Requirement
from shared.messages.interface import NO_TOPOLOGY, TopologyConstraint
from shared.messages.selectors import all_hold
from shared.model.scheduler_settings import MAX_LEVELS

KUEUE_TOPOLOGY = "Topology.kueue.x-k8s.io"
KAI_TOPOLOGY = "Topology.kai.scheduler"
HYPER_NODE = "HyperNode.topology.volcano.sh"
TIER_LABEL = "topology.volcano.sh/tier-"
HOST_NAME = "kubernetes.io/hostname"
MAX_PATTERN = 256  # characters of a pattern of a HyperNode's members; a longer one matches nothing
Levels = tuple[str, ...]
_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Members:
    """The nodes or HyperNodes in a HyperNode: by name, by pattern, or by labels."""

    of_nodes: bool
    name: str = ""
    pattern: str = ""
    selector: tuple[Requirement, ...] | None = None


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A domain of the network: its tier (1 is the smallest), and its members."""

    tier: int
    tier_name: str = ""
    members: tuple[Members, ...] = ()


def topology_of(body: Mapping[str, Any]) -> Levels:
    """Return the labels of a Topology, the widest first. Raises ManifestError with the field."""
    spec = mapping(body.get("spec"), "spec")
    found: list[str] = []
    for at, item in enumerate(items(spec, "levels")):
        where = f"spec.levels[{at}]"
        label = text(mapping(item, where), "nodeLabel", where)
        if not label:
            raise ManifestError(f"{where}.nodeLabel", "a label of nodes is needed")
        found.append(label)
    if not 1 <= len(found) <= MAX_LEVELS:
        raise ManifestError("spec.levels", f"1 to {MAX_LEVELS} of them, found {len(found)}")
    if len(set(found)) < len(found):
        raise ManifestError("spec.levels", "two have the same label")
    if HOST_NAME in found[:-1]:
        raise ManifestError("spec.levels", f"{HOST_NAME} may only be the last")
    return tuple(found)


def hyper_node_of(body: Mapping[str, Any]) -> HyperNode:
    """Convert a HyperNode. Raises ManifestError with the field."""
    spec = mapping(body.get("spec"), "spec")
    tier = spec.get("tier")
    if type(tier) is not int or tier < 1:
        raise ManifestError("spec.tier", f"a whole number of 1 or more, found {tier!r}")
    members = [
        _members(item, f"spec.members[{at}]") for at, item in enumerate(items(spec, "members"))
    ]
    return HyperNode(tier, text(spec, "tierName"), tuple(members))


def _members(value: Any, where: str) -> Members:
    item = mapping(value, where)
    kind = text(item, "type", where)
    if kind not in ("Node", "HyperNode"):
        raise ManifestError(f"{where}.type", f"one of Node, HyperNode, found {kind!r}")
    where = f"{where}.selector"
    selector = mapping(item.get("selector") or {}, where)
    exact = mapping(selector.get("exactMatch") or {}, f"{where}.exactMatch")
    pattern = text(mapping(selector.get("regexMatch") or {}, where), "pattern", where)
    labels = selector.get("labelMatch")
    if len(pattern) > MAX_PATTERN:
        raise ManifestError(f"{where}.regexMatch", f"at most {MAX_PATTERN} characters")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ManifestError(f"{where}.regexMatch.pattern", f"{pattern!r}: {error}") from error
    found = None if labels is None else label_selector(labels, f"{where}.labelMatch")
    return Members(kind == "Node", text(exact, "name", where), pattern, found)


def _is_in(members: Members, name: str, labels: Mapping[str, str]) -> bool:
    if members.name:
        return members.name == name
    if members.pattern:
        return re.search(members.pattern, name) is not None
    return members.selector is not None and all_hold(members.selector, labels)


@dataclass(slots=True)
class Topologies:
    """The objects of each kind by name; an invalid one has an error text.

    ``is_set``: the user has set the levels of the cluster.
    """

    kueue: dict[str, Levels | str] = field(default_factory=dict)
    kai: dict[str, Levels | str] = field(default_factory=dict)
    hyper_nodes: dict[str, HyperNode | str] = field(default_factory=dict)
    is_set: bool = False

    def see(self, kind: str, name: str, body: Mapping[str, Any] | None) -> bool:
        """Add, update or remove (None) an object; return whether that changes anything."""
        found: Any = None
        if body is not None:
            try:
                found = hyper_node_of(body) if kind == HYPER_NODE else topology_of(body)
            except ManifestError as error:
                found = str(error)
        kinds: dict[str, dict[str, Any]] = {
            KUEUE_TOPOLOGY: self.kueue, KAI_TOPOLOGY: self.kai, HYPER_NODE: self.hyper_nodes,
        }  # fmt: skip
        known = kinds[kind]
        if known.get(name) == found:
            return False
        if found is None:
            del known[name]
        else:
            known[name] = found
        return True

    @property
    def levels(self) -> str:
        """The levels of the cluster in the format of the setting, "" for none."""
        for kind in (self.kueue, self.kai):
            for name in sorted(kind):
                labels = kind[name]
                if not isinstance(labels, str):
                    return ",".join(labels)
        return ",".join(f"{name}={label}" for name, label in self._tiers().values())

    def _tiers(self) -> dict[int, tuple[str, str]]:
        """Return name and label of each tier, the widest first."""
        names: dict[int, str] = {}
        for name in sorted(self.hyper_nodes):
            found = self.hyper_nodes[name]
            if isinstance(found, HyperNode):
                names[found.tier] = names.get(found.tier) or found.tier_name
        return {
            tier: (names[tier] or f"tier-{tier}", f"{TIER_LABEL}{tier}")
            for tier in sorted(names, reverse=True)
        }

    # --- the nodes of HyperNodes ----------------------------------------------------------------

    def tiers_of(self, nodes: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
        """Return the tier labels of each node, from all nodes' names and labels.

        Of several HyperNodes of one tier a node is in the first by name.
        """
        hyper = {
            name: found
            for name, found in sorted(self.hyper_nodes.items())
            if isinstance(found, HyperNode)
        }
        found: dict[str, dict[str, str]] = {}
        for name, node in sorted(hyper.items(), key=lambda item: item[1].tier):
            label = f"{TIER_LABEL}{node.tier}"
            for own in self._nodes_of(name, hyper, nodes, ()):
                found.setdefault(own, {}).setdefault(label, name)
        return found

    def _nodes_of(
        self,
        name: str,
        hyper: Mapping[str, HyperNode],
        nodes: Mapping[str, Mapping[str, str]],
        above: tuple[str, ...],
    ) -> Iterator[str]:
        """Yield the nodes in a HyperNode and in those below it; cycles are cut."""
        node = hyper[name]
        for members in node.members:
            if members.of_nodes:
                yield from _chosen(members, nodes)
                continue
            for below in _chosen(members, dict.fromkeys(hyper, _NO_LABELS)):
                if below != name and below not in above and hyper[below].tier < node.tier:
                    yield from self._nodes_of(below, hyper, nodes, (*above, name))

    # --- what gangs name ------------------------------------------------------------------------

    def resolved(self, gang: Gang) -> Gang | str:
        """Return a gang with its named topologies replaced by labels, or an error text."""
        if gang.policies:
            return self._of_policies(gang)
        if gang.network is not None:
            return self._with_tier(gang, gang.network)
        if gang.topologies:
            return self._of_kai(gang)
        if not gang.is_kueues:
            return gang
        wish = self._of_kueue(gang.topology)
        wrong = [name for name in sorted(self.kueue) if isinstance(self.kueue[name], str)]
        if wrong and not (wish.levels or self.is_set):
            return f"{KUEUE_TOPOLOGY} {wrong[0]}: {self.kueue[wrong[0]]}"
        return replace(gang, topology=wish)

    def _of_policies(self, gang: Gang) -> Gang | str:
        """Return a Volcano gang with the tiers of the gang and of each policy."""
        policies = []
        for policy in gang.policies:
            own = Gang(policy.name, 0, topology=policy.topology, network=policy.network)
            found = self.resolved(own)
            if isinstance(found, str):
                return f"spec.subGroupPolicy {policy.name}: {found}"
            policies.append(replace(policy, topology=found.topology))
        whole = self.resolved(replace(gang, policies=()))
        return whole if isinstance(whole, str) else replace(whole, policies=tuple(policies))

    def _of_kai(self, gang: Gang) -> Gang | str:
        for name in gang.topologies.values():
            found = self.kai.get(name)
            if isinstance(found, str):
                return f"{KAI_TOPOLOGY} {name}: {found}"
            if found is None and self.kai and not self.is_set:
                return f"{KAI_TOPOLOGY} {name} is not there"
        terms = gang.terms
        parts = tuple(
            replace(part, topology=self._by_labels(part.topology, gang.topologies.get(part.name)))
            for part in terms.subgroups
        )
        whole = self._by_labels(terms.topology, gang.topologies.get(""))
        return replace(gang, terms=replace(terms, subgroups=parts, topology=whole))

    def _by_labels(self, wish: TopologyConstraint, name: str | None) -> TopologyConstraint:
        labels = self.kai.get(name or "")
        if wish == NO_TOPOLOGY or wish.wrong or labels is None or isinstance(labels, str):
            return wish
        return replace(wish, levels=labels)

    def _of_kueue(self, wish: TopologyConstraint) -> TopologyConstraint:
        named = [wish.required, wish.preferred, *(each.level for each in wish.slices)]
        named = [label for label in named if label]
        if not named or wish.wrong:
            return wish
        for name in sorted(self.kueue):
            labels = self.kueue[name]
            if not isinstance(labels, str) and set(named) <= set(labels):
                return replace(wish, levels=labels)
        return wish

    def _with_tier(self, gang: Gang, network: Network) -> Gang | str:
        """Return a gang restricted to a HyperNode of a tier, preferring the smallest."""
        tiers = self._tiers()
        where = "spec.networkTopology"
        if network.tier is None:
            by_name = {name: tier for tier, (name, _) in tiers.items()}
            if network.name not in by_name:
                return gang  # a level of the cluster, or none: that is said when it is looked for
            allowed = by_name[network.name]
        elif not tiers:
            return f"{where}: not supported: tiers by number need HyperNodes; use highestTierName"
        else:
            within = [tier for tier in tiers if tier <= network.tier]
            if not within:
                return f"{where}: there is no HyperNode of tier {network.tier} or below"
            allowed = max(within)
        nearest = min(tiers)
        labels = tuple(label for _, label in tiers.values())
        preferred = f"{TIER_LABEL}{nearest}" if nearest != allowed or network.is_soft else ""
        required = "" if network.is_soft else f"{TIER_LABEL}{allowed}"
        return replace(gang, topology=TopologyConstraint(labels, required, preferred))


def _chosen(members: Members, among: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    """Yield the selected names, in their order."""
    if members.name:
        return (members.name,) if members.name in among else ()
    return (name for name, labels in among.items() if _is_in(members, name, labels))
