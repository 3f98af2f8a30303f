"""The devices of the cluster, by node: which exist, which are allocated, which are free.

Rule 1: ``device_pools.py`` knows the devices and the nodes that reach them; ``device_classes.py``
        matches devices to requests.
Rule 2: free devices are those in no claim's allocation, whoever wrote it, nor in a decision that is
        not written yet.
Rule 3: the core counts devices as a resource of the node. A device allocated to a claim that counts
        as another type, or as none, is subtracted from each type it matches.
Rule 4: if a selector fails for a device of a node, the node has none of its type.
Rule 5: of devices that share counters, or are shared, as many count as can be allocated one after
        the other, the smallest first.
Source: docs/kubernetes.md#devices. Pure: no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.shim_adapter.backends.kubernetes.claim_objects import (
    EVERYWHERE,
    Claim,
    DeviceClass,
    DeviceId,
    Key,
    Published,
    Request,
    Results,
)
from services.shim_adapter.backends.kubernetes.device_capacity import Consumed
from services.shim_adapter.backends.kubernetes.device_classes import DeviceClasses
from services.shim_adapter.backends.kubernetes.device_pools import DevicePools
from services.shim_adapter.backends.kubernetes.device_search import MAX_STEPS, Room, Search
from services.shim_adapter.translation.device_selectors import Device, SelectorError

JOINT_STEPS = 200  # of a search for one more claim like those that fit, by other choices for all
MAX_LIKE = 16  # claims like one that a node is tried for at once; more come when these have gone
MAX_RANKED = 200  # nodes that are ranked by alternatives of a claim; others are not preferred
MAX_ADMINS = 10_000  # claims for administrators that a node takes; the next waits
MAX_TYPES = 1_000  # different requests that are counted; a pod with another one waits


@dataclass(slots=True)
class _Taken:
    """A claim's devices, and the types as which the core counts them (none: not counted)."""

    devices: tuple[DeviceId, ...]
    consumed: tuple[Consumed, ...]  # of each
    types: frozenset[str] = frozenset()
    is_written: bool = False


