"""The shim adapter's machine: commands, decisions, recovery, and the file that keeps its world."""

import json
from dataclasses import replace

import pytest

from services.shim_adapter.machine import USE_CORDON, USE_KUBECTL
from services.shim_adapter.mirror.calls import (
    BindPod,
    BindRefused,
    DeletePod,
    MarkUnschedulable,
    NodeNews,
    NominatePod,
    PodAdded,
    PodChanged,
    WriteEvent,
)
from services.shim_adapter.mirror.mirror import _unwanted
from services.shim_adapter.mirror.moves import IN_THE_WAY
from services.shim_adapter.records import ApplicationPhase, ApplicationRecord, PodRecord
from services.shim_adapter.service import ShimOptions, ShimService
from shared.messages.commands import (
    ChangeNodes,
    CommandResult,
    DeleteApplication,
    DeleteManifests,
    DeletePods,
    ManifestDocument,
    NodeSpec,
    PlaceForeignPods,
    PodName,
    PodSpec,
    RefusedDocument,
    SubmitApplication,
    SubmitManifests,
    SubmitPods,
    SubmitResult,
    TaskGroupSpec,
)
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from shared.messages.interface import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    ContainerSchedulingState,
    NodeAction,
    NodeInfo,
    RejectedApplication,
    RejectedNode,
    SchedulingState,
    TerminationType,
    UpdatedApplication,
    UpdateRequest,
    UpdateResponse,
)
from shared.messages.protocol import Heartbeat, SyncBegin, SyncEnd, SyncRequest

ONE = {"vcore": 1000, "pods": 1}


class Shim:
    def __init__(self, **options):
        self.service = ShimService(
            ShimOptions(
                default_run_ns=0, nodes=1, node_capacity={"vcore": 4000, "pods": 9}, **options
            )
        )
        self.machine = self.service.make_machine()
        self.count = 0
        self.now = 1000
        self.send(Heartbeat("h"))
        self.send(UpdateResponse(accepted_nodes=tuple(map(AcceptedNode, self.world.nodes))))

    @property
    def world(self):
        return self.machine.world

    def send(self, message, epoch=None):
        self.count += 1
        epoch = self.machine.world.epoch if epoch is None else epoch
        wrapped = Envelope(
            f"m{self.count}",
            type(message).__name__,
            message,
            SHIM_ADAPTER,
            "t",
            epoch=epoch,
            reply_to="api.x#1",
        )
        out = self.machine.handle(wrapped, self.now)
        self.machine.flush(self.now)
        return [item.message for item in out]

    def asks(self, messages):
        return [ask.allocation_key for m in messages for ask in getattr(m, "asks", ())]


def pod(name, **more):
    return PodSpec(name, "app", ONE, queue_name="root.default", **more)


def test_the_first_message_makes_it_say_everything_and_each_request_again_in_a_new_epoch():
    shim = Shim()
    assert shim.world.epoch == 1
    messages = shim.send(SyncRequest("core"))
    assert [type(m) for m in (messages[0], messages[-1])] == [SyncBegin, SyncEnd]
    assert shim.world.epoch == 2


def test_real_pods_are_held_back_until_every_placeholder_is_bound():
    shim = Shim()
    group = TaskGroupSpec("tg", 2, {"vcore": 1000})
    shim.send(SubmitApplication("app", "root.default", task_groups=(group,)))
    made = shim.asks(shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),))))
    assert len(made) == 2
    assert shim.asks(shim.send(SubmitPods((pod("real", task_group_name="tg"),)))) == []
    bind = [
        Allocation(key, "app", "node-0000", ONE, placeholder=True, task_group_name="tg")
        for key in made
    ]
    assert shim.asks(shim.send(UpdateResponse(new_allocations=(bind[0],)))) == []
    assert len(shim.asks(shim.send(UpdateResponse(new_allocations=(bind[1],))))) == 1


def test_a_decision_of_a_lower_epoch_is_refused():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    key = shim.asks(shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),))))[
        0
    ]
    shim.send(SyncRequest("core"))
    shim.send(UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),)), epoch=1)
    assert shim.world.pods[key].node == ""
    assert shim.machine.mirror.refused_decisions == 1


