"""Objects of dynamic resource allocation: slices of devices, classes, claims.

An unsupported field makes the object unusable, and is reported to the pods that need it; nothing is
guessed. Source: resource.k8s.io/v1. Pure: no I/O.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from services.shim_adapter.backends.kubernetes.device_capacity import (
    Consumed,
    Counter,
    Policy,
    Qualified,
    counters_of,
    policy_of,
    quantity_text,
)
from services.shim_adapter.translation.constraints import parse_node_selector, parse_tolerations
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
from shared.messages.constraints import NodeTerm, Taint, Toleration
from shared.model.ids import derived_id, derived_suffix

MAX_DEVICES = 128  # devices in a slice, as in the API server; of a larger slice none counts
MAX_REQUESTS = 32  # requests of a claim, as there; one with more is refused
MAX_RESERVED = 256  # pods that share a claim, as there; the next pod waits
MAX_ALTERNATIVES = 8  # alternatives of a request, as there; a claim with more is refused
MAX_COUNT = 32  # devices of a claim, as there; one with more is refused
EVERYWHERE = "*"  # the node of devices that every node reaches
CLASS_TYPE = "deviceclass/"  # before a class: the resource type of its devices
IMPLICIT = "deviceclass.resource.kubernetes.io/"  # before a class: an extended resource of it
NO_NODE = NodeTerm()  # which matches nothing
Key = tuple[str, str]  # namespace and name
DeviceId = tuple[str, str, str]  # driver, pool and name


class Result(NamedTuple):
    """A device allocated for a request; ``consumed`` is the consumed capacity of a shared one."""

    request: str
    device: DeviceId
    is_admin: bool = False
    consumed: Consumed = ()


Results = tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes that reach a device: one, all of them (EVERYWHERE), or those of a selector."""

    node: str = ""
    terms: tuple[NodeTerm, ...] = ()
    selector: Mapping[str, Any] = field(default_factory=dict)  # as it stands in the slice


