"""The in-process bus: the same rules and the same bytes as with a broker.

Every message is encoded and decoded, so that what works here works on a broker. Limits: an inbox
holds at most MAX_INBOX_MESSAGES; a publisher waits for room, REFUSED_SECONDS at most. Dead letters
are limited to MAX_DEAD_LETTERS of MAX_DEAD_BYTES, and the trace, for future API replicas, to
MAX_TRACE_MESSAGES of MAX_TRACE_BYTES; the oldest are dropped.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from shared.bus import codec
from shared.bus.base import (
    ANY_LETTER,
    MAX_SEARCHED,
    REFUSED_SECONDS,
    DeadLetter,
    DeadLetters,
    Delivery,
    Fill,
    HeldLetter,
    Wanted,
)
from shared.bus.dead_letters import MAX_REASON, MAX_SHOWN_BYTES, count_dead_letter
from shared.bus.errors import BusClosedError, InboxFullError, PoisonError
from shared.bus.properties import check_properties, check_version
from shared.messages.envelope import API_TRACE, Address, Envelope

MAX_INBOX_MESSAGES = 10_000
MAX_DEAD_LETTERS = 1_000
MAX_DEAD_BYTES = 24 * 1024 * 1024
MAX_TRACE_MESSAGES = 5_000
MAX_TRACE_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class _Stored:
    envelope: Envelope  # with message=None: the body holds it
    body: bytes
    tag: int
    delivery_count: int = 0


@dataclass(slots=True)
class _Inbox:
    name: str
    waiting: deque[_Stored] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    readers: list["MemorySubscription"] = field(default_factory=list)

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its reader."""
        return self.address.is_durable

    @property
    def address(self) -> Address:
        """Its address."""
        return Address(*self.name.split(".", 1))

    def resized(self) -> None:
        """Admit publishers while there is room, and block them while there is none."""
        if len(self.waiting) < MAX_INBOX_MESSAGES:
            self.room.set()
        else:
            self.room.clear()


class MemoryBroker:
    """The inboxes and dead letters that all connections of the process share."""

    def __init__(self) -> None:
        self.inboxes: dict[str, _Inbox] = {}
        self.dead_letters: deque[DeadLetter] = deque(maxlen=MAX_DEAD_LETTERS)
        self.trace: deque[tuple[Envelope, bytes]] = deque()
        self._trace_bytes = 0
        self.published = 0
        self._next_tag = 1

    def inbox(self, name: str) -> _Inbox:
        """Return the inbox of that name; it is made on first use."""
        if name not in self.inboxes:
            self.inboxes[name] = _Inbox(name)
            self.inboxes[name].resized()
        return self.inboxes[name]

    def targets(self, to: Address) -> list[_Inbox]:
        """Return the inboxes that an address reaches; an API replica's only while it is read."""
        if to.is_durable:
            return [self.inbox(to.routing_key)]
        return [
            inbox for inbox in self.inboxes.values() if inbox.readers and to.reaches(inbox.address)
        ]

    def put(self, envelope: Envelope, body: bytes) -> None:
        """Append a message to every inbox that its address reaches."""
        if envelope.to == API_TRACE:
            self._store(envelope, body)
        for inbox in self.targets(envelope.to):
            self._put_into(inbox, envelope, body)

    def _put_into(self, inbox: _Inbox, envelope: Envelope, body: bytes) -> None:
        inbox.waiting.append(_Stored(envelope, body, self._next_tag))
        self._next_tag += 1
        self.published += 1
        inbox.resized()
        inbox.changed.set()

    def _store(self, envelope: Envelope, body: bytes) -> None:
        self.trace.append((envelope, body))
        self._trace_bytes += len(body)
        while len(self.trace) > MAX_TRACE_MESSAGES or self._trace_bytes > MAX_TRACE_BYTES:
            self._trace_bytes -= len(self.trace.popleft()[1])

    def dead_letter(self, letter: DeadLetter) -> None:
        """Store a dead letter; the oldest are dropped if there are too many or too large ones."""
        letters = self.dead_letters
        letters.append(letter)
        while sum(len(item.body) for item in letters) > MAX_DEAD_BYTES:
            letters.popleft()

    def replay_trace(self, inbox: _Inbox) -> None:
        """Send the stored trace to a new API replica."""
        for envelope, body in self.trace:
            self._put_into(inbox, envelope, body)

    def put_raw(self, to: Address, kind: str, body: bytes, message_id: str = "raw") -> None:
        """Append raw bytes, as a foreign client of the broker could."""
        self.put(Envelope(message_id, kind, None, to, "foreign"), body)