def test_a_release_is_confirmed_with_its_own_type_once_the_pod_is_gone():
    shim = Shim(confirm_delay_ns=500)
    shim.send(SubmitPods((pod("p"),)))
    key = shim.asks(shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),))))[
        0
    ]
    shim.send(UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),)))
    release = AllocationRelease("app", key, TerminationType.PREEMPTED_BY_SCHEDULER)
    assert shim.send(UpdateResponse(released_allocations=(release,))) == []
    shim.now += 500
    (confirmed,) = [r for m in shim.send(Heartbeat("h")) for r in m.releases]
    assert confirmed.termination_type is TerminationType.PREEMPTED_BY_SCHEDULER


def test_the_same_id_can_be_submitted_again_once_the_application_has_ended():
    shim = Shim()
    shim.send(SubmitApplication("app", "root.default"))
    (refused,) = [m for m in shim.send(SubmitApplication("app")) if isinstance(m, CommandResult)]
    assert "already existed" in refused.message
    shim.send(UpdateResponse(updated_applications=(UpdatedApplication("app", "Completed", 1),)))
    (done,) = [m for m in shim.send(SubmitApplication("app")) if isinstance(m, CommandResult)]
    assert done.done


def test_a_pod_that_came_while_its_application_ended_starts_it_anew():
    shim = Shim()
    shim.send(SubmitPods((pod("a"),)))
    shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    messages = shim.send(
        UpdateResponse(updated_applications=(UpdatedApplication("app", "Completed", 1),))
    )
    assert [a.application_id for m in messages for a in m.new_applications] == ["app"]
    assert (
        len(
            shim.asks(
                shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
            )
        )
        == 1
    )


def test_bad_commands_are_answered_and_change_nothing():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    pods = dict(shim.world.pods)
    for command, text in [
        (SubmitPods((pod("new"), pod("p"))), "already exists"),
        (SubmitPods((pod("x"), pod("x"))), "the same name"),
        (DeletePods((PodName("p"), PodName("none"))), "not found"),
        (DeleteApplication("nobody"), "not found"),
        (ChangeNodes((NodeSpec("node-0000", "add"),)), "already exists"),
        (ChangeNodes((NodeSpec("nothere", "drain"),)), "not found"),
        (ChangeNodes((NodeSpec("node-0000", "paint"),)), "no such action"),
    ]:
        (answer,) = [m for m in shim.send(command) if isinstance(m, CommandResult)]
        assert not answer.done
        assert text in answer.message
    assert shim.world.pods == pods


def test_where_the_cluster_is_not_ours_nodes_and_pods_are_changed_by_its_own_means():
    """A machine without a playground is one over Kubernetes: the nodes' owner is kubectl's user."""
    shim = Shim()
    shim.machine._people = None
    (answer,) = shim.send(ChangeNodes((NodeSpec("node-0000", "drain"),)))
    assert answer == CommandResult(done=False, message=USE_CORDON)
    document = ManifestDocument("a.yaml", 1, "{}")
    (answer,) = shim.send(DeleteManifests((document,)))
    assert answer == SubmitResult(refused=(RefusedDocument("a.yaml", 1, "", USE_KUBECTL),))
    assert not shim.world.nodes["node-0000"].is_cordoned
    (answer,) = shim.send(SubmitPods((pod("p"),)))
    assert answer == CommandResult(done=False, message=USE_KUBECTL)


def test_a_drain_that_is_delivered_twice_is_done_once_and_answered_the_same():
    shim = Shim()
    drained = [shim.send(ChangeNodes((NodeSpec("node-0000", "drain"),))) for _ in range(2)]
    shim.count -= 1
    again = shim.send(ChangeNodes((NodeSpec("node-0000", "drain"),)))
    assert CommandResult(done=True) in drained[0]
    assert again == [CommandResult(done=True)]
    assert shim.world.nodes["node-0000"].is_cordoned


def test_a_restart_loses_no_pod(tmp_path):
    shim = Shim(state_dir=tmp_path)
    group = TaskGroupSpec("tg", 1, {"vcore": 1000}, labels={"UPPER": "Case"})
    shim.send(SubmitPods((pod("a", task_groups=(group,), annotations={"Ki/x": "y"}), pod("b"))))
    made = shim.asks(shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),))))
    shim.send(
        UpdateResponse(
            new_allocations=(
                Allocation(
                    made[0], "app", "node-0000", ONE, placeholder=True, task_group_name="tg"
                ),
            )
        )
    )
    world = shim.world
    before = [dict(world.pods), dict(world.nodes), dict(world.applications), world.epoch]
    assert all(before)
    after = shim.service.make_machine().world
    assert after is not world
    assert [after.pods, after.nodes, after.applications, after.epoch] == before
    shim.service.close()


