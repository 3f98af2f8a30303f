"""``gpu-binpacking``: the free part of a node's GPUs, least first; of devices the fullest.

Units: thousandths of a device, whole numbers.
"""

from services.core.scheduler.model.shapes import Demand
from services.core.scheduler.nodes.scores.by_devices import ByDevices
from services.core.scheduler.nodes.scores.mix import (
    DeviceRule,
    Mix,
    Numbers,
    Room,
    Rooms,
    free_share,
    fullest,
)


def gpu_binpacking_of(_: Mix, room: Room, demand: Demand) -> tuple[int, int]:
    """Return the same for one node."""
    share = sum(room.free) // max(len(room.free), 1)
    return share, min((left for left in room.free if left >= demand.size), default=0)


def gpu_binpacking(_: Mix, rooms: Rooms, demand: Demand) -> tuple[Numbers, Numbers]:
    """Return every node's score, and the free part of the device chosen for a share."""
    return free_share(rooms.free.sum(axis=1), rooms), fullest(rooms.free, demand)


class GpuBinpacking(ByDevices):
    """Nodes with the fewest free GPUs come first."""

    rule = DeviceRule(gpu_binpacking, gpu_binpacking_of)
