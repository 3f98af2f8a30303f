"""Applications that end before, or while, something else of theirs is on its way."""

from dataclasses import replace

import pytest

from services.shim_adapter.mirror.calls import DeletePod, PlaceholderFailed
from services.shim_adapter.records import ApplicationPhase
from shared.messages.commands import (
    DeleteApplication,
    DeletePods,
    HoldConfirmations,
    PodName,
    SubmitApplication,
    SubmitPods,
    TaskGroupSpec,
)
from shared.messages.interface import (
    AcceptedApplication,
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    RejectedApplication,
    TerminationType,
    UpdatedApplication,
    UpdateResponse,
)
from shared.messages.protocol import SyncRequest
from tests.unit.shim_adapter.test_machine import ONE, Shim, pod, sent

GROUP = TaskGroupSpec("tg", 2, {"vcore": 1000})


def gang_pod(name, **more):
    return pod(name, task_groups=(GROUP,), task_group_name="tg", **more)


def accepted(shim, submission=0):
    return shim.send(
        UpdateResponse(accepted_applications=(AcceptedApplication("app", "", submission),))
    )


def updated(shim, state, submission=0, message=""):
    item = UpdatedApplication("app", state, 1, message, submission)
    return shim.send(UpdateResponse(updated_applications=(item,)))


def phase(shim):
    return shim.world.applications["app"].phase


@pytest.mark.parametrize("by", [DeletePods((PodName("a"), PodName("b"))), DeleteApplication("app")])
@pytest.mark.parametrize("make", [pod, gang_pod])
def test_deleted_before_it_is_accepted_an_application_ends_and_nothing_is_made_for_it(make, by):
    shim = Shim()
    shim.send(SubmitPods((make("a"), make("b"))))
    messages = shim.send(by)
    assert [item.application_id for item in sent(messages, "remove_applications")] == ["app"]
    assert phase(shim) is ApplicationPhase.ENDED
    late = accepted(shim, 1)
    assert (sent(late, "asks"), sent(late, "new_applications")) == ([], [])
    assert not shim.world.pods
    assert sent(shim.send(SyncRequest("core")), "new_applications") == []


def test_an_application_that_was_announced_waits_for_other_pods_until_it_is_deleted():
    shim = Shim()
    shim.send(SubmitApplication("app", "root.default"))
    shim.send(SubmitPods((pod("a"),)))
    assert sent(shim.send(DeletePods((PodName("a"),))), "remove_applications") == []
    accepted(shim)
    assert phase(shim) is ApplicationPhase.RUNNING
    assert len(sent(shim.send(DeleteApplication("app")), "remove_applications")) == 1


def test_a_resubmission_is_its_own_and_news_of_the_first_is_not_taken_for_its_own():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    shim.send(DeletePods((PodName("a"),)))
    other = SubmitPods((replace(gang_pod("a"), queue_name="root.other"),))
    (request,) = sent(shim.send(other), "new_applications")
    assert (request.queue_name, request.submission) == ("root.other", 2)
    for late in (accepted(shim, 1), updated(shim, "Failing", 1), updated(shim, "Failed", 1)):
        assert sent(late, "asks") == []
    refused = UpdateResponse(rejected_applications=(RejectedApplication("app", "no", 1),))
    shim.send(refused)
    assert phase(shim) is ApplicationPhase.NEW
    assert not [p for p in shim.world.all_pods() if p.has_ended or p.spec.placeholder]
    assert len(shim.asks(accepted(shim, 2))) == 2
    assert phase(shim) is ApplicationPhase.RESERVING


def test_when_the_last_real_pod_of_a_gang_that_reserves_is_deleted_its_placeholders_go():
    shim = Shim(confirm_delay_ns=500)
    shim.send(SubmitPods((gang_pod("a"), gang_pod("b"))))
    keys = shim.asks(accepted(shim))
    bound = Allocation(keys[0], "app", "node-0000", ONE, placeholder=True, task_group_name="tg")
    shim.send(UpdateResponse(new_allocations=(bound,)))
    assert sent(shim.send(DeletePods((PodName("a"),))), "ask_releases") == []
    messages = shim.send(DeletePods((PodName("b"),)))
    assert [item.allocation_key for item in sent(messages, "ask_releases")] == [keys[1]]
    assert [item.allocation_key for item in sent(messages, "releases")] == [keys[0]]
    assert sent(messages, "remove_applications") == []  # the core completes it by itself
    assert (not shim.world.pods, phase(shim)) == (True, ApplicationPhase.ENDING)
    for state in ("Accepted", "Completing"):
        assert sent(updated(shim, state), "remove_applications") == []
    updated(shim, "Completed")
    assert phase(shim) is ApplicationPhase.ENDED


