"""The interface of every bus, independent of its transport.

Rule 1: an inbox is ordered; what one publisher sends to it arrives in that order.
Rule 2: an inbox has one active reader at a time; others stand by.
Rule 3: a message is gone only once it is acknowledged; what an ended reader had not acknowledged
        is redelivered, and marked as such.
Rule 4: ``publish`` returns when every message is safe, and raises when that is not known.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from shared.messages.envelope import Address, Envelope

MAX_SEARCHED = 1_000
ANSWER_SECONDS = 10.0  # for what the broker says of one queue
REFUSED_SECONDS = 10.0  # that a publisher waits for room in an inbox


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in a reader's hands. ``tag`` is the bus's own handle for the acknowledgement."""

    envelope: Envelope
    tag: int
    redelivered: bool = False
    delivery_count: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message dead-lettered; ``inbox`` is whose it was.

    ``body`` may be the beginning alone, of ``length`` bytes; ``envelope`` is the bus's own.
    """

    inbox: str
    kind: str
    message_id: str
    reason: str
    body: bytes
    length: int = -1
    envelope: Envelope | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Return how many bytes the message had."""
        return max(self.length, len(self.body))


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The oldest of what was dead-lettered, and how many there are in all."""

    letters: tuple[DeadLetter, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters are meant: by identity, by what their reason contains, by inbox.

    ``ids`` None: any. Of what is taken to be read, no more than ``most_bytes``.
    """

    ids: frozenset[str] | None = None
    reason: str = ""
    inbox: str = ""
    most_bytes: int = 0

    def matches(self, message_id: str, reason: str, inbox: str) -> bool:
        """Return whether a letter is meant."""
        return (
            (self.ids is None or message_id in self.ids)
            and self.reason in reason
            and self.inbox in ("", inbox)
        )


ANY_LETTER = Wanted()


@dataclass(frozen=True, slots=True)
class HeldLetter:
    """A dead letter that no other client sees meanwhile.

    ``read`` returns what was dead-lettered; it raises PoisonError where that cannot be handled.
    ``drop`` has it gone for good; it raises BusUnavailableError.
    """

    letter: DeadLetter
    read: Callable[[], Envelope]
    drop: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fill:
    """How many messages wait at an inbox, and from how many on it may take no more."""

    waiting: int
    most: int

    @property
    def is_full(self) -> bool:
        """Return whether publishers may be waiting for room."""
        return self.waiting >= self.most


class Subscription(Protocol):
    """A reader's place at an inbox."""

    async def receive(self, max_items: int) -> list[Delivery]:
        """Wait for at least one message; return what is there, at most ``max_items``.

        Raises BusUnavailableError when the connection is lost (unacknowledged messages come
        again) and BusClosedError when the subscription was closed.
        """

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages. Raises BusUnavailableError when the connection is lost."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message with the reason: it is handled."""

    async def close(self) -> None:
        """Leave the inbox; what was not acknowledged goes to the next reader."""


class Bus(Protocol):
    """A connection to a message broker, or the one in this process."""

    async def connect(self) -> None:
        """Connect, and declare every durable inbox. Raises BusUnavailableError."""

    async def close(self) -> None:
        """Close the connection; calls after that raise BusClosedError."""

    async def subscribe(self, inbox: Address) -> Subscription:
        """Take a place at an inbox."""

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Send in order and return once all are confirmed. Raises BusUnavailableError.

        InboxFullError is one of them, if an inbox stays full: earlier messages may have arrived.
        """

    async def fill(self, inbox: Address) -> Fill:
        """Return how full a durable inbox is. Raises BusUnavailableError."""

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """List dead letters without removing them. Raises BusUnavailableError."""

    def take_letters(
        self, service: str, wanted: Wanted, *, is_read: bool = False
    ) -> AbstractAsyncContextManager[list[HeldLetter]]:
        """Hold a service's dead letters; those that are not dropped are given back at the end.

        What others hold is missing. ``is_read``: their bodies are read, too.
        Raises BusUnavailableError.
        """
