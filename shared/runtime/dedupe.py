"""The identities of handled messages, in a window that forgets the oldest."""

MAX_REMEMBERED = 20_000


class HandledMessages:
    """The last MAX_REMEMBERED identities."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._seen

    def add(self, message_id: str) -> None:
        """Remember an identity."""
        self._seen[message_id] = None
        if len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
