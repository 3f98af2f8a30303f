"""The scores that the table of nodes keeps, against fragmentation worked out anew for every node."""

from contextlib import ExitStack
from random import Random
from unittest.mock import Mock, patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.scheduler.model.rows import Application, Claim, Node, Purpose
from services.core.scheduler.model.shapes import Demand, Shape
from services.core.scheduler.nodes import node_index
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.nodes.scores import by_devices
from shared.messages.constraints import NO_CONSTRAINTS, Constraints
from shared.messages.interface import Allocation
from shared.model.gpus import GPU, GPU_SHARE, WHOLE
from shared.model.names import FGD
from shared.model.resources import MEMORY, VCORE
from tests.property.fragmentation import can_run, placed, scored

ON_A100 = Constraints(node_selector=(("gpu", "a100"),))
ASKS = (
    ({VCORE: 2, MEMORY: 1, GPU_SHARE: 300}, NO_CONSTRAINTS),
    ({VCORE: 1, MEMORY: 2, GPU_SHARE: 500}, NO_CONSTRAINTS),
    ({VCORE: 3, MEMORY: 1, GPU: 1}, NO_CONSTRAINTS),
    ({VCORE: 4, MEMORY: 4, GPU: 2}, NO_CONSTRAINTS),
    ({VCORE: 5, MEMORY: 3}, NO_CONSTRAINTS),
    ({VCORE: 1, MEMORY: 1, GPU_SHARE: 800}, Constraints(gpu_devices=2)),
    ({VCORE: 1, MEMORY: 1, GPU_SHARE: 700}, ON_A100),
)
FEW = {
    "STEP": 2,
    "MOST": 4,
    "LOG": 6,
    "ONE_BY_ONE": 2,
    "MOST_PUSHED": 3,
    "MAX_INDEXES": 3,
    "SHARE": 4,
}
FEW |= {"SCORED": 2, "WASTED": 0, "TRY_AGAIN": 2}
MOVES = (
    "ask",
    "ask",
    "ask",
    "put",
    "reserve",
    "free",
    "free",
    "cordon",
    "label",
    "grow",
    "join",
    "leave",
)