@dataclass(frozen=True, slots=True)
class Published:
    """A device as published in its slice. ``policies`` are those of a shared one, by capacity."""

    device: Device
    reach: Reach
    consumes: Mapping[Counter, int] = field(default_factory=dict)
    policies: Mapping[Qualified, Policy] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is allocated to one claim only, and uses no shared counters."""
        return self.policies is None and not self.consumes


@dataclass(frozen=True, slots=True)
class Slice:
    """A ResourceSlice: devices, or their shared counters, of one generation of a pool."""

    driver: str
    pool: str
    generation: int
    slices: int
    devices: tuple[tuple[str, Published], ...] = ()
    counters: Mapping[Counter, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: a taint of all devices of a driver, pool and name ("": any)."""

    taint: Taint
    driver: str = ""
    pool: str = ""
    name: str = ""

    def is_about(self, device: DeviceId) -> bool:
        """Whether the rule applies to a device."""
        wanted = (self.driver, self.pool, self.name)
        return all(own in ("", name) for own, name in zip(wanted, device, strict=True))


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass: its selectors, extended resource, config, and when it was made (RFC 3339)."""

    selectors: tuple[str, ...] = ()
    extended: str = ""
    config: tuple[Mapping[str, Any], ...] = ()
    made: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for ``count`` devices of a class that match all ``selectors``.

    ``takes_all``: every matching device of the node, at least one. ``is_admin``: it ignores
    allocations of others, and allocates none. ``name`` is `main/sub` for an alternative.
    """

    name: str
    device_class: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    takes_all: bool = False
    is_admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()  # how much of which, as it is named

    @property
    def is_plain(self) -> bool:
        """Whether the matching devices of a node can simply be counted."""
        return not (self.takes_all or self.is_admin or self.tolerations or self.capacity)

    def types(self, extended: str) -> dict[str, int]:
        """Return the request as resource types: of its class, and of its own selectors.

        A class with an extended resource counts as that.
        """
        found = {extended or f"{CLASS_TYPE}{self.device_class}": self.count}
        if self.selectors:
            found[self.narrow] = self.count
        return found

    @property
    def narrow(self) -> str:
        """The resource type of devices that match its own selectors."""
        digest = derived_suffix("\n".join(self.selectors), 8)
        return f"{CLASS_TYPE}{self.device_class[:54]}.{digest}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on an attribute of several devices: equal values, or all ``differ``.

    ``requests`` are the names of its requests, () for all of the claim.
    """

    attribute: tuple[str, str]
    requests: tuple[str, ...] = ()
    differ: bool = False

    def is_about(self, request: str) -> bool:
        """Whether it applies to a request; a main name includes its alternatives."""
        named = request in self.requests or request.partition("/")[0] in self.requests
        return named or not self.requests


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim. ``choices`` are its requests, each a list of alternatives.

    ``wrong`` is an unsupported field; ``node`` is where it is allocated, ``terms`` are the nodes
    that reach its devices if these are several ((): all). ``reserved`` are uids. ``owner`` is the
    pod that it was created for ("": created by a user).
    """

    uid: str
    choices: tuple[tuple[Request, ...], ...] = ()
    constraints: tuple[Constraint, ...] = ()
    wrong: str = ""
    config: tuple[Mapping[str, Any], ...] = ()
    owner: str = ""
    is_allocated: bool = False
    node: str = ""
    terms: tuple[NodeTerm, ...] = ()
    devices: tuple[DeviceId, ...] = ()
    consumed: tuple[Consumed, ...] = ()  # of each device
    reserved: tuple[str, ...] = ()
    is_going: bool = False
    is_extended: bool = False

    @property
    def requests(self) -> tuple[Request, ...]:
        """All its requests, including alternatives."""
        return tuple(request for choice in self.choices for request in choice)

    @property
    def counts(self) -> bool:
        """Whether its devices can be counted by class, without a search on each node."""
        return all(len(choice) == 1 and choice[0].is_plain for choice in self.choices)

    @property
    def joint(self) -> str:
        """The resource type of nodes that can satisfy the whole claim ("": not needed).

        A node's amount is the number of such claims that can be satisfied there.
        """
        if self.counts and not self.constraints and len(self.choices) <= 1:
            return ""
        return f"{CLASS_TYPE}claim.{derived_suffix(repr((self.choices, self.constraints)), 8)}"


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of a pod: its entry's name, and the claim's ("": not created yet)."""

    entry: str
    claim: str
    template: str = ""


@dataclass(frozen=True, slots=True)
class DeviceClaims:
    """The devices that a pod asks for.

    ``extended`` are its extended resources: the container's name and index, the resource, its index
    in the container, and the count.
    """

    claims: tuple[PodClaim, ...] = ()
    extended: tuple[tuple[str, int, str, int, int], ...] = ()
    made: str = ""  # the claim that was made for its extended resources


NO_CLAIMS = DeviceClaims()


@dataclass(frozen=True, slots=True)
class GroupClaims:
    """The claims of a PodGroup: its name and uid, and by entry the named object and its claim."""

    name: str
    uid: str
    claims: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimToWrite:
    """What to write at a claim before a pod is bound.

    ``body`` is that of a claim to create first (None: it exists), ``containers`` the pod's
    references to it. ``selector`` selects the nodes that reach its devices if these are several, {}
    for all; None: its node only. ``tolerations`` are those of its requests.
    """

    namespace: str
    name: str
    uid: str
    node: str
    results: Results
    config: tuple[Mapping[str, Any], ...]
    consumer: Mapping[str, str]
    selector: Mapping[str, Any] | None = None
    body: Mapping[str, Any] | None = None
    containers: tuple[Mapping[str, str], ...] = ()
    tolerations: Mapping[str, tuple[Toleration, ...]] = field(default_factory=dict)

    def allocation(self) -> dict[str, Any]:
        """Return the claim's allocation: its devices and nodes."""
        devices = {
            "results": [self._written(at, result) for at, result in enumerate(self.results)],
            "config": list(self.config),
        }
        if self.selector is not None:
            where = {"nodeSelector": self.selector} if self.selector else {}
            return {"devices": devices, **where}
        on_node = {"key": "metadata.name", "operator": "In", "values": [self.node]}
        return {
            "devices": devices,
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
        }

    def _written(self, at: int, result: Result) -> dict[str, Any]:
        driver, pool, device = result.device
        found: dict[str, Any] = {
            "request": result.request, "driver": driver, "pool": pool, "device": device,
        }  # fmt: skip
        if result.is_admin:
            found["adminAccess"] = True
        tolerations = self.tolerations.get(result.request, ())
        if tolerations:
            found["tolerations"] = [
                {key: text for key, text in asdict(each).items() if text} for each in tolerations
            ]
        if result.consumed:
            found["shareID"] = str(UUID(derived_id(self.uid or self.name, at)))
            found["consumedCapacity"] = {
                name if domain == driver else f"{domain}/{name}": quantity_text(milli)
                for (domain, name), milli in result.consumed
            }
        return found


