"""Messages of an instance to itself, through its inbox or injected from inside the service."""

import asyncio

from shared.messages.envelope import Envelope
from shared.messages.sections import item_count
from shared.model.ids import derived_id
from shared.runtime.place import Place

MAX_INJECTED = 1_000
MAX_BATCH_ITEMS = 20_000  # items handled together; the rest is another batch


class OwnMessages:
    """The messages of one instance to itself, numbered from its start."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._since = f"{place.instance}/{place.now_ns}"
        self._count = 0

    def next_number(self) -> int:
        """Return a number that is unique for this instance."""
        self._count += 1
        return self._count

    def make(
        self,
        message: object,
        *,
        what: str = "",
        source: str = "",
        partition: str = "",
        traceparent: str = "",
        reply_to: str = "",
    ) -> Envelope:
        """Return a message to the own inbox; ``what`` is a prefix that keeps identities apart."""
        return Envelope(
            message_id=derived_id(what + self._since, self.next_number()),
            kind=type(message).__name__,
            message=message,
            to=self._place.inbox,
            source=source or self._place.inbox.service,
            partition=partition or self._place.partition,
            traceparent=traceparent,
            reply_to=reply_to,
            published_ns=self._place.now_ns,
        )


class Injected:
    """Messages from inside the service, in order.

    They are retained until they are answered, because the place may be lost before. At most
    MAX_INJECTED wait; ``put`` blocks beyond that.
    """

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue(MAX_INJECTED)
        self._unanswered: list[Envelope] = []

    async def put(self, envelope: Envelope) -> None:
        """Add a message, waiting for room."""
        await self._queue.put(envelope)

    async def first(self) -> Envelope:
        """Return the first unanswered message; wait until there is one."""
        if not self._unanswered:
            envelope = await self._queue.get()  # meanwhile others may be answered
            self._unanswered.append(envelope)
        return self._unanswered[0]

    def batch_of(self, first: Envelope) -> list[Envelope]:
        """Return the unanswered messages that fit into one batch."""
        left, items = self._queue.qsize(), item_count(first.message)
        while left and len(self._unanswered) < self._max_batch and items < MAX_BATCH_ITEMS:
            self._unanswered.append(self._queue.get_nowait())
            items += item_count(self._unanswered[-1].message)
            left -= 1
        return [first, *(item for item in self._unanswered if item is not first)]

    def answered(self, envelopes: list[Envelope]) -> None:
        """Forget messages that are answered."""
        done = {envelope.message_id for envelope in envelopes}
        self._unanswered = [item for item in self._unanswered if item.message_id not in done]
