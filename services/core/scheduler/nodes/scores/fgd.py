"""``fgd``: fragmentation gradient descent.

For a node n and a class of asks m, F_n(m) is all free device capacity if m cannot run there (vcore,
memory, constraints, devices), else the sum of the free parts of devices too small for m. F_n is the
mean over the mix of recent asks (``Mix``).

A node's score is the rise of F_n when the ask is placed there, in steps of STEP; a share goes to
the device with the least rise. Added are SPREAD of a step times the free part of the node's GPUs,
and STRANDED times the rise of stranded GPUs: those free beyond what the free vcore is sufficient
for, at the mix's vcore for each GPU. F_n includes these only when the vcore is too little for a
class, which is too late.

Units: thousandths of a device, whole numbers.
Source: Weng et al., USENIX ATC'23, section 4; STEP is their score's. docs/adr/0070.
"""

import numpy as np

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
    rest_after,
    ways,
)
from shared.model.gpus import WHOLE

STEP = 40  # thousandths of a GPU
PARTS = 1_000  # units of a score in a step
SPREAD = 100  # units for a node whose GPUs are all free
STRANDED = 7_500  # units for a stranded GPU: 0.3 of a GPU of F
NOWHERE = np.iinfo(np.int64).max


def fgd(mix: Mix, rooms: Rooms, demand: Demand) -> tuple[Numbers, Numbers]:
    """Return every node's score, and the free part of the device chosen for a share."""
    before = mix.usable(rooms.free, rooms)
    taken = demand.size * demand.number
    free = rooms.free.sum(axis=1)
    stranded = mix.stranded(free - taken, rooms.vcore - demand.vcore)
    stranded -= mix.stranded(free, rooms.vcore)
    beside = SPREAD * free_share(free, rooms) // WHOLE + STRANDED * stranded // WHOLE
    step = max(1, mix.total) * STEP
    if demand.number == 1 and demand.size < WHOLE:
        after = mix.usable_without(rooms, demand)
        rises = before[:, None] - after - taken * mix.total
        steps = np.where(rooms.free >= demand.size, (rises + step // 2) // step, NOWHERE)
        # of devices with one score the fullest, which is the last
        at = steps.shape[1] - 1 - steps[:, ::-1].argmin(axis=1)
        rows = np.arange(steps.shape[0])
        best, picked = steps[rows, at], rooms.free[rows, at]
        best[best == NOWHERE] = 0  # nodes that do not fit are not scored
        return best * PARTS + beside, picked
    rises = before - mix.usable(rest_after(rooms.free, demand), rooms, demand) - taken * mix.total
    return (rises + step // 2) // step * PARTS + beside, fullest(rooms.free, demand)


def fgd_of(mix: Mix, room: Room, demand: Demand) -> tuple[int, int]:
    """Return the same for one node: for a few nodes it is faster than arrays."""
    free, taken = sum(room.free), demand.size * demand.number
    stranded = mix.stranded_of(free - taken, room.vcore - demand.vcore)
    stranded -= mix.stranded_of(free, room.vcore)
    share = free // max(len(room.free), 1)
    before = mix.usable_of(room.free, room) - taken * mix.total
    step = max(1, mix.total) * STEP
    best, picked = min(
        ((before - mix.usable_of(after, room, demand) + step // 2) // step, device)
        for device, after in ways(room.free, demand)
    )
    return best * PARTS + SPREAD * share // WHOLE + STRANDED * stranded // WHOLE, picked


class Fgd(ByDevices):
    """Nodes where the ask fragments the devices least come first."""

    rule = DeviceRule(fgd, fgd_of)
