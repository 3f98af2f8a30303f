"""A gang that has waited long for its queue is not passed by those behind it (ADR 24)."""

import pytest

from services.core.scheduler.actions import gang
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.nodes.filters.combined import Filters
from shared.messages.constraints import (
    Constraints,
    HostPort,
    PodTerm,
    Requirement,
    SpreadConstraint,
)
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import Heartbeat, SyncBegin, SyncEnd
from shared.model.sentences import text_of
from shared.model.units import seconds
from tests.builders import Core, config_of
from tests.table import each_row

NEVER_PASSED = (("starvationGuard", "0"),)
GROUP = {"task_group_name": "tg"}
LEAF = "{name: a, resources: {max: {vcore: 4m}}}"
STOPPED = TerminationType.STOPPED_BY_RM
OWN = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("g",)),))


class Queue(Core):
    """A leaf of 4 in which a filler holds 2 and a gang of 4 waits."""

    def __init__(self, *leaves: str, settings: tuple = (), old: int = 4, **more):
        super().__init__(config_of(*(leaves or (LEAF,))), settings=settings)
        self.node("n", vcore=100)
        self.plain("filler", 2)
        self.gang("old", old, {"vcore": 1}, queue="root.a", **more)

    def plain(self, name: str, vcore: int, queue: str = "root.a", **more) -> bool:
        """Submit an application with one pod; return whether it started."""
        if name not in self.partition.applications:
            self.pass_time(1)
            self.application(name, queue)
        key = f"{name}-{self.now_ns}"
        self.asks(name, [key], {"vcore": vcore}, **more)
        self.check()
        return key in self.partition.applications[name].allocations

    def ganged(self, name: str, members: int, **more) -> bool:
        """Submit a gang; return whether it was admitted."""
        self.pass_time(1)
        self.gang(name, members, {"vcore": 1}, queue="root.a", **more)
        self.check()
        return self.partition.applications[name].gang_admitted

    def pass_time(self, for_seconds: int) -> None:
        self.now_ns += seconds(for_seconds)
        self.send(Heartbeat("t"), epoch=0)
        self.check()

    def end(self, name: str) -> None:
        self.update(remove_applications=(RemoveApplicationRequest(name),))
        self.check()

    def running(self) -> list[str]:
        return [name for name, app in self.partition.applications.items() if app.allocations]

    def reason(self, name: str) -> str:
        application = self.partition.applications.get(name)
        refusal = application.refusal if application is not None else None
        return refusal.reason if refusal is not None else ""


def test_a_waiting_gang_is_passed_for_its_patience_and_no_longer():
    core = Queue()
    assert core.reason("old") == "GANG_HEADROOM"
    assert core.ganged("young", 1)
    core.end("young")
    core.pass_time(290)
    assert core.plain("small", 1)
    core.end("small")
    core.pass_time(10)
    assert not core.ganged("gang", 1)
    assert not core.plain("plain", 1)
    assert (core.reason("gang"), core.reason("plain")) == ("GANG_PATIENCE", "GANG_PATIENCE")
    message = text_of(core.partition.applications["plain"].refusal)
    assert "queue root.a has waited longer than the starvationGuard of 5m" in message
    assert core.plain("filler", 1)  # who runs goes on
    core.end("filler")
    assert core.running() == ["old"]
    core.end("old")
    assert core.running() == ["gang", "plain"]
    core.check()


def test_forty_later_gangs_do_not_starve_one():
    core = Queue(settings=(("starvationGuard", "20s"),))
    started, last = 0, "filler"
    for at in range(40):
        started += core.ganged(f"later-{at}", 2)
        core.pass_time(9)
        core.end(last)
        last = f"later-{at}"
        if core.partition.applications["old"].gang_admitted:
            break
    assert core.partition.applications["old"].gang_admitted
    assert 1 <= started <= 3


def test_a_patience_of_zero_is_never_passed():
    core = Queue(settings=NEVER_PASSED)
    assert not core.plain("plain", 1)
    assert not core.ganged("gang", 1)
    core.end("filler")
    assert core.running() == ["old"]


@pytest.mark.parametrize(
    ("text", "patience_s"), [("", 300), ("0", 0), ("0s", 0), ("90s", 90), ("-1s", 300), ("x", 300)]
)
def test_the_patience_is_a_setting(text, patience_s):
    assert settings_from([("starvationGuard", text)]).starvation_guard_ns == seconds(patience_s)