# --- reading ------------------------------------------------------------------------------------


def slice_of(raw: Mapping[str, Any]) -> Slice:
    """Convert a ResourceSlice. Raises ManifestError with the field."""
    spec = mapping(raw.get("spec"), "spec")
    pool = mapping(spec.get("pool"), "spec.pool")
    found = Slice(
        text(spec, "driver"),
        text(pool, "name", "spec.pool"),
        int(pool.get("generation") or 0),
        int(pool.get("resourceSliceCount") or 1),
        counters=counters_of(spec, "sharedCounters", "name"),
    )
    listed = items(spec, "devices")
    if len(listed) > MAX_DEVICES:
        raise ManifestError("spec.devices", f"{len(listed)} of them, at most {MAX_DEVICES}")
    whole = _reach(spec, "spec")
    devices = []
    for at, item in enumerate(listed):
        where = f"spec.devices[{at}]"
        device = mapping(item, where)
        body = mapping(device.get("basic") or device, where)
        reach = _reach(body, where) if spec.get("perDeviceNodeSelection") else whole
        published = _published(found.driver, body, reach)
        if published is not None:
            devices.append((text(device, "name", where), published))
    return replace(found, devices=tuple(devices))


_CONDITIONS = ("bindingConditions", "bindsToNode", "bindingFailureConditions")


def _reach(spec: Mapping[str, Any], where: str) -> Reach:
    if spec.get("allNodes"):
        return Reach(EVERYWHERE)
    selector = spec.get("nodeSelector")
    if selector:
        terms = parse_node_selector(selector, f"{where}.nodeSelector")
        if len(terms) != 1:
            raise ManifestError(f"{where}.nodeSelector", f"one term, found {len(terms)}")
        return Reach("", terms, selector)
    return Reach(text(spec, "nodeName", where))


def _published(driver: str, body: Mapping[str, Any], reach: Reach) -> Published | None:
    """Convert a device; None if it has binding conditions, or is on no node."""
    if any(body.get(key) for key in _CONDITIONS) or not (reach.node or reach.terms):
        return None
    consumes = counters_of(body, "consumesCounters", "counterSet")
    device = _device(driver, body)
    if not body.get("allowMultipleAllocations"):
        return Published(device, reach, consumes)
    if consumes:
        return None  # of which each share would take the counters
    listed = mapping(body.get("capacity") or {}, "capacity")
    policies = {
        qualified(driver, key): policy_of(
            value.get("requestPolicy") if isinstance(value, dict) else None, f"capacity.{key}"
        )
        for key, value in listed.items()
    }
    return Published(device, reach, {}, policies)


def taint_rule_of(raw: Mapping[str, Any]) -> TaintRule | None:
    """Convert a DeviceTaintRule; None without an effect on scheduling. Raises ManifestError."""
    spec = mapping(raw.get("spec"), "spec")
    taint = mapping(spec.get("taint"), "spec.taint")
    if taint.get("effect") not in EFFECTS:
        return None
    chosen = mapping(spec.get("deviceSelector") or {}, "spec.deviceSelector")
    for key in ("deviceClassName", "selectors"):  # of an alpha version
        if chosen.get(key):
            raise ManifestError(f"spec.deviceSelector.{key}", "not supported")
    return TaintRule(_taint(taint), *(text(chosen, key) for key in ("driver", "pool", "device")))


EFFECTS = ("NoSchedule", "NoExecute")


def _taint(raw: Mapping[str, Any]) -> Taint:
    return Taint(str(raw.get("key")), str(raw.get("value") or ""), str(raw.get("effect")))


