"""The questions that are asked when all is quiet: through the API, and of the cluster itself.

Each returns what is wrong, in sentences; nothing found is an empty list.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from services.shim_adapter.mirror.world import World
from shared.model.states import ENDED
from tests.chaos.cluster import Cluster
from tests.chaos.load import Load, Submitted
from tests.integration.processes import world_in
from tests.patience import PATIENCE_SECONDS

ENDED_SECONDS = 420.0  # clocks that are minutes off make what lasts seconds last minutes
# what replicas do not share: when they started and asked, what they counted and were told in time
_UNSHARED = {*ENDED, "total"}  # counts of applications: some ended before a replica started
_OF_A_REPLICA = ("timestamp", "appHistory", "containerHistory", "eventStreams")


def at_rest(cluster: Cluster, load: Load, state: Path) -> list[str]:
    """Ask everything, once no client waits any more; what fits nowhere is deleted on the way."""
    wrong = load.wrong + all_settled(cluster, load) + waits_are_explained(cluster, load)
    wrong += replicas_agree(cluster)
    for item in load.applications:
        if item.fits_nowhere:
            load.delete(item)
    wrong += all_settled(cluster, load)
    wrong += replicas_agree(cluster)
    wrong += sums_are_exact(cluster)
    wrong += no_dead_letters(cluster)
    wrong += [f"{what}, {times} times" for what, times in cluster.ended.items()]
    return wrong + the_cluster_is_right(state, load)


def all_settled(cluster: Cluster, load: Load) -> list[str]:
    """Wait until whatever can end has ended; return what has not."""
    open_: list[str] = ["nothing was asked"]

    def is_settled() -> bool:
        try:
            states = _progress(cluster, next(iter(cluster.apis)))
        except (httpx.HTTPError, ValueError):
            return False
        open_[:] = [
            f"{item.name} ({item.pods} pods) is {_said(states.get(item.name))}"
            for item in load.applications
            if item.is_accepted and not _is_settled(item, states.get(item.name))
        ]
        return not open_

    cluster.until(is_settled, ENDED_SECONDS)
    return [f"did not end: {item}" for item in open_]


def _progress(cluster: Cluster, api: str) -> dict[str, Any]:
    return {item["applicationID"]: item for item in cluster.ask(api, "/v1/applications")}


def _is_settled(item: Submitted, state: dict[str, Any] | None) -> bool:
    """Return whether it has ended, or waits for a reason that is given.

    Replicas and cores that started since do not know what had ended: the cluster's file is asked.
    """
    if item.fits_nowhere and not item.is_deleted:
        return state is not None and bool(state["waiting"])
    return state is None or bool(state["hasEnded"])


def _said(state: dict[str, Any] | None) -> str:
    keys = ("state", "placeholders", "running", "pending", "waiting", "message")
    return "not known" if state is None else json.dumps({key: state[key] for key in keys})


def waits_are_explained(cluster: Cluster, load: Load) -> list[str]:
    """Ask why of what can never start: a reason and a sentence."""
    wrong = []
    for item in load.applications:
        if item.is_accepted and item.fits_nowhere and not item.is_deleted:
            why = cluster.ask("api-1", f"/v1/why/{item.name}")
            if why["verdict"] != "waiting" or not why["reason"] or not why["sentence"]:
                wrong.append(f"{item.name} waits, and nobody says why: {json.dumps(why)[:300]}")
    return wrong


def replicas_agree(cluster: Cluster) -> list[str]:
    """Compare what the replicas show; one may be a moment behind."""
    differing: list[str] = []

    def agree() -> bool:
        dumps = {api: _dump(cluster, api) for api in cluster.apis}
        one, other = dumps.values()
        differing[:] = [key for key in {**one, **other} if one.get(key) != other.get(key)]
        return not differing

    cluster.until(agree, PATIENCE_SECONDS)
    names = " and ".join(cluster.apis)
    return [f"{names} differ in {key} of the full state dump" for key in differing]


def _dump(cluster: Cluster, api: str) -> dict[str, Any]:
    dump = cluster.ask(api, "/debug/fullstatedump")
    for key in _OF_A_REPLICA:
        dump.pop(key, None)
    for partition in dump.get("partitions", ()):
        counts = partition.get("applications", {})
        partition["applications"] = {
            state: count for state, count in counts.items() if state not in _UNSHARED
        }
    dump["applications"] = [
        item for item in dump.get("applications", ()) if item["applicationState"] not in ENDED
    ]
    return {key: _in_order(value) for key, value in dump.items()}


def _in_order(value: Any) -> Any:
    """Return a value whose lists are in an order of their content: replicas began at others."""
    if isinstance(value, dict):
        return {key: _in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(_in_order, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def sums_are_exact(cluster: Cluster) -> list[str]:
    """Add up what nodes show, and take the nine checks of YuniKorn's own health check."""
    wrong = []
    for api in cluster.apis:
        places: Counter[str] = Counter()
        for node in cluster.ask(api, "/ws/v1/partition/default/nodes"):
            held: Counter[str] = Counter()
            for allocation in node.get("allocations") or ():
                held.update(allocation["resource"])
                places[allocation["allocationKey"]] += 1
            shown = {key: value for key, value in node.get("allocated", {}).items() if value}
            if dict(held) != shown:
                wrong.append(f"{api}: {node['nodeID']} shows {shown}, its allocations {dict(held)}")
            over = [key for key, value in held.items() if value > node["capacity"].get(key, 0)]
            wrong += [f"{api}: {node['nodeID']} is over its capacity of {key}" for key in over]
        wrong += [f"{api}: {key} has {n} places" for key, n in places.items() if n > 1]
        for check in cluster.ask(api, "/ws/v1/scheduler/healthcheck")["HealthChecks"]:
            if not check["Succeeded"]:
                wrong.append(f"{api}: {check['Name']}: {check['DiagnosisMessage']}")
    return wrong


