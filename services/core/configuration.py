"""queues.yaml: text in, a partition's configuration out, or a sentence that says where and why.

This reads the part of the format that a tree of queues with limits needs; keys whose feature comes
with a later release are refused by name rather than ignored. Source: contract section 1.
"""

from hashlib import sha256
from typing import Any

import yaml

from services.core.scheduler.queues import ROOT, QueueConfig
from services.core.scheduler.scheduler import ConfigurationError
from services.core.scheduler.tree import PartitionConfig
from shared.model.quantity import QuantityError, parse_config_quantity
from shared.model.resources import Resource, fits_limit, go_map, is_zero

MAX_CONFIG_BYTES = 1_048_576
_PARTITION_KEYS = {"name", "queues", "nodesortpolicy", "preemption"}
_QUEUE_KEYS = {
    "name",
    "parent",
    "resources",
    "maxapplications",
    "properties",
    "adminacl",
    "submitacl",
    "queues",
}
_LATER_KEYS = {"placementrules", "limits", "usergroupresolver", "childtemplate"}
DEFAULT_CONFIG = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: default
"""


def parse_configuration(text: str) -> PartitionConfig:
    """Return the configuration in a queues.yaml. Raises ConfigurationError.

    An empty text is the built-in default: one queue, root.default.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigurationError(f"{len(text)} characters, at most {MAX_CONFIG_BYTES}")
    text = text if text.strip() else DEFAULT_CONFIG
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(f"not YAML: {error}") from error
    body = _mapping(document, "the document")
    _known(body, {"partitions", "checksum"}, "the document")
    partitions = _list(body.get("partitions"), "partitions")
    if len(partitions) != 1:
        raise ConfigurationError(f"one partition is supported, found {len(partitions)}")
    return _partition(
        _mapping(partitions[0], "partitions[0]"), sha256(text.encode()).hexdigest().upper()
    )


def _partition(body: dict[str, Any], checksum: str) -> PartitionConfig:
    _known(body, _PARTITION_KEYS, "partitions[0]")
    name = str(body.get("name") or "default").lower()
    if name != "default":
        raise ConfigurationError(f"not supported yet: a partition named {name!r}")
    if body.get("queues") is None:
        raise ConfigurationError("queue config is not set")
    queues = [
        _queue(item, f"partitions[0].queues[{at}]")
        for at, item in enumerate(_list(body["queues"], "queues"))
    ]
    if len(queues) == 1 and queues[0].name == ROOT:
        root = queues[0]
    else:
        _unique(queues, 1)
        root = QueueConfig(ROOT, parent=True, children=tuple(queues))
    if root.max_resource is not None or root.guaranteed_resource is not None:
        raise ConfigurationError("root queue must not have resource limits set")
    _check_resources(root, {})
    policy = _mapping(body.get("nodesortpolicy") or {}, "nodesortpolicy")
    preemption = _mapping(body.get("preemption") or {}, "preemption")
    return PartitionConfig(
        root=root,
        node_sort_policy=_sort_policy(policy),
        resource_weights=_weights(policy),
        preemption_enabled=preemption.get("enabled") is not False,
        checksum=checksum,
    )


def _queue(item: Any, where: str) -> QueueConfig:
    body = _mapping(item, where)
    _known(body, _QUEUE_KEYS, where)
    resources = _mapping(body.get("resources") or {}, f"{where}.resources")
    _known(resources, {"guaranteed", "max"}, f"{where}.resources")
    name = str(body.get("name") or "").lower()
    if not name:
        raise ConfigurationError(f"{where}: a queue needs a name")
    applications = body.get("maxapplications") or 0
    if type(applications) is not int or applications < 0:
        raise ConfigurationError(f"{where}.maxapplications: a whole number of 0 or more")
    children = tuple(
        _queue(child, f"{where}.queues[{at}]")
        for at, child in enumerate(_list(body.get("queues") or [], f"{where}.queues"))
    )
    _unique(list(children), where.count("queues["))
    properties = _mapping(body.get("properties") or {}, f"{where}.properties")
    return QueueConfig(
        name=name,
        parent=bool(body.get("parent")) or bool(children),
        max_resource=_resource(resources.get("max"), f"{where}.resources.max"),
        guaranteed_resource=_resource(resources.get("guaranteed"), f"{where}.resources.guaranteed"),
        max_applications=applications,
        properties={str(key): str(value) for key, value in properties.items()},
        children=children,
    )


def _resource(value: Any, where: str) -> Resource | None:
    """Return a resource; all zero or absent is "not set" (contract section 1.4)."""
    if value is None:
        return None
    result: Resource = {}
    for name, quantity in _mapping(value, where).items():
        try:
            result[str(name)] = parse_config_quantity(str(name), str(quantity))
        except QuantityError as error:
            raise ConfigurationError(f"{where}.{name}: {error}") from error
    return None if is_zero(result) else result


def _check_resources(queue: QueueConfig, above: Resource) -> None:
    """Check guaranteed against max, and max against the parents' (contract section 1.6, 5)."""
    limit = queue.max_resource or {}
    if queue.guaranteed_resource and not fits_limit(limit, queue.guaranteed_resource):
        raise ConfigurationError(
            f"guaranteed resource {go_map(queue.guaranteed_resource)} is larger than maximum "
            f"resource {go_map(limit)} for queue {queue.name}"
        )
    if not fits_limit(above, limit):
        raise ConfigurationError(
            f"max resource of parent {go_map(above)} is smaller than maximum resource "
            f"{go_map(limit)} for queue {queue.name}"
        )
    for child in queue.children:
        _check_resources(child, {**above, **limit})


def _sort_policy(body: dict[str, Any]) -> str:
    _known(body, {"type", "resourceweights"}, "nodesortpolicy")
    policy = str(body.get("type") or "fair").lower()
    if policy not in ("fair", "binpacking"):
        raise ConfigurationError(f"undefined policy: {body['type']}")
    return policy


def _weights(body: dict[str, Any]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for name, value in _mapping(body.get("resourceweights") or {}, "resourceweights").items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigurationError(f"nodesortpolicy.resourceweights.{name}: a number")
        if value < 0:
            raise ConfigurationError(f"negative resource weight for {name} is not allowed")
        weights[str(name)] = float(value)
    return weights


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: a map was expected, found {type(value).__name__}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigurationError(f"{where}: a list was expected, found {type(value).__name__}")
    return value


def _known(body: dict[str, Any], keys: set[str], where: str) -> None:
    for key in body:
        if key in _LATER_KEYS:
            raise ConfigurationError(f"{where}: not supported yet: {key}")
        if key not in keys:
            raise ConfigurationError(f"{where}: field {key} not found")


def _unique(queues: list[QueueConfig], level: int) -> None:
    seen: set[str] = set()
    for queue in queues:
        if queue.name in seen:
            raise ConfigurationError(
                f"duplicate child name found with name '{queue.name}', level {level}"
            )
        seen.add(queue.name)
