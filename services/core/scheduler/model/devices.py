"""The GPU devices of one node: the free part of each, and which of them a pod gets.

Units: thousandths of a device, whole numbers. A node with N whole GPUs has the devices 0 to N - 1;
a node with more than MAX_DEVICES has none, and its GPUs are only counted.

Rule 1: a pod gets whole devices, or the same share of one or several devices, each with that much
        free. Free parts of two devices are not added up.
Rule 2: whole devices are the lowest wholly free ones; a share goes to the fullest device that fits
        it, the lower of two. Foreign pods get the last devices.
Rule 3: the free part is negative only because of running pods: found ones, or on a removed device.
        No pod is placed there then. Order: by index. Source: docs/adr/0065.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from shared.messages.constraints import Constraints
from shared.model.gpus import GPU, GPU_SHARE, MAX_DEVICES, WHOLE, Devices

Need: TypeAlias = tuple[int, int]  # thousandths of each device, number of devices


def need_of(resource: Mapping[str, int], constraints: Constraints) -> Need | None:
    """Return a request's need of devices, None if it needs none."""
    whole, share = resource.get(GPU, 0), resource.get(GPU_SHARE, 0)
    if whole > 0:
        return WHOLE, whole
    if share > 0:
        return -(-share // constraints.gpu_devices), constraints.gpu_devices
    return None


def misfit(resource: Mapping[str, int], constraints: Constraints) -> str:
    """Return why a request is no valid share of devices, "" if it is valid or requests none."""
    share, count = resource.get(GPU_SHARE, 0), constraints.gpu_devices
    if not share and count == 1:
        return ""
    if not 1 <= count <= MAX_DEVICES:
        return f"a share of 1 to {MAX_DEVICES} devices is asked for, found {count}"
    if not share:
        return f"{count} devices are asked for, and no share of them ({GPU_SHARE})"
    if resource.get(GPU, 0):
        return f"whole GPUs ({GPU}) or a share of one ({GPU_SHARE}) are asked for, found both"
    if share % count or not 0 < share // count < WHOLE:
        return (
            f"{GPU_SHARE} is 1 to {WHOLE - 1} thousandths of each of {count} devices, found {share}"
        )
    return ""


def choose(free: Sequence[int], need: Need) -> Devices:
    """Return the devices for a pod, () if it does not fit.

    Shares go to the fullest devices; if that would leave places for fewer equal pods than possible,
    to the devices with the most places.
    """
    size, count = need
    found = [at for at, left in enumerate(free) if left >= size]
    if len(found) < count:
        return ()
    if size < WHOLE:
        tight = sorted(found, key=free.__getitem__)[:count]
        if count > 1 and _places_after(free, need, tight) < places(free, need) - 1:
            tight = sorted(found, key=lambda at: (-(free[at] // size), free[at]))[:count]
        found = sorted(tight)
    return tuple((at, size) for at in found[:count])


def _places_after(free: Sequence[int], need: Need, taken: Sequence[int]) -> int:
    left = list(free)
    for at in taken:
        left[at] -= need[0]
    return places(left, need)


def choose_last(free: Sequence[int], need: Need) -> Devices:
    """Return the devices that a foreign pod is assumed to use: the last that fit it.

    It runs, so that it gets devices even if none is free.
    """
    size, count = need
    in_order = sorted(range(len(free)), key=lambda at: (min(free[at], size), at))
    return tuple((at, size) for at in sorted(in_order[-count:]))


def holds(free: Sequence[int], need: Need) -> bool:
    """Whether a pod fits on the devices."""
    size, count = need
    return sum(left >= size for left in free) >= count


def places(free: Sequence[int], need: Need) -> int:
    """Return how many equal pods fit on the devices together."""
    size, count = need
    times = [left // size for left in free if left >= size]
    if count == 1:
        return sum(times)
    if size == WHOLE:
        return len(times) // count
    least, most = 0, sum(times) // count
    while least < most:  # binary search: no pod has two shares of one device
        tried = (least + most + 1) // 2
        if sum(min(own, tried) for own in times) >= tried * count:
            least = tried
        else:
            most = tried - 1
    return least


def lacking(free: Sequence[int], need: Need) -> int:
    """Return how many whole devices, or thousandths of devices, one pod lacks."""
    size, count = need
    if size == WHOLE:
        return max(0, count - list(free).count(WHOLE))
    most = sorted((min(max(left, 0), size) for left in free), reverse=True)
    return size * count - sum(most[:count])


def is_held(stated: Devices, free: Sequence[int], need: Need) -> bool:
    """Whether stated devices are a valid set for a pod, free or not."""
    size, count = need
    return (
        len(stated) == min(count, len(free)) <= MAX_DEVICES
        and len(dict(stated)) == len(stated)
        and all(0 <= at < len(free) and amount == size for at, amount in stated)
    )


def change(free: list[int], held: Devices, times: int) -> None:
    """Free the held parts of devices (1), or occupy them (-1); removed devices are skipped."""
    for at, amount in held:
        if at < len(free):
            free[at] += times * amount


def left_over(free: Sequence[int], kept: Mapping[str, int]) -> list[int]:
    """Return what is free without claimed capacity on unknown devices.

    For whole GPUs the last wholly free devices are excluded; for shares the fullest device that
    fits all of them, else the ones with the most free.
    """
    left = list(free)
    for _ in range(min(kept.get(GPU, 0), left.count(WHOLE))):
        left[len(left) - 1 - left[::-1].index(WHOLE)] = 0
    amount = kept.get(GPU_SHARE, 0)
    first = sorted(
        range(len(left)), key=lambda at: (left[at] < amount, abs(left[at] - amount), -at)
    )
    for at in first:
        taken = max(0, min(amount, left[at]))
        left[at] -= taken
        amount -= taken
    return left