# --- foreign pods, binds that fail, gates, resize -----------------------------------------------


def foreign(name, vcore, kind="default"):
    return PodSpec(name, "", {"vcore": vcore, "pods": 1}, namespace="kube-system", foreign=kind)


def sent(messages, section):
    updates = [m for m in messages if isinstance(m, UpdateRequest)]
    return [item for m in updates for item in getattr(m, section)]


def test_f_07_a_foreign_pod_is_an_allocation_without_an_application_and_so_is_its_release():
    shim = Shim()
    messages = shim.send(
        PlaceForeignPods("node-0000", (foreign("a", 1), foreign("b", 2, "static")))
    )
    told = sent(messages, "allocations")
    assert [(a.application_id, a.allocation_tags["foreign"]) for a in told] == [
        ("", "default"),
        ("", "static"),
    ]
    messages = shim.send(PlaceForeignPods("node-0000", (foreign("a", 3),)))
    (again,) = sent(messages, "allocations")
    assert (again.allocation_key, again.resource_per_alloc["vcore"]) == (told[0].allocation_key, 3)
    (release,) = sent(shim.send(DeletePods((PodName("a", "kube-system"),))), "releases")
    assert (release.application_id, release.allocation_key) == ("", told[0].allocation_key)
    assert (release.termination_type, release.message) == ("STOPPED_BY_RM", "pod terminated")


def test_a_foreign_pod_waits_for_its_node_and_comes_with_it():
    shim = Shim()
    early = shim.send(PlaceForeignPods("late", (foreign("a", 1),)))
    assert sent(early, "allocations") == []
    messages = shim.send(ChangeNodes((NodeSpec("late", "add", {"vcore": 9}),)))
    assert [a.node_id for a in sent(messages, "allocations")] == ["late"]
    assert [a.node_id for a in sent(shim.send(SyncRequest("core")), "allocations")] == ["late"]


def test_a_foreign_pod_that_took_the_room_first_makes_the_bind_a_refusal_and_nobody_is_killed():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    shim.send(PlaceForeignPods("node-0000", (foreign("a", 3500),)))
    decision = UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),))
    (release,) = sent(shim.send(decision), "releases")
    assert release.termination_type is TerminationType.SCHEDULING_FAILED_ON_RM
    assert release.message == (
        "OutOfvcore: Node didn't have enough resource: vcore, requested: 1000, used: 3500, "
        "capacity: 4000"
    )
    assert shim.world.pods[key].node == ""
    assert len(shim.world.pods) == 2
    assert shim.machine.mirror.refused_binds == 1
    gone = UpdateResponse(new_allocations=(Allocation(key, "app", "elsewhere", ONE),))
    (release,) = sent(shim.send(gone), "releases")
    assert release.message == 'nodes "elsewhere" not found'


def test_no_bind_is_asked_of_a_cluster_whose_kubelet_would_end_the_pod_for_want_of_room():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    accepted = UpdateResponse(accepted_applications=(AcceptedApplication("app"),))
    (key,) = shim.asks(shim.send(accepted))
    shim.send(PlaceForeignPods("node-0000", (foreign("a", 3500),)))
    decision = UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),))
    calls, _ = shim.machine.mirror.on_response(decision, shim.world.epoch)
    assert not [call for call in calls if isinstance(call, BindPod)]


def test_a_placeholder_that_appears_when_its_application_has_gone_is_deleted():
    late = PodRecord("late", pod("tg-late", placeholder=True, task_group_name="tg"), 1, 1)
    (call,) = Shim().machine.mirror.hear(PodAdded(late))
    assert call == DeletePod("late", "", "its application is gone")


def test_two_pods_decided_together_are_bound_as_far_as_their_node_has_room():
    shim = Shim()
    shim.send(SubmitPods((pod("p"), pod("q"))))
    keys = shim.asks(shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),))))
    shim.send(PlaceForeignPods("node-0000", (foreign("a", 3000),)))
    decided = tuple(Allocation(key, "app", "node-0000", ONE) for key in keys)
    (release,) = sent(shim.send(UpdateResponse(new_allocations=decided)), "releases")
    assert (release.allocation_key, release.termination_type) == (
        keys[1],
        TerminationType.SCHEDULING_FAILED_ON_RM,
    )
    assert [shim.world.pods[key].node for key in keys] == ["node-0000", ""]


