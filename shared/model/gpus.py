"""GPUs as resource types, and as devices: what a node announces, and what a pod was given.

Which devices a pod was given is a text in its annotation: ``0,2`` is all of both, ``3:400`` is 400
thousandths of the fourth. A text that says something else says nothing.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

GPU = "nvidia.com/gpu"  # whole devices
GPU_SHARE = "muster.io/gpu-share"  # thousandths of devices
GPU_MILLI = "muster.io/gpu-milli"  # thousandths of GPUs, whole ones and shares: only limits name it
GPU_DEVICES = "muster.io/gpu-devices"  # an annotation: which devices a pod was given
WHOLE = 1_000  # thousandths of one device
MAX_DEVICES = 64  # GPUs of a node, or of a share; where a node has more they are only counted
Devices: TypeAlias = tuple[tuple[int, int], ...]  # indexes and thousandths of each, by index
_MAX_TEXT = 4_096  # characters of the devices of a pod; a longer text says nothing
_DEVICE = re.compile(r"([0-9]{1,4})(?::([1-9][0-9]{0,3}))?\Z")


def text_of(devices: Devices) -> str:
    """Return the annotation that says which devices a pod was given."""
    return ",".join(
        str(index) if amount == WHOLE else f"{index}:{amount}" for index, amount in devices
    )


def devices_in(text: str) -> Devices:
    """Return the devices that an annotation says; () where it says none that there could be."""
    if not text or len(text) > _MAX_TEXT:
        return ()
    found = []
    for item in text.split(","):
        match = _DEVICE.match(item)
        if match is None:
            return ()
        found.append((int(match[1]), int(match[2] or WHOLE)))
    return tuple(found)


def amount_of(amounts: Mapping[str, int], name: str) -> int:
    """Return how much of a type it is; of GPU_MILLI, what GPUs and shares of them come to."""
    if name == GPU_MILLI:
        return WHOLE * amounts.get(GPU, 0) + amounts.get(GPU_SHARE, 0)
    return amounts.get(name, 0)


def counted(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Return amounts with their GPUs and shares of GPUs in one currency as well, as the last."""
    if GPU not in amounts and GPU_SHARE not in amounts:
        return amounts
    return {**amounts, GPU_MILLI: amount_of(amounts, GPU_MILLI)}


def counting_limit(limit: Mapping[str, int]) -> dict[str, int]:
    """Return a limit, or a guarantee, of GPUs as one that shares of them count for as well."""
    if GPU not in limit:
        return dict(limit)
    return {**limit, GPU_MILLI: WHOLE * limit[GPU]}


def stated(limit: Mapping[str, int]) -> Mapping[str, int]:
    """Return a limit as it was stated, in GPUs."""
    if GPU_MILLI not in limit:
        return limit
    return {name: value for name, value in limit.items() if name != GPU_MILLI}


def room_stated(room: Mapping[str, int]) -> dict[str, int]:
    """Return what limits leave in the units in which they are stated: whole GPUs that are left."""
    found = dict(room)
    milli = found.pop(GPU_MILLI, None)
    if milli is not None:
        found[GPU] = min(found.get(GPU, 0), milli // WHOLE)
    return found
