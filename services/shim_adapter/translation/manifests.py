"""From submitted documents to pods. A kind that is not supported is refused by name.

Nothing is dropped silently: a document is accepted whole or refused with its field and a sentence.
Priority classes, training runtimes, PodGroups and namespaces are taken in for the documents that
come with them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.shim_adapter.records import NodeRecord
from services.shim_adapter.translation.errors import MAX_TEXT, ManifestError
from services.shim_adapter.translation.namespaces import namespace_tags
from services.shim_adapter.translation.pods import (
    ALLOW_PREEMPTION,
    SCHEDULER_NAMES,
    PriorityClass,
    Reading,
    mapping,
    namespace_of,
)
from services.shim_adapter.translation.workloads import EXPANDERS
from services.shim_adapter.translation.workloads.members import groups_named, pods_of
from services.shim_adapter.translation.workloads.pod_groups import (
    CORE,
    READERS,
    core_pod_group,
    pod_group,
    without_hyper_nodes,
)
from services.shim_adapter.translation.workloads.replicas import (
    Gang,
    Submission,
    Workload,
)
from services.shim_adapter.translation.workloads.trainer import RUNTIME_KINDS
from shared.messages.commands import ManifestDocument, PodSpec
from shared.messages.interface import NO_TOPOLOGY, GangSettings, SubGroup
from shared.model.names import DNS_SUBDOMAIN_ERROR, is_dns_subdomain
from shared.model.numbers import INT32
from shared.model.texts import JsonError, load_json

# In a simulated cluster nobody else would run a pod: those of other batch schedulers are taken too,
# and those that name none, as YuniKorn's admission controller would have them.
SIMULATED_SCHEDULERS = (*SCHEDULER_NAMES, None, "", "volcano", "kai-scheduler")
_NO_VOLUMES = "the simulated cluster has no volumes: pods are placed as if they claimed none"
_NO_DEVICES = (
    "dynamic resource allocation is not supported: pods are placed as if they claimed none"
)
_CLAIMS = {  # of a pod, of a StatefulSet and its like, of Volcano's Job
    "persistentVolumeClaim": _NO_VOLUMES,
    "volumeClaimTemplate": _NO_VOLUMES,
    "volumeClaimTemplates": _NO_VOLUMES,
    "volumeClaim": _NO_VOLUMES,
    "volumeClaimName": _NO_VOLUMES,
    "resourceClaims": _NO_DEVICES,
}
_SYSTEM_CLASSES = {  # that every cluster has
    "system-cluster-critical": PriorityClass(2_000_000_000),
    "system-node-critical": PriorityClass(2_000_001_000),
}


@dataclass(frozen=True, slots=True)
class TranslatedDocument:
    """A document and the pods that it describes; a namespace's tags are for its applications.

    ``warnings`` are what of it is not checked, each with its field.
    """

    document: ManifestDocument
    kind: str
    name: str
    pods: tuple[PodSpec, ...] = ()
    namespace_tags: Mapping[str, str] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Translation:
    """What a submission comes to."""

    taken: list[TranslatedDocument] = field(default_factory=list)
    refused: list[tuple[ManifestDocument, ManifestError]] = field(default_factory=list)


def translate(
    documents: Iterable[ManifestDocument],
    default_run_ns: int,
    nodes: tuple[NodeRecord, ...] = (),
) -> Translation:
    """Translate every document, whatever their order; ``nodes`` are those that DaemonSets see."""
    result = Translation()
    for _ in translating(result, documents, default_run_ns, nodes):
        pass
    return result


def translating(
    result: Translation,
    documents: Iterable[ManifestDocument],
    default_run_ns: int,
    nodes: tuple[NodeRecord, ...],
) -> Iterator[int]:
    """Translate document by document into ``result``; yield how many pods each came to."""
    bodies: list[tuple[ManifestDocument, dict[str, Any]]] = []
    for document in documents:
        try:
            bodies.append((document, mapping(load_json(document.body), "")))
        except JsonError as error:
            result.refused.append((document, ManifestError("", str(error))))
        except ManifestError as error:
            result.refused.append((document, error))
    submission = Submission(nodes, _runtimes(bodies), _gangs(bodies))
    reading = Reading(SIMULATED_SCHEDULERS, default_run_ns, _priority_classes(bodies))
    for document, body in bodies:
        try:
            result.taken.append(_document(document, body, submission, reading))
            yield len(result.taken[-1].pods)
        except ManifestError as error:
            result.refused.append((document, error))
    _refuse_lonely_gangs(result)


def _document(
    document: ManifestDocument, body: dict[str, Any], submission: Submission, reading: Reading
) -> TranslatedDocument:
    kind = body.get("kind")
    if not isinstance(kind, str) or not kind:
        raise ManifestError("kind", "a document needs a kind; is this a whole manifest?")
    metadata = mapping(body.get("metadata") or {}, "metadata")
    name = _name(metadata)
    mapping(metadata.get("labels") or {}, "metadata.labels")
    annotations = mapping(metadata.get("annotations") or {}, "metadata.annotations")
    if kind == "PriorityClass":
        if not _has_priority(body):
            raise ManifestError(
                "value", f"a PriorityClass needs a 32-bit whole number, found {body.get('value')!r}"
            )
    elif kind == "Namespace":
        namespace_of({"namespace": name}, "")
        return TranslatedDocument(document, kind, name, namespace_tags=namespace_tags(annotations))
    elif kind == "PodGroup":
        _gang(body, name)
        found = submission.gangs.get(name)
        if isinstance(found, ManifestError):
            raise found
    elif kind not in RUNTIME_KINDS:
        expand = _expander(body, kind)
        spec = mapping(body.get("spec"), "spec")
        workload = Workload(kind, name, spec, metadata, body, submission)
        pods = pods_of(workload, expand(workload), reading)
        return TranslatedDocument(document, kind, name, pods, warnings=_warnings(body))
    return TranslatedDocument(document, kind, name)


def _warnings(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a document claims and is not given here, each sentence once, with its field."""
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", body)]
    while waiting:
        where, value = waiting.pop()
        below: list[tuple[str, Any]] = []
        if isinstance(value, dict):
            below = [(f"{where}.{key}" if where else key, inner) for key, inner in value.items()]
            for key, (field, inner) in zip(value, below, strict=True):
                if inner and key in _CLAIMS:
                    found.setdefault(_CLAIMS[key], field)
        elif isinstance(value, list):
            below = [(f"{where}[{at}]", inner) for at, inner in enumerate(value)]
        waiting += reversed(below)
    return tuple(f"{field}: {said}" for said, field in found.items())


