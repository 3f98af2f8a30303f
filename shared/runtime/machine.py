"""The interface of a machine that a host drives, and its optional methods."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from shared.bus.errors import NotNowError
from shared.messages.envelope import Envelope, Outgoing
from shared.messages.sections import coalesced
from shared.runtime.figures import Figures
from shared.runtime.pauses import PAUSE, why_failed

log = structlog.get_logger("muster.host")


class Machine(Protocol):
    """A machine that a host drives. ``handle`` handles a message, ``flush`` ends a batch.

    ``recovers`` declares that it gets all its state from others: its messages may be lost.

    Optional methods:
    ``prepare(envelope)`` returns work to do before the message is handled, or None. It runs in a
    thread, while heartbeats continue; messages keep their order.
    ``slices(envelope, now_ns, said)`` does the same as ``handle`` in steps: it adds the answers to
    ``said``, and yields where other tasks may run; nothing is sent until it ends. It must be
    defined by the machine's own class; for a wrapper that delegates unknown attributes, ``handle``
    is called.
    ``is_flush_long()`` returns whether the next flush takes longer than heartbeats can wait. It
    then runs in a thread, and must not change anything that is read outside the host.
    ``next_due_ns()`` returns when the machine is to get a Tick if no message arrives before, or
    None.
    ``on_unsendable(envelope, item, reason, now_ns)`` is called for an item that could not be sent,
    and returns messages about it; ``item`` None stands for the whole message.
    """

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Handle a message and return the answers."""


class Driven:
    """The machine of a host; it is replaced by a new one when the host starts over."""

    def __init__(self, make: Callable[[], Machine], service: str) -> None:
        self.machine: Any = make()
        self._make = make
        self._service = service

    def renew(self) -> None:
        """Replace the machine with a new, empty one."""
        self.machine = self._make()

    @property
    def is_ready(self) -> bool:
        """Whether it can answer requests."""
        return bool(getattr(self.machine, "is_ready", True))

    @property
    def is_synced(self) -> bool:
        """Whether it has recovered."""
        return bool(getattr(self.machine, "is_synced", True))

    @property
    def epoch(self) -> int:
        """Its current epoch; 0 if it has none."""
        epoch: int = getattr(self.machine, "epoch", 0)
        return epoch

    @property
    def recovers(self) -> bool:
        """Whether it gets all its state from others."""
        return bool(getattr(self.machine, "recovers", False))

    def figures(self) -> Figures:
        """Return the machine's figures."""
        figures = getattr(self.machine, "figures", None)
        found: Figures = figures() if figures is not None else {}
        return found

    def next_due_ns(self) -> int | None:
        """Return when the machine is to get a Tick, or None."""
        next_due = getattr(self.machine, "next_due_ns", None)
        due_ns: int | None = next_due() if next_due is not None else None
        return due_ns

    async def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Handle a message; other tasks run between the slices of a long one."""
        if not hasattr(type(self.machine), "slices"):  # do not bypass a wrapper's ``handle``
            return coalesced(self.machine.handle(envelope, now_ns))
        said: list[Outgoing] = []
        for _ in self.machine.slices(envelope, now_ns, said):
            await asyncio.sleep(0)
        return coalesced(said)

    async def prepare(self, envelope: Envelope) -> None:
        """Run the work that a message needs before it is handled, in a thread."""
        prepare = getattr(self.machine, "prepare", None)
        work: Callable[[], object] | None = prepare(envelope) if prepare is not None else None
        if work is not None:
            await asyncio.to_thread(work)

    @property
    def has_flush(self) -> bool:
        """Whether the machine has a ``flush``."""
        return hasattr(self.machine, "flush")

    async def flush(self, now_ns: int) -> list[Outgoing]:
        """End a batch; retry while the state cannot be saved (rule 8)."""
        try:
            return await self._flush(now_ns)
        except NotNowError as error:
            self._cannot_remember(str(error))
            again = AsyncRetrying(
                retry=retry_if_exception_type(NotNowError),
                wait=PAUSE,
                before_sleep=self._cannot_remember_yet,
            )
            return await again(self._flush, now_ns)

    async def _flush(self, now_ns: int) -> list[Outgoing]:
        """Return the answers of a flush, run in a thread if it is long. Raises NotNowError."""
        flush = self.machine.flush
        is_long = getattr(self.machine, "is_flush_long", None)
        if is_long is not None and is_long():
            return coalesced(await asyncio.to_thread(flush, now_ns))
        return coalesced(flush(now_ns))

    def _cannot_remember_yet(self, attempts: RetryCallState) -> None:
        self._cannot_remember(why_failed(attempts))

    def _cannot_remember(self, error: str) -> None:
        log.error(
            "the state could not be saved; trying again",
            service=self._service,
            error=error,
        )

    def on_unsendable(
        self, envelope: Envelope, item: object | None, reason: str, now_ns: int
    ) -> list[Outgoing]:
        """Inform the machine of an unsendable item; return its messages about it."""
        hear = getattr(self.machine, "on_unsendable", None)
        return coalesced(hear(envelope, item, reason, now_ns)) if hear is not None else []
