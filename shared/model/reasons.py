"""The closed vocabulary of "no": every refusal to place an ask is one of these, with its numbers.

`muster app NAME`, the API's pods and a scenario's ``reason`` all show these words.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why an ask is not allocated now."""

    QUEUE_QUOTA = "QUEUE_QUOTA"  # a queue on the path to the root has no headroom for it
    USER_QUOTA = "USER_QUOTA"  # a limit of its user or group has no room for it
    GANG_HEADROOM = "GANG_HEADROOM"  # the gang as a whole does not fit the headroom yet
    GANG_PLACES = "GANG_PLACES"  # not every member of the gang has a place on the nodes yet
    GANG_PATIENCE = "GANG_PATIENCE"  # a gang ahead of it in its queue has waited too long
    GANG_PLACEHOLDERS_PENDING = "GANG_PLACEHOLDERS_PENDING"  # real asks wait for placeholders
    AWAITING_REPLACEMENT = "AWAITING_REPLACEMENT"  # its group has placeholders it must replace
    REPLACING = "REPLACING"  # the release of its placeholder is not confirmed yet
    MAX_APPLICATIONS = "MAX_APPLICATIONS"  # a queue already runs as many as it may
    ANOTHER_STARTING = "ANOTHER_STARTING"  # its queue starts one application at a time
    BACKOFF = "BACKOFF"  # too many of its asks found no node: it is left out for a while
    RESERVED = "RESERVED"  # the nodes with the room are kept for others
    REQUIRED_NODE = "REQUIRED_NODE"  # the one node that it must have is missing or full
    NO_NODE_FITS = "NO_NODE_FITS"  # no schedulable node has the room now
    NODE_TOO_SMALL = "NODE_TOO_SMALL"  # no node could hold it even when empty
    CONSTRAINTS = "CONSTRAINTS"  # no node matches its selector, affinity and tolerations
    OTHER_PODS = "OTHER_PODS"  # affinity, spread or host ports of pods leave no node open
    NO_NODES = "NO_NODES"  # the partition has no schedulable node
    PLUGIN = "PLUGIN"  # a plugin says no, or has failed; the sentence names it
    APPLICATION_ENDING = "APPLICATION_ENDING"  # its application is failing or resuming


NODES_WOULD_HELP = (
    Reason.NO_NODE_FITS,
    Reason.NODE_TOO_SMALL,
    Reason.CONSTRAINTS,
    Reason.OTHER_PODS,
    Reason.RESERVED,
    Reason.NO_NODES,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One "no": its reason and a sentence with the numbers behind it."""

    reason: Reason
    message: str
