"""A log of moves: undone, everything is as before; kept, it is as if they were made plainly."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.statement.tentative import PREEMPTING, RESERVED, Tentative, tentative
from shared.messages.conversions import allocation_of
from shared.messages.interface import AddApplicationRequest, AllocationAsk, UpdateRequest
from shared.model.resources import add_into, subtract_into
from tests.builders import Core, config_of
from tests.property.dump import dump, whole
from tests.property.histories import MODES, History
from tests.property.material import SELECTORS

NODES, ASKS = 3, 4
LEDGERS = st.sampled_from((RESERVED, PREEMPTING))
MOVES = st.one_of(
    st.tuples(st.just("place"), st.integers(0, ASKS - 1), st.integers(0, NODES - 1)),
    st.tuples(st.just("count"), LEDGERS, st.integers(1, 3), st.sampled_from((1, -1))),
)
NEST = st.lists(
    st.recursive(MOVES, lambda inner: st.tuples(st.booleans(), st.lists(inner, max_size=4)), max_leaves=8),
    max_size=6,
)  # fmt: skip


def cluster() -> Core:
    core = Core(config_of("{name: a, queues: [{name: x, resources: {max: {vcore: 1m}}}]}"))
    for at in range(NODES):
        core.node(f"n{at}", vcore=9000)
    core.application("app", "root.a.x")
    asks = [
        AllocationAsk(f"p{at}", "app", {"vcore": 2000}, constraints=SELECTORS[at % len(SELECTORS)])
        for at in range(ASKS)
    ]
    core.update(asks=tuple(asks))
    return core


class Mover:
    """Makes moves on a core: logged, or (without a log) plainly."""

    def __init__(self, core: Core, log: Tentative | None) -> None:
        self.partition, self.log = core.partition, log
        self.asks = {ask.key: ask for ask in core.partition.applications["app"].asks()}
        self.leaf = core.partition.queues["root.a.x"]

    def make(self, move) -> None:
        match move:
            case ("place", ask, node):
                self._place(self.asks[f"p{ask}"], self.partition.nodes.rows[node])
            case ("count", ledger, amount, change):
                self._count(ledger, {"vcore": amount}, change)
            case (is_kept, inner):
                start = self.log.checkpoint() if self.log is not None else 0
                if self.log is not None or is_kept:
                    for each in inner:
                        self.make(each)
                if self.log is not None and not is_kept:
                    self.log.rollback(start)

    def _place(self, ask, node) -> None:
        if any(ask.key in each.allocations for each in self.partition.nodes.rows):
            return
        if self.log is not None:
            self.log.place(ask, node)
        else:
            self.partition.nodes.place(node, allocation_of(ask.request, node.node_id))

    def _count(self, ledger, amount, change) -> None:
        if self.log is not None:
            self.log.count(self.leaf.lineage(), ledger, amount, change)
        else:
            for queue in self.leaf.lineage():
                (add_into if change > 0 else subtract_into)(ledger(queue), amount)


@given(NEST)
def test_a_nest_of_moves_is_undone_or_kept_whole(moves):
    core, plain = cluster(), cluster()
    before = dump(core.partition)
    with Tentative(core.partition.nodes) as log:
        mover = Mover(core, log)
        for move in moves:
            mover.make(move)
    assert dump(core.partition) == before
    with Tentative(core.partition.nodes) as log:
        kept, plainly = Mover(core, log), Mover(plain, None)
        for move in moves:
            kept.make(move)
            plainly.make(move)
        log.make_final()
    assert dump(core.partition) == dump(plain.partition)


@given(st.sampled_from(tuple(MODES)), st.integers(0, 2**31))
def test_whatever_is_done_tentatively_leaves_no_trace_one_inside_of_another(mode, seed):
    history = History(mode, seed)
    core = history.core
    before = whole(core.partition)
    asks = tuple(AllocationAsk(f"in-{at}", "in", {"vcore": 1000}) for at in range(3))
    with tentative(core.partition):
        core.scheduler.partition.now_ns += 1
        application, own = history.new
        core.update(new_applications=(application,), asks=own)
        between = whole(core.partition)
        with tentative(core.partition):
            inner = AddApplicationRequest("in", "root.b")
            core.send(UpdateRequest("rm", new_applications=(inner,), asks=asks))
        assert whole(core.partition) == between
    assert whole(core.partition) == before
