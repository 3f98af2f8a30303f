"""The scores of nodes by their GPU devices, kept by what is asked for.

Rule 1: a score depends on a node's room, on what is asked for and on the mix. So it is kept, for
        each demand, as long as the mix is the same and the node has not changed. Those that have
        are scored again, side by side, when that demand is asked for next and they have the room.
Rule 2: the mix is that of the last ``window`` asks, placeholders aside. It is taken anew each time
        that a quarter of the window has been asked for, and from the start on when as many have
        come as there were: a question never changes it. Who uses no such score pays for none:
        asks are counted from the moment on that one is used.
Rule 3: of constraints the MAX_SETS most common are told apart; who has others is counted as if
        any node would do.
Limits: MAX_DEMANDS demands are kept; the one not asked for longest is forgotten. It is all
        forgotten when the core starts anew.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.settings import NODE_SCORE_WINDOW
from services.core.scheduler.model.shapes import AskedFor, Demand, Shape
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.nodes.gpu_scores import GPU_SCORES, Mix, Numbers, Room, Rooms
from shared.messages.constraints import NO_CONSTRAINTS, Constraints
from shared.model.gpus import WHOLE, Devices

MAX_DEMANDS = 500  # of which the scores of all nodes are kept; more only cost a new look
MAX_SETS = 8  # sets of constraints that the mix tells apart; others count as none
PART = 4  # of the window: after so many new asks the mix is taken anew


class ScoredNodes(Protocol):
    """What scores ask of the table of nodes."""

    @property
    def rows(self) -> Sequence[Node]:
        """All nodes, each at its row."""

    @property
    def changes(self) -> int:
        """How many changes of nodes have been logged."""

    def changed(self, rows: Numbers) -> Numbers:
        """Return when some rows changed last, by how many changes there had been."""

    def reorder(self) -> None:
        """Have nodes looked at anew, as scores of those that have not changed are others now."""

    def rooms(self, rows: Numbers, sets: Sequence[Constraints]) -> Rooms:
        """Return what some rows have left, and which of them each set of constraints lets use."""

    def room_of(self, node: Node, sets: Sequence[Constraints]) -> Room:
        """Return the same of one node."""


@dataclass(slots=True, eq=False)
class _Known:
    """The scores of rows for one demand, and what is free on the device that is picked.

    ``seen`` is how many changes of nodes there had been when a row was scored, 0: it was not.
    """

    mix: Mix
    seen: Numbers
    scores: Numbers
    picked: Numbers


class NodeScores:
    """What was asked for lately, and what each node scores for it."""

    def __init__(self, nodes: ScoredNodes) -> None:
        self._nodes = nodes
        self._policy = ""
        self.is_used = False  # whether nodes are ordered by these scores
        self._recent: deque[AskedFor] = deque(maxlen=NODE_SCORE_WINDOW)
        self._asked = 0
        self._due = 1
        self._taken: tuple[AskedFor, ...] = ()  # what the mix is made of
        self._mix: Mix | None = None
        self._known: dict[Demand, _Known] = {}

    def use(self, policy: str) -> None:
        """Score by a policy from now on; one that is none of these scores nothing."""
        self._policy = policy
        self.is_used = policy in GPU_SCORES
        self._mix = None
        self._known.clear()

    def remember(self, window: int) -> None:
        """Make the mix of so many asks from now on."""
        self._recent = deque(self._recent, maxlen=window)

    def asked(self, asked_for: AskedFor) -> None:
        """Count an ask into the recent mix."""
        self._recent.append(asked_for)
        self._asked += 1
        if self._asked >= self._due:
            self._due += min(self._asked, -(-(self._recent.maxlen or 1) // PART))
            self._taken = tuple(self._recent)
            self._mix = None
            self._nodes.reorder()

    def of(self, shape: Shape, rows: Numbers) -> Numbers:
        """Return what some rows score for a shape that they have the room for; less is better."""
        known = self._known_for(shape.asked_for[0])
        stale = rows[self._nodes.changed(rows) >= known.seen[rows]]
        if stale.size:
            found = self._scored(known.mix, stale, shape.asked_for[0])
            known.scores[stale], known.picked[stale] = found
            known.seen[stale] = self._nodes.changes
        return known.scores[rows]

    def of_few(self, shape: Shape, nodes: Sequence[Node]) -> list[int]:
        """Return what a few nodes score for a shape that they have the room for."""
        demand, changes = shape.asked_for[0], self._nodes.changes
        known = self._known_for(demand)
        found: list[int] = []
        for node in nodes:
            row = node.row
            if node.changed < known.seen.item(row):
                found.append(known.scores.item(row))
                continue
            score, picked = self._scored_one(known.mix, node, demand)
            known.scores[row], known.picked[row], known.seen[row] = score, picked, changes
            found.append(score)
        return found

    def device_for(self, node: Node, demand: Demand) -> Devices:
        """Return the device of a node for a share; any other demand has the usual ones."""
        free = open_devices(node)
        need = (demand.size, demand.number)
        if demand.number != 1 or demand.size == WHOLE:
            return devices.choose(free, need)
        known = self._known.get(demand)
        if (
            known is not None
            and known.mix is self._mix
            and node.row < known.seen.size
            and node.changed < known.seen[node.row]
        ):
            picked = known.picked.item(node.row)
        else:
            picked = self._scored_one(self._mix_now(), node, demand)[1]
        if picked < demand.size or picked not in free:
            return devices.choose(free, need)
        return ((free.index(picked), demand.size),)

    def _known_for(self, demand: Demand) -> _Known:
        """Return the scores for a demand, of as many rows as there are."""
        mix, count = self._mix_now(), len(self._nodes.rows)
        known = self._known.pop(demand, None)
        if known is None and len(self._known) >= MAX_DEMANDS:
            del self._known[next(iter(self._known))]
        if known is None or known.mix is not mix or known.seen.size < count:
            known = _Known(mix, *(np.zeros(2 * count, dtype=np.int64) for _ in range(3)))
        self._known[demand] = known  # the one that was asked for last is the last
        return known

    def _scored(self, mix: Mix, rows: Numbers, demand: Demand) -> tuple[Numbers, Numbers]:
        rooms = self._nodes.rooms(rows, mix.constraints)
        return GPU_SCORES[self._policy].of_many(mix, rooms, demand)

    def _scored_one(self, mix: Mix, node: Node, demand: Demand) -> tuple[int, int]:
        room = self._nodes.room_of(node, mix.constraints)
        return GPU_SCORES[self._policy].of_one(mix, room, demand)

    def _mix_now(self) -> Mix:
        if self._mix is None:
            self._mix = mix_of(self._taken)
        return self._mix


def mix_of(asked: Sequence[AskedFor]) -> Mix:
    """Return the mix of some asks; the part without constraints is there in any case."""
    alike = Counter(map(id, asked))
    objects = {id(item): item for item in asked}
    counts: Counter[tuple[Constraints, Demand]] = Counter()
    for key, number in alike.items():
        demand, constraints = objects[key]
        counts[_of_nodes(constraints), demand] += number
    of_sets: Counter[Constraints] = Counter()
    for (constraints, _), number in counts.items():
        of_sets[constraints] += number
    of_sets.pop(NO_CONSTRAINTS, None)
    kept = [constraints for constraints, _ in of_sets.most_common(MAX_SETS)]
    found: dict[Constraints, Counter[Demand]] = {s: Counter() for s in (NO_CONSTRAINTS, *kept)}
    for (constraints, demand), number in counts.items():
        found.get(constraints, found[NO_CONSTRAINTS])[demand] += number
    return Mix(found)


def _of_nodes(constraints: Constraints) -> Constraints:
    """Return what constraints say of which nodes may be used: what is preferred closes none."""
    if constraints == NO_CONSTRAINTS:
        return NO_CONSTRAINTS
    return replace(constraints.of_nodes, preferred_nodes=(), gpu_devices=1)
