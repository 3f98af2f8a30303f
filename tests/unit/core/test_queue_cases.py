"""YuniKorn's placement, queues and limits in other numbers than its own cases have: by messages."""

from shared.messages.interface import (
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import TimerKind
from tests.builders import Core, config_of, section
from tests.table import each_row

ONE = {"vcore": 1000, "pods": 1}
ANN = UserGroupInformation("ann", ("dev",))


def placed(core, name="app", queue="", user="ann", groups=("dev",), **tags):
    """Return where an application goes, "" and why where it is rejected."""
    tags = {key.replace("__", "."): value for key, value in tags.items()}
    said = core.application(name, queue, ugi=UserGroupInformation(user, groups), tags=tags)
    (accepted,) = section(said, "accepted_applications") or (None,)
    (rejected,) = section(said, "rejected_applications") or (None,)
    return (accepted.queue_name, "") if accepted else ("", rejected.reason)


# --- placement ----------------------------------------------------------------------------------

TREE = """
    {name: root, submitacl: '*', queues: [
      {name: leaf}, {name: p, parent: true, queues: [{name: x}, {name: ann}]},
      {name: closed, submitacl: 'nobody', queues: [{name: own}]}]}
"""
NONE = "application rejected: no placement rule matched"


def rules_of(*rules):
    text = "partitions: [{name: default, placementrules: [%s], queues: [%s]}]"
    return text % (", ".join(rules), TREE)


USER_BELOW_TAG = "{name: user, create: true, parent: {name: tag, value: namespace, create: true}}"
PLACES = [  # rules, queue name, tags, what comes of it
    (["{name: provided, create: true}"], "p.x", {}, "root.p_dot_x"),
    (["{name: provided, create: true}"], "root.p.x", {}, "root.p.x"),
    (["{name: provided, create: true}"], "ROOT.P.X", {}, "root.p.x"),
    (["{name: provided, create: true}"], "root.p", {}, NONE),
    (["{name: provided, create: false}"], "root.p.new", {}, NONE),
    (["{name: provided, create: true}"], "root.leaf.new", {}, "parent is already a leaf: root.leaf"),
    (["{name: PROVIDED, create: true}"], "Leaf", {}, "root.leaf"),
    (["{name: provided, create: true, parent: {name: fixed, value: p}}"], "x", {}, "root.p.x"),
    (["{name: provided, create: true, parent: {name: fixed, value: p}}"], "root.leaf", {}, "root.leaf"),
    (["{name: provided, create: true, parent: {name: fixed, value: gone}}"], "x", {}, NONE),
    (["{name: provided, create: true, parent: {name: fixed, value: gone, create: true}}"], "x", {}, "root.gone.x"),
    (["{name: user, create: false}"], "", {}, NONE),
    (["{name: user, create: false, parent: {name: fixed, value: p}}"], "", {}, "root.p.ann"),
    (["{name: tag, value: NameSpace, create: true}"], "", {"namespace": "Prod"}, "root.prod"),
    (["{name: tag, value: namespace, create: true}"], "", {"NAMESPACE": "prod"}, "root.prod"),
    (["{name: tag, value: namespace, create: true}"], "", {"namespace": "a.b"}, "root.a_dot_b"),
    (["{name: tag, value: namespace, create: true}"], "", {"namespace": "root.p.b"}, "root.p.b"),
    (["{name: tag, value: namespace, create: true}"], "", {}, NONE),
    (["{name: tag, value: namespace, create: true}"], "", {"namespace": ""}, NONE),
    ([USER_BELOW_TAG], "", {"namespace": "prod"}, "root.prod.ann"),
    ([USER_BELOW_TAG], "", {"namespace": "leaf"}, "parent rule returned a leaf queue: root.leaf"),
    ([USER_BELOW_TAG], "", {}, NONE),
    (["{name: fixed, value: p.x}"], "other", {}, "root.p.x"),
    (["{name: fixed, value: root.p.x}"], "", {}, "root.p.x"),
    (["{name: fixed, value: Root.P.New, create: true}"], "", {}, "root.p.new"),
    (["{name: provided}", "{name: user, create: true}"], "gone", {}, "root.ann"),
    (["{name: provided}"], "root.closed.own", {}, "root.closed.own"),  # root lets everybody in
    (["{name: provided, create: true}"], "bad!name", {}, "invalid queue name"),
    (["{name: provided, filter: {type: deny, users: [ann]}}"], "leaf", {}, NONE),
    (["{name: provided, filter: {type: allow, users: [ann]}}"], "leaf", {}, "root.leaf"),
    (["{name: provided, filter: {type: allow, users: [bob]}}"], "leaf", {}, NONE),
    (["{name: provided, filter: {users: [bob], groups: [dev]}}"], "leaf", {}, "root.leaf"),
    (["{name: provided, filter: {users: ['a.*n']}}"], "leaf", {}, "root.leaf"),
    (["{name: provided, filter: {users: ['^n+$']}}"], "leaf", {}, NONE),
    (["{name: provided, filter: {users: ['n+']}}"], "leaf", {}, "root.leaf"),  # found anywhere
    (["{name: provided, filter: {users: [ann, bob]}}"], "leaf", {}, "root.leaf"),
    (["{name: provided, filter: {users: [an, bob]}}"], "leaf", {}, NONE),  # two are literals
    (["{name: provided, filter: {type: deny, groups: ['d.*']}}"], "leaf", {}, NONE),
    (["{name: provided, filter: {type: deny, groups: [ops]}}"], "leaf", {}, "root.leaf"),
    (["{name: provided, filter: {type: deny}}"], "leaf", {}, NONE),
    (["{name: provided, filter: {type: allow}}"], "leaf", {}, "root.leaf"),
]  # fmt: skip


@each_row(("rules", "queue", "tags", "wanted"), PLACES)
def test_a_rule_names_a_queue_or_says_why_not(rules, queue, tags, wanted):
    core = Core(rules_of(*rules))
    assert not core.partition.config_error
    found, reason = placed(core, "app", queue, **tags)
    assert found == wanted or wanted in reason, (found, reason)
    assert bool(found) == wanted.startswith("root.")


# --- queues that placement makes ----------------------------------------------------------------

TEMPLATE = (
    "partitions: [{name: default, placementrules: [{name: provided, create: true}], queues: ["
    "{name: root, submitacl: '*', queues: [{name: p, parent: true, properties: "
    "{priority.offset: '3', application.sort.policy: fair}, childtemplate: {maxapplications: 2, "
    "properties: {application.sort.policy: fifo, priority.offset: '4', '': x, y: ''}, "
    "resources: {max: {vcore: 3}, guaranteed: {vcore: 0}}}}, {name: q, parent: true}]}]}]"
)


def test_a_dynamic_leaf_has_its_template_and_nothing_else_however_deep_it_is():
    core = Core(TEMPLATE)
    placed(core, "one", "root.p.x")
    placed(core, "two", "root.p.deep.y")
    for path in ("root.p.x", "root.p.deep.y"):
        queue = core.partition.queues[path]
        assert queue.properties == {"application.sort.policy": "fifo", "priority.offset": "4"}
        assert (queue.max_resource, queue.guaranteed_resource) == ({"vcore": 3000}, None)
        assert (queue.max_applications, queue.is_managed, queue.is_leaf) == (2, False, True)
    deep = core.partition.queues["root.p.deep"]
    assert (deep.properties, deep.max_resource, deep.is_leaf) == ({}, None, False)
    core.check()


def test_a_dynamic_leaf_without_a_template_inherits_no_properties():
    core = Core(TEMPLATE)
    placed(core, "one", "root.q.x")
    queue = core.partition.queues["root.q.x"]
    assert (queue.properties, queue.settings.sort_policy) == ({}, "fifo")


QUOTA = '{"resources":{"vcore":{"value":%s}}}'
TAGGED = [  # tags, then max, guaranteed, applications
    ({"namespace__resourcequota": QUOTA % 5000}, {"vcore": 5000}, None, 2),
    ({"namespace__resourceguaranteed": QUOTA % 70}, {"vcore": 3000}, {"vcore": 70}, 2),
    ({"namespace__resourcemaxapps": "7"}, {"vcore": 3000}, None, 7),
    ({"namespace__resourcemaxapps": "0"}, {"vcore": 3000}, None, 0),
    ({"namespace__resourcemaxapps": "-1"}, {"vcore": 3000}, None, 2),
    ({"namespace__resourcemaxapps": "x"}, {"vcore": 3000}, None, 2),
    ({"namespace__resourcequota": QUOTA % 0}, {"vcore": 3000}, None, 2),
    ({"namespace__resourcequota": QUOTA % -5}, {"vcore": 3000}, None, 2),
    ({"namespace__resourcequota": "{}"}, {"vcore": 3000}, None, 2),
    ({"namespace__resourcequota": "not json"}, {"vcore": 3000}, None, 2),
    ({"namespace__resourcequota": QUOTA % "9223372036854775808"}, {"vcore": 3000}, None, 2),
]


@each_row(("tags", "limit", "guaranteed", "applications"), TAGGED)
def test_a_namespaces_tags_are_those_of_its_dynamic_queue(tags, limit, guaranteed, applications):
    core = Core(TEMPLATE)
    placed(core, "one", "root.p.x", **tags)
    queue = core.partition.queues["root.p.x"]
    assert (queue.max_resource, queue.guaranteed_resource) == (limit, guaranteed)
    assert queue.max_applications == applications
    placed(core, "two", "root.p.x")  # without tags: what was said stays
    assert (queue.max_resource, queue.max_applications) == (limit, applications)


def test_a_configured_queue_heeds_no_namespaces_tags():
    core = Core(config_of("{name: a, resources: {max: {vcore: 9}}}"))
    placed(
        core, "one", "root.a", namespace__resourcequota=QUOTA % 5, namespace__resourcemaxapps="1"
    )
    assert core.partition.queues["root.a"].max_resource == {"vcore": 9000}
    assert core.partition.queues["root.a"].max_applications == 0


def test_dynamic_queues_go_when_they_are_empty_with_those_above_and_not_before():
    core = Core(TEMPLATE)
    placed(core, "one", "root.p.deep.y")
    core.fire_own(TimerKind.CLEANER)
    assert "root.p.deep.y" in core.partition.queues
    core.update(remove_applications=(RemoveApplicationRequest("one"),))
    assert "root.p.deep.y" in core.partition.queues  # not at once
    core.fire_own(TimerKind.CLEANER)
    assert sorted(core.partition.queues) == ["root", "root.p", "root.q"]
    core.check()


def test_a_dynamic_queue_that_a_reload_names_is_managed_from_then_on():
    core = Core(TEMPLATE)
    placed(core, "one", "root.q.x")
    named = TEMPLATE.replace(
        "{name: q, parent: true}",
        "{name: q, queues: [{name: X, resources: {max: {vcore: 2}}, maxapplications: 9}]}",
    )
    core.send(UpdateConfiguration(named))
    queue = core.partition.queues["root.q.x"]
    assert (queue.is_managed, queue.max_resource, queue.max_applications) == (
        True, {"vcore": 2000}, 9,
    )  # fmt: skip
    assert list(queue.applications) == ["one"]
    core.check()


# --- queues that drain --------------------------------------------------------------------------

BOTH, LEFT = config_of("{name: a}", "{name: b}"), config_of("{name: b}")


def draining():
    """Return a core of which root.a was taken out of the file while an application is in it."""
    core = Core(BOTH)
    core.node("n1", vcore=5000, pods=9)
    placed(core, "old", "root.a")
    core.asks("old", ["o1"], ONE)
    core.send(UpdateConfiguration(LEFT))
    return core


def test_a_queue_that_drains_takes_nobody_in_and_goes_on_with_whom_it_has():
    core = draining()
    assert core.partition.queues["root.a"].status == "Draining"
    assert placed(core, "new", "root.a")[0] == ""
    core.asks("old", ["o2"], ONE)
    assert list(core.partition.applications["old"].allocations) == ["o1", "o2"]
    core.fire_own(TimerKind.CLEANER)
    assert "root.a" in core.partition.queues
    core.check()


def test_a_forced_application_of_a_queue_that_drains_goes_to_the_recovery_queue():
    core = draining()
    where, _ = placed(core, "new", "root.a", application__create__force="true")
    assert where == "root.@recovery@"


def test_a_queue_that_drains_goes_once_its_last_application_has():
    core = draining()
    core.update(remove_applications=(RemoveApplicationRequest("old"),))
    core.fire_own(TimerKind.CLEANER)
    assert sorted(core.partition.queues) == ["root", "root.b"]
    core.send(UpdateConfiguration(BOTH))
    assert core.partition.queues["root.a"].status == "Active"


def test_a_queue_that_comes_back_is_active_with_whom_it_had():
    core = draining()
    core.send(UpdateConfiguration(BOTH))
    queue = core.partition.queues["root.a"]
    assert (queue.status, list(queue.applications)) == ("Active", ["old"])
    assert placed(core, "new", "root.a")[0] == "root.a"
    core.check()


def test_all_below_a_queue_that_is_taken_out_drain_and_none_is_made_there():
    tree = config_of("{name: p, queues: [{name: x}, {name: y, queues: [{name: z}]}]}", "{name: b}")
    core = Core(tree)
    placed(core, "old", "root.p.y.z")
    making = LEFT.replace(
        "name: default, ", "name: default, placementrules: [{name: provided, create: true}], "
    )
    core.send(UpdateConfiguration(making))
    status = {path: queue.status for path, queue in core.partition.queues.items()}
    assert status == {
        "root": "Active", "root.b": "Active", "root.p": "Draining", "root.p.x": "Draining",
        "root.p.y": "Draining", "root.p.y.z": "Draining",
    }  # fmt: skip
    assert (
        "cannot add a child queue when queue is marked for deletion: root.p"
        in (placed(core, "new", "root.p.new")[1])
    )
    core.fire_own(TimerKind.CLEANER)
    assert sorted(core.partition.queues) == ["root", "root.b", "root.p", "root.p.y", "root.p.y.z"]


# --- parents that are leaves from then on ---------------------------------------------------------

NESTED = "{name: p, parent: true, queues: [{name: x}, {name: y}]}"


def test_a_parent_whose_queues_are_taken_out_is_a_leaf_once_they_have_drained():
    """yunikorn.md 6.12: "missing managed queues → Draining, removed by the 10 s cleaner"."""
    core = Core(config_of(NESTED, "{name: b}"))
    core.node("n1", vcore=5000, pods=9)
    placed(core, "old", "root.p.x")
    core.asks("old", ["o1"], ONE)
    core.send(UpdateConfiguration(config_of("{name: p}", "{name: c}")))
    assert not core.partition.config_error
    tree = core.partition.queues
    assert {path: tree[path].status for path in ("root.p", "root.p.x", "root.p.y", "root.b")} == {
        "root.p": "Active", "root.p.x": "Draining", "root.p.y": "Draining", "root.b": "Draining",
    }  # fmt: skip
    core.asks("old", ["o2"], ONE)
    assert list(core.partition.applications["old"].allocations) == ["o1", "o2"]
    core.fire_own(TimerKind.CLEANER)
    assert sorted(tree) == ["root", "root.c", "root.p", "root.p.x"]
    assert not tree["root.p"].is_leaf
    assert placed(core, "new", "root.p")[0] == ""
    core.update(remove_applications=(RemoveApplicationRequest("old"),))
    core.fire_own(TimerKind.CLEANER)
    assert sorted(tree) == ["root", "root.c", "root.p"]
    assert placed(core, "new", "root.p")[0] == "root.p"
    core.asks("new", ["n1", "n2"], ONE)
    assert list(core.partition.applications["new"].allocations) == ["n1", "n2"]
    core.check()


def test_dynamic_queues_below_one_that_becomes_a_leaf_drain_and_live_on_if_it_does_not():
    rules = "name: default, placementrules: [{name: provided, create: true}], "
    made, as_leaf = (
        config_of(leaf).replace("name: default, ", rules)
        for leaf in ("{name: p, parent: true}", "{name: p}")
    )
    core = Core(made)
    placed(core, "old", "root.p.x.y")
    core.send(UpdateConfiguration(as_leaf))
    tree = core.partition.queues
    assert [tree[path].status for path in ("root.p.x", "root.p.x.y")] == ["Draining"] * 2
    assert placed(core, "new", "root.p.x.y")[0] == ""
    assert "parent is already a leaf: root.p" in placed(core, "other", "root.p.z")[1]
    core.send(UpdateConfiguration(made))
    assert [tree[path].status for path in ("root.p.x", "root.p.x.y")] == ["Active"] * 2
    assert placed(core, "new", "root.p.x.y")[0] == "root.p.x.y"
    assert placed(core, "other", "root.p.z")[0] == "root.p.z"
    core.check()


# --- limits of users and groups -----------------------------------------------------------------


def runs(config, *applications, vcore=20_000):
    """Return how many pods of 1 core each application has: (name, queue, user, groups, pods)."""
    core = Core(config)
    core.node("n1", vcore=vcore, pods=99, memory=99_000)
    for name, queue, user, groups, pods in applications:
        core.application(name, queue, ugi=UserGroupInformation(user, groups))
        core.asks(name, [f"{name}-{at}" for at in range(pods)], ONE)
    core.check()
    return core, [len(core.partition.applications[one[0]].allocations) for one in applications]


def limit(who, vcore=0, apps=0):
    amounts = f", maxresources: {{vcore: {vcore}}}" if vcore else ""
    return f"{{{who}{amounts}{f', maxapplications: {apps}' if apps else ''}}}"


def leaf(*limits):
    return config_of("{name: a, limits: [%s]}" % ", ".join(limits), "{name: b}")


def nested(parent, child):
    return config_of(
        "{name: p, limits: [%s], queues: [{name: a, limits: [%s]}, {name: b}]}" % (parent, child)
    )


ANNS = ("ann", ("dev", "ops"))
LIMITS = [  # configuration, applications, how many pods each has
    (leaf(limit("users: [ann]", 2)), [("x", "root.a", *ANNS, 3), ("y", "root.a", "bob", (), 3)], [2, 3]),
    (leaf(limit("users: [ann, bob]", 2)), [("x", "root.a", *ANNS, 3), ("y", "root.a", "bob", (), 3)], [2, 2]),
    (leaf(limit("users: [ann]", 2)), [("x", "root.a", *ANNS, 1), ("y", "root.a", *ANNS, 3)], [1, 1]),
    (leaf(limit("users: [ann]", 2)), [("x", "root.a", *ANNS, 3), ("y", "root.b", *ANNS, 3)], [2, 3]),
    (leaf(limit("users: [ann]", 3), limit("users: ['*']", 1)), [("x", "root.a", *ANNS, 9), ("y", "root.a", "bob", (), 9), ("z", "root.a", "cat", (), 9)], [3, 1, 1]),
    (leaf(limit("groups: [dev]", 2)), [("x", "root.a", *ANNS, 3), ("y", "root.a", "bob", ("dev",), 3)], [2, 0]),
    (leaf(limit("groups: [dev]", 2)), [("x", "root.a", "dev", (), 3)], [2]),  # its own name's group
    (leaf(limit("groups: [ops]", 3), limit("groups: [dev]", 2)), [("x", "root.a", *ANNS, 9)], [3]),
    (leaf(limit("groups: [dev]", 2), limit("groups: ['*']", 3)), [("x", "root.a", "bob", ("a",), 9), ("y", "root.a", "cat", ("b",), 9)], [3, 0]),
    (leaf(limit("users: [ann]", 3), limit("groups: [dev]", 2)), [("x", "root.a", *ANNS, 9)], [2]),
    (leaf(limit("users: [ann]", 1), limit("groups: [dev]", 2)), [("x", "root.a", *ANNS, 9), ("y", "root.a", "bob", ("dev",), 9)], [1, 1]),
    (leaf(limit("users: [ann]", apps=1)), [("x", "root.a", *ANNS, 2), ("y", "root.a", *ANNS, 2)], [2, 0]),
    (leaf(limit("users: ['*']", apps=1)), [("x", "root.a", *ANNS, 2), ("y", "root.a", "bob", (), 2)], [2, 2]),
    (leaf(limit("groups: [dev]", apps=1)), [("x", "root.a", *ANNS, 2), ("y", "root.a", "bob", ("dev",), 2), ("z", "root.a", "cat", (), 1)], [2, 0, 1]),
    (nested(limit("users: [ann]", 3), limit("users: [ann]", 2)), [("x", "root.p.a", *ANNS, 9), ("y", "root.p.b", *ANNS, 9)], [2, 1]),
    (nested(limit("groups: [dev]", 4), limit("groups: [dev]", 3)), [("x", "root.p.a", *ANNS, 9), ("y", "root.p.b", "bob", ("dev",), 9)], [3, 1]),
    (nested(limit("groups: [ops]", 5), limit("groups: [dev]", 3)), [("x", "root.p.a", *ANNS, 9), ("y", "root.p.b", *ANNS, 9)], [3, 5]),
    (nested(limit("users: ['*']", 2), ""), [("x", "root.p.a", *ANNS, 9), ("y", "root.p.b", *ANNS, 9), ("z", "root.p.b", "bob", (), 9)], [2, 0, 2]),
    (nested(limit("users: [ann]", apps=2), limit("users: [ann]", apps=1)), [("x", "root.p.a", *ANNS, 1), ("y", "root.p.a", *ANNS, 1), ("z", "root.p.b", *ANNS, 1)], [1, 0, 1]),
    (config_of("{name: a, limits: [{users: [ann], maxresources: {memory: 5}}]}"), [("x", "root.a", *ANNS, 9)], [9]),
]  # fmt: skip


@each_row(("config", "applications", "pods"), LIMITS)
def test_what_users_and_groups_may_have(config, applications, pods):
    assert runs(config, *applications)[1] == pods


def test_what_ends_makes_room_for_the_next_of_its_user():
    core, _ = runs(
        leaf(limit("users: [ann]", 2, 1)), ("x", "root.a", *ANNS, 3), ("y", "root.a", *ANNS, 1)
    )
    stopped = TerminationType.STOPPED_BY_RM
    core.update(releases=(AllocationRelease("x", "x-0", stopped),))
    held = core.partition.applications["x"].allocations
    assert list(held) == ["x-1", "x-2"]
    assert core.partition.applications["y"].state == "Accepted"
    core.update(releases=(AllocationRelease("x", "", stopped),))
    assert core.partition.applications["y"].state == "Running"
    core.check()


def test_a_user_without_applications_is_forgotten():
    core, _ = runs(leaf(), ("x", "root.a", *ANNS, 1))
    assert list(core.partition.users.users) == ["ann"]
    core.update(remove_applications=(RemoveApplicationRequest("x"),))
    assert core.partition.users.users == {}
    told = [user for out in core.answers for user in getattr(out.message, "users", ())]
    assert (told[-1].name, told[-1].removed) == ("ann", True)


# --- who may not run as a gang ------------------------------------------------------------------

GANGS = [
    ("{name: a, resources: {max: {vcore: 3}}}", {"vcore": 3000}, ""),
    ("{name: a, resources: {max: {vcore: 3}}}", {"vcore": 3001}, "queue root.a cannot fit application app: task group request map[vcore:3001] larger than max queue allocation map[vcore:3000]"),
    ("{name: a, resources: {max: {vcore: 3}}}", {"vcore": 3000, "memory": 10**15}, ""),
    ("{name: a, properties: {application.sort.policy: fair}}", {"vcore": 1}, "queue root.a cannot run application app with task group request: unsupported sort type"),
    ("{name: a, properties: {application.sort.policy: stateaware}}", {"vcore": 1}, ""),
    ("{name: a, properties: {application.sort.policy: nonsense}}", {"vcore": 1}, ""),
    ("{name: a, properties: {application.sort.policy: fair}}", {"vcore": 0}, ""),
]  # fmt: skip


@each_row(("queue", "wanted", "reason"), GANGS)
def test_which_gangs_a_queue_never_takes(queue, wanted, reason):
    core = Core(config_of(queue))
    said = core.application("app", "root.a", placeholder_ask=wanted)
    assert [one.reason for one in section(said, "rejected_applications")] == [reason] * bool(reason)
