"""From a Kubernetes pod (as a map) to the pod as the mirror knows it.

Source: docs/rules/pods.md, docs/rules/gangs.md#task-groups and
docs/rules/gangs.md#placeholder-pods. A pod of another scheduler is refused with a sentence.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.shim_adapter.translation.bounds import MAX_SECONDS, check_pod
from services.shim_adapter.translation.constraints import DAEMON_SET, parse_constraints, texts
from services.shim_adapter.translation.errors import MAX_TEXT, ManifestError
from services.shim_adapter.translation.gpu_shares import over_devices, with_share
from services.shim_adapter.translation.task_groups import (
    POLICY_PARAMETERS,
    TASK_GROUP_NAME,
    TASK_GROUPS,
    TaskGroupsError,
    parse_policy_parameters,
    policy_error,
    policy_ignored,
    task_groups_of,
)
from shared.messages.commands import PodSpec, TaskGroupSpec
from shared.messages.interface import GangSettings
from shared.model.duration import parse_go_duration
from shared.model.names import (
    CHECKPOINT_SECONDS,
    DEFAULT_PARTITION,
    DNS_LABEL_ERROR,
    LABEL_VALUE,
    LABEL_VALUE_ERROR,
    MAX_DNS_SUBDOMAIN,
    PARTITION,
    RESTART_SECONDS,
    RUN_SECONDS,
    is_dns_label,
)
from shared.model.numbers import INT32, parse_int64, parse_uint64
from shared.model.quantity import QuantityError, check_whole, pod_resources
from shared.model.resources import (
    MEMORY,
    PODS,
    VCORE,
    Resource,
    add_into,
    is_negative,
    overflows,
    without_zeros,
)
from shared.model.texts import load_json
from shared.model.units import seconds

SCHEDULER_NAMES = ("yunikorn", "muster")
USER_INFO = "yunikorn.apache.org/user.info"
APP_ID = "yunikorn.apache.org/app-id"
QUEUE = "yunikorn.apache.org/queue"
ALLOW_PREEMPTION = "yunikorn.apache.org/allow-preemption"
PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
STALENESS_GRACE = "kai.scheduler/staleness-grace-period"
TRUE_OR_FALSE = ("true", "false")  # what that may say; else it is as if it said nothing
NOBODY = "nobody"
MAX_LABEL = 63
MAX_LABELS = 6 * 1024  # they travel with every ask and allocation
MAX_ANNOTATIONS = 256 * 1024
MAX_APPLICATION_ID = 63
MAX_IGNORED = 1_000  # characters about invalid annotations of a pod; cut
UNIQUE_SUFFIX = "-uniqueautogen"  # of an application that will be named after its pod's UID
_NAMESPACE_PART = 26
_PENDING, _INFEASIBLE = "PodResizePending", "Infeasible"  # how a kubelet refuses a resize
_RESIZABLE = (VCORE, MEMORY)  # in place; nothing else of a pod that runs changes
_APP_ID_SOURCES = (
    ("labels", APP_ID),
    ("annotations", APP_ID),
    ("labels", "applicationId"),
    ("labels", "spark-app-selector"),
)
_QUEUE_SOURCES = (
    ("labels", QUEUE),
    ("annotations", QUEUE),
    ("labels", "queue"),
)
_PARTITION_SOURCES = (("labels", PARTITION), ("annotations", PARTITION))


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A priority class; what it says of preemption holds for pods that do not say it themselves."""

    value: int
    allow_preemption: str = "true"
    preemption_policy: str = ""

    def lets_be_preempted(self, annotations: Mapping[str, str]) -> bool:
        """Return whether a pod of it may be a victim."""
        said = annotations.get(ALLOW_PREEMPTION)
        return (said if said in TRUE_OR_FALSE else self.allow_preemption) != "false"

    def lets_preempt(self, spec: Mapping[str, Any]) -> bool:
        """Return whether a pod of it may have others make way."""
        return (spec.get("preemptionPolicy") or self.preemption_policy) != "Never"


