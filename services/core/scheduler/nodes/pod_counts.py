"""Counts of pods by node and by domain, updated with every pod.

A domain is the set of nodes with one value of a topology key. Whether a count allows a row is one
boolean, updated for the rows of the changed domain only; if the smallest count of a spread
constraint changes, all rows are computed again.
"""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shared.messages.constraints import SpreadConstraint

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node

Mask = NDArray[np.bool_]
Amounts = NDArray[np.int64]


class Domains:
    """The domains of one topology key: every row's number, -1 if the node lacks the key."""

    __slots__ = ("_order", "_starts", "has_key", "of", "rows", "size")

    def __init__(self, topology_key: str, nodes: "list[Node]") -> None:
        numbers: dict[str, int] = {}
        self.of = [
            -1 if value is None else numbers.setdefault(value, len(numbers))
            for value in [node.labels.get(topology_key) for node in nodes]
        ]
        self.size = len(numbers)
        self.rows: Amounts = np.array(self.of, dtype=np.int64)
        self.has_key: Mask = self.rows >= 0
        self._order = np.argsort(self.rows, kind="stable")
        edges = np.searchsorted(self.rows[self._order], np.arange(self.size + 1))
        self._starts: list[int] = edges.tolist()

    def members(self, domain: int) -> Amounts:
        """Return the rows of a domain."""
        return self._order[self._starts[domain] : self._starts[domain + 1]]


class DomainCount:
    """A count by domain; its values by row are computed once and then updated."""

    __slots__ = ("_by_row", "_domains", "_sums", "_taken")

    def __init__(self, domains: Domains, at: "dict[Node, int]") -> None:
        self._domains = domains
        self._sums: dict[int, int] = {}
        self._taken: Mask | None = None
        self._by_row: Amounts | None = None
        for node, count in at.items():
            self.change(node.row, count)

    @property
    def has_key(self) -> Mask:
        """Return the rows that are in a domain."""
        return self._domains.has_key

    def change(self, row: int, change: int) -> None:
        """Change the count of pods on a row."""
        domain = self._domains.of[row]
        if domain < 0:
            return
        before = self._sums.get(domain, 0)
        after = before + change
        if after:
            self._sums[domain] = after
        else:
            self._sums.pop(domain, None)
        if self._taken is not None and (not before or not after):
            self._taken[self._domains.members(domain)] = after != 0
        if self._by_row is not None:
            self._by_row[self._domains.members(domain)] = after

    def has_any(self, row: int) -> bool:
        """Whether a row's domain has any pods."""
        return self._domains.of[row] in self._sums

    def is_in_a_domain(self, row: int) -> bool:
        """Whether a row is in a domain."""
        return self._domains.of[row] >= 0

    def taken(self) -> Mask:
        """Return the rows whose domain has any pods; read-only."""
        if self._taken is None:
            has_any = np.zeros(self._domains.size + 1, dtype=np.bool_)
            has_any[list(self._sums)] = True
            self._taken = has_any[self._domains.rows]
        return self._taken

    def by_row(self) -> Amounts:
        """Return the count of every row's domain; read-only."""
        if self._by_row is None:
            sums = np.zeros(self._domains.size + 1, dtype=np.int64)
            sums[list(self._sums)] = list(self._sums.values())
            self._by_row = sums[self._domains.rows]
        return self._by_row


class SpreadCount:
    """The rows that one hard spread constraint allows for pods of one kind.

    ``counted`` are the rows whose pods and domains count, ``has_keys`` those with the keys of all
    constraints; ``is_own``: the new pod is counted itself.
    """

    __slots__ = (
        "_counted",
        "_domains",
        "_has_keys",
        "_how_many",
        "_is_few",
        "_least",
        "_limit",
        "_sums",
        "open",
    )

    def __init__(
        self,
        item: SpreadConstraint,
        domains: Domains,
        at: "dict[Node, int]",
        counted: Mask,
        has_keys: Mask,
        *,
        is_own: bool,
    ) -> None:
        self._domains = domains
        self._counted = counted
        self._has_keys = has_keys
        self._limit = item.max_skew - is_own
        self._sums = np.zeros(domains.size + 1, dtype=np.int64)
        for node, count in at.items():
            if counted[node.row]:
                self._sums[domains.of[node.row]] += count
        sums: list[int] = self._sums[np.unique(domains.rows[counted])].tolist()
        self._how_many = Counter(sums)  # number of domains, by count
        self._is_few = len(sums) < max(1, item.min_domains)
        self._least = 0 if self._is_few else min(sums)
        self.open: Mask
        self._compare_all()

    def _compare_all(self) -> None:
        is_open = self._sums <= self._limit + self._least
        self.open = is_open[self._domains.rows] & self._has_keys

    @property
    def has_keys(self) -> Mask:
        """Return the rows with the keys of all constraints."""
        return self._has_keys

    def change(self, row: int, change: int) -> None:
        """Add one pod on a row (1) or remove it (-1)."""
        if not self._counted[row]:
            return
        domain = self._domains.of[row]
        before = int(self._sums[domain])
        after = before + change
        self._sums[domain] = after
        self._how_many[before] -= 1
        self._how_many[after] += 1
        is_last = not self._how_many[before]
        if is_last:
            del self._how_many[before]
        if not self._is_few and (after < self._least or (is_last and before == self._least)):
            self._least = after
            self._compare_all()
            return
        most = self._limit + self._least
        if (before <= most) != (after <= most):
            rows = self._domains.members(domain)
            self.open[rows] = self._has_keys[rows] if after <= most else False


class PodCount:
    """The number of pods of one kind on each node, with its counts by domain."""

    __slots__ = ("_by_key", "_spreads", "at", "total")

    def __init__(self) -> None:
        self.at: dict[Node, int] = {}
        self.total = 0
        self._by_key: dict[str, DomainCount] = {}
        self._spreads: list[SpreadCount] = []

    def change(self, node: "Node", change: int) -> None:
        """Add one pod on a node (1) or remove it (-1)."""
        self.add(node, change)
        for count in self._by_key.values():
            count.change(node.row, change)
        for spread in self._spreads:
            spread.change(node.row, change)

    def add(self, node: "Node", count: int) -> None:
        """Add pods before any count by domain exists."""
        self.total += count
        left = self.at.get(node, 0) + count
        if left:
            self.at[node] = left
        else:
            del self.at[node]

    def by(self, topology_key: str, domains: Domains) -> DomainCount:
        """Return the count by the domains of a topology key, updated from now on."""
        found = self._by_key.get(topology_key)
        if found is None:
            found = self._by_key[topology_key] = DomainCount(domains, self.at)
        return found

    def subscribe(self, spread: SpreadCount) -> SpreadCount:
        """Update a spread constraint with every change from now on."""
        self._spreads.append(spread)
        return spread

    def forget_domains(self) -> None:
        """Drop the counts by domain, because nodes or their labels changed."""
        self._by_key.clear()
        self._spreads.clear()
