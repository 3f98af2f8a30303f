"""The heartbeats of a host, by which it learns that it is active, or that its place is lost.

It publishes them to its own inbox: an instance that handles one is the active reader, and works;
with the next one it reports this to the API. If heartbeats are confirmed but not delivered, the
broker delivers nothing to this reader (rule 11 of ``shared/runtime/host.py``).
"""

import asyncio
from collections.abc import Sequence

import structlog

from shared.bus.errors import BusUnavailableError, InboxFullError
from shared.messages.envelope import API_ALL, Envelope, Outgoing, envelope_of
from shared.messages.protocol import AtWork, Heartbeat
from shared.model.units import NANOS_PER_SECOND, seconds
from shared.runtime.machine import Driven
from shared.runtime.own_messages import OwnMessages
from shared.runtime.pauses import RETRY_FIRST_SECONDS
from shared.runtime.place import Place
from shared.runtime.stopping import stop_if_cancelled
from shared.runtime.unread import Unread

MISSED_BEATS = 3  # heartbeats in a row; a host that has handled none of them does not work
WAY_NS = seconds(2)  # that a heartbeat may be on its way, and wait to be handled, besides
_BESIDE = -1  # of what is published beside a heartbeat: its answers are numbered from 0
log = structlog.get_logger("muster.host")


class Beats:
    """The heartbeats of one host, every ``heartbeat_ns``; 0: there is one and no more."""

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
        self._unheard = 0  # confirmed while it waited, since something came
        self._unread = Unread(heartbeat_ns, silent_ns)
        self._beaten_ns = place.now_ns  # when one of its own was handled last
        self._is_beaten = False  # since the last message that said so
        self._last = (0, 0)  # the epoch and the number of the last change that was published

    @property
    def is_at_work(self) -> bool:
        """Return whether the host is the active one, and has handled a heartbeat of its own lately.

        One whose connection is held may believe itself active for long: another one works then.
        """
        silent_ns = self._place.now_ns - self._beaten_ns
        return self._place.is_active and (
            not self._heartbeat_ns or silent_ns <= silence_ns(self._heartbeat_ns)
        )

    def arrived(self) -> None:
        """Note that a message arrived, or that the place is a new one."""
        self._unheard = 0
        self._unread.forget()

    def handled(self, message: object) -> None:
        """Note a message whose answers are published; an own heartbeat shows the host works."""
        if isinstance(message, Heartbeat) and message.instance == self._place.instance:
            self._beaten_ns, self._is_beaten = self._place.now_ns, True

    def published(self, answers: Sequence[Envelope]) -> None:
        """Note what was published: readers may ask themselves whether the last change has come."""
        for envelope in answers:
            if envelope.seq and envelope.to == API_ALL:
                self._last = envelope.epoch, envelope.seq

    async def run(self) -> None:
        """Put heartbeats in. Raises BusUnavailableError where the place is lost."""
        while True:
            stop_if_cancelled()
            beat = self._own.make(Heartbeat(self._place.instance), what="beat/")
            try:
                await self._bus.publish([beat, *self._work(beat)])
            except InboxFullError:  # the bus is there, and nothing may have been read for long
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
        """Return what the API is to know beside a heartbeat: that the one before was handled.

        One that was stopped since has handled none lately: another may work by now.
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

        Handling takes time, and a resumed process finds messages waiting: so heartbeats are
        counted, and only while the host waits.
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

    async def _check(self, where: str) -> None:
        """Count a standby's heartbeat. Raises BusUnavailableError if none reads the inbox."""
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
    """Return for how long nothing may be heard of an instance that works."""
    return MISSED_BEATS * heartbeat_ns + WAY_NS
