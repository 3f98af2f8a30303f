"""YuniKorn's event answers.

Source: docs/rules/rest.md#event-batches and docs/rules/events.md; case W-11.
"""

import re

from services.api.projection.event_settings import MAX_ANSWER
from services.api.projection.events import EventRing
from services.api.yunikorn.answers import Answer, by_name, pruned
from shared.messages.state import EventState
from shared.model.numbers import parse_uint64

MAX_MESSAGE = 1_024


class CountError(ValueError):
    """A number in the query is invalid; the message is YuniKorn's."""


def number_of(name: str, text: str, default: int) -> int:
    """Parse an unsigned number of a query, or return the default. Raises CountError."""
    if not text:
        return default
    if not re.fullmatch(r"[0-9]+", text):
        raise CountError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    value = parse_uint64(text)
    if value is None:
        raise CountError(f'strconv.ParseUint: parsing "{text}": value out of range')
    if name == "count" and value == 0:
        raise CountError('0 is not a valid value for "count"')
    return value


def batch(
    ring: EventRing, instance: str, start: int | None, count: int, most: int = MAX_ANSWER
) -> Answer:
    """Return EventRecordDAO; without a start the oldest events held, of each at most ``most``."""
    first = ring.lowest if start is None else start
    events = ring.read(first, min(count, most))
    return {
        "InstanceUUID": instance,
        "LowestID": ring.lowest,
        "HighestID": ring.highest,
        "EventRecords": [event_info(event) for event in events] or None,
    }


def event_info(event: EventState) -> Answer:
    """Return an EventRecord in Go's format."""
    message = event.message
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 3] + "..."
    amounts = {
        name: {"value": value} if value else {} for name, value in by_name(event.resource).items()
    }
    answer = {
        "type": event.type,
        "objectID": event.object_id,
        "message": message,
        "timestampNano": event.time_ns,
        "eventChangeType": event.change_type,
        "eventChangeDetail": event.change_detail,
        "referenceID": event.reference_id,
        "resource": {"resources": amounts} if amounts else {},
    }
    return pruned(answer, always=("resource",))
