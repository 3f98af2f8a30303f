"""What the core decides is carried out section by section, in the order of UpdateResponse."""

from services.shim_adapter.mirror.calls import BindPod, DeletePod
from shared.messages.commands import SubmitApplication, SubmitPods, TaskGroupSpec
from shared.messages.interface import (
    AcceptedApplication,
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    TerminationType,
    UpdateResponse,
)
from tests.unit.shim_adapter.test_machine import ONE, Shim, pod

TIMEOUT, PREEMPTED = TerminationType.TIMEOUT, TerminationType.PREEMPTED_BY_SCHEDULER


def test_pods_are_bound_then_asks_are_dropped_then_allocations_are_released():
    shim = Shim(confirm_delay_ns=500)
    group = TaskGroupSpec("tg", 2, ONE)
    shim.send(SubmitApplication("gang", "root.default", task_groups=(group,)))
    accepted = (AcceptedApplication("gang"),)
    bound, waiting = shim.asks(shim.send(UpdateResponse(accepted_applications=accepted)))
    shim.send(SubmitPods((pod("p"),)))
    accepted = (AcceptedApplication("app"),)
    (plain,) = shim.asks(shim.send(UpdateResponse(accepted_applications=accepted)))
    place = Allocation(bound, "gang", "node-0000", ONE, placeholder=True, task_group_name="tg")
    shim.send(UpdateResponse(new_allocations=(place,)))
    calls, _ = shim.machine.mirror.on_response(
        UpdateResponse(
            new_allocations=(Allocation(plain, "app", "node-0000", ONE),),
            released_asks=(AllocationAskRelease("gang", waiting, TIMEOUT),),
            released_allocations=(AllocationRelease("gang", bound, PREEMPTED),),
        ),
        shim.world.epoch,
    )
    assert [(type(call), call.uid) for call in calls] == [
        (BindPod, plain),
        (DeletePod, waiting),
        (DeletePod, bound),
    ]


def test_a_pod_that_is_bound_is_not_bound_again():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    accepted = (AcceptedApplication("app"),)
    (key,) = shim.asks(shim.send(UpdateResponse(accepted_applications=accepted)))
    place = UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),))
    calls, _ = shim.machine.mirror.on_response(place, shim.world.epoch)
    assert calls == [BindPod(key, "node-0000")]
    shim.send(place)
    assert shim.machine.mirror.on_response(place, shim.world.epoch) == ([], [])


def test_a_pod_whose_end_is_on_its_way_is_not_bound():
    shim = Shim()
    shim.send(SubmitPods((pod("p"),)))
    accepted = (AcceptedApplication("app"),)
    (key,) = shim.asks(shim.send(UpdateResponse(accepted_applications=accepted)))
    shim.world.pods[key].deletion_ns = shim.now
    place = UpdateResponse(new_allocations=(Allocation(key, "app", "node-0000", ONE),))
    assert shim.machine.mirror.on_response(place, shim.world.epoch) == ([], [])