@dataclass(frozen=True, slots=True)
class Reading:
    """How pods are read: whose they are to be, how long they run, and what classes there are.

    ``application_id`` and ``queue`` are for pods that do not name their own, as is the class "".
    """

    scheduler_names: tuple[str | None, ...] = SCHEDULER_NAMES
    run_ns: int = 0
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    application_id: str = ""
    queue: str = ""
    is_unique: bool = False  # whether a pod without one gets an application of its own


def translate_pod(body: Mapping[str, Any], *, where: str, name: str, reading: Reading) -> PodSpec:
    """Return the pod in a manifest (or a pod template). Raises ManifestError with the field.

    ``where`` is the path of the pod inside its document, ``name`` its name.
    """
    metadata = mapping(body.get("metadata") or {}, f"{where}metadata")
    spec = mapping(body.get("spec"), f"{where}spec")
    _check_scheduler(spec, where, reading)
    labels = texts(metadata.get("labels"), f"{where}metadata.labels")
    annotations = texts(metadata.get("annotations"), f"{where}metadata.annotations")
    _check_texts(labels, annotations, where)
    namespace = namespace_of(metadata, where)
    groups, gang_error = _task_groups(annotations)
    timeout_seconds, style = parse_policy_parameters(annotations.get(POLICY_PARAMETERS, ""))
    user, user_groups = _user(annotations)
    priority_class = str(spec.get("priorityClassName") or "")
    known = reading.classes.get(priority_class, PriorityClass(0))
    resource, gpu_devices = requested(body, annotations, where)
    daemon = _is_daemon(metadata)
    constraints = parse_constraints(spec, f"{where}spec", labels=labels, is_daemon=daemon)
    pod = PodSpec(
        name=name,
        application_id=application_id_of(labels, annotations, namespace, reading),
        queue_name=_first(_QUEUE_SOURCES, labels, annotations) or reading.queue,
        resource=resource,
        namespace=namespace,
        user=user,
        groups=user_groups,
        task_group_name=annotations.get(TASK_GROUP_NAME, ""),
        priority=_priority(spec, where, known.value),
        run_ns=_run_ns(spec, annotations, where, reading.run_ns),
        stated_run_ns=_stated_run_ns(spec, annotations, where),
        grace_seconds=_grace_seconds(spec),
        constraints=over_devices(constraints, gpu_devices),
        labels=labels,
        annotations=annotations,
        task_groups=groups,
        task_groups_error=gang_error,
        gang=_gang_settings(annotations),
        annotations_ignored=_ignored(annotations),
        style=style,
        placeholder_timeout_seconds=timeout_seconds,
        allow_preempt_self=known.lets_be_preempted(annotations),
        allow_preempt_other=known.lets_preempt(spec),
        priority_class=priority_class,
        pull_secrets=_pull_secrets(spec, where),
        partition=partition_named(labels, annotations),
    )
    check_pod(pod, f"{where}spec")
    return pod


def _check_scheduler(spec: Mapping[str, Any], where: str, reading: Reading) -> None:
    """Refuse a pod that is not ours."""
    scheduler = spec.get("schedulerName")
    if scheduler not in reading.scheduler_names:
        raise ManifestError(
            f"{where}spec.schedulerName",
            f"must be yunikorn for Muster to schedule the pod, found {scheduler!r}",
        )


def mapping(value: Any, where: str) -> dict[str, Any]:
    """Return a map. Raises ManifestError."""
    if not isinstance(value, dict):
        found = "nothing" if value is None else type(value).__name__
        raise ManifestError(where, f"a map was expected, found {found}")
    return value


def _pull_secrets(spec: dict[str, Any], where: str) -> tuple[str, ...]:
    value = spec.get("imagePullSecrets") or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ManifestError(f"{where}spec.imagePullSecrets", "a list of maps was expected")
    return tuple(str(item["name"]) for item in value if item.get("name"))


