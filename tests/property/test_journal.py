"""The journal is enough: replayed it gives what is, and what is told of it is what is."""

from dataclasses import replace

import pytest
from hypothesis import settings

from services.core.scheduler.model.rows import Claim, Purpose
from shared.messages.interface import UpdateRequest, UserGroupInformation
from tests.builders import Core, config_of
from tests.property.replay import ReplayedCore, ReplaysTheJournal
from tests.property.test_gangs import ClusterGangMachine, GangMachine
from tests.property.test_scheduler_machine import PreemptionMachine, SchedulerMachine
from tests.property.told import Listener, ListensAsTheAPI


class JournalCore(ReplayedCore, Core):
    pass


class Follows(ListensAsTheAPI, ReplaysTheJournal):
    """What a machine's core writes down is followed, as the API does and from an empty model."""


class FollowedMachine(Follows, SchedulerMachine):
    make_core = JournalCore


class FollowedPreemptionMachine(Follows, PreemptionMachine):
    make_core = JournalCore


class FollowedGangMachine(Follows, GangMachine):
    make_core = JournalCore


class FollowedClusterGangMachine(Follows, ClusterGangMachine):
    make_core = JournalCore


def cases_of(machine):
    """Return the machine as a test; fewer examples, for its rules are tried elsewhere as well."""
    case = machine.TestCase
    case.settings = settings(max_examples=max(1, settings().max_examples // 6))
    return case


TestFollowed = cases_of(FollowedMachine)
TestFollowedPreemption = cases_of(FollowedPreemptionMachine)
TestFollowedGangs = cases_of(FollowedGangMachine)
TestFollowedClusterGangs = cases_of(FollowedClusterGangMachine)


def core_with_a_pod():
    core = Core(config_of("{name: a}"))
    listener = Listener(core)
    core.node("n", vcore=4)
    core.application("app", "root.a", ugi=UserGroupInformation("alice"))
    core.asks("app", ["pod"], {"vcore": 1})
    listener.check()
    return core, listener


def test_a_pod_that_was_resized_is_told_with_what_its_user_uses():
    core, listener = core_with_a_pod()
    pod = core.partition.applications["app"].allocations["pod"]
    core.update(allocations=(replace(pod, resource_per_alloc={"vcore": 3}),))
    listener.check()
    assert listener.projection.model.users["alice"].usage["root"].usage == {"vcore": 3}


def test_another_resource_manager_is_told():
    core, listener = core_with_a_pod()
    core.send(UpdateRequest("another"))
    listener.check()
    assert listener.projection.model.partition.rm_id == "another"


def test_a_core_whose_configuration_was_refused_shows_its_root():
    core = Core("partitions: [{name: default, queues: [{name: root, queues: 5}]}]")
    listener = Listener(core)
    core.node("n", vcore=4)
    listener.check()
    assert list(listener.projection.model.queues) == ["root"]


ONE = {"vcore": 1}
LEDGERS = {
    "a queue's kept": lambda at: at.queues["root.a"].claim(ONE),
    "a queue's promised": lambda at: at.queues["root.a"].change_promise({}, ONE),
    "a queue's preempting": lambda at: at.queues["root.a"].change_preempting({}, ONE),
    "a queue's allocated": lambda at: at.queues["root.a"].allocate(ONE),
    "a queue's pending": lambda at: at.queues["root.a"].add_pending(ONE),
    "a node's reserved": lambda at: at.nodes.nodes["n"].reserved.update(ONE),
    "a user's usage": lambda at: user_of(at).count_in(at.queues["root.a"], "app", ONE),
    "a user's promised": lambda at: user_of(at).change_promise(at.queues["root.a"], {}, ONE),
    "a user's kept": lambda at: user_of(at).claim(at.queues["root.a"], ONE),
    "a group's usage": lambda at: group_of(at).count_in(at.queues["root.a"], "app", ONE),
    "a group's promised": lambda at: group_of(at).change_promise(at.queues["root.a"], {}, ONE),
    "a group's kept": lambda at: group_of(at).claim(at.queues["root.a"], ONE),
}


def user_of(partition):
    return partition.users.users["alice"]


def group_of(partition):
    return partition.users.groups["dev"]


@pytest.mark.parametrize("change", LEDGERS.values(), ids=LEDGERS.keys())
def test_a_sum_that_changes_without_an_entry_is_found(change):
    core = JournalCore(config_of("{name: a, limits: [{groups: [dev], maxresources: {vcore: 9}}]}"))
    core.node("n", vcore=4)
    core.application("app", "root.a", ugi=UserGroupInformation("alice", ("dev",)))
    core.asks("app", ["pod"], {"vcore": 1})
    core.reader.check()
    change(core.partition)
    with pytest.raises(AssertionError, match="the journal says"):
        core.reader.check()


@pytest.mark.parametrize("table", ["promise", "replacing", "moved"])
def test_a_row_that_changes_without_an_entry_is_found(table):
    core = JournalCore(config_of("{name: a}"))
    core.node("n", vcore=4)
    core.gang("app", 1, {"vcore": 1}, queue="root.a")
    core.asks("app", ["pod"], {"vcore": 1}, task_group_name="tg")
    app = core.partition.applications["app"]
    assert app.replacing
    core.reader.check()
    if table == "promise":
        claim = Claim(Purpose.GANG, app, "", None, ONE, in_queues=ONE)
        app.claims[Purpose.GANG] = {"": claim}
    elif table == "replacing":
        app.replacing.clear()
    else:
        pod = app.allocations["app-ph-0"]
        node = core.partition.nodes.nodes["n"]
        claim = Claim(Purpose.MOVED, app, pod.allocation_key, node, ONE, pod=pod)
        core.partition.moved[claim.key] = claim
    with pytest.raises(AssertionError, match="the journal says"):
        core.reader.check()
