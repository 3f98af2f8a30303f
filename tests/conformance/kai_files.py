"""What a row of the action tables says, as a user writes it: queues.yaml, PodGroups, settings."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from services.core.scheduler.model.settings import ACTIONS, ALLOCATE, KAI
from services.shim_adapter.translation.workloads.pod_groups import kai_pod_group
from services.shim_adapter.translation.workloads.replicas import Gang
from shared.messages.interface import NO_TOPOLOGY, SubGroup, TopologyConstraint
from shared.model.gpus import GPU

MB = 1_000_000
UNLIMITED = ("unlimited", -1)
AMOUNTS = (("vcore", "cpu_milli", 1, "m"), ("memory", "mem_mb", MB, ""), (GPU, "gpu", 1, ""))


class NotSayableError(Exception):
    """Nothing that a user writes says what a row has; the message is what that is."""


# --- queues.yaml --------------------------------------------------------------------------------


@dataclass
class Amounts:
    """What a queue is owed of each type, and its most; None is unlimited."""

    quota: dict[str, int | None] = field(default_factory=dict)
    limit: dict[str, int] = field(default_factory=dict)
    guaranteed: dict[str, int] = field(default_factory=dict)  # what of the quota may stand as such


def queues_yaml(row: dict) -> str:
    """Return the queues.yaml of a row, which is JSON as well."""
    below = children(row)
    root = {"name": "root", "submitacl": "*", "queues": list(queues(below, "", {}))}
    partition: dict[str, Any] = {"name": "default", "queues": [root]}
    if "spread" in row.get("notes", ""):
        weights = {"vcore": 0.0, "memory": 0.0, GPU: 1.0}
        partition["nodesortpolicy"] = {"type": "fair", "resourceweights": weights}
    return json.dumps({"partitions": [partition]})


def children(row: dict) -> dict[str, list[dict]]:
    """Return the queues by what they are below; departments are below the root, which is ""."""
    above = {spec["name"] for spec in [*row.get("departments", []), *row["queues"]]}
    found: dict[str, list[dict]] = {"": list(row.get("departments", []))}
    for spec in row["queues"]:
        parent = spec.get("parent")
        found.setdefault(parent if parent in above else "", []).append(spec)
    return found


def queues(below: dict[str, list[dict]], parent: str, most: dict[str, int]) -> Iterator[dict]:
    """Yield the queues below one of which the max is ``most``.

    A guarantee stands as such where YuniKorn's file may have it: not nothing, no more than a max
    on the path, those of children no more than their parent's. Else ``deserved`` says it.
    """
    specs = {spec["name"]: amounts_of(spec, most) for spec in below[parent]}
    for name, _, _, _ in AMOUNTS:
        if sum(each.guaranteed.get(name, 0) for each in specs.values()) > most.get(name, 2**62):
            for each in specs.values():
                each.guaranteed.pop(name, None)
    for spec in below[parent]:
        own = specs[spec["name"]]
        limits = {**most, **{k: min(v, most.get(k, v)) for k, v in own.limit.items()}}
        inner = list(queues(below, spec["name"], limits)) if spec["name"] in below else []
        for name in list(own.guaranteed):
            of_those = sum(_value(each, name) for each in inner)
            if not own.guaranteed[name] or of_those > own.guaranteed[name]:
                del own.guaranteed[name]
        yield queue(spec, own, inner)


def queue_name(name: str) -> str:
    """Return a queue's name as a queues.yaml may have it."""
    return re.sub(r"[^a-z0-9_-]", "-", name.lower())


def _value(spec: dict, name: str) -> int:
    own = spec["resources"].get("guaranteed", {}).get(name)
    if own is None:
        return sum(_value(each, name) for each in spec.get("queues", ()))
    return int(own.removesuffix("m"))


