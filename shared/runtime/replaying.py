"""Replays dead letters: hold, handle, and delete them once their answers are confirmed.

Rule 1: a letter is handled under a new identity, derived from the request's and the letter's. So it
        is handled although its message was handled or dead-lettered before, and a redelivered
        request produces the same identity, which is handled once.
Rule 2: a letter is deleted only when every answer to it is published and confirmed; if the host
        ends before that, it stays.
Rule 3: a letter that still cannot be read or handled stays, with the reason in the answer.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from shared.bus.base import Bus, HeldLetter, Wanted
from shared.messages.dead_letters import DeadLettersReplayed, RefusedLetter, ReplayDeadLetters
from shared.messages.envelope import Address, Envelope, Outgoing, reply_address
from shared.model.ids import derived_id

MAX_REPLAYED = 100  # dead letters that one request replays; the rest is refused
MAX_REPLAYED_BYTES = 24 * 1024 * 1024  # bytes of their bodies; the rest is refused
_TRIES = 5  # for a letter that another client holds
_AGAIN_SECONDS = 0.2
_NOT_THERE = "it is not among the oldest dead letters here, or there is too much before it: again"


class Replays:
    """The letters that a host replays while it handles a batch."""

    def __init__(self, bus: Bus, inbox: Address) -> None:
        self._bus = bus
        self._inbox = inbox
        self._stack = AsyncExitStack()
        self._done: list[HeldLetter] = []

    async def take(self, request: ReplayDeadLetters) -> list[HeldLetter]:
        """Hold and return the existing letters of a request. Raises BusUnavailableError."""
        missing = dict.fromkeys(request.message_ids[:MAX_REPLAYED])
        found: list[HeldLetter] = []
        left = MAX_REPLAYED_BYTES
        for attempt in range(_TRIES):
            if not missing or left <= 0:
                break
            if attempt:
                await asyncio.sleep(_AGAIN_SECONDS)
            wanted = Wanted(frozenset(missing), inbox=self._inbox.routing_key, most_bytes=left)
            taking = self._bus.take_letters(self._inbox.owner, wanted, is_read=True)
            held = await self._stack.enter_async_context(taking)
            found += held
            left -= sum(letter.letter.size for letter in held)
            for letter in held:
                missing.pop(letter.letter.message_id, None)
        return found

    def done(self, letter: HeldLetter) -> None:
        """Mark a letter as handled."""
        self._done.append(letter)

    async def settle(self) -> None:
        """Delete the handled letters; their answers are confirmed."""
        while self._done:
            await self._done[-1].drop()
            self._done.pop()

    async def close(self) -> None:
        """Give back the letters still held."""
        await self._stack.aclose()


def envelope_of_letter(letter: HeldLetter, request: Envelope) -> Envelope:
    """Return a letter's message under the identity of this replay. Raises PoisonError."""
    envelope = letter.read()
    identity = derived_id(f"replay/{request.message_id}/{envelope.message_id}", 0)
    return replace(envelope, message_id=identity, published_ns=request.published_ns)


def answer_to(request: Envelope, replayed: list[str], refused: dict[str, str]) -> list[Outgoing]:
    """Return the answer to a request; letters neither replayed nor refused were not found."""
    message, to = request.message, reply_address(request.reply_to)
    assert isinstance(message, ReplayDeadLetters)
    missing = [one for one in message.message_ids if one not in replayed and one not in refused]
    reasons = {**refused, **dict.fromkeys(missing, _NOT_THERE)}
    answer = DeadLettersReplayed(
        tuple(replayed), tuple(RefusedLetter(one, why) for one, why in reasons.items())
    )
    return [Outgoing(to, answer, reply_to=request.reply_to)] if to is not None else []