def no_dead_letters(cluster: Cluster) -> list[str]:
    """Return the messages that were put aside: no fault from outside explains one."""
    letters = cluster.ask("api-1", "/v1/dead-letters")
    return [f"dead letter: {json.dumps(item)[:400]}" for item in letters["deadLetters"]]


def the_cluster_is_right(folder: Path, load: Load) -> list[str]:
    """Look into the resource manager's own file: the truth that everything else is told of."""
    world = world_in(folder)
    wrong = [problem for item in load.applications for problem in of_application(world, item)]
    for node in world.nodes.values():
        on_node = [pod for pod in world.on_nodes.of(node.name) if not pod.has_ended]
        if on_node:
            names = ", ".join(pod.spec.name for pod in on_node[:5])
            wrong.append(f"{node.name} still holds {len(on_node)} pods: {names}")
    return wrong


def of_application(world: World, item: Submitted) -> list[str]:
    """Every pod once, run to its end; no placeholder left; of what was deleted nothing lives."""
    pods = world.pods_of(item.name)
    application = world.applications.get(item.name)
    wrong = (
        [f"{item.name} is still {application.phase}"] if application and application.is_live else []
    )
    wrong += [
        f"{item.name}: the placeholder {pod.spec.name} was left over"
        for pod in pods
        if pod.spec.placeholder and not pod.has_ended
    ]
    real = [pod for pod in pods if not pod.spec.placeholder]
    names = Counter(pod.spec.name for pod in real)
    wrong += [
        f"{item.name}: the pod {name} is there {n} times" for name, n in names.items() if n > 1
    ]
    phases = Counter(str(pod.phase) for pod in real)
    if item.is_deleted:
        if phases["Running"] or phases["Pending"]:
            wrong.append(f"{item.name} was deleted, its pods are {dict(phases)}")
    elif item.is_accepted and not item.fits_nowhere and phases != {"Succeeded": item.pods}:
        wrong.append(f"{item.name}: {item.pods} pods were to succeed, there are {dict(phases)}")
    return wrong
