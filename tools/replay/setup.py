"""What a trace is replayed on: nodes, queues, the scheduler's settings, each as a user states it.

A file of `--compare` is a map with any of ``nodes`` (a number, or a file), ``capacity``, ``queues``
(a file, or the configuration itself), ``scheduler`` (settings by name), ``placeholderTimeout``
(seconds; 0: none), ``gangStyle`` (Soft or Hard), ``preemptionCost`` (seconds; -1: all is lost),
``racks`` (how many the nodes are in), ``topology`` (what gangs ask for that fit in one rack) and
``gangMinimum`` (the percentage of a gang's pods with which it starts).
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from services.cli.files import text_of
from services.cli.simulated_nodes import (
    MAX_NODES,
    NodesError,
    alike,
    drawn_levels,
    in_racks,
    nodes_of,
)
from services.cli.yaml_file import Inline, YamlFileError, one_document, write_inline
from services.core.configuration import parse_configuration
from services.core.plugins import find_plugin
from services.core.scheduler.model.hooks import PluginError
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.scheduler import ConfigurationError
from services.shim_adapter.mirror.asks import HOST_NAME_LABEL
from services.shim_adapter.queue_file import queue_file
from services.shim_adapter.records import NodeRecord
from services.shim_adapter.translation.topology import topology_of
from shared.messages.interface import NO_TOPOLOGY, GangSchedulingStyle, TopologyConstraint
from shared.model.names import QUEUE
from shared.model.numbers import INT64_MAX
from shared.model.scheduler_settings import TOPOLOGY_LEVELS, named
from shared.queueconfig import QueueConfigError
from tools.replay.formats import read_nodes
from tools.replay.jobs import Trace, TraceError

MAX_TIMEOUT_S = 366 * 86_400  # seconds of a replay's placeholder timeout; a longer one is an error
MAX_COST_S = 3_600  # seconds that a preemption costs in a replay; a larger number is an error
ALL_IS_LOST = -1  # by a preemption, as it is typed
ALL_PODS = 100  # percent of a gang
_SHOWN = 60  # characters of a key
_EXPECTED = {
    "nodes": "a number of nodes, or the name of their file",
    "capacity": "a list like cpu=64,nvidia.com/gpu=8",
    "queues": "the name of a file, or the configuration itself",
    "scheduler": "a map of settings",
    "placeholderTimeout": "a number of seconds, 0: none",
    "gangStyle": "Soft or Hard",
    "preemptionCost": "a number of seconds, -1: all that it ran",
    "racks": "a number of racks",
    "topology": "a map as the key topology of a task group",
    "gangMinimum": "a percentage from 1 to 100",
}
_KEYS = tuple(_EXPECTED)


@dataclass(frozen=True, slots=True)
class Setup:
    """Nodes, a queue configuration and settings, with a name for the report.

    ``scheduler`` has the settings by their new names, ``warnings`` a sentence for each old one.
    """

    name: str
    nodes: tuple[NodeRecord, ...]
    queues: str
    scheduler: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    placeholder_timeout_s: int = 0  # 0: none
    gang_style: GangSchedulingStyle = GangSchedulingStyle.SOFT
    preemption_cost_s: int | None = None  # what starting over costs; None: all that it ran
    racks: int = 0
    topology: TopologyConstraint = NO_TOPOLOGY  # of gangs that fit in one rack
    minimum_percent: int = ALL_PODS  # of a gang's pods, with which it starts


def setup_of(
    trace: Trace,
    name: str,
    *,
    nodes: str = "",
    capacity: str = "",
    queues: str = "",
    scheduler: Mapping[str, str] | None = None,
    placeholder_timeout_s: int = 0,
    gang_style: GangSchedulingStyle = GangSchedulingStyle.SOFT,
    preemption_cost_s: int | None = None,
    racks: int = 0,
    topology: TopologyConstraint = NO_TOPOLOGY,
    minimum_percent: int = ALL_PODS,
) -> Setup:
    """Return a setup; what is not stated is the trace's own. Raises TraceError."""
    text = queues or default_queues(trace)
    levels = {TOPOLOGY_LEVELS: drawn_levels(racks, 0)} if racks else {}
    settings = named({**levels, **(scheduler or {})})
    read = settings_from(settings.stated.items())
    if refused := (*settings.refused, *read.refused):
        raise TraceError(f"{name}: scheduler: {'; '.join(refused)}")
    try:
        for plugin in read.plugins:
            find_plugin(plugin)
        parse_configuration(text)
    except PluginError as error:
        raise TraceError(f"{name}: scheduler: {error}") from error
    except ConfigurationError as error:
        raise TraceError(f"{name}: queues: {error}") from error
    found = _nodes(trace, name, nodes, capacity)
    try:
        found = _with_host_names(in_racks(found, racks, 0)) if racks else found
    except NodesError as error:
        raise TraceError(f"{name}: {str(error).removeprefix('--')}") from error
    if not found:
        raise TraceError(f"{name}: at least one node was expected, found none")
    in_all = sum(node.capacity.get(trace.size_of, 0) for node in found)
    if in_all > INT64_MAX:
        raise TraceError(
            f"{name}: the nodes have {in_all} of {trace.size_of} in all, at most {INT64_MAX}: "
            "fewer nodes, or a smaller capacity"
        )
    return Setup(
        name, found, text, settings.stated, settings.warnings, placeholder_timeout_s, gang_style,
        preemption_cost_s, racks, topology, minimum_percent,
    )  # fmt: skip


