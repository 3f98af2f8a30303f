"""The closed vocabulary of refusals: every refusal to place an ask is one of these, with numbers.

A refusal is passed as values from where it is decided to where it is shown; only ``sentences.py``
turns it into text. `muster app NAME`, the API's pods and a scenario's ``reason`` show the codes
below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared.model.names import ROOT


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
    BACKOFF = "BACKOFF"  # left out for a while: many asks found no node, or its gang made way
    RESERVED = "RESERVED"  # the nodes with the room are kept for others
    REQUIRED_NODE = "REQUIRED_NODE"  # the one node that it must have is missing or full
    NO_NODE_FITS = "NO_NODE_FITS"  # no schedulable node has the room now
    NODE_TOO_SMALL = "NODE_TOO_SMALL"  # no node could hold it even when empty
    CONSTRAINTS = "CONSTRAINTS"  # no node matches its selector, affinity and tolerations
    OTHER_PODS = "OTHER_PODS"  # affinity, spread or host ports of pods leave no node open
    VOLUMES = "VOLUMES"  # its volumes: nodes have their number of them, or another pod has one
    DEVICES = "DEVICES"  # its claims on devices: one is not there yet, or is another pod's
    TOPOLOGY = "TOPOLOGY"  # the domain where its gang is has no node for it
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
    Reason.TOPOLOGY,
    Reason.RESERVED,
    Reason.NO_NODES,
)


class EvictionCause(StrEnum):
    """The cause of an eviction."""

    GUARANTEE = "guarantee"  # another queue is owed the room (YuniKorn's preemption)
    PRIORITY = "priority"  # another of its queue has a higher priority
    FAIR_SHARE = "fair share"  # its queue has more than its share, another less
    QUOTA = "quota"  # its queue has more than its max since that was lowered
    CONSOLIDATION = "consolidation"  # it was moved so that another fits
    STALE = "stale gang"  # its gang has lost its minimum
    REQUIRED_NODE = "required node"  # another must have this very node
    SURPLUS = "surplus"  # its gang has more than its minimum, another waits


UNSCHEDULABLE, SELECTOR, TAINTS = "unschedulable", "selector", "taints"
TOO_SMALL, TAKEN, OTHER_PODS, PLUGIN = "too small", "reserved", "other pods", "plugin"
VOLUMES = "volumes"
DOMAIN = "topology"  # its gang is in another domain
IN_USE = "in use"  # of volumes: another pod has one that only one pod may have
PREDICATES = (
    SELECTOR,
    TAINTS,
    OTHER_PODS,
    VOLUMES,
    DOMAIN,
    PLUGIN,
)  # what a node fails on, bar room


class PodCause(StrEnum):
    """Which rule about other pods excludes a node."""

    PORTS = "ports"
    SPREAD = "spread"
    SPREAD_LABEL = "spread label"  # the node lacks a label that the spread is by
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    KEPT_AWAY = "kept away"  # by the anti-affinity of pods that are there


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """How many nodes of a class fail on one thing.

    ``on`` is one of the words above, or the resource type of which they have too little now; a node
    that lacks several types is counted for each. ``detail`` is the taint, the rule about pods or
    volumes, or the types (comma-separated) of which a node has too little even when empty.
    """

    node_class: str
    on: str
    nodes: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What the nodes lack for an ask, as it was when it was refused.

    ``classes`` has the number of nodes of each class, the largest first. ``nearest`` is the node
    that lacks the least, and ``lacks`` what it lacks; "" if no node may be used at all.
    """

    total: int
    classes: Mapping[str, int]
    failures: tuple[NodeFailures, ...] = ()
    nearest: str = ""
    lacks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A limit of a queue, user or group that an amount does not fit: its first type that lacks.

    ``owner`` is ``queue root.a``, ``user alice`` or ``group g``; ``queue`` is where the limit is
    set. ``left`` is the rest of ``most``, with claims and reservations counted as used.
    """

    owner: str
    queue: str
    resource: str
    left: int
    most: int
    amount: Mapping[str, int]

    @property
    def is_nowhere(self) -> bool:
        """Whether no node in the cluster has any of the resource."""
        return self.owner == f"queue {ROOT}" and self.most <= 0

    @property
    def kind(self) -> str:
        """The owner's kind: ``queue``, ``user`` or ``group``."""
        return self.owner.split(" ", 1)[0]

    @property
    def name(self) -> str:
        """The owner's name."""
        return self.owner.removeprefix(f"{self.kind} ")

    @property
    def is_of_queue(self) -> bool:
        """Whether it is a queue's own max, not a limit of a user or group in it."""
        return self.owner == f"queue {self.queue}"


