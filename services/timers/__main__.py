"""Run the timers alone: ``python -m services.timers``, configured by the environment."""

from collections.abc import Callable

from services.timers.service import INBOX, make_machine
from shared.messages.envelope import Address
from shared.runtime.host import Machine
from shared.runtime.service import run_service
from shared.runtime.settings import Settings


def prepare(_: Settings, instance: str) -> tuple[Address, Callable[[], Machine]]:
    """Return the timers' inbox and what makes their machine."""
    return INBOX, lambda: make_machine(instance)


if __name__ == "__main__":
    run_service("timers", prepare)
