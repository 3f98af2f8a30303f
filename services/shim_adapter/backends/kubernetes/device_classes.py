"""The classes of devices, and whether a device matches a request.

Source: docs/kubernetes.md#devices. Pure: no I/O.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.shim_adapter.backends.kubernetes.claim_objects import (
    CLASS_TYPE,
    IMPLICIT,
    DeviceClass,
    Request,
)
from services.shim_adapter.translation.device_selectors import Device, SelectorError, selects
from shared.messages.selectors import tolerates


@dataclass(slots=True)
class DeviceClasses:
    """The classes by name."""

    by_name: dict[str, DeviceClass] = field(default_factory=dict)

    def see(self, name: str, found: DeviceClass | None) -> None:
        """Add, update or remove (None) a class."""
        if found is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = found

    def class_of(self, resource: str) -> str:
        """Return the class that offers an extended resource, of several the newest; "" for none."""
        implicit = resource.removeprefix(IMPLICIT)
        if implicit != resource and implicit in self.by_name:
            return implicit
        offers = sorted(name for name, found in self.by_name.items() if found.extended == resource)
        return max(offers, key=lambda name: self.by_name[name].made, default="")

    def type_of(self, device_class: str) -> str:
        """Return the resource type as which devices of a class are counted.

        Its extended resource, unless a newer class offers that.
        """
        found = self.by_name.get(device_class)
        extended = found.extended if found is not None else ""
        is_own = bool(extended) and self.class_of(extended) == device_class
        return extended if is_own else f"{CLASS_TYPE}{device_class}"

    def config_of(self, device_class: str) -> tuple[Mapping[str, Any], ...]:
        """Return the driver configuration of a class."""
        found = self.by_name.get(device_class)
        return () if found is None else found.config

    def wants(self, request: Request, device: Device) -> bool:
        """Whether a device matches a request. Raises SelectorError."""
        of_class = self.by_name.get(request.device_class)
        if of_class is None:
            return False
        return _is_tolerated(request, device) and self._selects(request, of_class, device)

    def is_barred(self, request: Request, device: Device) -> bool:
        """Whether a device is selected, but has a taint that is not tolerated.

        Raises SelectorError.
        """
        of_class = self.by_name.get(request.device_class)
        if of_class is None or _is_tolerated(request, device):
            return False
        return self._selects(request, of_class, device)

    def _selects(self, request: Request, of_class: DeviceClass, device: Device) -> bool:
        return all(selects(each, device) for each in (*of_class.selectors, *request.selectors))

    def may_want(self, request: Request, device: Device) -> bool:
        """Whether a device matches a request; False if a selector fails."""
        try:
            return self.wants(request, device)
        except SelectorError:
            return False

    def want_any(self, requests: Iterable[Request], devices: Iterable[Device]) -> bool:
        """Whether any of the devices may match any of the requests."""
        requests = tuple(requests)
        return any(self.may_want(request, device) for device in devices for request in requests)


def _is_tolerated(request: Request, device: Device) -> bool:
    return all(tolerates(request.tolerations, taint) for taint in device.taints)