def test_who_was_refused_by_the_queue_before_the_gang_was_starved_does_not_start_after_it():
    core = Queue("{name: a, resources: {max: {vcore: 6m}}}", old=6)
    core.asks("filler", ["f2"], {"vcore": 3})
    assert not core.plain("waits", 3)
    assert core.reason("waits") == ""
    core.pass_time(300)
    core.update(releases=(AllocationRelease("filler", "f2", STOPPED),))
    assert core.reason("waits") == "GANG_PATIENCE"
    assert core.running() == ["filler"]


def test_a_reserved_node_starts_nobody_behind_a_starved_gang():
    core = Queue(LEAF, "{name: b}")
    core.node("large", vcore=200, memory=5)
    core.plain("other", 200, queue="root.b")
    core.application("late", "root.a")
    core.asks("late", ["wants"], {"vcore": 1, "memory": 5})
    core.now_ns += seconds(3)
    core.fire_own("reservation")
    assert core.partition.applications["late"].reservations
    core.pass_time(300)
    core.end("other")
    assert "late" not in core.running()
    assert core.reason("late") == "GANG_PATIENCE"
    assert not core.partition.applications["late"].reservations
    core.end("old")
    assert "late" in core.running()


def test_a_gang_that_its_user_keeps_waiting_is_not_waited_for():
    limited = "limits: [{users: [alice], maxresources: {vcore: 3m}}]"
    leaf = "{name: a, resources: {max: {vcore: 4m}}, %s}" % limited
    core = Queue(leaf, settings=NEVER_PASSED)
    core.end("old")
    alice = UserGroupInformation("alice")
    core.application("hers", "root.a", ugi=alice)
    core.asks("hers", ["h"], {"vcore": 1})
    core.ganged("limited", 3, ugi=alice)
    assert core.reason("limited") == "GANG_HEADROOM"
    assert core.plain("other", 1)


def test_a_gang_over_the_applications_that_may_run_is_not_waited_for():
    leaf = "{name: a, maxapplications: 2, resources: {max: {vcore: 4m}}}"
    core = Queue(leaf, settings=NEVER_PASSED)
    leaf = core.partition.queues["root.a"]
    assert leaf.starved_gang.id == "old"
    core.plain("ahead", 1, priority=9)
    assert core.reason("old") == "MAX_APPLICATIONS"
    assert leaf.starved_gang is None


def test_a_gang_larger_than_a_max_that_was_lowered_is_not_waited_for():
    core = Queue(settings=NEVER_PASSED)
    assert not core.plain("plain", 1)
    core.send(UpdateConfiguration(config_of(LEAF.replace("4m", "3m"))))
    core.check()
    assert core.reason("old") == "GANG_HEADROOM"
    assert core.running() == ["filler", "plain"]
    core.send(UpdateConfiguration(config_of(LEAF)))
    assert not core.plain("later", 1)
    assert core.reason("later") == "GANG_PATIENCE"


def test_nobody_is_waited_for_in_a_leaf_that_became_fair():
    core = Queue(settings=NEVER_PASSED)
    assert not core.plain("plain", 1)
    fair = "{name: a, resources: {max: {vcore: 4m}}, properties: {application.sort.policy: fair}}"
    core.send(UpdateConfiguration(config_of(fair)))
    core.check()
    assert core.running() == ["filler", "plain"]


def test_a_leaf_that_becomes_fair_while_one_waits_behind_a_gang_that_came_after_it():
    """It was submitted before, and so is ahead; the orders of fifo and fair do not compare."""
    core = Queue(settings=NEVER_PASSED)
    core.end("old")
    core.application("plain", "root.a")
    core.gang("older", 4, {"vcore": 1}, queue="root.a", submission_time_ns=1)
    assert not core.plain("plain", 1)
    assert core.reason("plain") == "GANG_PATIENCE"
    fair = "{name: a, resources: {max: {vcore: 4m}}, properties: {application.sort.policy: fair}}"
    core.send(UpdateConfiguration(config_of(fair)))
    core.check()
    assert core.running() == ["filler", "plain"]


