"""Plugins in live decisions: what each hook decides, when it is asked again, and when it fails."""

from collections import Counter
from functools import partial

import pytest

from services.core.scheduler.model.policy import Reads, reads
from services.core.scheduler.ordering import queueing
from services.core.scheduler.policies import what_if
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.messages.protocol import Heartbeat, SyncBegin, SyncEnd
from shared.messages.what_if import WhatIf
from shared.model.reasons import Reason
from shared.model.resources import add_into, multiply
from shared.model.sentences import text_of
from tests.builders import Core, config_of
from tests.table import each_row

ONE = {"vcore": 1}
GPU = "nvidia.com/gpu"


def core_with(settings=(), config="", **plugins) -> Core:
    return Core(config, settings=settings, plugins=plugins)


def node(core, name, action=NodeAction.CREATE, labels=None, **capacity):
    return core.update(nodes=(NodeInfo(name, action, capacity, labels=labels or {}),))


def placed(core) -> dict[str, str]:
    return {
        key: held.node_id
        for app in core.partition.applications.values()
        for key, held in app.allocations.items()
    }


def why(core, app="app"):
    """Return the reason and sentence of what an application waits for, by itself or its shapes."""
    application = core.partition.applications[app]
    if application.refusal is not None:
        return application.refusal
    for group in application.groups.values():
        refusal = queueing.hold(application, group) or group.bucket.refusal
        if refusal is not None:
            return refusal
    return None


def stop(core, app, key):
    return core.update(releases=(AllocationRelease(app, key, TerminationType.STOPPED_BY_RM),))


def warnings(core):
    return core.partition.hooks.warnings()


# --- feasible -------------------------------------------------------------------------------------


def gpu_nodes_for_gpu_pods(policy):
    @reads(Reads.NODES)
    def feasible(node, shape):
        return GPU not in node.capacity or shape.resource.get(GPU, 0) > 0

    policy.feasible.append(feasible)


def test_a_plugin_keeps_nodes_free_of_what_it_does_not_want_there():
    core = core_with(gpus=gpu_nodes_for_gpu_pods)
    node(core, "a-gpu", vcore=10, **{GPU: 2})
    core.application("app")
    core.asks("app", ["plain"], ONE)
    core.asks("app", ["gpu"], {"vcore": 1, GPU: 1})
    assert placed(core) == {"gpu": "a-gpu"}
    assert why(core).reason is Reason.PLUGIN
    assert text_of(why(core)) == "plugin gpus: none of 1 matching nodes may be taken"
    node(core, "b-plain", vcore=1)
    assert placed(core) == {"gpu": "a-gpu", "plain": "b-plain"}
    core.asks("app", ["another"], ONE)
    assert why(core).reason is Reason.NO_NODE_FITS, "a node is open to it, and is full"
    core.check()


def test_a_node_that_is_another_now_is_judged_anew():
    @reads(Reads.NODES)
    def feasible(node, shape):
        return node.labels.get("open") == "yes"

    core = core_with(labels=lambda policy: policy.feasible.append(feasible))
    node(core, "n", labels={"open": "no"}, vcore=2)
    core.application("app")
    core.asks("app", ["one"], ONE)
    assert placed(core) == {}
    node(core, "n", NodeAction.UPDATE, labels={"open": "yes"})
    assert placed(core) == {"one": "n"}
    node(core, "n", NodeAction.UPDATE, labels={"open": "no"})
    core.asks("app", ["two"], ONE)
    assert placed(core) == {"one": "n"}


@pytest.mark.parametrize("change", ["comes", "goes", "is another"])
def test_who_was_refused_for_the_nodes_there_are_is_tried_again_when_they_change(change):
    @reads(Reads.NODES)
    def capacity(_application, _amount):
        nodes = core.partition.nodes.nodes
        match change:
            case "comes":
                may = len(nodes) == 3
            case "goes":
                may = len(nodes) == 1
            case _:
                may = "open" in nodes["b"].labels
        return "" if may else "not on these nodes"

    core = core_with(nodes=lambda policy: policy.capacity.append(capacity))
    node(core, "a", vcore=4)
    node(core, "b", vcore=4)
    core.application("app")
    core.asks("app", ["one"], ONE)
    assert (placed(core), why(core).reason) == ({}, Reason.PLUGIN)
    match change:
        case "comes":
            node(core, "c", vcore=4)
        case "goes":
            node(core, "a", NodeAction.DECOMISSION)
        case _:
            node(core, "b", NodeAction.UPDATE, labels={"open": "yes"})
    assert list(placed(core)) == ["one"]


