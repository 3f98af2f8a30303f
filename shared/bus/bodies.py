"""Limits how much of a message body is kept, by the length that its header states.

The rest is read from the connection in pieces and discarded, so that a foreign message of 100 MB
costs the memory of one piece. The original length is then in the header LENGTH, for validation and
display.
"""

from collections.abc import Callable

from aio_pika.abc import AbstractChannel
from aiormq.abc import DeliveredMessage
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from shared.bus import codec
from shared.bus.dead_letters import MAX_SHOWN_BYTES
from shared.bus.errors import PoisonError

LENGTH = "x-muster-length"
_Kept = Callable[[Basic.Properties, int], int]


async def read_at_most(channel: AbstractChannel, kept: _Kept) -> None:
    """Limit how many bytes of each body a channel keeps, by its properties and length.

    The client has no such setting: its reading of a body is replaced, on this channel.
    """
    wire = await channel.get_underlay_channel()
    read_whole, frame_of = getattr(wire, "_read_content"), getattr(wire, "_get_frame")  # noqa: B009

    async def read(delivery: Basic.Deliver, header: ContentHeader) -> DeliveredMessage:
        most = kept(header.properties, header.body_size)
        if header.body_size <= most:
            whole: DeliveredMessage = await read_whole(delivery, header)
            return whole
        body, length = b"", 0
        while length < header.body_size:
            frame = await frame_of()
            if not isinstance(frame, ContentBody):
                raise ValueError(f"a piece of a body was expected, found {frame!r}")  # noqa: TRY004
            length += len(frame.value)
            body += frame.value[: most - len(body)]
        headers = header.properties.headers or {}
        header.properties.headers = {LENGTH: header.body_size, **headers}
        return DeliveredMessage(delivery=delivery, header=header, body=body, channel=wire)

    vars(wire)["_read_content"] = read


def readable(_: Basic.Properties, length: int) -> int:
    """Return how many bytes are kept: the whole body, or the shown part of one that is too long."""
    return length if length <= codec.MAX_MESSAGE_BYTES else MAX_SHOWN_BYTES


def check_length(kind: str, length: object) -> None:
    """Raise PoisonError for a message longer than any that Muster sends."""
    if length is not None:
        raise PoisonError(f"{kind}: {length} bytes, at most {codec.MAX_MESSAGE_BYTES}")