@pytest.mark.parametrize("way", ["removed", "asks", "all asks", "admitted"])
def test_those_behind_are_asked_again_when_the_gang_waits_no_more(way):
    core = Queue(settings=NEVER_PASSED)
    assert not core.plain("plain", 1)
    keys = [f"old-ph-{at}" for at in range(4)]
    core.asks("old", ["real"], {"vcore": 9})
    match way:
        case "removed":
            core.end("old")
        case "asks":
            releases = tuple(AllocationAskRelease("old", key, STOPPED) for key in keys)
            core.update(ask_releases=releases)
        case "all asks":
            core.update(ask_releases=(AllocationAskRelease("old", "", STOPPED),))
        case "admitted":
            one = Allocation(keys[0], "old", "n", {"vcore": 1}, placeholder=True, **GROUP)
            core.update(allocations=(one,))
    core.check()
    assert core.reason("plain") == core.reason("old") == ""
    assert "plain" in core.running() or way == "admitted"


def test_priority_decides_who_is_behind():
    core = Queue("{name: a, resources: {max: {vcore: 9m}}}", settings=NEVER_PASSED, old=8)
    assert core.plain("urgent", 1, priority=9)  # ahead of it in the order of the queue
    assert not core.plain("plain", 1)
    core.asks("plain", ["more"], {"vcore": 1}, priority=9)
    assert len(core.partition.applications["plain"].allocations) == 2


def test_when_a_gang_moves_in_the_order_so_do_those_behind_it():
    core = Queue("{name: a, resources: {max: {vcore: 9m}}}", settings=NEVER_PASSED, old=8)
    core.asks("old", ["high"], {"vcore": 1}, priority=7)
    assert not core.plain("between", 1, priority=6)
    core.update(ask_releases=(AllocationAskRelease("old", "high", STOPPED),))
    core.check()
    assert core.running() == ["filler", "between"]


def test_of_two_starved_gangs_the_first_in_the_order_is_waited_for():
    core = Queue(settings=(("starvationGuard", "100s"),))
    core.ganged("second", 3)
    core.pass_time(200)
    leaf = core.partition.queues["root.a"]
    assert leaf.starved_gang.id == "old"
    assert (core.reason("old"), core.reason("second")) == ("GANG_HEADROOM", "GANG_PATIENCE")
    core.end("old")
    assert leaf.starved_gang.id == "second"
    assert not core.plain("plain", 1)
    core.application("high", "root.a", placeholder_ask={"vcore": 4})
    keys = [f"h{at}" for at in range(4)]
    core.asks("high", keys, {"vcore": 1}, placeholder=True, **GROUP, priority=5)
    core.check()
    assert leaf.starved_gang.id == "second"  # a gang ahead of it that is not starved yet
    core.pass_time(101)
    assert leaf.starved_gang.id == "high"
    assert core.reason("second") == "GANG_PATIENCE"
    core.end("high")
    core.end("filler")
    assert core.running() == ["second", "plain"]


def test_other_leaves_go_on():
    core = Queue(LEAF, "{name: b}", settings=NEVER_PASSED)
    assert core.plain("there", 1, queue="root.b")
    assert not core.plain("here", 1)


@pytest.mark.parametrize("waited_s", [299, 300])
def test_the_patience_keeps_its_start_through_a_restart(waited_s):
    core = Queue()
    since_ns = core.now_ns - seconds(waited_s)
    core.epoch = 2
    core.send(SyncBegin(config_of(LEAF)))
    old = AddApplicationRequest(
        "old", "root.a", placeholder_ask={"vcore": 4}, submission_time_ns=since_ns, state="Accepted"
    )
    core.update(
        nodes=(NodeInfo("n", NodeAction.CREATE, {"vcore": 100}),),
        new_applications=(AddApplicationRequest("filler", "root.a", state="Running"), old),
    )
    core.update(allocations=(Allocation("f", "filler", "n", {"vcore": 2}),))
    core.asks("old", [f"p{n}" for n in range(4)], {"vcore": 1}, placeholder=True, **GROUP)
    core.send(SyncEnd(1, 1, 4))
    core.application("late", "root.a")
    core.asks("late", ["l"], {"vcore": 1})
    core.check()
    assert ("late" in core.running()) == (waited_s < 300)


def test_a_gang_is_watched_while_single_asks_of_its_shape_are_refused():
    core = Queue()
    core.asks("filler", ["f1", "f2", "refused"], {"vcore": 1})
    core.ganged("young", 2)
    assert core.reason("young") == "GANG_HEADROOM"
    core.pass_time(300)
    assert core.reason("young") == "GANG_PATIENCE"
    core.update(releases=(AllocationRelease("filler", "f1", STOPPED),))
    core.check()
    assert core.running() == ["filler"]


