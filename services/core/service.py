"""The core as a service: which machine runs at which inbox."""

from services.core.configuration import parse_configuration
from services.core.scheduler.scheduler import Scheduler
from shared.messages.envelope import CORE

INBOX = CORE


def make_machine(instance: str) -> Scheduler:
    """Return a scheduler that knows nothing yet: it recovers at the first message."""
    return Scheduler(instance, parse_configuration)
