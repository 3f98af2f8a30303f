"""Who is given a node for being old, how many nodes that may be, and what a look costs.

Source: docs/rules/scheduling.md#reservations, and docs/adr/0027: the cluster is not eaten by
reservations.
"""

import pytest

from services.core.scheduler.actions import reservations
from services.core.scheduler.actions.reservations import EXPIRY_NS
from services.core.scheduler.model.rows import AskGroup
from services.core.scheduler.model.settings import settings_from
from shared.messages.constraints import Constraints, HostPort, PodTerm, Requirement
from shared.messages.interface import (
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.model.names import RUN_SECONDS
from shared.model.units import milliseconds, seconds
from tests.builders import START_NS, Core, config_of

NODE = {"vcore": 10_000, "pods": 200}
FILLER = {"vcore": 6_000, "pods": 1}
LARGE = {"vcore": 8_000, "pods": 1}
SMALL = {"vcore": 1_000, "pods": 1}
LEAVES = ("{name: a}", "{name: b, properties: {priority.offset: '5'}}")


EACH = (("reservations", "asks"),)  # YuniKorn's rule, under which the bound is tried


def full_of_fillers(nodes: int, *leaves: str, settings: tuple = (), rule: tuple = EACH) -> Core:
    """Return a cluster where a filler leaves every node with room for small asks only."""
    core = Core(config_of(*(leaves or LEAVES)), settings=(*rule, *settings))
    infos = tuple(NodeInfo(f"n{at:04}", NodeAction.CREATE, NODE) for at in range(nodes))
    core.update(nodes=infos)
    core.application("filler", "root.a")
    core.asks("filler", [f"filler-{at}" for at in range(nodes)], FILLER)
    assert len(core.partition.applications["filler"].allocations) == nodes
    return core


def grow_old(core: Core) -> None:
    """Let every ask get old enough for a reservation, and be looked at."""
    while core.partition.reservations_due_ns:
        core.fire_own("reservation")
    core.check()


def reserved_for(core: Core) -> list[str]:
    return sorted(key for node in core.partition.nodes.nodes.values() for key in node.reservations)


@pytest.mark.parametrize(
    ("nodes", "setting", "most"),
    [
        (3, None, 3),  # no more than there are
        (10, None, 4),
        (99, None, 4),  # 4.95
        (100, None, 5),
        (219, None, 10),
        (40, "7", 7),
        (40, "0", 0),
        (40, "25%", 10),
        (40, "1%", 1),  # a share is never less than one
        (40, "100%", 40),
        (40, "many", 4),  # what does not hold is the default
        (40, "-3", 4),
        (40, "101%", 4),
        (40, "", 4),
    ],
)
def test_no_more_nodes_are_reserved_than_the_bound(nodes, setting, most):
    settings = () if setting is None else (("maxReservedNodes", setting),)
    core = full_of_fillers(nodes, settings=settings)
    core.application("big", "root.a")
    core.asks("big", [f"big-{at}" for at in range(3 * nodes)], LARGE)
    grow_old(core)
    assert len(reserved_for(core)) == most


def test_the_bound_follows_the_schedulable_nodes():
    assert [settings_from(()).max_reserved_nodes(n) for n in (4, 5, 99, 100, 10_000)] == [
        4, 1, 1, 2, 200,
    ]  # fmt: skip
    assert [settings_from(EACH).max_reserved_nodes(n) for n in (0, 1, 79, 80, 120, 10_000)] == [
        4, 4, 4, 4, 6, 500,
    ]  # fmt: skip
    core = full_of_fillers(100)
    core.update(nodes=tuple(NodeInfo(f"n{at:04}", NodeAction.DRAIN_NODE) for at in range(20)))
    core.application("big", "root.a")
    core.asks("big", [f"big-{at}" for at in range(100)], LARGE)
    grow_old(core)
    assert len(reserved_for(core)) == 4


def test_what_can_be_placed_is_placed_beside_asks_that_no_node_has_room_for():
    core = full_of_fillers(100)
    core.application("big", "root.a")
    core.asks("big", [f"big-{at}" for at in range(1_000)], LARGE)
    grow_old(core)
    core.application("small", "root.a")
    core.asks("small", [f"small-{at}" for at in range(380)], SMALL)
    assert len(core.partition.applications["small"].allocations) == 380  # 4 on each free node
    assert len(reserved_for(core)) == 5


DB = PodTerm("kubernetes.io/hostname", (Requirement("role", "In", ("db",)),))
CLOSED_BY_PODS = {
    "nobody beside it": Constraints(pod_affinity=(DB,)),
    "port taken": Constraints(host_ports=(HostPort(8080),)),
}


@pytest.mark.parametrize("rule", [EACH, ()], ids=["asks", "heads"])
@pytest.mark.parametrize("constraints", CLOSED_BY_PODS.values(), ids=CLOSED_BY_PODS)
def test_no_node_is_reserved_for_an_ask_that_lacks_more_than_room_there(constraints, rule):
    """ "must ... pass reserve-mode predicates", which are all but whether it fits."""
    core = Core(config_of("{name: a}"), settings=rule)
    core.node("n1", **NODE)
    core.application("app", "root.a")
    core.asks("app", ["holder"], SMALL, constraints=Constraints(host_ports=(HostPort(8080),)))
    core.asks("app", ["closed"], SMALL, constraints=constraints)
    grow_old(core)
    assert reserved_for(core) == []
    core.application("next", "root.a")
    core.asks("next", ["small"], SMALL)
    assert list(core.partition.applications["next"].allocations) == ["small"]
    core.check()


def test_a_node_is_reserved_for_an_ask_once_it_lacks_nothing_but_room_there():
    port = Constraints(host_ports=(HostPort(8080),))
    core = Core(config_of("{name: a}"), settings=EACH)
    core.node("n1", **NODE)
    core.node("n2", vcore=10_000)  # of which the queue may have as much, but no pod takes it
    core.application("app", "root.a")
    core.asks("app", ["holder"], SMALL, constraints=port)
    core.asks("app", ["filler"], {"vcore": 9_000, "pods": 1})
    core.asks("app", ["closed"], LARGE, constraints=port)
    grow_old(core)
    assert reserved_for(core) == []
    stopped = TerminationType.STOPPED_BY_RM
    core.update(releases=(AllocationRelease("app", "holder", stopped),))
    grow_old(core)
    assert reserved_for(core) == ["closed"]
    core.update(releases=(AllocationRelease("app", "filler", stopped),))
    assert list(core.partition.applications["app"].allocations) == ["closed"]
    core.check()


YOUNG = (  # name, priority, age in ms; all too young for a reservation when they come
    ("late-0", 0, 1_000),
    ("early-0", 0, 1_500),
    ("early-1", 0, 1_200),
    ("early-2", 7, 10),
    ("offset-0", 3, 10),  # its queue adds 5
)


def crowd(core: Core) -> None:
    """Let the asks of YOUNG wait, of three applications in two leaves."""
    for name, queue in (("late", "root.a"), ("early", "root.a"), ("offset", "root.b")):
        core.application(name, queue)
    for name, priority, age_ms in YOUNG:
        made = core.now_ns - milliseconds(age_ms)
        core.asks(name.split("-")[0], [name], LARGE, priority=priority, create_time_ns=made)


def test_reservations_go_to_the_highest_priority_and_then_to_the_oldest():
    core = full_of_fillers(20)
    crowd(core)
    core.now_ns += seconds(5)
    core.fire_own("reservation")
    core.check()
    assert reserved_for(core) == ["early-0", "early-1", "early-2", "offset-0"]


def test_a_fence_hides_the_priorities_inside():
    fence = "{name: b, properties: {priority.policy: fence, priority.offset: '1'}}"
    core = full_of_fillers(20, "{name: a}", fence, settings=(("maxReservedNodes", "1"),))
    for name, queue, priority in (("plain", "root.a", 3), ("fenced", "root.b", 9)):
        core.application(name, queue)
        core.asks(name, [f"{name}-0"], LARGE, priority=priority)
    grow_old(core)
    assert reserved_for(core) == ["plain-0"]


def test_a_reservation_that_ends_goes_to_the_next_in_order():
    core = full_of_fillers(20)
    crowd(core)
    core.now_ns += seconds(5)
    core.fire_own("reservation")
    gone = AllocationAskRelease("early", "early-2", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    core.check()
    assert reserved_for(core) == ["early-0", "early-1", "late-0", "offset-0"]


@pytest.mark.parametrize(
    ("priority", "reserved"),
    [
        (1, ["low-0", "low-1", "low-2", "new-0"]),  # the youngest of the lowest makes way
        (0, ["low-0", "low-1", "low-2", "low-3"]),  # an equal one waits its turn
        (-1, ["low-0", "low-1", "low-2", "low-3"]),
    ],
)
def test_a_higher_priority_takes_the_place_of_the_lowest(priority, reserved):
    core = full_of_fillers(20)
    core.application("low", "root.a")
    core.asks("low", [f"low-{at}" for at in range(9)], LARGE)
    grow_old(core)
    core.application("new", "root.a")
    core.asks("new", ["new-0"], LARGE, priority=priority)
    grow_old(core)
    assert reserved_for(core) == reserved


def test_a_higher_priority_that_no_node_could_hold_takes_nobody_s_place():
    core = full_of_fillers(20)
    core.application("low", "root.a")
    core.asks("low", [f"low-{at}" for at in range(9)], LARGE)
    grow_old(core)
    core.application("new", "root.a")
    core.asks("new", ["new-0"], {"vcore": 11_000, "pods": 1}, priority=9)
    grow_old(core)
    assert reserved_for(core) == ["low-0", "low-1", "low-2", "low-3"]


def test_asks_that_require_a_node_are_apart_from_the_bound():
    core = full_of_fillers(20)
    core.application("daemon", "root.a")
    core.update(
        asks=tuple(
            AllocationAsk(
                f"d-{at}",
                "daemon",
                LARGE,
                priority=-1,
                constraints=Constraints(required_node=f"n{at:04}"),
            )
            for at in range(8)
        )
    )
    assert len(reserved_for(core)) == 8
    core.application("low", "root.a")
    core.asks("low", [f"low-{at}" for at in range(9)], LARGE)
    grow_old(core)
    assert [key for key in reserved_for(core) if key.startswith("low")] == [
        "low-0", "low-1", "low-2", "low-3",
    ]  # fmt: skip
    assert len(reserved_for(core)) == 12


def test_an_ask_that_preempted_keeps_its_node_whatever_the_bound_says():
    core = full_of_fillers(
        20,
        "{name: a}",
        "{name: b, resources: {guaranteed: {vcore: 20}}, properties: {preemption.delay: 10s}}",
        settings=(("maxReservedNodes", "2"),),
    )
    core.application("low", "root.a")
    core.asks("low", [f"low-{at}" for at in range(9)], LARGE)
    grow_old(core)
    core.application("owed", "root.b")
    core.asks("owed", ["owed-0", "owed-1"], FILLER)
    end_ns = core.now_ns + 60 * 10**9  # before who does not go is stuck
    for _ in range(20):
        if 0 < core.partition.preemption_due_ns <= end_ns:
            core.fire_own("preemption")
    core.check()
    assert [key for key in reserved_for(core) if key.startswith("owed")] == ["owed-0", "owed-1"]


def counted_reads(monkeypatch) -> list[str]:
    """Write down every ask that a look reads."""
    read: list[str] = []
    in_order = AskGroup.in_order

    def counted(group):
        for ask in in_order(group):
            read.append(ask.key)
            yield ask

    monkeypatch.setattr(AskGroup, "in_order", counted)
    return read


def test_a_look_does_not_read_all_that_are_too_young(monkeypatch):
    core = full_of_fillers(20)
    read = counted_reads(monkeypatch)
    for at in range(100):
        core.application(f"big-{at}", "root.a")
    core.update(asks=tuple(AllocationAsk(f"b-{at}", f"big-{at}", LARGE) for at in range(100)))
    assert 0 < len(read) < 10
    grow_old(core)
    assert reserved_for(core) == ["b-0", "b-1", "b-2", "b-3"]


@pytest.mark.parametrize("applications", [10, 300])
def test_a_look_reads_the_heads_that_wait_and_not_every_ask(monkeypatch, applications):
    core = full_of_fillers(20)
    for at in range(applications):
        core.application(f"big-{at}", "root.a")
        core.asks(f"big-{at}", [f"big-{at}-{n}" for n in range(30)], LARGE)
    grow_old(core)
    read = counted_reads(monkeypatch)
    (held, *_) = reserved_for(core)
    gone = AllocationAskRelease(held.rsplit("-", 1)[0], held, TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    assert len(reserved_for(core)) == 4
    assert len(read) < 15, "as many as are reserved, and one more for each that may follow"


def test_asks_that_no_node_could_hold_are_not_read_one_by_one(monkeypatch):
    core = full_of_fillers(20)
    core.application("giant", "root.a")
    core.asks("giant", [f"giant-{at}" for at in range(500)], {"vcore": 11_000, "pods": 1})
    core.now_ns += seconds(5)
    read = counted_reads(monkeypatch)
    grow_old(core)
    assert reserved_for(core) == []
    assert len(read) == 1


def test_a_full_bound_costs_a_new_ask_no_look_at_those_that_wait(monkeypatch):
    core = full_of_fillers(20)
    core.application("big", "root.a")
    core.asks("big", [f"big-{at}" for at in range(100)], LARGE)
    grow_old(core)
    monkeypatch.setattr(AskGroup, "in_order", lambda _: pytest.fail("nobody has a place to give"))
    core.asks("big", ["one-more"], LARGE)
    grow_old(core)
    assert len(reserved_for(core)) == 4


@pytest.mark.parametrize(
    ("priority", "age_s", "preempts"),
    [
        (0, 60, False),
        (0, 3 * 3_600, False),
        (1, 60, False),
        (1, 2 * 3_600 + 2, False),
        (1, 2 * 3_600 + 3, True),
    ],
)
def test_an_ask_preempts_on_a_node_of_another_only_after_long_and_from_above(
    priority, age_s, preempts
):
    """docs/rules/preemption.md: a plain reservation of a lower priority that is older than 120 min and 2 s."""
    core = full_of_fillers(
        2,
        "{name: a}",
        "{name: b, resources: {guaranteed: {vcore: 6}}, properties: {preemption.delay: 10s}}",
    )
    core.update(nodes=(NodeInfo("n0001", NodeAction.DRAIN_NODE),))
    core.application("waiting", "root.a")
    core.asks("waiting", ["waiting-0"], LARGE)
    core.now_ns += seconds(2)
    core.fire_own("reservation")
    assert reserved_for(core) == ["waiting-0"]
    since = core.now_ns
    core.application("owed", "root.b")
    core.asks("owed", ["owed-0"], FILLER, priority=priority)
    for _ in range(2):
        core.fire_own("preemption")
    assert reserved_for(core) == ["waiting-0"], "not yet"
    core.now_ns = max(core.now_ns, since + seconds(age_s))
    core.fire_own("preemption")
    core.check()
    assert reserved_for(core) == (["owed-0"] if preempts else ["waiting-0"])


def test_a_reservation_that_has_ended_is_not_tried_when_the_queue_that_refused_it_has_room():
    core = full_of_fillers(3, "{name: a}", "{name: b, resources: {max: {vcore: 9}}}")
    core.application("big", "root.b")
    core.asks("big", ["big-0"], LARGE)
    grow_old(core)
    assert reserved_for(core) == ["big-0"]
    core.update(nodes=(NodeInfo("other", NodeAction.CREATE, {"vcore": 2_000, "pods": 9}),))
    core.application("small", "root.b")
    core.asks("small", ["small-0", "small-1"], SMALL)
    held = core.partition.applications["big"].reservations["big-0"]
    held.retry()
    core.asks("small", [], SMALL)
    assert held.waits_at is core.partition.queues["root.b"].wait_list
    core.update(
        nodes=(NodeInfo(held.node.node_id, NodeAction.UPDATE, NODE),),
        ask_releases=(AllocationAskRelease("big", "big-0", TerminationType.STOPPED_BY_RM),),
        releases=(AllocationRelease("small", "small-0", TerminationType.STOPPED_BY_RM),),
    )
    core.check()


def test_a_reservation_whose_queue_has_had_no_room_for_long_is_given_up():
    core = full_of_fillers(3, "{name: a}", "{name: b, resources: {max: {vcore: 9}}}")
    core.application("big", "root.b")
    core.asks("big", ["big-0"], LARGE)
    grow_old(core)
    held = core.partition.applications["big"].reservations["big-0"]
    core.update(nodes=(NodeInfo("other", NodeAction.CREATE, {"vcore": 2_000, "pods": 9}),))
    core.application("small", "root.b")
    core.asks("small", ["small-0", "small-1"], SMALL)
    for late_ns, is_kept in ((0, True), (1, False)):
        core.now_ns = held.since_ns + EXPIRY_NS + late_ns
        held.retry()
        core.asks("small", [], SMALL)
        assert reserved_for(core) == (["big-0"] if is_kept else [])
    core.check()


# --- one for each head ----------------------------------------------------------------------------

OTHER = {"vcore": 9_000, "pods": 1}


FOUR = (("maxReservedNodes", "4"),)


def crowd_of_heads(*leaves: str, nodes: int = 20, settings: tuple = FOUR) -> Core:
    """Return a cluster with three applications: two of one shape in two queues, one of another."""
    core = full_of_fillers(nodes, *leaves, rule=(), settings=settings)
    for name, queue, shape in (("one", "root.a", LARGE), ("two", "root.b", LARGE),
                               ("three", "root.b", OTHER)):  # fmt: skip
        core.application(name, queue)
        core.asks(name, [f"{name}-{at}" for at in range(5)], shape)
    return core


def test_only_heads_get_a_node_and_none_for_whom_others_of_the_shape_wait_ahead():
    """two-0 is the head of its queue, and one-0 waits ahead with its shape: three-0 has the node."""
    core = crowd_of_heads("{name: a}", "{name: b}")
    grow_old(core)
    assert reserved_for(core) == ["one-0", "three-0"]
    core.partition.check_reservations()
    core.update()
    assert reserved_for(core) == ["one-0", "three-0"]


def test_on_up_to_four_nodes_each_old_ask_has_its_own_as_in_yunikorn():
    core = crowd_of_heads("{name: a}", "{name: b}", nodes=4)
    grow_old(core)
    assert reserved_for(core) == ["one-0", "one-1", "one-2", "one-3"]
    larger = crowd_of_heads("{name: a}", "{name: b}", nodes=5)
    grow_old(larger)
    assert len(reserved_for(larger)) == 2


def test_the_next_of_a_shape_is_the_head_when_the_first_has_gone():
    core = crowd_of_heads("{name: a}", "{name: b}")
    grow_old(core)
    gone = AllocationAskRelease("one", "one-0", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    core.check()
    assert reserved_for(core) == ["one-1", "three-0"]


def test_a_head_of_a_higher_priority_takes_the_node_of_its_shape_s_or_its_queue_s_head():
    core = crowd_of_heads("{name: a}", "{name: b}")
    grow_old(core)
    core.application("urgent", "root.a")
    core.asks("urgent", ["urgent-0"], LARGE, priority=5)
    core.application("urgent-b", "root.b")
    core.asks("urgent-b", ["urgent-b-0"], {"vcore": 9_500, "pods": 1}, priority=5)
    core.now_ns += seconds(3)
    grow_old(core)
    core.update()
    core.check()
    assert reserved_for(core) == ["urgent-0", "urgent-b-0"]


def test_the_bound_holds_for_heads_too():
    core = crowd_of_heads("{name: a}", "{name: b}", settings=(("maxReservedNodes", "1"),))
    grow_old(core)
    assert reserved_for(core) == ["one-0"]


@pytest.mark.parametrize("waiting", [20, 400])
def test_a_look_at_heads_reads_as_much_however_many_wait(waiting, monkeypatch):
    core = full_of_fillers(20, rule=())
    core.application("big", "root.a")
    core.asks("big", [f"big-{at}" for at in range(waiting)], LARGE)
    read = []
    in_order = AskGroup.in_order
    monkeypatch.setattr(
        AskGroup, "in_order", lambda self: (read.append(1) or ask for ask in in_order(self))
    )
    grow_old(core)
    assert reserved_for(core) == ["big-0"]
    assert len(read) <= 4


# --- a node is kept for a head when room is near ---------------------------------------------------

HEADS = (("maxReservedNodes", "1"),)


def busy(*run_seconds: int, waiting: dict = LARGE) -> Core:
    """Return a cluster where a pod that states its run time (0: nothing) fills most of each node."""
    core = Core(config_of("{name: a}", "{name: b}"), settings=HEADS)
    infos = tuple(NodeInfo(f"n{at:04}", NodeAction.CREATE, NODE) for at in range(len(run_seconds)))
    core.update(nodes=infos)
    core.application("filler", "root.a")
    for at, run in enumerate(run_seconds):
        tags = {RUN_SECONDS: str(run)} if run else {}
        core.asks("filler", [f"filler-{at}"], FILLER, allocation_tags=tags)
    assert len(core.partition.applications["filler"].allocations) == len(run_seconds)
    core.application("big", "root.b")
    core.asks("big", ["big-0", "big-1"], waiting)
    grow_just_old(core)
    return core


def grow_just_old(core: Core) -> None:
    """Let the asks get old enough for a reservation, and be looked at."""
    core.now_ns += seconds(3)
    core.fire_own("reservation")
    core.check()


def kept(core: Core) -> dict[str, str]:
    """Return for which ask each node is kept, by the node of the filler that is on it."""
    return {
        key: next(name for name in node.allocations)
        for node in core.partition.nodes.nodes.values()
        for key in node.reservations
    }


def test_a_head_gets_the_node_that_has_room_soonest():
    assert kept(busy(250, 900, 100, 200, 0, 0)) == {"big-0": "filler-2"}


def test_a_head_gets_no_node_that_has_room_only_later_until_that_is_near():
    core = busy(900, 1200, 900, 2000, 900)
    assert kept(core) == {}
    core.now_ns = core.partition.reservations_due_ns
    assert core.now_ns == START_NS + seconds(900) - reservations.AHEAD_NS
    core.fire_own("reservation")
    core.check()
    assert kept(core) == {"big-0": "filler-0"}


def test_of_nodes_of_which_nothing_is_known_a_head_gets_one_where_others_have_room_only_late():
    assert kept(busy(900, 0, 900, 900, 900)) == {"big-0": "filler-1"}


def test_a_node_whose_room_did_not_come_and_is_not_near_is_given_up():
    """At the end of what was stated it is as old again: within five minutes, and later not."""
    core = busy(*[250] * 5)
    assert kept(core) == {"big-0": "filler-0"}
    for _ in range(4):
        assert core.partition.reservations_due_ns
        core.now_ns = core.partition.reservations_due_ns
        core.fire_own("reservation")
        core.check()
    assert core.now_ns > START_NS + seconds(500)
    assert kept(core) == {}


def test_asks_of_few_nodes_get_theirs_however_late_it_has_room():
    assert sorted(kept(busy(9000, 9000, 9000))) == ["big-0"]


def test_a_higher_priority_for_which_no_node_has_room_in_time_leaves_the_lower_its_node():
    """And the look comes to an end: neither gives way to the other for ever."""
    core = busy(250, 900, 900, 900, 900)
    core.application("urgent", "root.b")
    core.asks("urgent", ["urgent-0"], {"vcore": 8_000, "pods": 150}, priority=5)
    core.application("larger", "root.b")
    core.asks("larger", ["larger-0"], {"vcore": 11_000, "pods": 1}, priority=6)
    core.now_ns += seconds(3)
    core.fire_own("reservation")
    core.check()
    assert list(kept(core)) == ["urgent-0"]


@pytest.mark.parametrize("shapes", [10, 100])
def test_a_look_reads_a_few_shapes_and_nodes_where_room_is_late(shapes, monkeypatch):
    core = busy(*[900] * 40)
    read = []
    room_ns = reservations.room_ns
    monkeypatch.setattr(reservations, "room_ns", lambda *of: read.append(1) or room_ns(*of))
    core.application("more", "root.b")
    for at in range(shapes):
        core.asks("more", [f"more-{at}"], {"vcore": 8_000 + at, "pods": 1})
    core.now_ns += seconds(3)
    core.partition.check_old_asks()
    core.update()
    most = (reservations.MAX_LATE + 1) * reservations.MAX_LOOKED
    assert 0 < len(read) <= most
