"""Searches for devices of a node that satisfy all requests of some claims, depth first.

Rule 1: if the next request finds no device, the last choice is undone. After MAX_STEPS the search
        fails.
Rule 2: a device is allocated once, and shared counters and capacities are never exceeded.
Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services.shim_adapter.backends.kubernetes.claim_objects import (
    Claim,
    Constraint,
    DeviceId,
    Key,
    Published,
    Request,
    Result,
    qualified,
)
from services.shim_adapter.backends.kubernetes.device_capacity import Consumed

MAX_STEPS = 1_000  # steps of a search for devices of several claims; then none are found
Place = tuple[object, ...]  # what can be taken of: a device, a counter, a capacity
Wanted = tuple[Key, Claim, tuple[Request, ...]]
Given = tuple[Key, Request, DeviceId, Consumed]


@dataclass(slots=True)
class Room:
    """The devices, counters and capacities of a node, and how much of them is taken."""

    devices: Mapping[DeviceId, Published]
    counters: Mapping[Place, int] = field(default_factory=dict)
    taken: dict[Place, int] = field(default_factory=dict)

    def consumed(self, device: DeviceId, request: Request) -> Consumed | None:
        """Return what a request consumes of a shared device's capacities; None if too small."""
        found = self.devices[device]
        asked = {qualified(device[0], key): milli for key, milli in request.capacity}
        of = found.device.capacity
        if any(key not in of or milli > of[key].milli for key, milli in asked.items()):
            return None
        shares = []
        for key, policy in sorted((found.policies or {}).items()):
            milli = policy.takes(asked.get(key), of[key].milli) if key in of else 0
            if milli is None:
                return None
            shares.append((key, milli))
        return tuple(shares)

    def places(self, device: DeviceId, consumed: Consumed) -> dict[Place, int]:
        """Return what the allocation of a device takes."""
        found = self.devices.get(device)
        places: dict[Place, int] = {(device, key): milli for key, milli in consumed}
        if found is None or found.policies is None:
            places[device,] = 1
        for counter, milli in found.consumes.items() if found is not None else ():
            places[device[:2], counter] = milli
        return places

    def fits(self, places: Mapping[Place, int]) -> bool:
        """Whether these amounts are free."""
        return all(self.taken.get(at, 0) + n <= self._of(at) for at, n in places.items())

    def _of(self, place: Place) -> int:
        if len(place) == 1:
            return 1
        if place in self.counters:
            return self.counters[place]
        found = self.devices.get(place[0])  # type: ignore[call-overload]
        capacity = None if found is None else found.device.capacity.get(place[1])
        return 0 if capacity is None else int(capacity.milli)

    def take(self, places: Mapping[Place, int], sign: int = 1) -> None:
        """Take amounts, or give them back (``sign`` -1)."""
        for at, amount in places.items():
            self.taken[at] = self.taken.get(at, 0) + sign * amount


@dataclass(slots=True)
class Search:
    """One search. ``fitting`` returns the devices that match a request, the best first.

    It raises SelectorError if a selector fails.
    """

    room: Room
    requests: Sequence[Wanted]
    fitting: Callable[[Request], list[DeviceId]]
    max_steps: int = MAX_STEPS
    given: list[Given] = field(default_factory=list)
    steps: int = 0
    _fit: dict[Request, list[DeviceId]] = field(default_factory=dict)

    def run(self) -> list[Given] | None:
        """Return a device for each requested one; None if there are none.

        The room's amounts are taken then. Raises SelectorError.
        """
        return self.given if self._choose(0) else None

    def by_claim(self) -> dict[Key, tuple[Result, ...]]:
        """Return the allocated devices, by claim."""
        found: dict[Key, list[Result]] = {key: [] for key, _, _ in self.requests}
        for key, request, device, consumed in self.given:
            found[key].append(Result(request.name, device, request.is_admin, consumed))
        return {key: tuple(results) for key, results in found.items()}

    def _choose(self, at: int) -> bool:
        """Find devices for the request at an index, by its first possible alternative, and on."""
        if at == len(self.requests):
            return True
        return any(self._try(at, request) for request in self.requests[at][2])

    def _try(self, at: int, request: Request) -> bool:
        fit = self._fit.get(request)
        if fit is None:
            fit = self._fit[request] = self.fitting(request)
        if not request.takes_all:
            free = [each for each in fit if request.is_admin or self._takes(each, request)]
            return self._pick(at, request, free, request.count)
        if not fit or not (request.is_admin or all(self._takes(each, request) for each in fit)):
            return False
        return self._pick(at, request, fit, len(fit))

    def _takes(self, device: DeviceId, request: Request) -> tuple[Consumed] | None:
        """Return what a request consumes of a device's capacity; None if it is not available."""
        consumed = self.room.consumed(device, request)
        if consumed is None or not self.room.fits(self.room.places(device, consumed)):
            return None
        return (consumed,)

    def _pick(self, at: int, request: Request, free: list[DeviceId], left: int) -> bool:
        """Allocate ``left`` free devices to a request, and continue with the next one."""
        if not left:
            return self._choose(at + 1)
        key, claim, _ = self.requests[at]
        for place, device in enumerate(free):
            is_shared = self.room.devices[device].policies is not None
            self.steps += 1
            if self.steps > self.max_steps:
                return False
            if not self._holds(key, claim, request, device):
                continue
            takes = ((),) if request.is_admin else self._takes(device, request)
            if takes is None:
                continue
            places = {} if request.is_admin else self.room.places(device, takes[0])
            self.given.append((key, request, device, takes[0]))
            self.room.take(places)
            if self._pick(at, request, free[place + (not is_shared) :], left - 1):
                return True
            self.given.pop()
            self.room.take(places, -1)
        return False

    def _holds(self, key: Key, claim: Claim, request: Request, device: DeviceId) -> bool:
        """Whether a device satisfies the claim's constraints together with the chosen ones."""
        return all(
            self._agrees(key, constraint, device)
            for constraint in claim.constraints
            if constraint.is_about(request.name)
        )

    def _agrees(self, key: Key, constraint: Constraint, device: DeviceId) -> bool:
        value = self._value(device, constraint)
        if value is None:
            return False
        for other_key, request, other, _ in self.given:
            if other_key != key or not constraint.is_about(request.name):
                continue
            known = self._value(other, constraint)
            is_same = type(known) is type(value) and known == value
            if is_same is constraint.differ:
                return False
        return True

    def _value(self, device: DeviceId, constraint: Constraint) -> object:
        return self.room.devices[device].device.attributes.get(constraint.attribute)
