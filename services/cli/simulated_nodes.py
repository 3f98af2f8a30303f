"""The simulated nodes that `muster up` starts with: so many alike, or those of a file.

A file holds what `kubectl get nodes -o yaml` prints, or a map with ``nodes``, as a scenario has it:

    nodes:
      - {name: gpu, count: 4, capacity: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8}}

Limits: MAX_NODES nodes in all; for the file those of every manifest
(services/api/web/documents.py).
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from services.api.web.documents import DocumentsError, read_documents
from services.cli.files import bytes_of
from services.cli.node_entries import NodeEntry, nodes_of_entry
from services.cli.options import CAPACITY
from services.shim_adapter.backends.kubernetes.objects import node_record
from services.shim_adapter.mirror.asks import HOST_NAME_LABEL
from services.shim_adapter.records import NodeRecord
from shared.model.gpus import GPU
from shared.model.quantity import QuantityError, pod_resources
from shared.model.resources import PODS, Resource

MAX_NODES = 100_000

PODS_A_NODE = 110
BLOCK_LABEL, RACK_LABEL = "topology.kubernetes.io/block", "topology.kubernetes.io/rack"


class NodesError(ValueError):
    """Nodes that cannot be: the message says which, and what was expected."""


def nodes_of(stated: str, capacity: str, gpus: int, labels: str) -> tuple[NodeRecord, ...]:
    """Return the nodes that the options name. Raises NodesError."""
    own = _capacity(capacity, gpus)
    pairs = _pairs("--labels", labels)
    if not (stated.isascii() and stated.isdigit()):
        if gpus or labels or capacity:
            raise NodesError(
                f"--nodes {stated} is a file, which says what its nodes have: leave --capacity, "
                "--gpus and --labels out, or give --nodes a number"
            )
        return _read(Path(stated))
    return alike(stated, own, pairs)


def alike(stated: str, capacity: Resource, labels: Mapping[str, str]) -> tuple[NodeRecord, ...]:
    """Return as many nodes as the digits say. Raises NodesError."""
    count = int(stated) if len(stated) <= len(str(MAX_NODES)) else MAX_NODES + 1
    _check_count(count)
    return tuple(NodeRecord(f"node-{at:04d}", capacity, labels) for at in range(count))


def drawn_levels(racks: int, blocks: int) -> str:
    """Return the topology levels of nodes that are drawn in racks and blocks ("": in none)."""
    drawn = [f"{name}={label}" for name, label, count in _drawn(racks, blocks) if count]
    return ",".join([*drawn, f"host={HOST_NAME_LABEL}"] if drawn else [])


def in_racks(nodes: tuple[NodeRecord, ...], racks: int, blocks: int) -> tuple[NodeRecord, ...]:
    """Return nodes with labels of as many racks and blocks, of like size. Raises NodesError.

    A rack is in one block.
    """
    drawn = [(name, label, count) for name, label, count in _drawn(racks, blocks) if count]
    most_of = (racks or len(nodes), len(nodes))[-len(drawn) :] if drawn else ()
    for most, (name, _, count) in zip(most_of, drawn, strict=True):
        if count > most:
            raise NodesError(f"--{name}s {count}: there are only {most} to be in them")
    parts = racks or len(nodes)  # which blocks are made of
    return tuple(
        replace(
            node,
            labels={**node.labels, **_where(at * parts // len(nodes), parts, drawn)},
        )
        for at, node in enumerate(nodes)
    )


def _where(part: int, parts: int, drawn: list[tuple[str, str, int]]) -> dict[str, str]:
    """Return the labels of one of as many parts, each of which is in one of what is drawn."""
    return {label: f"{name}-{part * count // parts}" for name, label, count in drawn}


def _drawn(racks: int, blocks: int) -> tuple[tuple[str, str, int], ...]:
    return (("block", BLOCK_LABEL, blocks), ("rack", RACK_LABEL, racks))


def _check_count(count: int) -> None:
    if count > MAX_NODES:
        raise NodesError(f"--nodes: at most {MAX_NODES:,} nodes")


def _capacity(stated: str, gpus: int) -> Resource:
    """Return a node's capacity: what is stated beside, or instead of, what every node has."""
    amounts = {**_pairs("--capacity", CAPACITY), **_pairs("--capacity", stated)}
    if "vcore" in amounts:
        amounts.pop("cpu")
    if gpus:
        amounts[GPU] = str(gpus)
    try:
        capacity = pod_resources(amounts)
    except QuantityError as error:
        raise NodesError(f"--capacity: {error}") from error
    negative = [name for name, amount in capacity.items() if amount < 0]
    if negative:
        raise NodesError(f"--capacity: {negative[0]}: an amount below 0")
    return capacity


