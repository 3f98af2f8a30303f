"""The shim adapter's machine: commands, decisions, recovery, and the file that keeps its world."""

from services.shim_adapter.service import ShimOptions, ShimService
from shared.messages.commands import (
    ChangeNodes,
    CommandResult,
    DeleteApplication,
    DeletePods,
    NodeSpec,
    PodName,
    PodSpec,
    SubmitApplication,
    SubmitPods,
    TaskGroupSpec,
)
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from shared.messages.interface import (
    AcceptedApplication,
    Allocation,
    AllocationRelease,
    TerminationType,
    UpdatedApplication,
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
    before = shim.world
    after = shim.service.make_machine().world
    assert after is not before
    assert after.pods == before.pods
    assert after.nodes == before.nodes
    assert after.applications == before.applications
    assert after.epoch == before.epoch
    shim.service.close()
