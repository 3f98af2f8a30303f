"""Detects, on an API replica, that its broker node passes on nothing from other services. Pure.

A broker node that is cut off from the rest of its cluster, or that takes part in it again with a
list of queues of its own, still delivers what is published on itself: a replica's own heartbeats
arrive, and nothing else does. Services that are at work tell every replica so with each heartbeat.
A replica that has confirmed heartbeats for ``silent_ns`` since it last heard another service uses
the next node. If that does not help, since no other service runs, it waits twice as long each time,
at most MOST_NS.
"""

from collections.abc import Iterable

from shared.bus.base import Delivery
from shared.messages.protocol import Heartbeat
from shared.messages.trace import TraceRecords
from shared.model.units import seconds

MOST_NS = seconds(300)  # until a replica that hears no service tries another node; not raised


class Alone:
    """A replica's count of its heartbeats since it last heard another service."""

    def __init__(self, instance: str, heartbeat_ns: int, silent_ns: int) -> None:
        self._instance = instance
        self._heartbeat_ns = heartbeat_ns
        self._first_ns = self._limit_ns = silent_ns
        self._own = 0  # confirmed heartbeats since it heard another service, or used another node

    def heard(self, deliveries: Iterable[Delivery]) -> None:
        """Start over if a message comes from another service; the trace is read from any node."""
        if any(map(self._is_of_another, deliveries)):
            self._own, self._limit_ns = 0, self._first_ns

    def _is_of_another(self, delivery: Delivery) -> bool:
        message = delivery.envelope.message
        is_own = isinstance(message, Heartbeat) and message.instance == self._instance
        return not (is_own or isinstance(message, TraceRecords))

    def is_too_long(self) -> bool:
        """Count a confirmed heartbeat; return whether to use the next node."""
        self._own += 1
        if self._own * self._heartbeat_ns < self._limit_ns:
            return False
        self._own, self._limit_ns = 0, min(2 * self._limit_ns, MOST_NS)
        return True
