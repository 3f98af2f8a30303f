"""Finds the queue configuration in files of several formats.

A file is a queues.yaml; YuniKorn's ConfigMaps, one or both, as manifests or as ``kubectl get -o
yaml`` prints them; or the values of a Helm chart: YuniKorn's (``yunikornDefaults``) or Muster's
(``queues``, ``config``). A manifest of another kind, and a map without partitions, are refused by
name. Anything else is treated as a queues.yaml, and validated as one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from services.shim_adapter.backends.kubernetes.configuration import CONFIGS, DEFAULTS, Configuration
from shared.model.bounded_yaml import YamlLimitError, compose_bounded
from shared.queueconfig import QueueConfigError

MAX_DEPTH = 60  # nesting depth of a configuration; a deeper one is a bad queues.yaml
MAX_VALUES = 250_000  # values in a configuration; one with more is a bad queues.yaml
_MOST_NAMED = 5  # keys named in the error about an unknown kind of file; the others are omitted
_GROUP = "service.policyGroup"
_EXPECTED = "a queues.yaml, YuniKorn's ConfigMaps or Helm values are expected"
_Node = yaml.Node | None


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A queue configuration. ``settings`` are Muster's scheduler settings in the same file.

    ``where`` is its place in the file, "" if it is the whole file. Its first line is the file's
    line ``before`` + 1, or all of it is in that line (``is_in_a_line``), as in JSON. ``unread`` are
    other keys that seem to contain queues.
    """

    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    before: int = 0
    is_in_a_line: bool = False
    unread: tuple[str, ...] = ()

    def line(self, own: int) -> int:
        """Convert a line of the configuration to a line of the file; 0 is unknown."""
        if self.is_in_a_line:
            return self.before + 1
        return own + self.before if own else own


@dataclass(slots=True)
class _Map:
    """A ConfigMap, or a chart's equivalent: its keys, with the first line of each text."""

    name: str
    where: str
    data: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)  # keys whose text has lines of its own

    def put(self, key: str, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            self.data[key] = node.value
            is_block = node.style in ("|", ">")
            self.lines[key] = node.start_mark.line + is_block
            if is_block:
                self.blocks.add(key)


def queue_file(text: str) -> QueueFile:
    """Return the queue configuration in a file's text.

    Raises QueueConfigError if ConfigMaps or values contain none, or if it is ambiguous.
    """
    try:
        roots = list(compose_bounded(text, depth=MAX_DEPTH, values=MAX_VALUES))
    except (yaml.YAMLError, YamlLimitError, ValueError):
        return QueueFile(text)  # the reader of queues.yaml reports the error
    maps = [found for root in roots for found in _maps(root)]
    if maps:
        return _chosen(maps)
    _refuse_others(roots)
    return QueueFile(text)


def _refuse_others(roots: Sequence[_Node]) -> None:
    """Raise QueueConfigError if a file is neither a queues.yaml nor an invalid attempt at one."""
    tops = [(root.start_mark.line + 1, _items(root)) for root in roots if root is not None]
    if not tops or any("partitions" in top for _, top in tops):
        return
    line, top = tops[0]
    kind = _text(top.get("kind"))
    if kind:
        raise QueueConfigError(f"this is a {kind}: {_EXPECTED}", line)
    if not top:
        raise QueueConfigError(f"this is no map: {_EXPECTED}", line)
    keys = list(top)
    more = ", …" if len(keys) > _MOST_NAMED else ""
    found = f"the keys found are {', '.join(keys[:_MOST_NAMED])}{more}"
    raise QueueConfigError(f"it has no partitions: {_EXPECTED}; {found}", line)


def _chosen(maps: list[_Map]) -> QueueFile:
    """Merge several ConfigMaps; later ones override earlier ones."""
    together = Configuration()
    for name in (DEFAULTS, CONFIGS):
        data = [item.data for item in maps if item.name == name]
        together.take(name, {key: value for part in data for key, value in part.items()})
    ordered = sorted(maps, key=lambda item: item.name == CONFIGS)
    said = {key: item for item in ordered for key in item.data}
    key = _key(said)
    holder = said[key]
    where = f"{key} of {holder.where}"
    return QueueFile(
        holder.data[key],
        together.scheduler_settings,
        where,
        holder.lines[key],
        key not in holder.blocks,
        tuple(name for name, item in said.items() if name != key and _has_queues(item.data[name])),
    )


def _has_queues(text: str) -> bool:
    return text.lstrip().startswith("partitions:")


def _key(said: Mapping[str, _Map]) -> str:
    """Return the key of the queues: that of the policy group, or the only .yaml key."""
    group = said[_GROUP].data[_GROUP] if _GROUP in said else "queues"
    if f"{group}.yaml" in said:
        return f"{group}.yaml"
    keys = [key for key in said if key.endswith(".yaml")]
    if len(keys) == 1 and _GROUP not in said:
        return keys[0]
    there = f"; there are {', '.join(keys)}" if keys else ""
    raise QueueConfigError(f"no key {group}.yaml in it{there}: {_GROUP} says which one is used", 1)


def _maps(root: _Node) -> Iterator[_Map]:
    """Yield the ConfigMaps of a document, or those that a chart would make of its values."""
    top = _items(root)
    kind = _text(top.get("kind"))
    if kind == "ConfigMap":
        yield _config_map(top)
    elif kind.endswith("List") and isinstance(top.get("items"), yaml.SequenceNode):
        items = [_items(item) for item in top["items"].value]
        yield from (_config_map(item) for item in items if _text(item.get("kind")) == "ConfigMap")
    elif "partitions" not in top and not kind:
        yield from _values(top)


def _config_map(top: Mapping[str, yaml.Node]) -> _Map:
    name = _text(_items(top.get("metadata")).get("name"))
    found = _Map(DEFAULTS if name == DEFAULTS else CONFIGS, f"ConfigMap {name}")
    for key, node in _items(top.get("data")).items():
        found.put(key, node)
    return found


def _values(top: Mapping[str, yaml.Node]) -> Iterator[_Map]:
    """Yield the ConfigMaps that YuniKorn's or Muster's chart makes of values, if it is values."""
    if "yunikornDefaults" in top:
        found = _Map(DEFAULTS, "yunikornDefaults")
        for key, node in _items(top["yunikornDefaults"]).items():
            found.put(key, node)
        yield found
    if "configuration" in top and _text(top["configuration"]).strip():  # of its older versions
        older = _Map(DEFAULTS, "configuration")
        older.put("queues.yaml", top["configuration"])
        yield older
    own = _Map(CONFIGS, "the chart's values")
    if isinstance(top.get("queues"), yaml.ScalarNode) and _text(top["queues"]).strip():
        own.put("queues.yaml", top["queues"])
    for key, node in _items(top.get("config")).items():
        own.put(key, node)
    if own.data:
        yield own


def _items(node: _Node) -> dict[str, yaml.Node]:
    """Return a map's values by key; {} for other nodes."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _text(node: _Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else ""