def test_a_pod_whose_node_went_before_it_was_bound_is_asked_for_again():
    """The core lost the allocation with the node; what the refused bind gives back is nothing."""
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    shim.send(ChangeNodes((NodeSpec("node-0000", "remove"),)))
    shim.send(UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),)))
    lost = AllocationRelease("app", key, TerminationType.STOPPED_BY_RM)
    assert shim.asks(shim.send(UpdateResponse(released_allocations=(lost,)))) == [key]
    shim.send(DeletePods((PodName("p"),)))
    assert shim.asks(shim.send(UpdateResponse(released_allocations=(lost,)))) == []


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_pod_whose_bind_was_refused_is_still_asked_for_and_its_end_takes_the_ask_back(refusals):
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    shim.send(PlaceForeignPods("node-0000", (foreign("a", 4000),)))
    decided = UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),))
    for _ in range(refusals):
        (given_back,) = sent(shim.send(decided), "releases")
        assert given_back.termination_type is TerminationType.SCHEDULING_FAILED_ON_RM
    (taken_back,) = sent(shim.send(DeletePods((PodName("p"),))), "ask_releases")
    assert taken_back.allocation_key == key


@pytest.mark.parametrize(
    "meanwhile", ["nothing", "another made its gang whole", "its node came again", "a recovery"]
)
def test_a_pod_whose_bind_is_refused_after_the_core_lost_its_node_waits_nowhere_for_ever(meanwhile):
    """Seeds 117, 745: the bind was still being tried; there was no allocation to give back."""
    shim = Shim()
    placeholder, _ = _whole_gang(shim)
    mirror, key = shim.machine.mirror, placeholder.uid
    shim.world.assign(placeholder, "node-0000")  # as while it is being bound
    lost = AllocationRelease("app", key, TerminationType.STOPPED_BY_RM)
    assert shim.send(UpdateResponse(released_allocations=(lost,))) == []
    if meanwhile == "another made its gang whole":
        shim.world.applications["app"].phase = ApplicationPhase.RUNNING
    elif meanwhile == "its node came again":
        mirror.on_news(NodeNews(shim.world.nodes["node-0000"], "add"))
    elif meanwhile == "a recovery":
        shim.send(SyncRequest("core"))
    shim.world.on_nodes.remove(placeholder)
    placeholder.node = ""
    calls, said = mirror.on_news(BindRefused(placeholder, "409 Conflict"))
    messages = [item.message for item in said]
    given_back = [release.allocation_key for release in sent(messages, "releases")]
    assert shim.asks(messages) == ([key] if meanwhile == "nothing" else [])
    is_known_again = meanwhile in ("its node came again", "a recovery")
    assert given_back == ([key] if is_known_again else [])
    deleted = [call.uid for call in calls if isinstance(call, DeletePod)]
    assert deleted == ([key] if meanwhile == "another made its gang whole" else [])


def test_a_decision_about_a_node_that_went_and_came_again_is_not_carried_out():
    """The core lost the allocation with the node that went; it has not seen the new one yet."""
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    for _ in range(2):
        shim.send(ChangeNodes((NodeSpec("node-0000", "remove"),)))
        shim.send(ChangeNodes((NodeSpec("node-0000", "add", {"vcore": 4000, "pods": 9}),)))
    place = UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),))
    known = UpdateResponse(accepted_nodes=(AcceptedNode("node-0000"),))
    for answer in (place, known, place):
        shim.send(answer)
        assert shim.world.pods[key].node == ""
    lost = AllocationRelease("app", key, TerminationType.STOPPED_BY_RM)
    assert shim.asks(shim.send(UpdateResponse(released_allocations=(lost,)))) == [key]
    shim.send(replace(known, new_allocations=place.new_allocations))
    assert shim.world.pods[key].node == "node-0000"


def test_a_decision_about_a_node_that_a_recovery_says_anew_waits_for_it_to_be_known():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    shim.send(SyncRequest("core"))
    shim.send(ChangeNodes((NodeSpec("node-0000", "remove"),)))
    shim.send(ChangeNodes((NodeSpec("node-0000", "add", {"vcore": 4000, "pods": 9}),)))
    known = UpdateResponse(accepted_nodes=(AcceptedNode("node-0000"),))
    place = UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),))
    shim.send(replace(known, new_allocations=place.new_allocations))
    assert shim.world.pods[key].node == ""
    shim.send(UpdateResponse(rejected_nodes=(RejectedNode("node-0000", "it has one"),)))
    shim.send(place)
    assert shim.world.pods[key].node == "node-0000"


