"""Scores by GPU devices against the definition of fragmentation, class by class and device by device.

Source of the definition: Weng et al., USENIX ATC'23, section 4; docs/adr/0070 has what is added.
"""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.model.shapes import Demand
from services.core.scheduler.nodes.scores import SCORES
from services.core.scheduler.nodes.scores.fgd import Fgd, fgd
from services.core.scheduler.nodes.scores.gpu_binpacking import GpuBinpacking, gpu_binpacking
from services.core.scheduler.nodes.scores.mix import STEPS, Mix, Room, Rooms
from shared.model.gpus import WHOLE
from shared.model.names import NODE_SCORES, OWN_NODE_SCORES
from tests.property.fragmentation import can_run, scored

# --- drawn ----------------------------------------------------------------------------------------

DEVICES = st.lists(st.sampled_from([0, 100, 300, 500, 700, 999, WHOLE]), max_size=4)
NODES = st.lists(
    st.tuples(
        st.integers(0, 12), st.integers(0, 12), DEVICES.map(lambda d: tuple(sorted(d)[::-1]))
    ),
    min_size=1,
    max_size=6,
)
SIZES = st.one_of(
    st.tuples(st.just(0), st.just(0)),
    st.tuples(st.sampled_from([100, 250, 300, 500, 999, WHOLE]), st.integers(1, 3)),
)
ASKS = st.builds(
    lambda vcore, memory, gpus: Demand(vcore, memory, *gpus),
    st.integers(0, 6),
    st.integers(0, 6),
    SIZES,
)


def rooms(nodes, open_to=(None,)):
    wide = max(len(free) for _, _, free in nodes)
    free = np.array([[*free, *[0] * (wide - len(free))] for _, _, free in nodes], dtype=np.int64)
    column = [np.array(values, dtype=np.int64) for values in zip(*nodes_of(nodes), strict=True)]
    return Rooms(free.reshape(len(nodes), wide), *column, open_to)


def nodes_of(nodes):
    return [(vcore, memory, len(free)) for vcore, memory, free in nodes]


@given(NODES, st.lists(ASKS, min_size=1, max_size=8), ASKS)
def test_fgd_is_as_defined_class_by_class(nodes, asks, ask):
    nodes = [node for node in nodes if can_run(node, ask)]
    if not nodes:
        return
    scores, devices = fgd(Mix({None: Counter(asks)}), rooms(nodes), ask)
    wanted = [scored(node, ask, asks) for node in nodes]
    assert scores.tolist() == [score for score, _ in wanted]
    if ask.number == 1 and ask.size < WHOLE:
        assert devices.tolist() == [device for _, device in wanted]


@given(NODES, st.lists(ASKS, min_size=1, max_size=5), st.lists(ASKS, min_size=1, max_size=5), ASKS)
def test_a_class_whose_constraints_close_a_node_cannot_run_there(nodes, asks, bound, ask):
    nodes = [node for node in nodes if can_run(node, ask)]
    if not nodes:
        return
    open_to = np.arange(len(nodes)) % 2 == 0
    mix = Mix({None: Counter(asks), "bound": Counter(bound)})
    scores, _ = fgd(mix, rooms(nodes, (None, open_to)), ask)
    for at, node in enumerate(nodes):
        # closed, it is as if they asked for more than any node has
        alike = [*asks, *(bound if open_to[at] else [m._replace(memory=99) for m in bound])]
        assert scores[at] == scored(node, ask, alike)[0]


@given(NODES, st.lists(ASKS, min_size=1, max_size=5), st.lists(ASKS, min_size=1, max_size=5), ASKS)
def test_one_node_scores_alone_what_it_scores_among_many(nodes, asks, bound, ask):
    nodes = [node for node in nodes if can_run(node, ask)]
    if not nodes:
        return
    open_to = np.arange(len(nodes)) % 2 == 0
    mix = Mix({None: Counter(asks), "bound": Counter(bound)})
    for of_many, of_one in (GpuBinpacking.rule, Fgd.rule):
        scores, devices = of_many(mix, rooms(nodes, (None, open_to)), ask)
        for at, (vcore, memory, free) in enumerate(nodes):
            room = Room(free[::-1], vcore, memory, (True, bool(open_to[at])))
            score, device = of_one(mix, room, ask)
            assert score == scores[at]
            assert ask.number != 1 or device == devices[at]


def test_every_score_that_a_configuration_may_name_is_there():
    assert tuple(SCORES) == NODE_SCORES + OWN_NODE_SCORES


@given(NODES, ASKS)
def test_gpu_binpacking_takes_the_fullest_node_and_the_fullest_device(nodes, ask):
    nodes = [node for node in nodes if can_run(node, ask)]
    if not nodes:
        return
    scores, devices = gpu_binpacking(Mix({None: Counter([ask])}), rooms(nodes), ask)
    for at, (_, _, free) in enumerate(nodes):
        assert scores[at] == (sum(free) // len(free) if free else 0)
        if ask.number == 1:
            assert devices[at] == min(left for left in free if left >= ask.size)


def test_of_more_values_than_are_told_apart_some_are_rounded_up():
    asks = Counter(Demand(vcore, 0, 500, 1) for vcore in range(1, 10 * STEPS + 1))
    mix = Mix({None: asks})
    exact = [sum(d.vcore <= vcore for d in asks) for vcore in (0, 1, 320, 639, 640, 10**6)]
    found = [
        int(mix.usable(np.array([[WHOLE]]), rooms([(vcore, 0, (WHOLE,))]))[0]) // WHOLE
        for vcore in (0, 1, 320, 639, 640, 10**6)
    ]
    assert [0 <= was - now <= 10 for was, now in zip(exact, found, strict=True)] == [True] * 6
    assert found[-2:] == [640, 640]