def test_those_behind_cost_nothing_while_they_wait(monkeypatch):
    core = Queue(settings=NEVER_PASSED)
    for at in range(50):
        core.application(f"p{at}", "root.a")
        core.asks(f"p{at}", [f"k{at}"], {"vcore": 1})
    looked_at = []
    admission_refusal = gang.admission_refusal

    def counted(partition, application):
        looked_at.append(application.id)
        return admission_refusal(partition, application)

    monkeypatch.setattr(gang, "admission_refusal", counted)
    for at in range(10):
        core.asks("filler", [f"more{at}"], {"vcore": 1})
        core.update(releases=(AllocationRelease("filler", f"more{at}", STOPPED),))
    assert set(looked_at) <= {"filler", "old"}
    core.check()


def test_asks_that_get_new_shapes_leave_a_gang_where_it_waits():
    """A label that counts from now on: every ask that waits is made anew, in its old place."""
    core = Core(config_of(LEAF, "{name: b}"))
    core.gang("old", 4, {"vcore": 1}, queue="root.a")
    core.application("other", "root.b")
    for label in ("app", "tier", "zone"):
        near = PodTerm("kubernetes.io/hostname", (Requirement(label, "In", ("x",)),))
        apart = Constraints(pod_anti_affinity=(near,), namespace="d")
        core.asks("other", [label], {"vcore": 1}, constraints=apart)
    core.node("n", vcore=100)
    core.check()
    assert len(core.partition.applications["old"].allocations) == 4


# --- places on the nodes ----------------------------------------------------------------------------

PLACES = (("gangAdmission", "cluster"), ("starvationGuard", "0"))


class Nodes(Queue):
    """A leaf without a max: a node of 4 in which a filler holds 3, and a gang that needs all of it."""

    def __init__(self, members: int = 1, vcore: int = 4):
        Core.__init__(self, config_of("{name: a}"), settings=PLACES)
        self.node("n", vcore=4)
        self.node("small", vcore=2)
        self.plain("filler", 3)
        self.gang("old", members, {"vcore": vcore}, queue="root.a")
        self.check()

    def change(self, name: str, action: NodeAction, **capacity: int) -> None:
        self.update(nodes=(NodeInfo(name, action, capacity),))
        self.check()


def test_a_reload_lets_nobody_pass_a_gang_that_waits_for_places():
    core = Nodes()
    assert not core.plain("young", 1)
    core.send(UpdateConfiguration(config_of("{name: a}", "{name: b}")))
    core.check()
    assert core.partition.queues["root.b"]
    assert (core.reason("old"), core.reason("young")) == ("GANG_PLACES", "GANG_PATIENCE")
    assert not core.plain("younger", 1)


@pytest.mark.parametrize(
    ("action", "capacity"),
    [
        (NodeAction.DECOMISSION, {}),
        (NodeAction.DRAIN_NODE, {}),
        (NodeAction.UPDATE, {"vcore": 3}),
    ],
)
def test_a_gang_that_the_nodes_could_hold_no_more_is_waited_for_no_more(action, capacity):
    core = Nodes()
    assert not core.plain("young", 1)
    core.change("n", action, **capacity)
    assert "young" in core.running()
    assert core.reason("old") == "GANG_PLACES"


@pytest.mark.parametrize("way", ["larger", "undrained", "added"])
def test_a_gang_that_the_nodes_could_hold_from_now_on_is_waited_for(way):
    """The nodes that come are in use, so that it is not woken by their room."""
    core = Nodes(members=2, vcore=3 if way == "added" else 4)
    assert core.plain("young", 1)
    match way:
        case "larger":
            core.change("small", NodeAction.UPDATE, vcore=4)
        case "undrained":
            core.update(nodes=(NodeInfo("m", NodeAction.CREATE_DRAIN, {"vcore": 4}),))
            assert core.plain("younger", 1)
            core.change("m", NodeAction.DRAIN_TO_SCHEDULABLE)
        case "added":
            core.node("m", vcore=4)
    core.pass_time(1)
    assert not core.plain("late", 1)
    assert (core.reason("old"), core.reason("late")) == ("GANG_PLACES", "GANG_PATIENCE")


