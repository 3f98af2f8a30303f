"""The journal is enough: replayed it gives what is, and what is told of it is what is."""

from dataclasses import replace

from hypothesis import settings

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
    assert listener.projection.model.users["alice"].queues[0].usage == {"vcore": 3}


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
