"""How many messages may be in flight together: as many as their inboxes accept."""

from collections.abc import Iterator

import aio_pika

from shared.bus.in_order import AFTER
from shared.messages.envelope import Address

MAX_IN_FLIGHT = 100
MAX_BYTES_IN_FLIGHT = 32 * 1024 * 1024
Addressed = tuple[aio_pika.Message, Address]


class Widths:
    """How many messages may be in flight to each inbox.

    The number doubles with each accepted batch, up to MAX_IN_FLIGHT. After a refusal it is one: the
    next message waits for each confirm.
    """

    def __init__(self) -> None:
        self._of: dict[Address, int] = {}

    def took(self, to: Address) -> None:
        """Record that an inbox has accepted its batch."""
        self._of[to] = min(MAX_IN_FLIGHT, self._of.get(to, 1) * 2)

    def refused(self, to: Address) -> None:
        """Record that an inbox has refused a message."""
        self._of[to] = 1

    def batches(self, messages: list[Addressed]) -> Iterator[list[Addressed]]:
        """Yield batches that may be in flight together, limited in number and bytes.

        Each message names its predecessor in flight to the same inbox. An expiring message may
        never arrive, so none follows it in its batch.
        """
        batch: list[Addressed] = []
        lanes: dict[Address, list[aio_pika.Message]] = {}  # of the inboxes
        size = 0
        for message, to in messages:
            size += len(message.body)
            lane = lanes.setdefault(to, []) if to.is_durable else []
            is_full = len(batch) == MAX_IN_FLIGHT or size > MAX_BYTES_IN_FLIGHT
            if batch and (is_full or self._is_full(to, lane)):
                yield batch
                batch, lanes, size = [], {}, len(message.body)
                lane = lanes.setdefault(to, []) if to.is_durable else []
            if lane:
                message.headers[AFTER] = lane[-1].message_id
            lane.append(message)
            batch.append((message, to))
        if batch:
            yield batch

    def _is_full(self, to: Address, lane: list[aio_pika.Message]) -> bool:
        """Whether an inbox gets no further message in this batch."""
        return bool(lane) and (len(lane) >= self._of.get(to, 1) or lane[-1].expiration is not None)


def lanes_of(batch: list[Addressed]) -> list[list[Addressed]]:
    """Group messages by inbox, keeping their order."""
    lanes: dict[Address, list[Addressed]] = {}
    for item in batch:
        lanes.setdefault(item[1], []).append(item)
    return list(lanes.values())
