"""How near to each other a gang's pods must be: what task groups and annotations say of it.

A wish that contradicts itself is no error: it is read as one that nothing can be done about, so
that the gang waits and the rule that it breaks is written at its pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from shared.messages.commands import TaskGroupSpec
from shared.messages.interface import NO_TOPOLOGY, Slice, SubGroup, TopologyConstraint
from shared.model.numbers import parse_int64
from shared.model.scheduler_settings import MAX_LEVELS
from shared.model.texts import JsonError, load_json

MAX_SLICES = 3  # nested slices; more are refused
_KEYS = ("required", "preferred", "slices", "unconstrained", "balanced", "group", "levels")
_MAX_NAME = 317  # characters of a level's name, as of a label; the gang waits, with that reason
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
    levels = fields.get("levels") or []
    if not isinstance(levels, list) or not all(isinstance(item, str) for item in levels):
        raise _WrongError("levels: a list of labels was expected")
    if len(levels) > MAX_LEVELS:
        raise _WrongError(f"levels: {len(levels)} of them, at most {MAX_LEVELS}")
    found = TopologyConstraint(
        tuple(levels),
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


def written(topology: TopologyConstraint, together: str) -> dict[str, Any]:
    """Return a wish as ``topology`` of a task group says it; {}: it is none."""
    if topology == NO_TOPOLOGY:
        return {}
    slices = [{"level": each.level, "size": each.size} for each in topology.slices]
    found: dict[str, Any] = {
        "levels": list(topology.levels),
        "required": topology.required,
        "preferred": topology.preferred,
        "slices": slices,
        "unconstrained": topology.is_unconstrained,
        "balanced": topology.is_balanced,
        "group": together,
    }
    return {key: value for key, value in found.items() if value}


# --- Kueue's annotations ------------------------------------------------------------------------

KUEUE = "kueue.x-k8s.io/podset-"
_REQUIRED, _PREFERRED = f"{KUEUE}required-topology", f"{KUEUE}preferred-topology"
_ANYWHERE = f"{KUEUE}unconstrained-topology"
_SLICE, _SLICE_SIZE = f"{KUEUE}slice-required-topology", f"{KUEUE}slice-size"
_NESTED, GROUP_NAME = f"{KUEUE}slice-required-topology-constraints", f"{KUEUE}group-name"
KUEUE_READ = (_REQUIRED, _PREFERRED, _ANYWHERE, _SLICE, _SLICE_SIZE, _NESTED)


def of_kueue(
    annotations: Mapping[str, str], members: int, slice_size: int = 0
) -> tuple[TopologyConstraint, str]:
    """Return what Kueue's annotations of a pod template say, and with which others it goes.

    ``slice_size`` is that of slices that state none (0: they must).
    """
    if not any(annotations.get(key) for key in KUEUE_READ):
        return NO_TOPOLOGY, ""
    try:
        return _of_kueue(annotations, members, slice_size), annotations.get(GROUP_NAME, "")
    except _WrongError as error:
        return TopologyConstraint(wrong=str(error)), ""


def _of_kueue(annotations: Mapping[str, str], members: int, slice_size: int) -> TopologyConstraint:
    stated = [key for key in (_REQUIRED, _PREFERRED, _ANYWHERE) if annotations.get(key)]
    if len(stated) > 1:
        raise _WrongError(f"{stated[0]} and {stated[1]} exclude each other")
    found = TopologyConstraint(
        required=annotations.get(_REQUIRED, ""),
        preferred=annotations.get(_PREFERRED, ""),
        slices=_kueue_slices(annotations, slice_size),
        is_unconstrained=annotations.get(_ANYWHERE) == "true",
    )
    check(found, members)
    return found


def _kueue_slices(annotations: Mapping[str, str], slice_size: int) -> tuple[Slice, ...]:
    level, size, nested = (annotations.get(key, "") for key in (_SLICE, _SLICE_SIZE, _NESTED))
    if nested and (level or size):
        raise _WrongError(f"{_NESTED} and {_SLICE if level else _SLICE_SIZE} exclude each other")
    if nested:
        try:
            return _slices(load_json(nested))
        except JsonError as error:
            raise _WrongError(f"{_NESTED}: not JSON: {error}") from error
    if level and not size and slice_size:
        size = str(slice_size)
    if bool(level) is not bool(size):
        raise _WrongError(f"{_SLICE} and {_SLICE_SIZE} need each other")
    if not level:
        return ()
    number = parse_int64(size)
    return _slices({"level": level, "size": number if number is not None else size})


# --- the tree -----------------------------------------------------------------------------------


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
