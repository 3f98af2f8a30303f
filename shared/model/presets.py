"""Presets of the scheduler settings: defaults under a name, each of which may be stated otherwise.

A service reads with ``with_preset`` what of the settings is its own; the core judges all of them.
"""

from collections.abc import Mapping

REMAKE_PLACEHOLDERS = "remakePlaceholders"  # the resource manager's own: enabled, disabled
PRESETS = {
    "yunikorn": {
        "gangAdmission": "partial",
        "gangPatience": "876000h",  # a hundred years: a gang closes no leaf there
        "maxReservedNodes": "100%",
        "reservationsFor": "asks",
        REMAKE_PLACEHOLDERS: "disabled",
    },
    "muster": {"gangAdmission": "cluster", "gangLane": "enabled", "nodeScores": "enabled"},
}


def with_preset(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with what their preset says of those that they do not name."""
    return {**PRESETS.get(settings.get("preset", ""), {}), **settings}
