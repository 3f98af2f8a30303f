"""Splits messages that are too large, and removes items that cannot be sent.

Rule 1: a message that is too large is split by its encoded size, in the order of its items.
Rule 2: an item that cannot be encoded, or is too large by itself, is not sent; the others are.
Rule 3: a message without items (commands, answers) or with invalid fields cannot be split: it is
        not sent.
The result depends on the message only, so that a redelivery makes the same parts with the same
identities.
"""

from dataclasses import dataclass, replace
from typing import Any

from shared.bus import codec
from shared.bus.errors import PoisonError, TooLargeError
from shared.bus.properties import check_properties
from shared.messages.envelope import Envelope, Outgoing
from shared.messages.registry import STREAMED
from shared.messages.sections import item_count, items_of, sections_of, split
from shared.model.ids import derived_id

_FULL_BYTES = codec.MAX_MESSAGE_BYTES * 3 // 4  # of a part that is made by the size of the whole


@dataclass(frozen=True, slots=True)
class Unsendable:
    """An item that was not sent and the reason; ``item`` None stands for the whole message."""

    envelope: Envelope
    item: object | None
    reason: str


def fitting(envelope: Envelope) -> tuple[list[Envelope], list[Unsendable]]:
    """Return a message as parts that can be sent, in order, and what cannot be sent."""
    parts: list[Envelope] = []
    aside: list[Unsendable] = []
    error = _unaddressable(envelope)
    if error is not None:
        return [], [Unsendable(envelope, None, str(error))]
    error = _error(envelope.message)
    if error is None:
        return [envelope], []
    if type(envelope.message) in STREAMED:
        error = _error(_without_items(envelope.message))
    if error is not None:
        return [], [Unsendable(envelope, None, str(error))]
    _fit(envelope, envelope, parts, aside)
    return parts, aside


def _fit(part: Envelope, whole: Envelope, parts: list[Envelope], aside: list[Unsendable]) -> None:
    """Append a part to ``parts`` if it fits, otherwise split it or report its only item."""
    error = _error(part.message)
    count = item_count(part.message)
    if error is None:
        parts.append(part)
    elif count > 1:
        size = error.size if isinstance(error, TooLargeError) else 0
        for smaller in _smaller(part, count, max(2, -(-size // _FULL_BYTES))):
            _fit(smaller, whole, parts, aside)
    else:
        ((_, item),) = items_of(part.message)
        aside.append(Unsendable(whole, item, str(error)))
        if getattr(part.message, "reset", False):  # the reset itself must still arrive
            parts.append(replace(part, message=_without_items(part.message)))


def _unaddressable(envelope: Envelope) -> PoisonError | None:
    try:
        check_properties(envelope)
    except PoisonError as error:
        return error
    return None


def _error(message: object) -> PoisonError | None:
    try:
        codec.encode(message)
    except PoisonError as error:
        return error
    return None


def _without_items(message: Any) -> object:
    cls = type(message)
    empty: object = replace(message, **dict.fromkeys((name for name, _ in sections_of(cls)), ()))
    return empty


def _smaller(part: Envelope, count: int, wanted: int) -> list[Envelope]:
    """Split a message into ``wanted`` parts, or fewer if it has fewer items."""
    pieces = split(Outgoing(part.to, part.message), most=max(1, -(-count // wanted)))
    return [
        replace(part, message=piece.message, message_id=derived_id(part.message_id, at))
        for at, piece in enumerate(pieces)
    ]


def numbered(envelopes: list[Envelope]) -> list[Envelope]:
    """Return the same messages with the parts of split messages numbered from 0.

    Parts are consecutive messages to one address with equal epoch and ``seq``; a reset restarts the
    numbers.
    """
    found: list[Envelope] = []
    last: tuple[object, ...] | None = None
    part = 0
    for envelope in envelopes:
        message: Any = envelope.message
        is_part = type(message) in STREAMED and hasattr(message, "part")
        key = (envelope.to, envelope.epoch, envelope.seq) if is_part else None
        part = part + 1 if is_part and key == last and not message.reset else 0
        last = key
        if is_part and message.part != part:
            envelope = replace(envelope, message=replace(message, part=part))  # noqa: PLW2901
        found.append(envelope)
    return found
