"""The interface of a resource manager, real or simulated, for the shim adapter."""

from typing import Protocol

from services.shim_adapter.mirror.calls import Call, News
from shared.messages.commands import NodeSpec, PodName, PodSpec
from shared.messages.find_pod import PodFound


class CommandRefusedError(ValueError):
    """A resource manager refuses a command; the message is the reason."""


class Backend(Protocol):
    """A resource manager that is driven step by step."""

    @property
    def is_ready(self) -> bool:
        """Return whether all existing objects are known; until then nothing may be reported."""

    def activate(self) -> None:
        """Start to become ready: the machine is the active one now."""

    def carry_out(self, call: Call, now_ns: int) -> list[News]:
        """Carry out a call of the mirror; return the immediate results."""

    def advance(self, now_ns: int) -> list[News]:
        """Return the events up to a moment, in order."""

    def next_due_ns(self) -> int | None:
        """Return the time of the next timed event, or None."""

    def find_held(self, name: str) -> PodFound | None:
        """Return the pod held back with this uid, else one with this name, else None."""

    def delete_pods(self, names: tuple[PodName, ...], now_ns: int) -> list[News]:
        """Delete pods by name, all or none. Raises CommandRefusedError."""


class Playground(Protocol):
    """A simulated resource manager, whose pods and nodes users create through the shim adapter.

    A command that it refuses raises CommandRefusedError and changes nothing.
    """

    def create_pods(self, pods: tuple[PodSpec, ...], cause: str, now_ns: int) -> list[News]:
        """Create pods that users submitted."""

    def place_foreign(
        self, node: str, pods: tuple[PodSpec, ...], cause: str, now_ns: int
    ) -> list[News]:
        """Have another scheduler place pods on a node, or resize those that are there."""

    def change_nodes(self, specs: tuple[NodeSpec, ...], now_ns: int) -> list[News]:
        """Add, update, drain, undrain or remove nodes, all of them or none."""

    def hold_confirmations(self, *, held: bool, now_ns: int) -> list[News]:
        """Stop confirming the core's releases, or confirm the held ones and go on."""
