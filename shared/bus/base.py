"""The interface of every bus, independent of its transport.

Rule 1: an inbox is ordered; messages of one publisher to it arrive in the order of publishing.
Rule 2: an inbox has one active reader at a time; others stand by.
Rule 3: a message is removed only when it is acknowledged; the unacknowledged messages of an ended
        reader are redelivered, and marked as such.
Rule 4: ``publish`` returns when every message is safely stored, and raises if that is unknown.
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
    """A received message. ``tag`` is the bus's handle for the acknowledgement."""

    envelope: Envelope
    tag: int
    redelivered: bool = False
    delivery_count: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead-lettered message and the ``inbox`` that it was sent to.

    ``body`` may be only the beginning of its ``length`` bytes; ``envelope`` is internal to the bus.
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
        """Size of the message in bytes."""
        return max(self.length, len(self.body))


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The oldest dead letters, and the total number of dead letters."""

    letters: tuple[DeadLetter, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects dead letters by identity, text in their reason, and inbox.

    ``ids`` None selects any. At most ``most_bytes`` of bodies are read, 0 for no limit.
    """

    ids: frozenset[str] | None = None
    reason: str = ""
    inbox: str = ""
    most_bytes: int = 0

    def matches(self, message_id: str, reason: str, inbox: str) -> bool:
        """Whether a letter is selected."""
        return (
            (self.ids is None or message_id in self.ids)
            and self.reason in reason
            and self.inbox in ("", inbox)
        )


ANY_LETTER = Wanted()


@dataclass(frozen=True, slots=True)
class HeldLetter:
    """A dead letter that is invisible to other clients while it is held.

    ``read`` returns the original message; it raises PoisonError if that cannot be handled.
    ``drop`` deletes the letter; it raises BusUnavailableError.
    """

    letter: DeadLetter
    read: Callable[[], Envelope]
    drop: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fill:
    """How many messages wait in an inbox, and from which number on it may refuse more."""

    waiting: int
    most: int

    @property
    def is_full(self) -> bool:
        """Whether publishers may be waiting for room."""
        return self.waiting >= self.most


class Subscription(Protocol):
    """A reader of an inbox."""

    async def receive(self, max_items: int) -> list[Delivery]:
        """Wait for at least one message; return those that arrived, at most ``max_items``.

        Raises BusUnavailableError when the connection is lost (unacknowledged messages are
        redelivered) and BusClosedError when the subscription was closed.
        """

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages. Raises BusUnavailableError when the connection is lost."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message with the reason."""

    async def close(self) -> None:
        """Stop reading; unacknowledged messages go to the next reader."""


class Bus(Protocol):
    """A connection to a message broker, or to the in-process bus."""

    async def connect(self) -> None:
        """Connect, and declare every durable inbox. Raises BusUnavailableError."""

    async def close(self) -> None:
        """Close the connection; calls after that raise BusClosedError."""

    async def subscribe(self, inbox: Address) -> Subscription:
        """Start reading an inbox."""

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Send in order and return once all are confirmed. Raises BusUnavailableError.

        Raises InboxFullError, a subclass, if an inbox stays full; earlier messages may have
        arrived.
        """

    async def fill(self, inbox: Address) -> Fill:
        """Return how full a durable inbox is. Raises BusUnavailableError."""

    def leave_node(self) -> bool:
        """Leave the broker node for the next one; return False if there is no other.

        Readers end as if the connection were lost.
        """

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """List dead letters without removing them. Raises BusUnavailableError."""

    def take_letters(
        self, service: str, wanted: Wanted, *, is_read: bool = False
    ) -> AbstractAsyncContextManager[list[HeldLetter]]:
        """Hold a service's dead letters; those that are not dropped are given back at the end.

        Letters held by other clients are missing. With ``is_read`` their bodies are read as well.
        Raises BusUnavailableError.
        """
