"""The place of one instance at its inbox: on which bus, by which clock, and whether it reads."""

from dataclasses import dataclass

from shared.bus.base import Bus
from shared.messages.envelope import Address
from shared.runtime.clock import Clock


@dataclass(slots=True)
class Place:
    """The state of a host that all its parts share.

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
        """Return the time by its clock."""
        return self.clock.now_ns()
