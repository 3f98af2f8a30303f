"""Pods of a trace drawn by chance until so much GPU has been asked for, on nodes that nobody leaves.

As in Weng et al., USENIX ATC'23, section 6: what does not fit is dropped. Here it waits, and as
nobody ends it waits for ever; with no reservations it is in nobody's way.
"""

from pathlib import Path
from random import Random

from shared.model.gpus import GPU, GPU_SHARE, WHOLE
from shared.model.units import NANOS_PER_SECOND
from tools.replay.formats import read
from tools.replay.jobs import FOREVER_NS, Job, Trace
from tools.replay.run import Replay
from tools.replay.setup import Setup, setup_of

ALL_DEVICES = 6_212 * WHOLE  # of the nodes with GPUs
TOGETHER = 50  # pods that come at one moment
SETTINGS = {"reservations": "none"}
QUEUES = """
partitions:
  - name: default
    nodesortpolicy: {{type: {policy}}}
    queues:
      - name: root
        submitacl: "*"
        queues: [{{name: jobs, properties: {{application.sort.policy: fifo}}}}]
"""


def drawn(trace: Trace, seed: int, thousandths: int) -> Trace:
    """Return pods of a trace, some a second, that ask for so much of devices in all."""
    chance = Random(seed)
    jobs: list[Job] = []
    asked = 0
    while asked < thousandths:
        job = chance.choice(trace.jobs)
        asked += job.amount(GPU) * WHOLE + job.amount(GPU_SHARE)
        at_ns = len(jobs) // TOGETHER * NANOS_PER_SECOND
        jobs.append(Job(f"pod-{len(jobs)}", at_ns, FOREVER_NS, job.queue, job.user, job.groups))
    return Trace(trace.name, tuple(jobs), GPU)


def openb_setup(traces: Path, policy: str) -> Setup:
    """Return the nodes with GPUs, sorted by a policy."""
    trace = read(traces / "openb_pod_list_default.csv.gz")
    nodes = str(traces / "openb_node_list_gpu_node.csv.gz")
    queues = QUEUES.format(policy=policy)
    return setup_of(trace, policy, nodes=nodes, queues=queues, scheduler=SETTINGS)


def not_allocated(replay: Replay) -> float:
    """Return how much of all devices is free, in per cent."""
    nodes = replay.scheduler.partition.nodes.rows
    size = sum(len(node.devices) for node in nodes) * WHOLE
    return 100 * sum(sum(node.devices) for node in nodes) / size
