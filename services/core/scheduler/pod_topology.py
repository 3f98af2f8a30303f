"""Pods that care about other pods: affinity, anti-affinity, topology spread and host ports.

Rule 1: a selector that some ask uses is a term; for every term the pods that match it are counted
        node by node, and a domain's count is the sum over its nodes. Counts follow every placement
        and removal, and are made anew when nodes or labels change.
Rule 2: anti-affinity holds both ways: a pod stays away from the domain of a running pod whose
        anti-affinity it matches.
Rule 3: a pod whose required affinity nobody matches may be the first, if it matches it itself.
Rule 4: the skew of a spread constraint is a domain's count, with the new pod, less the smallest
        count of an eligible domain, or 0 when there are fewer than ``min_domains``.
Source: the Kubernetes documentation of inter-pod affinity and of topology spread constraints.

Limits: MAX_TERMS terms are kept; beyond it all are forgotten and those in use counted anew. An ask
whose selectors would make more than MAX_LABEL_KEYS label keys is refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shared.messages.constraints import ALL_NAMESPACES, Constraints, HostPort, PodTerm, Requirement
from shared.messages.interface import Allocation
from shared.messages.selectors import all_hold

if TYPE_CHECKING:
    from services.core.scheduler.nodes import Node
    from services.core.scheduler.shapes import Labels, Shape

MAX_TERMS = 1_000
MAX_KINDS = 10_000
MAX_LABEL_KEYS = 1_000
NAMESPACE_TAG = "kubernetes.io/meta/namespace"
LABEL_TAG = "kubernetes.io/label/"
NAMESPACE_KEY = ""  # stands for the namespace among a shape's labels
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - Kubernetes' word for every address
Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]
Selection = tuple[tuple[Requirement, ...], tuple[str, ...]]  # selector, namespaces


@dataclass(frozen=True, slots=True)
class PodKind:
    """What selectors can see of a pod: its namespace and labels."""

    namespace: str
    labels: tuple[tuple[str, str], ...]

    def matches(self, selection: Selection) -> bool:
        """Return whether a selector, in its namespaces, matches the pod."""
        selector, namespaces = selection
        is_in = ALL_NAMESPACES in namespaces or self.namespace in namespaces
        return is_in and all_hold(selector, dict(self.labels))


def _pod_kind(labels: "Labels") -> PodKind:
    """Return what selectors can see of a pod, from the labels that they look at."""
    seen = dict(labels)
    return PodKind(seen.pop(NAMESPACE_KEY, ""), tuple(seen.items()))


def selection_of(term: PodTerm, namespace: str) -> Selection:
    """Return a term's selector with the namespaces it looks at."""
    return term.selector, term.namespaces or (namespace,)