@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_node_that_could_not_be_sent_takes_pods_once_it_comes_again_and_is_known(is_recovered):
    shim = Shim()
    (name,) = shim.world.nodes
    shim.send(SyncRequest("core"))
    envelope = Envelope("m", "UpdateRequest", UpdateRequest("rm"), SHIM_ADAPTER, "shim_adapter")
    shim.machine.on_unsendable(
        envelope, NodeInfo(name, NodeAction.CREATE), "it is too large", shim.now
    )
    if is_recovered:
        shim.send(SyncRequest("core"))
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    shim.send(ChangeNodes((NodeSpec(name, "remove"),)))
    shim.send(ChangeNodes((NodeSpec(name, "add", {"vcore": 4000, "pods": 9}),)))
    shim.send(UpdateResponse(accepted_nodes=(AcceptedNode(name),)))
    place = Allocation(key, "app", name, {"vcore": 1000})
    shim.send(UpdateResponse(new_allocations=(place,)))
    assert shim.world.pods[key].node == name


def test_an_application_whose_pods_went_unheard_is_said_as_accepted_at_a_recovery():
    """The shim adapter had kept that they went, and died before it had taken back their asks."""
    shim = Shim()
    shim.send(SubmitPods((pod("p"), replace(pod("q"), application_id="waits"))))
    shim.send(SubmitApplication("announced", "root.default"))
    names = ("app", "waits", "announced")
    accepted = tuple(map(AcceptedApplication, names))
    shim.send(UpdateResponse(accepted_applications=accepted))
    shim.send(DeleteApplication("app"))
    said = [m for m in shim.send(SyncRequest("core")) if isinstance(m, UpdateRequest)]
    states = {a.application_id: a.state for m in said for a in m.new_applications}
    assert states == {"app": "Accepted", "waits": "", "announced": ""}


@pytest.mark.parametrize("is_bound", [True, False])
@pytest.mark.parametrize("state", ["Running", "Accepted"])
def test_a_gang_that_the_core_took_for_whole_goes_on_when_its_placeholders_time_out(
    is_bound, state
):
    """Its last bind was refused (seed 33145): what is left of it would wait for ever."""
    shim = Shim()
    group = TaskGroupSpec("tg", 2, {"vcore": 1000})
    shim.send(SubmitApplication("app", "root.default", task_groups=(group,)))
    first, last = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    shim.send(SubmitPods((pod("real", task_group_name="tg"),)))
    if is_bound:
        shim.send(UpdateResponse(new_allocations=(Allocation(first, "app", "node-0000", ONE),)))
    shim.send(UpdateResponse(updated_applications=(UpdatedApplication("app", state, 1),)))
    why = TerminationType.TIMEOUT
    released = UpdateResponse(
        released_asks=(AllocationAskRelease("app", last, why),),
        released_allocations=(AllocationRelease("app", first, why),),
    )
    (real,) = [p.uid for p in shim.world.all_pods() if not p.spec.placeholder]
    said = shim.send(released)
    assert (real in shim.asks(said)) == (state == "Running")
    placeholders = [p for p in shim.world.all_pods() if p.spec.placeholder]
    assert state == "Accepted" or placeholders == []


@pytest.mark.parametrize("is_last", [True, False])
def test_a_gang_whose_last_bind_was_done_and_never_heard_of_is_whole_for_who_starts_over(is_last):
    """Its shim adapter died in between (seed 41254): nobody would say it again."""
    shim = Shim()
    group = TaskGroupSpec("tg", 2 if is_last else 3, {"vcore": 1000})
    shim.send(SubmitApplication("app", "root.default", task_groups=(group,)))
    first, last, *_ = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    shim.send(SubmitPods((pod("real", task_group_name="tg"),)))
    shim.send(UpdateResponse(new_allocations=(Allocation(first, "app", "node-0000", ONE),)))
    shim.world.assign(shim.world.pods[last], "node-0000")
    shim.machine = shim.service.make_machine()
    said = shim.send(Heartbeat("h"))
    updates = [message for message in said if isinstance(message, UpdateRequest)]
    asked = [shim.world.pods[key].spec.placeholder for key in shim.asks(updates)]
    assert asked == [not is_last]  # the real pod, or the placeholder that is not bound