def one_pod_a_node(policy):
    policy.feasible.append(lambda node, shape: not node.allocations)


def test_a_hook_that_looks_at_what_is_on_a_node_is_asked_each_time():
    core = core_with(alone=one_pod_a_node)
    node(core, "a", vcore=4)
    node(core, "b", vcore=4)
    core.application("app")
    core.asks("app", ["one", "two", "three"], ONE)
    assert placed(core) == {"one": "a", "two": "b"}
    assert why(core).reason is Reason.PLUGIN
    stop(core, "app", "one")
    assert placed(core) == {"two": "b", "three": "a"}
    core.check()


def test_what_a_placement_opens_is_tried_in_the_same_cycle():
    """The hook wants pods of no GPU beside one: it says so only by what is on the node."""

    def beside(policy):
        @reads(Reads.PODS)
        def feasible(node, shape):
            return shape.resource.get(GPU, 0) > 0 or bool(node.allocations)

        policy.feasible.append(feasible)

    core = core_with(beside=beside)
    node(core, "n", vcore=4, **{GPU: 1})
    core.application("app")
    core.asks("app", ["plain"], ONE)
    assert placed(core) == {}
    core.asks("app", ["gpu"], {"vcore": 1, GPU: 1})
    assert placed(core) == {"gpu": "n", "plain": "n"}


def grow_old(core):
    """Let asks get old enough for a node of their own."""
    core.now_ns += 3 * 10**9
    core.fire_own("reservation")


@pytest.mark.parametrize("what", [Reads.NODES, Reads.PODS])
def test_no_node_is_kept_for_what_a_plugin_keeps_from_it(what):
    closed = reads(what)(lambda node, shape: node.node_id != "a-closed")
    core = core_with(closed=lambda policy: policy.feasible.append(closed))
    node(core, "a-closed", vcore=1)
    node(core, "b-open", vcore=1)
    core.application("app")
    core.asks("app", ["first", "second"], ONE)
    assert placed(core) == {"first": "b-open"}
    grow_old(core)
    kept = core.partition.applications["app"].reservations
    assert {key: held.node.node_id for key, held in kept.items()} == {"second": "b-open"}


def test_a_node_that_is_kept_is_not_taken_against_a_plugin():
    closed = []
    core = core_with(
        no=lambda policy: policy.capacity.append(lambda app, _: "closed" if closed else "")
    )
    node(core, "n", vcore=1)
    core.application("app")
    core.asks("app", ["first", "second"], ONE)
    core.partition.set_max(core.partition.root, {"vcore": 5})
    core.send(Heartbeat("t"))
    grow_old(core)
    assert list(core.partition.applications["app"].reservations) == ["second"]
    closed.append("now")
    stop(core, "app", "first")
    assert placed(core) == {}
    closed.clear()
    core.send(Heartbeat("t"))
    assert placed(core) == {"second": "n"}


def test_an_ask_that_must_have_a_closed_node_reserves_nothing_there():
    core = core_with(gpus=gpu_nodes_for_gpu_pods)
    node(core, "gpu", vcore=10, **{GPU: 2})
    core.application("app")
    core.asks("app", ["daemon"], ONE, constraints=Constraints(required_node="gpu"))
    assert placed(core) == {}
    assert why(core).reason is Reason.PLUGIN
    assert core.partition.nodes.nodes["gpu"].reservations == {}


# --- score ----------------------------------------------------------------------------------------


def prefers_fast(policy):
    @reads(Reads.NODES)
    def score(node, shape):
        return 0 if node.labels.get("disk") == "fast" else 1

    policy.score.append(score)


@pytest.mark.parametrize("is_said", [True, False])
def test_a_score_comes_before_the_nodes_own(is_said):
    def fast(policy):
        prefers_fast(policy)
        if not is_said:
            hook = policy.score[0]
            policy.score[0] = partial(hook)

    core = core_with(fast=fast)
    node(core, "a", vcore=4)
    node(core, "b", labels={"disk": "fast"}, vcore=2)
    core.application("app")
    core.asks("app", ["one", "two", "three"], ONE)
    assert placed(core) == {"one": "b", "two": "b", "three": "a"}
    core.check()


