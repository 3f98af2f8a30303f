"""Exchanges, queues, bindings: the state that all connections to the peer share."""

import re
from collections import deque
from dataclasses import dataclass, field

HOME_IS_DOWN = "NOT_FOUND - home node 'peer@{0}' of durable queue '{1}' is down or inaccessible"


class RefusedError(Exception):
    """What closes a channel: a code, and the text that goes with it."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass
class Message:
    """A message in one queue."""

    exchange: str
    key: str
    properties: object
    body: bytes
    expires: float | None = None
    deliveries: int = 0
    offset: int = -1  # in a stream


@dataclass
class Consumer:
    """A reader's place at a queue."""

    tag: str
    channel: object
    queue: "Queue"
    prefetch: int
    unacked: int = 0
    next: int = 0  # in a stream
    is_silent: bool = False  # believed alive, and gets nothing


@dataclass
class Queue:
    """A queue of any of the three types."""

    name: str
    arguments: dict
    broker: "Broker"
    owner: object = None  # the session whose own it is
    is_auto_delete: bool = False
    ready: deque = field(default_factory=deque)
    log: list = field(default_factory=list)
    consumers: list = field(default_factory=list)
    down_until: float = 0.0
    postponed: list = field(default_factory=list)

    @property
    def kind(self):
        """Return quorum, classic or stream."""
        return self.arguments.get("x-queue-type", "classic")

    @property
    def is_down(self):
        """Return whether it has no leader."""
        return self.down_until > self.broker.loop.time()

    def take(self, message, done):
        """Take a message in, or postpone it; ``done`` hears whether it was taken."""
        if self.is_down:
            self.postponed.append((message, done))
            return
        done(self._take(message))
        self.deliver()

    def _take(self, message):
        if self.kind == "stream":
            message.offset = len(self.log)
            self.log.append(message)
            return True
        limit = self.arguments.get("x-max-length")
        if limit is not None and len(self.ready) >= limit:
            if self.arguments.get("x-overflow") == "reject-publish":
                return False
            self.ready.popleft()
        self.ready.append(message)
        return True

    def head(self):
        """Return the first message that has not expired, or None."""
        now = self.broker.loop.time()
        while self.ready and self.ready[0].expires is not None and self.ready[0].expires <= now:
            self.ready.popleft()
        return self.ready[0] if self.ready else None

    def deliver(self):
        """Hand out what can be."""
        if self.is_down:
            return
        if self.kind == "stream":
            self._deliver_stream()
            return
        while self.head() is not None:
            reader = self._next_reader()
            if reader is None:
                return
            reader.channel.deliver(reader, self.ready.popleft())

    def _next_reader(self):
        is_single = self.arguments.get("x-single-active-consumer")
        for reader in self.consumers[:1] if is_single else list(self.consumers):
            if not reader.is_silent and not 0 < reader.prefetch <= reader.unacked:
                if not is_single:
                    self.consumers.remove(reader)
                    self.consumers.append(reader)
                return reader
        return None

    def _deliver_stream(self):
        for reader in list(self.consumers):
            while reader.next < len(self.log) and reader.unacked < reader.prefetch:
                reader.next += 1
                reader.channel.deliver(reader, self.log[reader.next - 1])

    def give_back(self, messages):
        """Take messages back to the front, in their order."""
        if self.kind == "stream":
            return
        for message in messages:
            message.deliveries += 1
        self.ready.extendleft(reversed(messages))

    def leave(self, reader):
        """Let a reader go."""
        if reader in self.consumers:
            self.consumers.remove(reader)
        if self.is_auto_delete and not self.consumers:
            self.broker.remove(self)

    def lose_leader(self, seconds):
        """Be without a leader for a while; then readers hear that they are none any more."""
        self.down_until = self.broker.loop.time() + seconds
        self.broker.loop.call_at(self.down_until, self._found)

    def _found(self):
        for reader in list(self.consumers):
            reader.channel.cancel(reader)
        postponed, self.postponed = self.postponed, []
        for message, done in postponed:
            self.take(message, done)
        self.deliver()


