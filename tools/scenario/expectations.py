"""Compares what a scenario expects with what is so, and says both where they differ."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from services.api.projection.model import ApplicationView, Model
from services.api.views.progress import over_time
from services.api.why.standing import why
from services.api.yunikorn.answers import application_info, node_info, queue_info
from services.api.yunikorn.usage import groups_info, users_info
from services.cli.launcher import LocalCluster
from services.shim_adapter.backends.simulated.cluster import GonePod, SimulatedCluster
from services.shim_adapter.records import ApplicationPhase, PodRecord
from shared.bus.codec import record_to_plain
from shared.messages.state import EventState
from shared.model.event_codes import ChangeDetail, ChangeType, EventType
from shared.model.gpus import text_of
from shared.model.reasons import Reason
from tools.invariants import violations

_ON_THEIR_WAY_OUT = (
    ApplicationPhase.RESUMING,
    ApplicationPhase.FAILING,
    ApplicationPhase.ENDING,
)
if TYPE_CHECKING:
    from tools.scenario.observed import Observed
    from tools.scenario.schema import (
        CountEntry,
        EventEntry,
        ExpectStep,
        PodExpectation,
    )


def decision(item: object) -> dict[str, Any]:
    """Return an item of an UpdateResponse as the scenario's ``decisions`` match it."""
    return {"kind": type(item).__name__, **record_to_plain(item)}


def check(expected: "ExpectStep", cluster: LocalCluster, observed: "Observed") -> list[str]:
    """Return a sentence for each thing that is not as expected."""
    projection = cluster.api.partitions.get(expected.partition)
    if projection is None:
        return [f"partition: expected {expected.partition} to exist, found none"]
    model = projection.model
    failed: list[str] = []
    checks: list[tuple[Mapping[str, Any], Callable[[str, Any], list[str]]]] = [
        (expected.applications, partial(_application, model)),
        (expected.pods, partial(_pod, cluster)),
        (expected.nodes, partial(_entry, "nodes", partial(_node, model))),
        (expected.queues, partial(_entry, "queues", partial(_queue, model))),
        (expected.users, partial(_entry, "users", partial(_user, model))),
        (expected.groups, partial(_entry, "groups", partial(_group, model))),
        (expected.rejected, partial(_rejected, observed)),
        (expected.why, partial(_why, model)),
    ]
    for wanted, checker in checks:
        for name, value in wanted.items():
            failed += checker(name, value)
    for entry in expected.count:
        failed += _count(cluster, entry)
    for fields in expected.decisions:
        failed += _decisions(observed, fields)
    observed.decisions.clear()
    failed += _events(model, expected.events)
    if expected.invariants:
        for core in cluster.cores.values():
            failed += violations(core.partition)
    return failed


def _rejected(observed: "Observed", name: str, text: str) -> list[str]:
    found = observed.rejected.get(name, "not rejected")
    return [] if text in found else [f"rejected.{name}: expected {text!r}, found {found!r}"]


def _why(model: Model, name: str, wanted: str | Mapping[str, Any] | None) -> list[str]:
    """Compare what ``muster why`` says: the sentence, or the fields that are named."""
    fields = {"sentence": wanted} if isinstance(wanted, str) else wanted
    found = why(model, name)
    answer = found.model_dump(by_alias=True) if found is not None else None
    return _entry("why", lambda _: answer, name, fields)


def _compare(where: str, wanted: Any, found: Any) -> list[str]:
    """Compare a value; maps and lists item by item, and a number that is absent is 0."""
    if isinstance(wanted, Mapping):
        inner = found if isinstance(found, Mapping) else {}
        return [
            text
            for key, value in wanted.items()
            for text in _compare(f"{where}.{key}", value, inner.get(key, _absent(value)))
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            text
            for at, (want, have) in enumerate(zip(wanted, found, strict=True))
            for text in _compare(f"{where}[{at}]", want, have)
        ]
    if wanted != found:
        return [f"{where}: expected {wanted!r}, found {found!r}"]
    return []