def test_a_score_that_reads_the_nodes_own_stands_in_its_place():
    core = core_with(packs=lambda policy: policy.score.append(lambda node, shape: -node.score))
    node(core, "a", vcore=4)
    node(core, "b", vcore=4)
    core.application("app")
    core.asks("app", ["one", "two", "three"], ONE)
    assert set(placed(core).values()) == {"a"}, "fair nodes, packed all the same"


def test_scores_are_asked_in_the_order_of_the_setting():
    core = core_with(
        fast=prefers_fast,
        last=lambda policy: policy.score.append(lambda node, shape: -ord(node.node_id)),
    )
    for name, disk in (("a", "fast"), ("b", "fast"), ("c", "slow")):
        node(core, name, labels={"disk": disk}, vcore=4)
    core.application("app")
    core.asks("app", ["one"], ONE)
    assert placed(core) == {"one": "b"}


# --- order ----------------------------------------------------------------------------------------


def urgent_first(policy):
    @reads(Reads.NOTHING)
    def order(application):
        return 0 if application.request.tags.get("urgent") else 1

    policy.order.append(order)


def test_an_order_comes_before_the_queues_own():
    core = core_with(urgent=urgent_first)
    core.application("early")
    core.asks("early", ["early-0"], ONE)
    core.application("late", tags={"urgent": "yes"})
    core.asks("late", ["late-0"], ONE)
    node(core, "n", vcore=1)
    assert placed(core) == {"late-0": "n"}


def test_an_order_by_use_follows_it():
    core = core_with(even=lambda policy: policy.order.append(lambda app: len(app.allocations)))
    for name in ("one", "two"):
        core.application(name)
        core.asks(name, [f"{name}-{at}" for at in range(4)], ONE)
    node(core, "n", vcore=4)
    assert Counter(key.split("-")[0] for key in placed(core)) == {"one": 2, "two": 2}
    core.check()


def test_an_order_by_what_others_do_is_looked_at_in_every_cycle():
    ahead = []
    core = core_with(said=lambda policy: policy.order.append(lambda app: app.id not in ahead))
    for name in ("one", "two"):
        core.application(name)
        core.asks(name, [f"{name}-0"], ONE)
    ahead.append("two")
    node(core, "n", vcore=1)
    assert placed(core) == {"two-0": "n"}


# --- capacity -------------------------------------------------------------------------------------


def two_a_tenant(policy):
    """Count by the tenant that an application's tags name; no tenant has more than two vcores."""
    used: Counter = Counter()

    def tenant(application):
        return application.request.tags.get("tenant", "")

    @reads(Reads.PODS)
    def capacity(application, amount):
        wanted = used[tenant(application)] + amount.get("vcore", 0)
        return f"{wanted} vcores would be more than 2" if wanted > 2 else ""

    def came(application, allocation):
        used[tenant(application)] += allocation.resource_per_alloc.get("vcore", 0)

    def went(application, allocation):
        used[tenant(application)] -= allocation.resource_per_alloc.get("vcore", 0)

    policy.capacity.append(capacity)
    policy.on_allocate.append(came)
    policy.on_deallocate.append(went)


def test_a_capacity_holds_and_is_asked_again_when_there_is_room():
    core = core_with(tenants=two_a_tenant)
    node(core, "n", vcore=10, memory=10)
    for name, tenant in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        core.application(name, tags={"tenant": tenant})
        core.asks(name, [f"{name}-{at}" for at in range(2)], ONE)
    assert set(placed(core)) == {"a1-0", "a1-1", "b1-0", "b1-1"}
    assert why(core, "a2").reason is Reason.PLUGIN
    assert text_of(why(core, "a2")) == "plugin tenants: 3 vcores would be more than 2"
    core.asks("a2", ["a2-memory"], {"memory": 1})
    assert "a2-memory" in placed(core), "only what was refused waits"
    stop(core, "a1", "a1-0")
    assert {"a2-0"} == {key for key in placed(core) if key.startswith("a2-")} - {"a2-memory"}
    core.check()


def test_a_capacity_is_asked_again_when_the_last_node_has_gone():
    """A failure of PluginMachine: without nodes no cycle asked, and the old refusal was shown."""
    core = core_with(tenants=two_a_tenant)
    node(core, "n", vcore=10)
    for name in ("a1", "a2"):
        core.application(name, tags={"tenant": "a"})
        core.asks(name, [f"{name}-{at}" for at in range(2)], ONE)
    assert why(core, "a2").reason is Reason.PLUGIN
    node(core, "n", NodeAction.DECOMISSION)
    assert why(core, "a2") is None


