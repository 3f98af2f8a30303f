"""Shares of GPUs: what pods say with KAI's annotations.

Rule 1: ``gpu-fraction`` is the share of one device, 0.001 to 0.999 with at most three decimals;
        ``gpu-fraction-num-devices`` has the pod take that share of so many devices.
Rule 2: a pod takes shares or whole GPUs, not both. How much memory a device has is not known here,
        so that ``gpu-memory`` is refused, as is our own resource type by its name.
Source: docs/rules/kai.md#scores-and-domains; docs/adr/0065.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from services.shim_adapter.translation.errors import ManifestError
from shared.messages.constraints import Constraints
from shared.model.gpus import GPU, GPU_SHARE, MAX_DEVICES
from shared.model.resources import Resource, ResourceView

FRACTION = "gpu-fraction"
NUMBER_OF_DEVICES = "gpu-fraction-num-devices"
MEMORY = "gpu-memory"
_SHOWN = 40  # characters of a text that is refused
_FRACTION = re.compile(r"0?\.([0-9]{1,3})0{0,9}\Z")
_NUMBER = re.compile(r"[1-9][0-9]?\Z")


def with_share(
    resource: ResourceView, annotations: Mapping[str, str], where: str
) -> tuple[Resource, int]:
    """Return what a pod asks for with its share of GPUs, and of how many devices that is.

    ``where`` is the path of the annotations. Raises ManifestError.
    """
    if GPU_SHARE in resource:
        raise ManifestError(
            f"{where}[{FRACTION}]",
            f"a share of a GPU is asked for by this annotation, not as a resource {GPU_SHARE}",
        )
    if MEMORY in annotations:
        raise ManifestError(
            f"{where}[{MEMORY}]",
            "how much memory a GPU has is not known: ask for a share of it by gpu-fraction",
        )
    if FRACTION not in annotations:
        if NUMBER_OF_DEVICES in annotations:
            raise ManifestError(
                f"{where}[{NUMBER_OF_DEVICES}]",
                "of how much of each device: gpu-fraction is missing",
            )
        return dict(resource), 1
    if resource.get(GPU, 0):
        raise ManifestError(
            f"{where}[{FRACTION}]", f"the pod asks for whole GPUs, too: leave this out, or {GPU}"
        )
    size, count = _size(annotations[FRACTION], where), 1
    if NUMBER_OF_DEVICES in annotations:
        count = _count(annotations[NUMBER_OF_DEVICES], where)
    return {**resource, GPU_SHARE: size * count}, count


def _size(text: str, where: str) -> int:
    match = _FRACTION.match(text)
    size = int(match[1].ljust(3, "0")) if match else 0
    if not size:
        raise ManifestError(
            f"{where}[{FRACTION}]",
            "a share of one GPU is 0.001 to 0.999, in at most three decimals, found "
            f"{text[:_SHOWN]!r}; ask for whole ones by {GPU}",
        )
    return size


def _count(text: str, where: str) -> int:
    count = int(text) if _NUMBER.match(text) else 0
    if not 1 <= count <= MAX_DEVICES:
        raise ManifestError(
            f"{where}[{NUMBER_OF_DEVICES}]",
            f"a whole number from 1 to {MAX_DEVICES}, found {text[:_SHOWN]!r}",
        )
    return count


def annotations_of(resource: ResourceView, count: int) -> dict[str, str]:
    """Return the annotations that ask for a pod's share of so many devices, if it has one."""
    share = resource.get(GPU_SHARE, 0)
    if not share:
        return {}
    several = {NUMBER_OF_DEVICES: str(count)} if count > 1 else {}
    return {FRACTION: f"0.{share // count:03}", **several}


def over_devices(constraints: Constraints, count: int) -> Constraints:
    """Return a pod's constraints with the number of devices that its share is of."""
    return constraints if count == 1 else replace(constraints, gpu_devices=count)
