"""Runs: plain decisions that follow one another, counted together.

Rule 1: a run decides what placing one by one would decide, in the same order. Each decision asks
        the queues, the leaf and the nodes for the first; what is left out is work whose result
        nobody reads before the run ends.
Rule 2: the sums of queues, by which they take turns, are kept at every decision. Those of a group
        are counted once, when its turns end, those of its application and users when the run ends,
        and those of the node when another one comes first.
Rule 3: a leaf's lane is its first group, until another one of the leaf comes before it. It ends
        before a decision that does more than place an ask: the last of a priority or of a gang's
        placeholders, one that people were told about, one with a reservation.
Rule 4: a run takes asks of which other pods know nothing, in leaves whose order does not follow
        what applications use, where no plugin minds each decision. All others are placed by the
        cycle, one at a time.
Limit: what the cycle may still decide, and the headroom of every group that takes part.
"""

from services.core.scheduler.model.queue_settings import FAIR
from services.core.scheduler.model.rows import Application, AskGroup, EntryKey, Node, Queue
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.ordering import queueing, turns
from services.core.scheduler.statement.journal import RunPlaced
from services.core.scheduler.statement.partition import Partition
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation
from shared.model.resources import Resource
from shared.model.states import ApplicationState


def place(partition: Partition, leaf: Queue, most: int) -> int:
    """Place from a leaf whose turn it is, and from those whose turn it then is; return how many."""
    run = _Run(partition, most)
    next_leaf: Queue | None = leaf
    while run.left > 0 and next_leaf is not None and run.place_next(next_leaf):
        next_leaf = turns.next_leaf(partition.root)
    return run.finish()


class _Lane:
    """A group whose asks are being placed; ``placed`` of them it counts as waiting still."""

    __slots__ = ("amount", "application", "bound", "group", "head", "left", "placed")

    def __init__(self, group: AskGroup, head: Ask, left: int) -> None:
        self.group = group
        self.application = group.application
        self.amount = [item for item in head.shape.resource.items() if item[1]]
        self.head: Ask | None = head
        self.left = left
        self.bound: EntryKey | None = None  # what comes first of the leaf's other groups
        self.placed = 0

    def go_on(self) -> None:
        """Find the next head, None where this is no more the leaf's first group."""
        self.left -= 1
        if self.left <= 0:
            self.head = None
            return
        group = self.group
        if self.placed == 1:
            group.bucket.withdraw(group)
            other = group.bucket.leaf.first_group()
            self.bound = other[0] if other is not None else None
        head = group.head()
        is_first = head is not None and (
            self.bound is None or self.application.order + head.order < self.bound
        )
        self.head = head if is_first and head is not None and _is_plain(head, self) else None


def _is_plain(ask: Ask, lane: _Lane) -> bool:
    return not (
        ask.lacks_headroom_by or ask.has_kept_room or ask.key in lane.application.reservations
    )