def test_a_gang_is_asked_about_as_a_whole():
    core = core_with(tenants=two_a_tenant)
    node(core, "n", vcore=10)
    core.application("before", tags={"tenant": "a"})
    core.asks("before", ["one"], ONE)
    core.gang("gang", 2, ONE, tags={"tenant": "a"})
    assert set(placed(core)) == {"one"}
    assert why(core, "gang").reason is Reason.PLUGIN
    core.gang("other", 2, ONE, tags={"tenant": "b"})
    assert set(placed(core)) == {"one", "other-ph-0", "other-ph-1"}
    stop(core, "before", "one")
    assert {"gang-ph-0", "gang-ph-1"} <= set(placed(core))
    core.check()


def test_a_gang_that_is_given_up_waits_for_no_plugin():
    core = core_with(never=lambda policy: policy.capacity.append(
        lambda app, amount: "no more than 1" if amount.get("vcore", 0) > 1 else ""
    ))  # fmt: skip
    node(core, "n", vcore=10)
    core.gang("gang", 2, ONE)
    assert why(core, "gang").reason is Reason.PLUGIN
    core.partition.applications["gang"].is_gang_over = True
    core.partition.applications["gang"].pending_placeholders = 0
    queueing.enter(core.partition.applications["gang"])
    assert core.partition.applications["gang"].refusal is None


def test_a_hook_is_asked_again_only_when_what_it_reads_has_changed():
    asked: Counter = Counter()

    def counting(policy):
        for name, what in (("nothing", Reads.NOTHING), ("pods", Reads.PODS), ("any", None)):

            def capacity(application, amount, name=name):
                asked[application.id, name] += 1
                return "no" if application.id == name else ""

            policy.capacity.append(capacity if what is None else reads(what)(capacity))

    core = core_with(counting=counting)
    node(core, "n", vcore=10)
    for name in ("nothing", "pods", "any"):
        core.application(name)
        core.asks(name, [f"{name}-0"], ONE)
    before = Counter(asked)
    for _ in range(3):
        core.send(Heartbeat("t"))
    assert asked - before == {("any", "nothing"): 3, ("any", "pods"): 3, ("any", "any"): 3}
    before = Counter(asked)
    core.application("app")
    core.asks("app", ["x"], ONE)
    again = {name for name, hook in asked - before if name == hook}
    assert again == {"pods", "any"}


def test_what_waits_for_a_plugin_does_not_keep_its_queue_from_others():
    core = core_with(no=lambda policy: policy.capacity.append(
        lambda app, amount: "no" if app.id == "first" else ""
    ))  # fmt: skip
    node(core, "n", vcore=10)
    for name in ("first", "second"):
        core.application(name)
        core.asks(name, [f"{name}-0", f"{name}-1"], ONE)
    assert set(placed(core)) == {"second-0", "second-1"}


def test_what_is_taken_back_waits_for_no_plugin():
    core = core_with(no=lambda policy: policy.capacity.append(
        reads(Reads.NOTHING)(lambda app, amount: "no")
    ))  # fmt: skip
    node(core, "n", vcore=10)
    core.application("app")
    core.asks("app", ["one"], ONE)
    wait_list = core.partition.hooks.capacity[0].wait_list
    assert len(wait_list.groups) == 1
    core.partition.remove_ask(core.partition.applications["app"], "one")
    assert not wait_list.groups


# --- on_allocate, on_deallocate -------------------------------------------------------------------


def sums(into):
    def register(policy):
        policy.on_allocate.append(lambda app, held: add_into(into, held.resource_per_alloc))
        policy.on_deallocate.append(
            lambda app, held: add_into(into, multiply(held.resource_per_alloc, -1))
        )

    return register


def test_a_trial_and_its_end_are_told_like_any_other():
    total: dict[str, int] = {}
    told: Counter = Counter()

    def watch(policy):
        sums(total)(policy)
        policy.on_allocate.append(lambda app, held: told.update({held.allocation_key: 1}))

    core = core_with(watch=watch, settings=(("gangAdmission", "cluster"),))
    for name in ("a", "b"):
        node(core, name, vcore=8)
    core.gang("gang", 2, {"vcore": 5})
    assert total == {"vcore": 10}
    total_before = dict(total)
    wanted = multiply({"vcore": 2}, 3)
    terms = Constraints(host_ports=())
    asks = tuple(
        AllocationAsk(f"g2-{at}", "g2", {"vcore": 2}, placeholder=True, task_group_name="tg",
                      constraints=terms)
        for at in range(3)
    )  # fmt: skip
    core.update(
        new_applications=(AddApplicationRequest("g2", "root.default", placeholder_ask=wanted),),
        asks=asks,
    )
    assert why(core, "g2").reason is Reason.GANG_PLACES
    assert {k: v for k, v in total.items() if v} == total_before
    node(core, "c", vcore=2)
    assert total == {"vcore": 16}
    assert told["g2-0"] == 1


