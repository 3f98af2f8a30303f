"""Detects inboxes that refuse messages although they have room. Pure.

An inbox that was full accepts messages again shortly after it has room. So the detection requires
two checks that found room, with a refusal in between.
"""

from shared.messages.envelope import Address

LOOK_SECONDS = 0.3  # between looks at an inbox that refuses


class Refusals:
    """The refusals and checks that one publisher recorded for each inbox."""

    def __init__(self) -> None:
        self._look_at: dict[Address, float] = {}  # the next check of each refusing inbox
        self._had_room: dict[Address, None] = {}  # at their last check

    def refused(self, to: Address, now: float) -> bool:
        """Record a refusal; return whether to check now how full the inbox is."""
        if to not in self._look_at:
            self._look_at[to] = now + LOOK_SECONDS
        if now < self._look_at[to]:
            return False
        self._look_at[to] = now + LOOK_SECONDS
        return True

    def saw(self, to: Address, *, has_room: bool) -> bool:
        """Record a check; return whether this and the previous check found room."""
        had_room = to in self._had_room
        if has_room:
            self._had_room[to] = None
        else:
            self._had_room.pop(to, None)
        return had_room and has_room

    def took(self, to: Address) -> None:
        """Record that an inbox has accepted a message."""
        self._look_at.pop(to, None)
        self._had_room.pop(to, None)
