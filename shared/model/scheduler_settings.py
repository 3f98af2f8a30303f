"""The scheduler settings by name: presets, and the translation of old names.

Every reader gets the settings through ``named``, and so knows new names only. An old name is
accepted with a warning that gives its new one; it is ignored if the new one is set, too. Four old
names have no new one and still work (``RETIRED``).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

HEADS, ASKS, GANG, NONE = "heads", "asks", "gang", "none"
RESERVATIONS = (HEADS, ASKS, GANG, NONE)
ENABLED, DISABLED, SHORTEST_FIRST = "enabled", "disabled", "shortestFirst"
STATED = "stated"
BACKFILLS = (DISABLED, STATED, ENABLED, SHORTEST_FIRST)
FAIR_LEAF_GANGS, STATE_AWARE = "fairLeafGangs", "stateAware"
SCORE_WINDOW, REMAKE_PLACEHOLDERS = "nodeScoreWindow", "remakePlaceholders"
PRESETS = {
    "design": {"gangAdmission": "queue"},  # the default
    "yunikorn": {
        "gangAdmission": "partial",
        "starvationGuard": "876000h",  # a hundred years: a gang closes no leaf there
        "maxReservedNodes": "100%",
        "reservations": ASKS,
        REMAKE_PLACEHOLDERS: DISABLED,
    },
    "muster": {
        "gangAdmission": "cluster",
        "reservations": GANG,
        "backfill": STATED,
        FAIR_LEAF_GANGS: ENABLED,
    },
}
RETIRED = {
    FAIR_LEAF_GANGS: "preset: muster enables it",
    STATE_AWARE: "application.sort.policy: stateaware is fifo without it",
    SCORE_WINDOW: "without it the mix is of the last 1,000 asks",
    REMAKE_PLACEHOLDERS: "preset: yunikorn disables it",
}
_SWITCH = (ENABLED, DISABLED)
_OLD_VALUES = {  # of those that have a new name
    "reservationsFor": (HEADS, ASKS),
    "gangLane": _SWITCH,
    "backfillOrder": ("submission", SHORTEST_FIRST),
    "nodeScores": _SWITCH,
}
OLD_NAMES = ("gangPatience", *_OLD_VALUES)
_SHOWN = 60  # characters of a value
TOPOLOGY_LEVELS = "topologyLevels"
MAX_LEVELS = 16  # topology levels of the cluster; a setting with more is refused
_LEVEL = re.compile(r"(?:([A-Za-z0-9][-A-Za-z0-9_.]{0,62})=)?([A-Za-z0-9][-A-Za-z0-9_./]{0,316})")


@dataclass(frozen=True, slots=True)
class Named:
    """Stated settings by their new names; ``with_preset`` adds the preset's.

    ``warnings`` has a sentence for each old name, ``refused`` one for each invalid old value.
    """

    stated: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def with_preset(self) -> dict[str, str]:
        """Return the stated settings, completed with those of the preset."""
        return {**preset_of(self.stated), **self.stated}


def preset_of(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of the preset named in settings; the default preset has none."""
    return PRESETS.get(settings.get("preset", ""), {})


def named(settings: Mapping[str, str]) -> Named:
    """Translate settings to their new names. An empty old setting counts as not set."""
    return _Reading(settings).read()