@pytest.mark.parametrize(
    "asked",
    [
        WhatIf(
            applications=(AddApplicationRequest("new", "root.default"),),
            asks=(AllocationAsk("new-0", "new", {"vcore": 1}), AllocationAsk("new-1", "new", {"vcore": 9})),
        ),
        WhatIf(drain="a"),
        WhatIf(add_nodes=2, like="a"),
    ],
)  # fmt: skip
def test_a_question_is_told_like_any_other_and_so_is_that_it_was_only_one(asked):
    total: dict[str, int] = {}
    core = core_with(watch=sums(total))
    for name in ("a", "b"):
        node(core, name, vcore=4)
    core.application("app")
    core.asks("app", [f"p{at}" for at in range(8)], ONE)
    stop(core, "app", "p0")
    before = dict(total)
    assert before == {"vcore": 7}
    assert what_if.forecast(core.partition, asked).done
    assert total == before
    core.check()


def test_a_node_that_goes_takes_what_is_on_it_along():
    total: dict[str, int] = {}
    core = core_with(watch=sums(total))
    node(core, "n", vcore=4)
    core.application("app")
    core.asks("app", ["one", "two"], ONE)
    assert total == {"vcore": 2}
    core.update(nodes=(NodeInfo("n", NodeAction.DECOMISSION, {}),))
    assert not any(total.values())


# --- failure --------------------------------------------------------------------------------------


def broken(*_):
    raise ZeroDivisionError("division by zero")


@each_row("kind", ["feasible", "score", "capacity"])
@each_row("what", [None, Reads.NODES, Reads.PODS])
def test_a_hook_that_raises_says_no_and_is_named(kind, what):
    def bad(policy):
        getattr(policy, kind).append(broken if what is None else reads(what)(partial(broken)))

    core = core_with(bad=bad)
    node(core, "n", vcore=4)
    core.application("app")
    core.asks("app", ["one"], ONE)
    core.asks("app", ["two"], {"vcore": 2})
    assert placed(core) == {}
    assert why(core).reason is Reason.PLUGIN
    raised = f"{kind} raised ZeroDivisionError: division by zero"
    assert "plugin bad" in text_of(why(core))
    assert raised in text_of(why(core))
    assert core.reports == [f"plugin bad: {raised}"], "it is reported once"
    assert len(warnings(core)) == 1
    assert warnings(core)[0].startswith(f"plugin bad: {raised} (")
    core.check()


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("feasible", None), ("score", float("nan")), ("score", "high"), ("capacity", 7)],
)
def test_an_answer_that_is_none_is_a_no(kind, answer):
    core = core_with(bad=lambda policy: getattr(policy, kind).append(lambda *about: answer))
    node(core, "n", vcore=4)
    core.application("app")
    core.asks("app", ["one"], ONE)
    assert placed(core) == {}
    assert why(core).reason is Reason.PLUGIN
    assert len(core.reports) == 1


def test_whom_an_order_cannot_place_comes_last():
    def order(application):
        return broken() if application.id == "first" else 0

    core = core_with(bad=lambda policy: policy.order.append(order))
    for name in ("first", "second"):
        core.application(name)
        core.asks(name, [f"{name}-0"], ONE)
    node(core, "n", vcore=1)
    assert placed(core) == {"second-0": "n"}
    assert core.reports == ["plugin bad: order raised ZeroDivisionError: division by zero"]


def test_a_watcher_that_raises_stops_nobody():
    def bad(policy):
        policy.on_allocate.append(broken)
        policy.on_deallocate.append(broken)

    core = core_with(bad=bad)
    node(core, "n", vcore=4)
    core.application("app")
    core.asks("app", ["one", "two"], ONE)
    stop(core, "app", "one")
    assert placed(core) == {"two": "n"}
    assert len(core.reports) == 2
    assert warnings(core)[0].endswith("(2 times)")