def _nodes(trace: Trace, name: str, stated: str, capacity: str) -> tuple[NodeRecord, ...]:
    is_count = stated.isascii() and stated.isdigit()
    if stated.removesuffix(".gz").endswith(".csv"):
        return read_nodes(Path(stated))
    try:
        if (is_count or (trace.nodes and not stated)) and not capacity and trace.capacity:
            return alike(stated or str(trace.nodes), trace.capacity, {})
        if stated:
            return nodes_of(stated, capacity, 0, "")
    except NodesError as error:
        raise TraceError(f"{name}: {error}") from error
    raise TraceError(f"{name}: the trace has no nodes: give their number or a file with --nodes")


def _with_host_names(nodes: tuple[NodeRecord, ...]) -> tuple[NodeRecord, ...]:
    return tuple(
        replace(node, labels={**node.labels, HOST_NAME_LABEL: node.name}) for node in nodes
    )


def default_queues(trace: Trace) -> str:
    """Return a leaf for every queue of a trace, below root, first in first out."""
    names = sorted({job.queue for job in trace.jobs})
    wrong = next((queue for queue in names if not QUEUE.match(queue)), None)
    if wrong is not None:
        raise TraceError(f"{trace.name}: {wrong!r} is no name of a queue")
    leaves: list[dict[str, Any]] = [
        {"name": queue, "properties": {"application.sort.policy": "fifo"}} for queue in names
    ]
    root = {"name": "root", "submitacl": "*", "queues": leaves}
    return yaml.safe_dump({"partitions": [{"name": "default", "queues": [root]}]})


def read_setup(trace: Trace, file: Path, name: str) -> Setup:
    """Return the setup of a file, named so. Raises TraceError."""
    document = _document(file)
    return setup_of(
        trace,
        name,
        nodes=_nodes_of(file, document.get("nodes")),
        capacity=_text_of(file, "capacity", document.get("capacity")),
        queues=_queues_of(file, document.get("queues")),
        scheduler=_settings_of(file, document.get("scheduler")),
        placeholder_timeout_s=_timeout_of(file, document.get("placeholderTimeout", 0)),
        gang_style=_style_of(file, document.get("gangStyle", GangSchedulingStyle.SOFT)),
        preemption_cost_s=_cost_of(file, document.get("preemptionCost", ALL_IS_LOST)),
        racks=_racks_of(file, document.get("racks", 0)),
        topology=_topology_of(file, document.get("topology")),
        minimum_percent=_minimum_of(file, document),
    )


def _racks_of(file: Path, stated: object) -> int:
    if not isinstance(stated, int) or isinstance(stated, bool) or not 0 <= stated <= MAX_NODES:
        raise _wrong(file, "racks", _EXPECTED["racks"], stated)
    return stated


def _topology_of(file: Path, stated: object) -> TopologyConstraint:
    topology, together = topology_of(stated, 0)
    if topology.wrong or together:
        raise _wrong(file, "topology", topology.wrong or _EXPECTED["topology"], stated)
    return topology