class MemorySubscription:
    """A reader of a memory inbox; only the first of an inbox's readers gets messages."""

    def __init__(self, broker: MemoryBroker, inbox: _Inbox) -> None:
        self._broker = broker
        self._inbox = inbox
        self._held: dict[int, _Stored] = {}
        self._closed = False
        inbox.readers.append(self)

    async def receive(self, max_items: int) -> list[Delivery]:
        """Wait for messages; undecodable ones are dead-lettered on the way."""
        while True:
            self._check_open()
            if self._inbox.readers[0] is self:
                deliveries = self._take(max_items)
                if deliveries:
                    return deliveries
            self._inbox.changed.clear()
            await self._inbox.changed.wait()

    def _take(self, max_items: int) -> list[Delivery]:
        taken: list[Delivery] = []
        while self._inbox.waiting and len(taken) < max_items:
            stored = self._inbox.waiting.popleft()
            stored.delivery_count += 1
            try:
                check_version(stored.envelope.schema_version)
                message = codec.decode(stored.envelope.kind, stored.body)
            except PoisonError as error:
                self._dead_letter(stored, str(error))
                continue
            self._held[stored.tag] = stored
            taken.append(
                Delivery(
                    replace(stored.envelope, message=message),
                    stored.tag,
                    redelivered=stored.delivery_count > 1,
                    delivery_count=stored.delivery_count - 1,
                )
            )
        self._inbox.resized()
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages."""
        self._check_open()
        for delivery in deliveries:
            self._held.pop(delivery.tag, None)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message."""
        self._check_open()
        stored = self._held.pop(delivery.tag, None)
        if stored is not None:
            self._dead_letter(stored, reason)

    def _dead_letter(self, stored: _Stored, reason: str) -> None:
        envelope, length = stored.envelope, len(stored.body)
        most = length if length <= codec.MAX_MESSAGE_BYTES else MAX_SHOWN_BYTES
        letter = DeadLetter(
            self._inbox.name,
            envelope.kind,
            envelope.message_id,
            reason[:MAX_REASON],
            stored.body[:most],
            length,
            envelope,
        )
        self._broker.dead_letter(letter)
        count_dead_letter(stored.envelope.to.owner)

    async def close(self) -> None:
        """Give unacknowledged messages back in their old order, and activate the next reader.

        An API replica's inbox is emptied.
        """
        if self._closed:
            return
        self._closed = True
        self._inbox.readers.remove(self)
        if self._inbox.is_durable:
            held = sorted(self._held, reverse=True)
            self._inbox.waiting.extendleft(self._held[tag] for tag in held)
        else:
            self._inbox.waiting.clear()
        self._held.clear()
        self._inbox.changed.set()

    def _check_open(self) -> None:
        if self._closed:
            raise BusClosedError(f"the subscription to {self._inbox.name} is closed")


def _is_wanted(letter: DeadLetter, wanted: Wanted) -> bool:
    return wanted.matches(letter.message_id, letter.reason, letter.inbox)


def _leave_only(letters: deque[DeadLetter], left: list[DeadLetter]) -> None:
    letters.clear()
    letters.extend(left)


def _read(letter: DeadLetter) -> Envelope:
    """Decode the original message of a dead letter. Raises PoisonError."""
    if letter.envelope is None:
        raise PoisonError("the broker gave up on it; its service is not known")
    if letter.size > codec.MAX_MESSAGE_BYTES:
        raise PoisonError(f"{letter.kind}: {letter.size} bytes, at most {codec.MAX_MESSAGE_BYTES}")
    check_version(letter.envelope.schema_version)
    message = codec.decode(letter.kind, letter.body)
    return replace(letter.envelope, to=Address(*letter.inbox.split(".", 1)), message=message)


async def _have_room(inbox: _Inbox) -> None:
    if inbox.room.is_set():
        return
    try:
        async with asyncio.timeout(REFUSED_SECONDS):
            await inbox.room.wait()
    except TimeoutError as error:
        raise InboxFullError(f"{inbox.name} is full") from error


class MemoryBus:
    """A connection to the in-process broker."""

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()
        self._subscriptions: list[MemorySubscription] = []
        self._closed = False

    async def connect(self) -> None:
        """Do nothing: the broker is this process."""

    async def close(self) -> None:
        """Close every subscription; unacknowledged messages go back to their inboxes."""
        self._closed = True
        for subscription in self._subscriptions:
            await subscription.close()

    async def subscribe(self, inbox: Address) -> MemorySubscription:
        """Start reading an inbox, after its earlier readers."""
        if inbox.service == API_TRACE.service:
            self.broker.replay_trace(self.broker.inbox(inbox.routing_key))
        subscription = MemorySubscription(self.broker, self.broker.inbox(inbox.routing_key))
        self._subscriptions.append(subscription)
        return subscription

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """List dead letters."""
        letters = self.broker.dead_letters
        found = (item for item in islice(letters, MAX_SEARCHED) if _is_wanted(item, wanted))
        return DeadLetters(tuple(islice(found, most)), len(letters))

    @asynccontextmanager
    async def take_letters(
        self, service: str, wanted: Wanted, *, is_read: bool = False
    ) -> AsyncIterator[list[HeldLetter]]:
        """Hold a service's dead letters."""
        letters = self.broker.dead_letters
        held: list[DeadLetter] = []
        size = 0
        for letter in [item for item in islice(letters, MAX_SEARCHED) if _is_wanted(item, wanted)]:
            if Address(*letter.inbox.split(".", 1)).owner == service:
                size += len(letter.body) if is_read else 0
                if held and size > wanted.most_bytes > 0:
                    break
                held.append(letter)
        by_identity = {id(letter): letter for letter in held}
        _leave_only(letters, [item for item in letters if id(item) not in by_identity])

        async def drop(letter: DeadLetter) -> None:
            by_identity.pop(id(letter), None)

        try:
            yield [HeldLetter(item, partial(_read, item), partial(drop, item)) for item in held]
        finally:
            _leave_only(letters, [*by_identity.values(), *letters])

    async def fill(self, inbox: Address) -> Fill:
        """Return how full an inbox is."""
        return Fill(len(self.broker.inbox(inbox.routing_key).waiting), MAX_INBOX_MESSAGES)

    def leave_node(self) -> bool:
        """Return False: there is one broker."""
        return False

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Append every message, waiting while an inbox is full; none if one cannot be encoded.

        Raises InboxFullError if there is no room within REFUSED_SECONDS.
        """
        for envelope in envelopes:
            check_properties(envelope)
        bodies = [codec.encode(envelope.message) for envelope in envelopes]
        for envelope, body in zip(envelopes, bodies, strict=True):
            if self._closed:
                raise BusClosedError("the bus is closed")
            for inbox in self.broker.targets(envelope.to):
                await _have_room(inbox)
            self.broker.put(replace(envelope, message=None), body)
