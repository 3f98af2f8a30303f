"""GPUs as resource types, and as devices: what a node announces, and what a pod was given."""

from typing import TypeAlias

GPU = "nvidia.com/gpu"  # whole devices
GPU_SHARE = "muster.io/gpu-share"  # thousandths of devices
GPU_DEVICES = "muster.io/gpu-devices"  # an annotation: which devices a pod was given
WHOLE = 1_000  # thousandths of one device
MAX_DEVICES = 64  # GPUs of a node, or of a share; where a node has more they are only counted
Devices: TypeAlias = tuple[tuple[int, int], ...]  # indexes and thousandths of each, by index
