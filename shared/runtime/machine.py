"""The machine that a host drives, and what of it is optional."""

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

    One that ``recovers`` gets everything it knows from others: its messages may be lost.

    One with ``prepare(envelope)`` returns what has to be worked out before it is handled, or None:
    it runs in a thread, while heartbeats go on, and messages keep their order.
    One with ``slices(envelope, now_ns, said)`` does the same as ``handle`` by and by: it adds the
    answers to ``said``, and yields where the loop may go on; until it ends none is said. It must
    be of the machine's own class: a wrapper that hands the rest through sees ``handle``.
    One with ``is_flush_long()`` says whether the next flush takes longer than heartbeats can wait;
    it then runs in a thread, and changes nothing that others than the host read.
    One with ``next_due_ns()`` says when it is to get a Tick, if nothing comes before; None: never.
    One with ``on_unsendable(envelope, item, reason, now_ns)`` hears of what could not be sent, and
    returns what is to be said of it; ``item`` is None for the whole message.
    """

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Take a message in and return the answers."""


class Driven:
    """The machine of a host. A new one takes its place when the host starts over."""

    def __init__(self, make: Callable[[], Machine], service: str) -> None:
        self.machine: Any = make()
        self._make = make
        self._service = service

    def renew(self) -> None:
        """Begin with a new machine, which knows nothing."""
        self.machine = self._make()

    @property
    def is_ready(self) -> bool:
        """Return whether it has what it needs to be asked."""
        return bool(getattr(self.machine, "is_ready", True))

    @property
    def is_synced(self) -> bool:
        """Return whether it has recovered."""
        return bool(getattr(self.machine, "is_synced", True))

    @property
    def epoch(self) -> int:
        """Return the epoch that it speaks in; 0: it has none."""
        epoch: int = getattr(self.machine, "epoch", 0)
        return epoch

    @property
    def recovers(self) -> bool:
        """Return whether it gets everything it knows from others."""
        return bool(getattr(self.machine, "recovers", False))

    def figures(self) -> Figures:
        """Return what it knows about itself."""
        figures = getattr(self.machine, "figures", None)
        found: Figures = figures() if figures is not None else {}
        return found

    def next_due_ns(self) -> int | None:
        """Return when it is to get a Tick, or None."""
        next_due = getattr(self.machine, "next_due_ns", None)
        due_ns: int | None = next_due() if next_due is not None else None
        return due_ns

    async def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Handle a message; between the slices of a long one other tasks run."""
        if not hasattr(type(self.machine), "slices"):  # a wrapper's own handle is never passed by
            return coalesced(self.machine.handle(envelope, now_ns))
        said: list[Outgoing] = []
        for _ in self.machine.slices(envelope, now_ns, said):
            await asyncio.sleep(0)
        return coalesced(said)

    async def prepare(self, envelope: Envelope) -> None:
        """Have worked out, in a thread, what a message needs before it is handled."""
        prepare = getattr(self.machine, "prepare", None)
        work: Callable[[], object] | None = prepare(envelope) if prepare is not None else None
        if work is not None:
            await asyncio.to_thread(work)

    @property
    def has_flush(self) -> bool:
        """Return whether the end of a batch means anything to it."""
        return hasattr(self.machine, "flush")

    async def flush(self, now_ns: int) -> list[Outgoing]:
        """End a batch; a state that cannot be saved now is retried (rule 8)."""
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
        """Report to the machine what could not be sent; return its messages about it."""
        hear = getattr(self.machine, "on_unsendable", None)
        return coalesced(hear(envelope, item, reason, now_ns)) if hear is not None else []