class PodIndex:
    """The counts of every term, by the rows of the node table."""

    def __init__(self) -> None:
        self.label_keys: dict[str, None] = {}
        self._rows: list[Node] = []
        self._size = 0
        self._counts: dict[Selection, Counts] = {}
        self._owners: dict[tuple[str, Selection], Counts] = {}  # who keeps matching pods away
        self._domains: dict[str, tuple[Counts, int]] = {}
        self._kinds: dict[PodKind, tuple[Selection, ...]] = {}
        self._ports: dict[tuple[int, str], dict[Node, dict[str, int]]] = {}
        self._is_stale = True

    # --- keeping the counts ---------------------------------------------------------------------

    def watch(self, rows: "list[Node]") -> None:
        """Follow the node table's rows; they, or their labels, have changed."""
        self._rows = rows
        self._is_stale = True
        self._domains.clear()

    def joined(self) -> None:
        """Follow a node that was added in the row after the last; it has no pods yet."""
        self._domains.clear()

    def learn(self, constraints: Constraints) -> bool:
        """Take in which labels an ask's constraints look at; return whether there are new ones."""
        new = [key for key in _keys_of(constraints) if key not in self.label_keys]
        if new:
            self.label_keys.update(dict.fromkeys(new))
            self._is_stale = True
        return bool(new)

    def is_too_many(self, constraints: Constraints) -> bool:
        """Return whether an ask's constraints look at more labels than can be kept."""
        if len(self.label_keys) < MAX_LABEL_KEYS // 2:
            return False
        return len({*self.label_keys, *_keys_of(constraints)}) > MAX_LABEL_KEYS

    def labels_of(self, tags: Mapping[str, str]) -> "Labels":
        """Return those of a pod's labels that any constraint looks at, with its namespace.

        The tags of an ask or an allocation carry the pod's labels.
        """
        if not self.label_keys:
            return ()
        start = len(LABEL_TAG)
        seen = [
            (tag[start:], value)
            for tag, value in tags.items()
            if tag.startswith(LABEL_TAG) and tag[start:] in self.label_keys
        ]
        return tuple(sorted([(NAMESPACE_KEY, tags.get(NAMESPACE_TAG, "")), *seen]))

    def placed(self, node: "Node", allocation: Allocation, change: int) -> bool:
        """Count an allocation in (1) or out (-1); return whether any term looks at it."""
        constraints = allocation.constraints
        if self._is_stale:
            return bool(self.label_keys or constraints.host_ports)
        if self._size < len(self._rows):
            self._lengthen()
        for port in constraints.host_ports:
            self._count_port(node, port, change)
        selections: tuple[Selection, ...] = ()
        if self._counts:
            selections = self._selections(_pod_kind(self.labels_of(allocation.allocation_tags)))
        for selection in selections:
            self._counts[selection][node.row] += change
        for term in constraints.pod_anti_affinity:
            self._owner(term, constraints.namespace)[node.row] += change
        return bool(selections or constraints.pod_anti_affinity or constraints.host_ports)

    def _lengthen(self) -> None:
        """Count on the nodes that joined, too."""
        more = len(self._rows) - self._size
        self._size += more
        for selection, counts in self._counts.items():
            self._counts[selection] = np.pad(counts, (0, more))
        for term, counts in self._owners.items():
            self._owners[term] = np.pad(counts, (0, more))

    def _count_port(self, node: "Node", port: HostPort, change: int) -> None:
        taken = self._ports.setdefault((port.port, port.protocol), {}).setdefault(node, {})
        taken[port.ip] = taken.get(port.ip, 0) + change
        if not taken[port.ip]:
            del taken[port.ip]

    def _selections(self, kind: PodKind) -> tuple[Selection, ...]:
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            found = tuple(selection for selection in self._counts if kind.matches(selection))
            self._kinds[kind] = found
        return found

    def _owner(self, term: PodTerm, namespace: str) -> Counts:
        key = (term.topology_key, selection_of(term, namespace))
        if key not in self._owners:
            self._owners[key] = np.zeros(self._size, dtype=np.int64)
        return self._owners[key]

    def _need(self, selections: "Iterable[Selection]") -> None:
        """See that selections are counted, and counts are of the present nodes."""
        new = [selection for selection in selections if selection not in self._counts]
        if len(self._counts) + len(new) > MAX_TERMS:
            self._counts.clear()
        if new:
            self._counts.update((selection, np.zeros(0, dtype=np.int64)) for selection in new)
            self._is_stale = True
        if self._is_stale:
            self._recount()
        elif self._size < len(self._rows):
            self._lengthen()

    def _recount(self) -> None:
        self._is_stale = False
        self._size = len(self._rows)
        self._kinds.clear()
        self._owners.clear()
        self._ports.clear()
        for selection in self._counts:
            self._counts[selection] = np.zeros(self._size, dtype=np.int64)
        for node in self._rows:
            for allocation in (*node.allocations.values(), *node.foreign.values()):
                self.placed(node, allocation, 1)

    # --- what a shape may and would rather do ----------------------------------------------------

    def mask(self, shape: "Shape", eligible: Mask, selected: Mask) -> Mask | None:
        """Return the rows that pods leave open to a shape; None where no pod matters.

        ``eligible`` are the rows that match in every other respect but room, ``selected`` those
        that match but for taints.
        """
        constraints = shape.constraints
        if not constraints.asks_about_pods and not self._may_be_kept_away(shape):
            return None
        namespace = constraints.namespace
        spread = [item for item in constraints.spread if item.hard]
        wanted = [selection_of(t, namespace) for t in constraints.pod_affinity]
        unwanted = [selection_of(t, namespace) for t in constraints.pod_anti_affinity]
        self._need([*wanted, *unwanted, *((c.selector, (namespace,)) for c in spread)])
        result = np.ones(len(self._rows), dtype=np.bool_)
        for term, selection in zip(constraints.pod_anti_affinity, unwanted, strict=True):
            result &= self._in_domain(term.topology_key, self._counts[selection]) == 0
        self._keep_away(shape, result)
        if wanted:
            result &= self._affinity(shape, wanted)
        if spread:
            result &= self._spread(shape, eligible, selected)
        if constraints.host_ports:
            result &= self._free_ports(constraints.host_ports)
        return result

    def concern(self, shape: "Shape") -> bool:
        """Return whether any pod may matter to where a shape goes."""
        return shape.constraints.asks_about_pods or self._may_be_kept_away(shape)

    def _may_be_kept_away(self, shape: "Shape") -> bool:
        return bool(shape.labels) and (self._is_stale or bool(self._owners))

    def _keep_away(self, shape: "Shape", result: Mask) -> None:
        self._need(())
        kind = _pod_kind(shape.labels)
        for (topology_key, selection), counts in self._owners.items():
            if kind.matches(selection):
                result &= self._in_domain(topology_key, counts) == 0

    def _affinity(self, shape: "Shape", wanted: list[Selection]) -> Mask:
        terms = shape.constraints.pod_affinity
        kind = _pod_kind(shape.labels)
        result = np.ones(len(self._rows), dtype=np.bool_)
        is_first = not any(self._counts[selection].any() for selection in wanted) and all(
            kind.matches(selection) for selection in wanted
        )
        for term, selection in zip(terms, wanted, strict=True):
            if is_first:
                result &= self._domain(term.topology_key)[0] >= 0
            else:
                result &= self._in_domain(term.topology_key, self._counts[selection]) > 0
        return result

    def _spread(self, shape: "Shape", eligible: Mask, selected: Mask) -> Mask:
        hard = [item for item in shape.constraints.spread if item.hard]
        has_keys = np.ones(len(self._rows), dtype=np.bool_)
        for item in hard:
            has_keys &= self._domain(item.topology_key)[0] >= 0
        result = has_keys.copy()
        kind = _pod_kind(shape.labels)
        for item in hard:
            selection = (item.selector, (shape.constraints.namespace,))
            counted = has_keys.copy()
            if item.honor_affinity:
                counted &= selected
            if item.honor_taints:
                counted &= eligible
            rows, size = self._domain(item.topology_key)
            sums = _sum_by(rows[counted], self._counts[selection][counted], size)
            present = np.unique(rows[counted])
            least = int(sums[present].min()) if present.size >= item.min_domains else 0
            mine = int(kind.matches(selection))
            result &= np.where(rows >= 0, sums[rows], 0) + mine - least <= item.max_skew
        return result

    def _free_ports(self, wanted: tuple[HostPort, ...]) -> Mask:
        """Return the rows on which nobody has one of the ports at an address in common."""
        result = np.ones(len(self._rows), dtype=np.bool_)
        for port in wanted:
            for node, taken in self._ports.get((port.port, port.protocol), {}).items():
                if taken and (port.ip in taken or ANY_ADDRESS in (port.ip, *taken)):
                    result[node.row] = False
        return result

    def preference(self, shape: "Shape") -> list[tuple[Counts, bool]]:
        """Return what pods make of each row, as scores; True where a smaller one is better."""
        constraints = shape.constraints
        namespace = constraints.namespace
        soft = [item for item in constraints.spread if not item.hard]
        signed = [(term, 1) for term in constraints.preferred_pods]
        signed += [(term, -1) for term in constraints.avoided_pods]
        if not soft and not signed:
            return []
        self._need(
            [
                *(selection_of(term, namespace) for term, _ in signed),
                *((item.selector, (namespace,)) for item in soft),
            ]
        )
        found: list[tuple[Counts, bool]] = []
        if signed:
            total = np.zeros(len(self._rows), dtype=np.int64)
            for term, sign in signed:
                counts = self._counts[selection_of(term, namespace)]
                total += sign * term.weight * self._in_domain(term.topology_key, counts)
            found.append((total, False))
        if soft:
            crowd = np.zeros(len(self._rows), dtype=np.int64)
            for item in soft:
                counts = self._counts[item.selector, (namespace,)]
                crowd += self._in_domain(item.topology_key, counts)
            found.append((crowd, True))
        return found

    # --- domains --------------------------------------------------------------------------------

    def _domain(self, topology_key: str) -> tuple[Counts, int]:
        """Return every row's domain, -1 where the node lacks the key, and how many there are."""
        found = self._domains.get(topology_key)
        if found is None:
            numbers: dict[str, int] = {}
            rows = np.full(len(self._rows), -1, dtype=np.int64)
            for at, node in enumerate(self._rows):
                value = node.labels.get(topology_key)
                if value is not None:
                    rows[at] = numbers.setdefault(value, len(numbers))
            found = self._domains[topology_key] = (rows, len(numbers))
        return found

    def _in_domain(self, topology_key: str, counts: Counts) -> Counts:
        """Return, for every row, the sum of the counts in its domain; 0 where it has none."""
        rows, size = self._domain(topology_key)
        has_domain = rows >= 0
        sums = _sum_by(rows[has_domain], counts[has_domain], size)
        result = np.zeros(len(rows), dtype=np.int64)
        result[has_domain] = sums[rows[has_domain]]
        return result


def _sum_by(groups: Counts, values: Counts, size: int) -> Counts:
    sums = np.zeros(max(size, 1), dtype=np.int64)
    np.add.at(sums, groups, values)
    return sums


def _keys_of(constraints: Constraints) -> Iterator[str]:
    """Yield the label keys that an ask's constraints look at in other pods."""
    for terms in (
        constraints.pod_affinity,
        constraints.pod_anti_affinity,
        constraints.preferred_pods,
        constraints.avoided_pods,
        constraints.spread,
    ):
        for term in terms:
            yield from (requirement.key for requirement in term.selector)
