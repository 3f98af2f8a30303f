"""Messages written at once: one write for all, and one wait for what the broker says of each.

The client writes a message, waits until it is on its way, and keeps a future for it: at one pod a
message that is most of what a message costs. Here many are one write, and one future.
A reader's own queue, its feed, ends with its connection. It confirms nothing while its node stands
still, and what it was to confirm as the cluster gives the node up may be confirmed by nobody, ever:
so feeds are waited for a moment only. Their readers have lost their places as well, or find by the
numbers of what comes next that they missed something.
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

Bound = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Letter:
    """A message with what it is published with.

    One that ``must_arrive`` has to reach a queue; one that ``is_fed`` goes to feeds alone.
    """

    message: aio_pika.Message
    key: str
    must_arrive: bool
    is_fed: bool = False


class UnconfirmedError(TimeoutError):
    """Nothing was said of messages; ``keys`` are their addresses, each once."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(dict.fromkeys(keys))
        super().__init__(f"nothing is confirmed of what was sent to {', '.join(self.keys)}")


class _Answers:
    """What the broker says of messages that were written at once.

    ``kept`` is done when it has of all that are kept, ``fed`` when it has of all.
    """

    def __init__(self, wire: Any, letters: Sequence[Letter]) -> None:
        self.errors: list[DeliveryError | None] = [None] * len(letters)
        self.kept = wire.create_future()  # the client ends it with the connection
        self.fed = asyncio.get_running_loop().create_future()
        self.unsaid = dict.fromkeys(range(len(letters)))
        self.first = 0  # the number that the first has on its channel
        self._letters = letters
        self._kept_left = sum(not letter.is_fed for letter in letters)
        self._conclude()

    def note(self, at: int, error: DeliveryError | None) -> None:
        """Note what is said of one of them."""
        self.errors[at] = error
        self.unsaid.pop(at, None)
        self._kept_left -= not self._letters[at].is_fed
        self._conclude()

    def _conclude(self) -> None:
        if not self._kept_left and not self.kept.done():
            self.kept.set_result(None)
        if not self.unsaid and not self.fed.done():
            self.fed.set_result(None)


class _Answer:
    """One message's place among those that wait: as much of a future as the client asks for."""

    __slots__ = ("_answers", "_at", "_is_said")

    def __init__(self, answers: _Answers, at: int) -> None:
        self._answers = answers
        self._at = at
        self._is_said = False

    def done(self) -> bool:
        """Return whether no task waits for it any more."""
        return self._is_said or self._answers.fed.done() or self.cancelled()

    def cancelled(self) -> bool:
        """Return whether the waiting task was cancelled."""
        return bool(self._answers.kept.cancelled() or self._answers.fed.cancelled())

    def set_result(self, _: object) -> None:
        """Take that the broker has it."""
        self._is_said = True
        self._answers.note(self._at, None)

    def set_exception(self, error: DeliveryError) -> None:
        """Take that the broker refused it, or found no queue for it."""
        self._is_said = True
        self._answers.note(self._at, error)


async def publish_together(
    channel: AbstractChannel,
    exchange: str,
    letters: Sequence[Letter],
    keeping: Bound,
    feeding: Bound,
) -> list[DeliveryError | None]:
    """Publish messages in their order; return what the broker refused each with, or None.

    ``keeping`` bounds the wait for what is kept, ``feeding`` that for feeds after it.
    Raises UnconfirmedError where what is kept is not confirmed, and whatever the client raises
    where the channel or its connection ends.
    """
    wire: Any = await channel.get_underlay_channel()
    if wire.is_closed:
        raise ChannelInvalidStateError(f"{wire!r} closed")
    answers = _Answers(wire, letters)
    try:
        async with keeping():
            await _write(wire, exchange, letters, answers)
            await answers.kept
        with suppress(TimeoutError):
            async with feeding():
                await answers.fed  # given up, it is cancelled: what is said later is let pass
    except TimeoutError:
        unsaid = [letters[at] for at in answers.unsaid]
        raise UnconfirmedError([letter.key for letter in unsaid if not letter.is_fed]) from None
    finally:
        _forget(wire, letters, answers.first)
    return answers.errors


async def _write(wire: Any, exchange: str, letters: Sequence[Letter], answers: _Answers) -> None:
    """Write messages, all or none."""
    async with wire.lock:
        data = b"".join([_bytes_of(letter, exchange, wire) for letter in letters])
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
        except BaseException:  # nothing was written: their numbers are the next ones'
            wire.delivery_tag = first - 1
            raise
        await written


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