class Kind(StrEnum):
    """The details of a refusal beyond its reason; it gives ``Fact``'s fields their meaning."""

    WHOLE_GANG = "whole gang"  # a limit has no room for all of it
    ANY_MEMBER = "any member"  # nor for a single one
    NODES = "nodes"  # of total that may be used ``nodes`` could hold it empty, count have the room
    FILTER = "filter"  # count nodes were left, and fail on name
    PLACES = "places"  # for count of total members, on so many nodes; amount: one more
    MOST_PLACES = "most places"  # the same, and no other choice would find more
    OVERDUE_GANG = "overdue gang"  # one in queue name has waited for longer than the period
    NOT_ALLOCATED = "not allocated"  # count placeholders
    NOT_REQUESTED = "not requested"  # no placeholder
    PARTLY_REQUESTED = "partly requested"  # placeholders for room of an amount
    LACKS_MEMBERS = "lacks members"  # a gang that starts again: count of total are asked for
    MAKING_WAY = "making way"  # count placeholders have to go, for larger pods of group name
    TO_REPLACE = "to replace"  # group name has count placeholders left
    UNCONFIRMED = "unconfirmed"  # the release of its placeholder
    RUNNING = "running"  # name runs count of total applications, in a queue
    STARTING = "starting"  # application name of a queue
    BACKED_OFF = "backed off"  # no node took count asks; for a period
    MADE_WAY = "made way"  # its gang, for others; it grows again after a period
    NODE_MISSING = "node missing"  # the node name that it requires
    NODE_CLOSED = "node closed"  # it does not match
    NODE_SMALL = "node small"  # it has room when empty, an amount is requested
    NODE_FULL = "node full"  # it has room now, an amount is requested; it is reserved for it
    DEVICE_RELEASING = "device releasing"  # it gets its part of a shared GPU of node name
    NODE_TAKEN = "node taken"  # it is missing, full or kept for others
    CLAIM_IN_USE = "claim in use"  # claim name, by count pods, on the nodes names; with_room
    VOLUME_COUNT = "volume count"  # count more of driver name, for nodes of total; with_room
    PLUGIN = "plugin"  # name, in its own words
    FIXED = "fixed"  # a quota is short of what may not be preempted
    OTHERS_FIRST = "others first"  # amount: of each part of the gang so many start before
    TOO_FEW = "too few"  # pods of group name wait: more start together
    DOMAINS = "domains"  # of nodes of level name, text is best: count of total; with_room: names'
    SLICES = "slices"  # of most pods by level name: count of total pods have a place
    WORDS = "words"  # of who refuses
    NOT_TRIED = "not tried"  # a forecast takes count steps at most
    LARGER_THAN_MAX = "larger than max"  # a gang of an amount; room is what queue may ever have
    LARGER_THAN_PLACEHOLDER = "larger than placeholder"  # an amount; room is its, of group name


@dataclass(frozen=True, slots=True)
class HeldNodes:
    """Nodes that are held for a gang: some names, how many more, since and until when.

    ``start_ns``: its expected start, 0 if unknown.
    """

    names: tuple[str, ...]
    more: int
    since_ns: int
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Fact:
    """The numbers of a refusal; which fields are set, and what they mean, is said at its kind.

    No amount is beyond int64.
    """

    kind: str
    name: str = ""
    queue: str = ""
    count: int = 0
    total: int = 0
    nodes: int = 0
    most: int = 0
    amount: Mapping[str, int] = field(default_factory=dict)
    room: Mapping[str, int] = field(default_factory=dict)
    period_ns: int = 0
    names: tuple[str, ...] = ()
    text: str = ""
    held: HeldNodes | None = None
    with_room: int = 0  # how many nodes have the room


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal: its reason with the numbers, and what the nodes or a limit lack."""

    reason: Reason
    fact: Fact | None = None
    nodes: NodeEvidence | None = None
    limit: Shortage | None = None


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
