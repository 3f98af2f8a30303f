"""The devices of the cluster, node by node: which there are, which are taken, which are free.

Rule 1: a pool counts once all its slices of its highest generation are known; of another nothing
        is given. Older generations are not there.
Rule 2: free is what no allocation of a claim names, whoever wrote it, less what was decided here
        and is not written yet.
Rule 3: the core counts devices as a resource of the node. One that a claim has which counts as
        something else, or as nothing, is taken off what there is of each type that it is of.
Rule 4: a selector that has no answer for a device of a node leaves nothing of its type there.
Rule 5: of devices that share counters, or are shared, so many count as can be given one after the
        other, those first that take least.
Source: docs/kubernetes.md#devices. Pure: no I/O.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.shim_adapter.backends.kubernetes.claim_objects import (
    CLASS_TYPE,
    EVERYWHERE,
    IMPLICIT,
    Claim,
    DeviceClass,
    DeviceId,
    Key,
    Published,
    Reach,
    Request,
    Results,
    Slice,
    TaintRule,
)
from services.shim_adapter.backends.kubernetes.device_capacity import Consumed, Counter
from services.shim_adapter.backends.kubernetes.device_search import MAX_STEPS, Room, Search
from services.shim_adapter.translation.device_selectors import Device, SelectorError, selects
from shared.messages.selectors import term_matches, tolerates

JOINT_STEPS = 200  # of a search for one more claim like those that fit, by other choices for all
MAX_LIKE = 16  # equal claims that a node is tried for at once; more are tried when these are bound
MAX_RANKED = 200  # nodes ranked by the alternatives of a claim; others are not preferred
MAX_ADMINS = 10_000  # claims with admin access on a node; the next waits
Pool = tuple[str, str]  # driver and name
MAX_TYPES = 1_000  # different requests that are counted; a pod with another one waits


@dataclass(slots=True)
class _Taken:
    """A claim's devices, and which types the core counts them as (none: as nothing)."""

    devices: tuple[DeviceId, ...]
    consumed: tuple[Consumed, ...]  # of each
    types: frozenset[str] = frozenset()
    is_written: bool = False


