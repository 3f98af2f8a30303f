"""Connections in memory and virtual time: bytes that come, are held, or are lost.

A link holds what is written while it is held, as a kernel's buffers do, and delivers it when it no
longer is. More than BUFFERED_BYTES that nobody reads make the writer wait.
"""

import asyncio
from itertools import count

from tools.simulate.loop import VirtualLoop

LATENCY_SECONDS = 0.0005
BUFFERED_BYTES = 256 * 1024


class PeerLoop(VirtualLoop):
    """A loop in virtual time whose connections are ``connecting``'s to make."""

    def __init__(self):
        super().__init__()
        self.connecting = None  # (host, port, link) -> its session; it raises OSError to refuse

    async def create_connection(self, protocol_factory, host=None, port=None, **_):
        """Connect to whoever answers at an address."""
        await asyncio.sleep(LATENCY_SECONDS)
        link = Link(self)
        link.session = await self.connecting(host, port, link)
        protocol = protocol_factory()
        link.client = Client(link, protocol)
        protocol.connection_made(link.client)
        return link.client, protocol


class Link:
    """Both directions of one connection."""

    numbers = count()

    def __init__(self, loop):
        self.loop = loop
        self.client = None
        self.session = None
        self.is_lost = False  # half-open: neither side hears of it
        self.is_closed_here = self.is_closed_there = False
        self.held_until = 0.0
        self.unread_until = 0.0  # the server reads nothing, and writes all the same
        self.node = None  # with a held_until of its own
        self._to_server = bytearray()
        self._to_client = bytearray()
        self._fin_of_client = self._fin_of_server = False
        self._due = None

    def held(self):
        """Return until when nothing is carried."""
        return max(self.held_until, self.node.held_until if self.node else 0.0)

    def hold(self, seconds):
        """Carry nothing for a while."""
        self.held_until = max(self.held_until, self.loop.time() + seconds)

    @property
    def waiting(self):
        """Return how many bytes of the client nobody has read."""
        return len(self._to_server)

    def from_client(self, data):
        """Take what a client writes."""
        if not self.is_lost:
            self._to_server += data
        self.wake()

    def from_server(self, data):
        """Take what the server writes."""
        if not self.is_lost and not self.is_closed_there:
            self._to_client += data
        self.wake()

    def end_of_client(self):
        """Take the end of what a client writes."""
        self._fin_of_client = not self.is_lost
        self.wake()

    def end_of_server(self):
        """Take the end of what the server writes; it reads nothing more."""
        self.is_closed_there = True
        self._fin_of_server = not self.is_lost
        self.wake()

    def reset(self):
        """End at once; what is on its way is lost."""
        self._to_server.clear()
        self._to_client.clear()
        self.is_closed_there = True
        self.session.lost()
        self.client.ended(ConnectionResetError("reset by the peer"))

    def wake(self, delay=LATENCY_SECONDS):
        """Look again, soon."""
        due = self.loop.time() + delay
        if self._due is not None:
            if self._due.when() <= due:
                return
            self._due.cancel()
        self._due = self.loop.call_at(due, self._carry)

    def _carry(self):
        self._due = None
        if self.is_lost:
            return
        until = self.held() - self.loop.time()
        if until > 0:
            self.wake(until)
            return
        self._carry_to_server()
        if not self.is_lost and self.held() <= self.loop.time():
            self._carry_to_client()
        self.client.drained()

    def _carry_to_server(self):
        while not self.is_closed_there and not self.is_lost:
            until = max(self.held(), self.unread_until) - self.loop.time()
            if until > 0:
                self.wake(until)
                return
            taken = self.session.feed(self._to_server)
            del self._to_server[:taken]
            if not taken:
                break
        if self._fin_of_client and not self.is_closed_there and not self.is_lost:
            self.session.lost()
            self.end_of_server()

    def _carry_to_client(self):
        client = self.client
        if client.is_paused or self.is_closed_here:
            return
        if self._to_client:
            data, self._to_client = bytes(self._to_client), bytearray()
            client.protocol.data_received(data)
        if self._fin_of_server and not self._to_client:
            self._fin_of_server = False
            client.protocol.eof_received()


class Client(asyncio.Transport):
    """The client's end of a link."""

    def __init__(self, link, protocol):
        super().__init__()
        self.link = link
        self.protocol = protocol
        self.is_paused = False
        self._is_closing = self._is_full = self._has_ended = False

    def get_extra_info(self, name, default=None):
        return default

    def write(self, data):
        if self._is_closing:
            return
        self.link.from_client(data)
        if not self._is_full and self.link.waiting > BUFFERED_BYTES:
            self._is_full = True
            self.protocol.pause_writing()

    def drained(self):
        """Go on writing once there is room."""
        if self._is_full and self.link.waiting <= BUFFERED_BYTES:
            self._is_full = False
            self.protocol.resume_writing()
            if self._is_closing:
                self.ended(None)

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.link.end_of_client()

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False
        self.link.wake()

    def is_closing(self):
        return self._is_closing

    def close(self):
        self._is_closing = True
        self.link.end_of_client()
        if not self._is_full:
            self.ended(None)

    def abort(self):
        self._is_closing = True
        self.link.end_of_client()
        self.ended(None)

    def ended(self, error):
        """Say that the connection has ended."""
        self._is_closing = True
        if not self._has_ended:
            self._has_ended = self.link.is_closed_here = True
            self.link.loop.call_soon(self.protocol.connection_lost, error)
