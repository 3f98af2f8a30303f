"""Placeholder sets: several placeholders released for one real pod larger than each of them.

Rule 1: a set is as small as possible while its sum is at least the pod, in every type that the
        placeholders have; the others stay for the rest of the gang, so that the gang's usage does
        not grow. If possible the set is on one node; else it is all placeholders on the node with
        the most, with the free capacity there, and others to stay within the queues' limits; else
        the pod goes to any node that fits.
Rule 2: from the first release to the last confirmation a claim reserves, on the node and in queues,
        users and groups, what the pod needs beyond the placeholders not yet ended. It grows as they
        end.
Rule 3: if no node would fit the pod, or a quota is too small, nothing is released.
Source: docs/rules/gangs.md#replacement; docs/adr/0025.
Cost: a search reads each placeholder of the group once; each set then costs O(log nodes).
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.task_groups import TaskGroupCount
from services.core.scheduler.model.user_table import first_shortage
from services.core.scheduler.nodes.filters.base import After
from services.core.scheduler.place.one import node_for
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation, TerminationType
from shared.model.reasons import Reason, Refusal
from shared.model.resources import (
    Resource,
    excess,
    fits_room,
    subtract_into,
    total_of,
)

Rank = tuple[int, int, int]


# --- which ones -----------------------------------------------------------------------------------


def candidates(application: Application, counts: TaskGroupCount) -> Iterator[Allocation]:
    """Yield a group's placeholders that may be released for a larger ask, releasing ones first."""
    for key in counts.unclaimed:
        if application.released[key] != TerminationType.PLACEHOLDER_REPLACED:
            yield application.allocations[key]
    for key in counts.held:
        yield application.allocations[key]


