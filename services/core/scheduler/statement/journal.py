"""The journal: what was changed and decided, in order. All that is told is made of it.

An entry names the rows that it is about and what cannot be read from them later; their present
values are read when it is reported (``report``). Whoever changes the model writes the entry in the
same place, so that nobody has to remember to tell.

Limit: the entries of one batch; the host hands them over after every batch (``trim``).
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
    """Values of a row that are in no sum have been set, to these; none: what it waits for."""

    row: Row
    values: Mapping[str, object]


@dataclass(slots=True, eq=False)
class TimePassed:
    """It is later now; what comes after it in the journal happened at this time."""

    now_ns: int


# --- asks ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class AskChanged:
    """An ask waits, or what is known of it has changed."""

    application: Application
    ask: Ask


@dataclass(slots=True, eq=False)
class AskEnded:
    """An ask waits no more. ``why`` is a TerminationType, "" where it was allocated."""

    application: Application
    ask: Ask
    why: str


@dataclass(slots=True, eq=False)
class AskReleased:
    """An ask's end is said to the resource manager: confirmed, or decided here."""

    release: AllocationAskRelease


@dataclass(slots=True, eq=False)
class AskRejected:
    """An ask, or an allocation that exists, was refused."""

    item: Allocation | AllocationAsk
    reason: str


@dataclass(slots=True, eq=False)
class AskUnschedulable:
    """More nodes would help an ask: its pod is marked, for the cluster's autoscaler."""

    application: Application
    ask: Ask
    refusal: Refusal


# --- allocations --------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Allocated:
    """An allocation counts from now on. ``is_new``: the resource manager has yet to bind it."""

    application: Application
    allocation: Allocation
    is_new: bool


@dataclass(slots=True, eq=False)
class AllocationsFound:
    """Allocations that exist already count from now on, in this order, on these nodes."""

    found: list[tuple[Application, Allocation]]
    nodes: list[Node]


@dataclass(slots=True, eq=False)
class RunPlaced:
    """Asks were placed by one run, in this order, on these nodes: they have ended, allocated."""

    placed: list[tuple[Application, Ask, Allocation]]
    nodes: list[Node]


@dataclass(slots=True, eq=False)
class AllocationChanged:
    """An allocation has another size."""

    application: Application
    allocation: Allocation


@dataclass(slots=True, eq=False)
class AllocationReleased:
    """An allocation's end was decided here; it counts until that is confirmed."""

    application: Application
    allocation: Allocation
    why: TerminationType
    message: str


@dataclass(slots=True, eq=False)
class AllocationEnded:
    """An allocation counts no more.

    ``why`` is the type of the release that ended it. ``is_node_gone``: its node went and took it
    along.
    """

    application: Application
    allocation: Allocation
    why: str
    is_node_gone: bool


@dataclass(slots=True, eq=False)
class SwapBegun:
    """A placeholder is being released for an ask, which is to start as this allocation.

    ``is_placed``: the allocation is on a node already that is not the placeholder's.
    """

    application: Application
    placeholder_key: str
    allocation: Allocation
    is_placed: bool


@dataclass(slots=True, eq=False)
class SwapConfirmed:
    """A placeholder has gone, and what was to take its place has it."""

    application: Application
    placeholder_key: str


@dataclass(slots=True, eq=False)
class SwapFailed:
    """What was to take a placeholder's place does not any more: it has gone, or waits again."""

    application: Application
    placeholder_key: str


@dataclass(slots=True, eq=False)
class EndConfirmed:
    """An allocation's end that was not decided here is said to the resource manager."""

    release: AllocationRelease


@dataclass(slots=True, eq=False)
class ForeignChanged:
    """A pod of another scheduler was counted on its node, or counted out (``is_gone``)."""

    allocation: Allocation
    is_gone: bool


# --- claims ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ClaimMade:
    """Room is kept for an ask from now on, or is reported again: others have gone for it."""

    claim: Claim


@dataclass(slots=True, eq=False)
class ClaimChanged:
    """A claim keeps so much from now on: of its node's free room, and in the queues on the path."""

    claim: Claim
    on_node: ResourceView
    in_queues: ResourceView


@dataclass(slots=True, eq=False)
class ClaimEnded:
    """A claim keeps nothing any more."""

    claim: Claim


# --- applications, nodes, queues, users ---------------------------------------------------------


@dataclass(slots=True, eq=False)
class ApplicationAccepted:
    """An application was taken into its queue."""

    application: Application


@dataclass(slots=True, eq=False)
class GroupFound:
    """What an application has, and has had since it came, counts for a group; "": for none."""

    application: Application
    group: str


@dataclass(slots=True, eq=False)
class ApplicationRejected:
    """An application was refused. ``shown`` is what people see of it, None where it is known."""

    request: AddApplicationRequest
    queue: Queue | None
    reason: str
    shown: Application | None
    fact: Fact | None = None  # the numbers of the reason, if it has any


@dataclass(slots=True, eq=False)
class ApplicationEnded:
    """An application that has ended was taken out of everything."""

    application: Application


