"""What the shim adapter needs of a resource manager: one that runs, or a simulated one."""

from typing import Protocol

from services.shim_adapter.mirror.calls import Call, News
from shared.messages.commands import NodeSpec, PodName, PodSpec
from shared.messages.find_pod import PodFound


class CommandRefusedError(ValueError):
    """A resource manager will not do what it was asked; the message says why."""


class Backend(Protocol):
    """A resource manager that can be driven a step at a time."""

    @property
    def is_ready(self) -> bool:
        """Return whether everything that exists is known; before that nothing may be said."""

    def activate(self) -> None:
        """Take in that the machine has become the active one, so that it can become ready."""

    def carry_out(self, call: Call, now_ns: int) -> list[News]:
        """Do what the mirror asks; return what came of it at once."""

    def advance(self, now_ns: int) -> list[News]:
        """Return what has happened up to a moment, in order."""

    def next_due_ns(self) -> int | None:
        """Return when something will happen by itself, or None."""

    def find_held(self, name: str) -> PodFound | None:
        """Return a pod that is held back by its uid, else one of this name; None: it is not."""

    def delete_pods(self, names: tuple[PodName, ...], now_ns: int) -> list[News]:
        """Delete pods by name. Raises CommandRefusedError, and has then changed nothing."""


class Playground(Protocol):
    """A resource manager whose pods and nodes users make through us: a simulated one.

    What it will not do raises CommandRefusedError, and has then changed nothing.
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
        """Stop confirming what the core released, or let what was held go."""
