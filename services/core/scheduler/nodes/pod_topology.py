"""Constraints between pods: affinity, anti-affinity, topology spread, host ports, and volumes.

Rule 1: for every selector in use the matching pods are counted by node; a domain's count is the sum
        over its nodes. A pod changes only the counts of selectors that match it. Counts by domain
        are recomputed when nodes or their labels change.
Rule 2: anti-affinity is symmetric: a pod avoids the domains of running pods whose anti-affinity
        matches it.
Rule 3: a pod whose required affinity matches no pod may be the first, if it matches itself.
Rule 4: the skew of a spread constraint is a domain's count, with the new pod, less the smallest
        count of an eligible domain, or 0 if there are fewer than ``min_domains``.
Source: the Kubernetes documentation of inter-pod affinity and of topology spread constraints.
Limits: MAX_TERMS selectors, and as many cached answers for shapes and for host ports; with more all
are dropped and those in use counted again. An ask that would lead to more than MAX_LABEL_KEYS label
keys is refused.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from services.core.scheduler.nodes.pod_counts import (
    Amounts,
    DomainCount,
    Domains,
    Mask,
    PodCount,
    SpreadCount,
)
from services.core.scheduler.nodes.pod_kinds import (
    NAMESPACE_KEY,
    KindTable,
    PodKind,
    Selection,
    SelectionIndex,
    selection_of,
    selections_of,
)
from services.core.scheduler.nodes.pod_waiters import PodWaiters
from services.core.scheduler.nodes.volume_counts import VolumeCounts
from shared.messages.constraints import Constraints, HostPort, PodTerm
from shared.messages.interface import Allocation, AllocationAsk
from shared.messages.selectors import is_tolerated
from shared.model.reasons import PodCause

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node
    from services.core.scheduler.model.shapes import Labels, Shape

Pod = Allocation | AllocationAsk
MAX_TERMS = 1_000
MAX_LABEL_KEYS = 1_000
NAMESPACE_TAG = "kubernetes.io/meta/namespace"
LABEL_TAG = "kubernetes.io/label/"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - every address, in Kubernetes


class PodPlan:
    """The counts that decide where pods of one shape may go, looked up once."""

    __slots__ = ("apart", "crowds", "is_first", "kind", "near", "spreads", "version", "wishes")

    def __init__(self, kind: PodKind, version: int) -> None:
        self.kind = kind
        self.version = version
        self.apart: list[DomainCount] = []
        self.near: list[tuple[PodCount, DomainCount]] = []
        self.is_first = False  # it matches its own affinity, so it may be the first
        self.spreads: list[SpreadCount] = []
        self.wishes: list[tuple[DomainCount, int]] = []
        self.crowds: list[DomainCount] = []


class PodLimits:
    """The nodes that other pods allow for one shape; valid until a pod changes."""

    __slots__ = ("_closed", "_is_first", "_plan", "_taken")

    def __init__(self, plan: PodPlan, kept_away: list[DomainCount], closed: list[Mask]) -> None:
        self._plan = plan
        self._taken = plan.apart + kept_away  # counts whose domains must be empty
        self._closed = closed
        self._is_first = plan.is_first and not any(count.total for count, _ in plan.near)

    def leaves_open(self, node: "Node") -> bool:
        """Whether one node is allowed."""
        plan, row = self._plan, node.row
        for count in self._taken:
            if count.has_any(row):
                return False
        for _, near in plan.near:
            if not (near.is_in_a_domain(row) if self._is_first else near.has_any(row)):
                return False
        return all(spread.open[row] for spread in plan.spreads) and not any(
            closed[row] for closed in self._closed
        )

    def open_rows(self, how_many: int) -> Mask:
        """Return which of the first rows are allowed."""
        result = np.ones(how_many, dtype=np.bool_)
        for count in self._taken:
            np.greater(result, count.taken(), out=result)
        for _, near in self._plan.near:
            result &= near.has_key if self._is_first else near.taken()
        for spread in self._plan.spreads:
            result &= spread.open
        for closed in self._closed:
            np.greater(result, closed, out=result)
        return result


class PodIndex:
    """The counts of all selectors, by the rows of the node table."""

    def __init__(self) -> None:
        self.label_tags: dict[str, str] = {}  # the tags that selectors use: their label keys
        self._rows: list[Node] = []
        self._domains: dict[str, Domains] = {}
        self._kinds = KindTable()
        self._counts: dict[Selection, PodCount] = {}
        self._terms = SelectionIndex()  # the counted selectors
        self._owners: dict[Selection, dict[str, PodCount]] = {}  # pods with this anti-affinity
        self._owned = SelectionIndex()
        self._ports: dict[tuple[int, str], dict[Node, dict[str, int]]] = {}
        self._closed: dict[tuple[int, str], dict[str, Mask]] = {}  # rows in use, by address
        self._plans: dict[tuple[Constraints, Labels], PodPlan] = {}
        self._version = 0  # of the inputs of plans
        self._is_stale = True  # pods are not counted before the first query
        self._last_labels: tuple[int, Mapping[str, str], Labels] = (0, {}, ())  # number, tags
        self.volumes = VolumeCounts()
        self.waiting = PodWaiters()
        self._are_domains_stale = False
        self._places: dict[tuple[str, str], tuple[Node, Pod]] = {}  # reserved for planned pods
        self._supposed: dict[tuple[str, str], tuple[Node, Pod, int]] = {}

    # --- counting -------------------------------------------------------------------------------

    def watch(self, rows: "list[Node]") -> None:
        """Set the rows of the node table, after they or their labels changed."""
        self._rows = rows
        self._are_domains_stale = True

    def joined(self) -> None:
        """Record that a node was added as the last row."""
        self._are_domains_stale = True

    def count_node(self, node: "Node", change: int) -> None:
        """Add (1) the pods of a node with a new row, or remove (-1) them before the row goes."""
        if not self._is_stale:
            for allocation in (*node.allocations.values(), *node.foreign.values()):
                self.count(node, allocation, change)

    def would_learn(self, constraints: Constraints) -> bool:
        """Whether an ask's constraints use labels that are not registered."""
        return constraints.asks_about_pods and any(
            tag not in self.label_tags for tag in _tags_of(constraints)
        )

    def learn(self, constraints: Constraints) -> bool:
        """Register the labels that an ask's constraints use; return whether any is new."""
        if not constraints.asks_about_pods:
            return False
        new = {
            tag: tag.removeprefix(LABEL_TAG)
            for tag in _tags_of(constraints)
            if tag not in self.label_tags
        }
        if new and not self.label_tags:
            self._is_stale = True  # namespaces were not recorded before
            new[NAMESPACE_TAG] = NAMESPACE_KEY
        if new and not self._is_stale:
            self._split_kinds(new)
        self.label_tags.update(new)
        return bool(new)

    def _split_kinds(self, new: Mapping[str, str]) -> None:
        """Move the pods with one of some new label keys to other kinds.

        No selector uses these keys yet, so that no count changes.
        """
        moved = [
            (node, self.labels_of(allocation.allocation_tags), allocation.allocation_tags)
            for node in self._rows
            for allocation in (*node.allocations.values(), *node.foreign.values())
            if not new.keys().isdisjoint(allocation.allocation_tags)
        ]
        self.label_tags.update(new)
        for node, labels, tags in moved:
            self._count_kind(node, labels, -1)
            self._count_kind(node, self.labels_of(tags), 1)

    def is_too_many(self, constraints: Constraints) -> bool:
        """Whether an ask's constraints would exceed MAX_LABEL_KEYS."""
        if len(self.label_tags) < MAX_LABEL_KEYS // 2:
            return False
        return len({NAMESPACE_TAG, *self.label_tags, *_tags_of(constraints)}) > MAX_LABEL_KEYS + 1

    def labels_of(self, tags: Mapping[str, str]) -> "Labels":
        """Return those of a pod's labels that any selector uses, with its namespace.

        The tags of an ask or allocation contain the pod's labels.
        """
        known = self.label_tags
        if not known:
            return ()
        number, before, labels = self._last_labels
        if number == len(known) and before == tags:  # equal pods arrive in a row
            return labels
        labels = tuple(sorted([(known[tag], tags[tag]) for tag in tags if tag in known]))
        self._last_labels = (len(known), tags, labels)
        return labels

    def placed(self, node: "Node", allocation: Allocation, change: int) -> bool:
        """Add an allocation (1) or remove it (-1), and note the shapes that it may help.

        Return whether any ask may depend on it. Before pods are counted, none was refused because
        of one.
        """
        if not self._is_stale:
            self.count(node, allocation, change)
            if self.waiting:
                labels = self.labels_of(allocation.allocation_tags)
                self.waiting.note(PodKind(labels), allocation.constraints, is_gone=change < 0)
        constraints = allocation.constraints
        return bool(
            self.label_tags
            or constraints.host_ports
            or constraints.pod_anti_affinity
            or constraints.volumes
        )

    def count_tentatively(self, node: "Node", pod: Pod, change: int) -> None:
        """Add a pod (1) or remove it (-1) until the statement undoes it; nothing is requeued."""
        key = (node.node_id, pod.allocation_key)
        net = change + (self._supposed[key][2] if key in self._supposed else 0)
        if net:
            self._supposed[key] = (node, pod, net)
        else:
            del self._supposed[key]
        self.count(node, pod, change)

    def reserve_place(self, node: "Node", pod: Pod, *, is_kept: bool) -> None:
        """Reserve the ports, volumes and anti-affinity domains of a planned pod.

        It does not count for affinity and spread before it exists.
        """
        key = (node.node_id, pod.allocation_key)
        if is_kept:
            self._places[key] = (node, pod)
        else:
            del self._places[key]
        if self._is_stale:
            return
        if self._are_domains_stale:
            self._forget_domains()
        self._count_repelled(node, pod, 1 if is_kept else -1)

    def _count_repelled(self, node: "Node", pod: Pod, change: int) -> None:
        constraints = pod.constraints
        for port in constraints.host_ports:
            self._count_port(node, port, change)
        self.volumes.count(node, constraints.volumes, change)
        for term in constraints.pod_anti_affinity:
            self._count_owner(node, term, constraints.namespace, change)

    def count(self, node: "Node", allocation: Pod, change: int) -> None:
        """Add an allocation (1) or remove it (-1); nothing is requeued."""
        if self._is_stale:
            return
        if self._are_domains_stale:
            self._forget_domains()
        labels = self.labels_of(allocation.allocation_tags)
        for count in self._count_kind(node, labels, change).counts:
            count.change(node, change)
        self._count_repelled(node, allocation, change)

    def _count_kind(self, node: "Node", labels: "Labels", change: int) -> PodKind:
        kind = self._kinds.kinds.get(labels)
        if kind is None:
            kind = self._kinds.add(labels)
            kind.counts = [self._counts[selection] for selection in self._terms.matching(kind)]
        left = kind.at.get(node, 0) + change
        if left:
            kind.at[node] = left
        else:
            del kind.at[node]
            if not kind.at:
                self._kinds.remove(labels)
        return kind

    def _count_owner(self, node: "Node", term: PodTerm, namespace: str, change: int) -> None:
        selection = selection_of(term, namespace)
        by_key = self._owners.get(selection)
        if by_key is None:
            by_key = self._owners[selection] = {}
            self._owned.add(selection)
        owner = by_key.get(term.topology_key)
        if owner is None:
            owner = by_key[term.topology_key] = PodCount()
        owner.change(node, change)
        if not owner.total:
            del by_key[term.topology_key]
        if not by_key:
            del self._owners[selection]
            self._owned.remove(selection)

    def _count_port(self, node: "Node", port: HostPort, change: int) -> None:
        place = (port.port, port.protocol)
        nodes = self._ports.setdefault(place, {})
        taken = nodes.setdefault(node, {})
        taken[port.ip] = taken.get(port.ip, 0) + change
        if not taken[port.ip]:
            del taken[port.ip]
        for address, closed in self._closed.get(place, {}).items():
            closed[node.row] = _collides(address, taken)
        if not taken:
            del nodes[node]

    def _need(self, selections: tuple[Selection, ...]) -> None:
        """Update the counts to the present nodes, with these selectors."""
        if self._is_stale:
            self._count_all()
        if self._are_domains_stale:
            self._forget_domains()
        new = [item for item in dict.fromkeys(selections) if item not in self._counts]
        if len(self._counts) + len(new) > MAX_TERMS:
            self._forget_counts()
            new = list(dict.fromkeys(selections))
        for selection in new:
            count = self._counts[selection] = PodCount()
            self._terms.add(selection)
            for kind in self._kinds.matching(selection):
                kind.counts.append(count)
                for node, pods in kind.at.items():
                    count.add(node, pods)

    def _count_all(self) -> None:
        self._kinds.clear()
        self._owners.clear()
        self._owned.clear()
        self._ports.clear()
        self.volumes.clear()
        self._counts.clear()
        self._terms.clear()
        self._forget_domains()
        self._is_stale = False
        for node in self._rows:
            self.count_node(node, 1)
        for node, pod, change in self._supposed.values():
            self.count(node, pod, change)
        for node, pod in self._places.values():
            self._count_repelled(node, pod, 1)

    def _forget_counts(self) -> None:
        self._counts.clear()
        self._terms.clear()
        for kind in self._kinds.kinds.values():
            kind.counts.clear()
        self._forget_plans()

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._version += 1

    def _forget_domains(self) -> None:
        self._are_domains_stale = False
        self._domains.clear()
        self._closed.clear()
        self.volumes.forget_rows()
        self._forget_plans()
        for count in self._counts.values():
            count.forget_domains()
        for owners in self._owners.values():
            for owner in owners.values():
                owner.forget_domains()

    # --- limits and preferences of a shape -------------------------------------------------------

    def be_counted(self) -> None:
        """Update the counts to the present nodes."""
        if self._is_stale or self._are_domains_stale:
            self._need(())

    def limits(self, shape: "Shape", eligible: Mask, selected: Mask) -> PodLimits:
        """Return the nodes that pods allow for a shape; volumes are ignored.

        ``eligible`` are the rows that match in all other respects but capacity, ``selected`` those
        that match without regard to taints.
        """
        plan = self._plan(shape, eligible, selected)
        closed = [self._closed_to(port) for port in shape.constraints.host_ports]
        return PodLimits(plan, self._repelling(plan.kind), closed)

    def closed_by(
        self, shape: "Shape", eligible: Mask, selected: Mask
    ) -> Iterator[tuple[PodCause, Mask]]:
        """Yield the rows that each rule closes to a shape, in the order of Kubernetes."""
        plan = self._plan(shape, eligible, selected)
        for port in shape.constraints.host_ports:
            yield PodCause.PORTS, self._closed_to(port)
        for spread in plan.spreads:
            yield PodCause.SPREAD_LABEL, ~spread.has_keys
            yield PodCause.SPREAD, ~spread.open
        is_first = plan.is_first and not any(count.total for count, _ in plan.near)
        for _, near in plan.near:
            yield PodCause.AFFINITY, ~(near.has_key if is_first else near.taken())
        for count in plan.apart:
            yield PodCause.ANTI_AFFINITY, count.taken()
        for count in self._repelling(plan.kind):
            yield PodCause.KEPT_AWAY, count.taken()

    def mask_when_empty(self, shape: "Shape") -> Mask:
        """Return the rows that would be allowed if no pod ran; volumes are ignored."""
        if self._are_domains_stale:
            self._forget_domains()
        constraints, kind = shape.constraints, PodKind(shape.labels)
        near = constraints.pod_affinity
        is_first = all(kind.matches(selection_of(term, constraints.namespace)) for term in near)
        result = np.full(len(self._rows), is_first, dtype=np.bool_)
        keys = [term.topology_key for term in near]
        for key in (*keys, *(item.topology_key for item in constraints.spread if item.hard)):
            result &= self._domain(key).has_key
        return result

    def concern(self, shape: "Shape") -> bool:
        """Whether other pods may affect where a shape goes."""
        if shape.labels and (self._is_stale or self._owners):  # anti-affinity of other pods
            return True
        return shape.constraints.asks_about_pods

    def _repelling(self, kind: PodKind) -> list[DomainCount]:
        """Return the counts of the pods whose anti-affinity matches a kind of pods."""
        return [
            owner.by(topology_key, self._domain(topology_key))
            for selection in self._owned.matching(kind)
            for topology_key, owner in self._owners[selection].items()
        ]

    def _plan(self, shape: "Shape", eligible: Mask, selected: Mask) -> PodPlan:
        self.be_counted()
        plan: PodPlan | None = shape.plan
        if plan is not None and plan.version == self._version:
            return plan
        plan = self._plans.get((shape.constraints, shape.labels))
        if plan is None:
            if len(self._plans) >= MAX_TERMS:
                self._forget_counts()
            plan = self._plan_again(shape, eligible, selected)
            self._plans[shape.constraints, shape.labels] = plan
        shape.plan = plan
        return plan

    def _plan_again(self, shape: "Shape", eligible: Mask, selected: Mask) -> PodPlan:
        constraints, namespace = shape.constraints, shape.constraints.namespace
        self._need(tuple(selections_of(constraints)))
        plan = PodPlan(PodKind(shape.labels), self._version)
        for term in constraints.pod_anti_affinity:
            plan.apart.append(self._count(term.topology_key, selection_of(term, namespace)))
        wanted = [selection_of(term, namespace) for term in constraints.pod_affinity]
        for term, selection in zip(constraints.pod_affinity, wanted, strict=True):
            count = self._count(term.topology_key, selection)
            plan.near.append((self._counts[selection], count))
        plan.is_first = all(plan.kind.matches(selection) for selection in wanted)
        self._plan_spread(plan, constraints, eligible, selected)
        for terms, sign in ((constraints.preferred_pods, 1), (constraints.avoided_pods, -1)):
            for term in terms:
                count = self._count(term.topology_key, selection_of(term, namespace))
                plan.wishes.append((count, sign * term.weight))
        for item in constraints.spread:
            if not item.hard:
                selection = (item.selector, (namespace,))
                plan.crowds.append(self._count(item.topology_key, selection))
        return plan

    def _plan_spread(
        self, plan: PodPlan, constraints: Constraints, eligible: Mask, selected: Mask
    ) -> None:
        hard = [item for item in constraints.spread if item.hard]
        has_keys = np.ones(len(self._rows), dtype=np.bool_)
        for item in hard:
            has_keys &= self._domain(item.topology_key).has_key
        for item in hard:
            counted = has_keys.copy()
            if item.honor_affinity:
                counted &= eligible if item.honor_taints else selected
            elif item.honor_taints:
                tolerated = [is_tolerated(constraints, node.taints) for node in self._rows]
                counted &= np.array(tolerated, dtype=np.bool_)
            selection = (item.selector, (constraints.namespace,))
            pods = self._counts[selection]
            spread = SpreadCount(
                item,
                self._domain(item.topology_key),
                pods.at,
                counted,
                has_keys,
                is_own=plan.kind.matches(selection),
            )
            plan.spreads.append(pods.subscribe(spread))

    def _count(self, topology_key: str, selection: Selection) -> DomainCount:
        return self._counts[selection].by(topology_key, self._domain(topology_key))

    def _closed_to(self, wanted: HostPort) -> Mask:
        """Return the rows on which a host port is in use at a common address."""
        place = (wanted.port, wanted.protocol)
        found = self._closed.get(place, {}).get(wanted.ip)
        if found is None:
            if sum(map(len, self._closed.values())) >= MAX_TERMS:
                self._closed.clear()
            closed = self._closed.setdefault(place, {})
            found = closed[wanted.ip] = np.zeros(len(self._rows), dtype=np.bool_)
            for node, taken in self._ports.get(place, {}).items():
                found[node.row] = _collides(wanted.ip, taken)
        return found

    def are_preferred(self, constraints: Constraints) -> bool:
        """Whether an ask prefers nodes because of their pods."""
        return bool(constraints.preferred_pods or constraints.avoided_pods) or any(
            not item.hard for item in constraints.spread
        )

    def preference(
        self, shape: "Shape", eligible: Mask, selected: Mask
    ) -> list[tuple[Amounts, bool]]:
        """Return scores of all rows by their pods; True: smaller is better.

        The arguments are those of ``limits``.
        """
        constraints = shape.constraints
        if not (constraints.spread or constraints.preferred_pods or constraints.avoided_pods):
            return []
        plan = self._plan(shape, eligible, selected)
        found: list[tuple[Amounts, bool]] = []
        if plan.wishes:
            total = np.zeros(len(self._rows), dtype=np.int64)
            for count, weight in plan.wishes:
                total += weight * count.by_row()
            found.append((total, False))
        if plan.crowds:
            crowd = np.zeros(len(self._rows), dtype=np.int64)
            for count in plan.crowds:
                crowd += count.by_row()
            found.append((crowd, True))
        return found

    def _domain(self, topology_key: str) -> Domains:
        found = self._domains.get(topology_key)
        if found is None:
            found = self._domains[topology_key] = Domains(topology_key, self._rows)
        return found


def _collides(address: str, taken: Mapping[str, int]) -> bool:
    return bool(taken) and (address in taken or ANY_ADDRESS in (address, *taken))


def _tags_of(constraints: Constraints) -> Iterator[str]:
    """Yield the tags of the labels in an ask's pod selectors; for no labels the namespace's."""
    for terms in (
        constraints.pod_affinity,
        constraints.pod_anti_affinity,
        constraints.preferred_pods,
        constraints.avoided_pods,
        constraints.spread,
    ):
        for term in terms:
            if not term.selector:
                yield NAMESPACE_TAG  # it matches every pod of its namespaces
            for requirement in term.selector:
                yield LABEL_TAG + requirement.key if requirement.key else NAMESPACE_TAG
