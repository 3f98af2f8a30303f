"""Dead letters as AMQP messages: the original with its properties, and the reason in headers.

The broker checks a letter's ``user_id`` against its publisher. Every service may write to the
dead-letter exchange, but none can publish a letter in another's name.
"""

from hashlib import sha256
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pamqp.commands import Basic

from shared.bus.amqp_message import envelope_in
from shared.bus.arrived import Message
from shared.bus.base import ANSWER_SECONDS, MAX_SEARCHED, DeadLetter, Wanted
from shared.bus.bodies import LENGTH, read_at_most, readable
from shared.bus.dead_letters import MAX_REASON, MAX_SHOWN_BYTES
from shared.bus.errors import PoisonError
from shared.messages.envelope import Address, Envelope
from shared.model.names import DEFAULT_PARTITION

_REASON, _INBOX, _KEY = "x-reason", "x-inbox", "x-key"
_NO_REASON = "no reason was given"


def letter_to_leave(message: Message, inbox: Address, reason: str, user: str) -> aio_pika.Message:
    """Return the dead letter to publish for a message of an inbox."""
    return aio_pika.Message(
        message.body,
        headers={
            **message.headers,
            _REASON: reason[:MAX_REASON],
            _INBOX: inbox.routing_key,
            _KEY: message.routing_key or "",
        },
        content_type=message.content_type,
        message_id=message.message_id or sha256(message.body).hexdigest()[:32],
        correlation_id=message.correlation_id,
        type=message.type,
        reply_to=message.reply_to,
        app_id=message.app_id,
        user_id=user,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


async def found_letters(
    channel: AbstractChannel,
    queue_name: str,
    service: str,
    wanted: Wanted,
    most: int,
    *,
    is_read: bool,
) -> tuple[list[AbstractIncomingMessage], int]:
    """Return the oldest matching letters, unacknowledged, and the number of letters in the queue.

    At most MAX_SEARCHED letters are searched; bodies of letters that do not match are not kept.
    Raises TimeoutError if the broker does not answer about the queue within ANSWER_SECONDS.
    """

    def listed(properties: Basic.Properties, length: int) -> int:
        headers: dict[str, Any] = properties.headers or {}
        if not wanted.matches(properties.message_id or "", *_reason_and_inbox(headers, service)):
            return 0
        return readable(properties, length) if is_read else MAX_SHOWN_BYTES

    await read_at_most(channel, listed)
    queue = await channel.declare_queue(queue_name, passive=True, timeout=ANSWER_SECONDS)
    found: list[AbstractIncomingMessage] = []
    size = 0
    for _ in range(MAX_SEARCHED):
        message = await queue.get(fail=False) if len(found) < most else None
        if message is None:
            break
        if wanted.matches(message.message_id or "", *_reason_and_inbox(message.headers, service)):
            size += len(message.body)
            if found and size > wanted.most_bytes > 0:
                break
            found.append(message)
    return found, queue.declaration_result.message_count or 0


def _reason_and_inbox(headers: dict[str, Any], service: str) -> tuple[str, str]:
    """Return the reason and inbox of a letter; letters of older versions have no inbox header."""
    inbox = str(headers.get(_INBOX) or f"{service}.{DEFAULT_PARTITION}")
    return str(headers.get(_REASON) or _NO_REASON), inbox


def letter_of(service: str, message: AbstractIncomingMessage) -> DeadLetter:
    """Convert an AMQP message to a dead letter for display."""
    reason, inbox = _reason_and_inbox(message.headers, service)
    length = message.headers.get(LENGTH)
    return DeadLetter(
        inbox,
        message.type or "",
        message.message_id or "",
        reason,
        message.body,
        length if isinstance(length, int) else len(message.body),
    )


def envelope_of(message: AbstractIncomingMessage, inbox: str, user: str) -> Envelope:
    """Return the original message of a dead letter. Raises PoisonError if it cannot be handled.

    That includes letters published by another user, and those of older versions, which have no
    sender or address.
    """
    if message.user_id != user:
        raise PoisonError(f"it was put aside by {message.user_id or 'nobody'}, and not by {user}")
    key = str(message.headers.get(_KEY) or "")
    return envelope_in(message, Address(*inbox.split(".", 1)), key)