def _pairs(option: str, text: str) -> dict[str, str]:
    """Return NAME=VALUE,NAME=VALUE as a map."""
    pairs: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise NodesError(f"{option}: {part!r}: expected NAME=VALUE, more with a comma between")
        if name.strip() in pairs:
            raise NodesError(f"{option}: {name.strip()} is named twice")
        pairs[name.strip()] = value.strip()
    return pairs


def _read(file: Path) -> tuple[NodeRecord, ...]:
    try:
        documents = read_documents(bytes_of(file), str(file))
    except OSError as error:
        said = error.strerror or str(error)
        raise NodesError(f"--nodes {file}: {said}; a number or a file is expected") from error
    except DocumentsError as error:
        raise NodesError(f"{file}: {error.where}{error}") from error
    records: dict[str, NodeRecord] = {}
    bodies = [json.loads(document.body) for document in documents]
    is_mixed = any(body.get("kind") == "Node" for body in bodies)  # of a whole cluster
    for at, body in enumerate(bodies, start=1):
        if is_mixed and body.get("kind") not in (None, "Node"):
            continue
        for record in _document(f"{file}: document {at}", body):
            if record.name in records:
                raise NodesError(f"{file}: document {at}: a second node {record.name!r}")
            records[record.name] = record
            _check_count(len(records))
    return tuple(records.values())


def _document(where: str, body: dict[str, Any]) -> list[NodeRecord]:
    if body.get("kind") == "Node":
        return [node_of_document(where, body)]
    entries = body.get("nodes")
    if not isinstance(entries, list) or not entries or len(body) > 1:
        raise NodesError(
            f"{where}: expected `nodes:` with a list, or Nodes as `kubectl get nodes -o yaml` "
            "prints them"
        )
    return [record for at, entry in enumerate(entries) for record in _entry(where, at, entry)]


def _entry(where: str, at: int, entry: object) -> list[NodeRecord]:
    try:
        parsed = NodeEntry.model_validate(entry)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in ("nodes", at, *first["loc"]))
        message = str(first["msg"]).removeprefix("Value error, ")
        is_unknown = first["type"] == "extra_forbidden"
        said = "no such key" if is_unknown else message
        raise NodesError(f"{where}: {place}: {said}") from error
    capacity = {PODS: PODS_A_NODE, **parsed.capacity}
    specs = nodes_of_entry(parsed)
    return [NodeRecord(spec.name, capacity, spec.labels, spec.taints) for spec in specs]


def node_of_document(where: str, body: dict[str, Any]) -> NodeRecord:
    """Return a node as Kubernetes has it. Raises NodesError; ``where`` is its place in the file."""
    status = body.get("status")
    try:
        if isinstance(status, dict) and "allocatable" not in status:
            body = {**body, "status": {"allocatable": status.get("capacity")}}
        record = node_record(body)
        is_whole = isinstance(record.name, str) and bool(record.name and record.capacity)
    except (KeyError, TypeError, AttributeError, ValueError):
        is_whole = False
    if not is_whole:
        raise NodesError(
            f"{where}: a Node with metadata.name and status.allocatable was expected, as "
            "`kubectl get nodes -o yaml` prints it"
        )
    return record
