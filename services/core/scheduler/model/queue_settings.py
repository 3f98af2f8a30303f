"""A queue's configuration: amounts, access, limits, and its parsed properties.

Properties are text; an invalid value is the default, never an error
(docs/rules/queues.md#properties).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from services.core.scheduler.model.access import NOBODY, Access
from shared.model.duration import parse_go_duration
from shared.model.numbers import parse_int32, parse_uint64
from shared.model.queue_properties import (
    is_among_siblings,
    of_types,
    parse_deserved,
    parse_levels,
    parse_spares,
    parse_weight,
)
from shared.model.resources import Resource
from shared.model.units import seconds

FIFO = "fifo"
FAIR = "fair"
STATE_AWARE = "stateaware"
USAGE = "usage"
FENCE = "fence"
DISABLED = "disabled"
DIVISION_PRIORITY = 100
MAX_SETTINGS = 256  # parsed sets of properties; the oldest is forgotten
Value = TypeVar("Value", int, Fraction)
DEFAULT_BACKOFF_NS = seconds(30)
DEFAULT_PREEMPTION_DELAY_NS = seconds(30)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue's properties. ``backoff_asks`` 0: no backoff; delays are in nanoseconds.

    From ``division_priority`` on for the policy ``kai``, except ``service_levels_ns`` and
    ``spares``: what exceeds the quotas is divided by ``division_priority``, highest first, then by
    ``over_quota_weight``, or ``over_quota_weights`` by type; ``deserved`` is the quota of a type in
    place of the guarantee (UNLIMITED: no limit); the minimum runtimes protect a job's minimum from
    its start, None if queues above decide; with ``reclaim_by_queue`` the victim's own queue decides
    instead of the one below the common ancestor; ``service_levels_ns`` is the device-time at which
    an application reaches each level (``lost_work.py``); ``spares`` is a level, and the number of
    nodes that stay free for the queue's gangs in each of its domains where it has one.
    """

    sort_policy: str = FIFO
    state_aware: bool = False
    priority_sorting: bool = True
    priority_fence: bool = False
    priority_offset: int = 0
    backoff_asks: int = 0
    backoff_delay_ns: int = DEFAULT_BACKOFF_NS
    preemption_policy: str = "default"
    preemption_delay_ns: int = DEFAULT_PREEMPTION_DELAY_NS
    quota_preemption_delay_ns: int = 0
    division_priority: int = DIVISION_PRIORITY
    over_quota_weight: Fraction = Fraction(1)
    over_quota_weights: Mapping[str, Fraction] = field(default_factory=dict)
    deserved: Mapping[str, int] = field(default_factory=dict)
    reclaim_min_runtime_ns: int | None = None
    preempt_min_runtime_ns: int | None = None
    reclaim_by_queue: bool = False
    service_levels_ns: tuple[int, ...] = ()
    spares: tuple[str, int] = ("", 0)

    @property
    def goes_by_arrival(self) -> bool:
        """Whether applications are ordered by age, priorities aside."""
        return self.sort_policy == FIFO

    def seen_from_above(self, priority: int) -> int:
        """Return what a priority in the queue counts for outside of it: its offset and fence."""
        offset = self.priority_offset
        return offset if self.priority_fence else priority + offset


