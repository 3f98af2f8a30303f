"""What dynamic resource allocation is made of: slices of devices, classes, claims.

What is not supported is read as such, by its field, and said to who asks for it; nothing of it is
guessed. Source: resource.k8s.io/v1. Pure: no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.shim_adapter.translation.constraints import parse_tolerations
from services.shim_adapter.translation.device_selectors import (
    Device,
    SelectorUnsupportedError,
    amount,
    selector,
    version,
)
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import inner, items, text
from shared.messages.constraints import Taint, Toleration
from shared.model.ids import derived_suffix

MAX_DEVICES = 128  # devices in a slice, as the API server has it; of a slice with more none counts
MAX_REQUESTS = 32  # requests of a claim, as there; with more it is refused
MAX_RESERVED = 256  # pods that a claim is reserved for, as there; the next waits
MAX_ALTERNATIVES = 8  # alternatives of a request, as there; with more it is refused
MAX_COUNT = 32  # devices of a claim, as there; with more it is refused
EVERYWHERE = "*"  # the node of devices that every node reaches
CLASS_TYPE = "deviceclass/"  # before a class: the resource type of its devices
IMPLICIT = "deviceclass.resource.kubernetes.io/"  # before a class: an extended resource of it
Key = tuple[str, str]  # namespace and name
DeviceId = tuple[str, str, str]  # driver, pool and name
Results = tuple[tuple[str, DeviceId, bool], ...]  # a request, a device for it, for an admin or not


@dataclass(frozen=True, slots=True)
class Slice:
    """A ResourceSlice: devices of one generation of a pool, of one node.

    ``node`` is EVERYWHERE for those that every node reaches, "" for those of several.
    """

    driver: str
    pool: str
    generation: int
    slices: int
    node: str
    devices: tuple[tuple[str, Device], ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass: its selectors, the extended resource that it offers, and its config."""

    selectors: tuple[str, ...] = ()
    extended: str = ""
    config: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """So many devices of a class, each selected by all of ``selectors``.

    ``takes_all``: every device of the node that is selected, at least one. ``is_admin``: whether
    they are taken does not count, and it takes none. ``name`` is `main/sub` for an alternative.
    """

    name: str
    device_class: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    takes_all: bool = False
    is_admin: bool = False
    tolerations: tuple[Toleration, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether the devices of a node that it may have can be counted by themselves."""
        return not (self.takes_all or self.is_admin or self.tolerations)

    def types(self, extended: str) -> dict[str, int]:
        """Return what it asks for as resource types: of its class, and of its own selectors.

        A class that offers an extended resource counts as that.
        """
        found = {extended or f"{CLASS_TYPE}{self.device_class}": self.count}
        if self.selectors:
            found[self.narrow] = self.count
        return found

    @property
    def narrow(self) -> str:
        """Return the resource type of the devices that its own selectors leave."""
        digest = derived_suffix("\n".join(self.selectors), 8)
        return f"{CLASS_TYPE}{self.device_class[:54]}.{digest}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """Of an attribute that all devices of some requests have: one value, or all ``differ``.

    ``requests`` are their names, ("") for all requests of the claim.
    """

    attribute: tuple[str, str]
    requests: tuple[str, ...] = ()
    differ: bool = False

    def is_about(self, request: str) -> bool:
        """Return whether a request is meant: a main name means its alternatives as well."""
        named = request in self.requests or request.partition("/")[0] in self.requests
        return named or not self.requests


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim. ``choices`` are its requests, each the alternatives of which one is enough.

    ``wrong`` is what of it is not supported; ``node`` is where it is allocated.

    ``reserved`` are uids. ``owner`` is the pod that it was made for ("": a user made it).
    """

    uid: str
    choices: tuple[tuple[Request, ...], ...] = ()
    constraints: tuple[Constraint, ...] = ()
    wrong: str = ""
    config: tuple[Mapping[str, Any], ...] = ()
    owner: str = ""
    is_allocated: bool = False
    node: str = ""
    devices: tuple[DeviceId, ...] = ()
    reserved: tuple[str, ...] = ()
    is_going: bool = False
    is_extended: bool = False

    @property
    def requests(self) -> tuple[Request, ...]:
        """Return all its requests, with their alternatives."""
        return tuple(request for choice in self.choices for request in choice)

    @property
    def counts(self) -> bool:
        """Return whether its devices can be counted by class: no more is to be known of a node."""
        return all(len(choice) == 1 and choice[0].is_plain for choice in self.choices)

    @property
    def joint(self) -> str:
        """Return the resource type of nodes that have what it asks for, all at once ("": none).

        So much of it a node has as such claims find devices there.
        """
        if self.counts and not self.constraints and len(self.choices) <= 1:
            return ""
        return f"{CLASS_TYPE}claim.{derived_suffix(repr((self.choices, self.constraints)), 8)}"


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod names: the entry's name, and its claim's ("": that is not made yet)."""

    entry: str
    claim: str
    template: str = ""


@dataclass(frozen=True, slots=True)
class DeviceClaims:
    """What a pod asks for in devices.

    ``extended`` are its extended resources: the container's name and place, the resource, its
    place among the container's, how many.
    """

    claims: tuple[PodClaim, ...] = ()
    extended: tuple[tuple[str, int, str, int, int], ...] = ()
    made: str = ""  # the claim that was made for its extended resources


NO_CLAIMS = DeviceClaims()


@dataclass(frozen=True, slots=True)
class GroupClaims:
    """The claims of a PodGroup: its name and uid, and by entry what is named, and its claim."""

    name: str
    uid: str
    claims: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimToWrite:
    """What is to be written at a claim before a pod is bound.

    ``body`` is that of one that is made first (None: it is there), ``container`` what the pod says
    of it. ``is_local``: whether a device of it is its node's alone.
    """

    namespace: str
    name: str
    uid: str
    node: str
    results: Results
    config: tuple[Mapping[str, Any], ...]
    consumer: Mapping[str, str]
    is_local: bool = True
    body: Mapping[str, Any] | None = None
    containers: tuple[Mapping[str, str], ...] = ()

    def allocation(self) -> dict[str, Any]:
        """Return the claim's allocation: its devices, for this node alone where they are local."""
        results = [
            {
                "request": request,
                "driver": device[0],
                "pool": device[1],
                "device": device[2],
                **({"adminAccess": True} if is_admin else {}),
            }
            for request, device, is_admin in self.results
        ]
        on_node = {"key": "metadata.name", "operator": "In", "values": [self.node]}
        devices = {"results": results, "config": list(self.config)}
        if not self.is_local:
            return {"devices": devices}
        return {
            "devices": devices,
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
        }


# --- reading ------------------------------------------------------------------------------------


def slice_of(raw: Mapping[str, Any]) -> Slice:
    """Return a ResourceSlice. Raises ManifestError with the field."""
    spec = mapping(raw.get("spec"), "spec")
    pool = mapping(spec.get("pool"), "spec.pool")
    found = Slice(
        text(spec, "driver"),
        text(pool, "name", "spec.pool"),
        int(pool.get("generation") or 0),
        int(pool.get("resourceSliceCount") or 1),
        text(spec, "nodeName") or (EVERYWHERE if spec.get("allNodes") else ""),
    )
    listed = items(spec, "devices")
    if len(listed) > MAX_DEVICES:
        raise ManifestError("spec.devices", f"{len(listed)} of them, at most {MAX_DEVICES}")
    devices = []
    for at, item in enumerate(listed if found.node else ()):
        device = mapping(item, f"spec.devices[{at}]")
        if not _is_plain(device):
            continue
        name = text(device, "name", f"spec.devices[{at}]")
        devices.append((name, _device(found.driver, mapping(device.get("basic") or device, name))))
    return replace(found, devices=tuple(devices))


_SPECIAL = (
    "consumesCounters", "allowMultipleAllocations", "bindingConditions", "bindsToNode",
    "bindingFailureConditions", "nodeName", "nodeSelector", "allNodes",
)  # fmt: skip


def _is_plain(device: Mapping[str, Any]) -> bool:
    """Return whether a device may be given whole, to anybody: others are not counted."""
    return not any(device.get(key) for key in _SPECIAL)


def _device(driver: str, body: Mapping[str, Any]) -> Device:
    attributes = {}
    for key, value in mapping(body.get("attributes") or {}, "attributes").items():
        read = _attribute(mapping(value, key))
        if read is not None:
            attributes[_qualified(driver, key)] = read
    capacity = {}
    for key, value in mapping(body.get("capacity") or {}, "capacity").items():
        found = amount(value.get("value") if isinstance(value, dict) else value)
        if found is not None:
            capacity[_qualified(driver, key)] = found
    taints = tuple(
        Taint(str(each.get("key")), str(each.get("value") or ""), str(each.get("effect")))
        for each in items(body, "taints", "spec.devices")
        if mapping(each, "taints").get("effect") in ("NoSchedule", "NoExecute")
    )
    return Device(driver, attributes, capacity, taints)


def _attribute(value: Mapping[str, Any]) -> Any:
    for kind in ("string", "bool", "int"):
        if kind in value:
            return value[kind]
    return version(str(value.get("version") or ""))


def _qualified(driver: str, key: str) -> tuple[str, str]:
    domain, slash, name = key.partition("/")
    return (domain, name) if slash else (driver, key)


def class_of(raw: Mapping[str, Any]) -> DeviceClass:
    """Return a DeviceClass. Raises ManifestError with the field."""
    spec = mapping(raw.get("spec") or {}, "spec")
    return DeviceClass(
        _selectors(spec, "spec"), text(spec, "extendedResourceName"), _config(spec, "spec")
    )


def claim_of(raw: Mapping[str, Any]) -> Claim:
    """Return a ResourceClaim; one that asks for what is not supported says so."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    annotations = metadata.get("annotations") or {}
    found = Claim(
        str(metadata.get("uid") or ""),
        owner=str(owners[0].get("uid")) if owners and owners[0].get("kind") == "Pod" else "",
        is_allocated=bool(status.get("allocation")),
        node=_node_of(allocation.get("nodeSelector") or {}),
        devices=tuple(
            (str(each["driver"]), str(each["pool"]), str(each["device"]))
            for each in results
            if not each.get("adminAccess")
        ),
        reserved=tuple(str(each.get("uid")) for each in status.get("reservedFor") or ()),
        is_going=bool(metadata.get("deletionTimestamp")),
        is_extended=annotations.get(EXTENDED_CLAIM) == "true",
    )
    try:
        devices = inner(mapping(raw.get("spec") or {}, "spec"), "devices")
        return replace(
            found,
            choices=_choices(devices),
            constraints=_constraints(devices),
            config=_config(devices, "spec.devices"),
        )
    except ManifestError as error:
        return replace(found, wrong=str(error))


EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"


def _choices(devices: Mapping[str, Any]) -> tuple[tuple[Request, ...], ...]:
    where = "spec.devices"
    listed = items(devices, "requests", where)
    if len(listed) > MAX_REQUESTS:
        raise ManifestError(f"{where}.requests", f"{len(listed)} of them, at most {MAX_REQUESTS}")
    found = tuple(_choice(item, f"{where}.requests[{at}]") for at, item in enumerate(listed))
    total = sum(max(request.count for request in choice) for choice in found)
    if total > MAX_COUNT:
        raise ManifestError(f"{where}.requests", f"{total} devices, at most {MAX_COUNT}")
    return found


def _choice(value: Any, where: str) -> tuple[Request, ...]:
    """Return the alternatives of a request, the best first."""
    request = mapping(value, where)
    name = text(request, "name", where)
    first = items(request, "firstAvailable", where)
    if not first:
        place = f"{where}.exactly"
        return (_request(mapping(request.get("exactly"), place), name, place),)
    if len(first) > MAX_ALTERNATIVES:
        said = f"{len(first)} of them, at most {MAX_ALTERNATIVES}"
        raise ManifestError(f"{where}.firstAvailable", said)
    found = []
    for at, item in enumerate(first):
        place = f"{where}.firstAvailable[{at}]"
        sub = mapping(item, place)
        found.append(_request(sub, f"{name}/{text(sub, 'name', place)}", place))
    return tuple(found)


def _request(exactly: Mapping[str, Any], name: str, where: str) -> Request:
    if exactly.get("capacity"):
        raise ManifestError(f"{where}.capacity", "not supported")
    mode = text(exactly, "allocationMode", where) or "ExactCount"
    if mode not in ("ExactCount", "All"):
        raise ManifestError(f"{where}.allocationMode", f"{mode} is not supported")
    count = exactly.get("count") or 1
    if type(count) is not int or not 1 <= count <= MAX_COUNT:
        raise ManifestError(f"{where}.count", f"1 to {MAX_COUNT}, found {count!r}")
    device_class = text(exactly, "deviceClassName", where)
    if not device_class:
        raise ManifestError(f"{where}.deviceClassName", "a class is needed")
    return Request(
        name,
        device_class,
        count,
        _selectors(exactly, where),
        takes_all=mode == "All",
        is_admin=bool(exactly.get("adminAccess")),
        tolerations=parse_tolerations(exactly.get("tolerations"), f"{where}.tolerations"),
    )


def _constraints(devices: Mapping[str, Any]) -> tuple[Constraint, ...]:
    where = "spec.devices.constraints"
    listed = items(devices, "constraints", "spec.devices")
    if len(listed) > MAX_REQUESTS:
        raise ManifestError(where, f"{len(listed)} of them, at most {MAX_REQUESTS}")
    found = []
    for at, item in enumerate(listed):
        constraint = mapping(item, f"{where}[{at}]")
        kinds = [key for key in constraint if key != "requests"]
        kind = kinds[0] if len(kinds) == 1 else "constraint"
        if kind not in ("matchAttribute", "distinctAttribute"):
            raise ManifestError(f"{where}[{at}].{kind}", "not supported")
        domain, _, name = text(constraint, kind, f"{where}[{at}]").rpartition("/")
        requests = tuple(str(each) for each in items(constraint, "requests", f"{where}[{at}]"))
        found.append(Constraint((domain, name), requests, kind == "distinctAttribute"))
    return tuple(found)


def _selectors(spec: Mapping[str, Any], where: str) -> tuple[str, ...]:
    found = []
    for at, item in enumerate(items(spec, "selectors", where)):
        place = f"{where}.selectors[{at}]"
        expression = text(inner(mapping(item, place), "cel", place), "expression", place)
        try:
            selector(expression)
        except SelectorUnsupportedError as error:
            raise ManifestError(f"{place}.cel.expression", str(error)) from error
        found.append(expression)
    return tuple(found)


def _config(spec: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(mapping(item, f"{where}.config") for item in items(spec, "config", where))


def _node_of(chosen: Mapping[str, Any]) -> str:
    """Return the one node that an allocation is for, "" where it is for others as well."""
    for term in chosen.get("nodeSelectorTerms") or ():
        fields, labels = term.get("matchFields") or (), term.get("matchExpressions") or ()
        for requirement in [*fields, *labels]:
            is_name = requirement.get("key") in ("metadata.name", "kubernetes.io/hostname")
            values: list[Any] = list(requirement.get("values") or ())
            if is_name and requirement.get("operator") == "In" and len(values) == 1:
                return str(values[0])
    return ""


def device_claims(raw: Mapping[str, Any]) -> DeviceClaims:
    """Return what a pod asks for in devices; NO_CLAIMS where that is nothing."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    made = {
        each.get("name"): each.get("resourceClaimName")
        for each in status.get("resourceClaimStatuses") or ()
    }
    claims = []
    for entry in spec.get("resourceClaims") or ():
        name, template = entry["name"], entry.get("resourceClaimTemplateName") or ""
        claim = made.get(name, "") if template else entry.get("resourceClaimName") or ""
        if claim is not None:  # None: there is nothing to be claimed
            claims.append(PodClaim(name, claim, template))
    extended = _extended(spec)
    if not claims and not extended:
        return NO_CLAIMS
    of_extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or ""
    return DeviceClaims(tuple(claims), extended, of_extended)


def _extended(spec: Mapping[str, Any]) -> tuple[tuple[str, int, str, int, int], ...]:
    found = []
    for at, container in enumerate(spec.get("containers") or ()):
        requests = (container.get("resources") or {}).get("requests") or {}
        named = sorted((name, value) for name, value in requests.items() if "/" in name)
        for place, (name, value) in enumerate(named):
            if str(value).isdigit() and int(value):
                found.append((str(container.get("name")), at, name, place, int(value)))
    return tuple(found)
