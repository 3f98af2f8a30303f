"""Envelopes as AMQP messages and back: identities in properties, the rest in headers."""

import aio_pika

from shared.bus import codec
from shared.bus.arrived import Message
from shared.bus.bodies import LENGTH, check_length
from shared.bus.errors import PoisonError
from shared.bus.properties import MAX_PROPERTY_BYTES, check_properties, check_version
from shared.messages.envelope import API_ALL, API_TRACE, SCHEMA_VERSION, Address, Envelope

EXPIRING = "Heartbeat"  # the kind that nobody needs to read later
_BEAT_EXPIRES_SECONDS = 30


def message_of(envelope: Envelope) -> aio_pika.Message:
    """Return an envelope as an AMQP message. Raises PoisonError for one that cannot be sent."""
    check_properties(envelope)
    is_beat = envelope.kind == EXPIRING
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


def routing_key(to: Address, kind: str) -> str:
    """Return the routing key of a message: its address and its kind."""
    return f"{to.routing_key}.{kind}"


def _check_key(key: str, inbox: Address, kind: str) -> None:
    """Raise PoisonError for a kind that is not the one that the broker let through.

    A key without a kind is an older version's; a broker with permissions lets none through.
    """
    is_old = key in {to.routing_key for to in (inbox, API_ALL, API_TRACE)}
    if not is_old and key.rpartition(".")[2] != kind:
        raise PoisonError(f"it was published as {key} and says that it is {kind}")


def _short(text: str) -> str:
    """Return a text as far as a property of AMQP holds it; it names a story, and finds nothing."""
    return text.encode(errors="replace")[:MAX_PROPERTY_BYTES].decode(errors="ignore")


def envelope_in(message: Message, inbox: Address, key: str = "") -> Envelope:
    """Return the envelope in an AMQP message. Raises PoisonError.

    ``key`` is what it was published with, where that is not the message's own.
    """
    headers = message.headers
    version = _int(headers.get("schema_version", SCHEMA_VERSION), "schema_version")
    check_version(version)
    if not message.message_id:
        raise PoisonError("a message needs a message_id")
    kind = message.type or ""
    check_length(kind, headers.get(LENGTH))
    _check_key(key or message.routing_key or "", inbox, kind)
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
