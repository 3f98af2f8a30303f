"""The journal: changes and decisions in order. Every outgoing message is made from it.

An entry names its rows and the values that cannot be read from them later; ``report`` reads the
present values. The function that changes the model records the entry, so that no caller can forget
it.
Limit: the entries of one batch; the host reads them after every batch (``trim``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.core.scheduler.model.queue_settings import Limit
from services.core.scheduler.model.rows import (
    Application,
    AskGroup,
    Claim,
    Node,
    Queue,
    Tracker,
)
from services.core.scheduler.model.shapes import Ask
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    ApplicationNote,
    NodeInfo,
    PodsHeld,
    TerminationType,
    UsageRecord,
)
from shared.messages.protocol import TimerSet
from shared.model.reasons import Fact, Refusal
from shared.model.resources import ResourceView
from shared.model.states import ApplicationState

Row = Application | Node | Queue | Ask | AskGroup | Claim


@dataclass(slots=True, eq=False)
class RowSet:
    """Fields of a row that are in no sum were set; no values: its waiting list changed."""

    row: Row
    values: Mapping[str, object]


@dataclass(slots=True, eq=False)
class TimePassed:
    """The clock advanced; later entries happened at this time."""

    now_ns: int


# --- asks ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class AskChanged:
    """An ask waits, or its known facts changed."""

    application: Application
    ask: Ask


@dataclass(slots=True, eq=False)
class AskEnded:
    """An ask no longer waits. ``why`` is a TerminationType, "" if it was allocated."""

    application: Application
    ask: Ask
    why: str


@dataclass(slots=True, eq=False)
class AskReleased:
    """The end of an ask, confirmed or decided here, is to be sent to the resource manager."""

    release: AllocationAskRelease


@dataclass(slots=True, eq=False)
class AskRejected:
    """An ask, or an existing allocation, was rejected."""

    item: Allocation | AllocationAsk
    reason: str


@dataclass(slots=True, eq=False)
class AskUnschedulable:
    """More nodes would help an ask: its pod is marked for the cluster autoscaler."""

    application: Application
    ask: Ask
    refusal: Refusal


# --- allocations --------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Allocated:
    """An allocation was added. ``is_new``: the resource manager has yet to bind it."""

    application: Application
    allocation: Allocation
    is_new: bool


@dataclass(slots=True, eq=False)
class AllocationsFound:
    """Existing allocations were added, in this order, on these nodes."""

    found: list[tuple[Application, Allocation]]
    nodes: list[Node]


@dataclass(slots=True, eq=False)
class RunPlaced:
    """A run allocated asks, in this order, on these nodes; the asks have ended."""

    placed: list[tuple[Application, Ask, Allocation]]
    nodes: list[Node]


@dataclass(slots=True, eq=False)
class AllocationChanged:
    """An allocation changed its size or state."""

    application: Application
    allocation: Allocation


@dataclass(slots=True, eq=False)
class AllocationReleased:
    """The core released an allocation; it counts until the release is confirmed."""

    application: Application
    allocation: Allocation
    why: TerminationType
    message: str


@dataclass(slots=True, eq=False)
class AllocationEnded:
    """An allocation was removed.

    ``why`` is the termination type. ``is_node_gone``: it ended because its node was removed.
    """

    application: Application
    allocation: Allocation
    why: str
    is_node_gone: bool


@dataclass(slots=True, eq=False)
class SwapBegun:
    """A placeholder is being released for an ask, which will start as this allocation.

    ``is_placed``: the allocation already occupies another node than the placeholder's.
    """

    application: Application
    placeholder_key: str
    allocation: Allocation
    is_placed: bool


@dataclass(slots=True, eq=False)
class SwapConfirmed:
    """A placeholder has ended, and its real allocation replaced it."""

    application: Application
    placeholder_key: str


@dataclass(slots=True, eq=False)
class SwapFailed:
    """A placeholder will not be replaced: its real ask has ended, or waits again."""

    application: Application
    placeholder_key: str


@dataclass(slots=True, eq=False)
class EndConfirmed:
    """The end of an allocation that the core did not decide is to be confirmed."""

    release: AllocationRelease


@dataclass(slots=True, eq=False)
class ForeignChanged:
    """A foreign pod was added to its node, or removed (``is_gone``)."""

    allocation: Allocation
    is_gone: bool


# --- claims ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ClaimMade:
    """Capacity was reserved for an ask, or is reported again with victims released for it."""

    claim: Claim


@dataclass(slots=True, eq=False)
class ClaimChanged:
    """A claim's amounts changed: of its node's free capacity, and in the queues on its path."""

    claim: Claim
    on_node: ResourceView
    in_queues: ResourceView


@dataclass(slots=True, eq=False)
class ClaimEnded:
    """A claim ended."""

    claim: Claim


# --- applications, nodes, queues, users ---------------------------------------------------------


@dataclass(slots=True, eq=False)
class ApplicationAccepted:
    """An application was accepted into its queue."""

    application: Application


@dataclass(slots=True, eq=False)
class GroupFound:
    """An application's usage, from its start, counts for this group; "": for no group."""

    application: Application
    group: str


@dataclass(slots=True, eq=False)
class ApplicationRejected:
    """An application was rejected. ``shown`` is its row for display, None if it exists already."""

    request: AddApplicationRequest
    queue: Queue | None
    reason: str
    shown: Application | None
    fact: Fact | None = None  # the numbers of the reason, if it has any


@dataclass(slots=True, eq=False)
class ApplicationEnded:
    """An ended application was removed from every table."""

    application: Application


@dataclass(slots=True, eq=False)
class ApplicationChanged:
    """An application's own values changed, and its queue's with them."""

    application: Application