class Node:
    """An address at which the broker answers."""

    def __init__(self, name):
        self.name = name
        self.held_until = 0.0
        self.refuses_until = 0.0
        self.is_apart = False  # its readers' own queues and those of others do not know each other

    def knows(self, queue):
        """Whether a message published here goes to a queue."""
        home = queue.owner.node if queue.owner is not None else self
        return home is self or not (home.is_apart or self.is_apart)


class Broker:
    """What all connections share."""

    def __init__(self, loop, names=("one",)):
        self.loop = loop
        self.nodes = {name: Node(name) for name in names}
        self.sessions = []
        self.exchanges = {}
        self.queues = {}
        self.bindings = {}  # (exchange, key, queue) -> its pattern
        self.routes = {}  # (exchange, key) -> queues, remembered
        self.alarm_until = 0.0
        self.confirm_seconds = 0.0
        self.confirms_slowly_until = 0.0
        self.deleted = []  # queues that a client has deleted

    def declare_exchange(self, name, kind):
        """Make an exchange, if it is not there."""
        self.exchanges.setdefault(name, kind)

    def declare(self, frame, session):
        """Return a queue that is declared. Raises RefusedError."""
        found = self.queues.get(frame.queue)
        if found is not None:
            self._check(found, frame, session)
            return found
        if frame.passive:
            raise RefusedError(404, f"NOT_FOUND - no queue '{frame.queue}' in vhost '/'")
        queue = Queue(frame.queue, dict(frame.arguments or {}), self)
        queue.owner = session if frame.exclusive else None
        queue.is_auto_delete = frame.auto_delete
        self.queues[frame.queue] = queue
        return queue

    def _check(self, queue, frame, session):
        self.usable(queue.name, session)
        if not frame.passive and dict(frame.arguments or {}) != queue.arguments:
            raise RefusedError(406, f"PRECONDITION_FAILED - inequivalent arg for '{queue.name}'")

    def usable(self, name, session):
        """Return a queue that is there, and this session's to use. Raises RefusedError."""
        queue = self.queues.get(name)
        if queue is None:
            raise RefusedError(404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
        if queue.owner not in (None, session):
            raise RefusedError(405, f"RESOURCE_LOCKED - exclusive queue '{name}'")
        if queue.is_down:
            raise RefusedError(404, HOME_IS_DOWN.format("one", name))
        return queue

    def bind(self, queue, exchange, key):
        """Bind a queue."""
        if exchange not in self.exchanges:
            raise RefusedError(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'")
        self.bindings[exchange, key, queue] = _pattern(key)
        self.routes.clear()

    def remove(self, queue):
        """Delete a queue."""
        self.queues.pop(queue.name, None)
        self.bindings = {at: how for at, how in self.bindings.items() if at[2] != queue.name}
        self.routes.clear()

    def routed(self, exchange, key):
        """Return the queues that a message goes to. Raises RefusedError."""
        if exchange not in self.exchanges:
            raise RefusedError(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'")
        if (exchange, key) not in self.routes:
            is_direct = self.exchanges[exchange] == "direct"
            self.routes[exchange, key] = list(
                dict.fromkeys(
                    queue
                    for (of, bound, queue), pattern in self.bindings.items()
                    if of == exchange and (bound == key if is_direct else pattern.fullmatch(key))
                )
            )
        return [self.queues[name] for name in self.routes[exchange, key]]

    @property
    def confirm_delay(self):
        """Return how long a confirm takes."""
        return self.confirm_seconds if self.loop.time() < self.confirms_slowly_until else 0.0


def _pattern(key):
    parts = []
    for at, word in enumerate(key.split(".")):
        dot = r"\." if at else ""
        parts.append({"#": f"({dot}.*)?", "*": rf"{dot}[^.]+"}.get(word, dot + re.escape(word)))
    return re.compile("".join(parts))
