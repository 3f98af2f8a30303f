"""Runs: plain decisions that follow one another, counted together.

Rule 1: a run decides what placing one by one would decide, in the same order. Each decision asks
        the queues, the leaf and the nodes for the first; what is left out is work whose result
        nobody reads before the run ends.
Rule 2: what decides whose turn it is next is kept at every decision: the sums of queues that have
        siblings to schedule, and in a leaf sorted fair what its applications use. All other sums
        are counted once: those above when headroom is looked up, those of an application when its
        lane ends, and those of a node when another one comes first.
Rule 3: a lane is an application whose groups have come first in their leaf; they stay in the lane,
        each at its place, until the lane ends. A leaf goes on with the first of its lanes, or with
        the first of what is in no lane. Of an application that has one the place in the leaf may
        be out of date, but then it is too early: its group joins the lane when it comes first.
        An order of queues that asks for a leaf's next job is told of those in lanes.
Rule 4: a lane ends with the last ask of a priority, which moves its application, or with the run.
        A run ends before a decision that does more than place an ask: the last of a gang's
        placeholders, an ask that people were told about, one with a reservation, a refusal.
Rule 5: a run takes asks of which other pods know nothing, where no plugin minds each decision. All
        others are placed by the cycle, one at a time.
Limit: what the cycle may still decide, and the headroom of every group that takes part.
"""

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace

from services.core.scheduler.model.queue_ledger import MANY
from services.core.scheduler.model.queue_settings import FAIR
from services.core.scheduler.model.rows import (
    Application,
    AskGroup,
    EntryKey,
    Node,
    Owner,
    Queue,
)
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.device_rows import places_on
from services.core.scheduler.ordering import queueing, turns
from services.core.scheduler.place.one import node_for
from services.core.scheduler.statement.journal import RunPlaced
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.gpus import GPU_SHARE
from shared.model.resources import Resource, add_into, multiply, subtract_into
from shared.model.states import ApplicationState

Head = tuple[tuple[int, int, int], int, "_Part"]  # the order of a part's first ask


def place(partition: Partition, leaf: Queue, most: int) -> int:
    """Place from a leaf whose turn it is, and from those whose turn it then is; return how many."""
    hooks = partition.hooks
    if (hooks is not None and hooks.minds_each) or partition.nodes.pods.label_keys:
        return 0
    run = _Run(partition, most)
    next_leaf: Queue | None = leaf
    while run.left > 0 and next_leaf is not None and run.place_next(next_leaf):
        next_leaf = turns.next_leaf(partition.root)
    return run.finish()


class _Part:
    """A group in its lane; ``placed`` of its asks it counts as waiting still."""

    __slots__ = ("amount", "first", "group", "lane", "left", "number", "placed", "resource")

    def __init__(self, group: AskGroup, lane: "_Lane", ask: Ask, number: int) -> None:
        self.group = group
        self.lane = lane
        self.first = ask
        self.number = number  # tells parts apart
        self.resource = ask.shape.resource
        self.amount = [item for item in self.resource.items() if item[1]]
        self.left = 0  # of placeholders: how many are placed with nothing else to do
        self.placed = 0


class _Lane:
    """An application whose asks are being placed, and what its sums do not know yet."""

    __slots__ = (
        "application", "heads", "leaf", "parts", "placing", "stands_at", "total", "unknown", "used",
        "waiting",
    )  # fmt: skip

    def __init__(self, application: Application, leaf: "_Leaf") -> None:
        self.application = application
        self.leaf = leaf
        self.parts: list[_Part] = []
        self.heads: list[Head] = []  # a heap
        self.stands_at: EntryKey | None = None  # its first, as its leaf orders them
        self.waiting: dict[int, int] = {}  # of the priorities that it places
        self.placing: _Part | None = None  # of placeholders
        self.total: dict[bool, Resource] = {False: {}, True: {}}  # of placeholders: True
        self.unknown: Resource = {}  # what its users' sums do not know
        self.used = application.in_use() if leaf.is_fair else {}

    def is_behind(self, other: tuple[EntryKey, AskGroup] | None) -> bool:
        """Return whether another entry of its leaf comes first."""
        return other is not None and self.stands_at is not None and other[0] < self.stands_at