@dataclass(slots=True, eq=False)
class StateChanged:
    """An application changed its state."""

    application: Application
    state: ApplicationState
    message: str


@dataclass(slots=True, eq=False)
class NodeAccepted:
    """A node was added."""

    node: Node


@dataclass(slots=True, eq=False)
class NodeRejected:
    """A node update was rejected."""

    info: NodeInfo
    reason: str


@dataclass(slots=True, eq=False)
class NodeChanged:
    """A node's sums or reservations changed."""

    node: Node


@dataclass(slots=True, eq=False)
class NodeEnded:
    """A node was removed."""

    node: Node


@dataclass(slots=True, eq=False)
class QueueChanged:
    """A queue's values changed, and those of the queues above it."""

    queue: Queue


@dataclass(slots=True, eq=False)
class QueueEnded:
    """A queue was removed."""

    queue: Queue


@dataclass(slots=True, eq=False)
class UsageChanged:
    """The usage, or the links, of a user or group changed: in a leaf, or (None) anywhere."""

    tracker: Tracker
    leaf: Queue | None = None


@dataclass(slots=True, eq=False)
class UsageReported:
    """Usage over time is to be stored by the resource manager."""

    records: list[UsageRecord]


@dataclass(slots=True, eq=False)
class PartitionChanged:
    """The partition's own values changed."""


# --- timers -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class TimerArmed:
    """A timer was set, or set again."""

    timer: TimerSet


@dataclass(slots=True, eq=False)
class TimerCancelled:
    """A timer was cancelled."""

    timer_id: str
    generation: str


@dataclass(slots=True, eq=False)
class TimerSpent:
    """A timer fired."""

    timer_id: str


# --- events for users, in addition to the values --------------------------------------------------


@dataclass(slots=True, eq=False)
class HeadroomLacking:
    """An ask exceeds the headroom of its queue, or (``is_user``) of its user."""

    application: Application
    ask: Ask
    is_user: bool
    available: ResourceView


@dataclass(slots=True, eq=False)
class HeadroomFound:
    """An ask fits the headroom again."""

    application: Application
    ask: Ask
    is_user: bool


@dataclass(slots=True, eq=False)
class RunnableChanged:
    """A limit on running applications blocks an application's start, or no longer does."""

    application: Application
    is_user: bool
    may_run: bool


@dataclass(slots=True, eq=False)
class LimitChanged:
    """A queue's limit for a user or group changed; None: removed."""

    queue: Queue
    name: str
    is_group: bool
    limit: Limit | None


@dataclass(slots=True, eq=False)
class Preempted:
    """A victim was chosen: the rule, the application and ask it makes way for (None: for none)."""

    application: Application
    allocation: Allocation
    text: str
    cause: str  # an EvictionCause, or the name of an action that has none
    winner: Application | None = None
    ask: str = ""


@dataclass(slots=True, eq=False)
class NoVictim:
    """The required node of an ask is full of pods that it may not preempt."""

    application: Application
    ask: Ask


@dataclass(slots=True, eq=False)
class NodesClosed:
    """No node fits an ask, for other reasons than capacity."""

    application: Application
    ask: Ask
    refusal: Refusal


@dataclass(slots=True, eq=False)
class BindFailed:
    """An allocation could not be bound, and its ask waits again."""

    application: Application
    key: str
    reason: str


@dataclass(slots=True, eq=False)
class PlaceholderTooSmall:
    """An ask is larger than its group's placeholders."""

    application: Application
    ask: Ask
    text: str


@dataclass(slots=True, eq=False)
class Noted:
    """The resource manager found a problem with a pod."""

    note: ApplicationNote


@dataclass(slots=True, eq=False)
class PodsHeldChanged:
    """The pods of an application that the resource manager holds back changed."""

    held: PodsHeld


@dataclass(slots=True, eq=False)
class Stuck:
    """A victim did not end in time: its capacity is no longer counted on."""

    application: Application
    allocation: Allocation


@dataclass(slots=True, eq=False)
class PairHeld:
    """Two applications evicted each other in turn and are barred from it for a while."""

    one: str
    other: str


@dataclass(slots=True, eq=False)
class QuotaEnforced:
    """Victims were evicted from a queue over its max."""

    queue: Queue
    wanted: ResourceView
    claimed: ResourceView
    victims: int


@dataclass(slots=True, eq=False)
class NotSent:
    """An item, of an application if it has one, could not be sent."""

    name: str
    reason: str


@dataclass(slots=True, eq=False)
class ConfigurationRefused:
    """A configuration was rejected; the previous one stays in use."""

    error: str


class Journal:
    """The entries since the last ``trim``."""

    def __init__(self) -> None:
        self._entries: list[object] = []
        self.record = self._entries.append

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[object]:
        return iter(self._entries)

    def since(self, at: int) -> list[object]:
        """Return the entries recorded after the first ``at`` ones."""
        return self._entries[at:]

    def trim(self) -> list[object]:
        """Return all entries in order, and start empty again."""
        entries, self._entries = self._entries, []
        self.record = self._entries.append
        return entries


def limit_changes(
    queue: Queue, users: Mapping[str, Limit], groups: Mapping[str, Limit]
) -> list[LimitChanged]:
    """Return the changes of a queue's limits for users and groups.

    ``users`` and ``groups`` are the limits before.
    """
    return [
        LimitChanged(queue, name, is_group, after.get(name))
        for is_group, before, after in (
            (False, users, queue.user_limits),
            (True, groups, queue.group_limits),
        )
        for name in dict.fromkeys((*before, *after))
        if after.get(name) != before.get(name)
    ]
