"""Receives messages directly from a channel, without the client library's objects.

The library makes a task and a message object for each message, which is most of the cost of
receiving a small one. A reader that only queues messages until its host asks needs neither.
"""

from collections.abc import Callable
from typing import Any

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader


class Arrived:
    """A received message, with the attribute names of the client library."""

    __slots__ = (
        "_channel", "app_id", "body", "content_type", "correlation_id", "delivery_tag", "headers",
        "message_id", "redelivered", "reply_to", "routing_key", "type",
    )  # fmt: skip

    def __init__(self, delivered: DeliveredMessage) -> None:
        properties: Any = delivered.header.properties
        self._channel = delivered.channel
        self.body = delivered.body
        self.headers: dict[str, Any] = properties.headers or {}
        self.message_id: str | None = properties.message_id
        self.correlation_id: str | None = properties.correlation_id
        self.content_type: str | None = properties.content_type
        self.reply_to: str | None = properties.reply_to
        self.app_id: str | None = properties.app_id
        self.type: str | None = properties.message_type
        self.delivery_tag = delivered.delivery_tag
        self.redelivered = delivered.redelivered
        self.routing_key = delivered.routing_key

    async def ack(self, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - the client's
        """Acknowledge this message, or with ``multiple`` all up to it."""
        await self._channel.basic_ack(self.delivery_tag or 0, multiple=multiple)


Message = AbstractIncomingMessage | Arrived


async def hand_over(channel: AbstractChannel, take: Callable[[Arrived], None]) -> None:
    """Call ``take`` with each message that arrives on a channel."""
    wire: Any = await channel.get_underlay_channel()

    async def deliver(found: Basic.Deliver) -> None:
        header = await wire._get_frame()
        if not isinstance(header, ContentHeader):
            raise ValueError(f"a header was expected, found {header!r}")  # noqa: TRY004
        delivered = await wire._read_content(found, header)
        if found.consumer_tag in wire.consumers:
            take(Arrived(delivered))

    vars(wire)["_on_deliver_frame"] = deliver
