"""What a trace is replayed on: nodes, queues, the scheduler's settings, each as a user states it.

A file of `--compare` is a map with any of ``nodes`` (a number, or a file), ``capacity``, ``queues``
(a file, or the configuration itself) and ``scheduler`` (settings by name).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from services.cli.replay.formats import read_nodes
from services.cli.replay.jobs import Trace, TraceError
from services.cli.simulated_nodes import NodesError, alike, nodes_of
from services.core.configuration import parse_configuration
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.queues.tree import refused_scores
from services.core.scheduler.scheduler import ConfigurationError
from services.shim_adapter.records import NodeRecord
from shared.model.names import QUEUE

MAX_FILE_BYTES = 1_000_000  # bytes of a setup of a replay, or of its queues.yaml; more are an error
_KEYS = ("nodes", "capacity", "queues", "scheduler")


@dataclass(frozen=True, slots=True)
class Setup:
    """Nodes, a queue configuration and settings, with a name for the report."""

    name: str
    nodes: tuple[NodeRecord, ...]
    queues: str
    scheduler: Mapping[str, str]


def setup_of(
    trace: Trace,
    name: str,
    *,
    nodes: str = "",
    capacity: str = "",
    queues: str = "",
    scheduler: Mapping[str, str] | None = None,
) -> Setup:
    """Return a setup; what is not stated is the trace's own. Raises TraceError."""
    text = queues or default_queues(trace)
    settings = dict(scheduler or {})
    read = settings_from(settings.items())
    if read.refused:
        raise TraceError(f"{name}: scheduler: {'; '.join(read.refused)}")
    try:
        refused = refused_scores(parse_configuration(text), read)
    except ConfigurationError as error:
        raise TraceError(f"{name}: queues: {error}") from error
    if refused:
        raise TraceError(f"{name}: queues: {refused}")
    return Setup(name, _nodes(trace, name, nodes, capacity), text, settings)


def _nodes(trace: Trace, name: str, stated: str, capacity: str) -> tuple[NodeRecord, ...]:
    is_count = stated.isascii() and stated.isdigit()
    if stated.removesuffix(".gz").endswith(".csv"):
        return read_nodes(Path(stated))
    try:
        if (not stated or is_count) and not capacity and trace.capacity:
            return alike(stated or str(trace.nodes), trace.capacity, {})
        if stated:
            return nodes_of(stated, capacity, 0, "")
    except NodesError as error:
        raise TraceError(f"{name}: {error}") from error
    raise TraceError(f"{name}: the trace names no nodes: --nodes says how many, or their file")


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
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise TraceError(f"{file}: {unknown[0]}: no such key; there are {', '.join(_KEYS)}")
    settings = document.get("scheduler") or {}
    if not isinstance(settings, dict):
        raise TraceError(f"{file}: scheduler: a map of settings was expected")
    queues = document.get("queues") or ""
    if isinstance(queues, dict):
        text = yaml.safe_dump(queues)
    else:
        text = read_text(file.parent / str(queues)) if queues else ""
    stated = document.get("nodes")
    nodes = "" if stated is None else str(stated)
    is_file = nodes and not isinstance(stated, int)
    return setup_of(
        trace,
        name,
        nodes=str(file.parent / nodes) if is_file else nodes,
        capacity=str(document.get("capacity") or ""),
        queues=text,
        scheduler={str(key): _setting(value) for key, value in settings.items()},
    )


def _setting(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _document(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(read_text(file)) or {}
    except (yaml.YAMLError, RecursionError) as error:
        raise TraceError(f"{file}: {error}") from error
    if not isinstance(document, dict):
        raise TraceError(f"{file}: a map with {', '.join(_KEYS)} was expected")
    return document


def read_text(file: Path) -> str:
    """Return a small file's text. Raises TraceError."""
    try:
        with file.open("rb") as opened:
            body = opened.read(MAX_FILE_BYTES + 1)
        if len(body) > MAX_FILE_BYTES:
            raise TraceError(f"{file}: more than {MAX_FILE_BYTES} bytes")
        return body.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{file}: {error}") from error