@pytest.mark.parametrize("gang", [True, False])
def test_without_a_plugin_that_is_named_nothing_starts(gang):
    core = Core(settings=(("plugins", "absent"),))
    node(core, "n", vcore=4)
    if gang:
        core.gang("app", 2, ONE)
    else:
        core.application("app")
        core.asks("app", ["one"], ONE)
    assert placed(core) == {}
    assert why(core).reason is Reason.PLUGIN
    assert text_of(why(core)).startswith("plugin absent: ")
    assert "nothing is started without it" in warnings(core)[0]


def test_a_plugin_that_cannot_register_is_told_of():
    core = core_with(bad=broken, good=urgent_first)
    node(core, "n", vcore=4)
    core.application("app")
    core.asks("app", ["one"], ONE)
    assert text_of(why(core)) == "plugin bad: register raised ZeroDivisionError: division by zero"
    assert len(core.reports) == 1


# --- recovery -------------------------------------------------------------------------------------


def test_a_recovery_registers_anew_and_counts_what_exists():
    core = core_with(tenants=two_a_tenant)
    node(core, "n", vcore=10)
    core.application("app", tags={"tenant": "a"})
    core.asks("app", ["one", "two", "three"], ONE)
    held = tuple(core.partition.applications["app"].allocations.values())
    assert len(held) == 2
    core.epoch += 1
    core.send(SyncBegin("", (("plugins", "tenants"),)))
    core.update(
        nodes=(NodeInfo("n", NodeAction.CREATE, {"vcore": 10}),),
        new_applications=(AddApplicationRequest("app", "root.default", tags={"tenant": "a"}),),
    )
    core.update(allocations=held)
    core.update(asks=(AllocationAsk("three", "app", ONE),))
    core.send(SyncEnd(0, 0, 0))
    assert set(placed(core)) == {"one", "two"}
    assert why(core).reason is Reason.PLUGIN
    core.epoch += 1
    core.send(SyncBegin("", ()))
    assert core.partition.hooks is None, "named no more, it does nothing"


def test_a_queue_is_what_it_was_for_those_whom_no_plugin_refuses():
    core = core_with(
        config=config_of("{name: a, resources: {max: {vcore: 1}}}"), urgent=urgent_first
    )
    node(core, "n", vcore=10_000)
    core.application("app", queue="root.a")
    core.asks("app", ["one", "two"], {"vcore": 1000})
    assert placed(core) == {"one": "n"}
    assert why(core).reason is Reason.QUEUE_QUOTA


# --- who makes way --------------------------------------------------------------------------------

LEAVES = (
    "{name: owed, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 2}}}",
    "{name: over}",
)


def full_core(settings=(), **plugins):
    """Return a core whose one node is full of two old pods, beside a queue that is owed both."""
    core = core_with(config=config_of(*LEAVES), settings=settings, **plugins)
    node(core, "n", vcore=2000)
    core.application("old", queue="root.over")
    for at in range(2):
        core.asks("old", [f"old-{at}"], {"vcore": 1000}, create_time_ns=core.now_ns + at)
    core.application("new", queue="root.owed")
    core.asks("new", ["new-0"], {"vcore": 1000}, create_time_ns=core.now_ns)
    assert len(placed(core)) == 2
    return core


def preempted(core):
    """Return what goes when time has come."""
    for _ in range(3):
        core.now_ns += 30 * 10**9
        if core.partition.timers.get("preemption", ("", core.now_ns + 1))[1] <= core.now_ns:
            core.fire_own("preemption")
    return sorted(core.partition.applications["old"].released)


POLICIES = [(), (("policy", "kai"),)]


@pytest.mark.parametrize("settings", POLICIES)
def test_without_a_plugin_the_newest_goes(settings):
    assert preempted(full_core(settings)) == ["old-1"]


@pytest.mark.parametrize("settings", POLICIES)
def test_a_victim_filter_spares_whom_it_will(settings):
    asked = set()

    def spares(policy):
        def victim(action, victim, preemptor):
            asked.add((action, preemptor.id))
            return victim.application.id != "old"

        policy.victim.append(victim)

    core = full_core(settings, spares=spares)
    assert preempted(core) == []
    assert asked
    assert {preemptor for _, preemptor in asked} == {"new"}


def test_of_one_application_a_pod_may_be_spared():
    def spares(policy):
        policy.victim.append(lambda action, victim, _: victim.allocation.allocation_key != "old-1")

    assert preempted(full_core(spares=spares)) == ["old-0"]