def _minimum_of(file: Path, document: Mapping[str, object]) -> int:
    """Return with which share of its pods a gang starts; one that is evicted loses all it ran."""
    stated = document.get("gangMinimum", ALL_PODS)
    if not isinstance(stated, int) or not 1 <= stated <= ALL_PODS:
        raise _wrong(file, "gangMinimum", _EXPECTED["gangMinimum"], stated)
    if stated < ALL_PODS and document.get("preemptionCost", ALL_IS_LOST) != ALL_IS_LOST:
        expected = f"{ALL_IS_LOST} with a gangMinimum"
        raise _wrong(file, "preemptionCost", expected, document["preemptionCost"])
    return int(stated)


def _cost_of(file: Path, stated: object) -> int | None:
    if not isinstance(stated, int) or not ALL_IS_LOST <= stated <= MAX_COST_S:
        raise _wrong(file, "preemptionCost", _EXPECTED["preemptionCost"], stated)
    return cost_of(int(stated))


def cost_of(seconds: int) -> int | None:
    """Return what a preemption costs beside its waiting, in s; None: all that ran."""
    return None if seconds == ALL_IS_LOST else seconds


def _timeout_of(file: Path, stated: object) -> int:
    if not isinstance(stated, int) or not 0 <= stated <= MAX_TIMEOUT_S:
        raise _wrong(file, "placeholderTimeout", _EXPECTED["placeholderTimeout"], stated)
    return int(stated)


def _style_of(file: Path, stated: object) -> GangSchedulingStyle:
    try:
        return GangSchedulingStyle(str(stated))
    except ValueError:
        raise _wrong(file, "gangStyle", _EXPECTED["gangStyle"], stated) from None


def _nodes_of(file: Path, stated: object) -> str:
    """Return a number of nodes, or their file, which is named from where the setup is."""
    if isinstance(stated, int) and not isinstance(stated, bool) and stated >= 0:
        return str(stated)
    path = _text_of(file, "nodes", stated)
    return str(file.parent / path) if path else ""


def _queues_of(file: Path, stated: object) -> str:
    if isinstance(stated, Inline):
        return stated.text
    path = _text_of(file, "queues", stated)
    return read_queues(file.parent / path) if path else ""


def _text_of(file: Path, key: str, stated: object) -> str:
    if stated is None:
        return ""
    if not isinstance(stated, str):
        raise _wrong(file, key, _EXPECTED[key], stated)
    return stated


def _settings_of(file: Path, stated: object) -> dict[str, str]:
    settings = {} if stated is None else stated
    if not isinstance(settings, dict):
        raise _wrong(file, "scheduler", _EXPECTED["scheduler"], stated)
    return {str(key): _setting(file, str(key), value) for key, value in settings.items()}


def _setting(file: Path, key: str, value: object) -> str:
    """Return a setting as its text; a list of names is written with commas."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int) for item in items):
        expected = "a text, a number or a list of names"
        raise _wrong(file, f"scheduler: {key[:_SHOWN]}", expected, value)
    return ",".join(map(str, items))


def _wrong(file: Path, where: str, expected: str, found: object) -> TraceError:
    return TraceError(f"{file}: {where}: {expected} was expected, found {reprlib.repr(found)}")


def _document(file: Path) -> dict[str, Any]:
    """Return what a setup states; an empty file states nothing."""
    try:
        text = read_text(file)
        root, document = one_document(text)
    except YamlFileError as error:
        raise TraceError(f"{file}: line {error.line}: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise TraceError(f"{file}: a map with {', '.join(_KEYS)} was expected")
    assert root is not None
    write_inline(text, "queues", root, document)
    unknown = sorted(str(key) for key in document if key not in _KEYS)
    if unknown:
        raise TraceError(
            f"{file}: {unknown[0][:_SHOWN]}: no such key; there are {', '.join(_KEYS)}"
        )
    return document


def read_queues(file: Path) -> str:
    """Return the queues in a file: a queues.yaml, ConfigMaps, Helm values. Raises TraceError."""
    try:
        return queue_file(read_text(file)).text
    except QueueConfigError as error:
        raise TraceError(f"{file}: {error}") from error


def read_text(file: Path) -> str:
    """Return a small file's text. Raises TraceError."""
    try:
        return text_of(file)
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{file}: not UTF-8: {error}") from error