class _Leaf:
    """A leaf from which a run places: its lanes, and the first of what is in none of them."""

    __slots__ = ("above", "beside", "contested", "is_fair", "lane_of", "lanes", "queue", "roomy")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.is_fair = queue.settings.sort_policy == FAIR
        self.contested: list[Queue] = []  # those on the path that have siblings to schedule
        self.above: list[Queue] = []  # those that have none
        for level in queue.lineage():
            above = level.parent
            has_rivals = above is not None and len(above.active_children) > 1
            (self.contested if has_rivals else self.above).append(level)
        self.lane_of: dict[Application, _Lane] = {}
        self.lanes: list[tuple[EntryKey, int, _Lane]] = []  # a heap; those whose key is not ours
        self.beside = queue.first_group()
        self.roomy: dict[Owner | None, Resource] = {}  # of what size the run respects the headroom

    def sort(self, lane: _Lane, number: int) -> None:
        """Give a lane its place, after its first ask, or what it uses, has changed."""
        if not lane.heads:
            lane.stands_at = None
            return
        application = lane.application
        order = application.order_at(lane.used) if self.is_fair else application.order
        lane.stands_at = order + lane.heads[0][0]
        entry = (lane.stands_at, number, lane)
        if self.lanes and self.lanes[0][2] is lane:
            heapreplace(self.lanes, entry)
        else:
            heappush(self.lanes, entry)

    def next_group(self) -> AskGroup | None:
        """Return the group that is next here: of the first lane, or beside the lanes."""
        lane = self.first_lane()
        if lane is not None and not lane.is_behind(self.beside):
            return lane.heads[0][2].group
        return self.beside[1] if self.beside is not None else None

    def first_lane(self) -> _Lane | None:
        """Return the lane that comes first of all lanes, or None."""
        lanes = self.lanes
        while lanes:
            entry, _, lane = lanes[0]
            if entry is lane.stands_at:
                return lane
            heappop(lanes)
        return None


