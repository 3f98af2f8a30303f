"""What goes wrong, by seed and by frame.

A fault strikes at the first frame of its kind that a client says from its moment on, or some frames
later; before that frame is handled, or after it. It is over at ``ends``: from then on the peer
answers, be it on a connection made anew.
"""

import random
from dataclasses import dataclass

from pamqp import commands
from pamqp.header import ProtocolHeader

CODES = (311, 312, 313, 320, 402, 403, 404, 405, 406, 501, 503, 504, 505, 530, 540, 541)
FROM_SECONDS = 25  # faults begin before that
DECLARES = (commands.Queue.Declare,)
PUBLISHES = (commands.Basic.Publish,)
ACKS = (commands.Basic.Ack,)
OPENS = (ProtocolHeader, commands.Connection.StartOk, commands.Connection.Open)
WAYS = {"any": (), "declare": DECLARES, "publish": PUBLISHES, "ack": ACKS, "open": OPENS}


@dataclass(slots=True)
class Fault:
    """One thing that goes wrong."""

    index: int
    kind: str
    from_seconds: float
    skip: int = 0
    on: str = "any"
    seconds: float = 0.0
    code: int = 0
    is_after: bool = False
    reader: int = 0  # which of a queue's is cancelled; 0 is the active one

    def __str__(self):
        code = f" {self.code}" if self.code else ""
        when = "after" if self.is_after else "at"
        return (
            f"{self.index}: {self.kind}{code} {when} {self.on} frame {self.skip} "
            f"from {self.from_seconds:.1f} s on, {self.seconds:.1f} s"
        )


def drawn(seed):
    """Return the faults of a seed."""
    draw = random.Random(f"amqp peer {seed}")
    return [_drawn(index, draw) for index in range(draw.randint(1, 5))]


def _drawn(index, draw):
    kind = draw.choice(list(_STRIKES))
    is_early = draw.random() < 0.3
    low, high = SECONDS.get(kind, (0, 0))
    on = draw.choice(["any", "any", "any", "publish", "ack", "declare", "open"])
    return Fault(
        index,
        kind,
        0.0 if is_early else draw.uniform(0, FROM_SECONDS),
        skip=draw.randint(0, 250) if is_early else draw.randint(0, 20),
        on="declare" if kind == "slow-declare" else on,
        seconds=draw.uniform(low, high),
        code=draw.choice(CODES) if kind.endswith("-closed") else 0,
        is_after=kind in AFTER and draw.random() < 0.5,
    )


class Faults:
    """The script of a run."""

    def __init__(self, faults):
        self.waiting = list(faults)
        self.broker = None
        self.struck = []  # (when, until when, fault)
        self._after = []

    def allow(self, session, number, found):
        """Let what is due strike; return whether the frame is to be handled."""
        now = self.broker.loop.time()
        for fault in list(self.waiting):
            kinds = WAYS[fault.on]
            if now < fault.from_seconds or (kinds and not isinstance(found, kinds)):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            self.waiting.remove(fault)
            if fault.is_after:
                self._after.append(fault)
            elif not self._strike(fault, session, number):
                return False
        return True

    def handled(self, session, number, found):
        """Let what strikes after a frame do so."""
        after, self._after = self._after, []
        for fault in after:
            self._strike(fault, session, number)

    def _strike(self, fault, session, number):
        now = self.broker.loop.time()
        self.struck.append((now, now + fault.seconds, fault))
        return _STRIKES[fault.kind](fault, session, number) is not False


def _slow_declare(fault, session, number):
    if number in session.channels:
        session.channels[number].slow(fault.seconds)


def _slow_confirm(fault, session, _):
    session.broker.confirm_seconds = fault.seconds / 2
    session.broker.confirms_slowly_until = session.loop.time() + fault.seconds / 2


def _stall_link(fault, session, _):
    session.link.hold(fault.seconds)
    return False


def _stall_broker(fault, session, _):
    until = session.loop.time() + fault.seconds
    for node in session.broker.nodes.values():
        node.held_until = max(node.held_until, until)
    return False


def _half_open(_, session, __):
    session.link.is_lost = True
    return False


def _cut(_, session, __):
    session.link.reset()
    return False


def _restart(fault, session, _):
    for node in session.broker.nodes.values():
        node.refuses_until = session.loop.time() + fault.seconds
    for other in list(session.broker.sessions):
        other.link.reset()
    return False


def _channel_closed(fault, session, number):
    if number not in session.channels:
        return _connection_closed(fault, session, number)
    session.channels[number].close(fault.code)
    return False


def _connection_closed(fault, session, _):
    session.close(fault.code)
    return False


def _alarm(fault, session, _):
    session.broker.alarm_until = session.loop.time() + fault.seconds


def _chosen(fault, session):
    queues = [queue for queue in session.broker.queues.values() if queue.consumers]
    return queues[(fault.index * 7 + int(fault.from_seconds)) % len(queues)] if queues else None


def _cancelled(fault, session, _):
    queue = _chosen(fault, session)
    if queue is not None:
        reader = queue.consumers[min(fault.reader, len(queue.consumers) - 1)]
        reader.channel.cancel(reader)


def _silent(fault, session, _):
    queue = _chosen(fault, session)
    if queue is not None and queue.arguments.get("x-single-active-consumer"):
        queue.consumers[0].is_silent = True


def _leader(fault, session, _):
    queue = _chosen(fault, session)
    if queue is not None and queue.kind == "quorum":
        queue.lose_leader(fault.seconds)


_STRIKES = {
    "slow-declare": _slow_declare,
    "slow-confirm": _slow_confirm,
    "stall-link": _stall_link,
    "stall-broker": _stall_broker,
    "half-open": _half_open,
    "cut": _cut,
    "restart": _restart,
    "channel-closed": _channel_closed,
    "connection-closed": _connection_closed,
    "alarm": _alarm,
    "cancelled": _cancelled,
    "silent": _silent,
    "leader": _leader,
}
SECONDS = {
    "slow-declare": (9, 14),
    "slow-confirm": (4, 50),
    "stall-link": (9, 14),
    "stall-broker": (9, 14),
    "restart": (0.5, 12),
    "alarm": (3, 30),
    "leader": (0.5, 12),
}
AFTER = ("half-open", "cut", "channel-closed", "connection-closed", "stall-link", "stall-broker")