def test_a_gang_of_groups_that_are_too_large_together_is_not_waited_for():
    core = Nodes()
    core.end("old")
    wanted = {"vcore": 8}
    core.application("groups", "root.a", placeholder_ask=wanted)
    for group in ("one", "two"):
        core.asks("groups", [group], {"vcore": 4}, placeholder=True, task_group_name=group)
    assert core.reason("groups") == "GANG_PLACES"
    assert core.plain("young", 1)


def test_a_gang_that_no_nodes_could_hold_is_not_waited_for_either_while_its_queue_is_full():
    core = Queue(settings=PLACES, old=3)
    core.update(nodes=(NodeInfo("n", NodeAction.UPDATE, {"vcore": 2}),))
    assert core.reason("old") == "GANG_HEADROOM"
    core.node("small", vcore=0)
    core.check()
    assert core.partition.queues["root.a"].starved_gang is None


# --- a gang that was let start, and has not --------------------------------------------------------


class Started(Queue):
    """A leaf without a max: a node of 4 in which a filler holds 3, and a gang of 2x2 was let start."""

    def __init__(
        self,
        admission: str = "queue",
        patience: str = "0",
        leaf: str = "{name: a}",
        settings: tuple[tuple[str, str], ...] = (),
    ):
        settings = settings or (("gangAdmission", admission), ("starvationGuard", patience))
        Core.__init__(self, config_of(leaf), settings=settings)
        self.node("n", vcore=4)
        self.plain("filler", 3)
        self.pass_time(1)
        self.gang("old", 2, {"vcore": 2}, queue="root.a")
        self.check()


@pytest.mark.parametrize("admission", ["queue", "partial"])
def test_a_gang_that_was_let_start_and_holds_nothing_is_not_passed(admission):
    core = Started(admission)
    assert core.partition.applications["old"].gang_admitted
    assert not core.plain("young", 1)
    assert not core.ganged("gang", 1)
    assert (core.reason("young"), core.reason("gang")) == ("GANG_PATIENCE", "GANG_PATIENCE")
    assert core.plain("filler", 1)  # who runs goes on
    core.end("filler")
    assert core.running() == ["old"]
    core.end("old")
    assert core.running() == ["young", "gang"]


def test_with_the_preset_yunikorn_a_gang_is_passed_however_long_it_waits():
    """YuniKorn has no such rule: where one application has no node the next has its turn."""
    core = Started(settings=(("preset", "yunikorn"), ("reservations", "none")))
    assert core.partition.applications["old"].gang_admitted
    core.pass_time(24 * 3600)
    assert core.plain("young", 1)
    assert "old" not in core.running()


def test_it_is_passed_for_its_patience_and_no_longer():
    core = Started(patience="60s")
    assert core.plain("young", 1)
    core.end("young")
    core.pass_time(60)
    assert not core.plain("late", 1)
    core.end("filler")
    assert core.running() == ["old"]


TWO_LEAVES = "{name: a}, {name: b}"


@pytest.mark.parametrize("admission", ["queue", "partial"])
def test_nobody_is_waited_for_while_another_leaf_would_take_what_is_left(admission):
    """What young, of the gang's leaf, left of the node the other leaf would have."""
    core = Started(admission, leaf=TWO_LEAVES)
    assert not core.plain("other", 2, "root.b")
    assert core.plain("young", 1)
    core.end("other")
    core.end("young")
    assert not core.plain("late", 1)
    assert core.reason("late") == "GANG_PATIENCE"


def test_who_waited_behind_a_gang_starts_when_another_leaf_becomes_short_of_nodes():
    core = Started(leaf=TWO_LEAVES)
    assert not core.plain("young", 1)
    assert not core.plain("other", 2, "root.b")
    assert "young" in core.running()


def test_a_gang_is_waited_for_beside_another_leaf_that_no_node_could_help():
    core = Started(leaf=TWO_LEAVES)
    assert not core.plain("other", 5, "root.b")
    assert not core.plain("young", 1)


def test_who_is_short_of_nodes_is_found_without_reading_all_that_wait(monkeypatch):
    """Of each leaf one shape is looked at, however many wait."""
    core = Started(leaf=TWO_LEAVES)
    core.application("many", "root.a")
    core.asks("many", [f"many-{at}" for at in range(200)], {"vcore": 3})
    looked, mask = [], Filters.mask
    could_hold = core.partition.nodes.filters.could_hold

    def counted(self, shape, *others, **more):
        if self is could_hold:
            looked.append(shape)
        return mask(self, shape, *others, **more)

    monkeypatch.setattr(Filters, "mask", counted)
    core.plain("young", 1)
    assert 1 <= len(looked) <= 4


