"""Exchanges and queues on a broker: one exchange, an inbox per receiver, dead letters per service.

    <prefix>           topic exchange     routing key = the address and the kind of the message,
                                          "core.default.SyncBegin"; until 0.1 the address alone
    <prefix>.core.default        quorum, single active consumer: an ordered inbox, standbys wait
    <prefix>.core.gpu            inbox of another partition: declared by its first sender or
                                 reader, deleted PARTITION_EXPIRES after its last reader
    <prefix>.dead                direct exchange
    <prefix>.dead.core           messages that cannot be handled, with the reason in a header
    <prefix>.api.trace           stream: records of the trace, read from its start by each replica
    (exclusive queues)           one per API replica, bound to "api.all.#", "api.<instance>.#"; one
                                 per process of core and timers ("core_members", "timers_members")

Every argument is explicit: brokers' defaults differ between versions
(docs/rules/rabbitmq.md#topology). Limits: MAX_INBOX_MESSAGES (publishers are refused, and retry),
MAX_DEAD_LETTERS of MAX_DEAD_BYTES (the oldest are dropped), MAX_TRACE_BYTES and MAX_TRACE_AGE (the
oldest segments are dropped). The delivery limit is practically off, because it counts messages that
were only prefetched; poison messages are found by decoding, and by the host's count of crashes. It
is a large number and not -1: for RabbitMQ 3.10, -1 means "dead-letter at the first redelivery"
(docs/adr/0005).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shared.messages.envelope import API_TRACE, CORE, SHIM_ADAPTER, TIMERS, Address
from shared.messages.routes import SERVICES

MAX_INBOX_MESSAGES = 100_000
MAX_DEAD_LETTERS = 10_000
MAX_DEAD_BYTES = 256 * 1024 * 1024
MAX_FEED_MESSAGES = 50_000
MAX_TRACE_BYTES = 32 * 1024 * 1024
MAX_TRACE_AGE = "1D"
_TRACE_SEGMENT_BYTES = 4 * 1024 * 1024  # what goes at once
MAX_DELIVERIES = 1_000_000_000
PARTITION_EXPIRES_MS = 24 * 3600 * 1000
DURABLE_INBOXES = (CORE, SHIM_ADAPTER, TIMERS)


def exchange_name(prefix: str) -> str:
    """Return the name of the exchange for all messages."""
    return prefix


def dead_exchange_name(prefix: str) -> str:
    """Return the name of the dead-letter exchange."""
    return f"{prefix}.dead"


def inbox_name(prefix: str, inbox: Address) -> str:
    """Return the name of an inbox's queue."""
    return f"{prefix}.{inbox.routing_key}"


def dead_queue_name(prefix: str, service: str) -> str:
    """Return the name of a service's dead-letter queue."""
    return f"{prefix}.dead.{service}"


def binding_key(inbox: Address) -> str:
    """Return the binding key of an inbox: messages of every kind, and keys without a kind."""
    return f"{inbox.routing_key}.#"


@dataclass(frozen=True, slots=True)
class DurableQueue:
    """A queue that outlives its readers: its service, arguments and binding."""

    service: str
    name: str
    arguments: dict[str, Any]
    exchange: str
    key: str


def durable_queues(prefix: str) -> Iterator[DurableQueue]:
    """Yield every queue that outlives its readers."""
    exchange, dead = exchange_name(prefix), dead_exchange_name(prefix)
    for service in SERVICES:
        name = dead_queue_name(prefix, service)
        yield DurableQueue(service, name, dead_arguments(), dead, service)
    kept = [(inbox, inbox_arguments()) for inbox in DURABLE_INBOXES]
    for inbox, arguments in [*kept, (API_TRACE, trace_arguments())]:
        name = inbox_name(prefix, inbox)
        yield DurableQueue(inbox.service, name, arguments, exchange, binding_key(inbox))


def inbox_arguments() -> dict[str, Any]:
    """Return all arguments of a durable inbox's queue.

    It has no dead-letter exchange: the reader dead-letters messages with the reason, and only
    heartbeats, which are worthless later, expire unread.
    """
    return {
        "x-queue-type": "quorum",
        "x-single-active-consumer": True,
        "x-delivery-limit": MAX_DELIVERIES,
        "x-max-length": MAX_INBOX_MESSAGES,
        "x-overflow": "reject-publish",
    }


def partition_queue(prefix: str, inbox: Address) -> DurableQueue | None:
    """Return the queue of a further partition's inbox; None for an inbox that always exists.

    Messages lost because such a queue expired are made up for by recovery.
    """
    if not inbox.is_durable or inbox in DURABLE_INBOXES:
        return None
    arguments = {**inbox_arguments(), "x-expires": PARTITION_EXPIRES_MS}
    name = inbox_name(prefix, inbox)
    return DurableQueue(inbox.service, name, arguments, exchange_name(prefix), binding_key(inbox))


def dead_arguments() -> dict[str, Any]:
    """Return all arguments of a dead-letter queue; reading a letter counts as a delivery."""
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": MAX_DELIVERIES,
        "x-max-length": MAX_DEAD_LETTERS,
        "x-max-length-bytes": MAX_DEAD_BYTES,
        "x-overflow": "drop-head",
    }


def feed_arguments() -> dict[str, Any]:
    """Return all arguments of an API replica's queue.

    When it overflows, the replica detects a gap in the sequence and requests a snapshot.
    """
    return {"x-queue-type": "classic", "x-max-length": MAX_FEED_MESSAGES, "x-overflow": "drop-head"}


def trace_arguments() -> dict[str, Any]:
    """Return all arguments of the trace's stream."""
    return {
        "x-queue-type": "stream",
        "x-max-length-bytes": MAX_TRACE_BYTES,
        "x-max-age": MAX_TRACE_AGE,
        "x-stream-max-segment-size-bytes": _TRACE_SEGMENT_BYTES,
    }


def trace_consumer_arguments() -> dict[str, Any]:
    """Return the consumer arguments of a replica: it reads the stream from its start."""
    return {"x-stream-offset": "first"}
