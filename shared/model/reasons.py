"""The closed vocabulary of "no": every refusal to place an ask is one of these, with its numbers.

`muster app NAME`, the API's pods and a scenario's ``reason`` all show these words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared.model.names import ROOT
from shared.model.resources import go_map


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
    VOLUMES = "VOLUMES"  # its volumes: nodes have their number of them, or another pod has one
    NO_NODES = "NO_NODES"  # the partition has no schedulable node
    PLUGIN = "PLUGIN"  # a plugin refuses, or has failed; the sentence names it
    APPLICATION_ENDING = "APPLICATION_ENDING"  # its application is failing or resuming
    POD_GROUP = "POD_GROUP"  # its PodGroup is not there, or not as many pods as that says
    SCHEDULING_GATED = "SCHEDULING_GATED"  # its scheduling gates are not removed yet
    POD_REFUSED = "POD_REFUSED"  # it asks for what is not supported, or cannot be read
    MISSING_RIGHTS = "MISSING_RIGHTS"  # the API server refuses for want of a right; which is named


NODES_WOULD_HELP = (
    Reason.NO_NODE_FITS,
    Reason.NODE_TOO_SMALL,
    Reason.CONSTRAINTS,
    Reason.OTHER_PODS,
    Reason.VOLUMES,
    Reason.RESERVED,
    Reason.NO_NODES,
)


class Law(StrEnum):
    """Under which law a pod was evicted."""

    GUARANTEE = "guarantee"  # another queue is owed the room (YuniKorn's preemption)
    PRIORITY = "priority"  # another of its queue has a higher priority
    FAIR_SHARE = "fair share"  # its queue has more than its share, another less
    QUOTA = "quota"  # its queue has more than its max since that was lowered
    CONSOLIDATION = "consolidation"  # it was moved so that another fits
    STALE = "stale gang"  # its gang has lost its minimum
    REQUIRED_NODE = "required node"  # another must have this very node


UNSCHEDULABLE, SELECTOR, TAINTS = "unschedulable", "selector", "taints"
TOO_SMALL, TAKEN, OTHER_PODS, PLUGIN = "too small", "reserved", "other pods", "plugin"
VOLUMES = "volumes"
IN_USE = "in use"  # of volumes: another pod has one that only one pod may have
PREDICATES = (SELECTOR, TAINTS, OTHER_PODS, VOLUMES, PLUGIN)  # what but its room a node fails on


class PodCause(StrEnum):
    """Which rule about other pods closes a node."""

    PORTS = "ports"
    SPREAD = "spread"
    SPREAD_LABEL = "spread label"  # the node lacks a label that the spread is by
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    KEPT_AWAY = "kept away"  # by the anti-affinity of pods that are there


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """How many nodes of a class fail on one thing.

    ``on`` is one of the words above, or the resource type of which they have too little now; a
    node that lacks several types is counted for each. ``detail`` says which taint, which rule about
    pods or volumes, or which types a node has too little of even when empty, by commas.
    """

    node_class: str
    on: str
    nodes: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What the nodes lack for an ask, as it was when it was refused.

    ``classes`` says how many nodes there are of each class, the largest first. ``nearest`` is the
    node that lacks the least, and what it ``lacks``; "" where no node may be used at all.
    """

    total: int
    classes: Mapping[str, int]
    failures: tuple[NodeFailures, ...] = ()
    nearest: str = ""
    lacks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A limit of a queue, user or group that an amount does not fit: its first type that lacks.

    ``owner`` is ``queue root.a``, ``user alice`` or ``group g``; ``queue`` where the limit is set.
    ``left`` is what it leaves of ``most``, promises and what is kept counted as used.
    """

    owner: str
    queue: str
    resource: str
    left: int
    most: int
    amount: Mapping[str, int]

    @property
    def is_nowhere(self) -> bool:
        """Return whether it is the nodes that lack it, and none of them has any of it at all."""
        return self.owner == f"queue {ROOT}" and self.most <= 0

    def __str__(self) -> str:
        """Return it in a sentence."""
        if self.is_nowhere:
            return (
                f"{self.resource}: no node has it, requested {self.amount[self.resource]} "
                f"(all of it: {go_map(self.amount)})"
            )
        where = "" if self.owner.startswith("queue ") else f" in queue {self.queue}"
        return (
            f"{self.resource}: {self.owner} has {max(self.left, 0)} of {self.most} left{where}, "
            f"requested {self.amount[self.resource]} (all of it: {go_map(self.amount)})"
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """One "no": its reason, a sentence with the numbers, and what the nodes or a limit lack."""

    reason: Reason
    message: str
    nodes: NodeEvidence | None = field(default=None, compare=False)
    limit: Shortage | None = field(default=None, compare=False)


# What is wrong with a gang: reasons of an application's notes.
# docs/rules/gangs.md#task-groups: the reason of the event at the pod
TASK_GROUPS_ERROR = "TaskGroupsError"
LARGER_THAN_PLACEHOLDER = "LargerThanPlaceholder"
# docs/rules/gangs.md#placeholder-pods, as above
PLACEHOLDER_CREATE_FAILED = "PlaceholderCreateFailed"
ANNOTATION_IGNORED = "AnnotationIgnored"  # one that was read, and says nothing that can be done
MISMATCHES = (
    TASK_GROUPS_ERROR,
    LARGER_THAN_PLACEHOLDER,
    PLACEHOLDER_CREATE_FAILED,
    ANNOTATION_IGNORED,
)
