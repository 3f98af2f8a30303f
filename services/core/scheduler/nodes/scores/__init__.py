"""Scores of nodes: a file for each.

``SCORES`` are the orders that ``nodesortpolicy`` may name (``shared/model/names.py``). The ask's
preferences and plugins' scores precede the configured one.
"""

from services.core.scheduler.nodes.scores.base import NodeScore
from services.core.scheduler.nodes.scores.fgd import Fgd
from services.core.scheduler.nodes.scores.gpu_binpacking import GpuBinpacking
from services.core.scheduler.nodes.scores.packing import AsKai
from services.core.scheduler.nodes.scores.usage import Binpacking, Fair
from shared.model.names import AS_KAI, BINPACKING, FAIR, FGD, GPU_BINPACKING

SCORES: dict[str, type[NodeScore]] = {
    FAIR: Fair,
    BINPACKING: Binpacking,
    GPU_BINPACKING: GpuBinpacking,
    FGD: Fgd,
    AS_KAI: AsKai,
}
DEFAULT_WEIGHTS: dict[str, float] = {"vcore": 1.0, "memory": 1.0}