class _Run:
    """One run: the leaves that take part, and what is not counted on its node yet."""

    def __init__(self, partition: Partition, most: int) -> None:
        self.left = most
        self._partition = partition
        self._leaves: dict[Queue, _Leaf] = {}
        self._uncounted: dict[_Part, None] = {}
        self._placed: list[tuple[Application, Ask, Allocation]] = []
        self._made = 0
        self._nodes: dict[Node, None] = {}  # that took an ask, in that order
        self._node: Node | None = None
        self._shape: Shape | None = None
        self._room = self._on_node = 0  # how many of the shape it takes for sure; has taken
        self._lead: object = None  # the index in which it stays the first
        self._left: Resource = {}  # what it has left, in which the asks of the shape are not yet
        self._taken: Resource = {}  # by asks of other shapes

    def place_next(self, queue: Queue) -> bool:
        """Place the first ask of a leaf; return False where that is no plain decision."""
        leaf = self._leaves.get(queue)
        if leaf is None:
            leaf = self._leaves[queue] = _Leaf(queue)
            if queue.tree.keys is not None:
                queue.tree.keys.begin_run(queue, leaf.next_group)
        lane = leaf.first_lane()
        while lane is None or lane.is_behind(leaf.beside):
            if leaf.beside is None:
                queue.deactivate()
                return True
            if not self._join(leaf, leaf.beside[1]):
                return False
            lane = leaf.first_lane()
        part = lane.heads[0][2]
        if not self._is_plain(lane, part):
            return False
        node = self._node_for(part.first.shape)
        if node is None:
            return False
        self._take(leaf, lane, part, node)
        return True

    def _is_plain(self, lane: _Lane, part: _Part) -> bool:
        """Return whether all that placing a part's first ask takes is to place it."""
        ask, application = part.first, lane.application
        if ask.lacks_headroom_by or ask.key in application.reservations:
            return False
        if not part.group.placeholder:
            return True
        if lane.placing is not part:
            self._count_application(lane)
            lane.placing, part.left = part, _placeholders_left(part.group)
        return part.left > 0 and lane.waiting[ask.request.priority] > 1

    def _take(self, leaf: _Leaf, lane: _Lane, part: _Part, node: Node) -> None:
        ask, group, application = part.first, part.group, lane.application
        self._on_node += 1
        self.left -= 1
        allocation = self._partition.assume(group, ask, node)
        for queue in leaf.contested:
            queue.place(part.amount)
        self._placed.append((application, ask, allocation))
        part.placed += 1
        part.left -= 1
        self._uncounted[part] = None
        if allocation.exec_timeout_milli_seconds > 0:
            self._partition.arm_execution(application, allocation)
        head = group.head()
        if head is None:
            heappop(lane.heads)
        else:
            part.first = head
            heapreplace(lane.heads, (head.order, part.number, part))
        if leaf.is_fair:
            add_into(lane.used, part.resource)
        self._made += 1
        leaf.sort(lane, self._made)
        priority = ask.request.priority
        lane.waiting[priority] -= 1
        if not lane.waiting[priority]:
            self._end(leaf, lane)
            leaf.beside = leaf.queue.first_group()

    # --- nodes ----------------------------------------------------------------------------------

    def _node_for(self, shape: Shape) -> Node | None:
        """Return the node that comes first now for a shape, None where no node takes it."""
        nodes, node = self._partition.nodes, self._node
        if node is not None and self._stays(node, shape):
            return node
        self._count_node()
        node = node_for(nodes, shape, backfill=self._partition.settings.backfill)
        self._node, self._shape = node, shape
        self._room = 1
        return node

    def _stays(self, node: Node, shape: Shape) -> bool:
        """Return whether the node of the last ask comes first for this one, too, and takes it."""
        nodes, last = self._partition.nodes, self._shape
        if not self._taken and self._room == self._on_node == 1 and last is not None:
            self._lead = nodes.order.led_by(node, last)
            if self._lead is None:
                return False
            self._left = dict(node.available)
            self._room = self._times(node, last)
        if last is not shape:
            if self._lead is None or not nodes.order.is_led(self._lead, shape):
                return False
            self._fold()
            self._shape = shape
            self._room = self._times(node, shape)
        return self._on_node < self._room

    def _times(self, node: Node, shape: Shape) -> int:
        """Return how often a shape goes into the node; its devices know who is on them already."""
        times = _multiples(self._left, shape)
        need = self._partition.nodes.devices.need_of(shape)
        return times if need is None else min(times, self._on_node + places_on(node, need))

    def _fold(self) -> None:
        """Add up what the asks of the last shape take of their node."""
        if self._on_node and self._shape is not None:
            amount, times = self._shape.resource, self._on_node
            amount = amount if times == 1 else multiply(amount, times)
            add_into(self._taken, amount)
            subtract_into(self._left, amount)
        self._on_node = 0

    def _count_node(self) -> None:
        node, shape, times = self._node, self._shape, self._on_node
        if node is not None and (self._taken or times):
            self._nodes[node] = None
        if self._taken and node is not None:
            self._fold()
            self._partition.nodes.count_placed(node, self._taken, 1)
            self._taken = {}
        elif times and node is not None and shape is not None:
            self._partition.nodes.count_placed(node, shape.resource, times)
        self._on_node = 0
        self._lead = None

    # --- lanes ----------------------------------------------------------------------------------

    def _join(self, leaf: _Leaf, group: AskGroup) -> bool:
        """Have the first group that is in no lane join its application's; False: not in a run.

        One that no node takes stays where it is: it is about to be refused.
        """
        application, head = group.application, group.head()
        if head is None or not _may_run(self._partition, leaf, group):
            return False
        if not self._has_headroom(leaf, group) or self._node_for(head.shape) is None:
            return False
        lane = leaf.lane_of.get(application)
        if lane is None:
            lane = leaf.lane_of[application] = _Lane(application, leaf)
        self._made += 1
        part = _Part(group, lane, head, self._made)
        lane.parts.append(part)
        priority = head.request.priority
        lane.waiting.setdefault(priority, application.ask_priorities.counts[priority])
        heappush(lane.heads, (head.order, part.number, part))
        group.bucket.withdraw(group)
        leaf.sort(lane, self._made)
        leaf.beside = leaf.queue.first_group()
        return True

    def _has_headroom(self, leaf: _Leaf, group: AskGroup) -> bool:
        """Let the run go on for as long as a group has headroom, in the queues and for its user.

        Where there is plenty, there is for others of its leaf and user, up to twice its size.
        """
        owner, amount = group.application.owner, group.bucket.shape.resource
        roomy = leaf.roomy.get(owner, {})
        if owner in leaf.roomy and all(roomy.get(n, 0) >= value for n, value in amount.items()):
            return True
        for part in self._uncounted:
            self._count(part)
        self._uncounted = {}
        if owner is not None:
            self._count_users()
        twice = {name: 2 * max(value, roomy.get(name, 0)) for name, value in amount.items()}
        if _room_for(leaf.queue, owner, {**roomy, **twice}) >= self.left:
            leaf.roomy[owner] = {**roomy, **twice}
        else:
            self.left = min(self.left, _room_for(leaf.queue, owner, amount))
        return self.left > 0

    def _count(self, part: _Part) -> None:
        """Count what was placed of a part out of what waits, and into the queues above."""
        group, lane, times = part.group, part.lane, part.placed
        if not times:
            return
        part.placed = 0
        self._partition.group_placed(group, times)
        total = multiply(part.resource, times)
        for queue in lane.leaf.above:
            queue.place(list(total.items()))
        add_into(lane.total[group.placeholder], total)
        add_into(lane.unknown, total)

    def _count_users(self) -> None:
        for leaf in self._leaves.values():
            for lane in leaf.lane_of.values():
                self._count_used(lane)

    def _count_used(self, lane: _Lane) -> None:
        """Count what was placed of a lane into the sums of its users."""
        if lane.unknown:
            self._partition.count_used(lane.application, lane.unknown)
            lane.unknown = {}

    def _count_application(self, lane: _Lane) -> None:
        """Count what was placed of a lane into every sum but the node's."""
        parts: Iterable[_Part] = lane.parts
        if len(lane.parts) > len(self._uncounted):  # a gang of many task groups: most are counted
            own = (part for part in self._uncounted if part.lane is lane)
            parts = sorted(own, key=lambda part: part.number)
        for part in parts:
            self._count(part)
            self._uncounted.pop(part, None)
        self._count_used(lane)
        application, totals = lane.application, lane.total
        lane.total = {False: {}, True: {}}
        for is_placeholder, total in totals.items():
            if total:
                self._partition.count_run(application, total, is_placeholder=is_placeholder)
        if totals[True]:
            self._partition.claim_for_gang(application)
            self._partition.check_replacements(application)

    def _end(self, leaf: _Leaf, lane: _Lane) -> None:
        """End a lane: its groups wait for their turns again, or have nobody left."""
        order = lane.application.order
        lane.stands_at = None
        del leaf.lane_of[lane.application]
        self._count_application(lane)
        queueing.requeue_rest(lane.application, [part.group for part in lane.parts], order)

    def finish(self) -> int:
        """Count all that is left to count; return how many were placed."""
        self._count_node()
        for leaf in self._leaves.values():
            for lane in list(leaf.lane_of.values()):
                self._end(leaf, lane)
            if leaf.queue.tree.keys is not None:
                leaf.queue.tree.keys.end_run(leaf.queue)
        if self._placed:
            self._partition.journal.record(RunPlaced(self._placed, list(self._nodes)))
        return len(self._placed)