def test_what_was_promised_to_a_younger_gang_is_taken_back():
    """The older one waits for the queue, of which the younger one has a part and holds nothing."""
    core = Started(patience="60s", leaf="{name: a, resources: {max: {vcore: 8m}}}")
    core.end("old")
    core.ganged("older", 6)
    core.pass_time(1)
    core.gang("young", 2, {"vcore": 2}, queue="root.a")
    young = core.partition.applications["young"]
    assert young.promise == {"vcore": 4}
    core.pass_time(59)  # the older one is starved, the younger one not yet
    assert (core.reason("older"), core.reason("young")) == ("GANG_HEADROOM", "GANG_PATIENCE")
    assert not young.promise
    core.end("filler")
    assert core.running() == ["older"]
    core.end("older")
    assert core.running() == ["young"]


def test_a_younger_gang_that_was_let_start_waits_behind_one_that_was_too_and_is_late():
    core = Started(patience="60s")
    core.pass_time(1)
    core.gang("young", 1, {"vcore": 2}, queue="root.a")
    assert core.partition.applications["young"].gang_admitted
    core.pass_time(60)
    assert (core.reason("old"), core.reason("young")) == ("", "GANG_PATIENCE")
    core.end("old")
    assert core.partition.applications["young"].gang_admitted
    core.pass_time(0)
    core.end("filler")
    assert core.running() == ["young"]


def test_one_that_a_limit_of_its_user_keeps_is_not_waited_for():
    """Its user's other pods took the room that the limit left when it was let start."""
    limit = "{users: [u], maxresources: {vcore: 4m}}"
    core = Started(leaf=f"{{name: a, limits: [{limit}]}}")
    core.end("old")
    user = UserGroupInformation("u", ())
    core.application("first", "root.a", ugi=user)
    core.pass_time(1)
    core.gang("limited", 2, {"vcore": 2}, queue="root.a", ugi=user)
    assert not core.plain("young", 1)
    core.asks("first", ["f"], {"vcore": 1})
    core.asks("first", ["g"], {"vcore": 3})
    assert core.reason("young") == "GANG_PATIENCE"
    core.node("m", vcore=4)
    core.check()
    assert core.running() == ["filler", "first", "young"]
    core.update(releases=(AllocationRelease("first", "f", STOPPED),))
    core.update(releases=(AllocationRelease("first", "g", STOPPED),))
    core.check()
    assert "limited" in core.running()


def test_one_whose_first_member_no_node_could_hold_is_not_waited_for():
    core = Started()
    core.end("old")
    core.gang("large", 2, {"vcore": 5}, queue="root.a")
    core.check()
    assert core.partition.applications["large"].gang_admitted
    assert core.plain("young", 1)
    core.node("m", vcore=5)
    core.check()
    assert "large" in core.running()


@each_row(
    "wish",
    [
        Constraints(pod_anti_affinity=(OWN,), namespace="d"),
        Constraints(pod_affinity=(OWN,), namespace="d"),
        Constraints(spread=(SpreadConstraint("kubernetes.io/hostname"),), namespace="d"),
        Constraints(required_node="n"),
        Constraints(host_ports=(HostPort(80),)),
    ],
)
def test_one_that_is_kept_by_pods_that_run_is_waited_for(wish):
    core = Started()
    core.end("old")
    core.update(nodes=(NodeInfo("n", NodeAction.UPDATE, labels={"kubernetes.io/hostname": "n"}),))
    core.application("g", "root.a", placeholder_ask={"vcore": 4})
    tags = {"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": "g"}
    more = {"constraints": wish, "allocation_tags": tags, "placeholder": True, **GROUP}
    core.asks("g", ["g1", "g2"], {"vcore": 2}, **more)
    assert core.partition.applications["g"].gang_admitted
    assert not core.plain("young", 1)
    core.end("filler")
    assert core.running()[0] == "g"


def test_one_whose_placeholders_come_one_by_one_is_waited_for_from_the_first_that_could_start():
    """Hypothesis, seed 11 of test_journal: it was judged when it was let start, and never again."""
    core = Started()
    core.end("old")
    near = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("young",)),))
    beside = Constraints(pod_affinity=(near,), namespace="d")
    core.application("g", "root.a", placeholder_ask={"vcore": 4})
    core.asks("g", ["g1"], {"vcore": 2}, placeholder=True, constraints=beside, **GROUP)
    core.asks("g", ["g2"], {"vcore": 2}, placeholder=True, task_group_name="one")
    assert not core.ganged("young", 1)
    core.update(ask_releases=(AllocationAskRelease("g", "g2", STOPPED),))
    core.check()
    assert "young" in core.running()


