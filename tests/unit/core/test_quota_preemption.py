"""Quota changes that are enforced: who gives back how much, in which order, when, and what is said.

Source: docs/rules/preemption.md#quota-changes; the rows are worked out by hand from its rules.
"""

from services.core.scheduler.actions.quota_preemption import divided
from services.core.scheduler.model.rows import Queue
from shared.messages.interface import Allocation, UpdateConfiguration
from shared.model.units import seconds
from tests.builders import START_NS, Core, section
from tests.table import each_row

HOUR_NS = seconds(3600)
SUMMARY = (
    "Quota Preemption results summary: preemptable resources: map[vcore:{}], claimed resources: "
    "{}, selected victims: {}, preempted victims: {}"
)


def tree(spec: dict, name: str = "top", parent: Queue | None = None) -> Queue:
    """Return a queue of a tree ``{guaranteed, used, children}``; amounts are of vcore."""
    queue = Queue(name, parent, is_leaf="children" not in spec)
    if "guaranteed" in spec:
        queue.guaranteed_resource = {"vcore": spec["guaranteed"]}
    for child, below in spec.get("children", {}).items():
        queue.children[child] = tree(below, child, queue)
    queue.allocate({"vcore": spec.get("used", 0)})
    queue.change_preempting({}, {"vcore": spec.get("preempting", 0)})
    return queue


@each_row(
    ("children", "amount", "expected"),
    [
        # in proportion to what is above each one's guarantee
        ({"a": {"used": 10}, "b": {"used": 10}}, 10, {"a": 5, "b": 5}),
        ({"a": {"used": 30}, "b": {"used": 10}}, 8, {"a": 6, "b": 2}),
        ({"a": {"used": 10, "guaranteed": 4}, "b": {"used": 10, "guaranteed": 8}}, 4,
         {"a": 3, "b": 1}),
        # who is within its guarantee gives nothing
        ({"a": {"used": 10, "guaranteed": 10}, "b": {"used": 10}}, 5, {"b": 5}),
        ({"a": {"used": 3, "guaranteed": 10}, "b": {"used": 10}}, 5, {"b": 5}),
        # nobody gives more than it has above its guarantee, even if that is less than asked
        ({"a": {"used": 10, "guaranteed": 9}, "b": {"used": 10, "guaranteed": 8}}, 9,
         {"a": 1, "b": 2}),
        # whole units, never more than all together, the larger rest first, then by name
        ({"a": {"used": 5}, "b": {"used": 5}}, 7, {"a": 4, "b": 3}),
        ({"a": {"used": 1}, "b": {"used": 2}, "c": {"used": 4}}, 5, {"a": 1, "b": 1, "c": 3}),
        # what is being released already counts as given
        ({"a": {"used": 10, "preempting": 8}, "b": {"used": 6}}, 4, {"a": 1, "b": 3}),
        # level by level; guarantees further down protect, and their part falls to the others
        ({"p": {"children": {"x": {"used": 6}, "y": {"used": 2}}}, "b": {"used": 8}}, 8,
         {"x": 3, "y": 1, "b": 4}),
        ({"p": {"guaranteed": 4, "children": {"x": {"used": 6}, "y": {"used": 2}}},
          "b": {"used": 4}}, 4, {"x": 2, "b": 2}),
        ({"p": {"children": {"x": {"used": 6, "guaranteed": 6}}}, "b": {"used": 8}}, 8, {"b": 8}),
    ],
)  # fmt: skip
def test_a_parents_part_is_divided_by_what_is_above_the_guarantees(children, amount, expected):
    found = divided(tree({"children": children}), {"vcore": amount})
    assert {queue.name: part["vcore"] for queue, part in found.items()} == expected


def test_every_type_is_divided_for_itself():
    top = tree({"children": {"a": {"used": 4}, "b": {"used": 4}}})
    top.children["b"].allocate({"memory": 10})
    found = divided(top, {"vcore": 4, "memory": 6, "gpu": 1})
    assert {queue.name: part for queue, part in found.items()} == {
        "a": {"vcore": 2},
        "b": {"vcore": 2, "memory": 6},
    }


def config(most: int | None, delay: str = "10s", leaves: str = "{name: a}") -> str:
    """Return a partition with a parent that has a max in milli of vcore, and a delay."""
    limit = "" if most is None else "resources: {max: {vcore: %dm}}," % most
    return (
        "partitions: [{name: default, preemption: {quotapreemptionenabled: true}, queues: [{name: "
        "root, submitacl: '*', queues: [{name: p, properties: {quota.preemption.delay: %s}, %s "
        "queues: [%s]}]}]}]" % (delay, limit, leaves)
    )


def using(*pods: dict, leaves: str = "{name: a}", delay: str = "10s") -> Core:
    """Return a cluster in which pods run: ``vcore``, and what else there is to say of them."""
    core = Core(config(None, delay, leaves))
    core.node("n", vcore=100_000)
    for at, pod in enumerate(pods):
        wanted = {"create_time_ns": START_NS, "queue": "a", **pod}
        app, vcore = wanted.pop("queue"), wanted.pop("vcore")
        if app not in core.partition.applications:
            core.application(app, f"root.p.{app}")
        core.asks(app, [f"k{at}"], {"vcore": vcore}, **wanted)
    return core