class SetSearch:
    """Finds placeholder sets for the asks of one shape in their task group.

    It is valid until anything but its own sets changes placeholders or nodes.
    """

    def __init__(
        self, partition: Partition, application: Application, counts: TaskGroupCount, ask: Ask
    ) -> None:
        self._partition = partition
        self._application = application
        self._shape: Shape = ask.shape
        self._wanted = ask.shape.wanted
        self._left: dict[str, Allocation] = {}
        self._by_node: dict[str, dict[str, Allocation]] = {}
        self._need: Resource = {}
        self._ranks: dict[str, Rank | None] = {}
        self._order: dict[str, int] = {}
        self._heap: list[tuple[Rank, str]] = []
        if partition.nodes.filters.could_hold.mask(self._shape).any():
            self._read(counts)

    def _read(self, counts: TaskGroupCount) -> None:
        for placeholder in candidates(self._application, counts):
            key = placeholder.allocation_key
            self._left[key] = placeholder
            self._by_node.setdefault(placeholder.node_id, {})[key] = placeholder
            for name, value in placeholder.resource_per_alloc.items():
                if value > 0 and name in self._wanted:
                    self._need[name] = self._wanted[name]
        for at, name in enumerate(self._by_node):
            self._order[name] = at
            self._ranks[name] = self._rank(name)
        self._heap = [(rank, name) for name, rank in self._ranks.items() if rank is not None]
        heapify(self._heap)

    def next(self) -> tuple[Node, list[Allocation]] | Refusal:
        """Return a node and the placeholders to release for an ask there, or a refusal.

        The caller reports the result by ``renew`` before the next call.
        """
        node = self._best_with_placeholders() or node_for(self._partition.nodes, self._shape)
        if node is None or not self._left:
            return self._partition.nodes.room.refusal(self._shape)
        chosen = self._on(node)
        chosen += self._elsewhere(node, chosen)
        return self._over_quota(chosen) or (node, chosen)

    def renew(self, node: Node, taken: list[Allocation]) -> None:
        """Rank again the node of a found set and the nodes of its placeholders."""
        for item in taken:
            del self._left[item.allocation_key]
            del self._by_node[item.node_id][item.allocation_key]
        for name in dict.fromkeys([node.node_id, *(item.node_id for item in taken)]):
            rank = self._ranks[name] = self._rank(name)
            if rank is not None:
                heappush(self._heap, (rank, name))

    # --- the node -------------------------------------------------------------------------------

    def _best_with_placeholders(self) -> Node | None:
        while self._heap:
            rank, name = self._heap[0]
            if self._ranks[name] == rank:
                return self._partition.nodes.nodes[name]
            heappop(self._heap)
        return None

    def _rank(self, name: str) -> Rank | None:
        """Return a node's rank, None if the ask could not start there.

        Nodes whose own placeholders are enough come first, the one with the fewest releases first;
        then those with the most placeholders.
        """
        node = self._partition.nodes.nodes.get(name)
        here = self._by_node.get(name, {})
        if node is None or not here:
            return None
        chosen = self._on(node)
        alone = total_of(item.resource_per_alloc for item in chosen)
        if node.is_closed and not fits_room(alone, self._wanted):
            return None  # others claim the free capacity there
        takes = self._partition.nodes.filters.takes
        if not takes.holds(node, self._shape, After(chosen)):
            return None
        if fits_room(alone, self._need):
            return 0, self._releases(chosen), self._order[name]
        return 1, -len(here), self._order[name]

    def _on(self, node: Node) -> list[Allocation]:
        """Return the fewest placeholders of a node that are enough for the ask there, else all."""
        lacking = excess(self._wanted, node.available)
        if node.is_closed:
            lacking = dict(self._wanted)
        for name, value in self._need.items():
            lacking[name] = max(value, self._wanted[name] - node.available.get(name, 0))
        return self._fewest(self._by_node.get(node.node_id, {}).values(), lacking)

    # --- the placeholders -----------------------------------------------------------------------

    def _elsewhere(self, node: Node, chosen: list[Allocation]) -> list[Allocation]:
        """Return placeholders of other nodes for the rest; at least one placeholder is released."""
        lacking = excess(self._need, total_of(item.resource_per_alloc for item in chosen))
        if not lacking:
            return [] if chosen else [next(iter(self._left.values()))]
        others = (item for item in self._left.values() if item.node_id != node.node_id)
        return self._fewest(others, lacking, is_ordered=True)

    def _fewest(
        self, items: Iterable[Allocation], wanted: Resource, *, is_ordered: bool = False
    ) -> list[Allocation]:
        """Return the fewest placeholders that reach an amount, else all that help.

        Those being released already come first.
        """
        if not is_ordered:
            items = sorted(items, key=self._usefulness)
        lacking, chosen = dict(wanted), []
        for item in items:
            if not lacking:
                break
            if any(item.resource_per_alloc.get(name, 0) > 0 for name in lacking):
                chosen.append(item)
                lacking = excess(lacking, item.resource_per_alloc)
        return self._trimmed(chosen, wanted) if not lacking else chosen

    def _usefulness(self, item: Allocation) -> tuple[bool, float]:
        amount = item.resource_per_alloc
        share = sum(min(amount.get(n, 0), value) / value for n, value in self._wanted.items())
        return not self._is_released_already(item), -share

    def _trimmed(self, chosen: list[Allocation], wanted: Resource) -> list[Allocation]:
        """Return a set without the placeholders that it does not need."""
        spare = total_of(item.resource_per_alloc for item in chosen)
        subtract_into(spare, wanted)
        needed: list[Allocation] = []
        for item in reversed(chosen):
            amount = {n: v for n, v in item.resource_per_alloc.items() if n in wanted}
            if not self._is_released_already(item) and fits_room(spare, amount):
                subtract_into(spare, amount)
            else:
                needed.append(item)
        return needed[::-1]

    def _is_released_already(self, item: Allocation) -> bool:
        return item.allocation_key in self._application.released

    def _releases(self, chosen: Sequence[Allocation]) -> int:
        return sum(not self._is_released_already(item) for item in chosen)

    def _over_quota(self, chosen: list[Allocation]) -> Refusal | None:
        """Return the refusal of a limit that the rest of the pod exceeds, or None."""
        rest = excess(self._wanted, total_of(item.resource_per_alloc for item in chosen))
        short_user = first_shortage(self._application, rest)
        if short_user is not None:
            return Refusal(Reason.USER_QUOTA, limit=short_user[1])
        short = self._application.queue.first_without_room(rest)
        if short is not None:
            return Refusal(Reason.QUEUE_QUOTA, limit=short[1])
        return None