def _expander(body: dict[str, Any], kind: str) -> Any:
    version = body.get("apiVersion")
    found = {key: expand for key, expand in EXPANDERS.items() if key[1] == kind}
    if not found:
        raise ManifestError("kind", f"{kind} is not a workload that Muster runs")
    if version is None:
        return next(iter(found.values()))
    group = str(version).rpartition("/")[0]
    if (group, kind) not in found:
        known = ", ".join(sorted(key[0] or "v1" for key in found))
        raise ManifestError("apiVersion", f"{kind} is known of {known}, found {version!r}")
    return found[group, kind]


def _name(metadata: dict[str, Any]) -> str:
    """Return a document's name; of a generateName what it begins with, for it is made once here."""
    key = "name" if metadata.get("name") else "generateName"
    name = metadata.get(key)
    if not isinstance(name, str) or not name:
        raise ManifestError("metadata.name", "a name or generateName is needed")
    name = name if key == "name" else name.rstrip("-.")
    if not is_dns_subdomain(name):
        found = name[:MAX_TEXT]
        raise ManifestError(f"metadata.{key}", f"{DNS_SUBDOMAIN_ERROR}, found {found!r}")
    return name


# --- what other documents hang on ---------------------------------------------------------------

Bodies = list[tuple[ManifestDocument, dict[str, Any]]]


