"""Runs: consecutive plain decisions whose sums are updated together.

Rule 1: a run makes the decisions of placing one by one, in the same order. Each decision reads the
        first of queues, leaf and nodes; only work whose result is not read before the end of the
        run is deferred.
Rule 2: what decides the next turn is updated with every decision: the sums of queues with siblings
        to schedule, and in a fair leaf the usage of its applications. All other sums are updated
        once: those of queues above when headroom is read, those of an application when its lane
        ends, those of a node when another one is first.
Rule 3: a lane is an application with groups that have come first in their leaf; they stay in the
        lane until it ends. A leaf continues with the first of its lanes, or the first group outside
        of them. The position of such an application in the leaf may be outdated, but only too
        early: its group joins the lane when it comes first. An order of queues that reads a leaf's
        next job includes the lanes.
Rule 4: a lane ends with the last ask of a priority, which moves its application, or with the run. A
        run ends before a decision that does more than place an ask: the last of a gang's
        placeholders, an ask with a reported lack of headroom, one with a reservation, a refusal.
Rule 5: a run contains asks without pod affinities only, and no plugin may observe each decision.
        The cycle places all others one at a time.
Limit: the remaining decisions of the cycle, and the headroom of every group in the run.
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
    """Place from a leaf, then from the leaves whose turn is next; return how many."""
    hooks = partition.hooks
    if (hooks is not None and hooks.minds_each) or partition.nodes.pods.label_tags:
        return 0
    run = _Run(partition, most)
    next_leaf: Queue | None = leaf
    while run.left > 0 and next_leaf is not None and run.place_next(next_leaf):
        next_leaf = turns.next_leaf(partition.root)
    return run.finish()


class _Part:
    """A group in its lane; ``placed`` of its asks still count as waiting."""

    __slots__ = ("amount", "first", "group", "lane", "left", "number", "placed", "resource")

    def __init__(self, group: AskGroup, lane: "_Lane", ask: Ask, number: int) -> None:
        self.group = group
        self.lane = lane
        self.first = ask
        self.number = number  # unique
        self.resource = ask.shape.resource
        self.amount = [item for item in self.resource.items() if item[1]]
        self.left = 0  # placeholders that can be placed without further effects
        self.placed = 0


class _Lane:
    """An application whose asks are being placed, with its deferred sums."""

    __slots__ = (
        "application", "heads", "leaf", "parts", "placing", "stands_at", "total", "unknown", "used",
        "waiting",
    )  # fmt: skip

    def __init__(self, application: Application, leaf: "_Leaf") -> None:
        self.application = application
        self.leaf = leaf
        self.parts: list[_Part] = []
        self.heads: list[Head] = []  # a heap
        self.stands_at: EntryKey | None = None  # sort key of its first ask in the leaf
        self.waiting: dict[int, int] = {}  # waiting asks, by priority
        self.placing: _Part | None = None  # the part of placeholders being placed
        self.total: dict[bool, Resource] = {False: {}, True: {}}  # True: placeholders
        self.unknown: Resource = {}  # not yet in the sums of its users
        self.used = application.in_use() if leaf.is_fair else {}

    def is_behind(self, other: tuple[EntryKey, AskGroup] | None) -> bool:
        """Whether another entry of its leaf comes first."""
        return other is not None and self.stands_at is not None and other[0] < self.stands_at


class _Leaf:
    """A leaf in a run: its lanes, and the first group outside of them."""

    __slots__ = ("above", "beside", "contested", "is_fair", "lane_of", "lanes", "queue", "roomy")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.is_fair = queue.settings.sort_policy == FAIR
        self.contested: list[Queue] = []  # queues on the path with siblings to schedule
        self.above: list[Queue] = []  # the other queues on the path
        for level in queue.lineage():
            above = level.parent
            has_rivals = above is not None and len(above.active_children) > 1
            (self.contested if has_rivals else self.above).append(level)
        self.lane_of: dict[Application, _Lane] = {}
        self.lanes: list[tuple[EntryKey, int, _Lane]] = []  # a heap with lazy deletion
        self.beside = queue.first_group()
        self.roomy: dict[Owner | None, Resource] = {}  # ask size for which headroom was checked

    def sort(self, lane: _Lane, number: int) -> None:
        """Update a lane's position after its first ask, or its usage, has changed."""
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
        """Return the leaf's next group, in a lane or not."""
        lane = self.first_lane()
        if lane is not None and not lane.is_behind(self.beside):
            return lane.heads[0][2].group
        return self.beside[1] if self.beside is not None else None

    def first_lane(self) -> _Lane | None:
        """Return the first of all lanes, or None."""
        lanes = self.lanes
        while lanes:
            entry, _, lane = lanes[0]
            if entry is lane.stands_at:
                return lane
            heappop(lanes)
        return None