def _may_run(partition: Partition, leaf: _Leaf, group: AskGroup) -> bool:
    """Return whether all that placing an ask of a group takes is to place it."""
    application, constraints = group.application, group.bucket.shape.constraints
    if (
        application.tree is not None
        or (application.takes_turns and not group.placeholder)
        or group.bucket.shape.bond is not None
        or constraints.asks_about_pods
        or constraints.required_node
        or group.is_covered
        or (partition.releasing and GPU_SHARE in group.bucket.shape.resource)
        or group.bucket.refusal is not None
        or application.refusal is not None
        or application.trying_for is not None
        or application.cannot_run
        or application.awaits_admission
        or (group.placeholder and leaf.is_fair)
    ):
        return False
    if application.state is ApplicationState.RUNNING:
        return True
    return (
        application.state is ApplicationState.ACCEPTED
        and group.placeholder
        and bool(application.allocations)
        and application.reservation_start_ns > 0
        and application.owner is None
        and not partition.settings.filters_state_aware
        and application.id in application.queue.allocating_accepted
    )


def _room_for(queue: Queue, owner: Owner | None, amount: Resource) -> int:
    """Return for how many asks of a size there is headroom, in the queues and for their user."""
    rooms = [tracker.room_for(queue, amount) for tracker in owner or ()]
    return min([queue.room_for(amount), *rooms])


def _multiples(room: Resource, shape: Shape) -> int:
    """Return how many times a shape goes into what a node has left."""
    most = MANY
    for name, value in shape.resource.items():
        if value > 0:
            times = room.get(name, 0) // value
            if times < most:  # noqa: PLR1730 - asked at every decision
                most = times
    return most


def _placeholders_left(group: AskGroup) -> int:
    """Return how many placeholders of a group are placed before the last, which start the gang."""
    application = group.application
    left = min(len(group.asks), application.pending_placeholders - 1)
    announced, held = application.request.placeholder_ask, application.allocated_placeholder
    for name, value in group.bucket.shape.resource.items():
        missing = announced.get(name, 0) - held.get(name, 0)
        if value > 0 and missing > 0:
            left = min(left, (missing - 1) // value)
    return left
