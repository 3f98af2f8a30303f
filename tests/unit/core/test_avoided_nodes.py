"""The node on which a pod of a gang has failed: what replaces the pod prefers others for a while."""

from services.core.scheduler.model.task_groups import MAX_AVOIDED, TaskGroupCount
from shared.messages.constraints import Constraints, NodeTerm, Requirement
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    GangSettings,
    SubGroup,
    TerminationType,
)
from shared.model.units import seconds
from tests.builders import Core
from tests.domains import cluster, near

KAI = (("policy", "kai"), ("gangAdmission", "cluster"), ("restartRoom", "0s"))
ONE = {"vcore": 1}


def begun(settings=KAI, nodes=3, places=1):
    """Return a core with a gang of two that runs, of which the first is on n0."""
    core = Core(settings=settings)
    for at in range(nodes):
        core.node(f"n{at}", vcore=places)
    terms = GangSettings(subgroups=(SubGroup("w", "", 2),))
    gang = AddApplicationRequest("gang", "root.default", gang=terms)
    core.update(new_applications=(gang,))
    asked(core, "w0", "w1")
    return core


def asked(core, *keys):
    core.update(asks=tuple(AllocationAsk(key, "gang", ONE, task_group_name="w") for key in keys))
    core.check()


def ends(core, key, *, has_failed=True):
    why = TerminationType.STOPPED_BY_RM
    core.update(releases=(AllocationRelease("gang", key, why, has_failed=has_failed),))


def node_of(core, key):
    pod = core.partition.applications["gang"].allocations.get(key)
    return pod and pod.node_id


def test_what_replaces_a_failed_pod_takes_another_node_while_one_fits():
    core = begun()
    failed = node_of(core, "w0")
    ends(core, "w0")
    asked(core, "again")
    assert node_of(core, "again") not in (None, failed)


def test_it_takes_the_same_node_when_no_other_fits():
    core = begun(nodes=2)
    failed = node_of(core, "w0")
    ends(core, "w0")
    asked(core, "again")
    assert node_of(core, "again") == failed


def test_the_node_is_a_node_like_others_when_the_pod_did_not_fail_or_it_is_not_to_be_avoided():
    for settings, has_failed in ((KAI, False), ((*KAI, ("avoidNode", "0s")), True)):
        core = begun(settings)
        failed = node_of(core, "w0")
        ends(core, "w0", has_failed=has_failed)
        asked(core, "again")
        assert node_of(core, "again") == failed, settings


def test_it_is_avoided_for_ten_minutes():
    for after, avoids in ((599, True), (600, False)):
        core = begun((*KAI, ("stalenessGracePeriod", "-1")))
        failed = node_of(core, "w0")
        ends(core, "w0")
        core.now_ns += seconds(after)
        asked(core, "again")
        assert (node_of(core, "again") != failed) is avoids, after


def test_under_yunikorn_a_gang_of_task_groups_avoids_it_where_the_setting_says_so():
    """The other node has the same room, and is used more: it comes after."""
    for more, avoids in (((), False), ((("avoidNode", "10m"),), True)):
        core = Core(settings=(*KAI[1:], *more))
        core.node("n0", vcore=1)
        core.node("n1", vcore=1)
        core.gang("gang", 2, ONE)
        core.asks("gang", ["w0", "w1"], ONE, task_group_name="tg")
        replaced = TerminationType.PLACEHOLDER_REPLACED
        for at in range(2):
            core.update(releases=(AllocationRelease("gang", f"gang-ph-{at}", replaced),))
        core.node("used", vcore=3)
        core.application("other")
        core.asks("other", ["o0", "o1"], ONE)
        failed = node_of(core, "w0")
        ends(core, "w0")
        core.asks("gang", ["again"], ONE, task_group_name="tg")
        assert node_of(core, "again") == ("used" if avoids else failed), more


def test_of_many_nodes_the_last_are_avoided_and_before_what_a_pod_prefers_by_itself():
    counts = TaskGroupCount()
    for at in (*range(MAX_AVOIDED + 1), 1):
        counts.avoid(f"n{at}", 10 + at)
    own = NodeTerm(expressions=(Requirement("zone", "In", ("a",)),), weight=7)
    mine = Constraints(preferred_nodes=(own,))
    others = NodeTerm(fields=(Requirement("metadata.name", "NotIn", ("n6", "n7", "n8")),), weight=8)
    assert counts.avoiding(mine, 15).preferred_nodes == (own, others)
    assert counts.avoiding(mine, 0).preferred_nodes[1].fields[0].values == tuple(
        f"n{at}" for at in range(1, MAX_AVOIDED + 1)
    )
    assert counts.avoiding(mine, 100) is mine
    required = Constraints(required_node="n1")
    assert counts.avoiding(required, 0) is required


def test_in_a_rack_the_node_is_left_out_while_the_others_hold_what_is_lost():
    """Under YuniKorn's laws such a gang gets its places in a domain, where these are counted."""
    for places, is_there in (([1, 1, 1], False), ([1, 1], True)):
        core = cluster([[places]], settings=KAI[1:])
        part = SubGroup("w", "", 2, topology=near(required="rack"))
        gang = AddApplicationRequest("gang", "root.default", gang=GangSettings(subgroups=(part,)))
        core.update(new_applications=(gang,))
        asked(core, "w0", "w1")
        failed = node_of(core, "w0")
        ends(core, "w0")
        asked(core, "again")
        assert node_of(core, "again") is not None
        assert (node_of(core, "again") == failed) is is_there, places