def _check_texts(labels: dict[str, str], annotations: dict[str, str], where: str) -> None:
    """Check how long labels and annotations are, and the application that they name."""
    _check_sizes(labels, annotations, where)
    _check_application_id(labels, annotations, where)


def _check_sizes(labels: dict[str, str], annotations: dict[str, str], where: str) -> None:
    """Hold an API server's own limits, and one on all labels, which go with every message."""
    for key, value in labels.items():
        if len(value) > MAX_LABEL:
            raise ManifestError(
                f"{where}metadata.labels[{key[:MAX_DNS_SUBDOMAIN]}]",
                f"{len(value)} characters, at most {MAX_LABEL}",
            )
    for name, texts_of, most in (
        ("labels", labels, MAX_LABELS),
        ("annotations", annotations, MAX_ANNOTATIONS),
    ):
        size = sum(len(key) + len(value) for key, value in texts_of.items())
        if size > most:
            raise ManifestError(
                f"{where}metadata.{name}", f"{size} characters in all, at most {most}"
            )


def _task_groups(annotations: dict[str, str]) -> tuple[tuple[TaskGroupSpec, ...], str]:
    """Return the task groups, and what of the gang is not as its annotations say ("": all is)."""
    bounded = policy_error(annotations.get(POLICY_PARAMETERS, ""))
    try:
        return task_groups_of(annotations.get(TASK_GROUPS, "")), bounded
    except TaskGroupsError as error:
        return (), "; ".join(filter(None, (str(error)[:MAX_TEXT], bounded)))


def namespace_of(metadata: Mapping[str, Any], where: str) -> str:
    """Return the namespace that metadata names, or the default one. Raises ManifestError."""
    namespace = str(metadata.get("namespace") or "default")
    if not is_dns_label(namespace):
        found = namespace[:MAX_TEXT]
        raise ManifestError(f"{where}metadata.namespace", f"{DNS_LABEL_ERROR}, found {found!r}")
    return namespace


def _check_application_id(labels: dict[str, str], annotations: dict[str, str], where: str) -> None:
    """Refuse an application's ID that Kubernetes would not have as a label's value.

    One that is longer is cut.
    """
    maps = {"labels": labels, "annotations": annotations}
    said = ((kind, key, maps[kind].get(key)) for kind, key in _APP_ID_SOURCES)
    kind, key, name = next((source for source in said if source[2]), ("", "", ""))
    if name and not LABEL_VALUE.match(name):
        raise ManifestError(
            f"{where}metadata.{kind}[{key}]",
            f"an application's ID {LABEL_VALUE_ERROR}, found {name[:MAX_TEXT]!r}",
        )


def _ignored(annotations: dict[str, str]) -> str:
    """Return which annotations do not hold, and what holds in their place ("": all do)."""
    found = policy_ignored(annotations.get(POLICY_PARAMETERS, ""))
    allowed = annotations.get(ALLOW_PREEMPTION, "true")
    if allowed not in TRUE_OR_FALSE:
        shown = allowed[:MAX_TEXT]
        found.append(f"{ALLOW_PREEMPTION}: {shown!r} is neither true nor false, and is ignored")
    if annotations.get(USER_INFO) and _user_stated(annotations) is None:
        found.append(f"{USER_INFO}: it has no valid user and groups: the user is '{NOBODY}'")
    for name in (PREEMPTION_DELAY, STALENESS_GRACE):
        text = annotations.get(name, "")
        if text and duration_ns(text) is None:
            found.append(f"{name}: {text[:MAX_TEXT]!r} is not a duration like 90s, and is ignored")
    for name in (CHECKPOINT_SECONDS, RESTART_SECONDS):
        text = annotations.get(name, "")
        if text and parse_uint64(text) is None:
            found.append(f"{name}: {text[:MAX_TEXT]!r} is not a number of seconds, and is ignored")
    return "; ".join(found)[:MAX_IGNORED]


def duration_ns(text: str) -> int | None:
    """Return a duration as Go writes it, in ns; -1 for one with a minus, None where it is none."""
    found = parse_go_duration(text.removeprefix("-"))
    return -1 if found and text.startswith("-") else found


