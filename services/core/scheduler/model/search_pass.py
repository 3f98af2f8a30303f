"""The progress of a pass of searches for victims.

A pass stops between two jobs after a limit of work, and continues with the next batch; what is
decided by then is carried out, and other messages are handled in between.
"""

from dataclasses import dataclass, field

MAX_WORK = 300  # moves tried and jobs checked in one piece of a pass; then the next piece
MAX_PIECES = 10_000  # pieces of one pass; new work is left to the next pass


@dataclass(slots=True)
class SearchPass:
    """A pass over the actions, in groups by policy; ``at`` is the first action not done.

    ``looked_at`` are the applications for which it was tried, ``as_of`` the count of changes when
    its group began. ``is_asked_for``: another pass follows.
    """

    group: int = 0
    at: int = 0
    looked_at: dict[str, None] = field(default_factory=dict)
    has_found: bool = False
    as_of: int = 0
    pieces: int = 0
    is_cut: bool = False
    is_asked_for: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether anything of its group has been done."""
        return bool(self.at or self.looked_at)

    def next_group(self) -> None:
        """Begin the next group of actions."""
        self.group += 1
        self.at = 0
        self.looked_at = {}
        self.has_found = False
