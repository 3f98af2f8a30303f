"""Publishes on one connection: in order, confirmed, on a channel that is replaced when it fails.

Rule 1: messages in flight together are written at once. A full inbox refuses some of them; these
        are retried one by one, in order, for REFUSED_SECONDS (``shared/bus/widths.py``).
Rule 2: messages on their way to a queue leader that failed may never be confirmed. Those not
        confirmed in the first of TRY_SECONDS are written again on another channel, and so on;
        readers discard duplicates. All waits on a replaced channel end, and their messages are
        written to the next one at once.
Rule 3: a channel whose first message found no leader refuses all messages while that node is down.
        If an inbox refuses messages although it has room, or the broker does not say within
        FILL_SECONDS whether it has, another channel is opened.
Rule 4: messages to replicas and to the trace need not arrive. Their confirms are awaited for
        REST_SECONDS; after a wait without success, not at all for UNCONFIRMED_SECONDS. Readers
        notice missing messages by their numbers. Unconfirmed trace messages are retained, at most
        MAX_KEPT (then the oldest are dropped), and written once more after that time.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel
from aio_pika.exceptions import DeliveryError, PublishError
from tenacity import RetryCallState, retry, retry_if_exception, wait_exponential

from shared.bus.amqp_message import routing_key
from shared.bus.base import REFUSED_SECONDS, Fill
from shared.bus.links import Links
from shared.bus.refusals import Refusals
from shared.bus.together import Letter, UnconfirmedError, publish_together
from shared.bus.widths import Addressed, Widths, lanes_of
from shared.messages.envelope import API_TRACE, Address

# After the first, a queue's other members have a new leader. Channels opened after the third find
# it, too: with the configuration in deploy/ a cluster gives up a node after 7.5 s.
TRY_SECONDS = (3.0, 2.0, 3.0, 2.0)
OPEN_SECONDS = 2.0  # a channel; one that is connected to a node that stands still gets none
REST_SECONDS = 1.0  # that what need not arrive is waited for
UNCONFIRMED_SECONDS = 10.0  # that it is not waited for then: a cluster gives a node up within
MAX_KEPT = 100  # messages to the trace, of some 500 records each
FILL_SECONDS = 1.0  # for the broker to say how full an inbox is; without a leader it takes long
EXPIRING_SECONDS = 0.5  # that a publisher of a heartbeat waits for room in an inbox
log = structlog.get_logger("muster.bus")


def is_refused(error: BaseException | None) -> bool:
    """Whether the broker refused a message because its inbox is full."""
    return isinstance(error, DeliveryError) and not isinstance(error, PublishError)


def _is_refused_for_good(attempts: RetryCallState) -> bool:
    """Whether a message was refused for as long as its publisher waits for room."""
    message: aio_pika.Message = attempts.args[1]
    most = REFUSED_SECONDS if message.expiration is None else EXPIRING_SECONDS
    return (attempts.seconds_since_start or 0.0) >= most


class _Channel:
    """A channel for publishing, its number of users, and the limits of its waits for confirms."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        self.users = 0
        self.waits: dict[asyncio.Timeout, None] = {}