def _absent(wanted: Any) -> Any:
    """Return what an absent field stands for, by the type that is expected of it."""
    if isinstance(wanted, bool):
        return False
    if isinstance(wanted, int):
        return 0
    empty: dict[type, Any] = {str: "", list: []}
    return empty.get(type(wanted))


def _entry(
    kind: str,
    answer_of: Callable[[str], Mapping[str, Any] | None],
    name: str,
    wanted: Mapping[str, Any] | None,
) -> list[str]:
    """Compare the fields that are named of an answer; None stands for "is not there"."""
    where = f"{kind}.{name}"
    answer = answer_of(name)
    if answer is None:
        return [] if wanted is None else [f"{where}: expected to exist, found none"]
    if wanted is None:
        return [f"{where}: expected none, found one"]
    return [
        text
        for key, value in wanted.items()
        for text in _compare(f"{where}.{key}", value, answer.get(key, _absent(value)))
    ]


def _application(model: Model, name: str, wanted: Mapping[str, Any] | None) -> list[str]:
    view = model.application(name)
    if view is None or wanted is None:
        return _entry("applications", lambda _: None if view is None else {}, name, wanted)
    fields = dict(wanted)
    reason = fields.pop("reason", "")
    answer = {**application_info(model, view), **_special(view)}
    if isinstance(fields.get("pending"), Mapping):
        answer["pending"] = view.summary.pending
    failed = _entry("applications", lambda _: answer, name, fields)
    texts = (view.summary.message, view.summary.rejected_message, *view.summary.note_lines)
    if not any(reason in text for text in texts):
        found = " ".join(texts)
        failed.append(f"applications.{name}.reason: expected {reason!r}, found {found!r}")
    return failed


def _special(view: ApplicationView) -> dict[str, Any]:
    summary = view.summary
    return {
        "state": summary.state,
        "queue": summary.queue_name,
        "allocated": summary.allocated,
        "placeholders": sum(item.placeholder for item in view.allocations.values()),
        "pending": len(view.asks),
    }


def _node(model: Model, name: str) -> Mapping[str, Any] | None:
    view = model.nodes.get(name)
    return None if view is None else node_info(view)


_QUEUE_NAMES = {
    "allocated": "allocatedResource",
    "pending": "pendingResource",
    "state": "status",
    "max": "maxResource",
    "guaranteed": "guaranteedResource",
}


def _queue(model: Model, name: str) -> Mapping[str, Any] | None:
    path = name.lower()
    if path not in model.queues:
        return None
    info = queue_info(model, path, subtree=False)
    info |= over_time(model, info["queuename"])
    return info | {short: info[full] for short, full in _QUEUE_NAMES.items() if full in info}


def _user(model: Model, name: str) -> Mapping[str, Any] | None:
    return users_info(model, (model.users[name],))[0] if name in model.users else None


def _group(model: Model, name: str) -> Mapping[str, Any] | None:
    return groups_info(model, (model.groups[name],))[0] if name in model.groups else None


def _pod(cluster: LocalCluster, name: str, wanted: "PodExpectation") -> list[str]:
    found = _find_pod(cluster, name)
    if found is None:
        return [f"pods.{name}: expected to exist, found none"]
    failed: list[str] = []
    state = found.state if isinstance(found, GonePod) else found.phase.value
    if wanted.state is not None and wanted.state != state:
        reason = _reason(cluster, found)
        failed.append(f"pods.{name}.state: expected {wanted.state}, found {state} ({reason})")
    node = "" if isinstance(found, GonePod) else found.node
    if wanted.node is not None and wanted.node != node:
        failed.append(f"pods.{name}.node: expected {wanted.node!r}, found {node!r}")
    devices = "" if isinstance(found, GonePod) else text_of(found.devices)
    if wanted.devices is not None and wanted.devices != devices:
        failed.append(f"pods.{name}.devices: expected {wanted.devices!r}, found {devices!r}")
    reason = _reason(cluster, found)
    if wanted.reason is not None and wanted.reason != reason:
        failed.append(f"pods.{name}.reason: expected {wanted.reason}, found {reason or 'none'}")
    return failed