@pytest.mark.parametrize("settings", POLICIES)
def test_a_scenario_check_has_the_last_word(settings):
    seen = []

    def refuses(policy):
        def scenario(action, victims, preemptor):
            seen.append(
                (preemptor.id, sorted(victim.allocation.allocation_key for victim in victims))
            )
            return False

        policy.scenario.append(scenario)

    assert preempted(full_core(settings, refuses=refuses)) == []
    assert ("new", ["old-1"]) in seen


@pytest.mark.parametrize("settings", POLICIES)
def test_nobody_goes_for_what_a_plugin_would_not_let_start(settings):
    def closed(policy):
        policy.capacity.append(lambda app, amount: "closed" if app.id == "new" else "")

    assert preempted(full_core(settings, closed=closed)) == []


@pytest.mark.parametrize("settings", POLICIES)
def test_nobody_goes_from_a_node_that_a_plugin_closes(settings):
    ajar = []

    def closed(policy):
        policy.feasible.append(lambda node, shape: not ajar)

    core = full_core(settings, closed=closed)
    ajar.append("no more")
    assert preempted(core) == []


def test_a_pod_of_a_daemon_set_takes_nobody_who_is_spared():
    def spares(policy):
        policy.victim.append(lambda action, victim, _: action != "requirednode")

    for plugins, gone in (({}, 1), ({"spares": spares}, 0)):
        core = full_core(**plugins)
        node(core, "m", vcore=2000)
        core.asks("new", ["daemon"], {"vcore": 1000}, constraints=Constraints(required_node="n"))
        assert len(core.partition.applications["old"].released) == gone


def test_a_gang_that_is_owed_its_room_is_let_start_only_if_a_plugin_lets_it():
    def small(policy):
        policy.capacity.append(lambda app, amount: "no" if amount.get("vcore", 0) > 1000 else "")

    above = "{name: p, resources: {max: {vcore: 2}}, queues: [%s]}" % ", ".join(LEAVES)
    for plugins, gone in (({}, ["old-0", "old-1"]), ({"small": small}, [])):
        core = core_with(config=config_of(above), **plugins)
        node(core, "n", vcore=2000)
        core.application("old", queue="root.p.over")
        for at in range(2):
            core.asks("old", [f"old-{at}"], {"vcore": 1000})
        core.gang("new", 2, {"vcore": 1000}, queue="root.p.owed")
        assert why(core, "new").reason is Reason.GANG_HEADROOM
        assert preempted(core) == gone


def test_nobody_goes_for_a_gang_of_which_a_plugin_closes_the_free_node_to_a_member():
    is_closed = []

    def closed(policy):
        policy.feasible.append(lambda node, shape: not (is_closed and node.id == "free"))

    leaves = "{name: owed, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 3}}}"
    above = "{name: p, resources: {max: {vcore: 3}}, queues: [%s, {name: over}]}" % leaves
    for gone, closes in ((["old-0", "old-1"], []), ([], ["free"])):
        core = core_with(config=config_of(above), closed=closed)
        node(core, "n", vcore=2000)
        core.application("old", queue="root.p.over")
        for at in range(2):
            core.asks("old", [f"old-{at}"], {"vcore": 1000})
        node(core, "free", vcore=1000)
        is_closed[:] = closes
        core.gang("new", 3, {"vcore": 1000}, queue="root.p.owed")
        assert why(core, "new").reason is Reason.GANG_HEADROOM
        assert preempted(core) == gone


def test_of_gangs_that_are_alike_a_plugin_may_let_one_preempt():
    def for_the_second(policy):
        policy.victim.append(lambda action, victim, preemptor: preemptor.id == "second")

    above = "{name: p, resources: {max: {vcore: 2}}, queues: [%s]}" % ", ".join(LEAVES)
    core = core_with(config=config_of(above), second=for_the_second)
    node(core, "n", vcore=2000)
    core.application("old", queue="root.p.over")
    for at in range(2):
        core.asks("old", [f"old-{at}"], {"vcore": 1000})
    for name in ("first", "second"):
        core.gang(name, 2, {"vcore": 1000}, queue="root.p.owed")
    assert preempted(core) == ["old-0", "old-1"]
    first, second = (core.partition.applications[name] for name in ("first", "second"))
    assert (first.gang_admitted, second.gang_admitted) == (False, True)