@pytest.mark.parametrize("state", ["", "Resuming"])
def test_one_that_nothing_completes_is_removed_when_its_last_pod_has_gone(state):
    """Nothing was asked for it, or its gang was given up and it has nothing to go on with."""
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    if state:
        accepted(shim)
        updated(shim, state)
        for pod in list(shim.world.all_pods()):
            if pod.spec.placeholder:
                release = AllocationAskRelease("app", pod.uid, TerminationType.TIMEOUT)
                shim.send(UpdateResponse(released_asks=(release,)))
    assert len(sent(shim.send(DeletePods((PodName("a"),))), "remove_applications")) == 1
    assert phase(shim) is ApplicationPhase.ENDED


def test_a_gang_that_resumes_while_its_last_pods_end_is_on_its_way_is_removed():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    accepted(shim)
    updated(shim, "Accepted")
    assert sent(shim.send(DeletePods((PodName("a"),))), "remove_applications") == []
    assert len(sent(updated(shim, "Resuming"), "remove_applications")) == 1
    assert phase(shim) is ApplicationPhase.ENDED


def test_a_pod_that_comes_while_its_application_completes_starts_its_gang_anew():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    accepted(shim)
    updated(shim, "Accepted")
    shim.send(DeletePods((PodName("a"),)))
    updated(shim, "Completing")
    messages = shim.send(SubmitPods((gang_pod("b"),)))
    assert len(sent(messages, "remove_applications")) == 1
    (request,) = sent(messages, "new_applications")
    assert request.submission == 2
    assert len(shim.asks(accepted(shim, 2))) == 2


def test_while_its_placeholders_are_going_a_pod_waits_and_then_starts_the_application_anew():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    keys = shim.asks(accepted(shim, 1))
    bound = tuple(
        Allocation(key, "app", "node-0000", ONE, placeholder=True, task_group_name="tg")
        for key in keys[:1]
    )
    shim.send(UpdateResponse(new_allocations=bound))
    shim.send(HoldConfirmations(held=True))
    updated(shim, "Accepted", 1)
    release = AllocationRelease("app", keys[0], TerminationType.TIMEOUT)
    shim.send(UpdateResponse(released_allocations=(release,)))
    shim.send(DeletePods((PodName("a"),)))
    assert phase(shim) is ApplicationPhase.ENDING
    updated(shim, "Resuming", 1)
    assert phase(shim) is ApplicationPhase.ENDING
    messages = shim.send(SubmitPods((gang_pod("b"),)))
    (note,) = sent(messages, "notes")
    assert (note.reason, shim.asks(messages)) == ("APPLICATION_ENDING", [])
    (again,) = sent(shim.send(SyncRequest("core")), "notes")
    assert again == note
    messages = shim.send(HoldConfirmations(held=False))
    (confirmed,) = sent(messages, "releases")
    assert confirmed.termination_type is TerminationType.TIMEOUT
    (request,) = sent(messages, "new_applications")
    assert request.submission == 2
    assert len(shim.asks(accepted(shim, 2))) == 2


@pytest.mark.parametrize("end", ["Failed", "Completed"])
def test_a_pod_that_comes_while_its_application_fails_starts_it_anew_after_its_end(end):
    shim = Shim()
    shim.send(SubmitPods((gang_pod("early"),)))
    accepted(shim)
    updated(shim, "Failing", message="ResourceReservationTimeout")
    (early,) = [p for p in shim.world.all_pods() if p.spec.name == "early"]
    assert (early.phase, early.reason) == ("Failed", "ResourceReservationTimeout")
    messages = shim.send(SubmitPods((gang_pod("late"),)))
    (note,) = sent(messages, "notes")
    assert (
        note.message == "application app is failing; its new pods start it again once it has failed"
    )
    assert shim.asks(messages) == []
    (request,) = sent(updated(shim, end), "new_applications")
    assert request.submission == 2
    assert len(shim.asks(accepted(shim, 2))) == 2


def test_pods_that_fail_with_their_application_do_not_start_it_anew_in_the_same_breath():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    accepted(shim)
    both = tuple(UpdatedApplication("app", state, 1, "why") for state in ("Failing", "Failed"))
    messages = shim.send(UpdateResponse(updated_applications=both))
    assert sent(messages, "new_applications") == []
    assert phase(shim) is ApplicationPhase.ENDED


def test_a_pod_that_comes_while_its_application_resumes_is_told_so_and_asked_for_after_it():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    accepted(shim)
    updated(shim, "Resuming")
    messages = shim.send(SubmitPods((gang_pod("b"),)))
    (note,) = sent(messages, "notes")
    assert "continues without gang scheduling" in note.message
    assert len(shim.asks(updated(shim, "Accepted"))) == 2


