"""The heartbeats of a host, which detect whether it is active or has lost its place.

A host publishes heartbeats to its own inbox. An instance that handles one is the active reader, and
reports that to the API with the next one. If heartbeats are confirmed but not delivered, the broker
delivers nothing to this reader (rule 11 of ``shared/runtime/host.py``); if they are all that is
delivered, it uses another broker node (rule 13).
"""

import asyncio
from collections.abc import Sequence

import structlog

from shared.bus.base import Delivery
from shared.bus.errors import BusUnavailableError, InboxFullError
from shared.messages.envelope import API_ALL, Envelope, Outgoing, envelope_of
from shared.messages.protocol import AtWork, Heartbeat
from shared.model.units import NANOS_PER_SECOND, seconds
from shared.runtime.alone import Alone
from shared.runtime.machine import Driven
from shared.runtime.own_messages import OwnMessages
from shared.runtime.pauses import RETRY_FIRST_SECONDS
from shared.runtime.place import Place
from shared.runtime.stopping import stop_if_cancelled
from shared.runtime.unread import Unread

MISSED_BEATS = 3  # heartbeats in a row; a host that has handled none of them does not work
WAY_NS = seconds(2)  # additional time for transport and queueing of a heartbeat
_BESIDE = -1  # index of AtWork: answers to a heartbeat are numbered from 0
log = structlog.get_logger("muster.host")


class Beats:
    """The heartbeats of one host, every ``heartbeat_ns``; with 0, a single one at the start."""

    def __init__(
        self,
        place: Place,
        driven: Driven,
        own: OwnMessages,
        *,
        heartbeat_ns: int,
        silent_ns: int,
    ) -> None:
        self._place = place
        self._inbox = place.inbox
        self._bus = place.bus
        self._driven = driven
        self._own = own
        self._heartbeat_ns = heartbeat_ns
        self._silent_ns = silent_ns
        self._unheard = 0  # confirmed while it waited, since the last message
        self._unread = Unread(heartbeat_ns, silent_ns)
        self._alone = Alone(place.instance, heartbeat_ns, silent_ns)
        self._beaten_ns = place.now_ns  # when an own heartbeat was last handled
        self._is_beaten = False  # since the last AtWork
        self._last = (0, 0)  # the epoch and the number of the last change that was published

    @property
    def is_at_work(self) -> bool:
        """Whether the host is active and has recently handled one of its own heartbeats.

        A host with a hanging connection may believe for long that it is active while another one
        is.
        """
        silent_ns = self._place.now_ns - self._beaten_ns
        return self._place.is_active and (
            not self._heartbeat_ns or silent_ns <= silence_ns(self._heartbeat_ns)
        )

    def arrived(self, deliveries: Sequence[Delivery] = ()) -> None:
        """Record that messages arrived, or that the place is new."""
        self._unheard = 0
        self._unread.forget()
        self._alone.heard(deliveries)

    def handled(self, message: object) -> None:
        """Record a handled message; an own heartbeat proves that the host works."""
        if isinstance(message, Heartbeat) and message.instance == self._place.instance:
            self._beaten_ns, self._is_beaten = self._place.now_ns, True

    def published(self, answers: Sequence[Envelope]) -> None:
        """Record the last published change, so that readers can detect that they missed it."""
        for envelope in answers:
            if envelope.seq and envelope.to == API_ALL:
                self._last = envelope.epoch, envelope.seq

    async def run(self) -> None:
        """Publish heartbeats. Raises BusUnavailableError if the place is lost."""
        while True:
            stop_if_cancelled()
            beat = self._own.make(Heartbeat(self._place.instance), what="beat/")
            try:
                await self._bus.publish([beat, *self._work(beat)])
            except InboxFullError:  # the bus works, but the inbox may have no reader
                await self._check_place()
                await self._place.clock.sleep_until(beat.published_ns + self._heartbeat_ns)
                continue
            except BusUnavailableError:
                await asyncio.sleep(RETRY_FIRST_SECONDS)
                continue
            if not self._heartbeat_ns:
                return
            await self._check_place()
            await asyncio.sleep(self._heartbeat_ns / NANOS_PER_SECOND)

    def _work(self, beat: Envelope) -> list[Envelope]:
        """Return the AtWork message to publish with a heartbeat, if the previous one was handled.

        After a suspension the last one is too old: another instance may be active by now.
        """
        is_beaten, self._is_beaten = self._is_beaten, False
        if not (is_beaten and self.is_at_work and self._inbox.is_durable):
            return []
        at_work = AtWork(self._place.instance, self._driven.is_synced)
        epoch, seq = self._last
        seq = seq if epoch == self._driven.epoch else 0
        return [
            envelope_of(
                Outgoing(API_ALL, at_work, epoch=self._driven.epoch, seq=seq),
                cause=beat, index=_BESIDE, source=self._inbox.service,
                now_ns=beat.published_ns, partition=self._place.partition,
            )
        ]  # fmt: skip

    async def _check_place(self) -> None:
        """Count a heartbeat that was confirmed, or refused by a full inbox.

        Raises BusUnavailableError if none is delivered.

        Handling takes time, and a resumed process finds messages waiting. Therefore heartbeats are
        counted instead of seconds, and only while the host waits.
        """
        where = self._inbox.routing_key
        if not self._place.is_active:
            await self._check(where)
            return
        self._unheard += self._place.is_waiting
        if self._unheard * self._heartbeat_ns >= self._silent_ns:
            log.warning(
                "its own heartbeats do not arrive: it has lost its place and takes another",
                inbox=where,
            )
            raise BusUnavailableError(f"the broker delivers nothing to the reader of {where}")
        if not self._inbox.is_durable and self._alone.is_too_long() and self._bus.leave_node():
            log.warning(
                "nothing arrives from other services: trying the next broker node", inbox=where
            )
            raise BusUnavailableError(f"{where} hears no other service")

    async def _check(self, where: str) -> None:
        """Count a standby's heartbeat. Raises BusUnavailableError if the inbox has no reader."""
        if not (self._unread.put_in() and self._inbox.is_durable):
            return
        waiting = (await self._bus.fill(self._inbox)).waiting
        if not self._place.is_active and self._unread.saw(waiting):
            log.warning(
                "messages wait without a reader: taking a place again",
                inbox=where,
                waiting=waiting,
            )
            raise BusUnavailableError(f"nobody reads {where}")


def silence_ns(heartbeat_ns: int) -> int:
    """Return after how many nanoseconds of silence an instance counts as dead."""
    return MISSED_BEATS * heartbeat_ns + WAY_NS
