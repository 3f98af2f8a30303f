"""The classes of devices, and whether a request wants a device.

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
    """The classes by their names."""

    by_name: dict[str, DeviceClass] = field(default_factory=dict)

    def see(self, name: str, found: DeviceClass | None) -> None:
        """Take in that a class was made, has changed or gone (None)."""
        if found is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = found

    def class_of(self, resource: str) -> str:
        """Return the class that offers an extended resource, "" for none."""
        implicit = resource.removeprefix(IMPLICIT)
        if implicit != resource and implicit in self.by_name:
            return implicit
        offers = [name for name, found in self.by_name.items() if found.extended == resource]
        return min(offers, default="")

    def type_of(self, device_class: str) -> str:
        """Return the resource type that devices of a class are counted as."""
        found = self.by_name.get(device_class)
        return (found.extended if found else "") or f"{CLASS_TYPE}{device_class}"

    def config_of(self, device_class: str) -> tuple[Mapping[str, Any], ...]:
        """Return what a class has drivers told of its devices."""
        found = self.by_name.get(device_class)
        return () if found is None else found.config

    def wants(self, request: Request, device: Device) -> bool:
        """Return whether a request wants a device. Raises SelectorError."""
        of_class = self.by_name.get(request.device_class)
        if of_class is None:
            return False
        if not all(tolerates(request.tolerations, taint) for taint in device.taints):
            return False
        return all(selects(each, device) for each in (*of_class.selectors, *request.selectors))

    def may_want(self, request: Request, device: Device) -> bool:
        """Return the same; a selector that has no answer for the device does not want it."""
        try:
            return self.wants(request, device)
        except SelectorError:
            return False

    def want_any(self, requests: Iterable[Request], devices: Iterable[Device]) -> bool:
        """Return whether one of several devices may be what one of some requests wants."""
        requests = tuple(requests)
        return any(self.may_want(request, device) for device in devices for request in requests)