@pytest.mark.parametrize(
    "wish",
    [
        Constraints(pod_affinity=(OWN,), namespace="d"),
        Constraints(spread=(SpreadConstraint("kubernetes.io/hostname"),), namespace="d"),
    ],
)
def test_one_whose_members_no_domain_could_take_is_not_waited_for_until_one_can(wish):
    core = Started()
    core.end("old")
    core.application("g", "root.a", placeholder_ask={"vcore": 4})
    tags = {"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": "g"}
    more = {"constraints": wish, "allocation_tags": tags, "placeholder": True, **GROUP}
    core.asks("g", ["g1", "g2"], {"vcore": 2}, **more)
    assert core.plain("young", 1)
    core.end("young")
    core.update(nodes=(NodeInfo("n", NodeAction.UPDATE, labels={"kubernetes.io/hostname": "n"}),))
    assert not core.plain("younger", 1)


def test_one_that_waits_to_be_near_others_is_not_waited_for():
    """Whom it wants to be near may be behind it; no timeout of it runs while it holds nothing."""
    core = Started()
    core.end("old")
    near = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("young",)),))
    core.application("near", "root.a", placeholder_ask={"vcore": 2})
    beside = Constraints(pod_affinity=(near,), namespace="d")
    core.asks("near", ["n1", "n2"], {"vcore": 1}, placeholder=True, constraints=beside, **GROUP)
    core.check()
    assert core.partition.applications["near"].gang_admitted
    assert core.plain("young", 1)


def test_one_that_was_left_out_for_a_while_is_waited_for_again():
    backoff = "{application.unschedasks.backoff: '2', application.unschedasks.backoff.delay: 10s}"
    core = Started(leaf=f"{{name: a, properties: {backoff}}}")
    core.end("old")
    core.node("m", vcore=1)
    core.gang("left", 2, {"vcore": 2}, queue="root.a")
    assert core.reason("left") == "BACKOFF"
    assert core.plain("young", 1)
    core.end("young")
    core.fire("left", "backoff")
    assert not core.plain("younger", 1)
    assert (core.reason("left"), core.reason("younger")) == ("", "GANG_PATIENCE")


def test_a_gang_that_holds_a_part_is_waited_for_by_nobody():
    """Its placeholder was there before: refused as a whole, it is not passed, nor ahead of all."""
    core = Core(
        config_of("{name: a, resources: {max: {vcore: 4m}}}"),
        settings=(("gangAdmission", "cluster"), ("starvationGuard", "60s")),
    )
    core.node("n1", vcore=9, pods=30)
    core.application("runs", "root.a")
    core.asks("runs", ["r0", "r1", "r2"], {"vcore": 1})
    for name in ("first", "second"):
        core.now_ns += 1
        core.gang(name, 3, {"vcore": 1}, queue="root.a")
    core.now_ns += seconds(70)
    held = Allocation("held", "second", "n1", {"vcore": 1}, placeholder=True, task_group_name="tg")
    core.update(allocations=(held,))
    core.check()
    assert core.partition.queues["root.a"].starved_gang.id == "first"
    assert core.partition.applications["second"].refusal.reason == "GANG_HEADROOM"


def test_a_gang_that_was_there_earlier_is_starved_earlier():
    core = Core(
        config_of("{name: a, resources: {max: {vcore: 3m}}}"),
        settings=(("starvationGuard", "60s"),),
    )
    core.node("n1", vcore=9, pods=30)
    core.application("runs", "root.a")
    core.asks("runs", ["r0", "r1"], {"vcore": 1})
    core.gang("gang", 3, {"vcore": 1}, queue="root.a")
    older = core.now_ns - seconds(50)
    core.asks(
        "gang", ["more"], {"vcore": 1}, placeholder=True, task_group_name="tg",
        create_time_ns=older,
    )  # fmt: skip
    core.check()
    core.now_ns += seconds(11)
    core.application("small", "root.a")
    core.asks("small", ["small-0"], {"vcore": 1})
    assert core.partition.applications["small"].refusal.reason == "GANG_PATIENCE"
