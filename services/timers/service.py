"""The timers as a service: which machine runs at which inbox."""

from services.timers.wheel import TimerWheel
from shared.messages.envelope import TIMERS

INBOX = TIMERS


def make_machine(instance: str) -> TimerWheel:
    """Return a wheel without timers: it asks the core for them at the first message."""
    return TimerWheel(instance)