def _gang_settings(annotations: dict[str, str]) -> GangSettings:
    """Return the times that an application's first pod states for it."""
    delay_ns = duration_ns(annotations.get(PREEMPTION_DELAY, "")) or 0
    return GangSettings(
        preemption_delay_ns=max(0, delay_ns),
        staleness_grace_ns=duration_ns(annotations.get(STALENESS_GRACE, "")),
    )


def _first(
    sources: tuple[tuple[str, str], ...], labels: dict[str, str], annotations: dict[str, str]
) -> str:
    maps = {"labels": labels, "annotations": annotations}
    return next((maps[kind][key] for kind, key in sources if maps[kind].get(key)), "")


def application_id_of(
    labels: dict[str, str], annotations: dict[str, str], namespace: str, reading: Reading
) -> str:
    """Return a pod's application; UNIQUE_SUFFIX stands for its UID.

    Source: docs/rules/pods.md#its-application.
    """
    found = _first(_APP_ID_SOURCES, labels, annotations) or reading.application_id
    if not found and reading.is_unique:
        return f"{namespace[:_NAMESPACE_PART]}{UNIQUE_SUFFIX}"
    if found.endswith(UNIQUE_SUFFIX):
        return found  # ``with_uid`` cuts it
    return (found or f"yunikorn-{namespace}-autogen")[:MAX_APPLICATION_ID]


def partition_named(labels: dict[str, str], annotations: dict[str, str]) -> str:
    """Return the partition that a pod names, else the default one."""
    return _first(_PARTITION_SOURCES, labels, annotations) or DEFAULT_PARTITION


def with_uid(application_id: str, uid: str) -> str:
    """Return an application that may end in UNIQUE_SUFFIX, with its pod's UID in place of that."""
    if not application_id.endswith(UNIQUE_SUFFIX):
        return application_id
    return f"{application_id.removesuffix(UNIQUE_SUFFIX)}-{uid}"[:MAX_APPLICATION_ID]


