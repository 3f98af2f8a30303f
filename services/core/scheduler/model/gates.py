"""Gates: whoever is refused for want of room waits at the gate of who refused it.

A queue, a user and a group have one each. When their room grows, the gate opens, and only those
who waited at it are looked at again.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.core.scheduler.model.application import Application
    from services.core.scheduler.model.reservations import Reservation
    from services.core.scheduler.model.shapes import Bucket


@dataclass(slots=True, eq=False, repr=False)
class Gate:
    """Who waits for more room: buckets, whole applications, reservations."""

    buckets: dict["Bucket", None] = field(default_factory=dict)
    applications: dict[str, "Application"] = field(default_factory=dict)
    reservations: dict["Reservation", None] = field(default_factory=dict)

    def open(self) -> None:
        """Let everybody who waits here be considered again."""
        if self.buckets:
            for bucket in list(self.buckets):
                bucket.leaf.open(bucket)
        if self.applications:
            applications, self.applications = self.applications, {}
            for application in applications.values():
                application.unpark()
        if self.reservations:
            reservations, self.reservations = self.reservations, {}
            for reservation in reservations:
                reservation.retry()
