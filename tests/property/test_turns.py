"""The queue whose turn it is, found in a heap, is the first in an order worked out anew."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.scheduler.model.priority_counts import NO_PRIORITY
from services.core.scheduler.model.queue_settings import QueueSettings
from services.core.scheduler.model.rows import Queue
from services.core.scheduler.ordering import turns
from services.core.scheduler.ordering.turns import order_of_children

AMOUNTS = st.fixed_dictionaries({"vcore": st.integers(0, 4), "gpu": st.integers(0, 2)})
LEAVES = 7
STEP = st.tuples(
    st.sampled_from(
        [
            "allocate",
            "release",
            "wait",
            "stop_waiting",
            "prioritise",
            "activate",
            "deactivate",
            "limit",
            "guarantee",
            "sort",
            "come",
            "go",
            "serve",
        ]
    ),
    st.integers(0, LEAVES - 1),
    AMOUNTS,
    st.integers(-3, 3),
)


class Tree:
    """A root, two parents and their leaves; a step changes one leaf, its parent or the root."""

    def __init__(self) -> None:
        self.root = Queue("root", is_leaf=False)
        self.root.set_max({"vcore": 40, "gpu": 8})
        for parent in ("a", "b"):
            self.root.children[parent] = Queue(parent, self.root, is_leaf=False)
        self.leaves = [self.leaf(at) for at in range(LEAVES)]

    def leaf(self, at: int) -> Queue:
        parent = self.root.children["ab"[at % 2]]
        leaf = parent.children[f"leaf{at}"] = Queue(f"leaf{at}", parent)
        return leaf

    def step(self, what, at, amount, number) -> None:
        leaf = self.leaves[at]
        if what in ("limit", "guarantee", "sort"):
            self.configure(what, (leaf, leaf.parent, self.root)[number % 3], amount, number)
        elif what in ("come", "go", "serve"):
            getattr(self, what)(at, amount)
        else:
            change = {
                "allocate": lambda: leaf.allocate(amount),
                "release": lambda: leaf.release(amount),
                "wait": lambda: leaf.add_pending(amount),
                "stop_waiting": lambda: leaf.remove_pending(amount),
                "prioritise": lambda: leaf.change_priority(leaf.priorities.highest, number),
                "activate": leaf.activate,
                "deactivate": leaf.deactivate,
            }
            change[what]()

    def configure(self, what, queue, amount, number) -> None:
        if what == "limit":
            queue.set_max(amount)
        elif what == "guarantee":
            queue.guaranteed_resource = amount
            queue.forget_turns()
        else:
            queue.configure(QueueSettings(priority_sorting=number > 0))

    def come(self, _, __) -> None:
        self.leaves.append(self.leaf(len(self.leaves)))
        self.leaves[-1].activate()

    def go(self, at, _) -> None:
        leaf = self.leaves[at]
        leaf.deactivate()
        if leaf.priorities.highest != NO_PRIORITY:
            leaf.change_priority(leaf.priorities.highest, NO_PRIORITY)
        del leaf.parent.children[leaf.name]
        self.leaves[at] = self.leaf(at)

    def serve(self, _, amount) -> None:
        first = turns.next_leaf(self.root)
        if first is not None:
            first.allocate(amount)
            first.remove_pending(amount)

    def check(self) -> None:
        for queue in (self.root, *self.root.children.values()):
            active = list(queue.active_children.values())
            expected = min(active, key=order_of_children(queue)) if active else None
            assert turns.next_child(queue) is expected


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, min_size=5, max_size=60), st.booleans())
def test_the_queue_whose_turn_it_is_is_the_first_in_order(steps, every_time):
    tree = Tree()
    for leaf in tree.leaves[1:]:
        leaf.activate()
    for step in steps:
        tree.step(*step)
        if every_time:
            tree.check()
    tree.check()


def test_a_heap_of_turns_keeps_no_more_than_a_few_times_its_children():
    tree = Tree()
    for leaf in tree.leaves:
        leaf.activate()
    for _ in range(1_000):
        tree.step("serve", 0, {"vcore": 1}, 0)
    parent = tree.root.children["a"]
    assert len(parent.turns.heap) <= turns.SPARE + 4 * len(parent.active_children)
