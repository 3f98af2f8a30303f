"""Metrics of dead letters: how many were made by each service, and how many there are now."""

from prometheus_client import Counter, Gauge

from shared.messages.routes import SERVICES

MAX_SHOWN_BYTES = 4_096  # bytes of a dead letter's body shown to users; the rest is omitted
MAX_REASON = 1_000  # characters of the reason of a dead letter; cut

_PUT_ASIDE = Counter("muster_messages_dead_lettered", "Dead-lettered messages", ["service"])

_LYING = Gauge("muster_dead_letters", "Messages that lie in the dead-letter queues now")
for _service in SERVICES:
    _PUT_ASIDE.labels(_service)  # exported from the start: an alert needs the step from 0 to 1


def note_dead_letters(total: int) -> None:
    """Set the gauge of dead letters that exist now, including those that the broker made."""
    _LYING.set(total)


def count_dead_letter(service: str) -> None:
    """Count a message dead-lettered by a service."""
    _PUT_ASIDE.labels(service).inc()