class _Run:
    """One run: the lanes by their leaves, and what is not counted on its node yet."""

    def __init__(self, partition: Partition, most: int) -> None:
        self.left = most
        self._partition = partition
        self._lanes: dict[Queue, _Lane] = {}
        self._uncounted: dict[tuple[Application, bool], Resource] = {}  # of placeholders, or not
        self._placed: list[tuple[Application, Ask, Allocation]] = []
        self._nodes: dict[Node, None] = {}
        self._node: Node | None = None
        self._shape: Shape | None = None
        self._room = self._on_node = 0  # how many it takes before another node comes; has taken

    def place_next(self, leaf: Queue) -> bool:
        """Place the first ask of a leaf; return False where that is no plain decision."""
        lane = self._lanes.get(leaf)
        if lane is None or lane.head is None:
            if lane is not None:
                self._close(leaf, lane)
            lane = self._open(leaf)
            if lane is None:
                return False
            self._lanes[leaf] = lane
        ask = lane.head
        assert ask is not None
        node = self._node_for(ask.shape)
        if node is None:
            return False
        self._on_node += 1
        self.left -= 1
        self._take(leaf, lane, ask, node)
        return True

    def _take(self, leaf: Queue, lane: _Lane, ask: Ask, node: Node) -> None:
        application = lane.application
        allocation = allocation_of(ask.request, node.node_id)
        self._partition.assume(lane.group, ask, allocation, node)
        leaf.place(lane.amount)
        self._placed.append((application, ask, allocation))
        lane.placed += 1
        lane.go_on()
        if allocation.exec_timeout_milli_seconds > 0:
            self._partition.arm_execution(application, allocation)

    # --- nodes ----------------------------------------------------------------------------------

    def _node_for(self, shape: Shape) -> Node | None:
        """Return the node that comes first now for a shape, None where no node takes it."""
        nodes, node = self._partition.nodes, self._node
        if node is not None and self._shape is shape:
            if self._on_node == 1:
                self._room = nodes.run_length(node, shape)
            if self._on_node < self._room:
                return node
        self._count_node()
        node = nodes.best(shape, backfill=self._partition.settings.backfill)
        self._node, self._shape = node, shape
        if node is not None:
            self._nodes[node] = None
        return node

    def _count_node(self) -> None:
        if self._on_node and self._node is not None and self._shape is not None:
            self._partition.nodes.count_placed(self._node, self._shape.resource, self._on_node)
        self._on_node = 0

    # --- lanes ----------------------------------------------------------------------------------

    def _open(self, leaf: Queue) -> _Lane | None:
        """Return a leaf's lane, None where its first ask is not for a run to place."""
        entry = leaf.first_group()
        if entry is None:
            return None
        group = entry[1]
        head = group.head()
        if head is None or leaf.settings.sort_policy == FAIR or not self._may_run(group):
            return None
        if group.placeholder:
            self._count_all()
        left = _turns_left(group, head)
        if left <= 0:
            return None
        self.left = min(self.left, self._headroom(group))
        lane = _Lane(group, head, left)
        return lane if self.left > 0 and _is_plain(head, lane) else None

    def _may_run(self, group: AskGroup) -> bool:
        """Return whether all that placing an ask of a group takes is to place it."""
        partition, application, shape = self._partition, group.application, group.bucket.shape
        if (
            (partition.hooks is not None and partition.hooks.minds_each)
            or partition.nodes.pods.label_keys
            or shape.constraints.asks_about_pods
            or shape.constraints.required_node
            or group.is_covered
            or application.refusal is not None
            or application.cannot_run
            or application.awaits_admission
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

    def _headroom(self, group: AskGroup) -> int:
        """Return for how many asks there is headroom, in the queues and for their user."""
        application, amount = group.application, group.bucket.shape.resource
        room = application.queue.room_for(amount)
        if application.owner is not None:
            self._count_all()
            rooms = [tracker.room_for(application.queue, amount) for tracker in application.owner]
            room = min(room, *rooms)
        return room

    def _count_lane(self, lane: _Lane) -> None:
        """Count what was placed of a lane out of what waits in its group."""
        group, times = lane.group, lane.placed
        if not times:
            return
        lane.placed = 0
        self._partition.group_placed(group, times)
        total = self._uncounted.setdefault((lane.application, group.placeholder), {})
        for name, value in lane.amount:
            total[name] = total.get(name, 0) + times * value

    def _count_all(self) -> None:
        """Count what was placed into every sum but the node's."""
        for lane in self._lanes.values():
            self._count_lane(lane)
        for (application, is_placeholder), total in self._uncounted.items():
            self._partition.count_run(application, total, is_placeholder=is_placeholder)
            if is_placeholder:
                queueing.keep_promise(application)
                self._partition.look_for_replacements(application)
        self._uncounted = {}

    def _close(self, leaf: Queue, lane: _Lane) -> None:
        """End a lane: its group waits for its turn again, or has nobody left."""
        self._count_lane(lane)
        del self._lanes[leaf]
        queueing.requeue_rest(lane.application, lane.group)

    def finish(self) -> int:
        """Count all that is left to count; return how many were placed."""
        self._count_node()
        self._count_all()
        if self._placed:
            self._partition.journal.record(RunPlaced(self._placed, list(self._nodes)))
        for leaf, lane in list(self._lanes.items()):
            self._close(leaf, lane)
        return len(self._placed)


def _turns_left(group: AskGroup, head: Ask) -> int:
    """Return how many asks of a group are placed with nothing else to do.

    The last of a priority moves its application, and the last placeholders start their gang.
    """
    application = group.application
    left = min(len(group.asks), application.ask_priorities[head.request.priority] - 1)
    if group.placeholder:
        left = min(left, application.pending_placeholders - 1)
        announced, held = application.request.placeholder_ask, application.allocated_placeholder
        for name, value in group.bucket.shape.resource.items():
            missing = announced.get(name, 0) - held.get(name, 0)
            if value > 0 and missing > 0:
                left = min(left, (missing - 1) // value)
    return left
