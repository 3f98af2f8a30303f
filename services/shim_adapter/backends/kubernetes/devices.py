"""The devices of the cluster, node by node: which there are, which are taken, which are free.

Rule 1: a pool counts once all its slices of its highest generation are known; of another nothing
        is given. Older generations are not there.
Rule 2: free is what no allocation of a claim names, whoever wrote it, less what was decided here
        and is not written yet.
Rule 3: the core counts devices as a resource of the node. One that a claim has which counts as
        something else, or as nothing, is taken off what there is of each type that it is of.
Rule 4: a selector that has no answer for a device of a node leaves nothing of its type there.
Source: docs/kubernetes.md#devices. Pure: no I/O.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.shim_adapter.backends.kubernetes.claim_objects import (
    CLASS_TYPE,
    EVERYWHERE,
    IMPLICIT,
    Claim,
    Constraint,
    DeviceClass,
    DeviceId,
    Key,
    Request,
    Results,
    Slice,
)
from services.shim_adapter.translation.device_selectors import Device, SelectorError, selects
from shared.messages.selectors import tolerates

MAX_STEPS = 1_000  # of a search for devices that all requests of a pod want; then there are none
MAX_LIKE = 16  # claims like one that a node is tried for at once; more come when these have gone
MAX_RANKED = 200  # nodes that are ranked by alternatives of a claim; others are not preferred
MAX_ADMINS = 10_000  # claims for administrators that a node takes; the next waits
MAX_TYPES = 1_000  # different requests that are counted; a pod with another one waits


_NONE_USED: Mapping[DeviceId, None] = {}


@dataclass(slots=True)
class _Taken:
    """A claim's devices, and which types the core counts them as (none: as nothing)."""

    devices: tuple[DeviceId, ...]
    types: frozenset[str] = frozenset()
    is_written: bool = False