class _Run:
    """One run: its leaves, and the allocations not yet counted on their node."""

    def __init__(self, partition: Partition, most: int) -> None:
        self.left = most
        self._partition = partition
        self._leaves: dict[Queue, _Leaf] = {}
        self._uncounted: dict[_Part, None] = {}
        self._placed: list[tuple[Application, Ask, Allocation]] = []
        self._made = 0
        self._nodes: dict[Node, None] = {}  # nodes with new allocations, in order
        self._node: Node | None = None
        self._shape: Shape | None = None
        self._room = self._on_node = 0  # how many of the shape surely fit; are placed
        self._lead: object = None  # the index in which it stays first
        self._left: Resource = {}  # its free capacity before the asks of the shape
        self._taken: Resource = {}  # the sum of asks of earlier shapes

    def place_next(self, queue: Queue) -> bool:
        """Place the first ask of a leaf; return False if that is not a plain decision."""
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
        """Whether placing a part's first ask has no further effects."""
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
        """Return the first node for a shape now, None if none fits."""
        nodes, node = self._partition.nodes, self._node
        if node is not None and self._stays(node, shape):
            return node
        self._count_node()
        node = node_for(nodes, shape, backfill=self._partition.settings.backfill)
        self._node, self._shape = node, shape
        self._room = 1
        return node

    def _stays(self, node: Node, shape: Shape) -> bool:
        """Whether the last ask's node is also first for this one, and fits it."""
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
        """Return how often a shape fits on the node; devices already count the placed asks."""
        times = _multiples(self._left, shape)
        need = self._partition.nodes.devices.need_of(shape)
        return times if need is None else min(times, self._on_node + places_on(node, need))

    def _fold(self) -> None:
        """Add the asks of the last shape to what is taken of their node."""
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
        """Add the leaf's first group to its application's lane; False: not possible in a run.

        A group that no node fits stays outside: it is about to be refused.
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
        """Limit the run to the headroom of a group, in its queues and for its user.

        If there is plenty, it is also checked for others of its leaf and user, up to twice its
        size.
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
        """Remove a part's placed asks from those waiting, and add them to the queues above."""
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
        """Add a lane's allocations to the sums of its users."""
        if lane.unknown:
            self._partition.count_used(lane.application, lane.unknown)
            lane.unknown = {}

    def _count_application(self, lane: _Lane) -> None:
        """Add a lane's allocations to every sum except the nodes'."""
        parts: Iterable[_Part] = lane.parts
        if len(lane.parts) > len(self._uncounted):  # many task groups, most of them counted
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
        """End a lane: its groups wait for their turns again."""
        order = lane.application.order
        lane.stands_at = None
        del leaf.lane_of[lane.application]
        self._count_application(lane)
        queueing.requeue_rest(lane.application, [part.group for part in lane.parts], order)

    def finish(self) -> int:
        """Update all remaining sums; return how many asks were placed."""
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
    """Whether placing an ask of a group has no further effects."""
    application, constraints = group.application, group.bucket.shape.constraints
    if (
        application.tree is not None
        or ((application.takes_turns or application.yields_surplus) and not group.placeholder)
        or group.bucket.shape.gang_part is not None
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
    """Return how many asks of a size fit the headroom of queues and user."""
    rooms = [tracker.room_for(queue, amount) for tracker in owner or ()]
    return min([queue.room_for(amount), *rooms])


def _multiples(room: Resource, shape: Shape) -> int:
    """Return how many times a shape fits in a node's free capacity."""
    most = MANY
    for name, value in shape.wanted.items():
        times = room.get(name, 0) // value
        if times < most:  # noqa: PLR1730 - asked at every decision
            most = times
    return most


def _placeholders_left(group: AskGroup) -> int:
    """Return how many placeholders can be placed before the last, which starts the gang."""
    application = group.application
    left = min(len(group.asks), application.pending_placeholders - 1)
    announced, held = application.request.placeholder_ask, application.allocated_placeholder
    for name, value in group.bucket.shape.wanted.items():
        missing = announced.get(name, 0) - held.get(name, 0)
        if missing > 0:
            left = min(left, (missing - 1) // value)
    return left
