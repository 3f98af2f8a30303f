"""Envelopes as AMQP messages and back: identities in properties, the rest in headers."""

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from shared.bus import codec
from shared.bus.errors import PoisonError
from shared.bus.properties import MAX_PROPERTY_BYTES, check_properties
from shared.messages.envelope import SCHEMA_VERSION, Address, Envelope

_BEAT_EXPIRES_SECONDS = 30


def message_of(envelope: Envelope) -> aio_pika.Message:
    """Return an envelope as an AMQP message. Raises PoisonError for one that cannot be sent."""
    check_properties(envelope)
    is_beat = envelope.kind == "Heartbeat"
    return aio_pika.Message(
        codec.encode(envelope.message),
        content_type="application/msgpack",
        message_id=envelope.message_id,
        correlation_id=_short(envelope.correlation_id) or None,
        type=envelope.kind,
        reply_to=envelope.reply_to or None,
        app_id=envelope.source,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        expiration=_BEAT_EXPIRES_SECONDS if is_beat else None,
        headers={
            "cause_id": envelope.cause_id,
            "partition": envelope.partition,
            "epoch": envelope.epoch,
            "seq": envelope.seq,
            "traceparent": envelope.traceparent,
            "published_ns": envelope.published_ns,
            "schema_version": envelope.schema_version,
        },
    )


def _short(text: str) -> str:
    """Return a text as far as a property of AMQP holds it; it names a story, and finds nothing."""
    return text.encode(errors="replace")[:MAX_PROPERTY_BYTES].decode(errors="ignore")


def envelope_in(message: AbstractIncomingMessage, inbox: Address) -> Envelope:
    """Return the envelope in an AMQP message. Raises PoisonError."""
    headers = message.headers
    version = _int(headers.get("schema_version", SCHEMA_VERSION), "schema_version")
    if version > SCHEMA_VERSION:
        raise PoisonError(f"schema version {version} is newer than {SCHEMA_VERSION}")
    if not message.message_id:
        raise PoisonError("a message needs a message_id")
    kind = message.type or ""
    return Envelope(
        message_id=message.message_id,
        kind=kind,
        message=codec.decode(kind, message.body),
        to=inbox,
        source=message.app_id or "",
        correlation_id=message.correlation_id or "",
        cause_id=str(headers.get("cause_id") or ""),
        partition=str(headers.get("partition") or "default"),
        epoch=_int(headers.get("epoch", 0), "epoch"),
        seq=_int(headers.get("seq", 0), "seq"),
        traceparent=str(headers.get("traceparent") or ""),
        reply_to=message.reply_to or "",
        published_ns=_int(headers.get("published_ns", 0), "published_ns"),
        schema_version=version,
    )


def _int(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise PoisonError(f"header {name}: a whole number was expected, found {value!r}")
    return value