class Cluster:
    """A table under ``fgd``; what it chooses is judged by the reference."""

    def __init__(self, window: int) -> None:
        self.table = NodeTable()
        self.table.set_policy(FGD, {})
        self.table.order.recent.remember(window)
        self.shapes = [Shape("", dict(amount), where) for amount, where in ASKS]
        self.count = 0
        self.ask(2)  # so that there is a mix
        for _ in range(10):
            self.join(self.count)

    def join(self, chance: int) -> None:
        self.count += 1
        capacity = {VCORE: 4 + chance % 13, MEMORY: 6}
        if chance % 4:
            capacity[GPU] = chance % 4
        labels = {"gpu": "a100"} if chance % 2 else {}
        name = f"n{chance % 97}-{self.count}"
        self.table.add(Node(name, 0, capacity, {}, labels, (), schedulable=True))

    def ask(self, chance: int) -> None:
        shape = self.shapes[chance % len(ASKS)]
        if GPU_SHARE in shape.resource and not self.table.devices.are_shared:
            self.table.share_devices()
        self.table.order.recent.asked(shape.asked_for)
        node = self.table.order.best(shape)
        expected = min(self.expected(shape), default=None)
        assert (node.node_id if node else None) == (expected[1] if expected else None)
        if node is not None and expected is not None:
            self.place(shape, node, expected[2])

    def look(self, chance: int) -> None:
        """Compare what all nodes score, not the best alone."""
        shape = self.shapes[chance % len(ASKS)]
        if GPU_SHARE in shape.resource and not self.table.devices.are_shared:
            return
        expected = self.expected(shape)
        rows = np.array([self.table.nodes[name].row for _, name, _ in expected], dtype=np.int64)
        assert self.table.order.scores_of(shape, rows).tolist() == [
            score for score, _, _ in expected
        ]

    def put(self, chance: int) -> None:
        """Place a pod where nobody asked for the best node first."""
        shape = self.shapes[chance % len(ASKS)]
        if GPU_SHARE in shape.resource and not self.table.devices.are_shared:
            self.table.share_devices()
        expected = self.expected(shape)
        if expected:
            _, name, device = expected[chance % len(expected)]
            self.place(shape, self.table.nodes[name], device)

    def place(self, shape: Shape, node: Node, device: int) -> None:
        free = list(node.devices)
        self.count += 1
        allocation = Allocation(
            f"pod-{self.count}",
            "app",
            node.node_id,
            shape.resource,
            constraints=shape.constraints,
        )
        self.table.place(node, allocation)
        demand, held = shape.asked_for[0], self.table.devices.of(node, allocation.allocation_key)
        assert len(held) == demand.number
        if demand.number == 1 and demand.size < WHOLE:
            assert held[0][0] == free.index(device)
        assert min(node.devices, default=0) >= 0

    def expected(self, shape: Shape) -> list[tuple[int, str, int]]:
        """Return scores, nodes, and what is free on the device that a share is to be taken of."""
        demand, where = shape.asked_for
        found = []
        for node in self.table.rows:
            room = (
                node.available.get(VCORE, 0),
                node.available.get(MEMORY, 0),
                tuple(sorted(node.devices, reverse=True)),
            )
            is_open = node.labels.get("gpu") == "a100" or where != ON_A100
            if not (node.schedulable and not node.is_closed and is_open and can_run(room, demand)):
                continue
            mix = [self.seen_from(node, *asked) for asked in self.table.order.recent.taken]
            score, device = scored(room, demand, mix)
            found.append((score, node.node_id, device))
        return found

    def seen_from(self, node: Node, demand: Demand, where: Constraints) -> Demand:
        """Return what an ask is to a node: where it is closed, more than there is anywhere."""
        is_open = where != ON_A100 or node.labels.get("gpu") == "a100"
        return demand if is_open else demand._replace(memory=10**9)

    def free(self, chance: int) -> None:
        held = [(node, key) for node in self.table.rows for key in node.allocations]
        if held:
            self.table.free(*held[chance % len(held)])

    def leave(self, chance: int) -> None:
        if len(self.table.rows) > 1:
            self.table.remove(self.node(chance))

    def reserve(self, chance: int) -> None:
        node = self.node(chance)
        if node.reservations:
            node.reservations.clear()
        else:
            claim = Claim(Purpose.AGED, Mock(Application), "aged", node, {})
            node.reservations[claim.key] = claim
        self.table.refresh(node)

    def cordon(self, chance: int) -> None:
        node = self.node(chance)
        node.schedulable = not node.schedulable
        self.table.refresh(node)

    def label(self, chance: int) -> None:
        node = self.node(chance)
        self.table.relabel(node, {} if node.labels else {"gpu": "a100"}, (), {})

    def grow(self, chance: int) -> None:
        node = self.node(chance)
        self.table.set_capacity(node, {**node.capacity, VCORE: 4 + chance % 17})

    def node(self, chance: int) -> Node:
        return self.table.rows[chance % len(self.table.rows)]


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(50, 150), st.booleans())
def test_what_is_kept_of_scores_is_what_they_are(seed, moves, are_few):
    with ExitStack() as few:
        if are_few:
            few.enter_context(patch.multiple(node_index, **FEW))
            few.enter_context(patch.object(by_devices, "MAX_STATES", 0))
        cluster, chance = Cluster(200 if are_few else 8), Random(seed)
        for _ in range(moves):
            getattr(cluster, chance.choice(MOVES))(chance.randrange(10**6))


def test_a_share_of_several_devices_goes_to_the_fullest():
    after = list(placed((9, 9, (1000, 900, 800)), Demand(1, 1, 800, 2)))
    assert after == [(800, (8, 8, (1000, 100, 0)))]


def test_of_states_that_are_numbered_anew_nothing_is_kept_by_their_old_numbers():
    with patch.object(by_devices, "MAX_STATES", 0):
        cluster = Cluster(8)
        for chance in range(200):  # nobody asks, so that the mix stays
            cluster.grow(chance * 7)
            cluster.look(2 + chance % 3)
