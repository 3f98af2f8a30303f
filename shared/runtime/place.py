"""The place of one instance at its inbox: its bus, its clock, and whether it is active."""

from dataclasses import dataclass

from shared.bus.base import Bus
from shared.messages.envelope import Address
from shared.runtime.clock import Clock


@dataclass(slots=True)
class Place:
    """State that all parts of a host share.

    ``is_active``: it is the active reader of its inbox, as far as it knows; ``is_waiting``: it
    waits for a message.
    """

    inbox: Address
    instance: str
    partition: str
    bus: Bus
    clock: Clock
    is_active: bool = False
    is_waiting: bool = False

    @property
    def now_ns(self) -> int:
        """Current time of its clock."""
        return self.clock.now_ns()