class Publisher:
    """Publishes for a bus on its current connection.

    ``names`` are the exchange and the dead-letter exchange; ``fill`` returns how full an inbox is.
    ``kept`` holds unconfirmed trace messages and belongs to the bus, because it outlives
    connections.
    """

    def __init__(
        self,
        links: Links,
        names: tuple[str, str],
        widths: Widths,
        *,
        kept: deque[Addressed],
        fill: Callable[[Address], Awaitable[Fill]],
    ) -> None:
        self._links = links
        self._connection = links.publishing
        self._names = names
        self._widths = widths
        self._kept = kept
        self._fill = fill
        self._refusals = Refusals()
        self._opening = asyncio.Lock()
        self._rest_from = 0.0  # what need not arrive is waited for from then on, by the loop's time
        self._asked: dict[Address, asyncio.Future[Fill]] = {}  # how full each inbox is
        self._current: _Channel

    async def open(self) -> AbstractChannel:
        """Open a channel and use it for publishing from now on."""
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        self._current = _Channel(channel)
        return channel

    async def publish(self, batch: list[Addressed]) -> None:
        """Publish a batch that may be in flight together; refused messages are retried in order.

        Raises DeliveryError if a message was refused until the end, TimeoutError without a confirm.
        """
        refused = await self._refused_of(batch)
        if refused:
            await asyncio.gather(*map(self._publish_lane, lanes_of(refused)))
        full = {to for _, to in refused}
        for to in dict.fromkeys(to for _, to in batch):
            if to.is_durable and to not in full:
                self._widths.took(to)
                self._refusals.took(to)

    async def leave(self, message: aio_pika.Message, owner: str) -> None:
        """Publish a dead letter to its service's dead-letter queue.

        Raises DeliveryError if there is no such queue, TimeoutError without a confirm.
        """
        letter = Letter(message, self._names[1], owner, must_arrive=True)
        async with self._links.within(None):
            (error,) = await self._errors_of([letter])
        if error is not None:
            raise error

    # --- what is in flight together -------------------------------------------------------------

    async def _refused_of(self, batch: list[Addressed]) -> list[Addressed]:
        """Publish messages at once; return those refused by full inboxes."""
        kept = self._take_unconfirmed()
        batch = [*kept, *batch]
        letters = [self._letter(message, to) for message, to in batch]
        try:
            async with self._links.within(None):
                errors = await self._errors_of(letters)
        except BaseException:
            for item in kept:
                self._retain(item)
            raise
        refused = []
        for item, error in zip(batch, errors, strict=True):
            if error is None:
                continue
            if not item[1].is_durable:
                self._retain(item)
            elif is_refused(error):
                self._widths.refused(item[1])
                refused.append(item)
            else:
                raise error
        return refused

    def _letter(self, message: aio_pika.Message, to: Address) -> Letter:
        return Letter(message, self._names[0], routing_key(to, message.type or ""), to.is_durable)

    async def _errors_of(self, letters: Sequence[Letter]) -> Sequence[Exception | None]:
        """Publish letters, again if unanswered; return the result of each, None if confirmed."""
        tries = 0
        while True:
            async with self._used() as used:
                try:
                    return await self._together(used, letters, TRY_SECONDS[tries])
                except UnconfirmedError as error:
                    if used is not self._current:  # another message's failure replaced it
                        continue
                    tries += 1
                    if tries == len(TRY_SECONDS):
                        raise
                    await self._renew(used, str(error))

    async def _together(
        self, used: _Channel, letters: Sequence[Letter], seconds: float
    ) -> Sequence[Exception | None]:
        arriving = partial(self._links.blocked.confirmed, seconds, used.waits)
        return await publish_together(used.channel, letters, arriving, self._rest)

    @asynccontextmanager
    async def _rest(self) -> AsyncIterator[None]:
        """Limit the wait for confirms of messages that need not arrive."""
        now = asyncio.get_running_loop().time()
        is_waited_for = now >= self._rest_from
        try:
            async with self._links.blocked.confirmed(REST_SECONDS if is_waited_for else 0.0):
                yield
        except TimeoutError:
            if is_waited_for:
                self._rest_from = now + REST_SECONDS + UNCONFIRMED_SECONDS
                log.warning(
                    "readers or the trace send no confirms, as when a broker node hangs: "
                    "continuing without",
                    connection=self._links.name,
                    seconds=UNCONFIRMED_SECONDS,
                )
            raise

    def _take_unconfirmed(self) -> list[Addressed]:
        """Return the retained trace messages if it is time to write them again."""
        if not self._kept or asyncio.get_running_loop().time() < self._rest_from:
            return []
        kept = list(self._kept)
        self._kept.clear()
        return kept

    def _retain(self, item: Addressed) -> None:
        """Retain an unconfirmed trace message; messages to readers are worthless later."""
        if item[1] != API_TRACE:
            return
        if len(self._kept) == self._kept.maxlen:
            log.warning("the trace confirms nothing: the oldest records are left out")
        self._kept.append(item)

    # --- one by one -----------------------------------------------------------------------------

    async def _publish_lane(self, lane: list[Addressed]) -> None:
        for message, to in lane:
            await self._publish_one(message, to)
            self._refusals.took(to)

    @retry(
        retry=retry_if_exception(is_refused),
        wait=wait_exponential(multiplier=0.01, max=0.5),
        stop=_is_refused_for_good,
        reraise=True,
    )
    async def _publish_one(self, message: aio_pika.Message, to: Address) -> None:
        """Publish and wait for the confirm; retry a full inbox for REFUSED_SECONDS.

        An expiring message is retried for EXPIRING_SECONDS only: its sender repeats it, and learns
        soon that the inbox is full.

        Retrying the earlier messages as well would fill the inbox with duplicates.
        """
        used = self._current
        async with self._links.within(None):
            (error,) = await self._errors_of([self._letter(message, to)])
        if is_refused(error):
            self._widths.refused(to)
            if await self._has_room(to):
                await self._renew(used, f"{to.routing_key} refuses messages and has room")
        if error is not None:
            raise error

    async def _has_room(self, to: Address) -> bool:
        """Whether an inbox refuses messages although it has room for them, as far as known."""
        now = asyncio.get_running_loop().time()
        if not self._refusals.refused(to, now):
            return False
        asked = self._asked.get(to)
        if asked is None:
            asked = self._asked[to] = asyncio.ensure_future(self._fill(to))
            asked.add_done_callback(partial(self._answered, to))
        if not (await asyncio.wait({asked}, timeout=FILL_SECONDS))[0]:
            return self._refusals.saw(to, has_room=True)
        fill = asked.result()
        return self._refusals.saw(to, has_room=fill.waiting <= fill.most)

    def _answered(self, to: Address, asked: "asyncio.Future[Fill]") -> None:
        del self._asked[to]
        if not asked.cancelled():
            asked.exception()  # raised where it is awaited, if it still is

    # --- channels -------------------------------------------------------------------------------

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[_Channel]:
        """Use the current channel; a channel replaced meanwhile is closed by its last user."""
        used = self._current
        used.users += 1
        try:
            yield used
        finally:
            used.users -= 1
            self._leave(used)

    async def _renew(self, used: _Channel, why: str) -> None:
        """Replace a channel unless it was replaced already. Raises TimeoutError."""
        async with self._opening:
            if used is not self._current:
                return
            log.warning("publishing on another channel", connection=self._links.name, why=why)
            async with self._links.within(None), self._links.blocked.confirmed(OPEN_SECONDS):
                await self.open()
            self._leave(used)
            now = asyncio.get_running_loop().time()
            for wait in used.waits:
                if not wait.expired():
                    wait.reschedule(now)

    def _leave(self, used: _Channel) -> None:
        """Close a replaced channel that has no users left."""
        if used is not self._current and not used.users:
            self._links.closing.begin(used.channel)