def _gone(cluster: LocalCluster) -> list[GonePod]:
    backend = cluster.shim_machine.cluster
    assert isinstance(backend, SimulatedCluster)
    return list(backend.gone.values())


def _find_pod(cluster: LocalCluster, name: str) -> PodRecord | GonePod | None:
    shim = cluster.shim_machine
    live = [pod for pod in shim.world.all_pods() if pod.spec.name == name]
    if live:
        return live[-1]
    gone = [pod for pod in _gone(cluster) if pod.name == name]
    return gone[-1] if gone else None


def _reason(cluster: LocalCluster, pod: PodRecord | GonePod) -> str:
    """Return why a pod is as it is; one that waits has the scheduler's reason."""
    if isinstance(pod, GonePod) or pod.node or pod.reason:
        return pod.reason
    application = cluster.shim_machine.world.applications.get(pod.spec.application_id)
    name = cluster.shim_machine.world.partition_of(pod.spec.application_id)
    model = (cluster.api.partitions.get(name) or cluster.api.partitions.default).model
    view = model.application(pod.spec.application_id)
    ask = view.asks.get(pod.uid) if view is not None else None
    if view is not None and ask is not None:
        waiting = model.why(view, ask)
        return waiting.reason if waiting is not None else ""
    if application is not None and application.phase is ApplicationPhase.RESERVING:
        return Reason.GANG_PLACEHOLDERS_PENDING.value
    if application is not None and application.phase in _ON_THEIR_WAY_OUT:
        return Reason.APPLICATION_ENDING.value
    return ""


def _count(cluster: LocalCluster, entry: "CountEntry") -> list[str]:
    pods: list[tuple[str, str, bool, str, str]] = [
        (
            pod.spec.application_id,
            pod.spec.task_group_name,
            pod.spec.placeholder,
            pod.phase.value,
            pod.node,
        )
        for pod in cluster.shim_machine.world.all_pods()
        if not pod.spec.foreign
    ]
    pods += [
        (pod.application_id, pod.task_group_name, pod.placeholder, pod.state, "")
        for pod in _gone(cluster)
        if pod.application_id
    ]
    wanted = (entry.app, entry.taskGroup, entry.placeholder, entry.state, entry.node)
    found = sum(
        all(want is None or want == have for want, have in zip(wanted, pod, strict=True))
        for pod in pods
    )
    if found == entry.number:
        return []
    what = entry.model_dump(exclude_none=True, exclude={"number"})
    return [f"count {what}: expected {entry.number}, found {found}"]


def _decisions(observed: "Observed", wanted: dict[str, Any]) -> list[str]:
    fields = {key: value for key, value in wanted.items() if key != "is"}
    found = sum(not _compare("", fields, decision) for decision in observed.decisions)
    if found == wanted.get("is"):
        return []
    return [f"decisions {fields}: expected {wanted.get('is')}, found {found}"]


def _events(model: Model, wanted: "list[EventEntry]") -> list[str]:
    """Look for events: so many of a kind, or one after the other."""
    if not wanted:
        return []
    ring = model.events
    found = [_event(event) for event in ring.read(ring.lowest, ring.highest - ring.lowest + 1)]
    at = 0
    for entry in wanted:
        fields = entry.model_dump(exclude_none=True, exclude={"number"})
        matching = [n for n, event in enumerate(found) if not _compare("", fields, event)]
        if entry.number is not None:
            if len(matching) != entry.number:
                return [f"events {fields}: expected {entry.number}, found {len(matching)}"]
            continue
        later = next((n for n in matching if n >= at), None)
        if later is None:
            where = "after those before it" if matching else "at all"
            return [f"events {fields}: expected one {where}, found none"]
        at = later + 1
    return []


def _event(event: EventState) -> dict[str, Any]:
    """Return an event with YuniKorn's names for its numbers."""
    return {
        "type": EventType(event.type).name,
        "objectID": event.object_id,
        "message": event.message,
        "eventChangeType": ChangeType(event.change_type).name,
        "eventChangeDetail": ChangeDetail(event.change_detail).name,
        "referenceID": event.reference_id,
        "resource": dict(event.resource),
    }
