"""How near to each other a gang's pods must be: what task groups and annotations say of it.

A wish that contradicts itself is no error: it is read as one that nothing can be done about, so
that the gang waits and its pods are told the rule that it breaks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from shared.messages.commands import TaskGroupSpec
from shared.messages.interface import NO_TOPOLOGY, Slice, SubGroup, TopologyConstraint

MAX_SLICES = 3  # slices in one another; more are refused
_KEYS = ("required", "preferred", "slices", "unconstrained", "balanced", "group")
_MAX_NAME = 317  # characters of a level's name, as of a label; the gang waits and is told
_SHOWN = 60  # characters of what was found
_PARENT = "topology group "  # before the name of task groups that go into one domain


class _WrongError(ValueError):
    """A wish that breaks a rule; the message names it."""


def topology_of(value: Any, members: int) -> tuple[TopologyConstraint, str]:
    """Return what ``topology`` of a task group says, and with which others it goes together."""
    if value is None:
        return NO_TOPOLOGY, ""
    try:
        return _read(value, members)
    except _WrongError as error:
        return TopologyConstraint(wrong=f"topology: {error}"), ""


def _read(value: Any, members: int) -> tuple[TopologyConstraint, str]:
    if not isinstance(value, dict):
        raise _WrongError(f"a map was expected, found {type(value).__name__}")
    fields = {str(key).lower(): item for key, item in value.items()}
    unknown = next((key for key in fields if key not in _KEYS), None)
    if unknown is not None:
        raise _WrongError(f"there is no {unknown[:_SHOWN]!r}; there are {', '.join(_KEYS)}")
    found = TopologyConstraint(
        required=_text(fields, "required"),
        preferred=_text(fields, "preferred"),
        slices=_slices(fields.get("slices")),
        is_unconstrained=_switch(fields, "unconstrained"),
        is_balanced=_switch(fields, "balanced"),
    )
    check(found, members)
    return found, _text(fields, "group")


def check(topology: TopologyConstraint, members: int) -> None:
    """Check what a wish says by itself. Raises ValueError with the rule that it breaks."""
    is_near = bool(topology.required or topology.preferred)
    if topology.is_unconstrained and is_near:
        raise _WrongError("unconstrained excludes required and preferred")
    if topology.is_balanced and not topology.preferred:
        raise _WrongError("balanced needs a preferred level")
    size = members
    for each in topology.slices:
        if size % each.size:
            what = "the number of pods" if size == members else "the slice around it"
            raise _WrongError(
                f"a slice of {each.size} by {each.level} does not divide {what}, {size}"
            )
        size = each.size


def _slices(value: Any) -> tuple[Slice, ...]:
    if value is None:
        return ()
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_SLICES:
        raise _WrongError(f"{len(items)} slices in one another, at most {MAX_SLICES}")
    return tuple(_slice(item) for item in items)


def _slice(value: Any) -> Slice:
    if not isinstance(value, dict):
        raise _WrongError("slices: maps with level and size were expected")
    fields = {str(key).lower(): item for key, item in value.items()}
    level, size = _text(fields, "level") or _text(fields, "topology"), fields.get("size")
    if not level or type(size) is not int or size < 1:
        raise _WrongError(
            f"slices: a level and a size of at least 1 were expected, found {str(value)[:_SHOWN]}"
        )
    return Slice(level, size)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not value or len(value) > _MAX_NAME:
        raise _WrongError(f"{key}: a name was expected, found {str(value)[:_SHOWN]!r}")
    return value


def _switch(fields: Mapping[str, Any], key: str) -> bool:
    value = fields.get(key, False)
    if not isinstance(value, bool):
        raise _WrongError(f"{key}: true or false was expected, found {str(value)[:_SHOWN]!r}")
    return value


def layout_of(groups: Iterable[TaskGroupSpec]) -> tuple[SubGroup, ...]:
    """Return the tree of a gang as far as topology is asked for; () where none is.

    Task groups that go together are parts of one that is in one domain: they must wish the same.
    """
    groups = tuple(groups)
    if all(group.topology == NO_TOPOLOGY for group in groups):
        return ()
    parents: dict[str, SubGroup] = {}
    found: list[SubGroup] = []
    for group in groups:
        topology, together = group.topology, group.together
        name = f"{_PARENT}{together}" if together else ""
        if name:
            shared = replace(topology, slices=())
            known = parents.setdefault(name, SubGroup(name, "", -1, is_group=True, topology=shared))
            if known.topology != shared:
                rule = f"topology: the task groups of group {together} wish different levels"
                parents[name] = replace(known, topology=TopologyConstraint(wrong=rule))
            topology = TopologyConstraint(slices=topology.slices)
        found.append(SubGroup(group.name, name, group.min_member, topology=topology))
    return (*parents.values(), *found)
