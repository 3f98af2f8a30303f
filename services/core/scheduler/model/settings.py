"""Muster's own scheduler settings, which are not part of queues.yaml."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from shared.model.duration import parse_go_duration
from shared.model.numbers import parse_int64
from shared.model.queue_properties import parse_spares, parse_weight
from shared.model.scheduler_settings import (
    ASKS,
    BACKFILLS,
    DISABLED,
    ENABLED,
    FAIR_LEAF_GANGS,
    GANG,
    HEADS,
    MAX_LEVELS,
    NONE,
    PRESETS,
    REMAKE_PLACEHOLDERS,
    RESERVATIONS,
    SCORE_WINDOW,
    SHORTEST_FIRST,
    STATE_AWARE,
    STATED,
    named,
    preset_of,
    topology_levels,
)
from shared.model.service_keys import is_handed_on
from shared.model.units import seconds

QUEUE_GANG = "queue"
CLUSTER_GANG = "cluster"
PARTIAL_GANG = "partial"
_GANG_ADMISSIONS = (QUEUE_GANG, CLUSTER_GANG, PARTIAL_GANG)
TURNS, AGE = "turns", "age"
YOUNGEST, LEAST_LOST = "youngest", "leastLost"
VICTIM_ORDERS = (YOUNGEST, LEAST_LOST)  # of otherwise equal victims of a queue
GROWTHS = (AGE, TURNS)  # of gangs
KEPT, YIELDS = "kept", "yields"
SURPLUSES = (KEPT, YIELDS)  # pods of a gang above its minimum
YUNIKORN, KAI = "yunikorn", "kai"
ALLOCATE, CONSOLIDATION, RECLAIM = "allocate", "consolidation", "reclaim"
PREEMPT, STALE = "preempt", "stalegangeviction"
ACTIONS = (ALLOCATE, CONSOLIDATION, RECLAIM, PREEMPT, STALE)
SHRINK = "shrink"  # comes with ``gangSurplus: yields`` and is not named
STARVATION_GUARD_NS = seconds(5 * 60)
MAY_BE_NAMED = {KAI: ACTIONS, YUNIKORN: (ALLOCATE, CONSOLIDATION, PREEMPT, STALE)}
UNLESS_NAMED = {
    KAI: (ALLOCATE, CONSOLIDATION, RECLAIM, PREEMPT, STALE),
    YUNIKORN: (ALLOCATE, PREEMPT),
}
RESERVATION_DELAY_NS = seconds(2)
RESERVED_NODES_LEAST, RESERVED_NODES_PERCENT = 4, 5
IDLE_PERCENT = 2  # idle capacity allowed for the head gang, of the cluster in a day
RESERVED_FOR_HEADS_PERCENT = 2  # one node at least
_COUNT_OR_SHARE = re.compile(r"([0-9]{1,9})(%?)")
CONSOLIDATION_VICTIMS = 16  # as in KAI
STALENESS_GRACE_NS = seconds(60)
STUCK_AFTER_NS = seconds(2 * 60)
RESTART_ROOM_NS = seconds(30)
AVOID_NODE_NS = seconds(10 * 60)  # of gangs that start again as a whole below their minimum
NODE_SCORE_WINDOW = 1_000  # recent asks that node scores use
MAX_NODE_SCORE_WINDOW = 10_000  # asks of the mix that node scores look at; more are refused
_SHOWN = 60  # characters of an invalid value in a text
MAX_NAMES = 100  # names of actions or plugins in a setting; more are an unknown name
MAX_NAMES_CHARACTERS = 10_000  # characters of these names; more are an unknown name
MAX_REFUSED = 50  # sentences about invalid settings; the others are counted
LEAST_USAGE_NS = seconds(60)  # of a half-life or a window of usage; shorter ones are refused
_WINDOW = re.compile(r"[0-9]{1,6}")


def _is_duration(text: str) -> bool:
    return parse_go_duration(text) is not None


def _is_list(text: str) -> bool:
    return text.count(",") < MAX_NAMES and len(text) <= MAX_NAMES_CHARACTERS


def _one_of(*names: str) -> tuple[Callable[[str], bool], str]:
    return names.__contains__, f"one of {', '.join(names)}"


def _is_usage_time(text: str) -> bool:
    return (parse_go_duration(text) or 0) >= LEAST_USAGE_NS


_A_DURATION = (_is_duration, "a duration like 90s")
_RULES: dict[str, tuple[Callable[[str], bool], str]] = {
    "gangAdmission": _one_of(*_GANG_ADMISSIONS),
    "gangGrowth": _one_of(*GROWTHS),
    "gangSurplus": _one_of(*SURPLUSES),
    "starvationGuard": _A_DURATION,
    "restartRoom": _A_DURATION,
    "avoidNode": _A_DURATION,
    "spares": (
        lambda text: parse_spares(text) is not None,
        "a level and a number of nodes, like rack=2",
    ),
    "reservations": _one_of(*RESERVATIONS),
    "reservationDelay": _A_DURATION,
    "maxReservedNodes": (
        lambda text: _count_or_share(text) is not None,
        "a number of nodes, or a share like 5%",
    ),
    "backfill": _one_of(*BACKFILLS),
    "preset": _one_of(*PRESETS),
    "policy": _one_of(*MAY_BE_NAMED),
    "actions": (  # each name is checked separately
        _is_list,
        f"at most {MAX_NAMES} names with commas, of {MAX_NAMES_CHARACTERS} characters in all",
    ),
    "topologyLevels": (
        lambda text: topology_levels(text) is not None,
        f"at most {MAX_LEVELS} different labels of nodes with commas, or rack=example.com/rack",
    ),
    "usageHalfLife": (_is_usage_time, "a duration of 1m or more, like 168h"),
    "usageWindow": (_is_usage_time, "a duration of 1m or more, like 168h"),
    "victimOrder": _one_of(*VICTIM_ORDERS),
    "consolidationVictims": (
        lambda text: _victims(text) is not None,
        "a number of applications, or -1 for any",
    ),
    "kValue": (lambda text: parse_weight(text) is not None, "a number of 0 or more, like 0.5"),
    "plugins": (lambda _: True, "names with commas"),  # unknown ones are reported by ``hooks.py``
    "stuckInReleasing": (
        lambda text: text.startswith("-") or _is_duration(text),
        "a duration like 2m, or -1 for never",
    ),
    "stalenessGracePeriod": (
        lambda text: text.startswith("-") or _is_duration(text),
        "a duration like 90s, or -1 for ever",
    ),
}
_RETIRED_RULES: dict[str, tuple[Callable[[str], bool], str]] = {  # still read, not documented
    FAIR_LEAF_GANGS: _one_of(ENABLED, DISABLED),
    STATE_AWARE: _one_of("fifo", "filtered"),
    SCORE_WINDOW: (
        lambda text: _window(text) is not None,
        f"a number of asks from 1 to {MAX_NODE_SCORE_WINDOW}",
    ),
    REMAKE_PLACEHOLDERS: _one_of(ENABLED, DISABLED),  # used by the resource manager
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The scheduler settings (docs/settings.md).

    The defaults are YuniKorn's behaviour, except ``gang_admission``.

    ``gang_admission``: a gang starts its placeholders when the whole gang fits the maxima of its
        queues (``queue``), when every member also has a place on the nodes (``cluster``), or as far
        as they fit (``partial``, as in YuniKorn; case G-23).
    ``grows_by_turns``: a gang that has its minimum gets its next pods after applications below
        theirs, and after gangs with a lower ratio to theirs.
    ``yields_surplus``: pods of a gang above its minimum are evicted for others of at least its
        priority that wait (the action SHRINK), and it grows into what nobody else can use.
    ``starvation_guard_ns``: how long a gang that waits as a whole may be overtaken in its queue; 0:
        not at all.
    ``reservations``: which asks get nodes reserved if no node fits them: the first of each queue
        and shape (``heads``), each ask (``asks``, YuniKorn's rule, and always up to
        RESERVED_NODES_LEAST nodes), the oldest waiting gang of several nodes (``gang``, needs
        ``gang_admission`` ``cluster``; ``head_gang.py``), or none (``none``).
    ``reservation_delay_ns``: the age at which an ask gets a node. ``reserved_nodes_least`` and
        ``reserved_nodes_percent``: the limit of reserved nodes is the larger of the two, if stated;
        else for heads RESERVED_FOR_HEADS_PERCENT, at least one.
    ``backfill``: asks may use a reserved node if that leaves enough for the reservation, and short
        ones the head gang's nodes: by stated run times, or with ``passes_predicted`` by predicted
        ones too. ``shortest_first``: asks behind the head gang are tried by run time.
    ``fair_leaf_gangs``: leaves sorted ``fair`` accept gangs, which YuniKorn rejects.
    ``node_score_window``: the number of recent asks that node scores use.
    ``filters_state_aware``: a leaf sorted ``stateaware`` starts one new application at a time; else
        it is plain fifo.
    ``policy``: the preemption rules, ``yunikorn`` or ``kai``; ``actions``: the actions in order.
        Consolidation and stale gang eviction are available under both, reclaim under ``kai`` only.
        ``plugins``: the plugins in use, in order.
    ``stuck_after_ns``: after that time a victim that has not ended is not waited for (negative:
        never).
    ``staleness_grace_ns``: how long a gang may stay below its minimum; negative: unlimited.
    ``restart_room_ns``: how long the capacity of ended members is reserved for their replacements;
        0: not.
    ``avoid_node_ns``: how long the replacement of a failed pod of a gang prefers other nodes; 0:
        not; None: AVOID_NODE_NS for gangs that start again as a whole, else not.
    ``spares``: a level and the number of spare nodes in each of its domains.
    ``topology_levels``: the levels of domains, widest first, each with its name and node label.
    ``usage_half_life_ns``, ``usage_window_ns``: half-life and window of usage over time; 0: none;
        it is not counted if both are 0. ``k_value``: its weight under ``kai`` in the division over
        the quotas.
    ``spares_work``: otherwise equal victims of a queue are ordered by lost work, not by age.
    ``consolidation_victims``: the number of applications that a search for moves may involve; 0: no
        moves; -1: no limit.
    ``refused``: a text for each invalid name or value, ``renamed`` for each old name.
    """

    gang_admission: str = QUEUE_GANG
    grows_by_turns: bool = False
    yields_surplus: bool = False
    starvation_guard_ns: int = STARVATION_GUARD_NS
    reservations: str = HEADS
    reservation_delay_ns: int = RESERVATION_DELAY_NS
    reserved_nodes_least: int = RESERVED_NODES_LEAST
    reserved_nodes_percent: int = RESERVED_NODES_PERCENT
    is_bound_stated: bool = False
    backfill: bool = False
    passes_predicted: bool = False
    shortest_first: bool = False
    fair_leaf_gangs: bool = False
    node_score_window: int = NODE_SCORE_WINDOW
    filters_state_aware: bool = False
    policy: str = YUNIKORN
    actions: tuple[str, ...] = UNLESS_NAMED[YUNIKORN]
    plugins: tuple[str, ...] = ()
    staleness_grace_ns: int = STALENESS_GRACE_NS
    stuck_after_ns: int = STUCK_AFTER_NS
    restart_room_ns: int = RESTART_ROOM_NS
    avoid_node_ns: int | None = None
    spares: tuple[str, int] = ("", 0)
    topology_levels: tuple[tuple[str, str], ...] = ()
    usage_half_life_ns: int = 0
    usage_window_ns: int = 0
    k_value: Fraction = Fraction(1)
    spares_work: bool = False
    consolidation_victims: int = CONSOLIDATION_VICTIMS
    refused: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()

    @property
    def reserves_for_asks(self) -> bool:
        """Whether asks get reservations at some age."""
        return self.reservations in (HEADS, ASKS)

    @property
    def reserves_for_gang(self) -> bool:
        """Whether nodes are reserved for the head gang."""
        return self.reservations == GANG

    @property
    def counts_usage(self) -> bool:
        """Whether usage over time is counted."""
        return bool(self.usage_half_life_ns or self.usage_window_ns)

    @property
    def enforces_minimum(self) -> bool:
        """Whether a gang below its minimum restarts as a whole only."""
        return self.policy == KAI or STALE in self.actions

    def max_reserved_nodes(self, schedulable: int) -> int:
        """Return how many nodes may be reserved, given the number of schedulable ones."""
        if self.is_for_heads(schedulable) and not self.is_bound_stated:
            return max(1, schedulable * RESERVED_FOR_HEADS_PERCENT // 100)
        return max(self.reserved_nodes_least, schedulable * self.reserved_nodes_percent // 100)

    def idle_share(self, schedulable: int) -> tuple[int, int]:
        """Return which part of the nodes may be idle for the head gang, as (a, of b)."""
        if not self.is_bound_stated:
            return IDLE_PERCENT, 100
        if self.reserved_nodes_percent or not self.reserved_nodes_least:
            return self.reserved_nodes_percent, 100
        return self.reserved_nodes_least, max(1, schedulable)

    def is_for_heads(self, schedulable: int) -> bool:
        """Whether only heads get a node: on few nodes each ask may, as in YuniKorn."""
        return self.reservations == HEADS and schedulable > RESERVED_NODES_LEAST


def settings_from(pairs: Iterable[tuple[str, str]]) -> Settings:
    """Parse the settings of the resource manager; invalid values are the default."""
    read = named(dict(pairs))
    values = read.with_preset()
    least, percent = _reserved_nodes(values.get("maxReservedNodes", ""))
    policy = _policy(values)
    admission = _admission(values, policy)
    reservations = _reservations(values, admission)
    backfill = values.get("backfill", DISABLED)
    actions = _names(values.get("actions", ""))
    return Settings(
        gang_admission=admission,
        grows_by_turns=_grows_by_turns(values, policy),
        yields_surplus=_yields_surplus(values),
        starvation_guard_ns=_duration(values, "starvationGuard", STARVATION_GUARD_NS),
        reservations=reservations,
        reservation_delay_ns=_duration(values, "reservationDelay", RESERVATION_DELAY_NS),
        reserved_nodes_least=least,
        reserved_nodes_percent=percent,
        is_bound_stated=_count_or_share(values.get("maxReservedNodes", "")) is not None,
        backfill=backfill in (STATED, ENABLED, SHORTEST_FIRST),
        passes_predicted=backfill in (ENABLED, SHORTEST_FIRST),
        shortest_first=backfill == SHORTEST_FIRST and reservations == GANG,
        fair_leaf_gangs=values.get(FAIR_LEAF_GANGS) == ENABLED,
        node_score_window=_window(values.get(SCORE_WINDOW, "")) or NODE_SCORE_WINDOW,
        filters_state_aware=values.get(STATE_AWARE) == "filtered",
        policy=policy,
        actions=_actions(policy, actions, yields=_yields_surplus(values)),
        plugins=_plugins(values.get("plugins", "")),
        staleness_grace_ns=_grace(values.get("stalenessGracePeriod", ""), STALENESS_GRACE_NS),
        stuck_after_ns=_grace(values.get("stuckInReleasing", ""), STUCK_AFTER_NS),
        spares=parse_spares(values.get("spares", "")) or ("", 0),
        avoid_node_ns=parse_go_duration(values.get("avoidNode", "")),
        restart_room_ns=_duration(values, "restartRoom", RESTART_ROOM_NS),
        topology_levels=topology_levels(values.get("topologyLevels", "")) or (),
        usage_half_life_ns=_usage_time(values.get("usageHalfLife", "")),
        usage_window_ns=_usage_time(values.get("usageWindow", "")),
        k_value=_k_value(values.get("kValue", "")),
        spares_work=values.get("victimOrder") == LEAST_LOST,
        consolidation_victims=_consolidation_victims(values.get("consolidationVictims", "")),
        refused=_in_short(
            (
                *read.refused,
                *_refused_values(values),
                *_refused_together(read.stated, values, policy, admission),
                *refused_actions(policy, actions),
            )
        ),
        renamed=read.warnings,
    )


def _policy(values: Mapping[str, str]) -> str:
    policy = values.get("policy", YUNIKORN)
    return policy if policy in MAY_BE_NAMED else YUNIKORN


def _duration(values: Mapping[str, str], name: str, default_ns: int) -> int:
    """Parse a duration in ns; an invalid one is the default."""
    found = parse_go_duration(values.get(name, ""))
    return default_ns if found is None else found


def _grows_by_turns(values: Mapping[str, str], policy: str) -> bool:
    """Whether gangs grow by turns; an invalid value is the policy's default.

    Gangs that make way grow by turns, too: what they got before others they would have to give up.
    """
    text = values.get("gangGrowth", "")
    return text == TURNS or ((policy == KAI or _yields_surplus(values)) and text != AGE)


def _yields_surplus(values: Mapping[str, str]) -> bool:
    return values.get("gangSurplus") == YIELDS


def _reservations(values: Mapping[str, str], admission: str) -> str:
    """Return which asks get nodes; an impossible value is the preset's, or the default."""
    for name in (values.get("reservations", ""), preset_of(values).get("reservations", HEADS)):
        if name in (HEADS, ASKS, NONE) or (name == GANG and admission == CLUSTER_GANG):
            return name
    return HEADS


def _refused_values(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return a text for each unknown setting and invalid value."""
    found: list[str] = []
    for name, text in values.items():
        if is_handed_on(name):
            continue
        if name not in _RULES and name not in _RETIRED_RULES:
            there_are = ", ".join(sorted(_RULES))
            found.append(f"there is no setting {name[:_SHOWN]!r}; there are {there_are}")
        elif refused := refused_value(name, text):
            found.append(f"{refused}; the default is used")
    return tuple(found)


def refused_value(name: str, text: str) -> str:
    """Return a text if the value of a known setting is invalid, else ""."""
    rule = _RULES.get(name) or _RETIRED_RULES[name]
    return f"{name}: {rule[1]}, found {text[:_SHOWN]!r}" if text and not rule[0](text) else ""


def _refused_together(
    stated: Mapping[str, str], values: Mapping[str, str], policy: str, admission: str
) -> tuple[str, ...]:
    """Return a text for each setting that another one rules out."""
    return (
        *_refused_admission(stated, policy),
        *_refused_reservations(values, admission),
        *_refused_k(values, policy),
        *_refused_order(values, admission),
    )


def _refused_admission(stated: Mapping[str, str], policy: str) -> tuple[str, ...]:
    """Return a text if gangAdmission is not available under the policy."""
    admission = stated.get("gangAdmission", "")
    if policy != KAI or admission not in (QUEUE_GANG, PARTIAL_GANG):
        return ()
    sentence = (
        f"gangAdmission: under the policy {KAI} it is {CLUSTER_GANG}: no member of a gang starts "
        f"before all have a place; found {admission!r}"
    )
    return (sentence,)


def _refused_reservations(values: Mapping[str, str], admission: str) -> tuple[str, ...]:
    """Return a text if nodes are to be reserved for gangs that cannot use them."""
    if values.get("reservations") != GANG or admission == CLUSTER_GANG:
        return ()
    held = _reservations(values, admission)
    needs = f"needs gangAdmission: {CLUSTER_GANG}, found {admission!r}; {held} is used"
    return (f"reservations: {GANG} {needs}",)


def _refused_order(values: Mapping[str, str], admission: str) -> tuple[str, ...]:
    """Return a text if shortestFirst has no head gang to backfill behind."""
    is_by_length = values.get("backfill") == SHORTEST_FIRST
    if not is_by_length or _reservations(values, admission) == GANG:
        return ()
    needs = f"reservations: {GANG} and gangAdmission: {CLUSTER_GANG}"
    return (f"backfill: {SHORTEST_FIRST} needs {needs}; {ENABLED} is used",)


def _refused_k(values: Mapping[str, str], policy: str) -> tuple[str, ...]:
    """Return a text if kValue has no effect."""
    if not values.get("kValue"):
        return ()
    if policy != KAI:
        return (f"kValue: has no effect under {policy}, only under the policy {KAI}",)
    counts = _usage_time(values.get("usageHalfLife", "")) or _usage_time(
        values.get("usageWindow", "")
    )
    return () if counts else ("kValue: has no effect without usageHalfLife or usageWindow",)


def _in_short(refused: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts about invalid settings, at most MAX_REFUSED."""
    if len(refused) <= MAX_REFUSED:
        return refused
    return (*refused[:MAX_REFUSED], f"and {len(refused) - MAX_REFUSED} more do not hold")


def _names(text: str) -> list[str]:
    """Parse a comma-separated list of names; [] if it is too long."""
    if not _is_list(text):
        return []
    return [name.strip() for name in text.split(",") if name.strip()]


def _plugins(text: str) -> tuple[str, ...]:
    """Return the named plugins; a list that is too long is returned as one unknown name."""
    return tuple(dict.fromkeys(_names(text))) if _is_list(text) else (f"{text[:_SHOWN]}…",)


def _count_or_share(text: str) -> tuple[int, bool] | None:
    """Parse ``12`` or ``5%`` into the number and whether it is a percentage; None if invalid."""
    found = _COUNT_OR_SHARE.fullmatch(text)
    if found is None or (found[2] and int(found[1]) > 100):  # noqa: PLR2004 - per cent
        return None
    return int(found[1]), bool(found[2])


def _window(text: str) -> int | None:
    """Parse a number of asks, None if it is invalid or out of bounds."""
    if not _WINDOW.fullmatch(text) or not 1 <= int(text) <= MAX_NODE_SCORE_WINDOW:
        return None
    return int(text)


def _reserved_nodes(text: str) -> tuple[int, int]:
    """Return the count and percentage of ``12`` or ``5%``; a percentage is at least one node."""
    found = _count_or_share(text)
    if found is None:
        return RESERVED_NODES_LEAST, RESERVED_NODES_PERCENT
    amount, is_share = found
    return (min(amount, 1), amount) if is_share else (amount, 0)


def _usage_time(text: str) -> int:
    """Parse a half-life or window of usage in ns; 0: none or invalid."""
    return (parse_go_duration(text) or 0) if _is_usage_time(text) else 0


def _k_value(text: str) -> Fraction:
    found = parse_weight(text)
    return Fraction(1) if found is None else found


def _admission(values: Mapping[str, str], policy: str) -> str:
    """Return the gang admission; under kai always ``cluster``."""
    stated = values.get("gangAdmission", "")
    if policy == KAI:
        return CLUSTER_GANG
    return stated if stated in _GANG_ADMISSIONS else QUEUE_GANG


def _victims(text: str) -> int | None:
    found = parse_int64(text)
    return found if found is not None and found >= -1 else None


def _consolidation_victims(text: str) -> int:
    found = _victims(text)
    return CONSOLIDATION_VICTIMS if found is None else found


def _grace(text: str, default_ns: int) -> int:
    """Parse a grace period in ns; negative: unlimited; an invalid one is the default."""
    if text.startswith("-"):
        return -1
    grace_ns = parse_go_duration(text)
    return default_ns if grace_ns is None else grace_ns


def _actions(policy: str, named: list[str], *, yields: bool) -> tuple[str, ...]:
    """Return the named actions, without refused ones; what makes way for others goes first."""
    found = [name for name in named if name in MAY_BE_NAMED[policy]]
    found = found if named else list(UNLESS_NAMED[policy])
    if yields:
        found.insert(int(found[:1] == [ALLOCATE]), SHRINK)
    return tuple(found)


def refused_actions(policy: str, named: Iterable[str]) -> tuple[str, ...]:
    """Return a text for each named action that the policy does not have."""
    open_to_it = MAY_BE_NAMED[policy]
    known = f"there are {', '.join(open_to_it)}"
    return tuple(
        f"actions: {name} is an action of the policy {KAI}; under {policy} {known}"
        if name in ACTIONS
        else f"actions: there is no {name[:_SHOWN]!r}; {known}"
        for name in named
        if name not in open_to_it
    )
