"""GPUs as resource types, and as devices: what a node announces, and what a pod was given.

Which devices a pod was given is a text in its annotation: ``0,2`` is all of both, ``3:400`` is 400
thousandths of the fourth. A text that says something else says nothing.
"""

import re
from typing import TypeAlias

GPU = "nvidia.com/gpu"  # whole devices
GPU_SHARE = "muster.io/gpu-share"  # thousandths of devices
GPU_DEVICES = "muster.io/gpu-devices"  # an annotation: which devices a pod was given
WHOLE = 1_000  # thousandths of one device
MAX_DEVICES = 64  # GPUs of a node, or of a share; on a node with more they are only counted
Devices: TypeAlias = tuple[tuple[int, int], ...]  # indexes and thousandths of each, by index
_MAX_TEXT = 4_096  # characters of the devices of a pod; a longer text is ignored
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
