"""Finding a pod: what the resource manager knows of a pod without an ask.

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

    ``held`` is what it is held back for before it is asked for, with how many of its application
    are for the same reason; None: for nothing of its own, its application is not so far yet.
    ``end`` is how it has ended ("": it has not).
    """

    application_id: str = ""
    partition: str = ""
    name: str = ""
    held: HeldFor | None = None
    end: str = ""
