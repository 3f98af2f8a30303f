"""Converts envelopes to AMQP messages and back: identities in properties, the rest in headers."""

import aio_pika

from shared.bus import codec
from shared.bus.arrived import Message
from shared.bus.bodies import LENGTH, check_length
from shared.bus.errors import PoisonError
from shared.bus.properties import MAX_PROPERTY_BYTES, check_properties, check_version
from shared.messages.envelope import API_ALL, API_TRACE, SCHEMA_VERSION, Address, Envelope

EXPIRING = "Heartbeat"  # the kind that is worthless when it is read late
_BEAT_EXPIRES_SECONDS = 30


def message_of(envelope: Envelope) -> aio_pika.Message:
    """Convert an envelope to an AMQP message. Raises PoisonError for one that cannot be sent."""
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
    """Return the routing key of a message: its address, then its kind."""
    return f"{to.routing_key}.{kind}"


def _check_key(key: str, inbox: Address, kind: str) -> None:
    """Raise PoisonError if a message's kind is not the kind in its routing key.

    Older versions publish without a kind in the key; a broker with permissions rejects such keys.
    """
    is_old = key in {to.routing_key for to in (inbox, API_ALL, API_TRACE)}
    if not is_old and key.rpartition(".")[2] != kind:
        raise PoisonError(f"it was published as {key} and says that it is {kind}")


def _short(text: str) -> str:
    """Cut a text to the length of an AMQP property: a correlation identity is only informative."""
    return text.encode(errors="replace")[:MAX_PROPERTY_BYTES].decode(errors="ignore")


def envelope_in(message: Message, inbox: Address, key: str = "") -> Envelope:
    """Convert an AMQP message to an envelope. Raises PoisonError.

    ``key`` is the original routing key, if it is not the message's own (dead letters).
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