def lower(core: Core, most: int, delay: str = "10s", leaves: str = "{name: a}") -> None:
    core.send(UpdateConfiguration(config(most, delay, leaves)))


def due_in(core: Core) -> float | None:
    """Return in how many seconds something will be enforced, None for never."""
    armed = core.partition.queues["root.p"].quota_due_ns
    assert (core.partition.timers["quota"][1] == armed) if armed else True
    return (armed - core.now_ns) / seconds(1) if armed else None


def enforce(core: Core) -> list[str]:
    released = section(core.fire_own("quota"), "released_allocations")
    core.check()
    return [item.allocation_key for item in released]


def said(core: Core, text: str) -> list:
    events = [event for item in core.answers for event in getattr(item.message, "events", ())]
    return [event for event in events if text in event.message]


@each_row(
    ("pods", "most", "victims"),
    [
        # the smaller first within an hour; none that would be more than is to be given back
        ([{"vcore": 5}, {"vcore": 6}, {"vcore": 9}], 10, ["k0"]),
        ([{"vcore": 9}, {"vcore": 6}, {"vcore": 5}], 10, ["k2"]),
        ([{"vcore": 5}, {"vcore": 5}, {"vcore": 9}], 9, ["k0", "k1"]),
        ([{"vcore": 9}, {"vcore": 8}], 16, []),
        # a later hour before an earlier one, whatever the size; the minute does not matter
        ([{"vcore": 5}, {"vcore": 9, "create_time_ns": START_NS + HOUR_NS}], 5, ["k1"]),
        ([{"vcore": 5}, {"vcore": 6, "create_time_ns": START_NS + HOUR_NS - 1}], 5, ["k0"]),
        # priority before the hour, and before that whether it may be preempted at all
        ([{"vcore": 5, "priority": 1}, {"vcore": 5, "create_time_ns": 1}], 5, ["k1"]),
        ([{"vcore": 5, "allow_preempt_self": False}, {"vcore": 5, "priority": 9}], 5, ["k1"]),
        ([{"vcore": 5, "originator": True}, {"vcore": 5, "priority": 9}], 5, ["k1"]),
    ],
)  # fmt: skip
def test_the_order_of_victims(pods, most, victims):
    core = using(*pods)
    lower(core, most)
    assert enforce(core) == victims


def test_a_parent_takes_from_both_children_and_from_no_guarantee():
    leaves = "{name: a, resources: {guaranteed: {vcore: 4m}}}, {name: b}"
    pods = [{"vcore": 1, "queue": name} for name in "aaaaaabbbbbb"]  # 6 each, a is promised 4
    core = using(*pods, leaves=leaves)
    lower(core, 8, leaves=leaves)
    taken = enforce(core)
    assert len([key for key in taken if int(key[1:]) < 6]) == 1  # of 2 and 6 above: 1 and 3
    assert len(taken) == 4
    (event,) = said(core, "Quota Preemption results summary")
    assert event.message == SUMMARY.format(4, "map[vcore:4]", 4, 4)
    assert (event.type, event.change_type, event.change_detail) == (4, 1, 407)
    assert (event.object_id, event.reference_id) == ("root.p", "")
    told = said(core, "Preempted by Quota change enforcement process in root.p")
    assert sorted(event.object_id for event in told) == sorted(taken)


def test_who_could_not_be_taken_is_in_the_summary_too():
    core = using({"vcore": 9}, {"vcore": 8})
    lower(core, 16)
    assert enforce(core) == []
    (event,) = said(core, "Quota Preemption results summary")
    assert event.message == SUMMARY.format(1, "map[]", 0, 0)


def test_the_delay_begins_once_and_is_shifted_when_it_changes():
    core = using({"vcore": 5}, {"vcore": 5})
    lower(core, 9)
    assert due_in(core) == 10
    core.now_ns += seconds(4)
    lower(core, 5)  # lowered again: it does not begin anew
    assert due_in(core) == 6
    lower(core, 5, delay="30s")
    assert due_in(core) == 26
    lower(core, 5, delay="5s")
    assert due_in(core) == 1
    lower(core, 5, delay="2s")  # was over two seconds ago: at once
    assert core.partition.timers["quota"][1] == core.now_ns
    assert len(enforce(core)) == 1
    assert due_in(core) is None


def test_a_delay_that_is_set_later_begins_then_and_one_that_is_taken_away_ends():
    core = using({"vcore": 5}, {"vcore": 5}, delay="0s")
    lower(core, 5, delay="0s")
    assert due_in(core) is None
    core.now_ns += seconds(100)
    lower(core, 5, delay="7s")
    assert due_in(core) == 7
    lower(core, 5, delay="0s")
    assert due_in(core) is None
    core.now_ns += seconds(100)
    lower(core, 5, delay="7s")
    assert due_in(core) == 7
    lower(core, 10, delay="7s")  # raised: nothing is over any more
    assert due_in(core) is None


