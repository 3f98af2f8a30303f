"""Whether inboxes refuse messages because they are full, or though they have room. Pure.

An inbox that was full takes messages again a moment after it has room: so it must have been seen to
have room, and have refused since.
"""

from shared.messages.envelope import Address

LOOK_SECONDS = 0.3  # between looks at an inbox that refuses


class Refusals:
    """What one publisher knows of the inboxes that refuse its messages."""

    def __init__(self) -> None:
        self._look_at: dict[Address, float] = {}  # when to look, of those that refused last
        self._had_room: dict[Address, None] = {}  # when they were looked at last

    def refused(self, to: Address, now: float) -> bool:
        """Note a refusal; return whether to check how full the inbox is."""
        if to not in self._look_at:
            self._look_at[to] = now + LOOK_SECONDS
        if now < self._look_at[to]:
            return False
        self._look_at[to] = now + LOOK_SECONDS
        return True

    def saw(self, to: Address, *, has_room: bool) -> bool:
        """Note a check after a refusal; return whether the inbox had room before, and has now."""
        had_room = to in self._had_room
        if has_room:
            self._had_room[to] = None
        else:
            self._had_room.pop(to, None)
        return had_room and has_room

    def took(self, to: Address) -> None:
        """Note that an inbox has taken a message."""
        self._look_at.pop(to, None)
        self._had_room.pop(to, None)
