"""What was put aside is counted where it is put aside: by hand, or because it cannot be read."""

from prometheus_client import Counter

_PUT_ASIDE = Counter("muster_messages_dead_lettered", "Messages put aside", ["service"])


def count_dead_letter(service: str) -> None:
    """Count a message that a service's inbox could not be rid of otherwise."""
    _PUT_ASIDE.labels(service).inc()