def amounts_of(spec: dict, most: dict[str, int]) -> Amounts:
    """Return the amounts of a queue; a file may have no max above one on the path, which binds."""
    found = Amounts()
    for name, key, unit, _ in AMOUNTS:
        quota, limit = spec.get(f"{key}_quota"), spec.get(f"{key}_limit")
        is_unlimited = quota is None or quota in UNLIMITED
        found.quota[name] = None if is_unlimited else int(quota * unit)
        if limit is not None and limit not in UNLIMITED:
            found.limit[name] = min(int(limit * unit), most.get(name, 2**62))
        if not is_unlimited and found.quota[name] <= found.limit.get(name, 2**62):
            found.guaranteed[name] = found.quota[name]
    return found


def queue(spec: dict, own: Amounts, inner: list[dict]) -> dict:
    """Return a queue of the file."""
    suffix = {name: ending for name, _, _, ending in AMOUNTS}
    texts = {name: f"{value}{suffix[name]}" for name, value in own.guaranteed.items()}
    limits = {name: f"{value}{suffix[name]}" for name, value in own.limit.items()}
    if limits and not any(own.limit.values()):
        limits["pods"] = "100000"  # a max of nothing but nothing is none
    properties = {
        f"deserved.{name}": "unlimited" if value is None else f"{value}{suffix[name]}"
        for name, value in own.quota.items()
        if name not in own.guaranteed
    }
    properties[f"overquota.weight.{GPU}"] = str(max(0, spec.get("gpu_over_quota_weight") or 0))
    if spec.get("priority", 100) != 100:
        properties["overquota.priority"] = str(spec["priority"])
    for kind in ("reclaim", "preempt"):
        window = spec.get(f"{kind}_min_runtime_s")
        if window is not None:
            properties[f"{kind}.min.runtime"] = f"{window}s"
    resources = {key: value for key, value in (("guaranteed", texts), ("max", limits)) if value}
    found: dict[str, Any] = {
        "name": queue_name(spec["name"]),
        "properties": properties,
        "resources": resources,
    }
    return found | ({"parent": True, "queues": inner} if inner else {})