def settings_of(properties: dict[str, str]) -> QueueSettings:
    """Parse a queue's properties."""
    policy = properties.get("application.sort.policy", FIFO).lower()
    preemption = properties.get("preemption.policy", "default").lower()
    return QueueSettings(
        sort_policy=policy if policy in (FAIR, USAGE) else FIFO,
        state_aware=policy == STATE_AWARE,
        priority_sorting=properties.get("application.sort.priority", "").lower() != DISABLED,
        priority_fence=properties.get("priority.policy", "").lower() == FENCE,
        priority_offset=parse_int32(properties.get("priority.offset", "")) or 0,
        backoff_asks=parse_uint64(properties.get("application.unschedasks.backoff", "")) or 0,
        backoff_delay_ns=_delay(
            properties, "application.unschedasks.backoff.delay", DEFAULT_BACKOFF_NS
        ),
        preemption_policy=preemption if preemption in (FENCE, DISABLED) else "default",
        preemption_delay_ns=_delay(properties, "preemption.delay", DEFAULT_PREEMPTION_DELAY_NS),
        quota_preemption_delay_ns=_delay(properties, "quota.preemption.delay", 0),
        division_priority=_int_or(properties, "overquota.priority", DIVISION_PRIORITY),
        over_quota_weight=_weight(properties.get("overquota.weight", "")),
        over_quota_weights=_by_type(
            of_types(properties, "overquota.weight.TYPE"), lambda _, text: parse_weight(text)
        ),
        deserved=_by_type(of_types(properties, "deserved.TYPE"), parse_deserved),
        reclaim_min_runtime_ns=parse_go_duration(properties.get("reclaim.min.runtime", "")),
        reclaim_by_queue=properties.get("reclaim.min.runtime.of", "").lower() == "queue",
        spares=parse_spares(properties.get("spares", "")) or ("", 0),
        service_levels_ns=parse_levels(properties.get("attained.service.levels", "")) or (),
        preempt_min_runtime_ns=parse_go_duration(properties.get("preempt.min.runtime", "")),
    )


@lru_cache(maxsize=MAX_SETTINGS)
def settings_as_stated(stated: tuple[tuple[str, str], ...]) -> QueueSettings:
    """Parse properties, cached, because many queues have the same."""
    return settings_of(dict(stated))


def settings_of_root(properties: dict[str, str]) -> QueueSettings:
    """Parse the root's properties: it has no siblings, so no offset and no fences.

    ``preemption.policy: disabled`` and everything else is inherited by the queues below as usual.
    """
    settings = settings_of(properties)
    policy = settings.preemption_policy
    return replace(
        settings,
        priority_offset=0,
        priority_fence=False,
        preemption_policy="default" if policy == FENCE else policy,
    )


def inheritable(properties: dict[str, str]) -> dict[str, str]:
    """Return a parent's properties as a child inherits them.

    Source: docs/rules/queues.md#properties.
    """
    child = dict(properties)
    for name in [name for name in child if is_among_siblings(name)]:
        del child[name]
    for name, reset in (("priority.policy", "default"), ("priority.offset", "0")):
        if name in child:
            child[name] = reset
    if child.get("preemption.policy", DISABLED).lower() != DISABLED:
        child["preemption.policy"] = "default"
    return child


def _weight(text: str) -> Fraction:
    """Parse a weight; negative ones are 0, invalid ones 1."""
    if (parse_int32(text) or 0) < 0:
        return Fraction(0)
    found = parse_weight(text)
    return Fraction(1) if found is None else found


def _by_type(
    stated: Iterable[tuple[str, str]], read: Callable[[str, str], Value | None]
) -> dict[str, Value]:
    """Parse the values of each type, without invalid ones."""
    found = ((kind, read(kind, text)) for kind, text in stated)
    return {kind: value for kind, value in found if value is not None}


def _int_or(properties: dict[str, str], name: str, default: int) -> int:
    value = parse_int32(properties.get(name, ""))
    return default if value is None else value


def _delay(properties: dict[str, str], name: str, default_ns: int) -> int:
    delay_ns = parse_go_duration(properties.get(name, ""))
    return delay_ns or default_ns


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one user, one group, or each of them by a wildcard, in a queue.

    ``max_resource`` None and ``max_applications`` 0 are no limit.
    """

    max_resource: Resource | None = None
    max_applications: int = 0


@dataclass(frozen=True, slots=True)
class Template:
    """The settings of a new dynamic leaf."""

    max_resource: Resource | None = None
    guaranteed_resource: Resource | None = None
    max_applications: int = 0
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One queue in a queues.yaml; None is "not set". ``children`` are in file order."""

    name: str
    parent: bool = False
    max_resource: Resource | None = None
    guaranteed_resource: Resource | None = None
    max_applications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    children: tuple["QueueConfig", ...] = ()
    submit_access: Access = NOBODY
    admin_access: Access = NOBODY
    template: Template | None = None
    user_limits: dict[str, Limit] = field(default_factory=dict)
    group_limits: dict[str, Limit] = field(default_factory=dict)