def _whole_gang(shim):
    """Have a gang of one reserve; return its placeholder, bound, and what it is made of."""
    group = TaskGroupSpec("tg", 1, {"vcore": 1000})
    shim.send(SubmitApplication("app", "root.default", task_groups=(group,)))
    (first,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    bind = UpdateResponse(new_allocations=(Allocation(first, "app", "node-0000", ONE),))
    return shim.world.pods[first], bind


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_placeholder_that_comes_when_its_gang_reserves_no_more_is_deleted(is_whole):
    """It was on its way when another was made in its place (seed 569): nobody would bind it."""
    shim = Shim()
    placeholder, bind = _whole_gang(shim)
    if is_whole:
        shim.send(bind)
    (news,) = shim.machine.cluster.create_pods((replace(placeholder.spec, name="late"),), "c", 1)
    calls, said = shim.machine.mirror.on_news(news)
    deleted = [call.uid for call in calls if isinstance(call, DeletePod)]
    assert (deleted == [news.pod.uid]) == is_whole
    assert (said == []) == is_whole


def test_a_placeholder_that_waits_when_its_gang_becomes_whole_is_taken_back_and_deleted():
    """Seeds 1844 and 2775: two were made of one, and the spare one would take room from others."""
    shim = Shim()
    placeholder, bind = _whole_gang(shim)
    (news,) = shim.machine.cluster.create_pods((replace(placeholder.spec, name="late"),), "c", 1)
    shim.machine.mirror.on_news(news)
    (taken_back,) = sent(shim.send(bind), "ask_releases")
    assert (taken_back.allocation_key, taken_back.termination_type) == (
        news.pod.uid, TerminationType.STOPPED_BY_RM,
    )  # fmt: skip
    assert list(shim.world.pods) == [placeholder.uid]


def test_who_starts_over_makes_nothing_for_placeholders_that_are_on_their_way_out():
    """Seed 2775: each is made again when it has gone, and was made at the start as well."""
    shim = Shim()
    placeholder, _ = _whole_gang(shim)
    placeholder.node, placeholder.deletion_ns = "node-0000", 1
    placeholder.release = TerminationType.PREEMPTED_BY_SCHEDULER
    shim.machine = shim.service.make_machine()
    assert shim.machine.mirror.go_on() == ([], [])


@pytest.mark.parametrize("release", [TerminationType.TIMEOUT, TerminationType.PLACEHOLDER_REPLACED])
def test_who_starts_over_makes_placeholders_for_those_on_their_way_out_that_nobody_makes_again(
    release,
):
    shim = Shim()
    placeholder, _ = _whole_gang(shim)
    placeholder.node, placeholder.deletion_ns = "node-0000", 1
    placeholder.release = release
    shim.machine = shim.service.make_machine()
    (made,), said = shim.machine.mirror.go_on()
    assert (made.spec.task_group_name, made.spec.placeholder, said) == ("tg", True, [])
    assert made.uid != placeholder.uid


@pytest.mark.parametrize("starts_over", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
def test_after_a_recovery_no_placeholder_waits_beside_a_gang_that_is_whole(is_whole, starts_over):
    """No core is asked for it any more: it would be there for ever."""
    shim = Shim()
    placeholder, bind = _whole_gang(shim)
    (news,) = shim.machine.cluster.create_pods((replace(placeholder.spec, name="late"),), "c", 1)
    shim.machine.mirror.on_news(news)
    if is_whole:
        shim.send(bind)
    if starts_over:
        shim.machine = shim.service.make_machine()
    asked = shim.asks(m for m in shim.send(SyncRequest("core")) if isinstance(m, UpdateRequest))
    assert asked == ([] if is_whole else [placeholder.uid, news.pod.uid])
    shim.send(UpdateResponse(accepted_nodes=tuple(map(AcceptedNode, shim.world.nodes))))
    left = [placeholder.uid] if is_whole else asked
    assert list(shim.world.pods) == left


def test_a_placeholder_that_waits_beside_a_gang_that_has_started_is_deleted_once_it_is_accepted():
    """As who reads a gang from its pods alone finds it after a restart."""
    shim = Shim()
    placeholder, bind = _whole_gang(shim)
    shim.machine.cluster.create_pods((replace(placeholder.spec, name="late"),), "c", 1)
    shim.send(bind)
    shim.world.applications["app"].phase = ApplicationPhase.NEW
    shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    assert list(shim.world.pods) == [placeholder.uid]


def test_a_gated_pod_is_asked_for_once_its_gates_are_gone():
    shim = Shim()
    news = shim.machine.cluster.create_pods((pod("p"),), "c", 1)
    record = news[0].pod
    record.gates = ("example.com/wait",)
    calls, said = shim.machine.mirror.on_news(news[0])
    assert (calls, said) == ([], [])
    record.gates = ()
    _, said = shim.machine.mirror.on_news(PodChanged(record))
    assert [a.application_id for a in said[0].message.new_applications] == ["app"]


def test_a_pod_that_is_resized_is_told_as_an_ask_or_as_an_allocation():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )
    record = shim.world.pods[key]
    shim.world.resize(record, {"vcore": 1500, "pods": 1})
    _, said = shim.machine.mirror.on_news(PodChanged(record))
    assert [ask.resource_per_alloc["vcore"] for ask in said[0].message.asks] == [1500]
    shim.send(UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),)))
    shim.world.resize(record, {"vcore": 2000, "pods": 1})
    _, said = shim.machine.mirror.on_news(PodChanged(record))
    assert [a.resource_per_alloc["vcore"] for a in said[0].message.allocations] == [2000]
    assert shim.world.on_nodes.shortage("node-0000", {"vcore": 2000}) == ""
    assert "OutOfvcore" in shim.world.on_nodes.shortage("node-0000", {"vcore": 2001})


