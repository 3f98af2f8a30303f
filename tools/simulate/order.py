"""Order: what a sender says arrives as it was said, and what is decided is what the core decides.

Rule 1: of what one sender publishes into one inbox a machine handles nothing behind what was
        published later. What comes again is handled once, at its first place.
Rule 2: without a fault nothing stands between the core and the cluster. What came to a core in a
        run without faults, handed to a core alone, leads to what reached the shim adapter: the
        same decisions, item by item, in the same order.
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
    """What one core has handled, batch by batch: a message, or None where a batch ended."""

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
        """Note what is published, in order; what is published again has its place.

        What a successor publishes under the same identity has a place of each: either may be first.
        """
        for envelope in envelopes:
            sender = connection, envelope.partition, envelope.to.routing_key
            places = self._places.setdefault(envelope.message_id, {})
            if envelope.kind not in IN_NO_ORDER and sender not in places:
                places[sender] = self._next[sender] = self._next.get(sender, 0) + 1

    def places(self, message_id: str) -> dict[Sender, int]:
        """Return of each sender of a message which of his it was; none of what has no order."""
        return self._places.get(message_id, {})

    def begin(self, instance: str, partition: str) -> Life:
        """Return the life of a new core."""
        life = Life(instance, partition)
        self.lives.append(life)
        return life

    def arrive(self, envelope: Envelope, body: bytes) -> None:
        """Note the decisions that have reached the shim adapter, once."""
        if envelope.kind == UpdateResponse.__name__ and envelope.message_id not in self._came:
            self._came[envelope.message_id] = None
            _add(self.decided, envelope.partition, _read(body))

    def violations(self) -> Iterator[str]:
        """Yield what differs, in a run without faults, from what the cores alone decide."""
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
    """Yield what a core alone decides of what another one has handled."""
    core = core_service.make_machine(life.instance, life.partition)
    for envelope, now_ns in life.heard:
        for item in core.flush(now_ns) if envelope is None else core.handle(envelope, now_ns):
            if isinstance(item.message, UpdateResponse):
                yield _read(codec.encode(item.message))


def _read(body: bytes) -> UpdateResponse:
    """Return a response as it is read on the other side."""
    response = codec.decode(UpdateResponse.__name__, body)
    assert isinstance(response, UpdateResponse)
    return response


def _add(decisions: Decisions, partition: str, response: UpdateResponse) -> None:
    """Add the items of a response, each to its section: what is sent together keeps their order."""
    for section in fields(response):
        items = getattr(response, section.name)
        if items:
            decisions.setdefault((partition, section.name), []).extend(items)
