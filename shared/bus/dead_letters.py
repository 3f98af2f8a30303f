"""Counts dead letters where they are made: by hand, or because a message cannot be read."""

from prometheus_client import Counter, Gauge

from shared.messages.routes import SERVICES

MAX_SHOWN_BYTES = 4_096  # bytes of a dead letter's body shown to users; the rest is omitted
MAX_REASON = 1_000  # characters of the reason of a dead letter; cut

_PUT_ASIDE = Counter("muster_messages_dead_lettered", "Dead-lettered messages", ["service"])

_LYING = Gauge("muster_dead_letters", "Messages that lie in the dead-letter queues now")
for _service in SERVICES:
    _PUT_ASIDE.labels(_service)  # exported from the start: an alert needs the step from 0 to 1


def note_dead_letters(total: int) -> None:
    """Record how many dead letters there are, those of the broker included."""
    _LYING.set(total)


def count_dead_letter(service: str) -> None:
    """Count a message that a service's inbox could not be rid of otherwise."""
    _PUT_ASIDE.labels(service).inc()