def settings_of(row: dict, actions: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the scheduler settings of a row."""
    most = row.get("max_consolidation_preemptees", -1)
    grace = row.get("default_staleness_grace_s", 0)
    named = ",".join(dict.fromkeys((ALLOCATE, *actions)))
    own: tuple[tuple[str, str], ...] = (
        ("policy", KAI),
        ("actions", named),
        ("stalenessGracePeriod", f"{grace}s"),
        ("consolidationVictims", str(most)),
    )
    return (*own, ("topologyLevels", ",".join(levels_of(row)))) if has_topology(row) else own


def actions_of(row: dict) -> tuple[str, ...]:
    named = row.get("actions") or ACTIONS
    return ACTIONS if named in ("rounds", ["rounds"]) else tuple(named)


# --- PodGroups ----------------------------------------------------------------------------------


def gang_of(row: dict, job: dict) -> Gang:
    """Return the gang of a job's PodGroup, as the shim adapter reads it.

    Where the levels are not those of the settings they are added.
    """
    gang = kai_pod_group(pod_group(job), job["name"])
    if levels_of(row):
        return gang
    named = {part["name"]: topology_of(row, part.get("topology")) for part in parts_of(job)}
    of_all = topology_of(row, job.get("topology_constraint"))
    if of_all == NO_TOPOLOGY:
        of_all = topology_of(row, (job.get("subgroups") or {}).get("topology"))
    terms = replace(
        gang.terms,
        topology=of_all,
        subgroups=tuple(
            replace(part, topology=named.get(part.name, NO_TOPOLOGY))
            for part in gang.terms.subgroups
        ),
    )
    return replace(gang, terms=terms)


def has_topology(row: dict) -> bool:
    """Return whether a row's answer hangs on levels of nodes."""
    gangs = [gang_of(row, job).terms for job in row["jobs"]]
    parts: list[Any] = [*gangs, *(part for terms in gangs for part in terms.subgroups)]
    return any(part.topology != NO_TOPOLOGY for part in parts)


def levels_of(row: dict) -> tuple[str, ...]:
    """Return the levels of a row as a setting: those of its only topology, which all name.

    () where a row names another one, or prefers a level that it lacks: KAI takes that for none.
    """
    topologies = row.get("topologies", [])
    levels = tuple(topologies[0]["levels"]) if len(topologies) == 1 else ()
    named = [each for job in row.get("jobs", ()) for each in constraints_of(job)]
    is_said = all(
        each["Topology"] == topologies[0]["name"]
        and each.get("PreferredLevel", "") in ("", *levels)
        for each in (named if levels else ())
    )
    return levels if is_said else ()


def constraints_of(job: dict) -> list[dict]:
    """Return what a job and its parts say of topology."""
    tree = (job.get("subgroups") or {}).get("topology")
    own = [job.get("topology_constraint"), tree, *(part.get("topology") for part in parts_of(job))]
    return [each for each in own if each and each.get("Topology")]


def constraint_as_written(constraint: dict | None) -> dict:
    """Return ``topologyConstraint`` of a manifest; {}: it is none."""
    if not constraint or not constraint.get("Topology"):
        return {}
    named = {
        "topology": constraint["Topology"],
        "requiredTopologyLevel": constraint.get("RequiredLevel"),
        "preferredTopologyLevel": constraint.get("PreferredLevel"),
    }
    return {"topologyConstraint": {key: value for key, value in named.items() if value}}


def pod_group(job: dict) -> dict:
    """Return the manifest of a job's PodGroup."""
    spec: dict[str, Any] = {
        "minMember": job.get("min_available", len(job["tasks"])),
        "preemptibility": "preemptible" if job["preemptible"] else "non-preemptible",
    }
    if job.get("subgroups"):
        spec["subGroups"] = [as_written(part) for part in parts_of(job)]
        least = job["subgroups"].get("min_sub_group")
        spec |= {} if least is None else {"minSubGroup": least}
    tree = (job.get("subgroups") or {}).get("topology")
    spec |= constraint_as_written(job.get("topology_constraint")) or constraint_as_written(tree)
    if job.get("preemption_delay_s"):
        spec["preemptionDelay"] = f"{job['preemption_delay_s']}s"
    grace = job.get("staleness_grace_period_s")
    if grace is not None:
        spec["stalenessGracePeriod"] = f"{grace}s"
    name = {"name": job["name"]}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "metadata": name, "spec": spec}


def parts_of(job: dict) -> list[dict]:
    """Return the subgroups of a job, each with its parent, those of one parent in their order."""
    found: list[dict] = []

    def walk(tree: dict, above: str) -> None:
        for podset in tree.get("podsets", []):
            found.append({**podset, "parent": above})
        for group in tree.get("groups", []):
            found.append({**group, "parent": above, "is_group": True})
            walk(group, group["name"])

    walk(job.get("subgroups") or {}, "")
    return found


def as_written(part: dict) -> dict:
    found = {"name": part["name"], "parent": part["parent"] or None}
    found |= constraint_as_written(part.get("topology"))
    if not part.get("is_group"):
        return found | {"minMember": part["min_available"]}
    least = part.get("min_sub_group")
    return found if least is None else found | {"minSubGroup": least}


def topology_of(row: dict, constraint: dict | None) -> TopologyConstraint:
    """Return a constraint with the levels of its topology; one that is not there has none."""
    if not constraint or not constraint.get("Topology"):
        return NO_TOPOLOGY
    levels = {topology["name"]: topology["levels"] for topology in row.get("topologies", [])}
    return TopologyConstraint(
        tuple(levels.get(constraint["Topology"], ())),
        constraint.get("RequiredLevel", ""),
        constraint.get("PreferredLevel", ""),
    )


def part_names(gang: Gang) -> dict[str, SubGroup]:
    return {part.name: part for part in gang.terms.subgroups}