def test_how_an_ask_stands_is_said_at_its_pod_and_of_a_bound_one_nothing():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    accepted = UpdateResponse(accepted_applications=(AcceptedApplication("app"),))
    (key,) = shim.asks(shim.send(accepted))

    def told(*states):
        response = UpdateResponse(
            scheduling_states=tuple(
                ContainerSchedulingState("app", key, state, f"it is {state}") for state in states
            )
        )
        calls, _ = shim.machine.mirror.on_response(response, shim.world.epoch)
        return calls

    assert told(SchedulingState.FAILED, SchedulingState.SKIPPED, SchedulingState.RESERVED) == [
        MarkUnschedulable(key, "it is FAILED"),
        WriteEvent(key, "Informational", "it is SKIPPED"),
    ]
    shim.send(DeletePods((PodName("p", "default"),)))
    assert told(SchedulingState.SKIPPED) == []


def _told(shim, monkeypatch):
    """Return the list in which what is told at pods will stand: where, why, what."""
    told, carry_out = [], shim.machine.cluster.carry_out

    def carry(call, now_ns):
        if isinstance(call, WriteEvent):
            name = shim.world.pods[call.uid].spec.name
            told.append((name, f"{call.reason}/{call.action}".rstrip("/"), call.message))
        return carry_out(call, now_ns)

    monkeypatch.setattr(shim.machine.cluster, "carry_out", carry)
    return told


TWO_GROUPS = (TaskGroupSpec("tg", 2, {"vcore": 1000}), TaskGroupSpec("ug", 1, {"vcore": 1000}))
FAILED = "Application app scheduling failed, reason:"
ACCEPTED = UpdateResponse(accepted_applications=(AcceptedApplication("app"),))


def test_a_gang_and_its_members_are_told_of_every_step(monkeypatch):
    """docs/rules/pods.md#events-and-conditions: the events of a gang, at its originator, and those of its members."""
    shim = Shim()
    told = _told(shim, monkeypatch)
    member = pod("first", task_group_name="tg", task_groups=TWO_GROUPS)
    shim.send(SubmitPods((member, pod("second", task_group_name="other"), pod("third"))))
    asks = shim.asks(shim.send(ACCEPTED))
    reasons = []
    for key in asks:
        before = len(told)
        shim.send(UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),)))
        reasons.append([why for name, why, _ in told[before:] if name == "first"])
    whole = ["PlaceholderAllocated", "GangReservationComplete", "Scheduling"]
    assert reasons == [[], ["PlaceholderAllocated"], [*whole, "GangScheduling/TaskGroupMatch"]]
    assert ("first", "CreatingPlaceholders", "creating the placeholders of its gang") in told
    assert [text for _, why, text in told if why == "PlaceholderAllocated"] == [
        "the 2 placeholders of task group tg are allocated",
        "the 1 placeholders of task group ug are allocated",
    ]
    assert [item for item in told if item[1].startswith("GangScheduling/")] == [
        (
            "first",
            "GangScheduling/TaskGroupMatch",
            "Pod belongs to the taskGroup tg, it will be scheduled as a gang member",
        )
    ]