@dataclass(slots=True, eq=False)
class ApplicationChanged:
    """An application's own values have changed, and with them its queue's."""

    application: Application


@dataclass(slots=True, eq=False)
class StateChanged:
    """An application has moved to another state."""

    application: Application
    state: ApplicationState
    message: str


@dataclass(slots=True, eq=False)
class NodeAccepted:
    """A node was taken in."""

    node: Node


@dataclass(slots=True, eq=False)
class NodeRejected:
    """News of a node was refused."""

    info: NodeInfo
    reason: str


@dataclass(slots=True, eq=False)
class NodeChanged:
    """A node's sums, or its reservations, have changed."""

    node: Node


@dataclass(slots=True, eq=False)
class NodeEnded:
    """A node has gone."""

    node: Node


@dataclass(slots=True, eq=False)
class QueueChanged:
    """A queue's values have changed, and with them those above it."""

    queue: Queue


@dataclass(slots=True, eq=False)
class QueueEnded:
    """A queue has gone."""

    queue: Queue


@dataclass(slots=True, eq=False)
class UsageChanged:
    """What a user or a group uses, or is linked to, has changed: in a leaf, or (None) anywhere."""

    tracker: Tracker
    leaf: Queue | None = None


@dataclass(slots=True, eq=False)
class UsageReported:
    """Usage over time is handed over, for the resource manager to keep."""

    records: list[UsageRecord]


@dataclass(slots=True, eq=False)
class PartitionChanged:
    """The partition's own values have changed."""


# --- timers -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class TimerArmed:
    """A timer was set, or set anew."""

    timer: TimerSet


@dataclass(slots=True, eq=False)
class TimerCancelled:
    """A timer that was set is no more."""

    timer_id: str
    generation: str


@dataclass(slots=True, eq=False)
class TimerSpent:
    """A timer that was set has fired."""

    timer_id: str


# --- what people are told of, beside the values ---------------------------------------------------


@dataclass(slots=True, eq=False)
class HeadroomLacking:
    """An ask does not fit its queue, or (``is_user``) its user's limit."""

    application: Application
    ask: Ask
    is_user: bool
    available: ResourceView


@dataclass(slots=True, eq=False)
class HeadroomFound:
    """An ask fits again that did not fit before."""

    application: Application
    ask: Ask
    is_user: bool


@dataclass(slots=True, eq=False)
class RunnableChanged:
    """A limit on running applications keeps an application from starting, or does no more."""

    application: Application
    is_user: bool
    may_run: bool


@dataclass(slots=True, eq=False)
class LimitChanged:
    """A queue has another limit for a user or group; None: none any more."""

    queue: Queue
    name: str
    is_group: bool
    limit: Limit | None


@dataclass(slots=True, eq=False)
class Preempted:
    """A victim is told why it goes: under which law, for whom (None: for nobody), and the ask."""

    application: Application
    allocation: Allocation
    text: str
    law: str  # a EvictionCause, or the name of an action that has none
    winner: Application | None = None
    ask: str = ""


@dataclass(slots=True, eq=False)
class NoVictim:
    """The node that an ask requires is full of what may not be preempted for it."""

    application: Application
    ask: Ask


@dataclass(slots=True, eq=False)
class NodesClosed:
    """No node takes an ask, and it is not only room that they lack."""

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
    """The resource manager has found something out about a pod."""

    note: ApplicationNote


@dataclass(slots=True, eq=False)
class PodsHeldChanged:
    """Other pods of an application than before are held back by the resource manager."""

    held: PodsHeld


@dataclass(slots=True, eq=False)
class Stuck:
    """A victim should have gone and has not: its room is nobody's."""

    application: Application
    allocation: Allocation


@dataclass(slots=True, eq=False)
class PairHeld:
    """Two applications evicted each other in turn and are kept from it for a while."""

    one: str
    other: str


@dataclass(slots=True, eq=False)
class QuotaEnforced:
    """A queue was made to give back what is over its max."""

    queue: Queue
    wanted: ResourceView
    claimed: ResourceView
    victims: int


@dataclass(slots=True, eq=False)
class NotSent:
    """Something, of an application where it has one, could not be sent."""

    name: str
    reason: str


@dataclass(slots=True, eq=False)
class ConfigurationRefused:
    """A configuration was refused; the one before it stands."""

    error: str


class Journal:
    """The entries since they were last handed over."""

    def __init__(self) -> None:
        self._entries: list[object] = []
        self.record = self._entries.append

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[object]:
        return iter(self._entries)

    def since(self, at: int) -> list[object]:
        """Return what was recorded since there were so many entries."""
        return self._entries[at:]

    def trim(self) -> list[object]:
        """Hand over what was recorded, in order, and begin anew."""
        entries, self._entries = self._entries, []
        self.record = self._entries.append
        return entries


def limit_changes(
    queue: Queue, users: Mapping[str, Limit], groups: Mapping[str, Limit]
) -> list[LimitChanged]:
    """Return which limits of users and groups a queue has now that it had not, or has no more.

    ``users`` and ``groups`` are those before.
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
