"""Finds a pod in the resource manager, also one without an ask.

Sent only to a resource manager that supports it (``SyncBegin.finds_pods``).
"""

from dataclasses import dataclass

from shared.messages.interface import HeldFor


@dataclass(frozen=True, slots=True)
class FindPod:
    """Ask for a pod by its allocation key, or by its name: of several of a name for one of them."""

    name: str


@dataclass(frozen=True, slots=True)
class PodFound:
    """A pod and its application; with ``application_id`` "" there is none that is ours.

    ``held`` is why its ask is held back; None if the pod itself is not, because its application is
    not submitted yet. ``end`` is how it has ended ("": it has not).
    """

    application_id: str = ""
    partition: str = ""
    name: str = ""
    held: HeldFor | None = None
    end: str = ""
