"""A command that comes again, after a crash between the saving and the answer, is answered the same
and changes nothing."""

import json

import pytest

from services.shim_adapter.mirror.kept import MAX_ANSWERS
from shared.messages.commands import (
    ChangeNodes,
    CommandResult,
    DeleteApplication,
    DeletePods,
    HoldConfirmations,
    ManifestDocument,
    NodeSpec,
    PlaceForeignPods,
    PodName,
    SubmitApplication,
    SubmitManifests,
    SubmitPods,
    SubmitResult,
)
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from shared.messages.interface import AcceptedApplication, UpdateResponse
from shared.messages.protocol import Heartbeat
from tests.unit.shim_adapter.test_machine import Shim, foreign, pod

JOB = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "single", "labels": {"applicationId": "job"}},
    "spec": {
        "schedulerName": "yunikorn",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
    },
}
DOCUMENTS = SubmitManifests(
    (
        ManifestDocument("f.yaml", 0, json.dumps(JOB)),
        ManifestDocument("f.yaml", 1, json.dumps({"kind": "Nothing"})),
    )
)
COMMANDS = [
    SubmitApplication("other", "root.default"),
    SubmitPods((pod("new"),)),
    DOCUMENTS,
    PlaceForeignPods("node-0000", (foreign("a", 1),)),
    DeletePods((PodName("there"),)),
    DeleteApplication("app"),
    ChangeNodes((NodeSpec("more", "add", {"vcore": 1000}), NodeSpec("node-0000", "remove"))),
    HoldConfirmations(held=True),
    SubmitPods((pod("there"),)),  # which is refused, and stays so when its cause has gone
]


def deliver(shim, command, message_id="again"):
    wrapped = Envelope(
        message_id, type(command).__name__, command, SHIM_ADAPTER, "t", reply_to="api.x#7"
    )
    out = shim.machine.handle(wrapped, shim.now)
    shim.machine.flush(shim.now)
    return [
        (item.reply_to, item.message)
        for item in out
        if isinstance(item.message, CommandResult | SubmitResult)
    ]


def state(shim):
    world = shim.world
    return (dict(world.pods), dict(world.nodes), dict(world.applications), world.submissions)


@pytest.mark.parametrize("kept", ["file", "memory"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_that_was_carried_out_is_answered_the_same_after_a_crash(command, kept, tmp_path):
    shim = Shim(**({"state_dir": tmp_path} if kept == "file" else {}))
    shim.send(SubmitPods((pod("there"),)))
    shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("app"),)))
    first = deliver(shim, command)
    assert len(first) == 1
    if command == COMMANDS[-1]:
        shim.send(DeletePods((PodName("there"),)))
    shim.machine = shim.service.make_machine()  # what it said has never left
    shim.send(Heartbeat("h"))
    before = state(shim)
    assert deliver(shim, command) == first
    assert state(shim) == before
    assert shim.world.are_confirmations_held == isinstance(command, HoldConfirmations)
    shim.service.close()


def test_another_command_with_the_same_content_is_another_command(tmp_path):
    shim = Shim(state_dir=tmp_path)
    deliver(shim, SubmitPods((pod("p"),)), "one")
    ((_, answer),) = deliver(shim, SubmitPods((pod("p"),)), "two")
    assert "already exists" in answer.message
    shim.service.close()


def test_what_was_answered_is_remembered_in_bounded_memory(tmp_path):
    shim = Shim(state_dir=tmp_path)
    for at in range(MAX_ANSWERS + 10):
        shim.machine.handle(
            Envelope(
                f"c{at}", "HoldConfirmations", HoldConfirmations(held=False), SHIM_ADAPTER, "t"
            ),
            shim.now,
        )
    shim.machine.flush(shim.now)
    assert len(shim.world.answers.by_message) == shim.world.answers.size == MAX_ANSWERS
    shim.machine = shim.service.make_machine()
    assert next(iter(shim.world.answers.by_message)) == "c10"
    assert len(shim.world.answers.by_message) == MAX_ANSWERS
    shim.service.close()


def test_of_several_nodes_all_are_changed_or_none():
    shim = Shim()
    before = dict(shim.world.nodes)
    command = ChangeNodes((NodeSpec("n", "add"), NodeSpec("n", "remove"), NodeSpec("n", "drain")))
    ((_, answer),) = deliver(shim, command)
    assert (answer.done, answer.message) == (False, 'nodes "n" not found')
    assert shim.world.nodes == before
