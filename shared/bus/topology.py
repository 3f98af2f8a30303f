"""What exists on a broker: one exchange, an inbox a receiver, a dead-letter queue a service.

    <prefix>           topic exchange     routing key = the address and the kind of the message,
                                          "core.default.SyncBegin"; until 0.1 the address alone
    <prefix>.core.default        quorum, single active consumer: an ordered inbox, standbys wait
    <prefix>.core.gpu            of another partition: declared by its first sender or reader
                                 there first, gone PARTITION_EXPIRES after its last reader
    <prefix>.dead                direct exchange
    <prefix>.dead.core           what could not be handled, with the reason in a header
    <prefix>.api.trace           stream: the records of the tap, read from its start by each replica
    (exclusive queues)           one an API replica, bound to "api.all.#", "api.<instance>.#"; one a
                                 process of core and timers, of "core_members", "timers_members"

Every argument is stated: brokers' defaults differ between versions
(docs/rules/rabbitmq.md#topology). Limits: MAX_INBOX_MESSAGES (publishers are refused, and try
again), MAX_DEAD_LETTERS of MAX_DEAD_BYTES (the oldest go), MAX_TRACE_BYTES and MAX_TRACE_AGE (the
oldest segments go). The delivery limit is as good as off, because it counts messages that were only
prefetched; poison is found by decoding, and by the host's count of crashes. It is a large number
and not -1: RabbitMQ 3.10 takes -1 for "dead-letter at the first redelivery" (docs/adr/0005).
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
    """Return the name of the exchange that everything is published to."""
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
    """Return what binds an inbox: messages of every kind, and those that name none."""
    return f"{inbox.routing_key}.#"


@dataclass(frozen=True, slots=True)
class DurableQueue:
    """A queue that outlives its readers, whose it is, and what binds it to which exchange."""

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
    """Return every argument of a durable inbox's queue.

    It has no dead-letter exchange: what cannot be handled is dead-lettered by its reader, with the
    reason, and what expires unread is a heartbeat, which means nothing any more.
    """
    return {
        "x-queue-type": "quorum",
        "x-single-active-consumer": True,
        "x-delivery-limit": MAX_DELIVERIES,
        "x-max-length": MAX_INBOX_MESSAGES,
        "x-overflow": "reject-publish",
    }


def partition_queue(prefix: str, inbox: Address) -> DurableQueue | None:
    """Return the queue of an inbox that is a further partition's; None: it is there always.

    What one loses that expires is made good by the recovery path.
    """
    if not inbox.is_durable or inbox in DURABLE_INBOXES:
        return None
    arguments = {**inbox_arguments(), "x-expires": PARTITION_EXPIRES_MS}
    name = inbox_name(prefix, inbox)
    return DurableQueue(inbox.service, name, arguments, exchange_name(prefix), binding_key(inbox))


def dead_arguments() -> dict[str, Any]:
    """Return every argument of a dead-letter queue; to read one is a delivery, too."""
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": MAX_DELIVERIES,
        "x-max-length": MAX_DEAD_LETTERS,
        "x-max-length-bytes": MAX_DEAD_BYTES,
        "x-overflow": "drop-head",
    }


def feed_arguments() -> dict[str, Any]:
    """Return every argument of an API replica's queue.

    When it overflows, the replica sees a gap in the sequence and asks for a snapshot.
    """
    return {"x-queue-type": "classic", "x-max-length": MAX_FEED_MESSAGES, "x-overflow": "drop-head"}


def trace_arguments() -> dict[str, Any]:
    """Return every argument of the stream with the records of the tap."""
    return {
        "x-queue-type": "stream",
        "x-max-length-bytes": MAX_TRACE_BYTES,
        "x-max-age": MAX_TRACE_AGE,
        "x-stream-max-segment-size-bytes": _TRACE_SEGMENT_BYTES,
    }


def trace_consumer_arguments() -> dict[str, Any]:
    """Return the arguments of a replica that reads the stream: from its start."""
    return {"x-stream-offset": "first"}
