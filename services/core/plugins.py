"""Installed plugins: the entry points of the group ``muster.plugins``.

A plugin is imported when the settings name it. Newly installed distributions are found when the
core restarts; imported code is not reloaded. Rule: docs/plugins.md.
"""

from importlib.metadata import EntryPoint, entry_points

from services.core.scheduler.model.hooks import PluginError
from services.core.scheduler.model.policy import Register

GROUP = "muster.plugins"


def installed() -> list[str]:
    """Return the names of the installed plugins, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find_plugin(name: str) -> Register:
    """Import a plugin and return its register function. Raises PluginError."""
    found = list(dict.fromkeys(entry_points(group=GROUP, name=name)))
    if not found:
        there_are = ", ".join(installed()) or "none"
        raise PluginError(name, f"it is not installed; there are: {there_are}")
    if len(found) > 1:
        raise PluginError(
            name, f"installed more than once: {', '.join(sorted(map(_source, found)))}"
        )
    try:
        register = found[0].load()
    except Exception as error:
        why = f"{_source(found[0])} cannot be imported: {type(error).__name__}: {error}"
        raise PluginError(name, why) from error
    if not callable(register):
        raise PluginError(name, f"{_source(found[0])} is no function that registers hooks")
    return register  # type: ignore[no-any-return]


def _source(entry: EntryPoint) -> str:
    made_by = f" of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
    return f"{entry.value}{made_by}"
