"""Checks order: messages of a sender arrive in order, and decisions are those of the core.

Rule 1: of the messages of one sender to one inbox, a machine never handles one after a later one. A
        repeated message is handled once, at its first place.
Rule 2: without faults nothing alters decisions between core and cluster. The messages that a core
        received in such a run, given to a core alone, lead to the decisions that reached the shim
        adapter, item by item, in the same order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import zip_longest

from services.core import service as core_service
from shared.bus import codec
from shared.messages.envelope import Envelope
from shared.messages.interface import UpdateResponse

OF_EVERY_BEAT = ("Heartbeat", "PartitionsHeld", "AtWork")  # beside everything else, in no order
IN_NO_ORDER = (*OF_EVERY_BEAT, "PartitionsRequest")  # a process asks beside what its hosts publish
Sender = tuple[int, str, str]  # a connection, the partition that it speaks of, the inbox
Decisions = dict[tuple[str, str], list[object]]  # by partition and section of the response


@dataclass(slots=True)
class Life:
    """The messages that one core has handled; None where a batch ended."""

    instance: str
    partition: str
    heard: list[tuple[Envelope | None, int]] = field(default_factory=list)


class Order:
    """The messages of a run by sender, and the lives of its cores."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.decided: Decisions = {}  # that reached the shim adapter
        self._places: dict[str, dict[Sender, int]] = {}  # of a message
        self._next: dict[Sender, int] = {}
        self._came: dict[str, None] = {}  # responses that reached the shim adapter

    def publish(self, connection: int, envelopes: Iterable[Envelope]) -> None:
        """Record published messages, in order; a repeated one keeps its place.

        A successor's message with the same identity has a place of its own: either may arrive
        first.
        """
        for envelope in envelopes:
            sender = connection, envelope.partition, envelope.to.routing_key
            places = self._places.setdefault(envelope.message_id, {})
            if envelope.kind not in IN_NO_ORDER and sender not in places:
                places[sender] = self._next[sender] = self._next.get(sender, 0) + 1

    def places(self, message_id: str) -> dict[Sender, int]:
        """Return a message's position for each of its senders; {} for unordered kinds."""
        return self._places.get(message_id, {})

    def begin(self, instance: str, partition: str) -> Life:
        """Start the record of a new core."""
        life = Life(instance, partition)
        self.lives.append(life)
        return life

    def arrive(self, envelope: Envelope, body: bytes) -> None:
        """Record decisions that reached the shim adapter, once."""
        if envelope.kind == UpdateResponse.__name__ and envelope.message_id not in self._came:
            self._came[envelope.message_id] = None
            _add(self.decided, envelope.partition, _read(body))

    def violations(self) -> Iterator[str]:
        """Yield the differences, in a run without faults, to what the cores alone decide."""
        alone: Decisions = {}
        for life in self.lives:
            for response in _alone(life):
                _add(alone, life.partition, response)
        for section in sorted(alone.keys() | self.decided.keys()):
            pairs = zip_longest(alone.get(section, []), self.decided.get(section, []))
            for at, (wanted, found) in enumerate(pairs):
                if wanted != found:
                    of = f"{section[1]}, number {at} of {section[0]},"
                    yield f"decided is of {of} {found}; the core alone decides {wanted}"
                    break


def _alone(life: Life) -> Iterator[UpdateResponse]:
    """Yield the decisions of a new core on the messages that another one has handled."""
    core = core_service.make_machine(life.instance, life.partition)
    for envelope, now_ns in life.heard:
        for item in core.flush(now_ns) if envelope is None else core.handle(envelope, now_ns):
            if isinstance(item.message, UpdateResponse):
                yield _read(codec.encode(item.message))


def _read(body: bytes) -> UpdateResponse:
    """Decode a response as its receiver does."""
    response = codec.decode(UpdateResponse.__name__, body)
    assert isinstance(response, UpdateResponse)
    return response


def _add(decisions: Decisions, partition: str, response: UpdateResponse) -> None:
    """Add the items of a response to their sections; the order within a section is kept."""
    for section in fields(response):
        items = getattr(response, section.name)
        if items:
            decisions.setdefault((partition, section.name), []).extend(items)