@pytest.mark.parametrize(
    ("response", "reasons", "text"),
    [
        (
            UpdateResponse(updated_applications=(UpdatedApplication("app", "Resuming", 1),)),
            ["PlaceholderTimeOut", "GangSchedulingFailed"],
            "Application app resuming as non-gang application (SOFT)",
        ),
        (
            UpdateResponse(
                updated_applications=(
                    UpdatedApplication("app", "Failing", 1, message="ResourceReservationTimeout"),
                )
            ),
            ["PlaceholderTimeOut", "ApplicationFailed"],
            f"{FAILED} Scheduling has timed out due to insufficient resources",
        ),
        (
            UpdateResponse(
                updated_applications=(UpdatedApplication("app", "Failing", 1, message="why"),)
            ),
            ["ApplicationFailed"],
            f"{FAILED} its application failed: why",
        ),
    ],
)
def test_of_a_gang_that_had_no_places_and_of_one_that_failed_people_are_told(
    monkeypatch, response, reasons, text
):
    """docs/rules/pods.md#events-and-conditions, in its words where it has some."""
    shim = Shim()
    told = _told(shim, monkeypatch)
    shim.send(SubmitPods((pod("first", task_group_name="tg", task_groups=TWO_GROUPS),)))
    shim.send(ACCEPTED)
    before = len(told)
    shim.send(response)
    assert [why for _, why, _ in told[before:]] == reasons
    assert told[-1][2] == text


def test_a_gang_whose_places_did_not_come_in_time_is_none_any_more():
    """What it did not reserve for is not reserved later, and its pods are asked for one by one."""
    shim = Shim()
    shim.send(SubmitPods((pod("first", task_group_name="tg", task_groups=TWO_GROUPS),)))
    shim.send(ACCEPTED)
    application = shim.world.applications["app"]
    assert (application.phase, application.is_gang_over) == (ApplicationPhase.RESERVING, False)
    shim.send(UpdateResponse(updated_applications=(UpdatedApplication("app", "Resuming", 1),)))
    assert (application.phase, application.is_gang_over) == (ApplicationPhase.RESUMING, True)
    assert not application.may_reserve


def test_a_placeholder_is_wanted_for_as_long_as_its_gang_may_reserve():
    application = ApplicationRecord("app", 1)
    assert _unwanted(application) == ""
    application.is_gang_over = True
    assert _unwanted(application) == IN_THE_WAY
    application.phase = ApplicationPhase.ENDING
    assert _unwanted(application) == _unwanted(None) == "its application is gone"


def test_a_pod_is_nominated_once_for_each_node_that_others_leave_for_it():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    (key,) = shim.asks(
        shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    )

    def nominated(node):
        state = ContainerSchedulingState("app", key, SchedulingState.RESERVED, node_id=node)
        response = UpdateResponse(scheduling_states=(state,))
        calls, _ = shim.machine.mirror.on_response(response, shim.world.epoch)
        return calls

    assert nominated("n1") == [NominatePod(key, "n1")]
    assert nominated("n1") == []
    assert nominated("n2") == [NominatePod(key, "n2")]
    assert nominated("") == [NominatePod(key, "")]
    assert nominated("") == []
    assert nominated("n2") == [NominatePod(key, "n2")]


def test_a_rejected_application_is_told_why_at_its_first_pod(monkeypatch):
    shim = Shim()
    told = _told(shim, monkeypatch)
    shim.send(SubmitPods((pod("first"), pod("second"))))
    rejected = RejectedApplication("app", "failed to place application app: no")
    shim.send(UpdateResponse(rejected_applications=(rejected,)))
    assert told[-1] == (
        "first",
        "ApplicationFailed",
        f"{FAILED} failed to place application app: no",
    )


def test_pods_named_after_their_uid_are_applications_of_their_own():
    """docs/rules/pods.md#its-application, in a simulated cluster as on a real one; who submits is told the name."""
    shim = Shim()
    made = {
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "parallelism": 2,
            "template": {
                "metadata": {"labels": {"yunikorn.apache.org/app-id": "team-uniqueautogen"}},
                "spec": {"schedulerName": "yunikorn", "containers": [{"name": "c"}]},
            },
        },
    }
    said = shim.send(SubmitManifests((ManifestDocument("f", 1, json.dumps(made)),)))
    pods = list(shim.world.all_pods())
    assert [p.spec.application_id for p in pods] == [f"team-{p.uid}" for p in pods]
    (result,) = [message for message in said if isinstance(message, SubmitResult)]
    assert [item.application_id for item in result.accepted] == [f"team-{pods[0].uid}"]
    assert sorted(shim.world.applications) == sorted(f"team-{p.uid}" for p in pods)
