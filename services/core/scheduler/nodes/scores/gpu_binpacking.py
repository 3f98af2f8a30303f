"""``gpu-binpacking``: the share of a node's GPUs that is free; of devices the fullest.

Units: thousandths of a device. All numbers are whole.
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
    """Return the same of one node."""
    share = sum(room.free) // max(len(room.free), 1)
    return share, min((left for left in room.free if left >= demand.size), default=0)


def gpu_binpacking(_: Mix, rooms: Rooms, demand: Demand) -> tuple[Numbers, Numbers]:
    """Return every node's score, and what is free on the device that a share is to be taken of."""
    return free_share(rooms.free.sum(axis=1), rooms), fullest(rooms.free, demand)


class GpuBinpacking(ByDevices):
    """The node with the fewest free GPUs comes first."""

    rule = DeviceRule(gpu_binpacking, gpu_binpacking_of)
