"""Messages that coordinate the services: recovery, heartbeats and timers.

One recovery path serves the first start, a failover, a broker restart and a re-registration.
"""

from dataclasses import dataclass
from enum import StrEnum

MAX_EPOCH = 2**62  # an epoch that does not follow the last; a message above it is ignored


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A message a second into an inbox.

    The first one that an instance receives shows that it is the active reader.
    """

    instance: str


@dataclass(frozen=True, slots=True)
class AtWork:
    """An active instance has handled a heartbeat of its own since its last one: it works.

    Sent to the API with each heartbeat. ``is_ready``: it can answer requests; a recovering core is
    active, but not ready. The envelope's ``seq`` is that of the last state change that the instance
    published in its epoch (0: none): a replica without it has missed it.
    """

    instance: str
    is_ready: bool = True


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A core became active and asks the resource manager for everything that exists."""

    core_id: str


@dataclass(frozen=True, slots=True)
class SyncBegin:
    """The resource manager's answer starts; the messages until SyncEnd are of this epoch.

    ``last_good`` is the last valid queue configuration ("": unknown), in case ``config`` is
    refused. ``finds_pods``: the sender answers FindPod.
    """

    config: str
    scheduler: tuple[tuple[str, str], ...] = ()
    last_good: str = ""
    finds_pods: bool = False


@dataclass(frozen=True, slots=True)
class SyncEnd:
    """Everything that exists has been sent; decisions may be made."""

    nodes: int
    allocations: int
    asks: int


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of queues.yaml, by the resource manager's adapter, in the order of the file.

    Partitions removed from the file that still have resources in use are listed last.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionsRequest:
    """A new instance asks which partitions there are; all get the answer, if there are several."""

    instance: str


@dataclass(frozen=True, slots=True)
class PartitionsHeld:
    """The partitions that a process of core or timers is active for, for the others of its kind."""

    instance: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContinueCycle:
    """The core's note to itself: a cycle, or searches for victims, stopped at their limit."""

    cycle: int


class TimerKind(StrEnum):
    """What a timer is for."""

    PLACEHOLDER = "placeholder"
    COMPLETING = "completing"
    EXECUTION = "execution"
    BACKOFF = "backoff"
    RESERVATION = "reservation"
    CLEANER = "cleaner"
    PREEMPTION = "preemption"
    QUOTA = "quota"


PARTITION_TIMER = ""  # application id of the partition's own timers


@dataclass(frozen=True, slots=True)
class TimerSet:
    """Arm a timer, or move it: the same id and generation twice changes nothing."""

    timer_id: str
    kind: TimerKind
    application_id: str
    generation: str
    due_ns: int


@dataclass(frozen=True, slots=True)
class TimerCancel:
    """Disarm a timer; an unknown one changes nothing."""

    timer_id: str
    generation: str


@dataclass(frozen=True, slots=True)
class TimerOrders:
    """Core to timers. ``reset``: these are all there are, forget every other one."""

    reset: bool = False
    cancelled: tuple[TimerCancel, ...] = ()
    armed: tuple[TimerSet, ...] = ()


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer is due; harmless when late or repeated, for the core checks the generation."""

    timer_id: str
    kind: TimerKind
    application_id: str
    generation: str


@dataclass(frozen=True, slots=True)
class TimerFirings:
    """Timers to core."""

    fired: tuple[TimerFired, ...] = ()


@dataclass(frozen=True, slots=True)
class TimerSyncRequest:
    """A timer service became active and asks the core for every armed timer."""

    instance: str


@dataclass(frozen=True, slots=True)
class Tick:
    """It is now t: never on a bus, put in by the host of a machine that waits for a time."""
