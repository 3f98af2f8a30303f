"""The timers as a service: the machine of each partition."""

from services.timers.wheel import TimerWheel
from shared.model.names import DEFAULT_PARTITION


def make_machine(instance: str, partition: str = DEFAULT_PARTITION) -> TimerWheel:
    """Return a wheel without timers: it asks its core for them at the first message."""
    return TimerWheel(instance, partition)
