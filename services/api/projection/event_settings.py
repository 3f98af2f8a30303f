"""The ConfigMap keys ``event.*`` that the API uses.

An invalid value is ignored. ``event.requestCapacity`` is not used: the number of events per pod is
limited where they are sent. Source: docs/rules/configuration.md#service-keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.model.names import EVENT_SETTING
from shared.model.numbers import parse_uint64
from shared.model.texts import parse_truth

MAX_EVENTS = 100_000
MOST_EVENTS = 1_000_000  # that a ring holds, whatever is configured
MAX_ANSWER = 10_000
MAX_STREAMS = 100
MAX_STREAMS_PER_HOST = 15


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Whether events are recorded, and the limits of the ring, of an answer, and of streams."""

    is_tracking: bool = True
    capacity: int = MAX_EVENTS
    answer: int = MAX_ANSWER
    streams: int = MAX_STREAMS
    streams_per_host: int = MAX_STREAMS_PER_HOST


def event_settings(configured: Mapping[str, str]) -> EventSettings:
    """Return the configured settings."""

    def number(key: str, default: int, least: int) -> int:
        value = parse_uint64(configured.get(EVENT_SETTING + key, ""))
        return value if value is not None and value >= least else default

    return EventSettings(
        is_tracking=parse_truth(configured.get(EVENT_SETTING + "trackingEnabled", "")) is not False,
        capacity=min(MOST_EVENTS, number("ringBufferCapacity", MAX_EVENTS, 1)),
        answer=number("RESTResponseSize", MAX_ANSWER, 1),
        streams=number("maxStreams", MAX_STREAMS, 0),
        streams_per_host=number("maxStreamsPerHost", MAX_STREAMS_PER_HOST, 0),
    )
