"""GPUs as resource types and as devices of a node.

A pod's annotation lists its assigned devices: ``0,2`` is all of both, ``3:400`` is 400 thousandths
of the fourth. An invalid text is ignored.
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
    """Format assigned devices for a pod's annotation."""
    return ",".join(
        str(index) if amount == WHOLE else f"{index}:{amount}" for index, amount in devices
    )


def devices_in(text: str) -> Devices:
    """Parse the devices in an annotation; () if it is invalid."""
    if not text or len(text) > _MAX_TEXT:
        return ()
    found = []
    for item in text.split(","):
        match = _DEVICE.match(item)
        if match is None:
            return ()
        found.append((int(match[1]), int(match[2] or WHOLE)))
    return tuple(found)