@dataclass(slots=True)
class Devices:
    """``changed`` are the nodes of which there may be other numbers of devices now."""

    classes: dict[str, DeviceClass] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    _slices: dict[str, Slice] = field(default_factory=dict)
    _pools: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    _incomplete: dict[tuple[str, str], None] = field(default_factory=dict)
    _given: dict[tuple[str, str], dict[DeviceId, None]] = field(default_factory=dict)  # by pool
    _on: dict[str, dict[DeviceId, Device]] = field(default_factory=dict)
    _node_of: dict[DeviceId, str] = field(default_factory=dict)
    _taken: dict[Key, _Taken] = field(default_factory=dict)
    _by: dict[DeviceId, Key] = field(default_factory=dict)
    _types: dict[str, Request] = field(default_factory=dict)  # that are counted
    _joints: dict[str, Claim] = field(default_factory=dict)  # the same, of claims that are tried

    # --- what there is --------------------------------------------------------------------------

    def see_slice(self, name: str, found: Slice | None) -> None:
        """Take in that a slice was published, has changed or gone (None)."""
        known = self._slices.pop(name, None)
        pools: dict[tuple[str, str], None] = {}
        if known is not None:
            pools[known.driver, known.pool] = None
            self._pools[known.driver, known.pool].pop(name)
        if found is not None:
            self._slices[name] = found
            pools[found.driver, found.pool] = None
            self._pools.setdefault((found.driver, found.pool), {})[name] = None
        for pool in pools:
            self._read_pool(pool)

    def _read_pool(self, pool: tuple[str, str]) -> None:
        for known in self._given.pop(pool, ()):
            node = self._node_of.pop(known)
            del self._on[node][known]
            self.changed[node] = None
        self._incomplete.pop(pool, None)
        if not self._pools[pool]:
            del self._pools[pool]
            return
        whole = self._whole(pool)
        if not whole:
            self._incomplete[pool] = None
        for found in whole:
            for name, device in found.devices:
                identity = (*pool, name)
                self._node_of[identity] = found.node
                self._given.setdefault(pool, {})[identity] = None
                self._on.setdefault(found.node, {})[identity] = device
                self.changed[found.node] = None

    def _whole(self, pool: tuple[str, str]) -> list[Slice]:
        """Return the slices of a pool that count; [] until all of them are there."""
        slices = self._newest(pool)
        return slices if slices and len(slices) == slices[0].slices else []

    def _newest(self, pool: tuple[str, str]) -> list[Slice]:
        slices = [self._slices[name] for name in self._pools[pool]]
        newest = max(found.generation for found in slices)
        return [found for found in slices if found.generation == newest]

    @property
    def has_incomplete(self) -> bool:
        """Return whether slices of a pool are missing."""
        return bool(self._incomplete)

    def incomplete_for(self, claim: Claim) -> str:
        """Return which pool is incomplete that alone has a device that is asked for.

        "": none is, or another pool has such devices.
        """
        for choice in claim.choices if self._incomplete else ():
            found = [pool for pool in sorted(self._incomplete) if self._is_in(choice, pool)]
            if found and not self._has_one(choice, self._all_on()):
                slices = self._newest(found[0])
                known = f"{len(slices)} of {slices[0].slices} slices"
                return f"pool {found[0][1]} of {found[0][0]} is incomplete ({known})"
        return ""

    def _all_on(self) -> Iterator[Device]:
        return (device for on in self._on.values() for device in on.values())

    def _is_in(self, choice: tuple[Request, ...], pool: tuple[str, str]) -> bool:
        slices = self._newest(pool)
        return self._has_one(choice, (device for found in slices for _, device in found.devices))

    def _has_one(self, choice: tuple[Request, ...], devices: Iterator[Device]) -> bool:
        """Return whether one of the devices is of an alternative."""
        return any(self._may_be(request, device) for device in devices for request in choice)

    def _may_be(self, request: Request, device: Device) -> bool:
        try:
            return self._is(request, device)
        except SelectorError:
            return False

    def see_class(self, name: str, found: DeviceClass | None) -> None:
        """Take in that a class was made, has changed or gone (None)."""
        if found is None:
            self.classes.pop(name, None)
        else:
            self.classes[name] = found
        self.changed |= dict.fromkeys(self._on)

    def class_of(self, resource: str) -> str:
        """Return the class that offers an extended resource, "" for none."""
        implicit = resource.removeprefix(IMPLICIT)
        if implicit != resource and implicit in self.classes:
            return implicit
        offers = [name for name, found in self.classes.items() if found.extended == resource]
        return min(offers, default="")

    def type_of(self, device_class: str) -> str:
        """Return the resource type that devices of a class are counted as."""
        found = self.classes.get(device_class)
        return (found.extended if found else "") or f"{CLASS_TYPE}{device_class}"

    def count(self, request: Request) -> bool:
        """Count what a request asks for from now on; False: too many different ones are."""
        for kind in request.types(self.type_of(request.device_class)):
            if kind in self._types:
                continue
            if len(self._types) >= MAX_TYPES:
                return False
            of_class = Request("", request.device_class)
            self._types[kind] = request if kind == request.narrow else of_class
            self.changed |= dict.fromkeys(self._on)
        return True

    def count_joint(self, claim: Claim) -> bool:
        """Count the nodes that have all that a claim asks for from now on; False: too many are."""
        kind = claim.joint
        if kind and kind not in self._joints:
            if len(self._joints) >= MAX_TYPES:
                return False
            self._joints[kind] = claim
            self.changed |= dict.fromkeys(self._on)
        return True

    def types_of(self, claim: Claim) -> dict[str, int]:
        """Return what a claim asks for as resource types.

        Of one whose requests cannot be counted by themselves it is one node that has it all.
        """
        found: dict[str, int] = {}
        for request in claim.requests if claim.counts else ():
            for kind, count in request.types(self.type_of(request.device_class)).items():
                found[kind] = found.get(kind, 0) + count
        return {**found, claim.joint: 1} if claim.joint else found

    def count_implicit(self, kind: str, device_class: str) -> None:
        """Count the devices of a class as an extended resource of another name as well."""
        if kind not in self._types and len(self._types) < MAX_TYPES:
            self._types[kind] = Request("", device_class)
            self.changed |= dict.fromkeys(self._on)

    def offered(self, node: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """Return how many devices of each type a node has for pods that ask for that.

        What a device plugin offers there stays the plugin's.
        """
        found: dict[str, int] = {}
        devices = self.devices_on(node)
        if not devices:
            return found
        for kind, request in self._types.items():
            if allocatable.get(kind):
                continue
            try:
                of_type = [each for each, device in devices.items() if self._is(request, device)]
            except SelectorError:
                continue
            found[kind] = sum(self._counts(each, kind) for each in of_type)
        for kind, claim in self._joints.items():
            found[kind] = self._claims_as(node, kind) + self._how_often(node, claim)
        return {kind: count for kind, count in found.items() if count}

    def _counts(self, device: DeviceId, kind: str) -> bool:
        """Return whether a device is free, or given to a claim that counts as this type."""
        key = self._by.get(device)
        return key is None or kind in self._taken[key].types

    def _is(self, request: Request, device: Device) -> bool:
        """Return whether a request wants a device. Raises SelectorError."""
        of_class = self.classes.get(request.device_class)
        if of_class is None:
            return False
        if not all(tolerates(request.tolerations, taint) for taint in device.taints):
            return False
        return all(selects(each, device) for each in (*of_class.selectors, *request.selectors))

    # --- what is taken --------------------------------------------------------------------------

    def see_claim(self, key: Key, claim: Claim | None) -> None:
        """Take in which devices a claim has now."""
        devices = claim.devices if claim is not None and claim.is_allocated else ()
        known = self._taken.get(key)
        if not devices:
            if known is not None and (known.is_written or claim is None):
                self.give_back(key)
            return
        if known is not None and known.devices == devices:
            known.is_written = True
            return
        types = frozenset() if known is None else known.types
        self.give_back(key)
        self._take(key, _Taken(devices, types, is_written=True))

    def _take(self, key: Key, taken: _Taken) -> None:
        self._taken[key] = taken
        for device in taken.devices:
            self._by[device] = key
            self._touch(device)

    def _touch(self, device: DeviceId) -> None:
        node = self._node_of.get(device)
        if node is not None:
            self.changed[node] = None

    def give_back(self, key: Key) -> None:
        """Have a claim have no devices any more; one that has none is no error."""
        taken = self._taken.pop(key, None)
        for device in () if taken is None else taken.devices:
            if self._by.get(device) == key:
                del self._by[device]
            self._touch(device)

    def counts_as(self, key: Key, types: frozenset[str]) -> None:
        """Say as what the core counts a claim's devices: what the pod asks for that has them."""
        taken = self._taken.get(key)
        if taken is not None and taken.types != types:
            taken.types = types
            for device in taken.devices:
                self._touch(device)

    def is_pending(self, key: Key) -> tuple[DeviceId, ...]:
        """Return the devices that a claim is to get, or has."""
        taken = self._taken.get(key)
        return () if taken is None else taken.devices

    def _claims_as(self, node: str, kind: str) -> int:
        """Return how many claims have devices of a node and count as a type."""
        keys = {self._by[each]: None for each in self.devices_on(node) if each in self._by}
        return sum(kind in self._taken[key].types for key in keys)

    def _how_often(self, node: str, claim: Claim) -> int:
        """Return how many claims like one would find devices on a node, up to MAX_LIKE."""
        if all(request.is_admin for request in claim.requests):
            return MAX_ADMINS if self.choose(node, [(("", ""), claim)]) is not None else 0
        used: dict[DeviceId, None] = {}
        for count in range(MAX_LIKE):
            found = self.choose(node, [(("", ""), claim)], used)
            if found is None:
                return count
            used |= {device: None for _, device, is_admin in found["", ""] if not is_admin}
        return MAX_LIKE

    def choose(
        self, node: str, wanted: list[tuple[Key, Claim]], used: Mapping[DeviceId, None] = _NONE_USED
    ) -> dict[Key, Results] | None:
        """Return devices of a node for all that claims ask for, by claim, but those ``used``.

        None: there are none that all of them want. Devices that fewer types want go first. Nothing
        is taken by that: ``reserve`` does.
        """
        requests = [(key, claim, choice) for key, claim in wanted for choice in claim.choices]
        try:
            given = _Search(self, node, dict(used), requests).run()
        except SelectorError:
            return None
        if given is None:
            return None
        found: dict[Key, list[tuple[str, DeviceId, bool]]] = {key: [] for key, _ in wanted}
        for key, request, device in given:
            found[key].append((request.name, device, request.is_admin))
        return {key: tuple(results) for key, results in found.items()}

    def ranked(self, claim: Claim) -> dict[int, list[str]]:
        """Return the nodes that have what a claim asks for, by how good their alternatives are.

        A claim without alternatives has none. The last alternative counts 1, each before it more.
        """
        found: dict[int, list[str]] = {}
        if all(len(choice) == 1 for choice in claim.choices):
            return found
        places = {
            request.name: len(choice) - at
            for choice in claim.choices
            for at, request in enumerate(choice)
            if len(choice) > 1
        }
        for node in sorted(node for node in self._on if node != EVERYWHERE)[:MAX_RANKED]:
            chosen = self.choose(node, [(("", ""), claim)])
            if chosen is not None:
                named = dict.fromkeys(name for name, _, _ in chosen["", ""])
                score = sum(places.get(name, 0) for name in named)
                found.setdefault(score, []).append(node)
        return found

    def devices_on(self, node: str) -> Mapping[DeviceId, Device]:
        """Return the devices of a node that count, and those that every node reaches."""
        own, shared = self._on.get(node, {}), self._on.get(EVERYWHERE)
        return {**own, **shared} if shared else own

    def is_local(self, device: DeviceId) -> bool:
        """Return whether a device is of one node."""
        return self._node_of.get(device) != EVERYWHERE

    def is_taken(self, device: DeviceId) -> bool:
        """Return whether a claim has a device."""
        return device in self._by

    def fitting(self, node: str, request: Request) -> list[DeviceId]:
        """Return the devices of a node that a request wants, taken or not. Raises SelectorError."""
        devices = self.devices_on(node)
        fit = [each for each, device in devices.items() if self._is(request, device)]
        return sorted(fit, key=lambda each: (self._wanted_by(devices[each]), each))

    def _wanted_by(self, device: Device) -> int:
        """Return by how many types a device is wanted."""
        count = 0
        for request in self._types.values():
            try:
                count += self._is(request, device)
            except SelectorError:
                continue
        return count

    def reserve(self, key: Key, devices: tuple[DeviceId, ...], types: frozenset[str]) -> None:
        """Take devices for a claim that is to be written, which the core counts as these types."""
        self._take(key, _Taken(devices, types))


@dataclass(slots=True)
class _Search:
    """A search for devices, depth first: the last choice is taken back where the next finds none.

    It ends after MAX_STEPS, with none.
    """

    devices: Devices
    node: str
    used: dict[DeviceId, None]
    requests: list[tuple[Key, Claim, tuple[Request, ...]]]
    given: list[tuple[Key, Request, DeviceId]] = field(default_factory=list)
    steps: int = 0

    def run(self) -> list[tuple[Key, Request, DeviceId]] | None:
        """Return a device for each that is asked for; None: there are none."""
        return self.given if self._choose(0) else None

    def _choose(self, at: int) -> bool:
        """Find devices for the request at a place, by its first alternative that works, and on."""
        if at == len(self.requests):
            return True
        return any(self._try(at, request) for request in self.requests[at][2])

    def _try(self, at: int, request: Request) -> bool:
        fit = self.devices.fitting(self.node, request)
        if not request.takes_all:
            free = [each for each in fit if request.is_admin or self._is_free(each)]
            return self._pick(at, request, free, request.count)
        if not fit or not (request.is_admin or all(self._is_free(each) for each in fit)):
            return False
        return self._pick(at, request, fit, len(fit))

    def _is_free(self, device: DeviceId) -> bool:
        return device not in self.used and not self.devices.is_taken(device)

    def _pick(self, at: int, request: Request, free: list[DeviceId], left: int) -> bool:
        """Give so many of the free devices to a request, and go on with the next one."""
        if not left:
            return self._choose(at + 1)
        key, claim, _ = self.requests[at]
        for place in range(len(free) - left + 1):
            self.steps += 1
            if self.steps > MAX_STEPS:
                return False
            device = free[place]
            if not self._holds(key, claim, request, device):
                continue
            self.given.append((key, request, device))
            if not request.is_admin:
                self.used[device] = None
            if self._pick(at, request, free[place + 1 :], left - 1):
                return True
            self.given.pop()
            if not request.is_admin:
                del self.used[device]
        return False

    def _holds(self, key: Key, claim: Claim, request: Request, device: DeviceId) -> bool:
        """Return whether a device may be beside those that the claim's constraints are about."""
        return all(
            self._agrees(key, constraint, device)
            for constraint in claim.constraints
            if constraint.is_about(request.name)
        )

    def _agrees(self, key: Key, constraint: Constraint, device: DeviceId) -> bool:
        on = self.devices.devices_on(self.node)
        value = on[device].attributes.get(constraint.attribute)
        if value is None:
            return False
        for other_key, request, other in self.given:
            if other_key != key or not constraint.is_about(request.name):
                continue
            known = on[other].attributes.get(constraint.attribute)
            is_same = type(known) is type(value) and known == value
            if is_same is constraint.differ:
                return False
        return True
