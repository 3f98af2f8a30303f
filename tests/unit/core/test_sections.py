"""Requests and answers are carried out section by section: what came first is carried out first."""

from dataclasses import fields

from shared.messages.interface import (
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    TerminationType,
    UpdateRequest,
    UpdateResponse,
)
from tests.builders import Core, envelope, section

ONE = {"vcore": 1000}
STOPPED = TerminationType.STOPPED_BY_RM


def ready() -> Core:
    core = Core()
    core.node("n", vcore=1000)
    core.application("app")
    return core


def in_one_batch(core: Core, *requests: UpdateRequest) -> list[UpdateResponse]:
    """Have requests handled one after the other, and answered together."""
    for at, request in enumerate(requests):
        core.scheduler.handle(envelope(request, f"batch-{at}", epoch=core.epoch), core.now_ns)
    out = core.scheduler.flush(core.now_ns)
    core.check()
    return [item.message for item in out if isinstance(item.message, UpdateResponse)]


def test_an_ask_that_is_taken_back_and_comes_again_is_released_and_then_allocated():
    responses = in_one_batch(
        ready(),
        UpdateRequest("rm", ask_releases=(AllocationAskRelease("app", "p", STOPPED),)),
        UpdateRequest("rm", asks=(AllocationAsk("p", "app", ONE),)),
    )
    said = [
        (at, name.name)
        for at, response in enumerate(responses)
        for name in fields(response)
        if getattr(response, name.name) and name.name != "updated_applications"
    ]
    assert said == [(0, "released_asks"), (1, "new_allocations")]


def test_an_ask_and_its_release_in_one_request_leave_nothing():
    core = ready()
    core.update(
        asks=(AllocationAsk("p", "app", ONE), AllocationAsk("q", "app", {"vcore": 1})),
        ask_releases=(AllocationAskRelease("app", "p", STOPPED),),
        releases=(AllocationRelease("app", "q", STOPPED),),
    )
    core.check()
    assert not core.partition.applications["app"].allocations
    assert not list(core.partition.applications["app"].asks())
    assert section(core.update(), "new_allocations") == []
