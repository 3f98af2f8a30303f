"""Messages written at once: one write for all, and one wait for what the broker says of each.

The client writes a message, waits until it is on its way, and keeps a future for it: at one pod a
message that is most of what a message costs. Here many are one write, and one future.
"""

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class Letter:
    """A message with what it is published with. One that ``must_arrive`` has to reach a queue."""

    message: aio_pika.Message
    key: str
    must_arrive: bool


class _Answers:
    """What the broker says of messages that were written at once, until it has of all."""

    def __init__(self, wire: Any, count: int) -> None:
        self.errors: list[DeliveryError | None] = [None] * count
        self.all = wire.create_future()  # the client ends it with the connection
        self._left = count

    def note(self, at: int, error: DeliveryError | None) -> None:
        """Note what is said of one of them."""
        self.errors[at] = error
        self._left -= 1
        if not self._left and not self.all.done():
            self.all.set_result(None)


class _Answer:
    """One message's place among those that wait: as much of a future as the client asks for."""

    __slots__ = ("_answers", "_at", "_is_said")

    def __init__(self, answers: _Answers, at: int) -> None:
        self._answers = answers
        self._at = at
        self._is_said = False

    def done(self) -> bool:
        """Return whether no task waits for it any more."""
        return self._is_said or self._answers.all.done()

    def cancelled(self) -> bool:
        """Return whether the waiting task was cancelled."""
        return bool(self._answers.all.cancelled())

    def set_result(self, _: object) -> None:
        """Take that the broker has it."""
        self._is_said = True
        self._answers.note(self._at, None)

    def set_exception(self, error: DeliveryError) -> None:
        """Take that the broker refused it, or found no queue for it."""
        self._is_said = True
        self._answers.note(self._at, error)


async def publish_together(
    channel: AbstractChannel, exchange: str, letters: Sequence[Letter]
) -> list[DeliveryError | None]:
    """Publish messages in their order; return what the broker refused each with, or None.

    Raises whatever the client raises where the channel or its connection ends.
    """
    wire: Any = await channel.get_underlay_channel()
    if wire.is_closed:
        raise ChannelInvalidStateError(f"{wire!r} closed")
    async with wire.lock:
        answers = _Answers(wire, len(letters))
        data = b"".join([_bytes_of(letter, exchange, wire) for letter in letters])
        written = wire.create_future()
        first = wire.delivery_tag + 1
        wire.delivery_tag += len(letters)
        for at, letter in enumerate(letters):
            wire.confirmations[first + at] = _Answer(answers, at)
            wire.message_id_delivery_tag[letter.message.message_id] = first + at
        try:
            await wire.write_queue.put(
                ChannelFrame(payload=data, should_close=False, drain_future=written)
            )
        except BaseException:  # nothing was written: their numbers are the next ones'
            wire.delivery_tag = first - 1
            _forget(wire, letters, first)
            raise
        await written
    try:
        await answers.all
    finally:
        _forget(wire, letters, first)
    return answers.errors


def _forget(wire: Any, letters: Sequence[Letter], first: int) -> None:
    """Leave nothing of messages with the client, whatever became of them."""
    for at, letter in enumerate(letters):
        name = letter.message.message_id
        if wire.message_id_delivery_tag.get(name) == first + at:
            del wire.message_id_delivery_tag[name]


def _bytes_of(letter: Letter, exchange: str, wire: Any) -> bytes:
    """Return a message as it goes over the wire."""
    body, most = letter.message.body, wire.max_content_size
    publish = commands.Basic.Publish(
        exchange=exchange, routing_key=letter.key, mandatory=letter.must_arrive
    )
    header = ContentHeader(properties=letter.message.properties, body_size=len(body))
    pieces = [ContentBody(body[at : at + most]) for at in range(0, len(body), most)]
    frames: list[Any] = [publish, header, *pieces]
    return b"".join([frame.marshal(item, wire.number) for item in frames])
