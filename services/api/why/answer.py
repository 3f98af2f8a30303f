"""The answer to why an application or a pod waits or runs, as sent over HTTP.

Times are nanoseconds of Unix time, 0 where they are not known; amounts are in the interface's own
units, as everywhere: vcore in milli, memory in bytes.
"""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.model.names import DEFAULT_PARTITION


def _is_default(partition: str) -> bool:
    return partition == DEFAULT_PARTITION


# Left out of the default one, as in every row of Muster's own.
PARTITION = Field(default=DEFAULT_PARTITION, exclude_if=_is_default)


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Mismatch(_Part):
    """What is wrong with a gang: pods that do not match it, or placeholders that were refused."""

    reason: str
    message: str


class Wait(_Part):
    """One reason with its numbers; ``asks`` wait for it, of which ``pods`` names some.

    ``heldBack``: the core was not asked for these pods yet; the resource manager holds them back.
    """

    reason: str
    message: str
    since: int
    asks: int
    pods: list[str] = []
    held_back: bool = False


class LimitRow(_Part):
    """What a queue, a user or a group has left of a type, against what is needed."""

    owner: str
    queue_name: str
    resource: str
    max: int
    used: int
    headroom: int
    need: int
    lacks: int


class Failure(_Part):
    """How many nodes of a class fail on one thing.

    ``what``: a type of which they have too little now, or ``unschedulable``, ``selector``,
    ``taints``, ``plugin``, ``too small``, ``other pods``, ``reserved``.
    """

    what: str
    nodes: int


class NodeClass(_Part):
    """Nodes that are alike, by instance type, else by what they can hold."""

    name: str = Field(alias="class")
    nodes: int
    fails: list[Failure]


class Nearest(_Part):
    """The node that lacks the least ("" where none may be used at all), and what would cure it."""

    node_id: str = Field(alias="nodeID")
    lacks: dict[str, int]
    cure: str


class Nodes(_Part):
    """What the nodes lack, as it was when they refused."""

    total: int
    classes: list[NodeClass]
    nearest: Nearest


class WaitsFor(_Part):
    """What it waits for, and since when."""

    kind: str
    name: str
    since: int
    text: str


class Group(_Part):
    """A task group: how many members it wants, holds places for, has running and lacks, and why."""

    name: str
    wanted: int
    held: int
    replaced: int
    timedout: int
    missing: int
    why: str


class Level(_Part):
    """How many pods are in which domains of a level, by the path of each."""

    level: str
    pods: dict[str, int]


class Gang(_Part):
    """All task groups, and their sums; ``domains`` is where its pods are, by level."""

    wanted: int
    held: int
    replaced: int
    groups: list[Group]
    domains: list[Level] = []


class Eviction(_Part):
    """An eviction: its victim, its preemptor ("": none) and the policy."""

    time: int
    role: str
    victim: str
    victim_name: str
    victim_application: str
    queue_name: str
    winner: str
    ask: str
    node_id: str = Field(alias="nodeID")
    resource: dict[str, int]
    law: str
    message: str
    partition: str = PARTITION


class LogLine(_Part):
    """Why its asks were refused when they were tried, and how often."""

    message: str
    count: int
    last: int


class Why(_Part):
    """One sentence with the dominant reason, then the evidence.

    ``verdict``: waiting, starting (not refused), running, ending, ended, rejected or evicted.
    """

    name: str
    kind: str
    application_id: str = Field(alias="applicationID")
    queue_name: str
    state: str
    verdict: str
    reason: str
    sentence: str
    since: int
    mismatches: list[Mismatch] = []
    waits: list[Wait] = []
    need: dict[str, int] = {}
    queues: list[LimitRow] = []
    limits: list[LimitRow] = []
    nodes: Nodes | None = None
    waits_for: list[WaitsFor] = []
    gang: Gang | None = None
    evictions: list[Eviction] = []
    log: list[LogLine] = []
    partition: str = PARTITION
