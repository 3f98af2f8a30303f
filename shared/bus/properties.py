"""Checks the envelope fields sent as AMQP properties, of at most MAX_PROPERTY_BYTES each."""

from shared.bus.errors import PoisonError
from shared.messages.envelope import SCHEMA_VERSION, Envelope
from shared.model.texts import is_writable

MAX_PROPERTY_BYTES = 255
_MOST_SHOWN = 60


def check_version(version: int) -> None:
    """Raise PoisonError for a message of a newer schema version."""
    if version > SCHEMA_VERSION:
        raise PoisonError(
            f"schema version {version} is newer than {SCHEMA_VERSION}, which this service reads"
        )


def check_properties(envelope: Envelope) -> None:
    """Raise PoisonError for an envelope that no broker accepts, whatever its message is.

    A ``correlation_id`` is not checked: it is cut to length, because it is only informative.
    """
    properties = {
        "address": f"{envelope.to.routing_key}.{envelope.kind}",
        "message_id": envelope.message_id,
        "reply_to": envelope.reply_to,
        "source": envelope.source,
    }
    for name, text in properties.items():
        size = len(text.encode(errors="surrogatepass"))
        if size > MAX_PROPERTY_BYTES:
            said = ascii(text[:_MOST_SHOWN])
            reason = f"its {name} has {size} bytes, at most {MAX_PROPERTY_BYTES}: {said}…"
            raise PoisonError(f"{envelope.kind}: {reason}")
        if not is_writable(text):
            raise PoisonError(f"{envelope.kind}: its {name} cannot be written: {text!a}")