def _of_kind(bodies: Bodies, *kinds: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for _, body in bodies:
        metadata = body.get("metadata")
        if body.get("kind") in kinds and isinstance(metadata, dict):
            yield str(metadata.get("name")), body


def _priority_classes(bodies: Bodies) -> dict[str, PriorityClass]:
    """Return the classes by name, Kubernetes' own among them; "" is that of pods that name none.

    Of several that would be that the one with the lowest value is.
    """
    classes, default = dict(_SYSTEM_CLASSES), PriorityClass(0)
    defaults: list[PriorityClass] = []
    for name, body in _of_kind(bodies, "PriorityClass"):
        if _has_priority(body):
            classes[name] = priority_class(body)
            defaults += [classes[name]] if body.get("globalDefault") is True else []
    return {**classes, "": min(defaults, key=lambda found: found.value, default=default)}


def _has_priority(body: Mapping[str, Any]) -> bool:
    return type(body.get("value")) is int and body["value"] in INT32


def priority_class(body: Mapping[str, Any]) -> PriorityClass:
    """Return a priority class; its annotation holds for pods that say nothing themselves."""
    annotations = (body.get("metadata") or {}).get("annotations")
    allowed = annotations.get(ALLOW_PREEMPTION) if isinstance(annotations, dict) else None
    return PriorityClass(
        body["value"],
        "true" if allowed is None else str(allowed),
        str(body.get("preemptionPolicy") or ""),
    )


def _runtimes(bodies: Bodies) -> dict[str, Mapping[str, Any]]:
    return {
        name: body["spec"]
        for name, body in _of_kind(bodies, *RUNTIME_KINDS)
        if isinstance(body.get("spec"), dict)
    }


def _gangs(bodies: Bodies) -> dict[str, Gang | ManifestError]:
    """Return the PodGroups by name; of one that is refused, for what: its pods are, too."""
    found: dict[str, Gang | ManifestError] = {}
    for name, body in _of_kind(bodies, "PodGroup"):
        if name in found:
            said = f"there are two PodGroups {name!r} in the submission: submit one at a time"
            found[name] = ManifestError("metadata.name", said)
            continue
        try:
            found[name] = _gang(body, name)
        except ManifestError as error:
            found[name] = error
    return found


def _gang(body: Mapping[str, Any], name: str) -> Gang:
    """Return a PodGroup's gang. Raises ManifestError."""
    group = _api_group(body)
    if group == CORE:
        return _core_gang(core_pod_group(body, name))
    return without_hyper_nodes(READERS.get(group, pod_group)(body, name))


def _core_gang(gang: Gang) -> Gang:
    """Return a gang of core Kubernetes without placeholders: its pods may be several documents."""
    for key, value in (
        ("parentCompositePodGroupName", gang.parent),
        ("resourceClaims", gang.claims),
    ):
        if value:
            raise ManifestError(f"spec.{key}", "it is read on a cluster alone")
    if gang.tree is not None or not gang.minimum:
        return gang
    part = SubGroup(gang.name, "", gang.minimum)
    return replace(gang, terms=GangSettings((part,), 1, gang.topology), topology=NO_TOPOLOGY)


def _api_group(body: Mapping[str, Any]) -> str:
    return str(body.get("apiVersion") or "").rpartition("/")[0]


def _refuse_lonely_gangs(result: Translation) -> None:
    """Refuse a PodGroup that no pod that is taken names: its minimum would hold for no pod."""
    named = {
        name
        for taken in result.taken
        for pod in taken.pods[:1] + taken.pods[-1:]
        for name in groups_named(pod.labels, pod.annotations)
    }
    for taken in [item for item in result.taken if item.kind == "PodGroup"]:
        is_core = _api_group(load_json(taken.document.body)) == CORE  # whose pods may come later
        if taken.name not in named and not is_core:
            result.taken.remove(taken)
            error = ManifestError(
                "metadata.name",
                f"no pod that is taken names the PodGroup {taken.name!r}: submit them together",
            )
            result.refused.append((taken.document, error))
