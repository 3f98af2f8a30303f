"""Limits of users and groups: which of a queue's limits is somebody's."""

import pytest

from services.core.scheduler.model.user_ledger import UserLedger
from shared.messages.interface import (
    AllocationRelease,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.state import StateDelta
from tests.builders import Core, config_of
from tests.table import each_row

NAMED = "{users: [alice], maxresources: {vcore: %dm}}"
WILDCARD = "{users: ['*'], maxresources: {vcore: %dm}}"


@pytest.mark.parametrize("named", [1000, 3000])
def test_the_limit_that_names_a_user_holds_and_not_the_wildcards(named):
    limits = f"{NAMED % named}, {WILDCARD % 2000}"
    core = Core(config_of("{name: a, limits: [%s]}" % limits))
    core.node("n", vcore=9000)
    for user in ("alice", "bob"):
        core.application(user, "root.a", ugi=UserGroupInformation(user))
        core.asks(user, [f"{user}-{at}" for at in range(4)], {"vcore": 1000})
    placed = {user: len(core.partition.applications[user].allocations) for user in ("alice", "bob")}
    assert placed == {"alice": named // 1000, "bob": 2}
    core.check()


def test_room_that_is_kept_twice_is_still_kept_when_one_gives_it_back():
    core = Core(config_of("{name: a, limits: [{users: [alice], maxresources: {vcore: 10m}}]}"))
    leaf = core.partition.queues["root.a"]
    alice = UserLedger("alice", is_group=False)
    alice.claim(leaf, {"vcore": 3})
    alice.claim(leaf, {"vcore": 4})
    assert alice.room_for(leaf, {"vcore": 1}) == 3
    alice.release_claim(leaf, {"vcore": 3})
    assert alice.room_for(leaf, {"vcore": 1}) == 6
    alice.release_claim(leaf, {"vcore": 4})
    assert alice.room_for(leaf, {"vcore": 1}) == 10
    assert alice.reserved == {}


# --- limits that go with a reload ---------------------------------------------------------------

ANN = UserGroupInformation("ann", ("dev", "ops"))
DEV, OPS = "{groups: [dev], maxresources: {vcore: 2}}", "{groups: [ops], maxresources: {vcore: 3}}"
OTHERS = "{groups: [nobodys], maxresources: {vcore: 9}}, {groups: ['*'], maxresources: {vcore: 4}}"


def tree(leaf="", parent="", root=""):
    """Return a configuration of root.p.a, root.p.b with limits at each level, and root.c."""
    text = (
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', limits: [%s], queues: "
        "[{name: p, limits: [%s], queues: [{name: a, limits: [%s]}, {name: b}]}, {name: c}]}]}]"
    )
    return text % (root, parent, leaf)


def limited_core(**limits):
    """Return a core with two pods of ann running in root.p.a, and what was told of groups."""
    core = Core(tree(**limits))
    core.node("n", vcore=20_000, pods=99)
    core.application("app", "root.p.a", ugi=ANN)
    core.asks("app", [f"p{at}" for at in range(6)], {"vcore": 1000, "pods": 1})
    return core


def held_by(core):
    """Return what each group is counted for at the root, and how many pods run."""
    groups = core.partition.users.groups
    return (
        {name: group.usage.get("root", {}).get("vcore", 0) for name, group in groups.items()},
        len(core.partition.applications["app"].allocations),
    )


def shown_groups(core):
    """Return the groups that a read model of what was told shows, with their applications."""
    shown = {}
    for told in (out.message for out in core.answers if isinstance(out.message, StateDelta)):
        shown |= {user.name: user.removed for user in told.users if user.is_group}
    groups = [
        {app.application_id: app.group for app in out.message.applications}
        for out in core.answers
        if isinstance(out.message, StateDelta) and out.message.applications
    ]
    return [name for name, removed in shown.items() if not removed], groups[-1].get("app")


LIMITS_THAT_GO = [  # (before, after, the group before, after, what may run after)
    ({"leaf": DEV}, {}, "dev", "", 6),
    ({"parent": DEV}, {}, "dev", "", 6),
    ({"root": DEV}, {}, "dev", "", 6),
    ({"leaf": DEV}, {"leaf": OPS}, "dev", "ops", 3),
    ({"leaf": DEV}, {"root": OPS}, "dev", "ops", 3),
    ({"leaf": DEV, "root": OPS}, {"root": OPS}, "dev", "ops", 3),
    ({"leaf": DEV, "root": DEV}, {"root": DEV}, "dev", "dev", 2),  # one limit is left: it stays
    ({"leaf": DEV}, {"leaf": f"{OPS}, {DEV}"}, "dev", "dev", 2),  # and whoever else is named
    ({"leaf": OTHERS}, {}, "*", "", 6),
    ({"leaf": OTHERS}, {"leaf": DEV}, "*", "dev", 4),  # over its limit by now: nobody is ended
    ({"leaf": DEV}, {"leaf": OTHERS}, "dev", "*", 4),
    ({}, {"parent": DEV}, "", "dev", 6),
]


@each_row(("before", "after", "group", "then", "pods"), LIMITS_THAT_GO)
def test_a_group_is_tracked_for_as_long_as_a_limit_names_it(before, after, group, then, pods):
    core = limited_core(**before)
    assert shown_groups(core) == ([group] if group else [], group)
    core.send(UpdateConfiguration(tree(**after)))
    core.check()
    assert held_by(core) == ({then: 1000 * pods} if then else {}, pods)
    assert shown_groups(core) == ([then] if then else [], then)
    key = next(iter(core.partition.applications["app"].allocations))
    core.update(releases=(AllocationRelease("app", key, TerminationType.STOPPED_BY_RM),))
    core.check()
    core.send(UpdateConfiguration(tree(**before)))
    core.check()


def test_only_the_applications_below_the_limit_that_goes_leave_its_group():
    core = Core(tree(leaf=DEV).replace("{name: c}", "{name: c, limits: [%s]}" % DEV))
    core.node("n", vcore=20_000, pods=99)
    for name, queue in (("app", "root.p.a"), ("other", "root.c")):
        core.application(name, queue, ugi=ANN)
        core.asks(name, [f"{name}-{at}" for at in range(2)], {"vcore": 1000, "pods": 1})
    core.send(UpdateConfiguration(tree().replace("{name: c}", "{name: c, limits: [%s]}" % DEV)))
    dev = core.partition.users.groups["dev"]
    assert list(dev.links) == ["other"]
    two = {"vcore": 2000, "pods": 2}
    assert dev.usage == {"root.c": two, "root": two}
    core.check()


@pytest.mark.parametrize("name", ["ann", "'*'"])
def test_a_user_without_its_limit_is_tracked_on_and_free(name):
    """Users are tracked in any case; of what has gone nothing is shown."""
    core = Core(tree(leaf="{users: [%s], maxresources: {vcore: 2}}" % name))
    core.node("n", vcore=20_000, pods=99)
    core.application("app", "root.p.a", ugi=ANN)
    core.asks("app", [f"p{at}" for at in range(6)], {"vcore": 1000, "pods": 1})
    assert held_by(core)[1] == 2
    core.send(UpdateConfiguration(tree()))
    told = [user for out in core.answers for user in getattr(out.message, "users", ())][-1]
    assert (told.name, told.is_group, told.removed, held_by(core)[1]) == ("ann", False, False, 6)
    assert {level.max_resource for level in told.queues} == {None}
    core.check()


def test_a_claim_for_which_no_room_is_kept_is_given_back_in_any_order():
    """A reload that took a group's limit away ended the core: it kept room for one claim of two."""
    core = Core(config_of("{name: a}"))
    queue, tracker = core.partition.queues["root.a"], UserLedger("dev", True)
    for first, second in (({"vcore": 1}, {}), ({}, {"vcore": 1})):
        tracker.claim(queue, first)
        tracker.claim(queue, second)
        tracker.release_claim(queue, first)
        tracker.release_claim(queue, second)
        assert tracker.reserved == {}