def _device(driver: str, body: Mapping[str, Any]) -> Device:
    attributes = {}
    for key, value in mapping(body.get("attributes") or {}, "attributes").items():
        read = _attribute(mapping(value, key))
        if read is not None:
            attributes[qualified(driver, key)] = read
    capacity = {}
    for key, value in mapping(body.get("capacity") or {}, "capacity").items():
        found = amount(value.get("value") if isinstance(value, dict) else value)
        if found is not None:
            capacity[qualified(driver, key)] = found
    taints = tuple(
        _taint(each)
        for each in items(body, "taints", "spec.devices")
        if mapping(each, "taints").get("effect") in EFFECTS
    )
    return Device(driver, attributes, capacity, taints)


def _attribute(value: Mapping[str, Any]) -> Any:
    for kind in ("string", "bool", "int"):
        if kind in value:
            return value[kind]
    return version(str(value.get("version") or ""))


def qualified(driver: str, key: str) -> Qualified:
    """Return domain and name of an attribute or capacity; the default domain is the driver."""
    domain, slash, name = key.partition("/")
    return (domain, name) if slash else (driver, key)


def class_of(raw: Mapping[str, Any]) -> DeviceClass:
    """Convert a DeviceClass. Raises ManifestError with the field."""
    spec = mapping(raw.get("spec") or {}, "spec")
    made = str((raw.get("metadata") or {}).get("creationTimestamp") or "")
    extended = text(spec, "extendedResourceName")
    return DeviceClass(_selectors(spec, "spec"), extended, _config(spec, "spec"), made)


def claim_of(raw: Mapping[str, Any]) -> Claim:
    """Convert a ResourceClaim; ``wrong`` names an unsupported field."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    annotations = metadata.get("annotations") or {}
    found = Claim(
        str(metadata.get("uid") or ""),
        owner=str(owners[0].get("uid")) if owners and owners[0].get("kind") == "Pod" else "",
        is_allocated=bool(status.get("allocation")),
        **_nodes_of(allocation.get("nodeSelector") or {}),
        devices=tuple(
            (str(each["driver"]), str(each["pool"]), str(each["device"]))
            for each in results
            if not each.get("adminAccess")
        ),
        consumed=tuple(_consumed(each) for each in results if not each.get("adminAccess")),
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
        capacity=_asked(exactly, f"{where}.capacity"),
    )


def _asked(exactly: Mapping[str, Any], where: str) -> tuple[tuple[str, int], ...]:
    """Return how much of each capacity a request needs of a device."""
    capacity = mapping(exactly.get("capacity") or {}, where)
    unknown = [key for key in capacity if key != "requests"]
    if unknown:
        raise ManifestError(f"{where}.{unknown[0]}", "not supported")
    found = []
    for key, value in sorted(mapping(capacity.get("requests") or {}, f"{where}.requests").items()):
        read = amount(value)
        if read is None or read.milli <= 0:
            raise ManifestError(f"{where}.requests.{key}", f"a quantity, found {value!r}")
        found.append((key, read.milli))
    return tuple(found)


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


def _consumed(result: Mapping[str, Any]) -> Consumed:
    found = []
    for key, value in (result.get("consumedCapacity") or {}).items():
        read = amount(value)
        if read is not None:
            found.append((qualified(str(result["driver"]), key), read.milli))
    return tuple(found)


def _nodes_of(selector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nodes of an allocation: one by name, or terms."""
    node = _node_of(selector)
    try:
        return {
            "node": node,
            "terms": () if node else parse_node_selector(selector, "nodeSelector"),
        }
    except ManifestError:
        return {"node": "", "terms": (NO_NODE,)}


def _node_of(chosen: Mapping[str, Any]) -> str:
    """Return the single node of an allocation, "" if there are several."""
    for term in chosen.get("nodeSelectorTerms") or ():
        fields, labels = term.get("matchFields") or (), term.get("matchExpressions") or ()
        for requirement in [*fields, *labels]:
            is_name = requirement.get("key") in ("metadata.name", "kubernetes.io/hostname")
            values: list[Any] = list(requirement.get("values") or ())
            if is_name and requirement.get("operator") == "In" and len(values) == 1:
                return str(values[0])
    return ""


def device_claims(raw: Mapping[str, Any]) -> DeviceClaims:
    """Return the devices that a pod asks for; NO_CLAIMS if none."""
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
