"""Gates: whoever is refused for want of room waits at the gate of who refused it.

A queue, a user and a group have one each. When their room grows, the gate opens, and only those
who waited at it are looked at again.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.core.scheduler.model.application import Application
    from services.core.scheduler.model.reservations import Reservation
    from services.core.scheduler.model.shapes import AskGroup, Bucket
    from shared.model.reasons import Refusal


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


@dataclass(slots=True, eq=False, repr=False)
class PluginGate(Gate):
    """Who waits for one hook to say yes; of an application's asks only those that it refused."""

    groups: dict["AskGroup", None] = field(default_factory=dict)

    def hold(self, group: "AskGroup", refusal: "Refusal") -> None:
        """Set a group aside."""
        group.refused = (refusal, self)
        group.bucket.withdraw(group)
        self.groups[group] = None

    def open(self) -> None:
        """Let everybody who waits here be considered again."""
        Gate.open(self)
        groups, self.groups = self.groups, {}
        for group in groups:
            group.refused = None
        for application in dict.fromkeys(group.application for group in groups):
            application.enter()
            for reservation in application.reservations.values():
                reservation.retry()