def conflicting_names(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for the application, and the queue, of which a pod names several.

    The first counts all the same (docs/rules/pods.md#its-queue).
    """
    maps = {"labels": labels, "annotations": annotations}
    found = []
    for name, sources in (("app-id", _APP_ID_SOURCES), ("queue", _QUEUE_SOURCES)):
        values = {f"{kind}[{key}]": maps[kind][key] for kind, key in sources if maps[kind].get(key)}
        if len(set(values.values())) > 1:
            found.append(f"Found multiple '{name}' value in pod. {json.dumps(values)}")
    return tuple(found)


def _user(annotations: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return a pod's user and groups: none of them where any of its information is invalid.

    The keys are read as Go reads JSON, whatever their case
    (docs/rules/pods.md#labels-and-annotations and docs/rules/gangs.md#task-groups).
    """
    return _user_stated(annotations) or (NOBODY, ())


def _user_stated(annotations: dict[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return who a pod says that it is of; None: it does not, or what it says does not hold."""
    try:
        info = {key.lower(): value for key, value in load_json(annotations[USER_INFO]).items()}
    except (ValueError, AttributeError, KeyError):
        return None
    user, groups = info.get("user"), info.get("groups") or []
    is_list = isinstance(groups, list) and all(isinstance(group, str) for group in groups)
    if not (isinstance(user, str) and user and is_list):
        return None
    return user, tuple(groups)


def _priority(spec: dict[str, Any], where: str, default: int) -> int:
    value = spec.get("priority")
    if value is None:
        return default
    if type(value) is not int or value not in INT32:
        raise ManifestError(f"{where}spec.priority", f"a 32-bit whole number, found {value!r}")
    return value


def _is_daemon(metadata: dict[str, Any]) -> bool:
    """Return whether a DaemonSet owns the pod: then it must have the node that it names."""
    owners = metadata.get("ownerReferences") or []
    return isinstance(owners, list) and any(
        isinstance(owner, dict) and owner.get("kind") == DAEMON_SET for owner in owners
    )


def _containers(spec: Mapping[str, Any], key: str, where: str) -> list[tuple[str, dict[str, Any]]]:
    value = spec.get(key) or []
    if not isinstance(value, list):
        raise ManifestError(f"{where}.{key}", "a list was expected")
    return [
        (f"{where}.{key}[{at}]", mapping(item, f"{where}.{key}[{at}]"))
        for at, item in enumerate(value)
    ]


def _request(container: dict[str, Any], where: str) -> Resource:
    """Return a container's requests; a limit stands in where there is no request."""
    resources = mapping(container.get("resources") or {}, f"{where}.resources")
    merged: dict[str, Any] = {}
    for kind in ("limits", "requests"):
        place = f"{where}.resources.{kind}"
        merged |= _amounts(mapping(resources.get(kind) or {}, place), place)
    return merged


def requested(
    body: Mapping[str, Any], annotations: Mapping[str, str], where: str
) -> tuple[Resource, int]:
    """Return what a pod of ours asks for, and of how many devices its share of GPUs is."""
    spec = mapping(body.get("spec") or {}, f"{where}spec")
    status = mapping(body.get("status") or {}, "status")
    resource = pod_request(spec, f"{where}spec", status)
    return with_share(resource, annotations, f"{where}metadata.annotations")


def pod_request(
    spec: Mapping[str, Any], where: str, status: Mapping[str, Any] | None = None
) -> Resource:
    """Return what a pod asks for: containers, init containers, overhead.

    A container, a sidecar, or a pod as a whole that is being resized in its place counts with the
    larger of what its spec asks for and what its status says that it has; where the kubelet found
    the resize infeasible, with what it has alone: it will never have more.

    Source: docs/rules/pods.md#what-a-pod-asks-for.
    """
    joined = _has if _is_infeasible(status or {}) else _larger_of
    held = _held(status or {}, "containerStatuses")
    held_by_sidecars = _held(status or {}, "initContainerStatuses")
    total: Resource = {}
    sidecars: Resource = {}
    largest_start: Resource = {}
    for place, container in _containers(spec, "initContainers", where):
        request = _request(container, place)
        if container.get("restartPolicy") == "Always":
            given = held_by_sidecars.get(str(container.get("name")), {})
            add_into(sidecars, joined(request, given))
            continue
        at_start = dict(request)
        add_into(at_start, sidecars)
        largest_start = _larger_of(largest_start, at_start)
    for place, container in _containers(spec, "containers", where):
        wanted = _request(container, place)
        add_into(total, joined(wanted, held.get(str(container.get("name")), {})))
    add_into(total, sidecars)
    total = _larger_of(total, largest_start)
    level = _pod_level(spec, where, total)
    given = joined(level, _given(status or {}, "status"))
    total |= {name: given.get(name, 0) for name in level}
    place = f"{where}.overhead"
    add_into(total, _amounts(mapping(spec.get("overhead") or {}, place), place))
    total[PODS] = 1
    too_large = overflows(total)
    if too_large is not None:
        raise ManifestError(where, f"the sum of {too_large} does not fit 64 bits")
    return without_zeros(total)


def _held(status: Mapping[str, Any], key: str) -> dict[str, Resource]:
    """Return what the containers have been given, by name, where the status says it."""
    found: dict[str, Resource] = {}
    for place, item in _containers(status, key, "status"):
        amounts = _given(item, place)
        if amounts:
            found[str(item.get("name"))] = amounts
    return found


def _given(status: Mapping[str, Any], where: str) -> Resource:
    """Return what a container, or a pod as a whole, has been given."""
    allocated = mapping(status.get("allocatedResources") or {}, where)
    actual = mapping(status.get("resources") or {}, where)
    requests = mapping(actual.get("requests") or {}, where)
    return _larger_of(_amounts(allocated, where), _amounts(requests, where))


def _amounts(amounts: Mapping[str, Any], where: str) -> Resource:
    try:
        resource = pod_resources(amounts)
        for name, value in amounts.items():
            check_whole(name, value)
    except QuantityError as error:
        raise ManifestError(where, str(error)) from error
    if is_negative(resource):
        raise ManifestError(where, "cannot be negative")
    return resource


def _pod_level(spec: Mapping[str, Any], where: str, total: Resource) -> Resource:
    """Return what the pod as a whole asks for, in place of its containers.

    A limit stands in where neither it nor they have a request.
    """
    place = f"{where}.resources"
    resources = mapping(spec.get("resources") or {}, place)
    limits, requests = (
        _amounts(mapping(resources.get(kind) or {}, f"{place}.{kind}"), f"{place}.{kind}")
        for kind in ("limits", "requests")
    )
    return {name: value for name, value in limits.items() if name not in total} | requests


def _larger_of(left: Resource, right: Resource) -> Resource:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _has(wanted: Resource, given: Resource) -> Resource:
    """Return what a resize that is infeasible leaves: only what may be resized is as it is given.

    Without a status there is nothing to go by but what is asked.
    """
    if not given:
        return wanted
    fixed = {name: value for name, value in wanted.items() if name not in _RESIZABLE}
    return _larger_of(fixed, given)


def _is_infeasible(status: Mapping[str, Any]) -> bool:
    """Return whether the kubelet refused a resize: by a condition, before Kubernetes 1.33 a field.

    Of any other (proposed, deferred, in progress) the wish counts as well: it is to be had yet.
    """
    if status.get("resize") == _INFEASIBLE:
        return True
    conditions = status.get("conditions") or []
    return isinstance(conditions, list) and any(
        isinstance(one, dict)
        and (one.get("type"), one.get("reason")) == (_PENDING, _INFEASIBLE)
        and one.get("status") == "True"
        for one in conditions
    )


def _run_ns(spec: dict[str, Any], annotations: dict[str, str], where: str, default_ns: int) -> int:
    """Return how long the simulated kubelet runs the pod.

    The ``muster.io/run-seconds`` annotation says it; else a container's ``sleep N`` command does;
    else the default.
    """
    stated = _annotated_seconds(annotations, where)
    if stated is not None:
        return seconds(stated)
    for _, container in _containers(spec, "containers", f"{where}spec"):
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        match words:
            case ["sleep", duration] if str(duration).isdecimal():
                run_seconds = parse_int64(str(duration))
                return seconds(
                    MAX_SECONDS if run_seconds is None else min(run_seconds, MAX_SECONDS)
                )
    return default_ns


def _annotated_seconds(annotations: dict[str, str], where: str) -> int | None:
    """Return what the ``muster.io/run-seconds`` annotation says, None without it."""
    stated = annotations.get(RUN_SECONDS)
    if stated is None:
        return None
    run_seconds = parse_int64(stated)
    if run_seconds is None or not 0 <= run_seconds <= MAX_SECONDS:
        raise ManifestError(
            f"{where}metadata.annotations[{RUN_SECONDS}]",
            f"a whole number of seconds up to {MAX_SECONDS}, found {stated!r}",
        )
    return run_seconds


def _grace_seconds(spec: dict[str, Any]) -> int:
    """Return how long a pod may take to end when it is deleted, 0 where it does not say."""
    stated = spec.get("terminationGracePeriodSeconds")
    return max(0, min(stated, MAX_SECONDS)) if isinstance(stated, int) else 0


def _stated_run_ns(spec: dict[str, Any], annotations: dict[str, str], where: str) -> int:
    """Return for how long a pod says that it runs at most, 0 where it does not.

    The annotation says it, or ``activeDeadlineSeconds``, or both: then the shorter counts.
    """
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not (type(deadline) is int and 0 < deadline < INT32.stop):
        raise ManifestError(
            f"{where}spec.activeDeadlineSeconds",
            f"a whole number of seconds from 1 to {INT32.stop - 1}, found {deadline!r}",
        )
    stated = (_annotated_seconds(annotations, where), deadline)
    return seconds(min((value for value in stated if value), default=0))