@dataclass(slots=True)
class Devices:
    """``changed`` are the nodes of which there may be other numbers of devices now."""

    classes: dict[str, DeviceClass] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    _slices: dict[str, Slice] = field(default_factory=dict)
    _pools: dict[Pool, dict[str, None]] = field(default_factory=dict)
    _incomplete: dict[Pool, None] = field(default_factory=dict)
    _given: dict[Pool, dict[DeviceId, None]] = field(default_factory=dict)  # by pool
    _rules: dict[str, TaintRule] = field(default_factory=dict)
    _labels: dict[str, Mapping[str, str]] = field(default_factory=dict)  # of nodes
    _on: dict[str, dict[DeviceId, Published]] = field(default_factory=dict)
    _nodes_of: dict[DeviceId, tuple[str, ...]] = field(default_factory=dict)
    _of_several: dict[DeviceId, Published] = field(default_factory=dict)  # nodes
    _counters: dict[Pool, Mapping[Counter, int]] = field(default_factory=dict)
    _taken: dict[Key, _Taken] = field(default_factory=dict)
    _by: dict[DeviceId, dict[Key, None]] = field(default_factory=dict)
    _types: dict[str, Request] = field(default_factory=dict)  # that are counted
    _joints: dict[str, Claim] = field(default_factory=dict)  # the same, of claims that are tried

    # --- what there is --------------------------------------------------------------------------

    def see_slice(self, name: str, found: Slice | None) -> None:
        """Take in that a slice was published, has changed or gone (None)."""
        known = self._slices.pop(name, None)
        pools: dict[Pool, None] = {}
        if known is not None:
            pools[known.driver, known.pool] = None
            self._pools[known.driver, known.pool].pop(name)
        if found is not None:
            self._slices[name] = found
            pools[found.driver, found.pool] = None
            self._pools.setdefault((found.driver, found.pool), {})[name] = None
        for pool in pools:
            self._read_pool(pool)

    def _read_pool(self, pool: Pool) -> None:
        for known in self._given.pop(pool, ()):
            self._drop(known)
        self._incomplete.pop(pool, None)
        self._counters.pop(pool, None)
        if not self._pools[pool]:
            del self._pools[pool]
            return
        whole = self._whole(pool)
        if not whole:
            self._incomplete[pool] = None
        counters: dict[Counter, int] = {}
        for found in whole:
            counters |= found.counters
            for name, published in found.devices:
                device = (*pool, name)
                self._given.setdefault(pool, {})[device] = None
                self._add(device, self._with_taints(device, published))
        if counters:
            self._counters[pool] = counters

    def _add(self, device: DeviceId, published: Published) -> None:
        reach = published.reach
        nodes = (reach.node,) if reach.node else self._matching(reach)
        if not reach.node:
            self._of_several[device] = published
        self._nodes_of[device] = nodes
        for node in nodes:
            self._on.setdefault(node, {})[device] = published
            self.changed[node] = None

    def _drop(self, device: DeviceId) -> None:
        self._of_several.pop(device, None)
        for node in self._nodes_of.pop(device):
            del self._on[node][device]
            self.changed[node] = None

    def _matching(self, reach: Reach) -> tuple[str, ...]:
        return tuple(
            name for name, labels in self._labels.items()
            if any(term_matches(term, name, labels) for term in reach.terms)
        )  # fmt: skip

    def see_node(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Take in a node's labels, by which devices of several nodes reach it; None: it is gone."""
        before = self._labels.pop(name, None)
        if labels is not None:
            self._labels[name] = dict(labels)
        if not self._of_several or before == labels:
            return
        for device, published in list(self._of_several.items()):
            terms = published.reach.terms
            is_in = labels is not None and any(term_matches(each, name, labels) for each in terms)
            if is_in != (name in self._nodes_of[device]):
                self._drop(device)
                self._add(device, published)

    def see_taint(self, name: str, rule: TaintRule | None) -> None:
        """Take in that a rule of taints was made, has changed or gone (None)."""
        known = self._rules.pop(name, None)
        if rule is not None:
            self._rules[name] = rule
        for pool in list(self._pools):
            rules = [each for each in (known, rule) if each is not None]
            if any(rule.driver in ("", pool[0]) and rule.pool in ("", pool[1]) for rule in rules):
                self._read_pool(pool)

    def _with_taints(self, device: DeviceId, published: Published) -> Published:
        more = tuple(rule.taint for rule in self._rules.values() if rule.is_about(device))
        if not more:
            return published
        taints = (*published.device.taints, *more)
        return replace(published, device=replace(published.device, taints=taints))

    def _whole(self, pool: Pool) -> list[Slice]:
        """Return the slices of a pool that count; [] until all of them are there."""
        slices = self._newest(pool)
        return slices if slices and len(slices) == slices[0].slices else []

    def _newest(self, pool: Pool) -> list[Slice]:
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
        return (found.device for on in self._on.values() for found in on.values())

    def _is_in(self, choice: tuple[Request, ...], pool: Pool) -> bool:
        slices = self._newest(pool)
        return self._has_one(choice, (each.device for found in slices for _, each in found.devices))

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
            found[kind] = self._count_of(node, kind, request)
        for kind, claim in self._joints.items():
            found[kind] = self._claims_as(node, kind) + self._how_often(node, claim)
        return {kind: count for kind, count in found.items() if count}

    def _count_of(self, node: str, kind: str, request: Request) -> int:
        """Return how many devices of a type there are, free or given to who counts as this type."""
        devices = self.devices_on(node)
        try:
            of_type = [each for each, found in devices.items() if self._is(request, found.device)]
        except SelectorError:
            return 0
        if all(devices[each].is_whole for each in of_type):
            return sum(self._given_as(each, kind) or each not in self._by for each in of_type)
        count, room = sum(self._given_as(each, kind) for each in of_type), self._room(node)
        for each in sorted(of_type, key=lambda each: (_weight(devices[each]), each)):
            takes = room.consumed(each, request)
            places = {} if takes is None else room.places(each, takes)
            for _ in range(MAX_LIKE if devices[each].policies is not None else 1):
                if not places or not room.fits(places):
                    break
                room.take(places)
                count += 1
        return count

    def _given_as(self, device: DeviceId, kind: str) -> int:
        """Return how often a device is given to a claim that counts as this type."""
        keys = self._by.get(device, ())
        taken = [self._taken[key] for key in keys]
        return sum(each.devices.count(device) for each in taken if kind in each.types)

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
        if claim is None or not devices:
            if known is not None and (known.is_written or claim is None):
                self.give_back(key)
            return
        if known is not None and known.devices == devices:
            known.is_written = True
            return
        types = frozenset() if known is None else known.types
        self.give_back(key)
        self._take(key, _Taken(devices, claim.consumed, types, is_written=True))

    def _take(self, key: Key, taken: _Taken) -> None:
        self._taken[key] = taken
        for device in taken.devices:
            self._by.setdefault(device, {})[key] = None
            self._touch(device)

    def _touch(self, device: DeviceId) -> None:
        """Count again where a device is, and where others of its pool are that share counters."""
        pool = device[:2]
        for each in self._given[pool] if pool in self._counters else (device,):
            self.changed |= dict.fromkeys(self._nodes_of.get(each, ()))

    def give_back(self, key: Key) -> None:
        """Have a claim have no devices any more; one that has none is no error."""
        taken = self._taken.pop(key, None)
        for device in () if taken is None else taken.devices:
            keys = self._by.get(device, {})
            keys.pop(key, None)
            if not keys:
                self._by.pop(device, None)
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
        keys = {key: None for each in self.devices_on(node) for key in self._by.get(each, ())}
        return sum(kind in self._taken[key].types for key in keys)

    def _how_often(self, node: str, claim: Claim) -> int:
        """Return how many claims like one would find devices on a node, up to MAX_LIKE.

        One after the other first, then all of them together, by other choices for those before.
        """
        if all(request.is_admin for request in claim.requests):
            return MAX_ADMINS if self.choose(node, [(("", ""), claim)]) is not None else 0
        room, count = self._room(node), 0
        try:
            while count < MAX_LIKE and self._search(node, [(("", ""), claim)], room) is not None:
                count += 1
            most = min(MAX_LIKE, self._most(node, claim)) if count else 0
            while count < most:
                like = [(("", str(at)), claim) for at in range(count + 1)]
                if self._search(node, like, self._room(node), JOINT_STEPS) is None:
                    break
                count += 1
        except SelectorError:
            pass
        return count

    def _most(self, node: str, claim: Claim) -> int:
        """Return a number of claims like one above which none would fit, by free devices alone."""
        room = self._room(node)
        free = {
            each: None
            for request in claim.requests
            for each in self.fitting(node, request)
            if room.fits(room.places(each, room.consumed(each, request) or ()))
        }
        if any(room.devices[each].policies is not None for each in free):
            return 0  # shares of one device, of which the first way is the best
        return len(free) // sum(min(each.count for each in choice) for choice in claim.choices)

    def choose(self, node: str, wanted: list[tuple[Key, Claim]]) -> dict[Key, Results] | None:
        """Return devices of a node for all that claims ask for, by claim.

        None: there are none that all of them want. Devices that fewer types want go first. Nothing
        is taken by that: ``reserve`` does.
        """
        try:
            search = self._search(node, wanted, self._room(node))
        except SelectorError:
            return None
        return None if search is None else search.by_claim()

    def _search(
        self, node: str, wanted: list[tuple[Key, Claim]], room: Room, max_steps: int = MAX_STEPS
    ) -> Search | None:
        """Search devices, and take them of the room; None: there are none. Raises SelectorError."""
        requests = [(key, claim, choice) for key, claim in wanted for choice in claim.choices]
        search = Search(room, requests, lambda each: self.fitting(node, each), max_steps)
        return search if search.run() is not None else None

    def _room(self, node: str) -> Room:
        """Return what there is on a node, less what is taken."""
        devices = self.devices_on(node)
        room = Room(devices)
        if not self._counters:
            self._take_of(room, devices)
            return room
        pools = {each[:2]: None for each, found in devices.items() if found.consumes}
        room.counters = {
            (pool, counter): milli
            for pool in pools
            for counter, milli in self._counters.get(pool, {}).items()
        }
        others = {each: None for pool in pools for each in self._given[pool]}
        room.devices = {**{each: self._found(each) for each in others}, **devices}
        self._take_of(room, room.devices)
        return room

    def _found(self, device: DeviceId) -> Published:
        nodes = self._nodes_of[device]
        return self._on[nodes[0]][device] if nodes else self._of_several[device]

    def _take_of(self, room: Room, devices: Mapping[DeviceId, Published]) -> None:
        for device in devices:
            for key in self._by.get(device, ()):
                taken = self._taken[key]
                for each, consumed in zip(taken.devices, taken.consumed, strict=True):
                    if each == device:
                        room.take(room.places(device, consumed))

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
                named = dict.fromkeys(result.request for result in chosen["", ""])
                score = sum(places.get(name, 0) for name in named)
                found.setdefault(score, []).append(node)
        return found

    def devices_on(self, node: str) -> Mapping[DeviceId, Published]:
        """Return the devices of a node that count, and those that every node reaches."""
        own, shared = self._on.get(node, {}), self._on.get(EVERYWHERE)
        return {**own, **shared} if shared else own

    def selector_of(self, devices: Iterable[DeviceId]) -> Mapping[str, Any] | None:
        """Return the selector of the nodes that reach some devices, {} for all; None: one does."""
        merged: dict[str, list[Any]] = {}
        for device in devices:
            nodes = self._nodes_of.get(device, ())
            several = self._of_several.get(device)
            if several is None and nodes != (EVERYWHERE,):
                return None
            for term in several.reach.selector["nodeSelectorTerms"] if several is not None else ():
                for key in ("matchExpressions", "matchFields"):
                    more = [each for each in term.get(key) or () if each not in merged.get(key, ())]
                    if more:
                        merged.setdefault(key, []).extend(more)
        return {"nodeSelectorTerms": [merged]} if merged else {}

    def domains_of(self, claim: Claim) -> dict[str, str]:
        """Return the device of several nodes that each node reaches for a claim, by node.

        Of several the first by name, whether it is free or not.
        """
        found: dict[str, str] = {}
        for device in sorted(self._of_several):
            published = self._of_several[device]
            if self._has_one(claim.requests, iter((published.device,))):
                for node in self._nodes_of[device]:
                    found.setdefault(node, device[2])
        return found

    def fitting(self, node: str, request: Request) -> list[DeviceId]:
        """Return the devices of a node that a request wants, taken or not. Raises SelectorError."""
        devices = self.devices_on(node)
        fit = [each for each, found in devices.items() if self._is(request, found.device)]
        return sorted(
            fit,
            key=lambda each: (self._wanted_by(devices[each].device), _weight(devices[each]), each),
        )

    def _wanted_by(self, device: Device) -> int:
        """Return by how many types a device is wanted."""
        return sum(self._may_be(request, device) for request in self._types.values())

    def reserve(self, key: Key, results: Results, types: frozenset[str]) -> None:
        """Take devices for a claim that is to be written, which the core counts as these types."""
        given = [result for result in results if not result.is_admin]
        devices = tuple(result.device for result in given)
        self._take(key, _Taken(devices, tuple(result.consumed for result in given), types))


def _weight(found: Published) -> int:
    """Return how much a device takes of what it shares with others."""
    return sum(found.consumes.values())
