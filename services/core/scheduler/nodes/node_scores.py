"""The scores of nodes by their GPU devices, kept by what is asked for.

Rule 1: a score depends on a node's state (``Room``), on what is asked for and on the mix. So it is
        kept, for each demand and state, as long as the mix is the same. Of nodes that are alike one
        is scored: of all that have the room side by side, of the few that have changed alone.
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
from numpy.typing import NDArray

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.settings import NODE_SCORE_WINDOW
from services.core.scheduler.model.shapes import AskedFor, Demand, Shape
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.nodes.gpu_scores import GPU_SCORES, Mix, Numbers, Room, Rooms
from shared.messages.constraints import NO_CONSTRAINTS, Constraints
from shared.model.gpus import WHOLE, Devices

MAX_DEMANDS = 500  # of which the scores of all nodes are kept; more only cost a new look
MAX_STATES = 10_000  # states of nodes, beside two a node; with more all are numbered anew
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


class _States:
    """What nodes are alike for scores: those that have one Room have one number.

    ``_seen`` is how many changes of nodes there had been when a row was looked at, 0: it was not.
    """

    def __init__(self, nodes: ScoredNodes) -> None:
        self._nodes = nodes
        self._sets: tuple[Constraints, ...] = ()
        self._numbers: dict[Room, int] = {}
        self.rooms: list[Room] = []  # by number
        self._of_row = np.zeros(16, dtype=np.int64)
        self._seen = np.zeros(16, dtype=np.int64)

    def use(self, sets: tuple[Constraints, ...]) -> None:
        """Tell apart what these sets of constraints do, from now on."""
        if sets != self._sets:
            self._sets = sets
            self.forget()

    def forget(self) -> None:
        """Forget all, so that they are numbered anew."""
        self._numbers.clear()
        self.rooms.clear()
        self._seen[:] = 0

    @property
    def are_many(self) -> bool:
        """Return whether most of those that are kept are of nodes that have changed since."""
        return len(self.rooms) > MAX_STATES + 2 * len(self._nodes.rows)

    def of(self, rows: Numbers) -> Numbers:
        """Return the numbers of some rows."""
        self._grow()
        for row in rows[self._nodes.changed(rows) >= self._seen[rows]].tolist():
            self._look_at(self._nodes.rows[row])
        return self._of_row[rows]

    def of_one(self, node: Node) -> int:
        """Return the number of one node."""
        self._grow()
        if node.changed >= self._seen.item(node.row):
            self._look_at(node)
        return self._of_row.item(node.row)

    def _look_at(self, node: Node) -> None:
        room = self._nodes.room_of(node, self._sets)
        number = self._numbers.setdefault(room, len(self.rooms))
        if number == len(self.rooms):
            self.rooms.append(room)
        self._of_row[node.row] = number
        self._seen[node.row] = self._nodes.changes

    def _grow(self) -> None:
        missing = len(self._nodes.rows) - self._seen.size
        if missing > 0:
            more = missing + self._seen.size
            self._of_row = np.pad(self._of_row, (0, more))
            self._seen = np.pad(self._seen, (0, more))


@dataclass(slots=True, eq=False)
class _Known:
    """By number of a state: the score for one demand, what is free on the device picked, if any."""

    mix: Mix
    is_there: NDArray[np.bool_]
    scores: Numbers
    picked: Numbers

    def keep(self, numbers: int | Numbers, scores: int | Numbers, picked: int | Numbers) -> None:
        """Keep what some states score."""
        self.is_there[numbers] = True
        self.scores[numbers] = scores
        self.picked[numbers] = picked


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
        self._states = _States(nodes)

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
        demand = shape.asked_for[0]
        mix, states = self._mix_now(), self._states.of(rows)
        known = self._known_for(demand, mix)
        missing = np.flatnonzero(~known.is_there[states])
        if missing.size:
            last = np.zeros(len(self._states.rooms), dtype=np.int64)
            last[states[missing]] = missing  # of those that are alike one is scored
            some = missing[last[states[missing]] == missing]
            known.keep(states[some], *self._scored(mix, rows[some], demand))
        return known.scores[states]

    def of_few(self, shape: Shape, nodes: Sequence[Node]) -> list[int]:
        """Return what a few nodes score for a shape that they have the room for."""
        demand = shape.asked_for[0]
        mix, states = self._mix_now(), [*map(self._states.of_one, nodes)]
        known = self._known_for(demand, mix)
        for state in states:
            if not known.is_there.item(state):
                known.keep(state, *self._scored_one(mix, self._states.rooms[state], demand))
        return [known.scores.item(state) for state in states]

    def device_for(self, node: Node, demand: Demand) -> Devices:
        """Return the device of a node for a share; any other demand has the usual ones."""
        free = open_devices(node)
        need = (demand.size, demand.number)
        if demand.number != 1 or demand.size == WHOLE:
            return devices.choose(free, need)
        mix, state = self._mix_now(), self._states.of_one(node)
        known = self._known.get(demand)
        is_known = known is not None and known.mix is mix and state < known.is_there.size
        if known is not None and is_known and known.is_there[state]:
            picked = known.picked.item(state)
        else:
            picked = self._scored_one(mix, self._states.rooms[state], demand)[1]
        if picked < demand.size or picked not in free:
            return devices.choose(free, need)
        return ((free.index(picked), demand.size),)

    def _known_for(self, demand: Demand, mix: Mix) -> _Known:
        """Return the scores for a demand, of as many states as there are."""
        count = len(self._states.rooms)
        known = self._known.pop(demand, None)
        if known is None and len(self._known) >= MAX_DEMANDS:
            del self._known[next(iter(self._known))]
        if known is None or known.mix is not mix or known.is_there.size < count:
            more = 2 * count + 16
            is_there, scores = np.zeros(more, dtype=np.bool_), np.zeros(more, dtype=np.int64)
            known = _Known(mix, is_there, scores, scores.copy())
        self._known[demand] = known  # the one that was asked for last is the last
        return known

    def _scored(self, mix: Mix, rows: Numbers, demand: Demand) -> tuple[Numbers, Numbers]:
        rooms = self._nodes.rooms(rows, mix.constraints)
        return GPU_SCORES[self._policy].of_many(mix, rooms, demand)

    def _scored_one(self, mix: Mix, room: Room, demand: Demand) -> tuple[int, int]:
        return GPU_SCORES[self._policy].of_one(mix, room, demand)

    def _mix_now(self) -> Mix:
        """Return the mix; states that are known from before this call may have other numbers."""
        if self._mix is None:
            self._mix = mix_of(self._taken)
            self._states.use(self._mix.constraints)
        if self._states.are_many:
            self._states.forget()
            self._known.clear()
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
