"""`muster snapshot`: a cluster in one file, of Kubernetes' own objects, as far as the API knows it.

Nodes, the ConfigMap yunikorn-configs with queues.yaml and the scheduler settings, and pods: those
that run with their node, those that wait in their order. A gang that has not started yet is its
task groups with a pod for each member. What the API does not show is not in it: selectors,
affinity, tolerations and taints. Ended applications are left out.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from services.cli.client import Client, path_of
from services.cli.options import asking, in_partition
from services.shim_adapter.backends.kubernetes.configuration import CONFIGS, SETTING
from shared.model.resources import PODS, VCORE

Manifest = dict[str, Any]
_FAMILY = "yunikorn.apache.org/"
_HASHED = 8  # hexadecimal digits of a name's hash
_WHOSE = ("users", "groups")  # lists of names in a queues.yaml
_ACCESS = ("submitacl", "adminacl")


@dataclass
class Names:
    """What names are written as: themselves, or hashes that say nothing of them."""

    is_hashing: bool = False
    _known: dict[str, str] = field(default_factory=dict)

    def __call__(self, kind: str, name: str) -> str:
        """Return the stand-in for the name of a thing of a kind; "" stays ""."""
        if not self.is_hashing or not name:
            return name
        digest = hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()
        return self._known.setdefault(f"{kind}/{name}", f"{kind}-{digest[:_HASHED]}")


def snapshot_of(client: Client, partition: str, *, is_hashing: bool) -> str:
    """Return a running cluster's partition as YAML documents. Raises ApiError."""
    names = Names(is_hashing)
    where = asking(partition)
    nodes = client.get(in_partition(partition, "nodes"))
    pods = client.get("/v1/pods", where)["pods"]
    applications = client.get("/v1/applications", where)
    config = client.get("/v1/config", where)
    users = {row["applicationID"]: row["user"] for row in applications}
    writer = _Pods(names, users)
    real = sorted((pod for pod in pods if not pod["placeholder"]), key=_in_order)
    documents: list[Manifest] = [_node(node, names) for node in nodes]
    documents.append(_config_map(config["text"], config["scheduler"], names))
    documents += [foreign for node in nodes for foreign in writer.foreign(node)]
    documents += map(writer.pod, real)
    for row in applications:
        if _has_not_started(row):
            detail = client.get("/v1/applications" + path_of(row["applicationID"]), where)
            documents += writer.gang(detail)
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)


def _in_order(pod: Manifest) -> tuple[bool, int]:
    return not pod["nodeID"], pod["requestTime"]


def _has_not_started(row: Manifest) -> bool:
    gang = row["placeholders"]
    return bool(gang["wanted"]) and not gang["replaced"] and not row["hasEnded"]


def _node(node: Manifest, names: Names) -> Manifest:
    labels = {
        name: value
        for name, value in node.get("attributes", {}).items()
        if not name.startswith(("si/", "si.io/"))
    }
    if names.is_hashing:
        labels = {key: names("node", v) if v == node["nodeID"] else v for key, v in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": names("node", node["nodeID"]), "labels": labels},
        "spec": {} if node["schedulable"] else {"unschedulable": True},
        "status": {"allocatable": _quantities(node.get("capacity", {}), has_pods=True)},
    }


def _config_map(text: str, settings: Manifest, names: Names) -> Manifest:
    if names.is_hashing and text.strip():
        text = yaml.safe_dump(_without_names(yaml.safe_load(text), names), sort_keys=False)
    data = {f"{SETTING}{name}": str(value) for name, value in settings.items() if value}
    queues = {"queues.yaml": text} if text.strip() else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGS},
        "data": {**data, **queues},
    }


