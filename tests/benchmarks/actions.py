"""How long actions take to decide on large clusters: ``make bench-actions``.

A cluster of nodes with 8 accelerators, full: reclaim one of them; reclaim for a gang of 250; move
41 jobs together; find out that a gang can never start. Each at growing sizes, with the growth.
"""

import argparse
import gc
import time
from dataclasses import replace

from services.core.scheduler.actions import live_actions
from services.core.scheduler.actions.solver import Search
from services.core.scheduler.actions.victims import carry_out
from services.core.scheduler.model.rows import Application, Node, Queue
from services.core.scheduler.policies import kai
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.trial import Job, Trial
from shared.messages.interface import AddApplicationRequest, Allocation, AllocationAsk
from shared.model.resources import multiply
from shared.model.states import ApplicationState

GPU = "nvidia.com/gpu"
SIZES = (125, 500, 2000)
GPUS = 8


class Unbounded:
    """The policy kai with a consolidation that may move any number of jobs."""

    reclaim = staticmethod(kai.reclaim)
    preemption = staticmethod(kai.preemption)

    @staticmethod
    def consolidation(trial: Trial, job: Job) -> Search | None:
        found = kai.consolidation(trial, job)
        return None if found is None else replace(found, max_victims=-1)


def partition_of(nodes: int) -> tuple[Partition, Queue, Queue]:
    """Return a partition with two queues that share a cluster by halves."""
    partition = Partition()
    partition.root.is_leaf = False
    for at in range(nodes):
        capacity = {"vcore": 128_000, "memory": 10**12, GPU: GPUS}
        partition.nodes.add(Node(f"node-{at}", 0, capacity, {}, {}, (), schedulable=True))
    queues = [Queue(name, partition.root) for name in ("one", "two")]
    for queue in queues:
        queue.guaranteed_resource = {GPU: nodes * GPUS // 2}
        partition.root.children[queue.name] = partition.queues[queue.path] = queue
    return partition, *queues


def add_job(partition, queue, name, gpus, *, members=1, nodes=None) -> None:
    resource = {"vcore": 1000, "memory": 10**9, GPU: gpus}
    gang = multiply(resource, members) if members > 1 else {}
    request = AddApplicationRequest(name, queue.path, placeholder_ask=gang)
    application = Application(request, queue, partition.next_sequence(), 0)
    application.state = ApplicationState.ACCEPTED
    partition.users.link(application)
    partition.applications[name] = queue.applications[name] = application
    for at in range(members):
        key = f"{name}-{at}"
        if nodes is None:
            ask = AllocationAsk(key, name, resource, placeholder=members > 1, task_group_name="g")
            if members > 1:
                application.count_placeholder("g", resource)
            partition.add_ask(application, ask)
        else:
            node = partition.nodes.rows[nodes[at]]
            partition.count_in(application, Allocation(key, name, node.node_id, resource), node)


def full(nodes: int) -> tuple[Partition, Queue]:
    """Return a cluster that queue one has filled with jobs of one accelerator."""
    partition, one, two = partition_of(nodes)
    for number in range(nodes * GPUS):
        add_job(partition, one, f"job-{number}", 1, nodes=[number // GPUS])
    return partition, two


def reclaim_one(nodes: int):
    partition, two = full(nodes)
    add_job(partition, two, "wants", 1)
    return partition, ["reclaim"], lambda found: sum(d.evicts for d in found) == 1


def reclaim_gang(nodes: int):
    partition, two = full(nodes)
    add_job(partition, two, "gang", 1, members=250)
    return partition, ["reclaim"], lambda found: sum(d.evicts for d in found) == 250


def consolidate(nodes: int):
    """41 jobs wait for a whole node each; half of every node is taken by jobs that may move."""
    partition, one, two = partition_of(nodes)
    for number in range(nodes):
        add_job(partition, one, f"half-{number}", GPUS // 2, nodes=[number])
    for number in range(41):
        add_job(partition, two, f"whole-{number}", GPUS)
    return partition, ["consolidation"], lambda found: sum(d.evicts for d in found) >= 41


def unschedulable(nodes: int):
    partition, two = full(nodes)
    add_job(partition, two, "never", GPUS, members=nodes + 1)
    return partition, ["consolidation", "reclaim", "preempt"], lambda found: not found


CASES = {
    "reclaim one accelerator": reclaim_one,
    "reclaim for a gang of 250": reclaim_gang,
    "consolidate 41 jobs": consolidate,
    "declare a gang unschedulable": unschedulable,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    sizes = parser.parse_args().sizes
    print(
        f"{'CPU seconds to decide':<30}" + "".join(f"{size:>10}" for size in sizes) + "    growth"
    )
    for name, make in CASES.items():
        times = []
        for size in sizes:
            partition, actions, holds = make(size)
            gc.collect()  # what building it has left is not the actions' to clear up
            start = time.process_time()
            trial = Trial(partition, live_actions.PartitionAdapter(partition))
            live_actions.decide(trial, actions, Unbounded)
            found = trial.statement.commit()
            carry_out(partition, found)
            times.append(time.process_time() - start)
            assert holds(found), f"{name} at {size} nodes: {len(found)} decisions"
        growth = times[-1] / times[0] if times[0] else 0.0
        print(f"{name:<30}" + "".join(f"{t:>10.3f}" for t in times) + f"    {growth:.1f}x")


if __name__ == "__main__":
    main()