def test_an_application_that_resumes_and_has_lost_its_pods_ends():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    accepted(shim)
    updated(shim, "Resuming")
    messages = shim.send(DeletePods((PodName("a"),)))
    assert len(sent(messages, "remove_applications")) == 1
    assert phase(shim) is ApplicationPhase.ENDED


# --- what is wrong with its task groups ---------------------------------------------------------


def test_a_misspelt_group_name_is_said_at_the_pod_and_on_the_application():
    shim = Shim()
    messages = shim.send(SubmitPods((gang_pod("a"), pod("b", task_group_name="tgg"))))
    (note,) = sent(messages, "notes")
    assert note.reason == "TaskGroupsError"
    assert note.message == (
        "task group 'tgg' is not in application app (it has tg): the pod replaces no placeholder "
        "and is scheduled by itself"
    )
    assert note.allocation_key in shim.world.pods
    assert sent(accepted(shim), "notes") == []
    assert sent(shim.send(SubmitPods((pod("c", task_group_name="tg"),))), "notes") == []
    assert sent(shim.send(SyncRequest("core")), "notes") == [note]


def test_task_groups_that_do_not_hold_are_said_with_their_sentence():
    shim = Shim()
    wrong = "can't get taskGroup MinMember from pod annotation, []"
    messages = shim.send(SubmitPods((pod("a", task_groups_error=wrong, task_group_name="tg"),)))
    (note,) = sent(messages, "notes")
    assert (note.reason, note.message) == ("TaskGroupsError", wrong)
    assert sent(accepted(shim), "notes") == []


# --- releases of asks ---------------------------------------------------------------------------


def ask_released(shim, key, why):
    release = AllocationAskRelease("app", key, why, message="m")
    return shim.send(UpdateResponse(released_asks=(release,)))


def test_the_release_of_a_placeholders_ask_is_confirmed_with_its_type_once_the_pod_is_gone():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"),)))
    keys = shim.asks(accepted(shim))
    shim.send(HoldConfirmations(held=True))
    assert sent(ask_released(shim, keys[0], TerminationType.TIMEOUT), "ask_releases") == []
    assert keys[0] in shim.world.pods
    assert sent(shim.send(SyncRequest("core")), "ask_releases") == []
    messages = shim.send(HoldConfirmations(held=False))
    (confirmed,) = sent(messages, "ask_releases")
    assert (confirmed.allocation_key, confirmed.termination_type) == (keys[0], "TIMEOUT")
    assert keys[0] not in shim.world.pods


def test_the_release_of_a_real_pods_ask_or_of_nobodys_is_confirmed_at_once():
    shim = Shim()
    shim.send(SubmitPods((pod("a"),)))
    (key,) = shim.asks(accepted(shim))
    for which in (key, "nobody"):
        (confirmed,) = sent(ask_released(shim, which, TerminationType.TIMEOUT), "ask_releases")
        assert (confirmed.allocation_key, confirmed.termination_type) == (which, "TIMEOUT")
    assert key in shim.world.pods


def test_an_ask_that_was_taken_back_is_said_at_every_recovery_until_it_is_confirmed():
    shim = Shim()
    shim.send(SubmitPods((pod("a"), pod("b"))))
    key, _ = shim.asks(accepted(shim))
    (release,) = sent(shim.send(DeletePods((PodName("a"),))), "ask_releases")
    assert (release.allocation_key, release.termination_type) == (key, "STOPPED_BY_RM")
    for _ in range(2):
        assert sent(shim.send(SyncRequest("core")), "ask_releases") == [release]
    assert sent(ask_released(shim, key, TerminationType.STOPPED_BY_RM), "ask_releases") == []
    assert sent(shim.send(SyncRequest("core")), "ask_releases") == []


def test_a_gang_whose_placeholders_cannot_be_made_takes_back_those_that_wait_and_deletes_all():
    shim = Shim()
    shim.send(SubmitPods((gang_pod("a"), gang_pod("b"))))
    accepted(shim)
    waits, runs = (one for one in shim.world.pods_of("app") if one.spec.placeholder)
    runs.node = "n1"
    calls, outgoing = shim.machine.mirror.on_news(PlaceholderFailed("app", "forbidden"))
    said = [item.message for item in outgoing]
    assert {call.uid for call in calls if isinstance(call, DeletePod)} == {waits.uid, runs.uid}
    taken_back = [item.allocation_key for item in sent(said, "ask_releases")]
    assert taken_back == [waits.uid]
    assert [item.message for item in sent(said, "gangs_given_up")] == ["forbidden"]
    assert phase(shim) is ApplicationPhase.RUNNING
