"""A request and its answer: nobody is told what somebody else asked."""

import asyncio

import pytest

from services.api.machine import ApiMachine
from shared.messages.commands import CommandResult, DeleteApplication
from shared.messages.envelope import Address, Envelope
from tests.patience import until


class Sent:
    """A host that keeps what was asked, and under which number."""

    def __init__(self):
        self.numbers = []

    async def inject(self, message, *, reply_to, traceparent, partition):
        self.numbers.append(reply_to)


async def test_an_answer_to_a_machine_before_this_one_is_not_taken_for_an_answer_to_this_one():
    """A lost connection, or a new process in the same container, begins anew under its old name."""
    before, after, sent = ApiMachine("one"), ApiMachine("one"), Sent()
    asked = [
        asyncio.create_task(machine.ask(sent, DeleteApplication(name)))
        for machine, name in ((before, "first"), (after, "second"))
    ]
    await until(lambda: len(sent.numbers) == 2, "the second question", pause=0)
    for number, said in zip(sent.numbers, ("of the first", "of the second"), strict=True):
        answer = CommandResult(done=False, message=said)
        to = Address("api", "one")
        after.handle(
            Envelope(said, "CommandResult", answer, to, "shim_adapter", reply_to=number), 1
        )
    assert (await asked[1]).message == "of the second"
    asked[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked[0]