def resize(core: Core, key: str, vcore: int) -> None:
    core.update(allocations=(Allocation(key, "a", "n", {"vcore": vcore}),))


def test_a_pod_that_grows_over_the_max_begins_the_delay_and_again_after_it_was_enforced():
    core = using({"vcore": 5}, {"vcore": 5})
    lower(core, 10)
    assert due_in(core) is None
    resize(core, "k0", 6)
    assert due_in(core) == 10
    core.now_ns += seconds(3)
    resize(core, "k0", 7)  # it goes on
    assert due_in(core) == 7
    resize(core, "k0", 5)
    assert due_in(core) is None
    resize(core, "k0", 6)
    assert due_in(core) == 10
    assert enforce(core) == []  # 5 and 6 are more than the one that is over
    resize(core, "k1", 9)
    assert due_in(core) == 10
    assert enforce(core) == []
    resize(core, "k0", 1)
    resize(core, "k1", 10)
    assert enforce(core) == ["k0"]


def test_a_recovered_pod_that_is_over_the_max_begins_the_delay():
    core = Core(config(9))
    core.node("n", vcore=100)
    core.application("a", "root.p.a")
    for at in range(2):
        assert due_in(core) is None
        core.update(allocations=(Allocation(f"k{at}", "a", "n", {"vcore": 5}),))
    assert due_in(core) == 10
    core.now_ns += seconds(4)
    core.update(allocations=(Allocation("k2", "a", "n", {"vcore": 5}),))
    assert due_in(core) == 6
    assert len(enforce(core)) == 1


def test_children_give_back_only_what_their_parent_has_left_to_give():
    text = (
        "{name: a, properties: {quota.preemption.delay: 10s}, resources: {max: {vcore: 2m}}}, "
        "{name: b}"
    )
    pods = [{"vcore": 1, "queue": name} for name in "aaaabbbb"]
    core = using(*pods, leaves="{name: a}, {name: b}")
    lower(core, 6, leaves=text)
    taken = enforce(core)
    assert len(taken) == 3  # the parent one of each, then a one more down to its own max
    assert len([key for key in taken if int(key[1:]) < 4]) == 2


PROMISED = "{name: a, resources: {guaranteed: {vcore: %dm}}}, {name: b}"


def over_by(*pods: int, most: int, waits: int | None, guaranteed: int = 0) -> Core:
    """Return a cluster whose queue has pods in a, is over its max, and has an ask wait in b."""
    leaves = PROMISED % guaranteed
    core = using(*({"vcore": pod} for pod in pods), leaves=leaves)
    lower(core, most, leaves=leaves)
    if waits is not None:
        core.application("b", "root.p.b")
        core.asks("b", ["late"], {"vcore": waits}, create_time_ns=START_NS)
    return core


@each_row(
    ("pods", "most", "waits", "guaranteed", "victims"),
    [
        # one that is larger than what is over goes for somebody who waits and then fits
        ([100, 100, 100], 250, 50, 200, ["k0"]),
        ([100, 100, 100], 250, 50, 0, ["k0"]),
        ([100, 100, 100], 250, None, 200, []),
        ([100, 100, 100], 250, 51, 0, []),
        # never below what is guaranteed; another that keeps it is as good
        ([100, 100, 100], 250, 50, 201, []),
        ([200, 60, 40], 250, 10, 240, ["k1"]),
        ([200, 100], 250, 50, 150, ["k1"]),
        # who was taken before and is not needed any more stays
        ([200, 40, 40], 230, 10, 0, ["k1", "k2"]),
        ([100, 20, 100], 150, 10, 0, ["k0"]),
        # as many as it takes
        ([100, 100, 100, 100], 150, 50, 100, ["k0", "k1", "k2"]),
    ],
)
def test_one_that_is_larger_goes_for_an_ask_that_waits(pods, most, waits, guaranteed, victims):
    core = over_by(*pods, most=most, waits=waits, guaranteed=guaranteed)
    assert due_in(core) == 10
    assert enforce(core) == victims


def test_what_is_guaranteed_above_the_leaf_is_kept_too():
    text = config(250, leaves="{name: a}, {name: b}").replace(
        "resources: {", "resources: {guaranteed: {vcore: 201m}, "
    )
    core = using(*({"vcore": 100} for _ in "aaa"), leaves="{name: a}, {name: b}")
    core.send(UpdateConfiguration(text))
    core.application("b", "root.p.b")
    core.asks("b", ["late"], {"vcore": 50}, create_time_ns=START_NS)
    assert due_in(core) == 10
    assert enforce(core) == []


def test_an_ask_that_comes_to_wait_later_begins_the_delay():
    core = over_by(100, 100, 100, most=250, waits=None)
    assert enforce(core) == []
    assert due_in(core) is None
    core.now_ns += seconds(100)
    core.application("b", "root.p.b")
    core.asks("b", ["late"], {"vcore": 50}, create_time_ns=core.now_ns)
    assert due_in(core) == 10
    core.now_ns += seconds(3)
    core.asks("b", ["later"], {"vcore": 50}, create_time_ns=core.now_ns)
    assert due_in(core) == 7  # it goes on
    assert enforce(core) == ["k0"]