def _without_names(value: Any, names: Names) -> Any:
    """Return a queues.yaml's values with users and groups by their hashes."""
    if isinstance(value, list):
        return [_without_names(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    found: Manifest = {}
    for key, below in value.items():
        if key in _WHOSE and isinstance(below, list):
            found[key] = [one if one == "*" else names(key[:-1], str(one)) for one in below]
        elif key in _ACCESS and isinstance(below, str):
            found[key] = _access(below, names)
        else:
            found[key] = _without_names(below, names)
    return found


def _access(text: str, names: Names) -> str:
    """Return an access list, ``users groups``, each with commas, by hashes."""
    kinds = iter(("user", "group"))
    parts = [(next(kinds, "group"), part) for part in re.split(" ", text)]
    return " ".join(
        ",".join(one if one in ("", "*") else names(kind, one) for one in part.split(","))
        for kind, part in parts
    )


@dataclass
class _Pods:
    """Writes pods as manifests; ``users`` are those of applications."""

    names: Names
    users: dict[str, str]

    def pod(self, pod: Manifest) -> Manifest:
        """Return the manifest of a pod of ours."""
        spec: Manifest = {"schedulerName": "yunikorn", "restartPolicy": "Never"}
        if pod["priority"]:
            spec["priority"] = pod["priority"]
        if pod["nodeID"]:
            spec["nodeName"] = self.names("node", pod["nodeID"])
        name = self.names("pod", pod["name"])
        space = self.names("namespace", pod["namespace"])
        application, queue = pod["applicationID"], pod["queueName"]
        own = self._own(name, space, application, queue, {})
        return self._document(own, spec, pod["resource"])

    def gang(self, detail: Manifest) -> Iterator[Manifest]:
        """Yield a pod for each member of a gang that has not started yet."""
        name = detail["applicationID"]
        first = {pod["taskGroupName"]: pod for pod in detail["pods"] if pod["placeholder"]}
        groups = [group for group in detail["groups"] if group["name"] in first]
        said = json.dumps(
            [
                {
                    "name": group["name"],
                    "minMember": group["wanted"],
                    "minResource": _quantities(first[group["name"]]["resource"]),
                }
                for group in groups
            ]
        )
        for group in groups:
            for at in range(group["wanted"]):
                more = {
                    f"{_FAMILY}task-group-name": group["name"],
                    f"{_FAMILY}task-groups": said,
                }
                pod = first[group["name"]]
                own = self._own(
                    f"{self.names('application', name)}-{group['name']}-{at}".lower(),
                    self.names("namespace", pod["namespace"]),
                    name,
                    detail["queueName"],
                    more,
                )
                spec = {"schedulerName": "yunikorn", "restartPolicy": "Never"}
                yield self._document(own, spec, pod["resource"])

    def foreign(self, node: Manifest) -> Iterator[Manifest]:
        """Yield the pods of other schedulers on a node."""
        where = self.names("node", node["nodeID"])
        for pod in node.get("foreignAllocations", ()):
            name = self.names("pod", pod["allocationKey"]).lower()
            spec = {"schedulerName": "default-scheduler", "nodeName": where}
            yield self._document({"name": name}, spec, pod.get("resource", {}))

    def _own(
        self, name: str, namespace: str, application: str, queue: str, more: dict[str, str]
    ) -> Manifest:
        user = self.names("user", self.users.get(application, ""))
        said = {f"{_FAMILY}user.info": json.dumps({"user": user})} if user else {}
        return {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "labels": {"applicationId": self.names("application", application), "queue": queue},
            "annotations": {**said, **more},
        }

    def _document(self, metadata: Manifest, spec: Manifest, amounts: dict[str, int]) -> Manifest:
        resources = {"requests": _quantities(amounts)}
        containers = [{"name": "main", "image": "unknown", "resources": resources}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {**spec, "containers": containers},
        }


def _quantities(amounts: dict[str, int], *, has_pods: bool = False) -> dict[str, str]:
    """Return amounts as Kubernetes writes them: cpu in milli, bytes as a number."""
    write: dict[str, Callable[[int], tuple[str, str]]] = {
        VCORE: lambda value: ("cpu", f"{value}m"),
    }
    kept = ((n, v) for n, v in amounts.items() if has_pods or n != PODS)
    return dict(write.get(n, lambda value, n=n: (n, str(value)))(v) for n, v in kept)
