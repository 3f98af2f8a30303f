"""Run the core alone: ``python -m services.core``, configured by the environment."""

from collections.abc import Callable

from services.core.service import INBOX, make_machine
from shared.messages.envelope import Address
from shared.runtime.host import Machine
from shared.runtime.service import run_service
from shared.runtime.settings import Settings


def prepare(_: Settings, instance: str) -> tuple[Address, Callable[[], Machine]]:
    """Return the core's inbox and what makes its machine."""
    return INBOX, lambda: make_machine(instance)


if __name__ == "__main__":
    run_service("core", prepare)