@dataclass(slots=True)
class _Reading:
    """A translation of ``settings`` in progress: stated new names, and what to report."""

    settings: Mapping[str, str]
    stated: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def read(self) -> Named:
        old = {name: text for name, text in self.settings.items() if name in OLD_NAMES and text}
        for name in [name for name, text in old.items() if not self._may_be(name, text)]:
            del old[name]
        self.stated = {k: text for k, text in self.settings.items() if k not in OLD_NAMES}
        self._rename("starvationGuard", old, ("gangPatience",), old.get("gangPatience", ""))
        self._read_admission()
        self._read_reservations(old)
        self._read_backfill(old)
        if "nodeScores" in old:
            always = "a nodesortpolicy may always name gpu-binpacking and fgd"
            self.warnings.append(f"nodeScores: {old['nodeScores']} is ignored: {always}")
        self.warnings += [
            f"{name}: {_short(self.stated[name])} is used, but is no longer a setting: {why}"
            for name, why in RETIRED.items()
            if self.stated.get(name)
        ]
        return Named(self.stated, tuple(self.warnings), tuple(self.refused))

    def _may_be(self, name: str, text: str) -> bool:
        values = _OLD_VALUES.get(name, (text,))
        if text not in values:
            may_be = ", ".join(values)
            self.refused.append(
                f"{name}: one of {may_be}, found {text[:_SHOWN]!r}; the default is used"
            )
        return text in values

    def _rename(self, new: str, old: Mapping[str, str], names: Iterable[str], value: str) -> None:
        """Set the new name if old ones are set, unless it is stated itself."""
        found = {name: _short(old[name]) for name in names if name in old}
        if not found:
            return
        if kept := self.stated.get(new):
            holds = f"is ignored: {new}: {_short(kept)} is set"
        else:
            holds = f"is now {new}: {_short(value)}"
            self.stated[new] = value
        self.warnings += [f"{name}: {text} {holds}" for name, text in found.items()]

    def _read_admission(self) -> None:
        if self.stated.get("gangAdmission") == "whole":
            self.stated["gangAdmission"] = "queue"
            self.warnings.append("gangAdmission: whole is now gangAdmission: queue")

    def _read_reservations(self, old: dict[str, str]) -> None:
        """Translate the old settings of reservations: ``gang``, ``heads``, ``asks`` or ``none``.

        The head gang's reservation is dropped if gangs are not admitted by cluster and another kind
        is stated.
        """
        if self.stated.get("reservations") in _SWITCH:
            old["reservations"] = self.stated.pop("reservations")
        default = preset_of(self.stated).get("reservations", HEADS)
        is_for_gang = old.get("gangLane", ENABLED if default == GANG else DISABLED) == ENABLED
        is_off = old.get("reservations") == DISABLED
        if is_for_gang and (self._admits_by_cluster() or not (is_off or "reservationsFor" in old)):
            value = GANG
        elif is_off:
            value = NONE
        else:
            value = old.get("reservationsFor", HEADS if default == GANG else default)
        self._rename("reservations", old, ("reservations", "reservationsFor", "gangLane"), value)

    def _admits_by_cluster(self) -> bool:
        values = {**preset_of(self.stated), **self.stated}
        return values.get("policy") == "kai" or values.get("gangAdmission") == "cluster"

    def _read_backfill(self, old: Mapping[str, str]) -> None:
        """Translate the order of the backfill, which applies only if backfill is enabled."""
        order, stated = old.get("backfillOrder"), self.stated.get("backfill") or DISABLED
        if order != SHORTEST_FIRST:
            self._rename("backfill", old, ("backfillOrder",), stated)
        elif stated == ENABLED:
            del self.stated["backfill"]
            self._rename("backfill", old, ("backfillOrder",), SHORTEST_FIRST)
        else:
            self.warnings.append(
                f"backfillOrder: {order} is ignored: backfill: {_short(stated)} is used"
            )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def topology_levels(text: str) -> tuple[tuple[str, str], ...] | None:
    """Parse ``block=LABEL,rack=LABEL`` into names and labels; None if it is invalid.

    A label without a name is a level of the label's name. The widest level comes first.
    """
    found = [_LEVEL.fullmatch(item.strip()) for item in text.split(",") if item.strip()]
    levels = [(each[1] or each[2], each[2]) for each in found if each is not None]
    names, labels = {name for name, _ in levels}, {label for _, label in levels}
    is_right = len(found) == len(names) == len(labels) and len(levels) <= MAX_LEVELS
    return tuple(levels) if is_right else None
