"""Publishes several messages with one write and one wait for all confirms.

The client writes each message, waits until it is sent, and keeps a future for it. With one pod per
message that is most of a message's cost. Here many messages are one write and one future.
Confirms of messages that need not arrive are awaited for a moment only. A reader's own queue
confirms nothing while its node hangs, and messages sent while the cluster gives up that node may
never be confirmed; the same holds for a stream without a writer.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel
from aio_pika.exceptions import DeliveryError
from aiormq.abc import ChannelFrame
from aiormq.exceptions import ChannelInvalidStateError
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

Bound = AbstractAsyncContextManager[None]  # of a wait


@dataclass(frozen=True, slots=True)
class Letter:
    """A message with its exchange and key. ``must_arrive``: it has to reach a queue."""

    message: aio_pika.Message
    exchange: str
    key: str
    must_arrive: bool


class UnconfirmedError(TimeoutError):
    """Messages were not confirmed; the text names their addresses, each once."""

    def __init__(self, keys: Sequence[str]) -> None:
        to = ", ".join(dict.fromkeys(keys))
        super().__init__(f"no confirm arrived for messages to {to}")


class _Answers:
    """The broker's answers to messages that were written at once.

    ``arrived`` is done when all messages that must arrive are answered, ``all`` when all are.
    """

    def __init__(self, wire: Any, letters: Sequence[Letter]) -> None:
        self.errors: list[DeliveryError | None] = [None] * len(letters)
        self.arrived = wire.create_future()  # the client ends it with the connection
        self.all = asyncio.get_running_loop().create_future()
        self.unsaid = dict.fromkeys(range(len(letters)))
        self.first = 0  # the delivery tag of the first
        self._letters = letters
        self._to_arrive = sum(letter.must_arrive for letter in letters)
        self._conclude()

    def note(self, at: int, error: DeliveryError | None) -> None:
        """Record the answer to the message at an index."""
        self.errors[at] = error
        self.unsaid.pop(at, None)
        self._to_arrive -= self._letters[at].must_arrive
        self._conclude()

    def _conclude(self) -> None:
        if not self._to_arrive and not self.arrived.done():
            self.arrived.set_result(None)
        if not self.unsaid and not self.all.done():
            self.all.set_result(None)


class _Answer:
    """One message's future, with only the methods that the client calls."""

    __slots__ = ("_answers", "_at")

    def __init__(self, answers: _Answers, at: int) -> None:
        self._answers = answers
        self._at = at

    def done(self) -> bool:
        """Whether no task waits for it any more."""
        is_said = self._at not in self._answers.unsaid
        return is_said or self._answers.all.done() or self.cancelled()

    def cancelled(self) -> bool:
        """Whether the waiting task was cancelled."""
        return bool(self._answers.arrived.cancelled() or self._answers.all.cancelled())

    def set_result(self, _: object) -> None:
        """Record that the broker confirmed the message."""
        self._answers.note(self._at, None)

    def set_exception(self, error: DeliveryError) -> None:
        """Record that the broker refused the message or found no queue for it."""
        self._answers.note(self._at, error)


async def publish_together(
    channel: AbstractChannel,
    letters: Sequence[Letter],
    arriving: Callable[[], Bound],
    rest: Callable[[], Bound],
) -> list[DeliveryError | UnconfirmedError | None]:
    """Publish messages in order; return the result of each: None if it was confirmed.

    Otherwise the broker's refusal, or UnconfirmedError for a message that need not arrive.
    ``arriving`` limits the wait for messages that must arrive, ``rest`` the wait for the others
    after it. Raises UnconfirmedError if a message that must arrive is not confirmed, and the
    client's error if the channel or its connection ends.
    """
    wire: Any = await channel.get_underlay_channel()
    if wire.is_closed:
        raise ChannelInvalidStateError(f"{wire!r} closed")
    answers = _Answers(wire, letters)
    try:
        async with arriving():
            await _write(wire, letters, answers)
            await answers.arrived
        with suppress(TimeoutError):
            async with rest():
                await answers.all  # cancelled at the limit: later answers are ignored
    except TimeoutError:
        unsaid = [letters[at] for at in answers.unsaid]
        raise UnconfirmedError([one.key for one in unsaid if one.must_arrive]) from None
    finally:
        _forget(wire, letters, answers.first)
    unsaid_of = {at: UnconfirmedError([letters[at].key]) for at in answers.unsaid}
    return [unsaid_of.get(at, error) for at, error in enumerate(answers.errors)]


async def _write(wire: Any, letters: Sequence[Letter], answers: _Answers) -> None:
    """Write all messages or none."""
    async with wire.lock:
        data = b"".join([_bytes_of(letter, wire) for letter in letters])
        written = wire.create_future()
        first = answers.first = wire.delivery_tag + 1
        wire.delivery_tag += len(letters)
        for at, letter in enumerate(letters):
            wire.confirmations[first + at] = _Answer(answers, at)
            wire.message_id_delivery_tag[letter.message.message_id] = first + at
        try:
            await wire.write_queue.put(
                ChannelFrame(payload=data, should_close=False, drain_future=written)
            )
        except BaseException:  # nothing was written: reuse the numbers
            wire.delivery_tag = first - 1
            raise
        await written


def _forget(wire: Any, letters: Sequence[Letter], first: int) -> None:
    """Remove the messages from the client's tables, whatever their results."""
    for at, letter in enumerate(letters):
        name = letter.message.message_id
        if wire.message_id_delivery_tag.get(name) == first + at:
            del wire.message_id_delivery_tag[name]


def _bytes_of(letter: Letter, wire: Any) -> bytes:
    """Return the encoded frames of a message."""
    body, most = letter.message.body, wire.max_content_size
    publish = commands.Basic.Publish(
        exchange=letter.exchange, routing_key=letter.key, mandatory=letter.must_arrive
    )
    header = ContentHeader(properties=letter.message.properties, body_size=len(body))
    pieces = [ContentBody(body[at : at + most]) for at in range(0, len(body), most)]
    frames: list[Any] = [publish, header, *pieces]
    return b"".join([frame.marshal(item, wire.number) for item in frames])