@dataclass(slots=True)
class Devices:
    """The counted types of the devices in ``pools``, and the allocations."""

    pools: DevicePools = field(default_factory=DevicePools)
    classes: DeviceClasses = field(default_factory=DeviceClasses)
    _taken: dict[Key, _Taken] = field(default_factory=dict)
    _by: dict[DeviceId, dict[Key, None]] = field(default_factory=dict)
    _types: dict[str, Request] = field(default_factory=dict)  # that are counted
    _joints: dict[str, Claim] = field(default_factory=dict)  # the same, of claims that are tried

    def see_class(self, name: str, found: DeviceClass | None) -> None:
        """Add, update or remove (None) a class, and count extended resources by who offers them."""
        self.classes.see(name, found)
        for kind in self._types:
            offers = self.classes.class_of(kind)
            if offers:
                self._types[kind] = Request("", offers)
        self.pools.touch_all()

    # --- what is counted ------------------------------------------------------------------------

    def incomplete_for(self, claim: Claim) -> str:
        """Return the incomplete pool that alone has devices for a claim.

        "" if there is none, or another pool has such devices.
        """
        if not self.pools.has_incomplete:
            return ""
        for choice in claim.choices:
            for pool, slices in self.pools.incomplete():
                devices = (each.device for found in slices for _, each in found.devices)
                if self.classes.want_any(choice, devices):
                    if not self.classes.want_any(choice, self.pools.all()):
                        known = f"{len(slices)} of {slices[0].slices} slices"
                        return f"pool {pool[1]} of {pool[0]} is incomplete ({known})"
                    break
        return ""

    def count(self, request: Request) -> bool:
        """Count the type of a request from now on; return False if there are too many types."""
        for kind in request.types(self.classes.type_of(request.device_class)):
            if kind in self._types:
                continue
            if len(self._types) >= MAX_TYPES:
                return False
            of_class = Request("", request.device_class)
            self._types[kind] = request if kind == request.narrow else of_class
            self.pools.touch_all()
        return True

    def count_joint(self, claim: Claim) -> bool:
        """Count the nodes that satisfy the whole claim from now on; False: too many types."""
        kind = claim.joint
        if kind and kind not in self._joints:
            if len(self._joints) >= MAX_TYPES:
                return False
            self._joints[kind] = claim
            self.pools.touch_all()
        return True

    def types_of(self, claim: Claim) -> dict[str, int]:
        """Return a claim's requests as resource types.

        A claim whose requests cannot be counted separately is one of its joint type.
        """
        found: dict[str, int] = {}
        for request in claim.requests if claim.counts else ():
            for kind, count in request.types(self.classes.type_of(request.device_class)).items():
                found[kind] = found.get(kind, 0) + count
        return {**found, claim.joint: 1} if claim.joint else found

    def count_implicit(self, kind: str, device_class: str) -> None:
        """Count the devices of a class as another extended resource, too."""
        if kind not in self._types and len(self._types) < MAX_TYPES:
            self._types[kind] = Request("", device_class)
            self.pools.touch_all()

    def offered(self, node: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """Return how many devices of each counted type a node has in total.

        Resources of a device plugin on the node stay the plugin's.
        """
        found: dict[str, int] = {}
        devices = self.pools.on(node)
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
        """Return the devices of a type on a node that are free or allocated as this type."""
        devices = self.pools.on(node)
        try:
            of_type = self._wanted(devices, request)
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
        """Return how often a device is allocated to claims that count as this type."""
        keys = self._by.get(device, ())
        taken = [self._taken[key] for key in keys]
        return sum(each.devices.count(device) for each in taken if kind in each.types)

    # --- what is taken --------------------------------------------------------------------------

    def see_claim(self, key: Key, claim: Claim | None) -> None:
        """Update the devices of a claim."""
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
            self.pools.touch(device)

    def give_back(self, key: Key) -> None:
        """Free the devices of a claim, if it has any."""
        taken = self._taken.pop(key, None)
        for device in () if taken is None else taken.devices:
            keys = self._by.get(device, {})
            keys.pop(key, None)
            if not keys:
                self._by.pop(device, None)
            self.pools.touch(device)

    def counts_as(self, key: Key, types: frozenset[str]) -> None:
        """Set the types as which the core counts a claim's devices."""
        taken = self._taken.get(key)
        if taken is not None and taken.types != types:
            taken.types = types
            for device in taken.devices:
                self.pools.touch(device)

    def is_counted(self, key: Key) -> bool:
        """Whether the core counts a claim's devices."""
        taken = self._taken.get(key)
        return taken is not None and bool(taken.types)

    def _claims_as(self, node: str, kind: str) -> int:
        """Return how many claims with devices of a node count as a type."""
        keys = {key: None for each in self.pools.on(node) for key in self._by.get(each, ())}
        return sum(kind in self._taken[key].types for key in keys)

    def _how_often(self, node: str, claim: Claim) -> int:
        """Return how many equal claims a node can still satisfy, up to MAX_LIKE.

        They are placed one after the other first, then all of them together, with other choices.
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
        """Return an upper bound of equal claims on a node, by its number of free devices."""
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
        """Return devices of a node for all claims, by claim; None if not all can be satisfied.

        Devices that match fewer types are preferred. Nothing is taken: ``reserve`` does that.
        """
        try:
            search = self._search(node, wanted, self._room(node))
        except SelectorError:
            return None
        return None if search is None else search.by_claim()

    def _search(
        self, node: str, wanted: list[tuple[Key, Claim]], room: Room, max_steps: int = MAX_STEPS
    ) -> Search | None:
        """Search for devices and take them of the room; None if none. Raises SelectorError."""
        requests = [(key, claim, choice) for key, claim in wanted for choice in claim.choices]
        search = Search(room, requests, lambda each: self.fitting(node, each), max_steps)
        return search if search.run() is not None else None

    def _room(self, node: str) -> Room:
        """Return the devices, counters and capacities of a node, less what is taken."""
        devices = self.pools.on(node)
        room = Room(devices)
        room.counters = self.pools.counters_on(node)
        room.devices = {**self.pools.beside(node), **devices}
        self._take_of(room, room.devices)
        return room

    def _take_of(self, room: Room, devices: Mapping[DeviceId, Published]) -> None:
        for device in devices:
            for key in self._by.get(device, ()):
                taken = self._taken[key]
                for each, consumed in zip(taken.devices, taken.consumed, strict=True):
                    if each == device:
                        room.take(room.places(device, consumed))

    def ranked(self, claim: Claim) -> dict[int, list[str]]:
        """Return the nodes that can satisfy a claim, by the rank of their alternatives.

        Only for claims with alternatives. The last alternative counts 1, each earlier one more.
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
        for node in sorted(node for node in self.pools.nodes if node != EVERYWHERE)[:MAX_RANKED]:
            chosen = self.choose(node, [(("", ""), claim)])
            if chosen is not None:
                named = dict.fromkeys(result.request for result in chosen["", ""])
                score = sum(places.get(name, 0) for name in named)
                found.setdefault(score, []).append(node)
        return found

    def domains_of(self, claim: Claim) -> dict[str, str]:
        """Return, by node, the shared device that a claim may use, if several nodes reach it.

        Of several the first by name, free or not.
        """
        found: dict[str, str] = {}
        for device, published, nodes in self.pools.of_several():
            if self.classes.want_any(claim.requests, (published.device,)):
                for node in nodes:
                    found.setdefault(node, device[2])
        return found

    def fitting(self, node: str, request: Request) -> list[DeviceId]:
        """Return a node's devices that match a request, free or not. Raises SelectorError."""
        devices = self.pools.on(node)
        return sorted(
            self._wanted(devices, request),
            key=lambda each: (self._wanted_by(devices[each].device), _weight(devices[each]), each),
        )

    def _wanted(self, devices: Mapping[DeviceId, Published], request: Request) -> list[DeviceId]:
        """Return the devices that match a request. Raises SelectorError.

        One for all devices has none if one of them may not be given to it.
        """
        barred, wants = self.classes.is_barred, self.classes.wants
        if request.takes_all and any(barred(request, found.device) for found in devices.values()):
            return []
        return [each for each, found in devices.items() if wants(request, found.device)]

    def _wanted_by(self, device: Device) -> int:
        """Return how many counted types a device matches."""
        return sum(self.classes.may_want(request, device) for request in self._types.values())

    def reserve(self, key: Key, results: Results, types: frozenset[str]) -> None:
        """Take devices for a claim to be written, which the core counts as these types."""
        given = [result for result in results if not result.is_admin]
        devices = tuple(result.device for result in given)
        self._take(key, _Taken(devices, tuple(result.consumed for result in given), types))


def _weight(found: Published) -> int:
    """Return how much of shared counters a device consumes."""
    return sum(found.consumes.values())
