"""The outbox of a host: publishes messages until they are confirmed, as far as possible."""

import asyncio

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from shared.bus.errors import BusUnavailableError, InboxFullError, PoisonError
from shared.bus.fitting import Unsendable, fitting, numbered
from shared.messages.envelope import Envelope
from shared.runtime.machine import Driven
from shared.runtime.metrics import HostMetrics
from shared.runtime.pauses import PAUSE, why_failed
from shared.runtime.place import Place

_IS_AWAY = retry_if_exception_type(BusUnavailableError)
log = structlog.get_logger("muster.host")


class StuckError(Exception):
    """A deadlock: the receiver waits for room in this host's own inbox (rule 9)."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} messages wait here")
        self.waiting = waiting


class Outbox:
    """Publishes the messages of one host."""

    def __init__(self, place: Place, driven: Driven, metrics: HostMetrics) -> None:
        self._bus = place.bus
        self._inbox = place.inbox
        self._driven = driven
        self._metrics = metrics

    async def send(self, envelopes: list[Envelope]) -> list[Unsendable]:
        """Publish answers; if one cannot be sent as it is, publish the sendable parts of each.

        Returns the skipped items (rule 6). Raises StuckError. Raises PoisonError, having published
        nothing, for an unsendable message that cannot be split and that no request waits for.
        """
        try:
            await self.publish(envelopes)
        except PoisonError:
            return await self._send_what_fits(envelopes)
        return []

    async def _send_what_fits(self, envelopes: list[Envelope]) -> list[Unsendable]:
        """Publish in parts, message by message; return what was skipped."""
        fitted: list[list[Envelope]] = []
        aside: list[Unsendable] = []
        for envelope in envelopes:
            parts, refused = fitting(envelope)
            for item in refused:
                if item.item is None and not envelope.reply_to:
                    raise PoisonError(item.reason)
            fitted.append(parts)
            aside += refused
            await asyncio.sleep(0)  # splitting is slow: heartbeats must continue
        flat = iter(numbered([part for parts in fitted for part in parts]))
        for parts in fitted:
            await self.publish([next(flat) for _ in parts])
        return aside

    async def publish(self, envelopes: list[Envelope]) -> None:
        """Publish, and retry until confirmed, with the same identities.

        Raises StuckError. Raises PoisonError, having published nothing, if one cannot be sent as it
        is.
        """
        if not envelopes:
            return
        try:
            await self._publish_once(envelopes)
        except BusUnavailableError as error:
            self._report_again(str(error))
            again = AsyncRetrying(retry=_IS_AWAY, wait=PAUSE, before_sleep=self._report_another_try)
            await again(self._publish_once, envelopes)
        self._metrics.published(len(envelopes))

    async def _publish_once(self, envelopes: list[Envelope]) -> None:
        try:
            await self._bus.publish(envelopes)
        except InboxFullError:
            if self._driven.recovers:
                fill = await self._bus.fill(self._inbox)
                if fill.is_full:
                    raise StuckError(fill.waiting) from None
            raise

    def _report_another_try(self, attempts: RetryCallState) -> None:
        self._report_again(why_failed(attempts))

    def _report_again(self, error: str) -> None:
        log.warning("publishing again", service=self._inbox.service, error=error)
