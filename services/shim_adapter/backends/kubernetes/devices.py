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
    IMPLICIT,
    Claim,
    DeviceClass,
    DeviceId,
    Key,
    Request,
    Slice,
)
from services.shim_adapter.translation.device_selectors import Device, SelectorError, selects

MAX_STEPS = 1_000  # of a search for devices that all requests of a pod want; then there are none
MAX_TYPES = 1_000  # different requests that are counted; a pod with another one waits


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
    _on: dict[str, dict[DeviceId, Device]] = field(default_factory=dict)
    _node_of: dict[DeviceId, str] = field(default_factory=dict)
    _taken: dict[Key, _Taken] = field(default_factory=dict)
    _by: dict[DeviceId, Key] = field(default_factory=dict)
    _types: dict[str, Request] = field(default_factory=dict)  # that are counted

    # --- what there is --------------------------------------------------------------------------

    def see_slice(self, name: str, found: Slice | None) -> None:
        """Take in that a slice was published, has changed or gone (None)."""
        known = self._slices.pop(name, None)
        pools = {}
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
        for device in [device for device in self._node_of if device[:2] == pool]:
            node = self._node_of.pop(device)
            del self._on[node][device]
            self.changed[node] = None
        if not self._pools[pool]:
            del self._pools[pool]
            return
        for found in self._whole(pool):
            for name, device in found.devices:
                identity = (*pool, name)
                self._node_of[identity] = found.node
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

    def incomplete(self) -> Iterator[str]:
        """Yield a sentence on each pool of which slices are missing."""
        for driver, name in sorted(self._pools):
            slices = self._newest((driver, name))
            if len(slices) != slices[0].slices:
                known = f"{len(slices)} of {slices[0].slices} slices"
                yield f"pool {name} of {driver} is incomplete ({known})"

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
        devices = self._on.get(node)
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

    def choose(
        self, node: str, wanted: list[tuple[Key, Request]]
    ) -> dict[Key, list[tuple[str, DeviceId]]] | None:
        """Return devices of a node for all requests, by claim with the request's name.

        None: there are none that all of them want. Devices that fewer types want go first. Nothing
        is taken by that: ``reserve`` does.
        """
        free = {
            each: device
            for each, device in self._on.get(node, {}).items()
            if each not in self._by
        }  # fmt: skip
        options: list[tuple[Key, str, list[DeviceId]]] = []
        for key, request in wanted:
            try:
                fit = [each for each, device in free.items() if self._is(request, device)]
            except SelectorError:
                return None
            fit.sort(key=lambda each: (self._wanted_by(free[each]), each))
            options += [(key, request.name, fit)] * request.count
        order = sorted(range(len(options)), key=lambda at: (len(options[at][2]), at))
        chosen = _search([options[at][2] for at in order])
        if chosen is None:
            return None
        given = dict(zip(order, chosen, strict=True))
        found: dict[Key, list[tuple[str, DeviceId]]] = {key: [] for key, _ in wanted}
        for at, (key, name, _) in enumerate(options):
            found[key].append((name, given[at]))
        return found

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


def _search(options: list[list[DeviceId]]) -> list[DeviceId] | None:
    """Return one device of each list, no device twice; None: there is none, or MAX_STEPS were made.

    Depth first; the last choice is taken back where nothing is left for the next.
    """
    chosen: list[DeviceId] = []
    ats = [0]
    used: dict[DeviceId, None] = {}
    for _ in range(MAX_STEPS):
        depth = len(chosen)
        if depth == len(options):
            return chosen
        found = next(
            (at for at in range(ats[depth], len(options[depth])) if options[depth][at] not in used),
            -1,
        )
        if found >= 0:
            ats[depth] = found + 1
            ats.append(0)
            chosen.append(options[depth][found])
            used[chosen[-1]] = None
            continue
        if not chosen:
            return None
        ats.pop()
        del used[chosen.pop()]
    return None
